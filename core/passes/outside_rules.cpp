// Rules of operators that PyTorch has kernels for and the opset does not number, and of numbered ones that
// are seldom claimed: what a plugin refuses of them need not end its program for the host. Formulas, the
// order of comparisons and what becomes of NaN as in PyTorch's kernels for the CPU. `equal` and `bound`: see
// decomposition_rules.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "passes/decomposition.h"

namespace lazyt::passes {

namespace {

using base::Dims;
using base::DType;
using ir::Arg;
using ir::ValueId;

constexpr DType kBool = LAZYT_DTYPE_BOOL, kInt64 = LAZYT_DTYPE_INT64, kF32 = LAZYT_DTYPE_FLOAT32,
                kF64 = LAZYT_DTYPE_FLOAT64;

bool is_int(DType d) {
  return d == LAZYT_DTYPE_UINT8 || d == LAZYT_DTYPE_INT8 || d == LAZYT_DTYPE_INT16 ||
         d == LAZYT_DTYPE_INT32 || d == kInt64;
}
bool is_real(DType d) { return is_float(d) || is_int(d); }
double number(const Arg& a) { return a.kind == LAZYT_ARG_INT ? static_cast<double>(a.i) : a.d; }

// Argument i as a dim of x.
size_t dim_of(const Pieces& p, size_t i, ValueId x) {
  const int64_t dim = p.arg(i).i;
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(p.rank(x)) : dim);
}
// Those that argument i lists, or all.
Dims dims_or_all(const Pieces& p, size_t i, ValueId x) {
  Dims over;
  if (p.arg(i).kind == LAZYT_ARG_INTS) over = p.arg(i).ints;
  if (p.arg(i).kind == LAZYT_ARG_INT) over = {p.arg(i).i};
  for (int64_t& dim : over) dim += dim < 0 ? static_cast<int64_t>(p.rank(x)) : 0;
  return over.empty() || p.rank(x) == 0 ? p.all_dims(x) : over;
}
Results rounded(Pieces& p, ValueId v) { return one(p.rounded(v)); }

ValueId diagonal(Pieces& p, ValueId x, int64_t offset, size_t dim1, size_t dim2, Dims out) {
  return p.op("aten::diagonal", "",
              {Arg::of_value(x), Arg::of_int(offset), Arg::of_int(static_cast<int64_t>(dim1)),
               Arg::of_int(static_cast<int64_t>(dim2))},
              p.dtype(x), std::move(out));
}
ValueId sum(Pieces& p, ValueId x, Dims over, bool keep, DType dtype, Dims out) {
  if (over.empty()) return p.cast(x, dtype);
  return p.op("aten::sum", "dim_IntList",
              {Arg::of_value(x), Arg::of_ints(std::move(over)), Arg::of_bool(keep), Arg::none()}, dtype,
              std::move(out));
}

// ---- moves: equal, and their gradients: sums of few terms in any order, halves in f32

// Places beside x along a dim, `before` and `behind`, that show what is inside: mirrored without the edge, or
// the edge itself.
ValueId padded(Pieces& p, ValueId x, size_t dim, int64_t before, int64_t behind, bool mirrored) {
  const int64_t n = p.size(x, dim);
  std::vector<ValueId> parts;
  const auto edge = [&](int64_t at, int64_t count) {
    Dims out = p.dims(x);
    out.at(dim) = count;
    parts.push_back(p.expand(p.slice(x, dim, at, at + 1), std::move(out)));
  };
  if (before > 0) mirrored ? parts.push_back(p.flip(p.slice(x, dim, 1, before + 1), dim)) : edge(0, before);
  parts.push_back(x);
  if (behind > 0)
    mirrored ? parts.push_back(p.flip(p.slice(x, dim, n - 1 - behind, n - 1), dim)) : edge(n - 1, behind);
  return p.cat(parts, dim);
}

ValueId padded_backward(Pieces& p, ValueId grad, size_t dim, int64_t before, int64_t behind, bool mirrored) {
  const int64_t n = p.size(grad, dim) - before - behind;
  ValueId inside = p.slice(grad, dim, before, before + n);
  const auto give = [&](int64_t start, int64_t count, int64_t at) {
    if (count == 0) return;
    const ValueId outer = p.slice(grad, dim, start, start + count);
    const ValueId back = mirrored ? p.flip(outer, dim) : p.reduce("sum", outer, {static_cast<int64_t>(dim)});
    inside = p.add(inside, p.pad(back, dim, at, n - at - p.size(back, dim)));
  };
  give(0, before, mirrored ? 1 : 0);
  give(before + n, behind, mirrored ? n - 1 - behind : n - 1);
  return inside;
}

// (self, padding), (grad, self, padding): the last dim's places first.
Results pad_by_itself(Pieces& p) {
  const bool backward = p.node.name.ends_with("_backward"),
             mirrored = p.node.name.find("reflection") != std::string::npos;
  const Arg& padding = p.arg(backward ? 2 : 1);
  if (padding.kind != LAZYT_ARG_INTS || !is_real(p.result().dtype) || p.result().numel() == 0) return kNot;
  if (std::ranges::any_of(padding.ints, [](int64_t n) { return n < 0; })) return kNot;  // parts cut off
  ValueId v = backward ? p.operand(0) : p.value(0);
  for (size_t k = 0; k < padding.ints.size() / 2; k++)
    v = (backward ? padded_backward : padded)(p, v, p.rank(v) - 1 - k, padding.ints.at(2 * k),
                                              padding.ints.at(2 * k + 1), mirrored);
  return rounded(p, v);
}

Results channel_shuffle(Pieces& p) {
  const ValueId x = p.value(0);
  Dims dims = p.dims(x);
  if (p.meta(x).numel() == 0) return kNot;
  const int64_t groups = p.size_of(p.arg(1).i);
  dims.at(1) /= groups;
  return one(p.reshape(p.swap(p.reshape(x, inserted(std::move(dims), 1, groups)), 1, 2), p.result().dims));
}

Results pixel_unshuffle(Pieces& p) {
  const ValueId x = p.value(0);
  const int64_t r = p.size_of(p.arg(1).i);
  Dims dims = p.dims(x);
  const size_t c = dims.size() - 3;  // the channels' dim; h and w follow
  dims.at(c + 1) /= r, dims.at(c + 2) /= r;
  dims = inserted(std::move(dims), c + 2, r);
  dims.push_back(r);
  // c h r w r -> c r h w r -> c r r h w
  const ValueId parts = p.move(p.reshape(x, std::move(dims)), c + 2, c + 1);
  return one(p.reshape(p.move(parts, c + 4, c + 2), p.result().dims));
}

Results diagonal_copy(Pieces& p) {
  return one(diagonal(p, p.value(0), p.arg(1).i, dim_of(p, 2, p.value(0)), dim_of(p, 3, p.value(0)),
                      p.result().dims));
}

// diag_embed (self, offset, dim1, dim2), diagonal_backward (grad, sizes, offset, dim1, dim2): zeros around a
// diagonal
Results from_diagonal(Pieces& p) {
  if (p.result().numel() == 0) return kNot;
  const ValueId zeros = p.zeros(p.result().dtype, p.result().dims);
  const size_t last = p.args.size() - 1;
  const auto dim = [&](size_t i) { return Arg::of_int(static_cast<int64_t>(dim_of(p, i, zeros))); };
  return one(p.op("aten::diagonal_scatter", "",
                  {Arg::of_value(zeros), p.arg(0), p.arg(last - 2), dim(last - 1), dim(last)},
                  p.result().dtype, p.result().dims));
}

// (n), (n, m): ones where the row is the column
Results eye(Pieces& p) {
  const Dims& out = p.result().dims;
  if (p.result().numel() == 0 || (!is_real(p.result().dtype) && p.result().dtype != kBool)) return kNot;
  const ValueId rows = p.reshape(p.arange(out.at(0), kInt64), {out.at(0), 1}), columns = p.arange(out.at(1), kInt64);
  return rounded(p, p.op("aten::eq", "Tensor", {Arg::of_value(rows), Arg::of_value(columns)}, kBool, out));
}

Results trace(Pieces& p) {
  const ValueId x = p.value(0);
  if (p.meta(x).numel() == 0) return kNot;
  const ValueId along = diagonal(p, x, 0, 0, 1, {std::min(p.size(x, 0), p.size(x, 1))});
  return one(sum(p, along, {0}, false, p.result().dtype, {}));
}

Results rot90(Pieces& p) {
  const ValueId x = p.value(0);
  const auto dim = [&](size_t i) {
    const int64_t d = p.arg(2).ints.at(i);
    return static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(p.rank(x)) : d);
  };
  const size_t a = dim(0), b = dim(1);
  switch ((p.arg(1).i % 4 + 4) % 4) {
    case 1:
      return one(p.swap(p.flip(x, b), a, b));
    case 2:
      return one(p.flip(p.flip(x, a), b));
    case 3:
      return one(p.swap(p.flip(x, a), a, b));
    default:
      return kNot;  // a copy
  }
}

