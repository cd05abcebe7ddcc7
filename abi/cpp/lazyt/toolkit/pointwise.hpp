// pointwise.hpp - the pointwise operators of the opset as instructions over registers, for any kernel that can hold them.
//
// A Kernel offers (see registers.hpp; FusedKernel of plugins/onednn is one)
//   Kernel(dims, reduced)              over which dims it walks; `reduced` of one that ends in reductions
//   Type type(Reg)                     Reg load(Tensor)            elements of a tensor that broadcasts to the walk
//   Reg number(Number, Type)           Reg constant(double, Type)  one number for all elements
//   Reg op(Op, a, b, c)                Reg cast(Reg, Type)         throws UNIMPLEMENTED for what it lacks
//   Reg round_to(Reg, dtype)           as the dtype would hold it (f16, bf16)
//   Reg index(dim)                     the index along a dim, i64
//   Reg uniform(seed, offset)          PRG-7: a number in [0, 1) for each element
// Values of f16 and bf16 are computed as f32; results are rounded once per operator.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_POINTWISE_HPP_
#define LAZYT_TOOLKIT_POINTWISE_HPP_

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "lazyt/toolkit/plan.hpp"
#include "lazyt/toolkit/registers.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// One node on its way into a kernel. Without a builder the node is only tried (accept).
template <class Kernel>
struct Context {
  const plugin::ProgramView& program;
  const lazyt_node_t& node;
  Kernel& k;
  const Builder* builder = nullptr;
  std::vector<Reg>* registers = nullptr;  // of values that the kernel already holds

  const lazyt_arg_t& arg(uint64_t i) const { return program.args(node)[i]; }
  bool none(uint64_t i) const { return arg(i).kind == LAZYT_ARG_NONE; }
  const lazyt_value_t& value(uint64_t i) const { return program.values()[arg(i).payload]; }
  const lazyt_value_t& result(uint32_t r = 0) const { return program.values()[node.results + r]; }
  bool is_tensor(uint64_t i) const {
    return arg(i).kind == LAZYT_ARG_VALUE && !(value(i).flags & LAZYT_VALUE_HOST_SCALAR);
  }
  lazyt_dtype_t dtype(uint64_t i) const { return value(i).dtype; }
  int64_t count(uint64_t i) const { return lazyt_value_numel(program.block(), &value(i)); }  // of a tensor's elements
  // Registers of the result's type, and of operand i's.
  Type type() const { return type_of(result().dtype); }
  Type type(uint64_t i) const { return type_of(dtype(i)); }

  Number number(uint64_t i) const {
    if (builder) return builder->number_of(arg(i));
    if (arg(i).kind == LAZYT_ARG_DOUBLE) return {true, false, std::bit_cast<double>(arg(i).payload), 0, 0, LAZYT_DTYPE_FLOAT64};
    return {true, true, 0, static_cast<int64_t>(arg(i).payload), 0, LAZYT_DTYPE_INT64};
  }
  double constant(uint64_t i) const {
    if (arg(i).kind == LAZYT_ARG_VALUE) throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "a host scalar where the kernel needs a constant");
    const Number n = number(i);
    return n.integral ? static_cast<double>(n.i) : n.d;
  }
  // Operand i, a tensor or a number, in registers of type t.
  Reg in(uint64_t i, Type t) const {
    if (!is_tensor(i)) return k.number(number(i), t);
    return k.cast(tensor(i), t);
  }
  Reg tensor(uint64_t i) const {
    const auto v = static_cast<uint32_t>(arg(i).payload);
    if (registers && (*registers)[v] != kNoReg) return (*registers)[v];
    if (builder) return k.load(builder->tensor(v));
    const auto d = program.dims(value(i));
    return k.load({v, value(i).dtype, Layout::dense(d)});
  }
};

template <class Kernel>
struct PointwiseRules {
  using Context = toolkit::Context<Kernel>;
  using Emit = Reg (*)(const Context& c);

  // ---- pieces

  // Operand i, a number as the dtype can hold it: so PyTorch's sums, powers, remainders and comparisons take it (products do
  // not, nor quotients a divisor). 0.1 in bf16 == 0.1.
  static Reg held(const Context& c, uint64_t i, Type t, lazyt_dtype_t dtype) {
    const Reg r = c.in(i, t);
    return c.is_tensor(i) ? r : c.k.round_to(r, dtype);
  }
  static Reg held(const Context& c, uint64_t i) { return held(c, i, c.type(), c.result().dtype); }
  template <Op op>
  static Reg binary_of_held(const Context& c) {
    return c.k.op(op, held(c, 0), held(c, 1));
  }

  // Of a quotient that is so of what is divided.
  static Reg div(const Context& c) { return c.k.op(Op::kDiv, held(c, 0), c.in(1, c.type())); }

  // a + alpha * b
  static Reg plus_scaled(const Context& c, Reg a, Reg b, uint64_t alpha) {
    const bool one = c.arg(alpha).kind == LAZYT_ARG_INT ? c.arg(alpha).payload == 1
                                                       : c.arg(alpha).kind == LAZYT_ARG_DOUBLE && c.constant(alpha) == 1;
    if (c.type() == Type::kBool) return c.k.op(Op::kOr, a, one ? b : c.k.op(Op::kAnd, b, held(c, alpha)));
    if (one) return c.k.op(Op::kAdd, a, b);
    return c.k.op(Op::kFma, b, held(c, alpha), a);
  }

