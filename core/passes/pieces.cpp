#include "passes/pieces.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lazyt::passes {

using base::Dims;
using base::DType;
using ir::Arg;
using ir::ValueId;

Dims broadcast(const Dims& a, const Dims& b) {
  const Dims& more = a.size() >= b.size() ? a : b;
  const Dims& less = a.size() >= b.size() ? b : a;
  Dims out = more;
  for (size_t i = 0; i < less.size(); i++) {
    int64_t& d = out[more.size() - less.size() + i];
    if (d != less[i] && d != 1 && less[i] != 1) throw std::out_of_range("no common shape");
    if (d == 1) d = less[i];
  }
  return out;
}

Dims inserted(Dims dims, size_t at, int64_t n) {
  if (at > dims.size()) throw std::out_of_range("no dim");
  dims.insert(dims.begin() + static_cast<int64_t>(at), n);
  return dims;
}

Dims erased(Dims dims, size_t at) {
  if (at >= dims.size()) throw std::out_of_range("no dim");
  dims.erase(dims.begin() + static_cast<int64_t>(at));
  return dims;
}

namespace {
bool has_alpha(const std::string& name) { return name == "add" || name == "sub"; }
}  // namespace

ir::Meta Pieces::row_major(DType dtype, Dims dims) {
  if (dims.size() > base::kMaxRank || !base::is_countable(dims)) throw std::out_of_range("no shape");
  return ir::Meta::contiguous(dtype, std::move(dims));
}