// ---- choices and comparisons: equal

// (self, weight), (grad, self, weight) -> grad of self, of weight per element
Results prelu(Pieces& p) {
  const bool backward = p.node.result_count == 2;
  const size_t self = backward ? 1 : 0;
  if (!is_float(p.result().dtype)) return kNot;
  const ValueId x = p.operand(self), w = p.operand(self + 1);
  const ValueId above = p.is("gt", x, 0);
  if (!backward) return rounded(p, p.where(above, x, p.mul(w, x)));
  const ValueId grad = p.operand(0);
  return std::vector<ValueId>{p.cast(p.where(above, grad, p.mul(w, grad)), p.result(0).dtype),
                              p.cast(p.number_where(above, 0, p.mul(x, grad)), p.result(1).dtype)};
}

// hardshrink, softshrink (self, lambd) and their backwards (grad, self, lambd)
Results shrink(Pieces& p) {
  const bool backward = p.node.name.ends_with("_backward");
  const Arg& limit = p.arg(backward ? 2 : 1);
  if (!is_constant(limit) || is_half(p.result().dtype)) return kNot;  // halves compare with a rounded limit
  const double l =
      p.result().dtype == kF32 ? static_cast<double>(static_cast<float>(number(limit))) : number(limit);
  const ValueId x = p.value(backward ? 1 : 0);
  if (p.node.name == "aten::softshrink") {
    const ValueId near = p.op("aten::clamp", "", {Arg::of_value(x), Arg::of_double(-l), Arg::of_double(l)},
                              p.dtype(x), p.dims(x));
    return one(p.sub(x, near));
  }
  const ValueId inside = p.both("logical_and", p.is("ge", x, -l), p.is("le", x, l));
  return one(p.number_where(inside, 0, backward ? p.value(0) : x));
}

