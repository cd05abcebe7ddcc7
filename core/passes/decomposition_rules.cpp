// The rules, by the name that ops.toml gives an operator. `equal`: the bits of the whole operator. `bound`: an
// error that is at most that many roundings of the result's dtype more, relative to the largest term that
// is summed; f16 and bf16 are computed in f32 and rounded once.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <unordered_map>

#include "passes/decomposition.h"

namespace lazyt::passes {

namespace {

using base::Dims;
using base::DType;
using ir::Arg;
using ir::ValueId;

bool is_number(const Arg& a, double v) {
  return (a.kind == LAZYT_ARG_INT && static_cast<double>(a.i) == v) || (a.kind == LAZYT_ARG_DOUBLE && a.d == v);
}

// ---- moves of bytes: equal

Results permutation(Pieces& p) {
  const ValueId x = p.value(0);
  const bool turns = p.node.name == "aten::t";
  if (p.rank(x) < 2) return one(p.permute(x, p.all_dims(x)));
  return one(turns ? p.swap(x, 0, 1) : p.swap(x, static_cast<size_t>(p.arg(1).i), static_cast<size_t>(p.arg(2).i)));
}

Results reshape(Pieces& p) { return one(p.reshape(p.value(0), p.result().dims)); }

Results select(Pieces& p) {
  if (p.arg(2).kind != LAZYT_ARG_INT) return kNot;
  const int64_t dim = p.arg(1).i, size = p.size(p.value(0), static_cast<size_t>(dim));
  if (p.arg(2).i < -size || p.arg(2).i >= size) return kNot;
  const int64_t index = p.arg(2).i < 0 ? p.arg(2).i + size : p.arg(2).i;
  return one(p.reshape(p.slice(p.value(0), static_cast<size_t>(dim), index, index + 1), p.result().dims));
}

// split, split_with_sizes, chunk, unbind: the results' own sizes say where they begin.
Results split(Pieces& p) {
  const ValueId x = p.value(0);
  const auto dim = p.arg(p.args.size() - 1).i;
  const bool unbind = p.node.name == "aten::unbind";
  std::vector<ValueId> out;
  int64_t start = 0;
  for (uint32_t r = 0; r < p.node.result_count; r++) {
    if (dim < 0 || static_cast<size_t>(dim) >= p.result(r).dims.size() + unbind) return kNot;
    const int64_t size = unbind ? 1 : p.result(r).dims.at(static_cast<size_t>(dim));
    out.push_back(p.reshape(p.slice(x, static_cast<size_t>(dim), start, start + size), p.result(r).dims));
    start += size;
  }
  return out;
}

Results stack(Pieces& p) {
  Dims dims = p.result().dims;
  if (p.arg(1).i < 0 || static_cast<size_t>(p.arg(1).i) >= dims.size()) return kNot;
  dims.at(static_cast<size_t>(p.arg(1).i)) = 1;
  std::vector<Arg> parts;
  for (const Arg& a : p.arg(0).list) {
    if (p.dtype(a.value) != p.result().dtype) return kNot;
    parts.push_back(Arg::of_value(p.reshape(a.value, dims)));
  }
  return one(p.op("aten::cat", "", {Arg::of_list(std::move(parts)), p.arg(1)}, p.result().dtype, p.result().dims));
}

Results embedding(Pieces& p) {
  if (p.dims(p.value(0)).size() != 2) return kNot;
  const ValueId index = p.reshape(p.value(1), {p.meta(p.value(1)).numel()});
  const ValueId rows = p.op("aten::index_select", "", {p.arg(0), Arg::of_int(0), Arg::of_value(index)},
                            p.result().dtype, {p.size(index, 0), p.size(p.value(0), 1)});
  return one(p.reshape(rows, p.result().dims));
}

// zeros, ones, *_like, new_*, scalar_tensor
Results fill(Pieces& p) {
  const std::string& name = p.node.name;
  Arg number = Arg::of_int(name.find("ones") != std::string::npos ? 1 : 0);
  if (name == "aten::full_like" || name == "aten::fill") number = p.arg(1);
  if (name == "aten::new_full") number = p.arg(2);
  if (name == "aten::scalar_tensor") number = p.arg(0);
  if (number.kind == LAZYT_ARG_VALUE && !p.is_host_scalar(number.value)) return kNot;
  return one(p.full(std::move(number), p.result().dtype, p.result().dims));
}

// ---- choices: equal

Results threshold(Pieces& p) {
  const bool backward = p.node.name == "aten::threshold_backward";
  const ValueId x = p.value(backward ? 1 : 0);
  const ValueId other = p.value(0);
  if (p.dtype(x) != p.result().dtype || p.dtype(other) != p.result().dtype) return kNot;
  const ValueId below = p.compare("le", x, p.arg(backward ? 2 : 1));
  return one(p.op("aten::where", "ScalarSelf",
                  {Arg::of_value(below), backward ? Arg::of_int(0) : p.arg(2), Arg::of_value(other)},
                  p.result().dtype, p.result().dims));
}

Results leaky_relu(Pieces& p) {
  const ValueId x = p.value(0);
  if (p.dtype(x) != p.result().dtype || !is_float(p.dtype(x)) || is_half(p.dtype(x))) return kNot;
  return one(p.op("aten::where", "self",
                  {Arg::of_value(p.compare("gt", x, Arg::of_int(0))), p.arg(0),
                   Arg::of_value(p.scalar("mul", x, p.arg(1)))},
                  p.dtype(x), p.dims(x)));
}

Results clamp(Pieces& p) {
  if (p.dtype(p.value(0)) != p.result().dtype) return kNot;
  const bool six = p.node.name == "aten::relu6";
  return one(p.op("aten::clamp", "", {p.arg(0), six ? Arg::of_int(0) : p.arg(1), six ? Arg::of_int(6) : p.arg(2)},
                  p.result().dtype, p.result().dims));
}

Results square(Pieces& p) { return one(p.binary("mul", p.value(0), p.value(0))); }

// Whether eager makes one of `to` of each number of `from`, by rounding: that of others some are too large, it says.
bool becomes(DType from, DType to) {
  const bool real = from <= LAZYT_DTYPE_FLOAT32;  // bools, integers, halves
  return from == to || (real && (to == LAZYT_DTYPE_FLOAT32 || to == LAZYT_DTYPE_FLOAT64));
}

// x[..., mask, ...] = values (+= if they accumulate) where the values do not depend on how many places there are: each place
// is looked at. What the mask chooses is one dim in the place of the mask's own.
Results masked_write(Pieces& p) {
  const ValueId x = p.value(0);
  ValueId values = p.value(2);
  if (p.arg(1).kind != LAZYT_ARG_LIST || p.meta(x).numel() == 0) return kNot;
  std::optional<ValueId> mask;
  size_t first = 0;
  for (const Arg& index : p.arg(1).list) {
    if (index.kind == LAZYT_ARG_NONE) {
      first += !mask;
      continue;
    }
    if (mask || index.kind != LAZYT_ARG_VALUE) return kNot;
    mask = index.value;
  }
  if (!mask || (p.dtype(*mask) != LAZYT_DTYPE_BOOL && p.dtype(*mask) != LAZYT_DTYPE_UINT8)) return kNot;
  const size_t takes = p.rank(*mask);
  if (first + takes > p.rank(x) || !std::ranges::equal(p.dims(*mask), std::span(p.dims(x)).subspan(first, takes))) return kNot;
  const size_t behind = p.rank(x) - first - takes;

  Dims dims = p.dims(values);
  if (p.meta(values).numel() == 1) {
    dims.clear();
  } else if (dims.size() > behind) {
    const size_t chosen = dims.size() - behind - 1;
    if (chosen > first || dims.at(chosen) != 1) return kNot;
    dims = erased(std::move(dims), chosen);
    for (size_t i = 0; i < takes; i++) dims = inserted(std::move(dims), chosen, 1);
  }
  if (!becomes(p.dtype(values), p.dtype(x))) return kNot;
  values = p.reshape(p.cast(values, p.dtype(x)), std::move(dims));
  if (broadcast(p.dims(x), p.dims(values)) != p.dims(x)) return kNot;
  if (p.arg(3).i != 0) values = p.add(x, values);
  Dims places = p.dims(*mask);
  places.resize(takes + behind, 1);
  return one(p.where(p.reshape(p.cast(*mask, LAZYT_DTYPE_BOOL), std::move(places)), values, x));
}

// ---- draws of f16 and bf16: equal (integers up to 2^24)

Results draw(Pieces& p) {
  const DType dtype = p.result().dtype;
  if (!is_half(dtype)) return kNot;
  std::vector<Arg> args = p.args;
  if (p.is_value(0)) args.at(0) = Arg::of_value(p.cast(p.value(0), LAZYT_DTYPE_FLOAT32));  // bernoulli: probabilities
  else args.at(1) = Arg::of_int(LAZYT_DTYPE_FLOAT32, LAZYT_ARG_DTYPE);
  return one(p.cast(p.op(p.node.name, "", std::move(args), LAZYT_DTYPE_FLOAT32, p.result().dims), dtype));
}

// ---- products: bound 2 (the product is rounded before the sum)

Results addmm(Pieces& p) {
  const Arg &beta = p.arg(3), &alpha = p.arg(4);
  if (!is_constant(beta) || !is_constant(alpha) || !is_float(p.result().dtype)) return kNot;
  const char* product = p.node.name == "aten::addmm" ? "aten::mm" : p.node.name == "aten::addmv" ? "aten::mv" : "aten::bmm";
  ValueId v = p.op(product, "", {p.arg(1), p.arg(2)}, p.result().dtype, p.result().dims);
  if (!is_number(alpha, 1)) v = p.scalar("mul", v, alpha);
  if (is_number(beta, 0)) return one(v);  // self is not read, its NaNs neither
  ValueId self = p.value(0);
  if (!is_number(beta, 1)) self = p.scalar("mul", self, beta);
  return one(p.binary("add", v, self));
}

Results linear(Pieces& p) {
  const ValueId x = p.value(0), w = p.value(1);
  if (p.dims(w).size() != 2 || p.dims(x).empty()) return kNot;
  const int64_t in = p.size(w, 1), out = p.size(w, 0);
  const int64_t rows = in ? p.meta(x).numel() / in : 0;
  if (in == 0) return kNot;
  ValueId v = p.op("aten::mm", "", {Arg::of_value(p.reshape(x, {rows, in})), Arg::of_value(p.permute(w, {1, 0}))},
                   p.result().dtype, {rows, out});
  if (!p.is_none(2)) v = p.binary("add", v, p.value(2));
  return one(p.reshape(v, p.result().dims));
}

// bound 3
Results addcmul(Pieces& p) {
  for (size_t i = 0; i < 3; i++)
    if (p.dtype(p.value(i)) != p.result().dtype) return kNot;
  if (is_half(p.result().dtype)) return kNot;
  ValueId v = p.binary(p.node.name == "aten::addcmul" ? "mul" : "div",
                       is_number(p.arg(3), 1) ? p.value(1) : p.scalar("mul", p.value(1), p.arg(3)), p.value(2));
  return one(p.binary("add", p.value(0), v));
}

// ---- softmax: bound 4 + log2 of the row

Results softmax(Pieces& p) {
  const bool log = p.node.name == "aten::_log_softmax";
  if (p.arg(2).i || !is_float(p.result().dtype)) return kNot;
  const int64_t dim = p.arg(1).i;
  ValueId x = p.cast(p.value(0), wide(p.result().dtype));
  if (p.dims(x).empty() || p.meta(x).numel() == 0) return kNot;
  x = p.binary("sub", x, p.reduce("amax", x, {dim}));
  const ValueId e = p.unary("aten::exp", x), sum = p.reduce("sum", e, {dim});
  const ValueId v = log ? p.binary("sub", x, p.unary("aten::log", sum)) : p.binary("div", e, sum);
  return one(p.cast(v, p.result().dtype));
}

Results softmax_backward(Pieces& p) {
  const int64_t dim = p.arg(2).i;
  const DType dtype = wide(p.dtype(p.value(1)));
  if (!is_float(dtype) || p.dtype(p.value(0)) != p.dtype(p.value(1)) || p.result().dtype != p.dtype(p.value(0)) ||
      p.result().dims.empty())
    return kNot;
  const ValueId grad = p.cast(p.value(0), dtype), out = p.cast(p.value(1), dtype);
  ValueId v;
  if (p.node.name == "aten::_log_softmax_backward_data") {
    v = p.binary("sub", grad, p.binary("mul", p.unary("aten::exp", out), p.reduce("sum", grad, {dim})));
  } else {
    const ValueId product = p.binary("mul", grad, out);
    v = p.binary("sub", product, p.binary("mul", out, p.reduce("sum", product, {dim})));
  }
  return one(p.cast(v, p.result().dtype));
}

// ---- norms: bound 8 + log2 of the row; the variance is of x - mean, without cancellation

Results layer_norm(Pieces& p) {
  const DType dtype = wide(p.result().dtype);
  const ValueId input = p.value(0);
  const size_t rank = p.dims(input).size(), over = p.arg(1).ints.size();
  if (!is_float(p.dtype(input)) || p.meta(input).numel() == 0 || p.arg(4).kind != LAZYT_ARG_DOUBLE) return kNot;
  std::vector<int64_t> dims;
  for (size_t i = rank - over; i < rank; i++) dims.push_back(static_cast<int64_t>(i));
  const ValueId x = p.cast(input, dtype);
  const ValueId mean = p.reduce("mean", x, dims), centred = p.binary("sub", x, mean);
  const ValueId var = p.reduce("mean", p.binary("mul", centred, centred), dims);
  const ValueId rstd = p.unary("aten::rsqrt", p.scalar("add", var, p.arg(4)));
  ValueId v = p.binary("mul", centred, rstd);
  if (!p.is_none(2)) v = p.binary("mul", v, p.cast(p.value(2), dtype));
  if (!p.is_none(3)) v = p.binary("add", v, p.cast(p.value(3), dtype));
  auto statistic = [&](ValueId s, uint32_t r) {
    return p.reshape(p.cast(s, p.result(r).dtype), p.result(r).dims);
  };
  return std::vector<ValueId>{p.cast(v, p.result().dtype), statistic(mean, 1), statistic(rstd, 2)};
}

// ---- activations: bound 4, of the largest factor

constexpr double kSqrtHalf = 0.70710678118654752440, kTwoOverSqrtPi = 1.12837916709551257390;

Results gelu(Pieces& p) {
  if (!is_float(p.result().dtype) || p.dtype(p.value(0)) != p.result().dtype) return kNot;
  const ValueId x = p.cast(p.value(0), wide(p.result().dtype));
  const ValueId half = p.scalar("mul", x, Arg::of_double(0.5));
  ValueId inner;
  if (p.arg(1).string == "tanh") {
    const ValueId cube = p.binary("mul", p.binary("mul", x, x), x);
    const ValueId sum = p.binary("add", x, p.scalar("mul", cube, Arg::of_double(0.044715)));
    inner = p.unary("aten::tanh", p.scalar("mul", sum, Arg::of_double(kSqrtHalf * kTwoOverSqrtPi)));
  } else {
    inner = p.unary("aten::erf", p.scalar("mul", x, Arg::of_double(kSqrtHalf)));
  }
  return one(p.cast(p.binary("mul", half, p.scalar("add", inner, Arg::of_int(1))), p.result().dtype));
}

Results silu(Pieces& p) {
  if (!is_float(p.result().dtype) || p.dtype(p.value(0)) != p.result().dtype) return kNot;
  const ValueId x = p.cast(p.value(0), wide(p.result().dtype));
  return one(p.cast(p.binary("mul", x, p.unary("aten::sigmoid", x)), p.result().dtype));
}

// sigmoid_backward, tanh_backward
Results from_output(Pieces& p) {
  const DType dtype = wide(p.result().dtype);
  if (!is_float(dtype) || p.dtype(p.value(0)) != p.result().dtype || p.dtype(p.value(1)) != p.result().dtype) return kNot;
  const ValueId grad = p.cast(p.value(0), dtype), y = p.cast(p.value(1), dtype);
  ValueId v;
  if (p.node.name == "aten::tanh_backward")
    v = p.binary("mul", grad, p.scalar("rsub", p.binary("mul", y, y), Arg::of_int(1)));
  else
    v = p.binary("mul", p.binary("mul", grad, p.scalar("rsub", y, Arg::of_int(1))), y);
  return one(p.cast(v, p.result().dtype));
}

// ---- lists: equal; each tensor by the operator of that name

Results foreach(Pieces& p) {
  const std::string base = p.node.name.substr(std::string("aten::_foreach_").size());
  const std::string& overload = p.node.overload;
  const bool scalars = overload == "Scalar" || overload == "ScalarList";
  std::vector<ValueId> out;
  for (uint32_t r = 0; r < p.node.result_count; r++) {
    const ir::Meta& to = p.result(r);
    std::vector<Arg> args;
    bool same = true;  // all tensors in the result's dtype
    for (const Arg& a : p.args) {
      if (a.kind == LAZYT_ARG_LIST) {
        if (r >= a.list.size()) return kNot;
        args.push_back(a.list.at(r));
      } else if (a.kind == LAZYT_ARG_DOUBLES) {
        args.push_back(Arg::of_double(a.doubles.at(r)));
      } else if (a.kind == LAZYT_ARG_INTS) {
        args.push_back(Arg::of_int(a.ints.at(r)));
      } else {
        args.push_back(a);
      }
      if (args.back().kind == LAZYT_ARG_VALUE && !p.is_host_scalar(args.back().value))
        same = same && p.dtype(args.back().value) == to.dtype;
    }
    auto make = [&](const std::string& name, const std::string& with) {
      out.push_back(p.op("aten::" + name, with, std::move(args), to.dtype, to.dims));
    };
    if (base == "zero") {
      out.push_back(p.zeros(to.dtype, to.dims));
    } else if (base == "copy") {
      if (p.dims(args.at(1).value) != to.dims) return kNot;
      out.push_back(p.cast(args.at(1).value, to.dtype));
    } else if (base == "norm") {
      args = {args.at(0), args.at(1), Arg::none(), Arg::of_bool(false), args.at(2)};
      make("linalg_vector_norm", "");
    } else if (!same) {
      return kNot;
    } else if (base == "add" || base == "sub") {
      if (scalars) args.push_back(Arg::of_int(1));
      make(base, scalars ? "Scalar" : "Tensor");
    } else if (base == "mul" || base == "div") {
      make(base, scalars ? "Scalar" : "Tensor");
    } else if (base == "addcmul" || base == "addcdiv") {
      if (overload == "Tensor") return kNot;  // numbers that lie in a tensor
      make(base, "");
    } else if (base == "lerp") {
      make(base, scalars ? "Scalar" : "Tensor");
    } else if (base == "pow") {
      make(base, overload == "List" ? "Tensor_Tensor" : scalars ? "Tensor_Scalar" : "Scalar");
    } else if ((base == "maximum" || base == "minimum") && overload == "Scalar") {
      make(base == "maximum" ? "clamp_min" : "clamp_max", "");
    } else {
      make(base, "");  // of one or two lists, or a list and a bound
    }
  }
  return out;
}

// ---- fused optimizer steps: bound 8. Numbers of the step (bias corrections) are computed in f64, as the
// fused kernels do on the host. A weight decay that is a host scalar is applied even if it is 0.

// A number of the step: known here, or a rank-0 f64 tensor.
class Number {
 public:
  Number(Pieces& p, const Arg& a) : p_(&p) {
    if (a.kind == LAZYT_ARG_VALUE) {
      value_ = p.is_host_scalar(a.value) ? p.full(a, LAZYT_DTYPE_FLOAT64, {})
                                         : p.cast(p.reshape(a.value, {}), LAZYT_DTYPE_FLOAT64);
    } else {
      known_ = a.kind == LAZYT_ARG_INT ? static_cast<double>(a.i) : a.d;
    }
  }
  Number(Pieces& p, double known) : p_(&p), known_(known) {}

