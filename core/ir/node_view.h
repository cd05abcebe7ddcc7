// NodeView: a node of a graph as the rules for shapes and dtypes read it (shape_rules.h, dtype_rules.h).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace lazyt::ir {

using base::Dims;

// What of a node does not fit. Thrown by rules, caught by verify_shapes.
struct Wrong {
  std::string what;
};

inline std::string shown(const Dims& d) { return fmt::format("[{}]", fmt::join(d, ",")); }
template <class T>
const T& shown(const T& other) {
  return other;
}

// The message is written only if it is wanted.
template <class... A>
void require(bool holds, std::string_view what, const A&... a) {
  if (!holds) throw Wrong{fmt::format(fmt::runtime(what), shown(a)...)};
}

// The shape that both have together.
inline Dims broadcast(const Dims& a, const Dims& b) {
  Dims out = a.size() >= b.size() ? a : b;
  const Dims& less = a.size() >= b.size() ? b : a;
  for (size_t i = 0; i < less.size(); i++) {
    int64_t& d = out[out.size() - less.size() + i];
    require(d == less[i] || d == 1 || less[i] == 1, "{} and {} have no common shape", a, b);
    if (d == 1) d = less[i];
  }
  return out;
}

// A node, as its rule reads it. What is not there, or of another kind, is wrong.
class NodeView {
 public:
  NodeView(const Graph& graph, const Node& node) : node(node), graph_(graph) {}

  const Node& node;

  const Arg& arg(size_t i) const {
    require(i < node.args.size(), "an argument is missing");
    return node.args[i];
  }
  bool has(size_t i) const { return arg(i).kind != LAZYT_ARG_NONE; }
  bool is_value(size_t i) const { return arg(i).kind == LAZYT_ARG_VALUE; }
  // REQUIRES: a value.
  bool is_host_scalar(const Arg& a) const { return graph_.values[a.value].kind == ValueKind::kHostScalar; }
  const Meta& meta(const Arg& a) const {
    require(a.kind == LAZYT_ARG_VALUE, "an argument is no tensor");
    return graph_.values[a.value].meta;
  }
  const Meta& meta(size_t i) const { return meta(arg(i)); }
  const Dims& dims(size_t i) const { return meta(i).dims; }
  size_t rank(size_t i) const { return dims(i).size(); }
  int64_t numel(size_t i) const { return meta(i).numel(); }
  // A list without elements has those of no kind.
  const std::vector<Arg>& list(size_t i) const {
    require(arg(i).kind == LAZYT_ARG_LIST || (arg(i).kind == LAZYT_ARG_INTS && arg(i).ints.empty()), "argument {} is no list", i);
    return arg(i).list;
  }
  const Dims& element(size_t i, size_t n) const {
    require(n < list(i).size(), "argument {} lists {}", i, list(i).size());
    return meta(list(i)[n]).dims;
  }
  bool flag(size_t i) const { return arg(i).i != 0; }
  int64_t number(size_t i) const {
    require(arg(i).kind == LAZYT_ARG_INT, "argument {} is no integer", i);
    return arg(i).i;
  }
  // A list of numbers, or one.
  Dims numbers(size_t i) const {
    if (arg(i).kind == LAZYT_ARG_INT) return {arg(i).i};
    require(arg(i).kind == LAZYT_ARG_INTS || !has(i), "argument {} lists no integers", i);
    return arg(i).ints;
  }
  // One for each of `count` axes, given once for all of them, or not at all.
  Dims each(size_t i, size_t count, const Dims& otherwise) const {
    Dims n = numbers(i);
    if (n.empty()) return otherwise;
    if (n.size() == 1) n.resize(count, n[0]);
    require(n.size() == count, "argument {} has {} numbers for {} axes", i, n.size(), count);
    return n;
  }
  bool mask(size_t i, size_t n) const {
    require(n < arg(i).ints.size(), "argument {} says nothing of result {}", i, n);
    return arg(i).ints[n] != 0;
  }
  // A number without dims has one axis, 0.
  size_t axis_of(int64_t axis, size_t rank) const {
    require(axis >= 0 && axis < static_cast<int64_t>(std::max<size_t>(rank, 1)), "axis {} of {}", axis, rank);
    return static_cast<size_t>(axis);
  }
  size_t axis(size_t i, size_t rank) const { return axis_of(number(i), rank); }

  uint32_t results() const { return node.result_count; }
  const Meta& result_meta(uint32_t r) const {
    require(r < results(), "result {} is missing", r);
    return graph_.values[node.first_result + r].meta;
  }
  const Dims& result(uint32_t r = 0) const { return result_meta(r).dims; }
  void gives(const Dims& want, uint32_t r = 0) const {
    require(result(r) == want, "result {} is {}, its operands give {}", r, result(r), want);
  }
  void gives_elements(int64_t want, uint32_t r) const {
    require(result_meta(r).numel() == want, "result {} is {}, its operands give {} elements", r, result(r), want);
  }
  void is(size_t i, const Dims& want) const {
    require(dims(i) == want, "argument {} is {}, not {}", i, dims(i), want);
  }
  void is_or_none(size_t i, const Dims& want) const {
    if (has(i)) is(i, want);
  }
  // Of all tensors among the arguments.
  Dims common() const {
    Dims out;
    for (size_t i = 0; i < node.args.size(); i++)
      if (is_value(i)) out = broadcast(out, dims(i));
    return out;
  }

 private:
  const Graph& graph_;
};

// What a table says of the overload, else of the name; or null.
template <class Table>
const typename Table::mapped_type* find_in(const Table& table, std::string_view name, std::string_view overload) {
  auto it = table.find(fmt::format("{}.{}", name, overload));
  if (it == table.end()) it = table.find(name);
  return it == table.end() ? nullptr : &it->second;
}

}  // namespace lazyt::ir