Dims Pieces::all_dims(ValueId v) const {
  Dims all(rank(v));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

ValueId Pieces::binary(const std::string& name, ValueId a, ValueId b) {
  std::vector<Arg> list = {Arg::of_value(a), Arg::of_value(b)};
  if (has_alpha(name)) list.push_back(Arg::of_int(1));
  return op("aten::" + name, "Tensor", std::move(list), dtype(a), broadcast(dims(a), dims(b)));
}

ValueId Pieces::scalar(const std::string& name, ValueId a, Arg number) {
  std::vector<Arg> list = {Arg::of_value(a), std::move(number)};
  if (has_alpha(name) || name == "rsub") list.push_back(Arg::of_int(1));
  return op("aten::" + name, "Scalar", std::move(list), dtype(a), dims(a));
}

ValueId Pieces::compare(const std::string& name, ValueId a, Arg number) {
  return op("aten::" + name, "Scalar", {Arg::of_value(a), std::move(number)}, LAZYT_DTYPE_BOOL, dims(a));
}

Arg Pieces::number(double n) {
  return std::trunc(n) == n && std::abs(n) < 1 << 30 ? Arg::of_int(static_cast<int64_t>(n)) : Arg::of_double(n);
}

ValueId Pieces::of_two(const std::string& name, ValueId a, ValueId b) {
  return op("aten::" + name, "", {Arg::of_value(a), Arg::of_value(b)}, dtype(a), broadcast(dims(a), dims(b)));
}

ValueId Pieces::both(const std::string& name, ValueId a, ValueId b) {
  return op("aten::" + name, "", {Arg::of_value(a), Arg::of_value(b)}, LAZYT_DTYPE_BOOL, broadcast(dims(a), dims(b)));
}

ValueId Pieces::where(ValueId which, ValueId a, ValueId b) {
  return op("aten::where", "self", {Arg::of_value(which), Arg::of_value(a), Arg::of_value(b)}, dtype(b),
            broadcast(dims(which), broadcast(dims(a), dims(b))));
}

ValueId Pieces::number_where(ValueId which, double n, ValueId b) {
  return op("aten::where", "ScalarSelf", {Arg::of_value(which), number(n), Arg::of_value(b)}, dtype(b), broadcast(dims(which), dims(b)));
}

ValueId Pieces::cast(ValueId x, DType to) {
  if (dtype(x) == to) return x;
  return op("aten::_to_copy", "",
            {Arg::of_value(x), Arg::of_int(to, LAZYT_ARG_DTYPE), Arg::none(), Arg::none(), Arg::none(),
             Arg::of_bool(false), Arg::none()},
            to, dims(x));
}

ValueId Pieces::reshape(ValueId x, Dims to) {
  if (dims(x) == to) return x;
  if (elements(to) != meta(x).numel()) throw std::out_of_range("other elements");
  return op("aten::reshape", "", {Arg::of_value(x), Arg::of_ints(to)}, dtype(x), to);
}

ValueId Pieces::permute(ValueId x, Dims order) {
  if (std::is_sorted(order.begin(), order.end())) return x;
  Dims out;
  for (int64_t d : order) out.push_back(size(x, static_cast<size_t>(d)));
  return op("aten::permute", "", {Arg::of_value(x), Arg::of_ints(std::move(order))}, dtype(x), std::move(out));
}

ValueId Pieces::swap(ValueId x, size_t a, size_t b) {
  Dims order = all_dims(x);
  std::swap(order.at(a), order.at(b));
  return permute(x, std::move(order));
}

ValueId Pieces::move(ValueId x, size_t from, size_t to) {
  return permute(x, inserted(erased(all_dims(x), from), to, static_cast<int64_t>(from)));
}

ValueId Pieces::slice(ValueId x, size_t dim, int64_t start, int64_t end, int64_t step) {
  if (start == 0 && end == size(x, dim) && step == 1) return x;
  // Parts that reach out of x are no parts of it.
  if (start < 0 || end < start || end > size(x, dim) || step < 1) throw std::out_of_range("no part");
  Dims out = dims(x);
  out.at(dim) = (end - start + step - 1) / step;
  return op("aten::slice", "Tensor",
            {Arg::of_value(x), Arg::of_int(static_cast<int64_t>(dim)), Arg::of_int(start), Arg::of_int(end), Arg::of_int(step)}, dtype(x),
            std::move(out));
}

ValueId Pieces::flip(ValueId x, size_t dim) {
  return op("aten::flip", "", {Arg::of_value(x), Arg::of_ints({static_cast<int64_t>(dim)})}, dtype(x), dims(x));
}

ValueId Pieces::cat(const std::vector<ValueId>& parts, size_t dim) {
  if (parts.size() == 1) return parts.front();
  Dims out = dims(parts.at(0));
  out.at(dim) = 0;
  std::vector<Arg> list;
  for (ValueId v : parts) list.push_back(Arg::of_value(v)), out.at(dim) += size(v, dim);
  return op("aten::cat", "", {Arg::of_list(std::move(list)), Arg::of_int(static_cast<int64_t>(dim))}, dtype(parts.front()), std::move(out));
}

ValueId Pieces::expand(ValueId x, Dims to) {
  return op("aten::expand", "", {Arg::of_value(x), Arg::of_ints(to), Arg::of_bool(false)}, dtype(x), to);
}

ValueId Pieces::pad(ValueId x, size_t dim, int64_t before, int64_t behind) {
  if (before == 0 && behind == 0) return x;
  Dims out = dims(x);
  if (before < 0 || behind < 0 || before > base::kMostElements || behind > base::kMostElements) throw std::out_of_range("no padding");
  out.at(dim) += before + behind;
  Dims pads(2 * (rank(x) - dim), 0);  // the last dim first
  pads[pads.size() - 2] = before, pads[pads.size() - 1] = behind;
  return op("aten::constant_pad_nd", "", {Arg::of_value(x), Arg::of_ints(std::move(pads)), Arg::of_int(0)}, dtype(x), std::move(out));
}

ValueId Pieces::with_one(ValueId x, size_t dim) {
  return reshape(x, inserted(dims(x), dim, 1));
}

ValueId Pieces::without(ValueId x, size_t dim) {
  return reshape(x, erased(dims(x), dim));
}

ValueId Pieces::full(Arg number, DType dtype, Dims dims) {
  return op("aten::full", "",
            {Arg::of_ints(dims), std::move(number), Arg::of_int(dtype, LAZYT_ARG_DTYPE),
             Arg::of_int(0, LAZYT_ARG_LAYOUT), Arg::of_int(0, LAZYT_ARG_DEVICE), Arg::none()},
            dtype, dims);
}

ValueId Pieces::arange(int64_t n, DType dtype) {
  return op("aten::arange", "start_step",
            {Arg::of_int(0), Arg::of_int(n), Arg::of_int(1), Arg::of_int(dtype, LAZYT_ARG_DTYPE), Arg::of_int(0, LAZYT_ARG_LAYOUT),
             Arg::of_int(0, LAZYT_ARG_DEVICE), Arg::none()},
            dtype, {n});
}

ValueId Pieces::reduce(const std::string& name, ValueId x, std::vector<int64_t> over) {
  Dims out = dims(x);
  for (int64_t d : over) out.at(static_cast<size_t>(d)) = 1;
  if (out == dims(x)) return x;
  std::vector<Arg> list = {Arg::of_value(x), Arg::of_ints(std::move(over)), Arg::of_bool(true)};
  if (name == "amax") return op("aten::amax", "", std::move(list), dtype(x), std::move(out));
  list.push_back(Arg::none());
  return op("aten::" + name, name == "sum" ? "dim_IntList" : "dim", std::move(list), dtype(x), std::move(out));
}

}  // namespace lazyt::passes
