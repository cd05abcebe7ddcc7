// Losses: negative log likelihood over classes; pointwise losses are the toolkit's.
#include <cstring>

#include "elements.h"
#include "fused.h"
#include "lazyt/toolkit/losses.hpp"

namespace lazyt::onednn {
namespace {

using namespace toolkit::losses;

[[noreturn]] void bad_target(int64_t target) {
  throw plugin::Error(LAZYT_CODE_OUT_OF_RANGE, "Target " + std::to_string(target) + " is out of bounds.");
}

// The sums run over the elements in order, in double: the same for any number of threads.
void lower_nll_forward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor self = b.dense(tensor_at(b, args[0])), target = dense_as(b, tensor_at(b, args[1]), LAZYT_DTYPE_INT64);
  const bool weighted = !b.is_none(args[2]);
  const Tensor weight = weighted ? b.dense(tensor_at(b, args[2])) : self;
  const int64_t reduction = b.int_of(args[3]), ignored = b.int_of(args[4]);
  const Classes classes = classes_of(self.dims());
  const Tensor out = b.make_dense(node.results), total = b.make_dense(node.results + 1);
  with_floating(self.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("nll_loss", {self.storage, target.storage, weight.storage}, {out.storage, total.storage}, [=](const Frame& frame) {
      const T *x = frame.at<T>(self), *w = weighted ? frame.at<T>(weight) : nullptr;
      const int64_t* targets = frame.at<int64_t>(target);
      T* y = frame.at<T>(out);
      double sum = 0, weights = 0;
      for (int64_t i = 0; i < classes.count(); ++i) {
        const int64_t t = targets[i];
        if (t == ignored) {
          if (reduction == kNone) y[i] = narrow<T>(C(0));
          continue;
        }
        if (t < 0 || t >= classes.c) bad_target(t);
        const C scale = w ? widen(w[t]) : C(1), loss = -widen(x[classes.at(i, t)]) * scale;
        weights += static_cast<double>(scale);
        sum += static_cast<double>(loss);
        if (reduction == kNone) y[i] = narrow<T>(loss);
      }
      if (reduction != kNone) {
        if (reduction == kMean) sum /= weights;
        y[0] = narrow<T>(static_cast<C>(sum));
      }
      *frame.at<T>(total) = narrow<T>(static_cast<C>(reduction == kNone ? 0.0 : weights));
    });
  });
}

void lower_nll_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Dims dims = b.dims(b.value_of(args[1]));
  const Tensor grad = b.dense(tensor_at(b, args[0])), target = dense_as(b, tensor_at(b, args[2]), LAZYT_DTYPE_INT64);
  const bool weighted = !b.is_none(args[3]);
  const Tensor weight = weighted ? b.dense(tensor_at(b, args[3])) : grad;
  const int64_t reduction = b.int_of(args[4]), ignored = b.int_of(args[5]);
  const Tensor total = b.dense(tensor_at(b, args[6]));
  const Classes classes = classes_of(dims);
  const Tensor out = b.make_dense(node.results);
  with_floating(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("nll_loss_backward", {grad.storage, target.storage, weight.storage, total.storage}, {out.storage}, [=](const Frame& frame) {
      const T *g = frame.at<T>(grad), *w = weighted ? frame.at<T>(weight) : nullptr;
      const int64_t* targets = frame.at<int64_t>(target);
      T* y = frame.at<T>(out);
      const C divisor = reduction == kMean ? widen(*frame.at<T>(total)) : C(1);
      parallel(frame, out.count(), out.count(), [&](int64_t begin, int64_t end) { std::memset(y + begin, 0, static_cast<size_t>(end - begin) * sizeof(T)); });
      const bool alike = reduction != kNone && !w;
      const T each = alike ? narrow<T>(-widen(*g) / divisor) : T{};
      for (int64_t i = 0; i < classes.count(); ++i) {
        const int64_t t = targets[i];
        if (t == ignored) continue;
        if (t < 0 || t >= classes.c) bad_target(t);
        const C scale = w ? widen(w[t]) : C(1);
        y[classes.at(i, t)] = alike ? each : narrow<T>(-scale * widen(g[reduction == kNone ? i : 0]) / divisor);
      }
    });
  });
}

}  // namespace

void register_loss(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_NLL_LOSS_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS2D_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS_BACKWARD, accept_nll_backward, lower_nll_backward);
  opaque(LAZYT_OP_NLL_LOSS2D_BACKWARD, accept_nll_backward, lower_nll_backward);
  toolkit::add_losses<FusedKernel>(all);
}

}  // namespace lazyt::onednn