// clamp_min.Tensor, clamp_max.Tensor
Results clamp_by(Pieces& p) {
  const DType dtype = p.result().dtype;
  if (p.node.overload != "Tensor" || (!is_real(dtype) && dtype != kBool)) return kNot;
  return one(p.of_two(p.node.name == "aten::clamp_min" ? "maximum" : "minimum", p.cast(p.value(0), dtype),
                      p.cast(p.value(1), dtype)));
}

Results heaviside(Pieces& p) {
  const ValueId x = p.value(0);
  if (!is_real(p.result().dtype)) return kNot;
  return one(p.where(p.is("eq", x, 0), p.value(1), p.cast(p.is("gt", x, 0), p.result().dtype)));
}

Results is_all_true(Pieces& p) {
  return one(
      p.op(p.node.name == "aten::_is_all_true" ? "aten::all" : "aten::any", "", {p.arg(0)}, kBool, {}));
}

// ---- counts and sums: equal where they count

Results count_nonzero(Pieces& p) {
  const ValueId x = p.value(0);
  if (!is_real(p.dtype(x)) && p.dtype(x) != kBool) return kNot;
  const ValueId counted = p.dtype(x) == kBool ? x : p.is("ne", x, 0);
  return one(sum(p, counted, dims_or_all(p, 1, x), false, kInt64, p.result().dims));
}

// (self, dim?, keepdim, dtype?)
Results nansum(Pieces& p) {
  if (!is_real(p.result().dtype) || !is_real(p.dtype(p.value(0)))) return kNot;
  ValueId x = p.operand(0);
  if (is_float(p.dtype(x)))
    x = p.number_where(p.op("aten::isnan", "", {Arg::of_value(x)}, kBool, p.dims(x)), 0, x);
  return rounded(p, sum(p, x, dims_or_all(p, 1, x), p.arg(2).i != 0, p.dtype(x), p.result().dims));
}

// (self, dim?, correction?, keepdim)
Results std_mean(Pieces& p) {
  const ValueId x = p.value(0);
  Dims over = dims_or_all(p, 1, x);
  if (p.node.overload != "correction" || !is_float(p.dtype(x)) || over.empty()) return kNot;
  const Arg dims = Arg::of_ints(std::move(over));
  const ValueId mean = p.op("aten::mean", "dim", {p.arg(0), dims, p.arg(3), Arg::none()}, p.result(1).dtype,
                            p.result(1).dims);
  return std::vector<ValueId>{p.op("aten::std", "correction", {p.arg(0), dims, p.arg(2), p.arg(3)},
                                   p.result(0).dtype, p.result(0).dims),
                              mean};
}

// ---- arithmetic of two: equal, or bound 2

Results floor_divide(Pieces& p) {
  const DType dtype = p.result().dtype;
  if (!is_real(dtype)) return kNot;
  std::vector<Arg> args = {Arg::of_value(p.cast(p.value(0), dtype)), p.arg(1), Arg::of_string("floor")};
  const bool of_tensor = p.is_value(1) && !p.is_host_scalar(p.value(1));
  if (of_tensor) args.at(1) = Arg::of_value(p.cast(p.value(1), dtype));
  return one(
      p.op("aten::div", of_tensor ? "Tensor_mode" : "Scalar_mode", std::move(args), dtype, p.result().dims));
}

// rsub.Tensor: other - alpha self
Results rsub(Pieces& p) {
  const DType dtype = p.result().dtype;
  if (p.node.overload != "Tensor" || !is_real(dtype)) return kNot;
  return one(
      p.op("aten::sub", "Tensor",
           {Arg::of_value(p.cast(p.value(1), dtype)), Arg::of_value(p.cast(p.value(0), dtype)), p.arg(2)},
           dtype, p.result().dims));
}

// log(exp a + exp b), of base 2: from the larger one on. Equal infinities are their own sum.
Results logaddexp(Pieces& p) {
  if (!is_float(p.result().dtype)) return kNot;
  const bool of_two = p.node.name == "aten::logaddexp2";
  const ValueId a = p.operand(0), b = p.operand(1), high = p.of_two("maximum", a, b);
  const ValueId power =
      p.unary(of_two ? "aten::exp2" : "aten::exp", p.unary("aten::neg", p.unary("aten::abs", p.sub(a, b))));
  ValueId rest = p.unary("aten::log1p", power);
  if (of_two) rest = p.times(rest, std::numbers::log2e);
  const ValueId equal = p.op("aten::eq", "Tensor", {Arg::of_value(a), Arg::of_value(b)}, kBool,
                             broadcast(p.dims(a), p.dims(b)));
  const ValueId infinite = p.op("aten::isinf", "", {Arg::of_value(a)}, kBool, p.dims(a));
  return rounded(p, p.where(p.both("logical_and", infinite, equal), a, p.add(high, rest)));
}

