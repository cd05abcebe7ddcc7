// Losses: negative log likelihood over classes, and pointwise losses that are summed or averaged.
#include "elements.h"
#include "fused.h"

namespace lazyt::onednn {
namespace {

using vm::Op;

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

// ---- pointwise losses: one fused kernel each, with the sum or the mean as its reduction

enum class Loss { kMse, kSmoothL1, kHuber, kBce, kBceLogits };

// Where the arguments of a loss are; 0 = none. Backward: the gradient comes first.
struct LossArguments {
  uint64_t self, target, weight, pos_weight, reduction, parameter;
};
constexpr LossArguments arguments_of(Loss loss, bool backward) {
  const uint64_t g = backward ? 1 : 0;
  switch (loss) {
    case Loss::kMse: return {g, g + 1, 0, 0, g + 2, 0};
    case Loss::kBce: return {g, g + 1, g + 2, 0, g + 3, 0};
    case Loss::kBceLogits: return {g, g + 1, g + 2, g + 3, g + 4, 0};
    default: return {g, g + 1, 0, 0, g + 2, g + 3};
  }
}

// kTensors: the arguments that are tensors, which must be of the result's dtype.
template <uint64_t... kTensors>
Refusal accept_loss(const ProgramView& program, const lazyt_node_t& node) {
  const lazyt_dtype_t dtype = result(program, node, 0).dtype;
  if (!is_floating(dtype)) return refuse_dtype(dtype);
  for (uint64_t i : {kTensors...})
    if (has(program, node, i) && operand(program, node, i).dtype != dtype) return refuse_dtype(operand(program, node, i).dtype);
  return accepted();
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

// The operands of a loss as registers of its kernel, and arithmetic on them.
class LossKernel {
 public:
  LossKernel(Builder& b, const lazyt_node_t& node, const LossArguments& at, const Dims& dims, bool reduces)
      : kernel(dims, reduces ? std::vector<bool>(dims.size(), true) : std::vector<bool>()),
        type(vm::type_of(b.dtype(node.results))), b_(b), node_(node), at_(at) {
    x = load(at.self);
    t = load(at.target);
    if (at.parameter) c = kernel.number(b.number_of(b.program.args(node)[at.parameter]), type);
  }

  Reg load(uint64_t i) { return kernel.load(tensor_at(b_, b_.program.args(node_)[i])); }
  Reg number(double v) { return kernel.constant(v, type); }
  Reg op(vm::Op o, Reg a, Reg b = kNoReg, Reg c = kNoReg) { return kernel.op(o, a, b, c); }
  Reg add(Reg a, Reg b) { return op(Op::kAdd, a, b); }
  Reg sub(Reg a, Reg b) { return op(Op::kSub, a, b); }
  Reg mul(Reg a, Reg b) { return op(Op::kMul, a, b); }
  // v times the weight, if there is one.
  Reg weighted(Reg v) { return has(at_.weight) ? mul(v, load(at_.weight)) : v; }

  Reg value(Loss loss) {
    switch (loss) {
      case Loss::kMse: return mul(sub(x, t), sub(x, t));
      case Loss::kSmoothL1: {
        const Reg d = op(Op::kAbs, sub(x, t)), half = number(0.5);
        const Reg square = op(Op::kDiv, mul(mul(half, d), d), c);
        return op(Op::kWhere, op(Op::kLt, d, c), square, sub(d, mul(half, c)));
      }
      case Loss::kHuber: {
        const Reg d = op(Op::kAbs, sub(x, t)), half = number(0.5);
        return op(Op::kWhere, op(Op::kLe, d, c), mul(mul(half, d), d), mul(c, sub(d, mul(half, c))));
      }
      case Loss::kBce: {
        const Reg low = number(-100);
        const Reg log_other = op(Op::kMax, op(Op::kLog1p, op(Op::kNeg, x)), low);
        return sub(mul(sub(t, number(1)), log_other), mul(t, op(Op::kMax, op(Op::kLog, x), low)));
      }
      case Loss::kBceLogits: {
        const Reg one = number(1);
        const Reg tail = op(Op::kLog1p, op(Op::kExp, op(Op::kNeg, op(Op::kAbs, x))));
        const Reg log_sigmoid = sub(op(Op::kMin, x, number(0)), tail);
        Reg factor = one;
        if (has(at_.pos_weight)) factor = op(Op::kFma, sub(load(at_.pos_weight), one), t, one);
        return sub(mul(sub(one, t), x), mul(factor, log_sigmoid));
      }
    }
    return x;
  }
  // The derivative by x.
  Reg gradient(Loss loss) {
    const Reg d = sub(x, t);
    auto clipped = [&](Reg low, Reg high, Reg between) {
      return op(Op::kWhere, op(Op::kLe, d, op(Op::kNeg, c)), low, op(Op::kWhere, op(Op::kGe, d, c), high, between));
    };
    switch (loss) {
      case Loss::kSmoothL1: return clipped(number(-1), number(1), op(Op::kDiv, d, c));
      case Loss::kHuber: return clipped(op(Op::kNeg, c), c, d);
      case Loss::kBce: return op(Op::kDiv, d, op(Op::kMax, mul(sub(number(1), x), x), number(1e-12)));
      default: throw plugin::Error(LAZYT_CODE_INTERNAL, "onednn: a loss without a gradient");
    }
  }

  FusedKernel kernel;
  vm::Type type;

 private:
  bool has(uint64_t i) const { return i && !Builder::is_none(b_.program.args(node_)[i]); }

  Builder& b_;
  const lazyt_node_t& node_;
  LossArguments at_;
  Reg x, t, c = kNoReg;
};

void finish(Builder& b, LossKernel& k, Reg value, uint32_t v) {
  const Tensor out = b.make(v, b.result_strides(v, k.kernel.widest(b.dims(v))));
  k.kernel.store(k.kernel.round_to(value, out.dtype), out);
  k.kernel.build(b, b.may_be_donated(out.storage) ? std::vector<StorageId>{out.storage} : std::vector<StorageId>{});
}

template <Loss kLoss>
void lower_loss(Builder& b, const lazyt_node_t& node) {
  constexpr LossArguments at = arguments_of(kLoss, false);
  const auto args = b.program.args(node);
  const int64_t reduction = b.int_of(args[at.reduction]);
  Dims dims = broadcast_dims(b.dims(b.value_of(args[at.self])), b.dims(b.value_of(args[at.target])));
  for (uint64_t i : {at.weight, at.pos_weight})
    if (i && !b.is_none(args[i])) dims = broadcast_dims(dims, b.dims(b.value_of(args[i])));
  LossKernel k(b, node, at, dims, reduction != kNone);
  const Reg value = k.weighted(k.value(kLoss));
  if (reduction == kNone) return finish(b, k, value, node.results);
  Tensor out = b.make(node.results);
  out.layout.dims.assign(dims.size(), 1);
  out.layout.strides.assign(dims.size(), 0);
  k.kernel.reduce(value, ReduceKind::kSum, out, reduction == kMean ? static_cast<double>(toolkit::count_of(dims)) : 1);
  k.kernel.build(b, {});
}

template <Loss kLoss>
void lower_loss_backward(Builder& b, const lazyt_node_t& node) {
  constexpr LossArguments at = arguments_of(kLoss, true);
  const Dims dims = b.dims(node.results);
  LossKernel k(b, node, at, dims, false);
  Reg value = k.weighted(k.mul(k.gradient(kLoss), k.load(0)));
  if (b.int_of(b.program.args(node)[at.reduction]) == kMean)
    value = k.op(Op::kDiv, value, k.number(static_cast<double>(toolkit::count_of(dims))));
  finish(b, k, value, node.results);
}

}  // namespace

void register_loss(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_NLL_LOSS_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS2D_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS_BACKWARD, accept_nll_backward, lower_nll_backward);
  opaque(LAZYT_OP_NLL_LOSS2D_BACKWARD, accept_nll_backward, lower_nll_backward);
  opaque(LAZYT_OP_MSE_LOSS, accept_loss<0, 1>, lower_loss<Loss::kMse>);
  opaque(LAZYT_OP_SMOOTH_L1_LOSS, accept_loss<0, 1>, lower_loss<Loss::kSmoothL1>);
  opaque(LAZYT_OP_HUBER_LOSS, accept_loss<0, 1>, lower_loss<Loss::kHuber>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY, accept_loss<0, 1, 2>, lower_loss<Loss::kBce>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY_WITH_LOGITS, accept_loss<0, 1, 2, 3>, lower_loss<Loss::kBceLogits>);
  opaque(LAZYT_OP_SMOOTH_L1_LOSS_BACKWARD, accept_loss<0, 1, 2>, lower_loss_backward<Loss::kSmoothL1>);
  opaque(LAZYT_OP_HUBER_LOSS_BACKWARD, accept_loss<0, 1, 2>, lower_loss_backward<Loss::kHuber>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY_BACKWARD, accept_loss<0, 1, 2, 3>, lower_loss_backward<Loss::kBce>);
}

}  // namespace lazyt::onednn
