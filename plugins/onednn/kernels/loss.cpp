// Losses: negative log likelihood over classes, and pointwise losses that are summed or averaged.
#include <cmath>

#include "elements.h"

namespace lazyt::onednn {
namespace {

constexpr int64_t kNone = 0, kMean = 1;  // reductions; 2 is the sum

[[noreturn]] void bad_target(int64_t target) {
  throw plugin::Error(LAZYT_CODE_OUT_OF_RANGE, "Target " + std::to_string(target) + " is out of bounds.");
}

// ---- nll_loss: self [n][c][spatial...], target [n][spatial...]

struct Classes {
  int64_t n, c, spatial;
  int64_t count() const { return n * spatial; }
  // Of the class `k` of target i.
  int64_t at(int64_t i, int64_t k) const { return (i / spatial * c + k) * spatial + i % spatial; }
};
Classes classes_of(const Dims& dims) {
  if (dims.size() == 1) return {1, dims[0], 1};
  Classes out{dims[0], dims[1], 1};
  for (size_t d = 2; d < dims.size(); ++d) out.spatial *= dims[d];
  return out;
}

Refusal accept_nll(const ProgramView& program, const lazyt_node_t& node, uint64_t self) {
  const lazyt_dtype_t dtype = operand(program, node, self).dtype;
  if (!is_floating(dtype)) return refuse_dtype(dtype);
  const lazyt_dtype_t target = operand(program, node, self + 1).dtype;
  if (target != LAZYT_DTYPE_INT64 && target != LAZYT_DTYPE_UINT8) return refuse_dtype(target);
  for (uint64_t i : {self, self + 2})
    if (has(program, node, i) && operand(program, node, i).dtype != dtype) return refuse_dtype(operand(program, node, i).dtype);
  if (!is_constant(program, program.args(node)[self + 4])) return refuse_argument("an ignore_index that changes from run to run");
  return accepted();
}
Refusal accept_nll_forward(const ProgramView& program, const lazyt_node_t& node) { return accept_nll(program, node, 0); }
Refusal accept_nll_backward(const ProgramView& program, const lazyt_node_t& node) { return accept_nll(program, node, 1); }

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
      parallel(frame, out.count(), out.count(), [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, T{}); });
      for (int64_t i = 0; i < classes.count(); ++i) {
        const int64_t t = targets[i];
        if (t == ignored) continue;
        if (t < 0 || t >= classes.c) bad_target(t);
        const C scale = w ? widen(w[t]) : C(1);
        y[classes.at(i, t)] = narrow<T>(-scale * widen(g[reduction == kNone ? i : 0]) / divisor);
      }
    });
  });
}

// ---- pointwise losses

// value(x, t) of a loss, grad(x, t) its derivative by x; w and p are weights (1 where there are none).
enum class Loss { kMse, kSmoothL1, kHuber, kBce, kBceLogits };

template <Loss kLoss, class C>
C loss_value(C x, C t, C parameter, C pos_weight) {
  if constexpr (kLoss == Loss::kMse) return (x - t) * (x - t);
  if constexpr (kLoss == Loss::kSmoothL1) {
    const C d = std::abs(x - t);
    return d < parameter ? C(0.5) * d * d / parameter : d - C(0.5) * parameter;
  }
  if constexpr (kLoss == Loss::kHuber) {
    const C d = std::abs(x - t);
    return d <= parameter ? C(0.5) * d * d : parameter * (d - C(0.5) * parameter);
  }
  if constexpr (kLoss == Loss::kBce) {
    const C low = C(-100);
    return (t - C(1)) * std::max(std::log1p(-x), low) - t * std::max(std::log(x), low);
  }
  if constexpr (kLoss == Loss::kBceLogits) {
    const C log_sigmoid = std::min(x, C(0)) - std::log1p(std::exp(-std::abs(x)));  // NaN: from exp
    return (C(1) - t) * x - (C(1) + (pos_weight - C(1)) * t) * log_sigmoid;
  }
}
template <Loss kLoss, class C>
C loss_grad(C x, C t, C parameter) {
  if constexpr (kLoss == Loss::kMse) return C(2) * (x - t);
  if constexpr (kLoss == Loss::kSmoothL1) {
    const C d = x - t;
    return d <= -parameter ? C(-1) : d >= parameter ? C(1) : d / parameter;
  }
  if constexpr (kLoss == Loss::kHuber) {
    const C d = x - t;
    return d <= -parameter ? -parameter : d >= parameter ? parameter : d;
  }
  if constexpr (kLoss == Loss::kBce) return (x - t) / std::max((C(1) - x) * x, C(1e-12));
  return C(0);
}