  template <Op op>
  static Reg binary(const Context& c) {
    return c.k.op(op, c.in(0, c.type()), c.in(1, c.type()));
  }
  template <Op op>
  static Reg unary(const Context& c) {
    return c.k.op(op, c.in(0, c.type()));
  }
  // Of the type that PRG-4 gave the tensors; of a host scalar's beside a number.
  static Type operand_type(const Context& c) {
    return c.is_tensor(0) || c.arg(1).kind != LAZYT_ARG_VALUE ? c.type(0) : c.type(1);
  }
  template <Op op>
  static Reg compare(const Context& c) {
    const Type t = operand_type(c);
    const lazyt_dtype_t dtype = c.is_tensor(0) || !c.is_tensor(1) ? c.dtype(0) : c.dtype(1);
    return c.k.op(op, held(c, 0, t, dtype), held(c, 1, t, dtype));
  }
  static Reg as_bool(const Context& c, uint64_t i) { return c.k.cast(c.in(i, c.type(i)), Type::kBool); }
  template <Op op>
  static Reg logical(const Context& c) {
    return c.k.op(op, as_bool(c, 0), as_bool(c, 1));
  }
  // Rounding operators leave integers as they are.
  template <Op op>
  static Reg rounding(const Context& c) {
    const Reg x = c.in(0, c.type());
    return is_float(c.type()) ? c.k.op(op, x) : x;
  }

