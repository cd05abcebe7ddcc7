#include "passes/layout.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "ir/registry.h"

namespace lazyt::passes {

namespace {

// Sets of names are never destroyed: what is in flight when the process exits still goes through the passes.
using Names = std::unordered_set<std::string_view>;

Layout of_meta(const ir::Meta& m) {
  if (m.is_contiguous()) return Layout::kPlain;
  return m.is_dense() ? Layout::kDense : Layout::kUnknown;
}

// Results in row-major order, whatever the operands.
bool makes_plain(const ir::Node& node) {
  static const Names& names = *new Names{"aten::full",   "aten::zeros",  "aten::ones", "aten::eye",
                              "aten::arange", "aten::linspace", "aten::scalar_tensor",
                              "aten::mm",     "aten::addmm",  "aten::bmm",
                              "aten::slice_backward", "aten::select_backward"};
  return names.contains(node.name);
}

// Results in row-major order if all operands lie so.
bool keeps_plain(const ir::Node& node) {
  static const Names& names = *new Names{"aten::sum",  "aten::mean",     "aten::amax",         "aten::amin", "aten::cat",
                              "aten::stack", "aten::_softmax", "aten::_log_softmax", "aten::copy"};
  return names.contains(node.name) || node.name.starts_with("aten::_foreach_") || is_pointwise(node);
}

// Views that keep a dense operand dense.
bool keeps_dense(const ir::Node& node) {
  static const Names& names = *new Names{"aten::t",         "aten::permute", "aten::transpose", "aten::reshape",
                              "aten::view",      "aten::squeeze", "aten::unsqueeze", "aten::alias"};
  return names.contains(node.name);
}

bool changes_order(const ir::Node& node) {
  return node.name == "aten::t" || node.name == "aten::permute" || node.name == "aten::transpose";
}

// The memory_format argument, or -1 for none.
int64_t memory_format(const ir::Node& node) {
  const ir::Arg& last = node.args.back();
  return last.kind == LAZYT_ARG_MEMORY_FORMAT ? last.i : -1;
}

Layout of_node(const ir::Graph& graph, const ir::Node& node, const std::vector<Layout>& known) {
  if (makes_plain(node)) return Layout::kPlain;
  Layout least = Layout::kPlain;
  for (const ir::Arg& arg : node.args)
    ir::for_each_value(arg, [&](const ir::ValueId& v) { least = std::min(least, known[v]); });
  if (node.name == "aten::clone" || node.name == "aten::_to_copy") {
    switch (memory_format(node)) {
      case 0:
        return Layout::kPlain;
      case -1:
      case 1:
        return std::max(least, Layout::kDense);
      default:
        return Layout::kDense;
    }
  }
  if (node.name == "aten::slice_scatter" && node.args[0].kind == LAZYT_ARG_VALUE)  // a clone of its operand, whatever is written there
    return known[node.args[0].value] == Layout::kPlain ? Layout::kPlain : Layout::kUnknown;
  if (is_view(node.name)) {
    if (!keeps_dense(node) || node.result_count != 1) return Layout::kUnknown;
    // A transpose that moves nothing but dims of one element would be plain still; it is rare.
    return changes_order(node) && graph.values[node.first_result].meta.dims.size() > 1
               ? std::min(least, Layout::kDense)
               : least;
  }
  if (!keeps_plain(node)) return Layout::kUnknown;
  return least == Layout::kPlain ? Layout::kPlain : Layout::kUnknown;
}

}  // namespace

std::vector<Layout> layouts(const ir::Graph& graph) {
  std::vector<Layout> known(graph.values.size(), Layout::kUnknown);
  for (ir::ValueId v = 0; v < graph.values.size(); v++)
    if (graph.values[v].kind != ir::ValueKind::kResult) known[v] = of_meta(graph.values[v].meta);
  for (const ir::Node& node : graph.nodes) {
    if (node.result_count == 0) continue;
    const Layout layout = of_node(graph, node, known);
    for (uint32_t r = 0; r < node.result_count; r++) known[node.first_result + r] = layout;
  }
  return known;
}

bool is_view(const std::string& name) {
  static const Names& views = *new Names{"aten::t",       "aten::permute",   "aten::transpose",    "aten::slice",
                              "aten::select",  "aten::expand",    "aten::view",         "aten::reshape",
                              "aten::squeeze", "aten::unsqueeze", "aten::diagonal",     "aten::as_strided",
                              "aten::alias",   "aten::unfold",    "aten::view_as_real", "aten::view_as_complex",
                              "aten::split",   "aten::unbind",    "aten::chunk",        "aten::split_with_sizes",
                              "aten::real",    "aten::imag"};
  return views.contains(name);
}

bool is_pointwise(const ir::Node& node) {
  // The opset's first two chapters: one and two operands, activations, where, addcmul, lerp, masked_fill.
  constexpr uint32_t kLast = 131;
  const ir::OpInfo* op = ir::find_op(node.name, node.overload);
  return op && op->number <= kLast;
}

bool is_exact_pointwise(const ir::Node& node) {
  static const Names& names = *new Names{
      "aten::mul",         "aten::div",        "aten::maximum",    "aten::minimum",    "aten::eq",
      "aten::ne",          "aten::lt",         "aten::le",         "aten::gt",         "aten::ge",
      "aten::logical_and", "aten::logical_or", "aten::logical_xor", "aten::where",     "aten::neg",
      "aten::abs",         "aten::bitwise_and", "aten::bitwise_or", "aten::bitwise_xor", "aten::masked_fill"};
  if (!is_pointwise(node)) return false;
  if (node.name == "aten::add" || node.name == "aten::sub") {
    const ir::Arg& alpha = node.args.back();  // alpha * other may be fused or not; 1 * other is exact
    return (alpha.kind == LAZYT_ARG_INT && alpha.i == 1) || (alpha.kind == LAZYT_ARG_DOUBLE && alpha.d == 1.0);
  }
  return names.contains(node.name);
}

}  // namespace lazyt::passes