Results xlog1py(Pieces& p) {
  if (p.node.overload != "" || !is_float(p.result().dtype)) return kNot;
  const ValueId x = p.operand(0), y = p.operand(1);
  const ValueId product = p.mul(x, p.unary("aten::log1p", y));
  return rounded(p, p.where(p.op("aten::isnan", "", {Arg::of_value(y)}, kBool, p.dims(y)), y,
                            p.number_where(p.is("eq", x, 0), 0, product)));
}

Results ldexp(Pieces& p) {
  const DType exponent = is_float(p.dtype(p.value(1))) ? p.dtype(p.value(1)) : kF32;
  if (!is_float(p.result().dtype) || is_half(p.result().dtype) || is_half(exponent)) return kNot;
  const ValueId e = p.cast(p.value(1), exponent);
  const ValueId power =
      p.op("aten::pow", "Scalar", {Arg::of_double(2), Arg::of_value(e)}, exponent, p.dims(e));
  return one(p.mul(p.operand(0), p.cast(power, p.result().dtype)));
}

// (self, other, dim)
Results cross(Pieces& p) {
  const DType dtype = p.result().dtype;
  if (!is_real(dtype)) return kNot;
  const auto whole = [&](size_t i) {
    const ValueId v = p.operand(i);
    return p.dims(v) == p.result().dims ? v : p.expand(v, p.result().dims);
  };
  const ValueId a = whole(0), b = whole(1);
  const size_t dim = dim_of(p, 2, a);
  const auto at = [&](ValueId v, int64_t i) { return p.slice(v, dim, i % 3, i % 3 + 1); };
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < 3; i++)
    parts.push_back(p.sub(p.mul(at(a, i + 1), at(b, i + 2)), p.mul(at(a, i + 2), at(b, i + 1))));
  return rounded(p, p.cat(parts, dim));
}

// (self, vec1, vec2, beta, alpha)
Results addr(Pieces& p) {
  if (!is_real(p.result().dtype) || !is_constant(p.arg(3)) || !is_constant(p.arg(4))) return kNot;
  const ValueId a = p.operand(1), b = p.operand(2);
  const auto scaled = [&](ValueId v, const Arg& by) { return number(by) == 1 ? v : p.scalar("mul", v, by); };
  ValueId v = p.mul(scaled(p.reshape(a, {p.size(a, 0), 1}), p.arg(4)), p.reshape(b, {1, p.size(b, 0)}));
  if (number(p.arg(3)) != 0) v = p.add(scaled(p.operand(0), p.arg(3)), v);  // of 0, self is not read
  return rounded(p, v);
}

// (self, batch1, batch2, beta, alpha): the products of a batch added up are one product, of rows as long as all
Results addbmm(Pieces& p) {
  if (!is_float(p.result().dtype) || !is_constant(p.arg(3)) || !is_constant(p.arg(4))) return kNot;
  const ValueId a = p.value(1), b = p.value(2);
  const int64_t length = p.elements({p.size(a, 0), p.size(a, 2)});
  if (length == 0 || p.result().numel() == 0) return kNot;
  const ValueId left = p.reshape(p.swap(a, 0, 1), {p.size(a, 1), length}), right = p.reshape(b, {length, p.size(b, 2)});
  return one(p.op("aten::addmm", "", {p.arg(0), Arg::of_value(left), Arg::of_value(right), p.arg(3), p.arg(4)}, p.result().dtype, p.result().dims));
}

// The product of two values of one rank summed over some dims, which stay with size 1. A dim of size 1 is none.
ValueId contracted(Pieces& p, ValueId a, ValueId b, const Dims& over) {
  Dims batch, left, right, summed, none;
  for (int64_t d : p.all_dims(a)) {
    const bool in_a = p.size(a, static_cast<size_t>(d)) != 1, in_b = p.size(b, static_cast<size_t>(d)) != 1;
    const bool sums = std::ranges::find(over, d) != over.end();
    if (sums && in_a != in_b) (in_a ? a : b) = p.reduce("sum", in_a ? a : b, {d});
    (!in_a && !in_b) || (sums && in_a != in_b) ? none.push_back(d) : sums ? summed.push_back(d) : (in_a && in_b ? batch : in_a ? left : right).push_back(d);
  }
  if (summed.empty()) return p.mul(a, b);
  const auto count = [&](ValueId v, const Dims& dims) {
    int64_t n = 1;
    for (int64_t d : dims) n *= p.size(v, static_cast<size_t>(d));
    return n;
  };
  const auto matrices = [&](ValueId v, const Dims& rows, const Dims& columns) {
    const Dims& others = &rows == &left ? right : left;  // of size 1 here
    Dims order = batch;
    for (const Dims* more : std::initializer_list<const Dims*>{&rows, &columns, &none, &others}) order.insert(order.end(), more->begin(), more->end());
    return p.reshape(p.permute(v, order), {count(v, batch), count(v, rows), count(v, columns)});
  };
  const ValueId x = matrices(a, left, summed), y = matrices(b, summed, right);
  const ValueId product = p.op("aten::bmm", "", {Arg::of_value(x), Arg::of_value(y)}, p.dtype(a), {p.size(x, 0), p.size(x, 1), p.size(y, 2)});
  Dims order = batch, sizes;
  for (const Dims* more : {&left, &right, &summed, &none}) order.insert(order.end(), more->begin(), more->end());
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); i++) {
    const auto d = static_cast<size_t>(order[i]);
    back.at(d) = static_cast<int64_t>(i);
    const bool is_one = i >= batch.size() + left.size() + right.size();
    sizes.push_back(is_one ? 1 : std::max(p.size(a, d), p.size(b, d)));
  }
  return p.permute(p.reshape(product, std::move(sizes)), std::move(back));
}