  template <int sign>
  static Reg add(const Context& c) {
    const Reg a = held(c, 0), b = held(c, 1);
    if (sign > 0) return plus_scaled(c, a, b, 2);
    const bool one = c.arg(2).kind == LAZYT_ARG_INT && c.arg(2).payload == 1;
    if (one) return c.k.op(Op::kSub, a, b);
    return c.k.op(Op::kSub, a, c.k.op(Op::kMul, b, held(c, 2)));
  }
  static Reg rsub(const Context& c) {
    const Reg a = held(c, 0), b = held(c, 1);
    const bool one = c.arg(2).kind == LAZYT_ARG_INT && c.arg(2).payload == 1;
    return c.k.op(Op::kSub, b, one ? a : c.k.op(Op::kMul, a, held(c, 2)));
  }
  static Reg mul(const Context& c) {
    return c.k.op(c.type() == Type::kBool ? Op::kAnd : Op::kMul, c.in(0, c.type()), c.in(1, c.type()));
  }
  // By a tensor of halves PyTorch divides in them: each step is rounded, so that a quotient just below a whole number may reach it.
  static Reg div_mode(const Context& c) {
    if (c.none(2)) return div(c);
    const Reg a = held(c, 0), b = c.in(1, c.type());
    const bool floors = c.program.string(c.arg(2)) == "floor";
    const lazyt_dtype_t dtype = c.result().dtype;
    const bool in_halves = (dtype == LAZYT_DTYPE_FLOAT16 || dtype == LAZYT_DTYPE_BFLOAT16) && c.is_tensor(1) && c.count(1) != 1;
    if (!in_halves) return c.k.op(floors ? Op::kDivFloor : Op::kDivTrunc, a, b);
    const auto rounded = [&](Op op, Reg x, Reg y) { return c.k.round_to(c.k.op(op, x, y), dtype); };
    const Reg quotient = rounded(Op::kDiv, a, b);
    if (!floors) return c.k.op(Op::kTrunc, quotient);
    // As div_floor_floating_vec of PyTorch.
    const Reg zero = c.k.constant(0, c.type()), one = c.k.constant(1, c.type()), rest = c.k.op(Op::kFmod, a, b);
    const Reg overflows = c.k.op(Op::kAnd, c.k.op(Op::kIsInf, quotient), c.k.op(Op::kNot, c.k.op(Op::kIsInf, a)));
    Reg whole = rounded(Op::kDiv, c.k.op(Op::kWhere, overflows, a, rounded(Op::kSub, a, rest)), b);
    const Reg signs_differ = c.k.op(Op::kXor, c.k.op(Op::kLt, b, zero), c.k.op(Op::kLt, rest, zero));
    const Reg is_above = c.k.op(Op::kAnd, c.k.op(Op::kNe, rest, zero), signs_differ);
    whole = c.k.op(Op::kWhere, is_above, rounded(Op::kSub, whole, one), whole);
    Reg y = c.k.op(Op::kFloor, whole);
    y = c.k.op(Op::kWhere, c.k.op(Op::kGt, rounded(Op::kSub, whole, y), c.k.constant(0.5, c.type())), rounded(Op::kAdd, y, one), y);
    y = c.k.op(Op::kWhere, c.k.op(Op::kEq, whole, zero), c.k.op(Op::kCopysign, zero, quotient), y);
    return c.k.op(Op::kWhere, c.k.op(Op::kEq, b, zero), quotient, y);
  }
  static Reg pow_scalar(const Context& c) {
    const Reg a = c.in(0, c.type());
    if (c.arg(1).kind == LAZYT_ARG_VALUE) return c.k.op(Op::kPow, a, held(c, 1));
    const double e = c.constant(1);
    if (e == 2) return c.k.op(Op::kMul, a, a);
    if (e == 1) return a;
    if (e == 3) return c.k.op(Op::kMul, c.k.op(Op::kMul, a, a), a);
    if (is_float(c.type())) {
      if (e == 0) return c.k.constant(1, c.type());
      if (e == 0.5) return c.k.op(Op::kSqrt, a);
      if (e == -0.5) return c.k.op(Op::kRsqrt, a);
      if (e == -1) return c.k.op(Op::kReciprocal, a);
      if (e == -2) return c.k.op(Op::kReciprocal, c.k.op(Op::kMul, a, a));
    }
    return c.k.op(Op::kPow, a, held(c, 1));
  }
  static Reg xlogy(const Context& c) {
    const Reg x = c.in(0, c.type()), y = c.in(1, c.type()), zero = c.k.constant(0, c.type());
    const Reg product = c.k.op(Op::kMul, x, c.k.op(Op::kLog, y));
    const Reg is_zero = c.k.op(Op::kAnd, c.k.op(Op::kEq, x, zero), c.k.op(Op::kEq, y, y));
    return c.k.op(Op::kWhere, is_zero, zero, product);
  }
  static Reg frac(const Context& c) {
    const Reg x = c.in(0, c.type());
    return c.k.op(Op::kSub, x, c.k.op(Op::kTrunc, x));
  }
  static Reg square(const Context& c) {
    const Reg x = c.in(0, c.type());
    return c.k.op(c.type() == Type::kBool ? Op::kAnd : Op::kMul, x, x);
  }
  static Reg absolute(const Context& c) {
    const Reg x = c.in(0, c.type());
    return c.type() == Type::kBool || c.type() == Type::kU8 ? x : c.k.op(Op::kAbs, x);
  }
  static Reg logical_not(const Context& c) { return c.k.op(Op::kNot, as_bool(c, 0)); }
  template <Op op>
  static Reg float_test(const Context& c) {
    const Reg x = c.in(0, c.type(0));
    return is_float(c.type(0)) ? c.k.op(op, x) : c.k.constant(0, Type::kBool);
  }
  static Reg nan_to_num(const Context& c) {
    Reg x = c.in(0, c.type());
    if (!is_float(c.type())) return x;
    double largest = 0;
    switch (c.result().dtype) {
      case LAZYT_DTYPE_FLOAT16: largest = 65504; break;
      case LAZYT_DTYPE_BFLOAT16: largest = 3.3895313892515355e38; break;
      case LAZYT_DTYPE_FLOAT32: largest = std::numeric_limits<float>::max(); break;
      default: largest = std::numeric_limits<double>::max();
    }
    auto value = [&](uint64_t i, double otherwise) { return c.none(i) ? c.k.constant(otherwise, c.type()) : c.in(i, c.type()); };
    const Reg nan = c.k.op(Op::kIsNan, x);
    if (c.none(2) && c.none(3)) {  // what is not infinite lies within the bounds, and so does 0; a NaN passes them
      auto within = [&](Reg r) { return c.k.op(Op::kMin, c.k.op(Op::kMax, r, value(3, -largest)), value(2, largest)); };
      return c.none(1) ? within(c.k.op(Op::kWhere, nan, value(1, 0), x)) : c.k.op(Op::kWhere, nan, value(1, 0), within(x));
    }
    const Reg inf = c.k.constant(INFINITY, c.type()), minus = c.k.constant(-INFINITY, c.type());
    const Reg top = c.k.op(Op::kEq, x, inf), bottom = c.k.op(Op::kEq, x, minus);
    Reg y = c.k.op(Op::kWhere, nan, value(1, 0), x);
    y = c.k.op(Op::kWhere, top, value(2, largest), y);
    return c.k.op(Op::kWhere, bottom, value(3, -largest), y);
  }
  static Reg clamp(const Context& c) {
    Reg x = c.in(0, c.type());
    // A NaN bound makes everything NaN, as kMax and kMin do.
    const bool is_bool = c.type() == Type::kBool;
    if (!c.none(1)) x = c.k.op(is_bool ? Op::kOr : Op::kMax, x, c.in(1, c.type()));
    if (c.program.args(c.node).size() > 2 && !c.none(2)) x = c.k.op(is_bool ? Op::kAnd : Op::kMin, x, c.in(2, c.type()));
    return x;
  }
  static Reg clamp_max(const Context& c) { return c.k.op(Op::kMin, c.in(0, c.type()), c.in(1, c.type())); }
  static Reg between(const Context& c, Reg x, double low, double high) {
    return c.k.op(Op::kMin, c.k.op(Op::kMax, x, c.k.constant(low, c.type())), c.k.constant(high, c.type()));
  }
  static Reg relu(const Context& c) { return c.k.op(Op::kMax, c.in(0, c.type()), c.k.constant(0, c.type())); }
  static Reg relu6(const Context& c) { return between(c, c.in(0, c.type()), 0, 6); }
  static Reg hardtanh(const Context& c) {
    return c.k.op(Op::kMin, c.k.op(Op::kMax, c.in(0, c.type()), c.in(1, c.type())), c.in(2, c.type()));
  }
  static Reg leaky_relu(const Context& c) {
    const Reg x = c.in(0, c.type());
    return c.k.op(Op::kWhere, c.k.op(Op::kGt, x, c.k.constant(0, c.type())), x, c.k.op(Op::kMul, x, c.in(1, c.type())));
  }
  static Reg elu(const Context& c) {
    const Type t = c.type();
    const Reg x = c.in(0, t), alpha = c.in(1, t), scale = c.in(2, t), input = c.in(3, t);
    const Reg low = c.k.op(Op::kMul, c.k.op(Op::kMul, c.k.op(Op::kExpm1, c.k.op(Op::kMul, x, input)), alpha), scale);
    // Of zero it is no product with alpha, which may be infinite.
    return c.k.op(Op::kWhere, c.k.op(Op::kLt, x, c.k.constant(0, t)), low, c.k.op(Op::kMul, x, scale));
  }
  static Reg celu(const Context& c) {
    const Type t = c.type();
    const Reg x = c.in(0, t), alpha = c.in(1, t);
    const Reg low = c.k.op(Op::kMul, c.k.op(Op::kExpm1, c.k.op(Op::kDiv, x, alpha)), alpha);
    return c.k.op(Op::kWhere, c.k.op(Op::kLt, x, c.k.constant(0, t)), low, x);
  }
  static bool tanh_form(const Context& c, uint64_t i) { return c.program.string(c.arg(i)) == "tanh"; }
  static constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;
  static constexpr double kTwoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;
  static Reg gelu(const Context& c) {
    auto num = [&](double v) { return c.k.constant(v, c.type()); };
    const Reg x = c.in(0, c.type());
    const Reg half = c.k.op(Op::kMul, x, num(0.5));
    Reg t;
    if (tanh_form(c, 1)) {
      const Reg cube = c.k.op(Op::kMul, c.k.op(Op::kMul, x, x), x);
      t = c.k.op(Op::kTanh, c.k.op(Op::kMul, c.k.op(Op::kFma, cube, num(0.044715), x), num(kSqrtHalf * kTwoOverSqrtPi)));
    } else {
      t = c.k.op(Op::kErf, c.k.op(Op::kMul, x, num(kSqrtHalf)));
    }
    return c.k.op(Op::kMul, half, c.k.op(Op::kAdd, t, num(1)));
  }
  static Reg gelu_backward(const Context& c) {
    auto num = [&](double v) { return c.k.constant(v, c.type()); };
    auto times = [&](Reg a, Reg b) { return c.k.op(Op::kMul, a, b); };
    const Reg g = c.in(0, c.type()), x = c.in(1, c.type());
    if (tanh_form(c, 2)) {
      const double beta = kSqrtHalf * kTwoOverSqrtPi, kappa = 0.044715;
      const Reg square = times(x, x);
      const Reg t = c.k.op(Op::kTanh, times(c.k.op(Op::kFma, times(square, x), num(kappa), x), num(beta)));
      const Reg left = times(num(0.5), c.k.op(Op::kAdd, t, num(1)));
      const Reg slope = c.k.op(Op::kSub, num(1), times(t, t));
      const Reg inner = times(c.k.op(Op::kFma, square, num(3 * kappa), num(1)), num(beta));
      const Reg right = times(times(times(x, num(0.5)), slope), inner);
      return times(g, c.k.op(Op::kAdd, left, right));
    }
    const Reg cdf = times(num(0.5), c.k.op(Op::kAdd, num(1), c.k.op(Op::kErf, times(x, num(kSqrtHalf)))));
    const Reg pdf = times(c.k.op(Op::kExp, times(times(x, x), num(-0.5))), num(kTwoOverSqrtPi * kSqrtHalf * 0.5));
    return times(g, c.k.op(Op::kFma, x, pdf, cdf));
  }
  static Reg silu(const Context& c) {
    const Reg x = c.in(0, c.type());
    return c.k.op(Op::kMul, x, c.k.op(Op::kSigmoid, x));
  }
  static Reg silu_backward(const Context& c) {
    const Reg g = c.in(0, c.type()), x = c.in(1, c.type()), one = c.k.constant(1, c.type());
    const Reg s = c.k.op(Op::kSigmoid, x);
    const Reg inner = c.k.op(Op::kFma, x, c.k.op(Op::kSub, one, s), one);
    return c.k.op(Op::kMul, c.k.op(Op::kMul, g, s), inner);
  }
  // log(1 + exp(-|x|)), which is what log(1 + exp(x)) is more than max(x, 0): it never overflows.
  static Reg log1p_exp_tail(const Context& c, Reg x) {
    return c.k.op(Op::kLog1p, c.k.op(Op::kExp, c.k.op(Op::kNeg, c.k.op(Op::kAbs, x))));
  }
  static Reg mish(const Context& c) {
    const Reg x = c.in(0, c.type());
    const Reg softplus = c.k.op(Op::kAdd, c.k.op(Op::kMax, x, c.k.constant(0, c.type())), log1p_exp_tail(c, x));
    return c.k.op(Op::kMul, x, c.k.op(Op::kTanh, softplus));
  }
  static Reg softplus(const Context& c) {
    const Type t = c.type();
    const Reg x = c.in(0, t), beta = c.in(1, t), threshold = c.in(2, t);
    const Reg z = c.k.op(Op::kMul, x, beta);
    const Reg y = c.k.op(Op::kDiv, c.k.op(Op::kLog1p, c.k.op(Op::kExp, z)), beta);
    return c.k.op(Op::kWhere, c.k.op(Op::kGt, z, threshold), x, y);
  }
  static Reg softplus_backward(const Context& c) {
    const Type t = c.type();
    const Reg g = c.in(0, t), x = c.in(1, t), z = c.k.op(Op::kMul, x, c.in(2, t));
    const Reg e = c.k.op(Op::kExp, z);
    const Reg y = c.k.op(Op::kDiv, c.k.op(Op::kMul, g, e), c.k.op(Op::kAdd, e, c.k.constant(1, t)));
    return c.k.op(Op::kWhere, c.k.op(Op::kGt, z, c.in(3, t)), g, y);
  }
  static Reg hardswish(const Context& c) {
    const Reg x = c.in(0, c.type());
    const Reg gate = between(c, c.k.op(Op::kAdd, x, c.k.constant(3, c.type())), 0, 6);
    return c.k.op(Op::kDiv, c.k.op(Op::kMul, x, gate), c.k.constant(6, c.type()));
  }
  static Reg hardswish_backward(const Context& c) {
    const Type t = c.type();
    auto num = [&](double v) { return c.k.constant(v, t); };
    const Reg g = c.in(0, t), x = c.in(1, t);
    const Reg middle = c.k.op(Op::kAdd, c.k.op(Op::kDiv, x, num(3)), num(0.5));
    const Reg slope = c.k.op(Op::kWhere, c.k.op(Op::kGe, x, num(3)), num(1), middle);
    return c.k.op(Op::kWhere, c.k.op(Op::kLe, x, num(-3)), num(0), c.k.op(Op::kMul, slope, g));
  }
  static Reg hardsigmoid(const Context& c) {
    const Reg x = c.in(0, c.type());
    return c.k.op(Op::kDiv, between(c, c.k.op(Op::kAdd, x, c.k.constant(3, c.type())), 0, 6), c.k.constant(6, c.type()));
  }
  // g where low < x < high, else 0, times a factor.
  static Reg within(const Context& c, Reg g, Reg x, Reg low, Reg high) {
    const Reg inside = c.k.op(Op::kAnd, c.k.op(Op::kGt, x, low), c.k.op(Op::kLt, x, high));
    return c.k.op(Op::kWhere, inside, g, c.k.constant(0, c.type()));
  }
  static Reg hardsigmoid_backward(const Context& c) {
    const Type t = c.type();
    const Reg sixth = c.k.op(Op::kMul, c.in(0, t), c.k.constant(1.0f / 6.0f, t));  // PyTorch's is one of f32, of f64 too
    return within(c, sixth, c.in(1, t), c.k.constant(-3, t), c.k.constant(3, t));
  }
  static Reg hardtanh_backward(const Context& c) {
    const Type t = c.type();
    return within(c, c.in(0, t), c.in(1, t), c.in(2, t), c.in(3, t));
  }
  static Reg log_sigmoid(const Context& c) {
    const Reg x = c.in(0, c.type());
    return c.k.op(Op::kSub, c.k.op(Op::kMin, x, c.k.constant(0, c.type())), log1p_exp_tail(c, x));
  }
  static Reg log_sigmoid_backward(const Context& c) {
    const Reg g = c.in(0, c.type()), x = c.in(1, c.type());
    return c.k.op(Op::kMul, g, c.k.op(Op::kSigmoid, c.k.op(Op::kNeg, x)));
  }
  static Reg threshold(const Context& c) {
    const Type t = c.type();
    const Reg x = c.in(0, t);
    return c.k.op(Op::kWhere, c.k.op(Op::kLe, x, c.in(1, t)), c.in(2, t), x);
  }
  static Reg threshold_backward(const Context& c) {
    const Type t = c.type();
    return c.k.op(Op::kWhere, c.k.op(Op::kLe, c.in(1, t), c.in(2, t)), c.k.constant(0, t), c.in(0, t));
  }
  static Reg leaky_relu_backward(const Context& c) {
    const Type t = c.type();
    const Reg g = c.in(0, t), x = c.in(1, t);
    return c.k.op(Op::kWhere, c.k.op(Op::kGt, x, c.k.constant(0, t)), g, c.k.op(Op::kMul, g, c.in(2, t)));
  }
  static Reg elu_backward(const Context& c) {
    const Type t = c.type();
    const Reg g = c.in(0, t), alpha = c.in(1, t), scale = c.in(2, t), input = c.in(3, t), x = c.in(5, t);
    const bool is_result = c.arg(4).payload != 0;
    const Reg factor = c.k.op(Op::kMul, g, input);
    Reg low;
    if (is_result) {
      low = c.k.op(Op::kMul, factor, c.k.op(Op::kAdd, x, c.k.op(Op::kMul, alpha, scale)));
    } else {
      low = c.k.op(Op::kMul, c.k.op(Op::kMul, factor, c.k.op(Op::kMul, alpha, scale)), c.k.op(Op::kExp, c.k.op(Op::kMul, x, input)));
    }
    return c.k.op(Op::kWhere, c.k.op(Op::kGt, x, c.k.constant(0, t)), c.k.op(Op::kMul, g, scale), low);  // of a NaN: low, a NaN
  }
  static Reg sigmoid_backward(const Context& c) {
    const Reg g = c.in(0, c.type()), y = c.in(1, c.type());
    return c.k.op(Op::kMul, c.k.op(Op::kMul, g, c.k.op(Op::kSub, c.k.constant(1, c.type()), y)), y);
  }
  static Reg tanh_backward(const Context& c) {
    const Reg g = c.in(0, c.type()), y = c.in(1, c.type());
    return c.k.op(Op::kMul, g, c.k.op(Op::kSub, c.k.constant(1, c.type()), c.k.op(Op::kMul, y, y)));
  }
  static Reg where(const Context& c) {
    return c.k.op(Op::kWhere, c.in(0, Type::kBool), c.in(1, c.type()), c.in(2, c.type()));
  }
  static Reg masked_fill(const Context& c) {
    return c.k.op(Op::kWhere, c.in(1, Type::kBool), c.in(2, c.type()), c.in(0, c.type()));
  }
  template <Op op>
  static Reg add_product(const Context& c) {
    const Type t = c.type();
    const Reg a = c.in(0, t), x = c.in(1, t), y = c.in(2, t), scaled = c.k.op(Op::kMul, c.in(3, t), x);
    return op == Op::kMul ? c.k.op(Op::kFma, scaled, y, a) : c.k.op(Op::kAdd, a, c.k.op(op, scaled, y));
  }
  // The form that is exact at the nearer end, as PyTorch chooses it.
  static Reg lerp(const Context& c) {
    const Type t = c.type();
    const Reg a = c.in(0, t), b = c.in(1, t), w = c.in(2, t);
    const Reg d = c.k.op(Op::kSub, b, a), one = c.k.constant(1, t);
    const bool known = c.arg(2).kind != LAZYT_ARG_VALUE;
    if (known && std::abs(t == Type::kF64 ? c.constant(2) : static_cast<float>(c.constant(2))) < 0.5)
      return c.k.op(Op::kFma, w, d, a);
    const Reg near_b = c.k.op(Op::kFma, c.k.op(Op::kSub, w, one), d, b);
    if (known) return near_b;
    const Reg near_a = c.k.op(Op::kFma, w, d, a);
    return c.k.op(Op::kWhere, c.k.op(Op::kLt, c.k.op(Op::kAbs, w), c.k.constant(0.5, t)), near_a, near_b);
  }
  static Reg dropout_backward(const Context& c) {
    const Type t = c.type();
    return c.k.op(Op::kMul, c.k.op(Op::kMul, c.in(0, t), c.in(1, t)), c.in(2, t));
  }
  static Reg move(const Context& c) { return c.in(0, c.type()); }
  template <int value>
  static Reg fill_constant(const Context& c) {
    return c.k.constant(value, c.type());
  }
  template <int at>
  static Reg fill_number(const Context& c) {
    return c.in(at, c.type());
  }
  static Reg copy(const Context& c) { return c.in(1, c.type()); }
  // start + i * step, in the result's type (f64 or i64, then rounded once).
  static Reg range(const Context& c, Reg start, Reg step) {
    const Type t = is_float(c.type()) ? Type::kF64 : Type::kI64;
    const Reg i = c.k.cast(c.k.index(0), t);
    return c.k.cast(c.k.op(Op::kAdd, start, c.k.op(Op::kMul, i, step)), c.type());
  }
  template <int form>
  static Reg arange(const Context& c) {
    const Type t = is_float(c.type()) ? Type::kF64 : Type::kI64;
    return range(c, form == 0 ? c.k.constant(0, t) : c.in(0, t), form == 2 ? c.in(2, t) : c.k.constant(1, t));
  }
  template <bool lower>
  static Reg triangle(const Context& c) {
    const size_t rank = c.result().rank;
    const Reg row = c.k.index(rank - 2), column = c.k.index(rank - 1);
    const Reg edge = c.k.op(Op::kAdd, row, c.in(1, Type::kI64));
    return c.k.op(Op::kWhere, c.k.op(lower ? Op::kLe : Op::kGe, column, edge), c.in(0, c.type()), c.k.constant(0, c.type()));
  }
  static Reg eye(const Context& c) { return c.k.cast(c.k.op(Op::kEq, c.k.index(0), c.k.index(1)), c.type()); }
  static Reg xor_bool(const Context& c) { return c.k.op(Op::kNe, as_bool(c, 0), as_bool(c, 1)); }
  static Reg sgn(const Context& c) { return c.k.op(Op::kSign, c.in(0, c.type())); }
  static Reg mse_backward_none(const Context& c) {  // reduction none: 2 * (x - y) * g
    const Type t = c.type();
    const Reg d = c.k.op(Op::kSub, c.in(1, t), c.in(2, t));
    double factor = 2;
    if (c.constant(3) == 1) factor /= static_cast<double>(std::max<int64_t>(1, count_of(c.program.dims(c.value(1)))));
    return c.k.op(Op::kMul, c.k.op(Op::kMul, c.k.constant(factor, t), d), c.in(0, t));
  }


