#include "passes/pieces.h"

#include <algorithm>

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
    if (d == 1) d = less[i];
  }
  return out;
}

namespace {
bool has_alpha(const std::string& name) { return name == "add" || name == "sub"; }
}  // namespace

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

ValueId Pieces::cast(ValueId x, DType to) {
  if (dtype(x) == to) return x;
  return op("aten::_to_copy", "",
            {Arg::of_value(x), Arg::of_int(to, LAZYT_ARG_DTYPE), Arg::none(), Arg::none(), Arg::none(),
             Arg::of_bool(false), Arg::none()},
            to, dims(x));
}

ValueId Pieces::reshape(ValueId x, Dims to) {
  if (dims(x) == to) return x;
  return op("aten::reshape", "", {Arg::of_value(x), Arg::of_ints(to)}, dtype(x), to);
}

ValueId Pieces::permute(ValueId x, Dims order) {
  if (std::is_sorted(order.begin(), order.end())) return x;
  Dims out;
  for (int64_t d : order) out.push_back(dims(x)[static_cast<size_t>(d)]);
  return op("aten::permute", "", {Arg::of_value(x), Arg::of_ints(std::move(order))}, dtype(x), std::move(out));
}

ValueId Pieces::slice(ValueId x, int64_t dim, int64_t start, int64_t end) {
  Dims out = dims(x);
  out[static_cast<size_t>(dim)] = end - start;
  return op("aten::slice", "Tensor",
            {Arg::of_value(x), Arg::of_int(dim), Arg::of_int(start), Arg::of_int(end), Arg::of_int(1)}, dtype(x),
            std::move(out));
}

ValueId Pieces::full(Arg number, DType dtype, Dims dims) {
  return op("aten::full", "",
            {Arg::of_ints(dims), std::move(number), Arg::of_int(dtype, LAZYT_ARG_DTYPE),
             Arg::of_int(0, LAZYT_ARG_LAYOUT), Arg::of_int(0, LAZYT_ARG_DEVICE), Arg::none()},
            dtype, dims);
}

ValueId Pieces::reduce(const std::string& name, ValueId x, std::vector<int64_t> over) {
  Dims out = dims(x);
  for (int64_t d : over) out[static_cast<size_t>(d)] = 1;
  std::vector<Arg> list = {Arg::of_value(x), Arg::of_ints(std::move(over)), Arg::of_bool(true)};
  if (name == "amax") return op("aten::amax", "", std::move(list), dtype(x), std::move(out));
  list.push_back(Arg::none());
  return op("aten::" + name, name == "sum" ? "dim_IntList" : "dim", std::move(list), dtype(x), std::move(out));
}

}  // namespace lazyt::passes