// The product of three values, given dims of size 1 each, summed over some: (i1, i2, i3, expand1, expand2, expand3, sumdim, ...)
Results trilinear(Pieces& p) {
  if (!is_float(p.result().dtype) || p.result().numel() == 0) return kNot;
  ValueId v[3];
  Dims first, second;  // dims to sum over: those that the third does not have, then the others
  for (size_t i = 0; i < 3; i++) {
    v[i] = p.operand(i);
    if (p.meta(v[i]).numel() == 0) return kNot;
    Dims expanded(p.arg(3 + i).ints.begin(), p.arg(3 + i).ints.end());
    std::ranges::sort(expanded);
    for (int64_t d : expanded) v[i] = p.with_one(v[i], static_cast<size_t>(d));
  }
  for (int64_t d : p.arg(6).ints) (p.size(v[2], static_cast<size_t>(d)) == 1 ? first : second).push_back(d);
  return rounded(p, contracted(p, contracted(p, v[0], v[1], first), v[2], second));
}

Results vdot(Pieces& p) {
  if (!is_real(p.result().dtype)) return kNot;
  return one(p.op("aten::dot", "", p.args, p.result().dtype, {}));
}

// ---- arithmetic of one: bound 4

// (self, dim), (grad, self, dim): the first half times the sigmoid of the second
Results glu(Pieces& p) {
  if (!is_float(p.result().dtype)) return kNot;
  const bool backward = p.node.name == "aten::glu_backward";
  const ValueId x = p.operand(backward ? 1 : 0);
  const size_t dim = dim_of(p, backward ? 2 : 1, x);
  const int64_t half = p.size(x, dim) / 2;
  const ValueId a = p.slice(x, dim, 0, half), s = p.unary("aten::sigmoid", p.slice(x, dim, half, 2 * half));
  if (!backward) return rounded(p, p.mul(a, s));
  const ValueId first = p.mul(p.operand(0), s);
  return rounded(p, p.cat({first, p.mul(p.mul(p.from(1, s), first), a)}, dim));
}

// (self, eps?), (grad, self, eps?)
Results logit(Pieces& p) {
  const bool backward = p.node.name == "aten::logit_backward";
  const Arg& eps = p.arg(backward ? 2 : 1);
  const bool limited = eps.kind == LAZYT_ARG_DOUBLE && eps.d >= 0;
  if (!is_float(p.result().dtype) || eps.kind == LAZYT_ARG_VALUE || (limited && is_half(p.result().dtype)))
    return kNot;
  if (eps.kind == LAZYT_ARG_DOUBLE && !(eps.d <= 0.5)) return kNot;  // the lower limit is above the upper: eager's order counts
  ValueId x = p.operand(backward ? 1 : 0);
  const double low = limited ? eps.d : 0, high = 1 - low;
  if (!backward) {
    if (limited)
      x = p.op("aten::clamp", "", {Arg::of_value(x), Arg::of_double(low), Arg::of_double(high)}, p.dtype(x),
               p.dims(x));
    return rounded(p, p.unary("aten::log", p.div(x, p.from(1, x))));
  }
  const ValueId outside = p.both("logical_or", p.is("lt", x, low), p.is("gt", x, high));
  const double there = limited ? 0 : std::numeric_limits<double>::quiet_NaN();
  return rounded(p, p.number_where(outside, there, p.div(p.operand(0), p.mul(x, p.from(1, x)))));
}

// (grad, self, noise, lower, upper, training, self_is_result)
Results rrelu_backward(Pieces& p) {
  if (!is_float(p.result().dtype) || is_half(p.result().dtype) || !is_constant(p.arg(3)) || !is_constant(p.arg(4))) return kNot;
  const double lower = number(p.arg(3)), upper = number(p.arg(4));
  if (p.arg(5).i && upper - lower > 1e-6) return one(p.mul(p.value(0), p.value(2)));
  return one(p.op("aten::leaky_relu_backward", "", {p.arg(0), p.arg(1), Arg::of_double((lower + upper) / 2), p.arg(6)}, p.result().dtype, p.result().dims));
}

Results sinc(Pieces& p) {
  if (!is_float(p.result().dtype)) return kNot;
  const ValueId x = p.operand(0), product = p.times(x, std::numbers::pi);
  return rounded(p, p.number_where(p.is("eq", x, 0), 1, p.div(p.unary("aten::sin", product), product)));
}