// Which arguments a loss has; 0 = none.
struct LossArguments {
  uint64_t self, weight, pos_weight, reduction, parameter;
};

// kTensors: the arguments that are tensors, which must be of the result's dtype.
template <uint64_t... kTensors>
Refusal accept_loss(const ProgramView& program, const lazyt_node_t& node) {
  const lazyt_dtype_t dtype = result(program, node, 0).dtype;
  if (!is_floating(dtype)) return refuse_dtype(dtype);
  for (uint64_t i : {kTensors...})
    if (has(program, node, i) && operand(program, node, i).dtype != dtype) return refuse_dtype(operand(program, node, i).dtype);
  return accepted();
}

Number parameter_of(Builder& b, const lazyt_node_t& node, uint64_t i) {
  if (i) return b.number_of(b.program.args(node)[i]);
  Number none;
  none.d = 1;
  return none;
}
// Argument i with the dims of all.
Tensor broadcast_to(Builder& b, const lazyt_node_t& node, uint64_t i, const Dims& dims) {
  Tensor out = tensor_at(b, b.program.args(node)[i]);
  const size_t added = dims.size() - out.dims().size();
  Layout layout{out.layout.offset, dims, Dims(dims.size(), 0)};
  for (size_t d = 0; d < out.dims().size(); ++d)
    if (out.dims()[d] == dims[added + d] && dims[added + d] != 1) layout.strides[added + d] = out.strides()[d];
  out.layout = layout;
  return out;
}
Dims broadcast_dims(const Dims& a, const Dims& b) {
  Dims out = a.size() >= b.size() ? a : b;
  const Dims& other = a.size() >= b.size() ? b : a;
  for (size_t i = 0; i < other.size(); ++i) {
    int64_t& d = out[out.size() - other.size() + i];
    if (d == 1) d = other[i];
  }
  return out;
}

// Elements whose losses are added up in double before the pieces are; the pieces do not depend on the threads.
constexpr int64_t kPiece = 16384;

template <Loss kLoss>
constexpr LossArguments kForward = kLoss == Loss::kBce       ? LossArguments{0, 2, 0, 3, 0}
                                  : kLoss == Loss::kBceLogits ? LossArguments{0, 2, 3, 4, 0}
                                  : kLoss == Loss::kMse       ? LossArguments{0, 0, 0, 2, 0}
                                                              : LossArguments{0, 0, 0, 2, 3};

template <Loss kLoss>
void lower_loss(Builder& b, const lazyt_node_t& node) {
  constexpr LossArguments where = kForward<kLoss>;
  const auto args = b.program.args(node);
  const int64_t reduction = b.int_of(args[where.reduction]);
  Dims dims = broadcast_dims(b.dims(b.value_of(args[0])), b.dims(b.value_of(args[1])));
  for (uint64_t i : {where.weight, where.pos_weight})
    if (i && !b.is_none(args[i])) dims = broadcast_dims(dims, b.dims(b.value_of(args[i])));
  const bool weighted = where.weight && !b.is_none(args[where.weight]);
  const bool pos_weighted = where.pos_weight && !b.is_none(args[where.pos_weight]);
  const Tensor x_t = broadcast_to(b, node, 0, dims), target = broadcast_to(b, node, 1, dims);
  const Tensor w_t = weighted ? broadcast_to(b, node, where.weight, dims) : x_t;
  const Tensor p_t = pos_weighted ? broadcast_to(b, node, where.pos_weight, dims) : x_t;
  const Number parameter = parameter_of(b, node, where.parameter);
  const Tensor out = b.make_dense(node.results);
  const int64_t count = toolkit::count_of(dims), pieces = reduction == kNone ? 0 : (count + kPiece - 1) / kPiece;
  const Tensor parts = b.scratch(LAZYT_DTYPE_FLOAT64, {pieces});
  with_floating(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("loss", {x_t.storage, target.storage, w_t.storage, p_t.storage}, {out.storage, parts.storage}, [=](const Frame& frame) {
      const T *x = frame.at<T>(x_t), *t = frame.at<T>(target), *w = frame.at<T>(w_t), *p = frame.at<T>(p_t);
      T* y = frame.at<T>(out);
      double* sums = frame.at<double>(parts);
      const C c = static_cast<C>(frame.as_double(parameter));
      const std::array<const Dims*, 4> strides = {&x_t.strides(), &target.strides(), &w_t.strides(), &p_t.strides()};
      auto value = [&](const std::array<int64_t, 4>& at) {
        const C loss = loss_value<kLoss, C>(widen(x[at[0]]), widen(t[at[1]]), c, pos_weighted ? widen(p[at[3]]) : C(1));
        return weighted ? loss * widen(w[at[2]]) : loss;
      };
      if (reduction == kNone) {
        parallel(frame, count, count * 8, [&](int64_t begin, int64_t end) {
          Odometer<4> at(dims, strides, begin);
          for (int64_t i = begin; i < end; ++i, at.next()) y[i] = narrow<T>(value(at.offsets));
        });
        return;
      }
      parallel(frame, pieces, count * 8, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
          Odometer<4> at(dims, strides, piece * kPiece);
          double sum = 0;
          for (int64_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i, at.next())
            sum += static_cast<double>(value(at.offsets));
          sums[piece] = sum;
        }
      });
      double sum = 0;
      for (int64_t piece = 0; piece < pieces; ++piece) sum += sums[piece];
      if (reduction == kMean) sum /= static_cast<double>(count);
      y[0] = narrow<T>(static_cast<C>(sum));
    });
  });
}

