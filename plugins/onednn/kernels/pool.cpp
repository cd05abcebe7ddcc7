// Pooling and resampling operators: each says, axis by axis, which elements make which; taps.cpp does the work.
#include "../ops.h"
#include "lazyt/toolkit/pooling.hpp"
#include "lazyt/toolkit/resizing.hpp"
#include "taps.h"

namespace lazyt::onednn {
namespace {

using namespace toolkit::taps;

void lower_pooling(Builder& b, const lazyt_node_t& node) {
  const Pooling& p = pooling_of(b.program, node);
  const auto args = b.program.args(node);
  const Volumes x = volumes_of(b, b.tensor(b.value_of(args[0])), p.axes);
  const Volumes y = make_volumes(b, node.results, p.axes, x.channels_last);
  Axes axes = axes_of(x.tensor.dims(), y.tensor.dims(), p.axes, axis_of(b, node, p));
  if (p.max) return add_max_pool(b, x, y, make_volumes(b, node.results + 1, p.axes, x.channels_last), std::move(axes));
  add_resample(b, p.adaptive ? "adaptive avg pool" : "avg pool", x, y, std::move(axes));
}

void lower_pooling_backward(Builder& b, const lazyt_node_t& node) {
  const Pooling& p = pooling_of(b.program, node);
  const auto args = b.program.args(node);
  const auto operand = [&](size_t i) { return b.tensor(b.value_of(args[i])); };
  const auto made = [&](bool channels_last) { return make_volumes(b, node.results, p.axes, channels_last); };
  const auto axes_to = [&](const Volumes& x, const Volumes& grad) { return axes_of(x.tensor.dims(), grad.tensor.dims(), p.axes, axis_of(b, node, p)); };
  if (p.max) {
    const Volumes index = volumes_of(b, operand(args.size() - 1), p.axes);
    const Volumes grad = volumes_of(b, operand(0), p.axes, index.channels_last), x = made(index.channels_last);
    return add_max_pool_backward(b, grad, index, x, axes_to(x, grad));
  }
  // A gradient of one pixel lies both ways: the operand says which.
  const Volumes grad = p.adaptive ? volumes_of(b, operand(0), p.axes, volumes_of(b, operand(1), p.axes).channels_last) : volumes_of(b, operand(0), p.axes);
  const Volumes x = made(grad.channels_last);
  add_resample(b, p.adaptive ? "adaptive avg pool backward" : "avg pool backward", grad, x, transposed(axes_to(x, grad)));
}

void lower_resizing(Builder& b, const lazyt_node_t& node) {
  const Resizing& r = resizing_of(b.program, node);
  const Volumes from = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), r.axes);
  const Volumes to = make_volumes(b, node.results, r.axes, from.channels_last);
  const Dims &x = (r.backward ? to : from).tensor.dims(), &y = (r.backward ? from : to).tensor.dims();
  const Axes axes = axes_of(x, y, r.axes, axis_of(b, node, r));
  add_resample(b, "resize", from, to, r.backward ? transposed(axes) : axes);
}

}  // namespace

void register_pool(Operators& all) {
  add_poolings(all, lower_pooling, lower_pooling_backward);
  add_resizings(all, {toolkit::Role::kOpaque, accept_resizing, lower_resizing});
}

}  // namespace lazyt::onednn