Results mish_backward(Pieces& p) {
  if (!is_float(p.result().dtype)) return kNot;
  const ValueId x = p.operand(1), t = p.unary("aten::tanh", p.unary("aten::log1p", p.unary("aten::exp", x)));
  const ValueId slope = p.add(t, p.mul(p.mul(x, p.unary("aten::sigmoid", x)), p.from(1, p.mul(t, t))));
  return rounded(p, p.mul(p.operand(0), slope));
}

Results angle_units(Pieces& p) {
  if (!is_float(p.result().dtype)) return kNot;
  return rounded(p, p.times(p.operand(0), p.node.name == "aten::deg2rad" ? std::numbers::pi / 180
                                                                          : 180 / std::numbers::pi));
}

// -x log x
Results entr(Pieces& p) {
  if (!is_float(p.result().dtype)) return kNot;
  const ValueId x = p.operand(0);
  const ValueId inside = p.mul(p.unary("aten::neg", x), p.unary("aten::log", x));
  return rounded(
      p, p.number_where(p.is("eq", x, 0), 0,
                        p.number_where(p.is("lt", x, 0), -std::numeric_limits<double>::infinity(), inside)));
}

// (start, end, steps, ...): from both ends towards the middle. Eager's numbers of f32 are rounded once, behind the sum: in f64 the product
// is exact.
Results linspace(Pieces& p) {
  const DType dtype = p.result().dtype;
  const auto is_real = [&](size_t a) {
    if (!p.is_value(a) || !p.is_host_scalar(p.value(a))) return is_constant(p.arg(a));
    const DType given = p.dtype(p.value(a));
    return is_float(given) || given == LAZYT_DTYPE_INT64;
  };
  if ((dtype != kF32 && dtype != kF64) || !is_real(0) || !is_real(1) || p.arg(2).kind != LAZYT_ARG_INT) return kNot;
  const int64_t steps = p.arg(2).i;
  if (steps < 2 || steps > 1 << 24) return kNot;  // beyond, places are not exact in f32
  const ValueId start = p.full(p.arg(0), dtype, {}), end = p.full(p.arg(1), dtype, {});
  const ValueId step = p.cast(p.div(p.sub(end, start), p.full(Arg::of_int(steps - 1), dtype, {})), kF64);
  const int64_t half = steps / 2, rest = steps - half;
  const ValueId up = p.add(p.mul(p.arange(half, kF64), step), p.cast(start, kF64)),
                steps_left = p.from(static_cast<double>(rest - 1), p.arange(rest, kF64)),
                down = p.sub(p.cast(end, kF64), p.mul(steps_left, step));
  return one(p.cat({p.cast(up, dtype), p.cast(down, dtype)}, 0));
}

// ---- losses and distances: bound 8

// log(1 + exp(-target self)). (self, target, reduction), (grad, self, target, reduction)
Results soft_margin_loss(Pieces& p) {
  if (!is_float(p.result().dtype)) return kNot;
  const bool backward = p.node.name.ends_with("_backward");
  const ValueId x = p.operand(backward ? 1 : 0), target = p.operand(backward ? 2 : 1);
  const int64_t reduction = p.arg(p.args.size() - 1).i;
  const ValueId negative = p.unary("aten::neg", target), z = p.unary("aten::exp", p.mul(negative, x));
  const double mean = 1.0 / static_cast<double>(p.meta(x).numel());
  if (!backward) {
    const ValueId loss = p.unary("aten::log1p", z);
    if (reduction == 0) return rounded(p, loss);
    const ValueId total = sum(p, loss, p.all_dims(loss), false, p.dtype(loss), {});
    return rounded(p, reduction == 1 ? p.times(total, mean) : total);
  }
  ValueId v = p.div(p.mul(negative, z), p.plus(z, 1));
  if (reduction == 1) v = p.times(v, mean);
  return rounded(p, p.mul(v, p.operand(0)));
}

// Distances of each row of one from each of the other: (x1, x2, p, mode), (grad, x1, x2, p, cdist)
Results cdist(Pieces& p) {
  const bool backward = p.node.name == "aten::_cdist_backward";
  const size_t first = backward ? 1 : 0;
  const ValueId x1 = p.value(first), x2 = p.value(first + 1);
  const Arg& norm = p.arg(first + 2);
  const size_t rank = p.rank(x1);
  if (!is_constant(norm) || (p.result().dtype != kF32 && p.result().dtype != kF64) || p.result().numel() == 0)
    return kNot;
  const double order = number(norm);
  if (rank != p.rank(x2) || (order != 1 && order != 2) || p.size(x1, rank - 1) == 0) return kNot;
  for (size_t i = 0; i + 2 < rank; i++)
    if (p.size(x1, i) != p.size(x2, i) || (backward && p.size(x1, i) != p.size(p.value(0), i))) return kNot;
  const ValueId difference = p.sub(p.with_one(x1, rank - 1), p.with_one(x2, rank - 2));
  constexpr int64_t kMostElements = 1 << 24;  // that differences may take in memory
  if (p.meta(difference).numel() > kMostElements) return kNot;
  const auto last = static_cast<int64_t>(rank);
  if (!backward) {
    const ValueId terms = order == 1 ? p.unary("aten::abs", difference) : p.mul(difference, difference);
    const ValueId total = sum(p, terms, {last}, false, p.dtype(terms), p.result().dims);
    return one(order == 1 ? total : p.unary("aten::sqrt", total));
  }
  const ValueId grad = p.with_one(p.value(0), rank), distance = p.with_one(p.value(4), rank);
  // Where two rows are one, no direction is steeper than another.
  const ValueId slope = order == 1 ? p.unary("aten::sign", difference)
                                   : p.number_where(p.is("eq", distance, 0), 0, p.div(difference, distance));
  return one(sum(p, p.mul(grad, slope), {last - 1}, false, p.dtype(slope), p.result().dims));
}