  bool is(double v) const { return value_ == ir::kNone && known_ == v; }
  ValueId tensor() const { return value_ != ir::kNone ? value_ : p_->full(Arg::of_double(known_), LAZYT_DTYPE_FLOAT64, {}); }
  // x op number, in the dtype of x.
  ValueId apply(const char* op, ValueId x) const {
    if (value_ == ir::kNone) return p_->scalar(op, x, Arg::of_double(known_));
    return p_->binary(op, x, p_->cast(value_, p_->dtype(x)));
  }
  friend Number combine(const char* op, const Number& a, const Number& b) {
    const std::string name = op;
    if (a.value_ == ir::kNone && b.value_ == ir::kNone) {
      const double x = a.known_, y = b.known_;
      return {*a.p_, name == "mul" ? x * y : name == "div" ? x / y : name == "sub" ? x - y : std::pow(x, y)};
    }
    if (name == "pow")
      return of(*a.p_, a.p_->op("aten::pow", "Tensor_Tensor", {Arg::of_value(a.tensor()), Arg::of_value(b.tensor())},
                                LAZYT_DTYPE_FLOAT64, {}));
    return of(*a.p_, a.p_->binary(name, a.tensor(), b.tensor()));
  }
  friend Number root(const Number& a) {
    return a.value_ == ir::kNone ? Number(*a.p_, std::sqrt(a.known_)) : of(*a.p_, a.p_->unary("aten::sqrt", a.value_));
  }