template <Loss kLoss>
void lower_loss_backward(Builder& b, const lazyt_node_t& node) {
  constexpr uint64_t kWeight = kLoss == Loss::kBce ? 3 : 0, kReduction = kLoss == Loss::kBce ? 4 : 3;
  constexpr uint64_t kParameter = kLoss == Loss::kSmoothL1 || kLoss == Loss::kHuber ? 4 : 0;
  const int64_t reduction = b.int_of(b.program.args(node)[kReduction]);
  const Tensor out = b.make_dense(node.results);
  const Dims dims = out.dims();
  const bool weighted = kWeight && !b.is_none(b.program.args(node)[kWeight]);
  const Tensor grad = broadcast_to(b, node, 0, dims), self = broadcast_to(b, node, 1, dims);
  const Tensor target = broadcast_to(b, node, 2, dims), w_t = weighted ? broadcast_to(b, node, kWeight, dims) : self;
  const Number parameter = parameter_of(b, node, kParameter);
  const int64_t count = out.count();
  with_floating(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("loss_backward", {grad.storage, self.storage, target.storage, w_t.storage}, {out.storage}, [=](const Frame& frame) {
      const T *g = frame.at<T>(grad), *x = frame.at<T>(self), *t = frame.at<T>(target), *w = frame.at<T>(w_t);
      T* y = frame.at<T>(out);
      const C c = static_cast<C>(frame.as_double(parameter)), divisor = reduction == kMean ? static_cast<C>(count) : C(1);
      parallel(frame, count, count * 8, [&](int64_t begin, int64_t end) {
        Odometer<4> at(dims, {&grad.strides(), &self.strides(), &target.strides(), &w_t.strides()}, begin);
        for (int64_t i = begin; i < end; ++i, at.next()) {
          C v = loss_grad<kLoss, C>(widen(x[at.offsets[1]]), widen(t[at.offsets[2]]), c) * widen(g[at.offsets[0]]);
          if (weighted) v *= widen(w[at.offsets[3]]);
          y[i] = narrow<T>(v / divisor);
        }
      });
    });
  });
}

}  // namespace

void register_loss(Register add) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, Accept accept, Lower lower) { add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_NLL_LOSS_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS2D_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS_BACKWARD, accept_nll_backward, lower_nll_backward);
  opaque(LAZYT_OP_NLL_LOSS2D_BACKWARD, accept_nll_backward, lower_nll_backward);
  opaque(LAZYT_OP_MSE_LOSS, accept_loss<0, 1>, lower_loss<Loss::kMse>);
  opaque(LAZYT_OP_SMOOTH_L1_LOSS, accept_loss<0, 1>, lower_loss<Loss::kSmoothL1>);
  opaque(LAZYT_OP_HUBER_LOSS, accept_loss<0, 1>, lower_loss<Loss::kHuber>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY, accept_loss<0, 1, 2>, lower_loss<Loss::kBce>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY_WITH_LOGITS, accept_loss<0, 1, 2, 3>, lower_loss<Loss::kBceLogits>);
  opaque(LAZYT_OP_MSE_LOSS_BACKWARD, accept_loss<0, 1, 2>, lower_loss_backward<Loss::kMse>);
  opaque(LAZYT_OP_SMOOTH_L1_LOSS_BACKWARD, accept_loss<0, 1, 2>, lower_loss_backward<Loss::kSmoothL1>);
  opaque(LAZYT_OP_HUBER_LOSS_BACKWARD, accept_loss<0, 1, 2>, lower_loss_backward<Loss::kHuber>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY_BACKWARD, accept_loss<0, 1, 2, 3>, lower_loss_backward<Loss::kBce>);
}

}  // namespace lazyt::onednn
