// losses.hpp - the rules of negative log likelihood; pointwise losses as one fused kernel each, summed or averaged in it.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_LOSSES_HPP_
#define LAZYT_TOOLKIT_LOSSES_HPP_

#include "lazyt/toolkit/groups.hpp"
#include "lazyt/toolkit/operands.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {
namespace losses {

inline constexpr int64_t kNone = 0, kMean = 1;  // reductions; 2 is the sum

// ---- nll_loss: self [n][c][spatial...], target [n][spatial...]

struct Classes {
  int64_t n, c, spatial;
  int64_t count() const { return n * spatial; }
  // Of the class `k` of target i.
  int64_t at(int64_t i, int64_t k) const { return (i / spatial * c + k) * spatial + i % spatial; }
};
inline Classes classes_of(const Dims& dims) {
  if (dims.size() == 1) return {1, dims[0], 1};
  Classes out{dims[0], dims[1], 1};
  for (size_t d = 2; d < dims.size(); ++d) out.spatial *= dims[d];
  return out;
}

inline Refusal accept_nll(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t self) {
  const lazyt_dtype_t dtype = operand(program, node, self).dtype;
  if (!is_floating(dtype)) return refuse_dtype(dtype);
  const lazyt_dtype_t target = operand(program, node, self + 1).dtype;
  if (target != LAZYT_DTYPE_INT64 && target != LAZYT_DTYPE_UINT8) return refuse_dtype(target);
  for (uint64_t i : {self, self + 2})
    if (has(program, node, i) && operand(program, node, i).dtype != dtype) return refuse_dtype(operand(program, node, i).dtype);
  if (!is_constant(program, program.args(node)[self + 4])) return refuse_argument("an ignore_index that changes from run to run");
  return accepted();
}
inline Refusal accept_nll_forward(const plugin::ProgramView& program, const lazyt_node_t& node) { return accept_nll(program, node, 0); }
inline Refusal accept_nll_backward(const plugin::ProgramView& program, const lazyt_node_t& node) { return accept_nll(program, node, 1); }

// ---- pointwise losses

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
Refusal accept_loss(const plugin::ProgramView& program, const lazyt_node_t& node) {
  const lazyt_dtype_t dtype = result(program, node, 0).dtype;
  if (!is_floating(dtype)) return refuse_dtype(dtype);
  for (uint64_t i : {kTensors...})
    if (has(program, node, i) && operand(program, node, i).dtype != dtype) return refuse_dtype(operand(program, node, i).dtype);
  return accepted();
}

inline Dims broadcast_dims(const Dims& a, const Dims& b) {
  Dims out = a.size() >= b.size() ? a : b;
  const Dims& other = a.size() >= b.size() ? b : a;
  for (size_t i = 0; i < other.size(); ++i) {
    int64_t& d = out[out.size() - other.size() + i];
    if (d == 1) d = other[i];
  }
  return out;
}

// The operands of a loss as registers of its kernel, and arithmetic on them.
template <class Kernel, class BuilderT>
class LossKernel {
 public:
  LossKernel(BuilderT& b, const lazyt_node_t& node, const LossArguments& at, const Dims& dims, bool reduces)
      : kernel(dims, reduces ? std::vector<bool>(dims.size(), true) : std::vector<bool>()),
        type(type_of(b.dtype(node.results))), b_(b), node_(node), at_(at) {
    x = load(at.self);
    t = load(at.target);
    if (at.parameter) c = kernel.number(b.number_of(b.program.args(node)[at.parameter]), type);
  }

  Reg load(uint64_t i) { return kernel.load(tensor_at(b_, b_.program.args(node_)[i])); }
  Reg number(double v) { return kernel.constant(v, type); }
  Reg op(Op o, Reg a, Reg b = kNoReg, Reg c = kNoReg) { return kernel.op(o, a, b, c); }
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
      default: throw plugin::Error(LAZYT_CODE_INTERNAL, "a loss without a gradient");
    }
  }

  Kernel kernel;
  Type type;

 private:
  bool has(uint64_t i) const { return i && !Builder::is_none(b_.program.args(node_)[i]); }

  BuilderT& b_;
  const lazyt_node_t& node_;
  LossArguments at_;
  Reg x, t, c = kNoReg;
};

