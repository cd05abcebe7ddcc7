#include "ir/dtype_rules.h"

#include <unordered_map>

namespace lazyt::ir {
namespace {

bool is_index(base::DType d) { return d == LAZYT_DTYPE_INT64 || d == LAZYT_DTYPE_INT32; }
bool is_index_or_mask(base::DType d) {
  return is_index(d) || d == LAZYT_DTYPE_BOOL || d == LAZYT_DTYPE_UINT8 || d == LAZYT_DTYPE_INT8 || d == LAZYT_DTYPE_INT16;
}

// What an operator moves or multiplies keeps its dtype: of these arguments and of results: all, all but the last, which are places,
// the first, or those that the argument `mask` wants, as the others are nothing.
enum class Results { kAll, kBeforePlaces, kFirst, kWanted };
struct Moves {
  std::vector<size_t> arguments;
  Results results = Results::kAll;
  size_t mask = 0;
};
const std::unordered_map<std::string_view, Moves>& moves() {
  static const auto& all = *[] {
    auto* out = new std::unordered_map<std::string_view, Moves>;
    const auto add = [&](const Moves& what, std::initializer_list<const char*> names) {
      for (const char* name : names) out->emplace(name, what);
    };
    add({{0}}, {"aten::t", "aten::permute", "aten::transpose", "aten::slice", "aten::select", "aten::expand", "aten::view", "aten::reshape",
                "aten::squeeze", "aten::unsqueeze", "aten::diagonal", "aten::as_strided", "aten::alias", "aten::unfold", "aten::flip", "aten::roll",
                "aten::repeat", "aten::constant_pad_nd", "aten::pad", "aten::reflection_pad1d", "aten::reflection_pad2d", "aten::replication_pad2d",
                "aten::slice_backward", "aten::select_backward", "aten::tril", "aten::triu", "aten::split", "aten::split_with_sizes", "aten::unbind",
                "aten::chunk", "aten::gather", "aten::index", "aten::_unsafe_index", "aten::index_select", "aten::take", "aten::embedding",
                "aten::pixel_shuffle", "aten::clone", "aten::lift_fresh_copy"});
    add({{0, 1}}, {"aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::matmul", "aten::linear", "aten::convolution"});
    add({{0, 1, 2}}, {"aten::addmm", "aten::baddbmm", "aten::addmv"});
    add({{0, 1, 2}, Results::kWanted, 10}, {"aten::convolution_backward"});
    // Means of windows and what is between elements: of the dtype that is computed in.
    add({{0}}, {"aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d", "aten::adaptive_avg_pool1d", "aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d",
                "aten::upsample_nearest2d", "aten::upsample_bilinear2d", "aten::upsample_nearest2d_backward", "aten::upsample_bilinear2d_backward"});
    add({{0, 1}}, {"aten::grid_sampler_2d", "aten::avg_pool2d_backward", "aten::_adaptive_avg_pool2d_backward"});
    // Queries, keys, values and their gradients; behind the first result is what the backward wants.
    add({{0, 1, 2}, Results::kFirst}, {"aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math",
                                       "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_fused_attention_overrideable"});
    add({{0, 1, 2, 3, 4}}, {"aten::_scaled_dot_product_flash_attention_for_cpu_backward"});
    add({{0, 1, 2, 3}, Results::kWanted, 5}, {"aten::_scaled_dot_product_fused_attention_overrideable_backward"});
    add({{0}}, {"aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter"});  // and PRG-4
    add({{0, 2}}, {"aten::masked_scatter"});
    add({{0}}, {"aten::index_put", "aten::_unsafe_index_put"});  // a mask's places may be given one number of another dtype
    add({{0, 3}}, {"aten::scatter.src", "aten::scatter_add", "aten::scatter_reduce", "aten::index_add", "aten::index_copy"});
    add({{0}, Results::kBeforePlaces}, {"aten::sort", "aten::topk", "aten::kthvalue", "aten::median", "aten::max.dim", "aten::min.dim", "aten::cummax", "aten::cummin",
                      "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::adaptive_max_pool2d"});
    return out;
  }();
  return all;
}

// The argument that is an index, or lists some.
const std::unordered_map<std::string_view, size_t>& indices() {
  static const auto& all = *new std::unordered_map<std::string_view, size_t>{
      {"aten::gather", 2},      {"aten::scatter", 2},   {"aten::scatter_add", 2}, {"aten::scatter_reduce", 2},
      {"aten::index_select", 2}, {"aten::index_add", 2}, {"aten::index_copy", 2},  {"aten::index_fill", 2},
      {"aten::take", 1},        {"aten::embedding", 1}, {"aten::index", 1},       {"aten::index_put", 1},
      {"aten::_unsafe_index", 1}, {"aten::_unsafe_index_put", 1}, {"aten::embedding_dense_backward", 1},
      {"aten::max_pool2d_with_indices_backward", 7},
  };
  return all;
}

}  // namespace

void check_dtypes(const NodeView& v) {
  if (const Moves* m = find_in(moves(), v.node.name, v.node.overload)) {
    const base::DType moved = v.meta(size_t{0}).dtype;
    const auto keeps = [&](base::DType d, std::string_view what, size_t i) {
      require(d == moved, "{} {} of {} where {} is kept", what, i, base::dtype_name(d), base::dtype_name(moved));
    };
    for (size_t i : m->arguments) keeps(v.meta(i).dtype, "argument", i);
    for (uint32_t r = 0; r < v.results(); r++) {
      if (m->results == Results::kFirst && r > 0) break;
      if (m->results == Results::kWanted && !v.mask(m->mask, r)) continue;
      if (m->results == Results::kBeforePlaces && r + 1 == v.results())
        require(v.result_meta(r).dtype == LAZYT_DTYPE_INT64, "places are of i64");
      else
        keeps(v.result_meta(r).dtype, "result", r);
    }
  }
  if (v.node.name == "aten::cat" || v.node.name == "aten::stack")
    for (const Arg& a : v.list(0)) require(v.meta(a).dtype == v.result_meta(0).dtype, "what is joined is of one dtype");
  if (v.node.name == "aten::argmax" || v.node.name == "aten::argmin") require(v.result_meta(0).dtype == LAZYT_DTYPE_INT64, "places are of i64");
  if (const size_t* i = find_in(indices(), v.node.name, v.node.overload)) {
    if (v.is_value(*i)) require(is_index(v.meta(*i).dtype), "an index of {}", base::dtype_name(v.meta(*i).dtype));
    for (const Arg& a : v.arg(*i).list)
      if (a.kind == LAZYT_ARG_VALUE) require(is_index_or_mask(v.meta(a).dtype), "an index of {}", base::dtype_name(v.meta(a).dtype));
  }
  if (v.node.name == "aten::view_as_real" || v.node.name == "aten::view_as_complex") {
    const bool apart = v.node.name == "aten::view_as_real";
    const base::DType pair = apart ? v.meta(size_t{0}).dtype : v.result_meta(0).dtype, part = apart ? v.result_meta(0).dtype : v.meta(size_t{0}).dtype;
    require((pair == LAZYT_DTYPE_COMPLEX32 && part == LAZYT_DTYPE_FLOAT16) || (pair == LAZYT_DTYPE_COMPLEX64 && part == LAZYT_DTYPE_FLOAT32) ||
                (pair == LAZYT_DTYPE_COMPLEX128 && part == LAZYT_DTYPE_FLOAT64), "{} is no pair of {}", base::dtype_name(pair), base::dtype_name(part));
  }
}

void check_promotion(const NodeView& v, const OpInfo& op) {
  if (op.promote == Promote::kNone || v.results() == 0) return;
  base::DType common = LAZYT_DTYPE_INVALID;
  const auto meet = [&](const Arg& a) {
    if (a.kind != LAZYT_ARG_VALUE || v.is_host_scalar(a)) return;
    const base::DType is = v.meta(a).dtype;
    require(common == LAZYT_DTYPE_INVALID || is == common, "operands of {} and {} meet (PRG-4)", base::dtype_name(common), base::dtype_name(is));
    common = is;
  };
  for (size_t i = 0; i < v.node.args.size(); i++)
    if (op.promote_args >> i & 1) meet(v.arg(i));
}

}  // namespace lazyt::ir
