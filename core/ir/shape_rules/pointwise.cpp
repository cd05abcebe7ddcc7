// Pointwise operators, fills, and lists of them.
#include "ir/registry.h"
#include "ir/shape_rules/rules.h"

namespace lazyt::ir {
namespace {

// ---- pointwise

void pointwise(const NodeView& v) {
  v.gives(v.common());
}
// The first result only: the buffer of log_sigmoid_forward may be empty.
void like_first(const NodeView& v) {
  v.gives(v.dims(0));
}
void all_like_first(const NodeView& v) {
  for (uint32_t r = 0; r < v.results(); r++) v.gives(v.dims(0), r);
}
void like_first_two(const NodeView& v) { v.gives(broadcast(v.dims(0), v.dims(1))); }
void copy(const NodeView& v) {
  v.gives(v.dims(0));
  v.gives(broadcast(v.dims(0), v.dims(1)));
}

// ---- fills

template <size_t kSize>
void sized(const NodeView& v) {
  v.gives(v.numbers(kSize));
}
void number(const NodeView& v) { v.gives({}); }
void eye(const NodeView& v) { v.gives({v.number(0), v.number(0)}); }
void row(const NodeView& v) { require(v.result().size() == 1, "the result has one dim"); }
void linspace(const NodeView& v) { v.gives({v.number(2)}); }

// ---- lists: each result by what stands at its place in the lists

void foreach_pointwise(const NodeView& v) {
  for (uint32_t r = 0; r < v.results(); r++) {
    Dims out;
    for (size_t i = 0; i < v.node.args.size(); i++) {
      const Arg& a = v.arg(i);
      if (a.kind == LAZYT_ARG_LIST) {
        require(r < a.list.size(), "argument {} lists {}", i, a.list.size());
        if (a.list[r].kind == LAZYT_ARG_VALUE) out = broadcast(out, v.meta(a.list[r]).dims);
      } else if (a.kind == LAZYT_ARG_INTS || a.kind == LAZYT_ARG_DOUBLES) {
        require(r < std::max(a.ints.size(), a.doubles.size()), "argument {} lists too few numbers", i);
      } else if (a.kind == LAZYT_ARG_VALUE && v.node.overload == "Tensor" && !v.node.name.starts_with("aten::_foreach_addc")) {
        require(v.numel(i) == 1, "one number for all");
      }
    }
    v.gives(out, r);
  }
}
void foreach_norm(const NodeView& v) {
  for (uint32_t r = 0; r < v.results(); r++) {
    v.element(0, r);
    v.gives({}, r);
  }
}
// Lists of tensors like the parameters, and steps that are one number each; the results are lists like the first ones.
template <size_t kLists, size_t kSteps>
void optimizer(const NodeView& v) {
  const size_t count = v.list(0).size();
  uint32_t r = 0;
  for (size_t i = 0; i < kLists; i++) {
    require(v.list(i).empty() || v.list(i).size() == count, "argument {} lists {} for {} parameters", i, v.list(i).size(), count);
    for (size_t n = 0; n < v.list(i).size(); n++) {
      const bool number = i == kSteps;
      if (number) require(v.meta(v.list(i)[n]).numel() == 1, "a step is one number");
      else require(v.element(i, n) == v.element(0, n), "argument {}: {} for a parameter of {}", i, v.element(i, n), v.element(0, n));
    }
  }
  for (size_t i = 0; i < kLists && r < v.results(); i++) {
    for (size_t n = 0; n < v.list(i).size() && r < v.results(); n++) v.gives(v.element(i, n), r++);
  }
  require(r == v.results(), "more results than operands");
}

}  // namespace

void add_pointwise(ShapeRules& all) {
  all.add(pointwise, {"aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::div", "aten::remainder", "aten::fmod", "aten::maximum", "aten::minimum",
                      "aten::fmax", "aten::fmin", "aten::bitwise_and", "aten::bitwise_or", "aten::bitwise_xor", "aten::bitwise_left_shift",
                      "aten::bitwise_right_shift", "aten::hypot", "aten::atan2", "aten::xlogy", "aten::copysign", "aten::pow", "aten::eq", "aten::ne",
                      "aten::lt", "aten::le", "aten::gt", "aten::ge", "aten::logical_and", "aten::logical_or", "aten::logical_xor"});
  all.add(pointwise, {"aten::abs", "aten::neg", "aten::sign", "aten::sgn", "aten::floor", "aten::ceil", "aten::round", "aten::trunc", "aten::frac",
                      "aten::square", "aten::logical_not", "aten::bitwise_not", "aten::isnan", "aten::isinf", "aten::exp", "aten::exp2", "aten::expm1",
                      "aten::log", "aten::log2", "aten::log10", "aten::log1p", "aten::sqrt", "aten::rsqrt", "aten::reciprocal", "aten::sin", "aten::cos",
                      "aten::tan", "aten::asin", "aten::acos", "aten::atan", "aten::sinh", "aten::cosh", "aten::tanh", "aten::asinh", "aten::acosh",
                      "aten::atanh", "aten::sigmoid", "aten::erf", "aten::erfc", "aten::erfinv", "aten::lgamma", "aten::digamma", "aten::nan_to_num",
                      "aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::relu", "aten::relu6", "aten::leaky_relu", "aten::elu", "aten::gelu",
                      "aten::silu", "aten::mish", "aten::softplus", "aten::hardtanh", "aten::hardswish", "aten::hardsigmoid", "aten::celu",
                      "aten::threshold"});
  all.add(pointwise, {"aten::threshold_backward", "aten::leaky_relu_backward", "aten::elu_backward", "aten::gelu_backward", "aten::silu_backward",
                      "aten::softplus_backward", "aten::hardtanh_backward", "aten::hardswish_backward", "aten::hardsigmoid_backward",
                      "aten::sigmoid_backward", "aten::tanh_backward", "aten::native_dropout_backward"});
  all.add(pointwise, {"aten::where", "aten::addcmul", "aten::addcdiv", "aten::lerp", "aten::masked_fill", "aten::complex", "aten::polar"});
  all.add(like_first, {"aten::log_sigmoid_forward", "aten::real", "aten::imag", "aten::_conj_physical", "aten::angle", "aten::alias", "aten::_to_copy",
                       "aten::clone", "aten::fill", "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::empty_like", "aten::lift_fresh_copy",
                       "lazyt::bernoulli"});
  all.add(all_like_first, {"lazyt::dropout"});
  all.add(like_first_two, {"aten::log_sigmoid_backward", "aten::masked_scatter"});
  all.add(copy, {"aten::copy"});
  all.add(sized<0>, {"aten::zeros", "aten::ones", "aten::full", "aten::empty", "lazyt::uniform", "lazyt::normal", "lazyt::randint"});
  all.add(sized<1>, {"aten::new_zeros", "aten::new_full"});
  all.add(number, {"aten::scalar_tensor"});
  all.add(eye, {"aten::eye"});
  all.add(row, {"aten::arange"});
  all.add(linspace, {"aten::linspace"});
  all.add(foreach_norm, {"aten::_foreach_norm"});
  all.add(optimizer<6, 5>, {"aten::_fused_adam", "aten::_fused_adamw"});
  all.add(optimizer<3, SIZE_MAX>, {"aten::_fused_sgd"});
  all.add(optimizer<4, 3>, {"aten::_fused_adagrad"});
  for (const OpInfo& op : all_ops())
    if (op.name.starts_with("aten::_foreach_")) all.add(foreach_pointwise, {op.name});
}

}  // namespace lazyt::ir
