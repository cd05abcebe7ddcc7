// What the families of shape rules are made with. Each file has a family's rules, and its table: add_<file>().
// The rules are those of PyTorch's shape functions (aten/src/ATen/native, the meta functions).
#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "ir/shape_rules.h"

namespace lazyt::ir {

// By name, or name and overload. Names are literals.
struct ShapeRules {
  // What has a rule keeps it.
  void add(ShapeRule rule, std::initializer_list<std::string_view> names) {
    for (std::string_view name : names) of.emplace(name, rule);
  }
  std::unordered_map<std::string_view, ShapeRule> of;
};

void add_pointwise(ShapeRules& all);
void add_products(ShapeRules& all);
void add_windows(ShapeRules& all);
void add_reductions(ShapeRules& all);
void add_norms(ShapeRules& all);
void add_views(ShapeRules& all);
void add_indexing(ShapeRules& all);

inline int64_t product(const Dims& dims, size_t from, size_t to) {
  int64_t n = 1;
  for (size_t i = from; i < to; i++) require(!__builtin_mul_overflow(n, dims[i], &n), "more elements than can be counted");
  return n;
}

}  // namespace lazyt::ir
