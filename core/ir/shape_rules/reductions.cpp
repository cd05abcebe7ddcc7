// Reductions, what goes along an axis, and losses.
#include "ir/shape_rules/rules.h"

namespace lazyt::ir {
namespace {

// ---- reductions

Dims reduced(const NodeView& v, const Dims& of, const Dims& axes, bool keep) {
  std::vector<bool> gone(of.size(), axes.empty());
  for (int64_t a : axes) {
    const size_t at = v.axis_of(a, of.size());
    if (at < gone.size()) gone[at] = true;
  }
  Dims out;
  for (size_t i = 0; i < of.size(); i++)
    if (!gone[i] || keep) out.push_back(gone[i] ? 1 : of[i]);
  return out;
}
void to_one(const NodeView& v) {
  v.dims(0);
  v.gives({});
}
// Arguments: kAxes, kKeep
template <size_t kAxes, size_t kKeep>
void reduce(const NodeView& v) {
  const Dims out = reduced(v, v.dims(0), v.numbers(kAxes), v.flag(kKeep));
  for (uint32_t r = 0; r < v.results(); r++) v.gives(out, r);
}
template <size_t kAxis>
void along_axis(const NodeView& v) {
  v.axis(kAxis, v.rank(0));
  for (uint32_t r = 0; r < v.results(); r++) v.gives(v.dims(0), r);
}
void softmax_backward(const NodeView& v) {
  v.is(1, v.dims(0));
  along_axis<2>(v);
}
void topk(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(2, out.size());
  const int64_t k = v.number(1);
  require(k >= 0 && k <= (out.empty() ? 1 : out[axis]), "{} of {}", k, out);
  if (!out.empty()) out[axis] = k;
  for (uint32_t r = 0; r < v.results(); r++) v.gives(out, r);
}
void kthvalue(const NodeView& v) {
  const size_t axis = v.axis(2, v.rank(0));
  require(v.number(1) >= 1 && v.number(1) <= (v.rank(0) ? v.dims(0)[axis] : 1), "the {}th of {}", v.number(1), v.dims(0));
  reduce<2, 3>(v);
}

// ---- losses

void loss(const NodeView& v) {
  const Dims whole = v.common();
  v.gives(v.number(v.node.args.back().kind == LAZYT_ARG_INT ? v.node.args.size() - 1 : 2) == 0 ? whole : Dims{});
}
void loss_backward(const NodeView& v) { v.gives(v.common()); }
// self [N, C, ...] or [C], target without C
Dims classes(const NodeView& v, size_t self, size_t target, size_t weight) {
  const Dims& x = v.dims(self);
  require(!x.empty(), "no classes");
  const size_t at = x.size() == 1 ? 0 : 1;
  Dims places = x;
  places.erase(places.begin() + static_cast<int64_t>(at));
  const bool one_row = places.empty() && v.dims(target) == Dims{1};
  require(one_row || v.dims(target) == places, "targets {} of {}", v.dims(target), x);
  v.is_or_none(weight, {x[at]});
  return v.dims(target);
}
void nll_loss(const NodeView& v) {
  const Dims places = classes(v, 0, 1, 2);
  v.gives_elements(v.number(3) == 0 ? base::numel(places) : 1, 0);
  v.gives({}, 1);
}
void nll_loss_backward(const NodeView& v) {
  const Dims places = classes(v, 1, 2, 3);
  require(v.numel(0) == (v.number(4) == 0 ? base::numel(places) : 1), "the gradient is of another loss");
  require(v.numel(6) == 1, "the total weight is one number");
  v.gives(v.dims(1));
}

}  // namespace

void add_reductions(ShapeRules& all) {
  all.add(reduce<1, 3>, {"aten::var.correction", "aten::var_mean.correction", "aten::std.correction"});
  all.add(reduce<1, 2>, {"aten::sum.dim_IntList", "aten::mean.dim", "aten::prod.dim_int", "aten::amax", "aten::amin", "aten::aminmax", "aten::any.dim",
                         "aten::any.dims", "aten::all.dim", "aten::all.dims", "aten::argmax", "aten::argmin", "aten::logsumexp", "aten::max.dim",
                         "aten::min.dim", "aten::median.dim"});
  all.add(reduce<2, 3>, {"aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", "aten::linalg_vector_norm"});
  all.add(to_one, {"aten::sum", "aten::mean", "aten::prod", "aten::any", "aten::all", "aten::max", "aten::min", "aten::norm.Scalar"});
  all.add(along_axis<1>, {"aten::_softmax", "aten::_log_softmax", "aten::cumsum", "aten::cumprod", "aten::cummax", "aten::cummin", "aten::logcumsumexp",
                          "aten::sort"});
  all.add(along_axis<2>, {"aten::sort.stable"});
  all.add(softmax_backward, {"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"});
  all.add(topk, {"aten::topk"});
  all.add(kthvalue, {"aten::kthvalue"});
  all.add(nll_loss, {"aten::nll_loss_forward", "aten::nll_loss2d_forward"});
  all.add(nll_loss_backward, {"aten::nll_loss_backward", "aten::nll_loss2d_backward"});
  all.add(loss, {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::binary_cross_entropy", "aten::binary_cross_entropy_with_logits"});
  all.add(loss_backward, {"aten::mse_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward", "aten::binary_cross_entropy_backward"});
}

}  // namespace lazyt::ir