// (x1, x2): distances by a product, |a|^2 - 2 a b + |b|^2, which rounds near 0 as eager's does
Results euclidean_dist(Pieces& p) {
  const ValueId x1 = p.value(0), x2 = p.value(1);
  const size_t rank = p.rank(x1);
  if ((p.result().dtype != kF32 && p.result().dtype != kF64) || p.result().numel() == 0 ||
      rank != p.rank(x2) || rank > 3)
    return kNot;
  if (rank == 3 && p.size(x1, 0) != p.size(x2, 0)) return kNot;
  const auto last = static_cast<int64_t>(rank) - 1;
  const auto square = [&](ValueId v) { return p.reduce("sum", p.mul(v, v), {last}); };
  const auto ones = [&](ValueId v) {
    Dims d = p.dims(v);
    d.at(rank - 1) = 1;
    return p.full(Arg::of_int(1), p.dtype(v), std::move(d));
  };
  const ValueId left = p.cat({p.times(x1, -2), square(x1), ones(x1)}, rank - 1),
                right = p.cat({x2, ones(x2), square(x2)}, rank - 1);
  const ValueId product = p.op(rank == 3 ? "aten::bmm" : "aten::mm", "",
                               {Arg::of_value(left), Arg::of_value(p.swap(right, rank - 1, rank - 2))},
                               p.result().dtype, p.result().dims);
  return one(p.unary("aten::sqrt", p.op("aten::clamp_min", "", {Arg::of_value(product), Arg::of_int(0)},
                                        p.result().dtype, p.result().dims)));
}

// ---- norms: bound 8 + log2 of the row

ValueId vector_norm(Pieces& p, ValueId x, const Arg& order, Dims over, bool keep, Dims out) {
  return p.op("aten::linalg_vector_norm", "", {Arg::of_value(x), order, Arg::of_ints(std::move(over)), Arg::of_bool(keep), Arg::none()}, p.dtype(x),
              std::move(out));
}

// The opset's, of an order that is not claimed: (self, ord, dim?, keepdim, dtype?). As PyTorch's kernel: (sum of |x|^p)^(1/p)
Results vector_norm_of_any_order(Pieces& p) {
  const DType dtype = wide(p.result().dtype);
  if (!is_constant(p.arg(1)) || !is_float(p.dtype(p.value(0))) || !is_float(dtype) || p.meta(p.value(0)).numel() == 0) return kNot;
  const double order = number(p.arg(1));
  if (order == 0 || order == 1 || order == 2 || !std::isfinite(order)) return kNot;  // others are claimed, or are no sums
  const auto power = [&](ValueId v, double by) { return p.op("aten::pow", "Tensor_Scalar", {Arg::of_value(v), Arg::of_double(by)}, dtype, p.dims(v)); };
  const ValueId x = p.unary("aten::abs", p.operand(0));
  return rounded(p, power(sum(p, power(x, order), dims_or_all(p, 2, x), p.arg(3).i != 0, dtype, p.result().dims), 1 / order));
}

// (self, other, p)
Results dist(Pieces& p) {
  if (!is_float(p.result().dtype) || !is_constant(p.arg(2))) return kNot;
  const ValueId difference = p.sub(p.operand(0), p.operand(1));
  return rounded(p, vector_norm(p, difference, p.arg(2), p.all_dims(difference), false, {}));
}

Dims dims_but(const Pieces& p, ValueId v, int64_t dim) {
  Dims over = p.all_dims(v);
  std::erase(over, dim);
  return over;
}

// Slices along a dim made shorter where they are too long: (self, p, dim, maxnorm)
Results renorm(Pieces& p) {
  if (!is_float(p.result().dtype) || !is_constant(p.arg(1)) || !is_constant(p.arg(3)) || p.result().numel() == 0) return kNot;
  const ValueId x = p.operand(0);
  const auto dim = static_cast<int64_t>(dim_of(p, 2, x));
  Dims out(p.rank(x), 1);
  out.at(static_cast<size_t>(dim)) = p.size(x, static_cast<size_t>(dim));
  const ValueId norms = vector_norm(p, x, p.arg(1), dims_but(p, x, dim), true, std::move(out));
  const double most = number(p.arg(3));
  const ValueId shorter = p.times(p.unary("aten::reciprocal", p.plus(norms, 1e-7)), most);
  return rounded(p, p.mul(x, p.where(p.is("gt", norms, most), shorter, p.full(Arg::of_int(1), p.dtype(norms), p.dims(norms)))));
}