  struct Row {
    lazyt_op_t op;
    Emit emit;
  };

  // Which operators there are, and the rule of each.
  static std::span<const Row> rows() {
// clang-format off
static constexpr Row kRows[] = {
    {LAZYT_OP_ADD_TENSOR, add<1>}, {LAZYT_OP_ADD_SCALAR, add<1>}, {LAZYT_OP_SUB_TENSOR, add<-1>}, {LAZYT_OP_SUB_SCALAR, add<-1>},
    {LAZYT_OP_RSUB_SCALAR, rsub}, {LAZYT_OP_MUL_TENSOR, mul}, {LAZYT_OP_MUL_SCALAR, mul},
    {LAZYT_OP_DIV_TENSOR, div}, {LAZYT_OP_DIV_SCALAR, div},
    {LAZYT_OP_DIV_TENSOR_MODE, div_mode}, {LAZYT_OP_DIV_SCALAR_MODE, div_mode},
    {LAZYT_OP_REMAINDER_TENSOR, binary_of_held<Op::kRemainder>}, {LAZYT_OP_REMAINDER_SCALAR, binary_of_held<Op::kRemainder>},
    {LAZYT_OP_FMOD_TENSOR, binary_of_held<Op::kFmod>}, {LAZYT_OP_FMOD_SCALAR, binary_of_held<Op::kFmod>},
    {LAZYT_OP_MAXIMUM, binary<Op::kMax>}, {LAZYT_OP_MINIMUM, binary<Op::kMin>}, {LAZYT_OP_FMAX, binary<Op::kFmax>}, {LAZYT_OP_FMIN, binary<Op::kFmin>},
    {LAZYT_OP_BITWISE_AND_TENSOR, binary<Op::kAnd>}, {LAZYT_OP_BITWISE_AND_SCALAR, binary<Op::kAnd>},
    {LAZYT_OP_BITWISE_OR_TENSOR, binary<Op::kOr>}, {LAZYT_OP_BITWISE_OR_SCALAR, binary<Op::kOr>},
    {LAZYT_OP_BITWISE_XOR_TENSOR, binary<Op::kXor>}, {LAZYT_OP_BITWISE_XOR_SCALAR, binary<Op::kXor>},
    {LAZYT_OP_BITWISE_LEFT_SHIFT_TENSOR, binary<Op::kShl>}, {LAZYT_OP_BITWISE_RIGHT_SHIFT_TENSOR, binary<Op::kShr>},
    {LAZYT_OP_HYPOT, binary<Op::kHypot>}, {LAZYT_OP_ATAN2, binary<Op::kAtan2>}, {LAZYT_OP_XLOGY_TENSOR, xlogy}, {LAZYT_OP_COPYSIGN_TENSOR, binary<Op::kCopysign>},
    {LAZYT_OP_POW_TENSOR_TENSOR, binary_of_held<Op::kPow>}, {LAZYT_OP_POW_TENSOR_SCALAR, pow_scalar}, {LAZYT_OP_POW_SCALAR, binary_of_held<Op::kPow>},
    {LAZYT_OP_EQ_TENSOR, compare<Op::kEq>}, {LAZYT_OP_EQ_SCALAR, compare<Op::kEq>}, {LAZYT_OP_NE_TENSOR, compare<Op::kNe>}, {LAZYT_OP_NE_SCALAR, compare<Op::kNe>},
    {LAZYT_OP_LT_TENSOR, compare<Op::kLt>}, {LAZYT_OP_LT_SCALAR, compare<Op::kLt>}, {LAZYT_OP_LE_TENSOR, compare<Op::kLe>}, {LAZYT_OP_LE_SCALAR, compare<Op::kLe>},
    {LAZYT_OP_GT_TENSOR, compare<Op::kGt>}, {LAZYT_OP_GT_SCALAR, compare<Op::kGt>}, {LAZYT_OP_GE_TENSOR, compare<Op::kGe>}, {LAZYT_OP_GE_SCALAR, compare<Op::kGe>},
    {LAZYT_OP_LOGICAL_AND, logical<Op::kAnd>}, {LAZYT_OP_LOGICAL_OR, logical<Op::kOr>}, {LAZYT_OP_LOGICAL_XOR, xor_bool},
    {LAZYT_OP_ABS, absolute}, {LAZYT_OP_NEG, unary<Op::kNeg>}, {LAZYT_OP_SIGN, unary<Op::kSign>}, {LAZYT_OP_SGN, sgn},
    {LAZYT_OP_FLOOR, rounding<Op::kFloor>}, {LAZYT_OP_CEIL, rounding<Op::kCeil>}, {LAZYT_OP_ROUND, rounding<Op::kRound>}, {LAZYT_OP_TRUNC, rounding<Op::kTrunc>},
    {LAZYT_OP_FRAC, frac}, {LAZYT_OP_SQUARE, square}, {LAZYT_OP_LOGICAL_NOT, logical_not}, {LAZYT_OP_BITWISE_NOT, unary<Op::kNot>},
    {LAZYT_OP_ISNAN, float_test<Op::kIsNan>}, {LAZYT_OP_ISINF, float_test<Op::kIsInf>},
    {LAZYT_OP_EXP, unary<Op::kExp>}, {LAZYT_OP_EXP2, unary<Op::kExp2>}, {LAZYT_OP_EXPM1, unary<Op::kExpm1>}, {LAZYT_OP_LOG, unary<Op::kLog>},
    {LAZYT_OP_LOG2, unary<Op::kLog2>}, {LAZYT_OP_LOG10, unary<Op::kLog10>}, {LAZYT_OP_LOG1P, unary<Op::kLog1p>}, {LAZYT_OP_SQRT, unary<Op::kSqrt>},
    {LAZYT_OP_RSQRT, unary<Op::kRsqrt>}, {LAZYT_OP_RECIPROCAL, unary<Op::kReciprocal>}, {LAZYT_OP_SIN, unary<Op::kSin>}, {LAZYT_OP_COS, unary<Op::kCos>},
    {LAZYT_OP_TAN, unary<Op::kTan>}, {LAZYT_OP_ASIN, unary<Op::kAsin>}, {LAZYT_OP_ACOS, unary<Op::kAcos>}, {LAZYT_OP_ATAN, unary<Op::kAtan>},
    {LAZYT_OP_SINH, unary<Op::kSinh>}, {LAZYT_OP_COSH, unary<Op::kCosh>}, {LAZYT_OP_TANH, unary<Op::kTanh>}, {LAZYT_OP_ASINH, unary<Op::kAsinh>},
    {LAZYT_OP_ACOSH, unary<Op::kAcosh>}, {LAZYT_OP_ATANH, unary<Op::kAtanh>}, {LAZYT_OP_SIGMOID, unary<Op::kSigmoid>}, {LAZYT_OP_ERF, unary<Op::kErf>},
    {LAZYT_OP_ERFC, unary<Op::kErfc>}, {LAZYT_OP_ERFINV, unary<Op::kErfinv>}, {LAZYT_OP_LGAMMA, unary<Op::kLgamma>}, {LAZYT_OP_DIGAMMA, unary<Op::kDigamma>},
    {LAZYT_OP_NAN_TO_NUM, nan_to_num}, {LAZYT_OP_CLAMP_TENSOR, clamp}, {LAZYT_OP_CLAMP, clamp}, {LAZYT_OP_CLAMP_MIN, clamp}, {LAZYT_OP_CLAMP_MAX, clamp_max},
    {LAZYT_OP_RELU, relu}, {LAZYT_OP_RELU6, relu6}, {LAZYT_OP_LEAKY_RELU, leaky_relu}, {LAZYT_OP_ELU, elu}, {LAZYT_OP_CELU, celu}, {LAZYT_OP_GELU, gelu},
    {LAZYT_OP_SILU, silu}, {LAZYT_OP_MISH, mish}, {LAZYT_OP_SOFTPLUS, softplus}, {LAZYT_OP_HARDTANH, hardtanh}, {LAZYT_OP_HARDSWISH, hardswish},
    {LAZYT_OP_HARDSIGMOID, hardsigmoid}, {LAZYT_OP_THRESHOLD, threshold}, {LAZYT_OP_THRESHOLD_BACKWARD, threshold_backward},
    {LAZYT_OP_LEAKY_RELU_BACKWARD, leaky_relu_backward}, {LAZYT_OP_ELU_BACKWARD, elu_backward}, {LAZYT_OP_GELU_BACKWARD, gelu_backward},
    {LAZYT_OP_SILU_BACKWARD, silu_backward}, {LAZYT_OP_SOFTPLUS_BACKWARD, softplus_backward}, {LAZYT_OP_HARDTANH_BACKWARD, hardtanh_backward},
    {LAZYT_OP_HARDSWISH_BACKWARD, hardswish_backward}, {LAZYT_OP_HARDSIGMOID_BACKWARD, hardsigmoid_backward}, {LAZYT_OP_SIGMOID_BACKWARD, sigmoid_backward},
    {LAZYT_OP_TANH_BACKWARD, tanh_backward}, {LAZYT_OP_LOG_SIGMOID_BACKWARD, log_sigmoid_backward},
    {LAZYT_OP_WHERE_SELF, where}, {LAZYT_OP_WHERE_SCALARSELF, where}, {LAZYT_OP_WHERE_SCALAROTHER, where},
    {LAZYT_OP_ADDCMUL, add_product<Op::kMul>}, {LAZYT_OP_ADDCDIV, add_product<Op::kDiv>}, {LAZYT_OP_LERP_SCALAR, lerp}, {LAZYT_OP_LERP_TENSOR, lerp},
    {LAZYT_OP_MASKED_FILL_SCALAR, masked_fill}, {LAZYT_OP_MASKED_FILL_TENSOR, masked_fill}, {LAZYT_OP_NATIVE_DROPOUT_BACKWARD, dropout_backward},
    {LAZYT_OP_MSE_LOSS_BACKWARD, mse_backward_none},
    {LAZYT_OP_TO_COPY, move}, {LAZYT_OP_CLONE, move}, {LAZYT_OP_LIFT_FRESH_COPY, move}, {LAZYT_OP_COPY, copy},
    {LAZYT_OP_FILL_SCALAR, fill_number<1>}, {LAZYT_OP_FILL_TENSOR, fill_number<1>}, {LAZYT_OP_ZEROS_LIKE, fill_constant<0>}, {LAZYT_OP_ONES_LIKE, fill_constant<1>},
    {LAZYT_OP_FULL_LIKE, fill_number<1>}, {LAZYT_OP_EMPTY_LIKE, fill_constant<0>}, {LAZYT_OP_ZEROS, fill_constant<0>}, {LAZYT_OP_ONES, fill_constant<1>},
    {LAZYT_OP_FULL, fill_number<1>}, {LAZYT_OP_EMPTY_MEMORY_FORMAT, fill_constant<0>}, {LAZYT_OP_NEW_ZEROS, fill_constant<0>}, {LAZYT_OP_NEW_FULL, fill_number<2>},
    {LAZYT_OP_SCALAR_TENSOR, fill_number<0>}, {LAZYT_OP_EYE, eye},
    {LAZYT_OP_ARANGE, arange<0>}, {LAZYT_OP_ARANGE_START, arange<1>}, {LAZYT_OP_ARANGE_START_STEP, arange<2>},
    {LAZYT_OP_TRIL, triangle<true>}, {LAZYT_OP_TRIU, triangle<false>},
};
// clang-format on
    return kRows;
  }