 private:
  static Number of(Pieces& p, ValueId v) {
    Number n(p, 0.0);
    n.value_ = v;
    return n;
  }
  Pieces* p_;
  double known_ = 0;
  ValueId value_ = ir::kNone;
};

// Scaled gradients and steps that may be skipped stay whole.
bool is_plain_step(const Pieces& p) {
  const size_t n = p.args.size();
  if (!p.is_none(n - 1) || !p.is_none(n - 2)) return false;
  for (const Arg& list : p.args)
    for (const Arg& a : list.list)
      if (a.kind != LAZYT_ARG_VALUE || !is_float(p.dtype(a.value)) || is_half(p.dtype(a.value))) return false;
  return true;
}

// y + number * x
ValueId add_scaled(Pieces& p, ValueId y, const Number& number, ValueId x) {
  return p.binary("add", y, number.is(1) ? x : number.apply("mul", x));
}

Results adam(Pieces& p) {
  // self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps,
  // amsgrad, maximize, grad_scale, found_inf
  const bool decoupled = p.node.name == "aten::_fused_adamw";
  const bool amsgrad = p.arg(11).i != 0, maximize = p.arg(12).i != 0;
  const size_t count = p.arg(0).list.size();
  const Number lr(p, p.arg(6)), beta1(p, p.arg(7)), beta2(p, p.arg(8)), decay(p, p.arg(9)), eps(p, p.arg(10));
  const Number unit(p, 1.0), rest1 = combine("sub", unit, beta1), rest2 = combine("sub", unit, beta2);
  std::vector<ValueId> params, grads, firsts, seconds, largest;
  for (size_t i = 0; i < count; i++) {
    auto at = [&](size_t list) { return p.arg(list).list.at(i).value; };
    ValueId param = at(0), grad = at(1);
    if (p.dtype(param) != p.dtype(grad)) return kNot;
    grads.push_back(grad);
    if (maximize) grad = p.unary("aten::neg", grad);
    if (!decay.is(0)) {
      if (decoupled)
        param = combine("sub", unit, combine("mul", lr, decay)).apply("mul", param);
      else
        grad = add_scaled(p, grad, decay, param);
    }
    const Number step(p, p.arg(5).list.at(i));
    const Number correction1 = combine("sub", unit, combine("pow", beta1, step));
    const Number correction2 = combine("sub", unit, combine("pow", beta2, step));
    const ValueId first = p.binary("add", at(2), rest1.apply("mul", p.binary("sub", grad, at(2))));
    const ValueId second = p.binary("add", beta2.apply("mul", at(3)), rest2.apply("mul", p.binary("mul", grad, grad)));
    ValueId under = second;
    if (amsgrad) largest.push_back(under = p.op("aten::maximum", "", {Arg::of_value(at(4)), Arg::of_value(second)},
                                            p.dtype(second), p.dims(second)));
    const ValueId root_of = root(correction2).apply("div", p.unary("aten::sqrt", under));
    const ValueId denominator = eps.apply("add", root_of);
    const ValueId move = combine("div", lr, correction1).apply("mul", p.binary("div", first, denominator));
    params.push_back(p.binary("sub", param, move));
    firsts.push_back(first);
    seconds.push_back(second);
  }
  std::vector<ValueId> out;
  for (const auto* list : {&params, &grads, &firsts, &seconds, &largest}) out.insert(out.end(), list->begin(), list->end());
  return out;
}

Results sgd(Pieces& p) {
  // self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize,
  // is_first_step, grad_scale, found_inf
  const bool nesterov = p.arg(7).i != 0, maximize = p.arg(8).i != 0, first_step = p.arg(9).i != 0;
  const Number decay(p, p.arg(3)), momentum(p, p.arg(4)), lr(p, p.arg(5)), dampening(p, p.arg(6));
  const Number rest = combine("sub", Number(p, 1.0), dampening);
  const bool has_momentum = !p.arg(2).list.empty();
  std::vector<ValueId> params, grads, buffers;
  for (size_t i = 0; i < p.arg(0).list.size(); i++) {
    const ValueId param = p.arg(0).list.at(i).value;
    ValueId grad = p.arg(1).list.at(i).value;
    if (p.dtype(param) != p.dtype(grad)) return kNot;
    grads.push_back(grad);
    if (maximize) grad = p.unary("aten::neg", grad);
    if (!decay.is(0)) grad = add_scaled(p, grad, decay, param);
    if (has_momentum) {
      ValueId buffer = grad;
      if (!first_step)
        buffer = add_scaled(p, momentum.apply("mul", p.arg(2).list.at(i).value), rest, grad);
      buffers.push_back(buffer);
      grad = nesterov ? add_scaled(p, grad, momentum, buffer) : buffer;
    }
    params.push_back(p.binary("sub", param, lr.apply("mul", grad)));
  }
  std::vector<ValueId> out;
  for (const auto* list : {&params, &grads, &buffers}) out.insert(out.end(), list->begin(), list->end());
  return out;
}

Results fused_optimizer(Pieces& p) {
  if (!is_plain_step(p)) return kNot;
  Results out = kNot;
  if (p.node.name.starts_with("aten::_fused_adam") && p.node.name != "aten::_fused_adagrad") out = adam(p);
  if (p.node.name == "aten::_fused_sgd") out = sgd(p);
  return out && out->size() == p.node.result_count ? out : kNot;
}

}  // namespace

std::span<const Rules* const> rules_outside() {
  static const auto& all = *new std::vector<const Rules*>{&outside_rules(), &window_rules(), &bag_rules(), &sampling_rules(), &recurrent_rules()};
  return all;
}

Rule find_rule(std::string_view name) {
  static const auto* rules = new Rules{
      {"addcmul", addcmul},         {"addmm", addmm},
      {"clamp", clamp},             {"draw", draw},
      {"embedding", embedding},
      {"fill", fill},               {"foreach", foreach},
      {"from_output", from_output}, {"fused_optimizer", fused_optimizer},
      {"gelu", gelu},               {"layer_norm", layer_norm},
      {"leaky_relu", leaky_relu},   {"linear", linear},
      {"masked_write", masked_write},
      {"permutation", permutation}, {"reshape", reshape},
      {"select", select},           {"silu", silu},
      {"softmax", softmax},         {"softmax_backward", softmax_backward},
      {"split", split},             {"square", square},
      {"stack", stack},             {"threshold", threshold},
  };
  if (auto it = rules->find(name); it != rules->end()) return it->second;
  for (const Rules* outside : rules_outside())
    if (auto it = outside->find(name); it != outside->end()) return it->second;
  return nullptr;
}

}  // namespace lazyt::passes
