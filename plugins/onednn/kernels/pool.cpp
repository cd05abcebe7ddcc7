// Pooling and resampling operators: each says, axis by axis, which elements make which; taps.cpp does the work.
#include "../ops.h"
#include "lazyt/toolkit/resizing.hpp"
#include "taps.h"

namespace lazyt::onednn {
namespace {

using namespace toolkit::taps;

void lower_max_pool(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const size_t n = axes_count(node.op);
  const Volumes x = volumes_of(b, b.tensor(b.value_of(args[0])), n);
  Window window{b.ints_of(args[1]), b.ints_of(args[2]), b.ints_of(args[3]), b.ints_of(args[4])};
  const Volumes y = make_volumes(b, node.results, n, x.channels_last), index = make_volumes(b, node.results + 1, n, x.channels_last);
  add_max_pool(b, x, y, index, axes_of(x.tensor.dims(), y.tensor.dims(), n, window));
}

// grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
void lower_max_pool_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Volumes index = volumes_of(b, b.tensor(b.value_of(args[7])), 2);
  const Volumes grad = volumes_of(b, b.tensor(b.value_of(args[0])), 2, index.channels_last);
  const Volumes x = make_volumes(b, node.results, 2, index.channels_last);
  const Window window{b.ints_of(args[2]), b.ints_of(args[3]), b.ints_of(args[4]), b.ints_of(args[5])};
  add_max_pool_backward(b, grad, index, x, axes_of(x.tensor.dims(), grad.tensor.dims(), 2, window));
}

void lower_avg_pool(Builder& b, const lazyt_node_t& node) {
  const size_t n = axes_count(node.op);
  const Volumes x = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), n);
  const Volumes y = make_volumes(b, node.results, n, x.channels_last);
  add_resample(b, "avg pool", x, y, axes_of(x.tensor.dims(), y.tensor.dims(), n, average_window(b, node, 1)));
}

void lower_avg_pool_backward(Builder& b, const lazyt_node_t& node) {
  const Volumes grad = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), 2);
  const Volumes x = make_volumes(b, node.results, 2, grad.channels_last);
  add_resample(b, "avg pool backward", grad, x, transposed(axes_of(x.tensor.dims(), grad.tensor.dims(), 2, average_window(b, node, 2))));
}

void lower_adaptive_avg(Builder& b, const lazyt_node_t& node) {
  const size_t n = axes_count(node.op);
  const Volumes x = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), n);
  const Volumes y = make_volumes(b, node.results, n, x.channels_last);
  add_resample(b, "adaptive avg pool", x, y, axes_of(x.tensor.dims(), y.tensor.dims(), n, adaptive<true>));
}

void lower_adaptive_avg_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  // A gradient of one pixel lies both ways: the operand says which.
  const bool last = volumes_of(b, b.tensor(b.value_of(args[1])), 2).channels_last;
  const Volumes grad = volumes_of(b, b.tensor(b.value_of(args[0])), 2, last);
  const Volumes x = make_volumes(b, node.results, 2, last);
  add_resample(b, "adaptive avg pool backward", grad, x, transposed(axes_of(x.tensor.dims(), grad.tensor.dims(), 2, adaptive<true>)));
}

void lower_adaptive_max(Builder& b, const lazyt_node_t& node) {
  const Volumes x = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), 2);
  const Volumes y = make_volumes(b, node.results, 2, x.channels_last), index = make_volumes(b, node.results + 1, 2, x.channels_last);
  add_max_pool(b, x, y, index, axes_of(x.tensor.dims(), y.tensor.dims(), 2, adaptive<false>));
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
  auto opaque = [&](lazyt_op_t op, Operator::Lower lower) { all.add(op, {toolkit::Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_MAX_POOL2D_WITH_INDICES, lower_max_pool);
  opaque(LAZYT_OP_MAX_POOL3D_WITH_INDICES, lower_max_pool);
  opaque(LAZYT_OP_MAX_POOL2D_WITH_INDICES_BACKWARD, lower_max_pool_backward);
  opaque(LAZYT_OP_ADAPTIVE_MAX_POOL2D, lower_adaptive_max);
  for (lazyt_op_t op : {LAZYT_OP_AVG_POOL1D, LAZYT_OP_AVG_POOL2D, LAZYT_OP_AVG_POOL3D}) opaque(op, lower_avg_pool);
  opaque(LAZYT_OP_AVG_POOL2D_BACKWARD, lower_avg_pool_backward);
  for (lazyt_op_t op : {LAZYT_OP_ADAPTIVE_AVG_POOL1D, LAZYT_OP_ADAPTIVE_AVG_POOL2D, LAZYT_OP_ADAPTIVE_AVG_POOL3D})
    opaque(op, lower_adaptive_avg);
  opaque(LAZYT_OP_ADAPTIVE_AVG_POOL2D_BACKWARD, lower_adaptive_avg_backward);
  add_resizings(all, {toolkit::Role::kOpaque, accept_resizing, lower_resizing});
}

}  // namespace lazyt::onednn