  // Operators of two results.
  static void emit_dropout(const Context& c, Reg* out) {
    const Type t = c.type();
    const Number seed = c.number(2), offset = c.number(3);
    const Reg u = c.k.uniform(seed, offset);
    // 1 / (1 - p) in f32 (f64 for f64); p = 1 gives zeros, not NaN.
    const Type scalar = t == Type::kF64 ? Type::kF64 : Type::kF32;
    const Reg p = c.in(1, scalar), one = c.k.constant(1, scalar), zero = c.k.constant(0, t);
    const Reg scale = c.k.op(Op::kDiv, one, c.k.op(Op::kSub, one, p));
    const Reg mask = c.k.op(Op::kGe, u, c.k.cast(p, Type::kF32));
    out[0] = c.k.op(Op::kWhere, mask, c.k.op(Op::kMul, c.in(0, t), c.k.cast(scale, t)), zero);
    out[1] = mask;
  }
  // Operand i, one number for each channel, beside the elements of the walk.
  static Reg by_channel(const Context& c, uint64_t i) {
    const auto v = static_cast<uint32_t>(c.arg(i).payload);
    Tensor t = c.builder ? c.builder->tensor(v) : Tensor{v, c.value(i).dtype, Layout::dense(c.program.dims(c.value(i)))};
    t.layout.dims.resize(c.result().rank - 1, 1);
    t.layout.strides.resize(c.result().rank - 1, 0);
    return c.k.cast(c.k.load(t), c.type());
  }
  // With the statistics that are kept: x * alpha + beta, the numbers of a channel first, as PyTorch computes it.
  static void emit_batch_norm(const Context& c, Reg* out) {
    if (c.result().rank < 2) throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "a batch norm without channels");
    const Type t = c.type();
    Reg alpha = c.k.op(Op::kRsqrt, c.k.op(Op::kAdd, by_channel(c, 4), c.in(6, t)));
    if (!c.none(1)) alpha = c.k.op(Op::kMul, alpha, by_channel(c, 1));
    Reg beta = c.k.op(Op::kNeg, c.k.op(Op::kMul, by_channel(c, 3), alpha));
    if (!c.none(2)) beta = c.k.op(Op::kAdd, beta, by_channel(c, 2));
    out[0] = c.k.op(Op::kFma, c.in(0, t), alpha, beta);
    out[1] = out[2] = kNoReg;  // empty without training
  }
  static void emit_log_sigmoid(const Context& c, Reg* out) {
    out[0] = log_sigmoid(c);
    out[1] = kNoReg;  // the buffer that only PyTorch's own backward wants
  }

  // Null for an operator that is not pointwise.
  static const Emit* find_row(lazyt_op_t op) {
    static const auto& all = *new std::vector<const Emit*>([] {
      std::vector<const Emit*> by_op(LAZYT_OP_COUNT, nullptr);
      for (const Row& r : rows()) by_op[r.op] = &r.emit;
      return by_op;
    }());
    return op < all.size() ? all[op] : nullptr;
  }
  static bool has(lazyt_op_t op) {
    return op == LAZYT_OP_LAZYT_DROPOUT || op == LAZYT_OP_LOG_SIGMOID_FORWARD || op == LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING ||
           find_row(op);
  }
  // Writes the node into c.k; out[r] is the register of result r, kNoReg for one that holds nothing.
  // REQUIRES: has(c.node.op); room for four results.
  static void emit(const Context& c, Reg* out) {
    if (c.node.op == LAZYT_OP_LAZYT_DROPOUT) return emit_dropout(c, out);
    if (c.node.op == LAZYT_OP_LOG_SIGMOID_FORWARD) return emit_log_sigmoid(c, out);
    if (c.node.op == LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING) return emit_batch_norm(c, out);
    out[0] = c.k.cast((*find_row(c.node.op))(c), c.type());
  }
};

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_POINTWISE_HPP_
