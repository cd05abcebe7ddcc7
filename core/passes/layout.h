// Layout: how an interior value is likely to lie in memory, and what may depend on it.
//
// Strides of interior values are hints (PRG-2), and what a program computes does not depend on them. Bits
// may: a kernel adds in the order of memory, or takes its vector form only for rows without gaps. Passes
// that promise equal bits therefore replace a value only by one that lies the same.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace lazyt::passes {

enum class Layout : uint8_t {
  kUnknown,
  kDense,  // without holes, in some order of dims
  kPlain,  // row-major without holes
};

// By value, as PyTorch's own kernels lay them out: views share the bytes of their operand, pointwise
// operators keep its order of dims. Never more than is certain.
std::vector<Layout> layouts(const ir::Graph& graph);

// The result lies in its operand's bytes, if the plugin likes.
bool is_view(const std::string& name);

// Each element of the result depends on one element of each operand.
bool is_pointwise(const ir::Node& node);

// Pointwise, and one rounding (or none) from the exact result: every correct kernel gives the same bits.
bool is_exact_pointwise(const ir::Node& node);

}  // namespace lazyt::passes