template <class Kernel, class BuilderT>
void finish(BuilderT& b, LossKernel<Kernel, BuilderT>& k, Reg value, uint32_t v) {
  const Tensor out = b.make(v, b.result_strides(v, k.kernel.widest(b.dims(v))));
  k.kernel.store(k.kernel.round_to(value, out.dtype), out);
  k.kernel.build(b, b.may_be_donated(out.storage) ? std::vector<StorageId>{out.storage} : std::vector<StorageId>{});
}

template <class Kernel, class BuilderT, Loss kLoss>
void lower_loss(BuilderT& b, const lazyt_node_t& node) {
  constexpr LossArguments at = arguments_of(kLoss, false);
  const auto args = b.program.args(node);
  const int64_t reduction = b.int_of(args[at.reduction]);
  Dims dims = broadcast_dims(b.dims(b.value_of(args[at.self])), b.dims(b.value_of(args[at.target])));
  for (uint64_t i : {at.weight, at.pos_weight})
    if (i && !b.is_none(args[i])) dims = broadcast_dims(dims, b.dims(b.value_of(args[i])));
  LossKernel<Kernel, BuilderT> k(b, node, at, dims, reduction != kNone);
  const Reg value = k.weighted(k.value(kLoss));
  if (reduction == kNone) return finish(b, k, value, node.results);
  Tensor out = b.make(node.results);
  out.layout.dims.assign(dims.size(), 1);
  out.layout.strides.assign(dims.size(), 0);
  k.kernel.reduce(value, ReduceKind::kSum, out, reduction == kMean ? static_cast<double>(count_of(dims)) : 1);
  k.kernel.build(b, {});
}

template <class Kernel, class BuilderT, Loss kLoss>
void lower_loss_backward(BuilderT& b, const lazyt_node_t& node) {
  constexpr LossArguments at = arguments_of(kLoss, true);
  const Dims dims = b.dims(node.results);
  LossKernel<Kernel, BuilderT> k(b, node, at, dims, false);
  Reg value = k.weighted(k.mul(k.gradient(kLoss), k.load(0)));
  if (b.int_of(b.program.args(node)[at.reduction]) == kMean)
    value = k.op(Op::kDiv, value, k.number(static_cast<double>(count_of(dims))));
  finish(b, k, value, node.results);
}

}  // namespace losses

// mse, smooth L1, Huber, binary cross entropy (with logits), and the backwards that are no pointwise rules.
template <class Kernel, class BuilderT>
void add_losses(Operators<BuilderT>& all) {
  using namespace losses;
  auto opaque = [&](lazyt_op_t op, Accept accept, typename Operator<BuilderT>::Lower lower) {
    all.add(op, {Role::kOpaque, accept, lower});
  };
  opaque(LAZYT_OP_MSE_LOSS, accept_loss<0, 1>, lower_loss<Kernel, BuilderT, Loss::kMse>);
  opaque(LAZYT_OP_SMOOTH_L1_LOSS, accept_loss<0, 1>, lower_loss<Kernel, BuilderT, Loss::kSmoothL1>);
  opaque(LAZYT_OP_HUBER_LOSS, accept_loss<0, 1>, lower_loss<Kernel, BuilderT, Loss::kHuber>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY, accept_loss<0, 1, 2>, lower_loss<Kernel, BuilderT, Loss::kBce>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY_WITH_LOGITS, accept_loss<0, 1, 2, 3>, lower_loss<Kernel, BuilderT, Loss::kBceLogits>);
  opaque(LAZYT_OP_SMOOTH_L1_LOSS_BACKWARD, accept_loss<0, 1, 2>, lower_loss_backward<Kernel, BuilderT, Loss::kSmoothL1>);
  opaque(LAZYT_OP_HUBER_LOSS_BACKWARD, accept_loss<0, 1, 2>, lower_loss_backward<Kernel, BuilderT, Loss::kHuber>);
  opaque(LAZYT_OP_BINARY_CROSS_ENTROPY_BACKWARD, accept_loss<0, 1, 2, 3>, lower_loss_backward<Kernel, BuilderT, Loss::kBce>);
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_LOSSES_HPP_
