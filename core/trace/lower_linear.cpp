#include "trace/lower_linear.h"

namespace lazyt::trace {
namespace {

using base::Dims;
using ir::Arg;
using ir::ValueId;

// [..., n] as rows of n.
ValueId rows(const Nodes& n, ValueId v) {
  const base::Meta& meta = n.meta(v);
  return n.fit(v, {meta.numel() / meta.dims.back(), meta.dims.back()});
}

ValueId turned(const Nodes& n, ValueId v) {
  const Dims dims = n.meta(v).dims;
  return n.add("aten::permute", "", {Arg::of_value(v), Arg::of_ints({1, 0})}, n.meta(v).dtype, {dims[1], dims[0]});
}

ValueId product(const Nodes& n, ValueId a, ValueId b) {
  return n.add("aten::mm", "", {Arg::of_value(a), Arg::of_value(b)}, n.meta(a).dtype, {n.meta(a).dims[0], n.meta(b).dims[1]});
}

}  // namespace

std::vector<ValueId> lower_linear(const Nodes& n, const std::vector<Arg>& args, const std::vector<base::Meta>& results) {
  const ValueId x = rows(n, args[0].value), w = turned(n, args[1].value);
  const Dims dims{n.meta(x).dims[0], n.meta(w).dims[1]};
  const bool has_bias = args[2].kind != LAZYT_ARG_NONE;
  const ValueId y = has_bias ? n.add("aten::addmm", "", {args[2], Arg::of_value(x), Arg::of_value(w), Arg::of_int(1), Arg::of_int(1)}, results[0].dtype, dims)
                             : product(n, x, w);
  return {n.fit(y, results[0].dims)};
}

std::vector<ValueId> lower_linear_backward(const Nodes& n, const std::vector<Arg>& args, const std::vector<base::Meta>& results) {
  const ValueId grad = rows(n, args[1].value);
  std::vector<ValueId> out(3, ir::kNone);
  if (args[3].ints[0]) out[0] = n.fit(product(n, grad, args[2].value), results[0].dims);
  if (args[3].ints[1]) out[1] = product(n, turned(n, grad), rows(n, args[0].value));
  if (args[3].ints[2])
    out[2] = n.add("aten::sum", "dim_IntList", {Arg::of_value(grad), Arg::of_ints({0}), Arg::of_bool(false), Arg::none()}, results[2].dtype, results[2].dims);
  return out;
}

}  // namespace lazyt::trace
