// Norms.
#include "ir/shape_rules/rules.h"

namespace lazyt::ir {
namespace {

// Rows before the shape that argument i names.
int64_t rows_before(const NodeView& v, const Dims& input, size_t i) {
  const Dims shape = v.numbers(i);
  require(!shape.empty() && shape.size() <= input.size() && std::equal(shape.rbegin(), shape.rend(), input.rbegin()), "{} is no end of {}", shape, input);
  return product(input, 0, input.size() - shape.size());
}
void layer_norm(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(0), 1);
  v.is_or_none(2, v.numbers(1));
  v.is_or_none(3, v.numbers(1));
  v.gives(v.dims(0));
  v.gives_elements(rows, 1), v.gives_elements(rows, 2);
}
void layer_norm_backward(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(1), 2);
  v.is(0, v.dims(1));
  require(v.numel(3) == rows && v.numel(4) == rows, "the statistics are of other rows");
  v.is_or_none(5, v.numbers(2));
  v.is_or_none(6, v.numbers(2));
  if (v.mask(7, 0)) v.gives(v.dims(1), 0);
  for (uint32_t r : {1u, 2u})
    if (v.mask(7, r)) v.gives(v.numbers(2), r);
}
void rms_norm(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(0), 1);
  v.is_or_none(2, v.numbers(1));
  v.gives(v.dims(0));
  v.gives_elements(rows, 1);
}
void rms_norm_backward(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(1), 2);
  v.is(0, v.dims(1));
  require(v.numel(3) == rows, "the statistics are of other rows");
  v.is_or_none(4, v.numbers(2));
  if (v.mask(5, 0)) v.gives(v.dims(1), 0);
  if (v.mask(5, 1)) v.gives(v.numbers(2), 1);
}
// N, C, HxW and groups begin at `first`.
int64_t groups_of(const NodeView& v, size_t input, size_t first) {
  const Dims& x = v.dims(input);
  const int64_t n = v.number(first), c = v.number(first + 1), plane = v.number(first + 2), groups = v.number(first + 3);
  require(x.size() >= 2 && n == x[0] && c == x[1] && plane == product(x, 2, x.size()), "N, C and HxW are of another image");
  require(groups >= 1 && c % groups == 0, "{} groups of {} channels", groups, c);
  return product({n, groups}, 0, 2);
}
void group_norm(const NodeView& v) {
  const int64_t groups = groups_of(v, 0, 3);
  v.is_or_none(1, {v.number(4)});
  v.is_or_none(2, {v.number(4)});
  v.gives(v.dims(0));
  v.gives_elements(groups, 1), v.gives_elements(groups, 2);
}
void group_norm_backward(const NodeView& v) {
  const int64_t groups = groups_of(v, 1, 5);
  v.is(0, v.dims(1));
  require(v.numel(2) == groups && v.numel(3) == groups, "the statistics are of other groups");
  v.is_or_none(4, {v.number(6)});
  if (v.mask(9, 0)) v.gives(v.dims(1), 0);
  for (uint32_t r : {1u, 2u})
    if (v.mask(9, r)) v.gives({v.number(6)}, r);
}
int64_t channels_of(const Dims& x) {
  require(x.size() >= 2, "{} has no channels", x);
  return x[1];
}
// Arguments from..to are vectors of the channels or nothing; results as well, or without elements.
void batch_norm(const NodeView& v, size_t to) {
  const Dims channels = {channels_of(v.dims(0))};
  for (size_t i = 1; i <= to; i++) v.is_or_none(i, channels);
  v.gives(v.dims(0));
  for (uint32_t r = 1; r < v.results(); r++)
    if (v.result_meta(r).numel()) v.gives(channels, r);
}
void batch_norm_with_statistics(const NodeView& v) { batch_norm(v, 4); }
void batch_norm_without_statistics(const NodeView& v) { batch_norm(v, 2); }
void batch_norm_backward(const NodeView& v) {
  const Dims channels = {channels_of(v.dims(1))};
  v.is(0, v.dims(1));
  for (size_t i = 2; i <= 6; i++)
    if (v.has(i) && v.numel(i)) v.is(i, channels);
  require(v.flag(7) ? v.has(5) && v.has(6) && v.dims(5) == channels && v.dims(6) == channels
                    : v.has(3) && v.has(4) && v.dims(3) == channels && v.dims(4) == channels, "the statistics are missing");
  if (v.mask(9, 0)) v.gives(v.dims(1), 0);
  for (uint32_t r : {1u, 2u})
    if (v.mask(9, r)) v.gives(channels, r);
}

}  // namespace

void add_norms(ShapeRules& all) {
  all.add(layer_norm, {"aten::native_layer_norm"});
  all.add(layer_norm_backward, {"aten::native_layer_norm_backward"});
  all.add(rms_norm, {"aten::_fused_rms_norm"});
  all.add(rms_norm_backward, {"aten::_fused_rms_norm_backward"});
  all.add(group_norm, {"aten::native_group_norm"});
  all.add(group_norm_backward, {"aten::native_group_norm_backward"});
  all.add(batch_norm_with_statistics, {"aten::_native_batch_norm_legit_functional", "aten::_native_batch_norm_legit_no_training"});
  all.add(batch_norm_without_statistics, {"aten::_native_batch_norm_legit.no_stats"});
  all.add(batch_norm_backward, {"aten::native_batch_norm_backward"});
}

}  // namespace lazyt::ir