// ---- weight norm: v g / |v|, the norm over all dims but the first or the last one; the same bound

bool is_outer(const Pieces& p, ValueId v, int64_t dim) {
  return dim == 0 || dim == static_cast<int64_t>(p.rank(v)) - 1;
}

// (v, g, dim) -> w, norms; of halves, norms are f32
Results weight_norm(Pieces& p) {
  const DType dtype = wide(p.result().dtype);
  const ValueId v = p.operand(0), g = p.operand(1);
  if (!is_float(dtype) || !is_outer(p, v, p.arg(2).i) || p.meta(v).numel() == 0) return kNot;
  const ValueId norms = p.unary("aten::sqrt", p.reduce("sum", p.mul(v, v), dims_but(p, v, p.arg(2).i)));
  return std::vector<ValueId>{p.cast(p.mul(v, p.div(g, norms)), p.result(0).dtype),
                              p.reshape(p.cast(norms, p.result(1).dtype), p.result(1).dims)};
}

// (grad, v, g, norms, dim) -> gradients of v and g
Results weight_norm_backward(Pieces& p) {
  const DType dtype = wide(p.result().dtype);
  const ValueId grad = p.operand(0), v = p.operand(1), g = p.operand(2), norms = p.cast(p.value(3), dtype);
  if (!is_float(dtype) || !is_outer(p, v, p.arg(4).i) || p.meta(v).numel() == 0) return kNot;
  const ValueId along = p.reduce("sum", p.mul(grad, v), dims_but(p, v, p.arg(4).i));
  const ValueId across = p.sub(grad, p.mul(v, p.div(along, p.mul(norms, norms))));
  return std::vector<ValueId>{p.cast(p.mul(p.div(g, norms), across), p.result(0).dtype),
                              p.reshape(p.cast(p.div(along, norms), p.result(1).dtype), p.result(1).dims)};
}

}  // namespace

const Rules& outside_rules() {
  static const auto& rules = *new Rules{
      {"aten::_cdist_backward", cdist},
      {"aten::_cdist_forward", cdist},
      {"aten::_euclidean_dist", euclidean_dist},
      {"aten::_is_all_true", is_all_true},
      {"aten::_is_any_true", is_all_true},
      {"aten::_prelu_kernel", prelu},
      {"aten::_prelu_kernel_backward", prelu},
      {"aten::_trilinear", trilinear},
      {"aten::_weight_norm_interface", weight_norm},
      {"aten::_weight_norm_interface_backward", weight_norm_backward},
      {"aten::addbmm", addbmm},
      {"aten::addr", addr},
      {"aten::channel_shuffle", channel_shuffle},
      {"aten::clamp_max", clamp_by},
      {"aten::clamp_min", clamp_by},
      {"aten::count_nonzero", count_nonzero},
      {"aten::deg2rad", angle_units},
      {"aten::diag_embed", from_diagonal},
      {"aten::diagonal_backward", from_diagonal},
      {"aten::diagonal_copy", diagonal_copy},
      {"aten::dist", dist},
      {"aten::eye", eye},
      {"aten::floor_divide", floor_divide},
      {"aten::glu", glu},
      {"aten::glu_backward", glu},
      {"aten::hardshrink", shrink},
      {"aten::hardshrink_backward", shrink},
      {"aten::heaviside", heaviside},
      {"aten::ldexp", ldexp},
      {"aten::linalg_cross", cross},
      {"aten::linalg_vector_norm", vector_norm_of_any_order},
      {"aten::logaddexp", logaddexp},
      {"aten::logaddexp2", logaddexp},
      {"aten::logit", logit},
      {"aten::logit_backward", logit},
      {"aten::mish_backward", mish_backward},
      {"aten::nansum", nansum},
      {"aten::pixel_unshuffle", pixel_unshuffle},
      {"aten::rad2deg", angle_units},
      {"aten::reflection_pad1d_backward", pad_by_itself},
      {"aten::reflection_pad2d_backward", pad_by_itself},
      {"aten::reflection_pad3d", pad_by_itself},
      {"aten::reflection_pad3d_backward", pad_by_itself},
      {"aten::replication_pad1d", pad_by_itself},
      {"aten::replication_pad1d_backward", pad_by_itself},
      {"aten::replication_pad2d_backward", pad_by_itself},
      {"aten::replication_pad3d", pad_by_itself},
      {"aten::replication_pad3d_backward", pad_by_itself},
      {"aten::renorm", renorm},
      {"aten::rot90", rot90},
      {"aten::rrelu_with_noise_backward", rrelu_backward},
      {"aten::rsub", rsub},
      {"aten::sinc", sinc},
      {"aten::soft_margin_loss", soft_margin_loss},
      {"aten::soft_margin_loss_backward", soft_margin_loss},
      {"aten::softshrink", shrink},
      {"aten::softshrink_backward", shrink},
      {"aten::special_entr", entr},
      {"aten::special_xlog1py", xlog1py},
      {"aten::std_mean", std_mean},
      {"aten::trace", trace},
      {"aten::vdot", vdot},
      {"linspace", linspace},
      {"pad_by_itself", pad_by_itself},
  };
  return rules;
}

}  // namespace lazyt::passes
