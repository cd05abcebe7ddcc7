#include "trace/views.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace lazyt::trace {
namespace {

using base::Dims;
using base::Meta;
using ir::Arg;

struct Step {
  enum Kind { kReshape, kPermute, kSlice, kBitcast, kExpand, kAsStrided } kind;
  Dims dims;  // reshape, expand, as_strided: sizes; permute: order
  Dims strides;
  int64_t dim = 0, start = 0, end = 0;  // slice; as_strided: start is the offset
  base::DType dtype = 0;
};

Dims inverse(const Dims& order) {
  Dims out(order.size());
  for (size_t i = 0; i < order.size(); i++) out[order[i]] = static_cast<int64_t>(i);
  return out;
}

bool same_layout(const Meta& a, const Meta& b) {
  if (a.dims != b.dims) return false;
  for (size_t i = 0; i < a.dims.size(); i++)
    if (a.dims[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

// Dims of size > 1, largest stride first.
Dims memory_order(const Meta& m) {
  Dims order;
  for (size_t i = 0; i < m.dims.size(); i++)
    if (m.dims[i] != 1) order.push_back(static_cast<int64_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return m.strides[a] > m.strides[b]; });
  return order;
}

Dims pick(const Dims& from, const Dims& order) {
  Dims out;
  for (int64_t i : order) out.push_back(from[i]);
  return out;
}

bool is_identity(const Dims& order) {
  for (size_t i = 0; i < order.size(); i++)
    if (order[i] != static_cast<int64_t>(i)) return false;
  return true;
}

class Chain {
 public:
  std::vector<Step> steps;
  Dims dims;  // after the last step

  void reshape(Dims to) {
    if (!steps.empty() && steps.back().kind == Step::kReshape) {  // one reshape for two
      steps.pop_back();
      dims = before_reshape_;
    }
    if (to == dims) return;
    before_reshape_ = std::exchange(dims, to);
    steps.push_back({Step::kReshape, std::move(to), {}});
  }
  void permute(Dims order) {
    if (is_identity(order)) return;
    dims = pick(dims, order);
    steps.push_back({Step::kPermute, std::move(order), {}});
  }
  void slice(int64_t dim, int64_t start, int64_t length) {
    if (start == 0 && length == dims[dim]) return;
    dims[dim] = length;
    steps.push_back({Step::kSlice, {}, {}, dim, start, start + length});
  }
  // To one dim, in the order of memory.
  void flatten(const Meta& natural) {
    Dims order = memory_order(natural);
    Dims full;  // size-1 dims first: they may stand anywhere
    for (size_t i = 0; i < natural.dims.size(); i++)
      if (natural.dims[i] == 1) full.push_back(static_cast<int64_t>(i));
    full.insert(full.end(), order.begin(), order.end());
    if (natural.strides != base::contiguous_strides(natural.dims) && !natural.is_contiguous()) permute(full);
    reshape({base::numel(dims)});
  }

 private:
  Dims before_reshape_;
};

// Where in each dim of `natural` the view begins, if it is a box of it: the same dims, of which it has a part.
std::optional<Dims> corner(const Meta& natural, const Geometry& view) {
  const Meta& v = view.meta;
  if (v.dims.size() != natural.dims.size()) return std::nullopt;
  for (size_t i = 0; i < v.dims.size(); i++)
    if (v.dims[i] > natural.dims[i] || (v.dims[i] > 1 && v.strides[i] != natural.strides[i])) return std::nullopt;
  Dims starts(v.dims.size(), 0);
  int64_t offset = view.offset;
  for (int64_t i : memory_order(natural)) {
    starts[i] = offset / natural.strides[i];
    offset %= natural.strides[i];
    if (starts[i] + v.dims[i] > natural.dims[i]) return std::nullopt;
  }
  return offset == 0 ? std::optional(std::move(starts)) : std::nullopt;
}

// How to get from a dense tensor of `natural` geometry to `view`. Expanded dims come last, so that a
// write, which has none, can undo the rest.
Chain plan(Meta natural, const Geometry& view) {
  Chain c;
  c.dims = natural.dims;
  const Meta& v = view.meta;
  if (natural.dtype == v.dtype && view.offset == 0 && same_layout(natural, v)) return c;
  if (v.numel() == 0) {
    c.flatten(natural);
    c.slice(0, 0, 0);
    if (natural.dtype != v.dtype) c.steps.push_back({Step::kBitcast, {}, {}, 0, 0, 0, v.dtype});
    c.reshape(v.dims);
    return c;
  }
  if (natural.dtype != v.dtype) {
    c.flatten(natural);
    const auto from = static_cast<int64_t>(lazyt_dtype_size(natural.dtype)), to = static_cast<int64_t>(lazyt_dtype_size(v.dtype));
    const int64_t whole = c.dims[0] * from / to;  // bytes at the end that are no element stay out
    c.slice(0, 0, whole * to / from);
    c.dims = {whole};
    c.steps.push_back({Step::kBitcast, {}, {}, 0, 0, 0, v.dtype});
    natural = Meta::contiguous(v.dtype, c.dims);
    if (view.offset == 0 && same_layout(natural, v)) return c;
  }

  if (const auto starts = corner(natural, view)) {
    for (size_t i = 0; i < v.dims.size(); i++) c.slice(static_cast<int64_t>(i), (*starts)[i], v.dims[i]);
    return c;
  }

  Meta core = v;  // without expanded dims
  for (size_t i = 0; i < core.dims.size(); i++)
    if (core.strides[i] == 0) core.dims[i] = 1;
  Dims order = memory_order(core);       // view dims, outermost in memory first
  Dims sizes = pick(core.dims, order), strides = pick(core.strides, order);
  const int64_t total = natural.numel();

  // Extents that make each stride a whole dim of a reshaped base; the rest of the last one is indexed away.
  Dims extents, starts;
  int64_t outer = total, offset = view.offset;
  bool simple = true;
  for (size_t i = 0; i < strides.size() && simple; i++) {
    simple = strides[i] > 0 && outer % strides[i] == 0;
    if (!simple) break;
    extents.push_back(outer / strides[i]);
    starts.push_back(offset / strides[i]);
    offset %= strides[i];
    outer = strides[i];
    simple = starts.back() + sizes[i] <= extents.back();
  }
  if (simple && strides.empty()) {
    extents.push_back(total), starts.push_back(offset);
    sizes.push_back(1);
    simple = offset < total;
  } else if (simple && outer > 1) {
    extents.push_back(outer), starts.push_back(offset);
    sizes.push_back(1);
  }
  if (simple) {
    Dims natural_order = memory_order(natural);
    if (pick(natural.dims, natural_order) == extents && natural_order.size() == natural.dims.size()) {
      c.permute(natural_order);
    } else {
      c.flatten(natural);
      c.reshape(extents);
    }
    for (size_t i = 0; i < extents.size(); i++) c.slice(static_cast<int64_t>(i), starts[i], sizes[i]);
    if (sizes.size() > order.size()) c.reshape(pick(core.dims, order));
    Dims by_view(order.size());  // position of each view dim of size > 1
    std::iota(by_view.begin(), by_view.end(), 0);
    std::sort(by_view.begin(), by_view.end(), [&](int64_t a, int64_t b) { return order[a] < order[b]; });
    c.permute(by_view);
    c.reshape(core.dims);
  } else {
    c.flatten(natural);
    c.steps.push_back({Step::kAsStrided, core.dims, core.strides, 0, view.offset});
    c.dims = core.dims;
  }
  if (core.dims != v.dims) {
    c.dims = v.dims;
    c.steps.push_back({Step::kExpand, v.dims, {}});
  }
  return c;
}

ir::ValueId forward(ir::Graph& g, ir::ValueId x, const Step& s, const SourceRef& source) {
  const Meta in = g.values[x].meta;
  auto out = [&](Dims dims) { return Meta::contiguous(in.dtype, std::move(dims)); };
  Dims dims = in.dims;
  switch (s.kind) {
    case Step::kReshape:
      return g.add_op("aten::reshape", "", {Arg::of_value(x), Arg::of_ints(s.dims)}, out(s.dims), source);
    case Step::kPermute:
      return g.add_op("aten::permute", "", {Arg::of_value(x), Arg::of_ints(s.dims)}, out(pick(dims, s.dims)), source);
    case Step::kSlice:
      dims[s.dim] = s.end - s.start;
      return g.add_op("aten::slice", "Tensor",
                      {Arg::of_value(x), Arg::of_int(s.dim), Arg::of_int(s.start), Arg::of_int(s.end), Arg::of_int(1)},
                      out(dims), source);
    case Step::kBitcast:
      dims = {dims[0] * static_cast<int64_t>(lazyt_dtype_size(in.dtype)) / static_cast<int64_t>(lazyt_dtype_size(s.dtype))};
      return g.add_op("aten::view", "dtype", {Arg::of_value(x), Arg::of_int(s.dtype, LAZYT_ARG_DTYPE)},
                      Meta::contiguous(s.dtype, dims), source);
    case Step::kExpand:
      return g.add_op("aten::expand", "", {Arg::of_value(x), Arg::of_ints(s.dims), Arg::of_bool(false)}, out(s.dims), source);
    case Step::kAsStrided:
      return g.add_op("aten::as_strided", "",
                      {Arg::of_value(x), Arg::of_ints(s.dims), Arg::of_ints(s.strides), Arg::of_int(s.start)},
                      out(s.dims), source);
  }
  return x;
}

// before with what step s shows of it replaced by value.
ir::ValueId backward(ir::Graph& g, ir::ValueId before, const Step& s, ir::ValueId value, const SourceRef& source) {
  const Meta in = Meta::contiguous(g.values[before].meta.dtype, g.values[before].meta.dims);
  switch (s.kind) {
    case Step::kReshape:
      return g.add_op("aten::reshape", "", {Arg::of_value(value), Arg::of_ints(in.dims)}, in, source);
    case Step::kPermute:
      return g.add_op("aten::permute", "", {Arg::of_value(value), Arg::of_ints(inverse(s.dims))}, in, source);
    case Step::kBitcast:
      return g.add_op("aten::view", "dtype", {Arg::of_value(value), Arg::of_int(in.dtype, LAZYT_ARG_DTYPE)}, in, source);
    case Step::kSlice:
      return g.add_op("aten::slice_scatter", "",
                      {Arg::of_value(before), Arg::of_value(value), Arg::of_int(s.dim), Arg::of_int(s.start),
                       Arg::of_int(s.end), Arg::of_int(1)},
                      in, source);
    case Step::kAsStrided:
      return g.add_op("aten::as_strided_scatter", "",
                      {Arg::of_value(before), Arg::of_value(value), Arg::of_ints(s.dims), Arg::of_ints(s.strides),
                       Arg::of_int(s.start)},
                      in, source);
    case Step::kExpand: break;  // a write has none
  }
  return value;
}

}  // namespace

ir::ValueId read_view(ir::Graph& graph, ir::ValueId base, const Meta& natural, const Geometry& view,
                      const SourceRef& source) {
  for (const Step& s : plan(natural, view).steps) base = forward(graph, base, s, source);
  return base;
}

namespace {

// Truth values over another dtype's bytes are written as bytes: those beside them need not be 0 or 1, which copies of
// truth values keep no more than that. Makes `view` and `value` so.
void write_bytes(ir::Graph& graph, const Meta& natural, Meta& view, ir::ValueId& value, const SourceRef& source) {
  if (view.dtype != LAZYT_DTYPE_BOOL || natural.dtype == LAZYT_DTYPE_BOOL) return;
  view.dtype = LAZYT_DTYPE_UINT8;
  value = graph.add_op("aten::view", "dtype", {Arg::of_value(value), Arg::of_int(LAZYT_DTYPE_UINT8, LAZYT_ARG_DTYPE)},
                       Meta::contiguous(LAZYT_DTYPE_UINT8, graph.values[value].meta.dims), source);
}

}  // namespace

ir::ValueId write_view(ir::Graph& graph, ir::ValueId base, const Meta& natural, const Geometry& through,
                       ir::ValueId value, const SourceRef& source) {
  if (through.meta.numel() == 0) return base;
  Geometry view = through;
  write_bytes(graph, natural, view.meta, value, source);
  Chain chain = plan(natural, view);
  std::vector<ir::ValueId> before = {base};
  for (size_t i = 0; i + 1 < chain.steps.size(); i++)
    before.push_back(forward(graph, before.back(), chain.steps[i], source));
  for (size_t i = chain.steps.size(); i-- > 0;) value = backward(graph, before[i], chain.steps[i], value, source);
  return value;
}

namespace {

// All bytes of the natural geometry in a row, as elements of another dtype.
Geometry flat(const Meta& natural, base::DType dtype) {
  return {Meta::contiguous(dtype, {static_cast<int64_t>(natural.span_bytes() / lazyt_dtype_size(dtype))}), 0};
}

// Of each element of view its index in the row: start + the sum of its indices times strides.
Arg indices(ir::Graph& g, const Meta& view, ir::ValueId start, const SourceRef& source) {
  const Meta out = Meta::contiguous(LAZYT_DTYPE_INT64, view.dims);
  const Arg dtype = Arg::of_int(LAZYT_DTYPE_INT64, LAZYT_ARG_DTYPE), layout = Arg::of_int(0, LAZYT_ARG_LAYOUT),
            device = Arg::of_int(0, LAZYT_ARG_DEVICE);
  ir::ValueId index = g.add_op("aten::full", "", {Arg::of_ints(view.dims), Arg::of_value(start), dtype, layout, device, Arg::none()}, out, source);
  for (size_t k = 0; k < view.dims.size(); k++) {
    const int64_t n = view.dims[k], stride = view.strides[k];
    if (n == 1 || stride == 0) continue;
    ir::ValueId along = g.add_op("aten::arange", "start_step", {Arg::of_int(0), Arg::of_int(n * stride), Arg::of_int(stride), dtype, layout, device, Arg::none()},
                                 Meta::contiguous(LAZYT_DTYPE_INT64, {n}), source);
    Dims shape(view.dims.size(), 1);
    shape[k] = n;
    along = g.add_op("aten::reshape", "", {Arg::of_value(along), Arg::of_ints(shape)}, Meta::contiguous(LAZYT_DTYPE_INT64, shape), source);
    index = g.add_op("aten::add", "Tensor", {Arg::of_value(index), Arg::of_value(along), Arg::of_int(1)}, out, source);
  }
  return Arg::of_list({Arg::of_value(index)});
}

}  // namespace

ir::ValueId read_at(ir::Graph& graph, ir::ValueId base, const Meta& natural, const Meta& view, ir::ValueId start,
                    const SourceRef& source) {
  const ir::ValueId row = read_view(graph, base, natural, flat(natural, view.dtype), source);
  return graph.add_op("aten::index", "Tensor", {Arg::of_value(row), indices(graph, view, start, source)},
                      Meta::contiguous(view.dtype, view.dims), source);
}

ir::ValueId write_at(ir::Graph& graph, ir::ValueId base, const Meta& natural, const Meta& through, ir::ValueId start,
                     ir::ValueId value, const SourceRef& source) {
  if (through.numel() == 0) return base;
  Meta view = through;
  write_bytes(graph, natural, view, value, source);
  const Geometry all = flat(natural, view.dtype);
  const ir::ValueId row = read_view(graph, base, natural, all, source);
  const ir::ValueId written = graph.add_op("aten::index_put", "", {Arg::of_value(row), indices(graph, view, start, source), Arg::of_value(value), Arg::of_bool(false)},
                                           all.meta, source);
  return write_view(graph, base, natural, all, written, source);
}

}  // namespace lazyt::trace
