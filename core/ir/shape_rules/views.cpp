// Views, and what copies as views do.
#include "ir/shape_rules/rules.h"

namespace lazyt::ir {
namespace {

Dims permuted(const NodeView& v, const Dims& x, const Dims& order) {
  std::vector<bool> seen(x.size());
  Dims out;
  require(order.size() == x.size(), "{} is no order of {}", order, x);
  for (int64_t d : order) {
    const size_t at = v.axis_of(d, x.size());
    require(!seen[at], "{} is no order", order);
    seen[at] = true;
    out.push_back(x[at]);
  }
  return out;
}
void permute(const NodeView& v) { v.gives(permuted(v, v.dims(0), v.numbers(1))); }
void transpose(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t a = v.axis(1, out.size()), b = v.axis(2, out.size());
  if (!out.empty()) std::swap(out[a], out[b]);
  v.gives(out);
}
void t(const NodeView& v) {
  Dims out = v.dims(0);
  require(out.size() <= 2, "{} is no matrix", out);
  std::reverse(out.begin(), out.end());
  v.gives(out);
}
// Argument `first` is a dim; start, end and step follow. What moves is known at run only; its length is the result's.
Dims sliced(const NodeView& v, Dims x, size_t first, const Dims& result) {
  const size_t axis = v.axis(first, x.size());
  require(!x.empty() && v.number(first + 3) >= 1, "no part");
  const int64_t size = x[axis], step = v.number(first + 3);
  if (v.is_value(first + 1) || v.is_value(first + 2)) {
    require(result.size() == x.size() && result[axis] <= size / step + (size % step != 0), "a part is longer than the whole");
    x[axis] = result[axis];
    return x;
  }
  const auto clamped = [&](size_t i, int64_t otherwise, int64_t least) {
    int64_t n = v.has(i) ? v.number(i) : otherwise;
    if (n < 0) n = n < -size ? 0 : n + size;
    return std::clamp(n, least, size);
  };
  const int64_t start = clamped(first + 1, 0, 0), end = clamped(first + 2, size, start);
  x[axis] = (end - start) / step + ((end - start) % step != 0);
  return x;
}
void slice(const NodeView& v) { v.gives(sliced(v, v.dims(0), 1, v.result())); }
void slice_scatter(const NodeView& v) {
  v.is(1, sliced(v, v.dims(0), 2, v.dims(1)));
  v.gives(v.dims(0));
}
void slice_backward(const NodeView& v) {
  const Dims whole = v.numbers(1);
  v.is(0, sliced(v, whole, 2, v.dims(0)));
  v.gives(whole);
}
// Argument `first` is a dim, an index follows.
Dims selected(const NodeView& v, Dims x, size_t first) {
  const size_t axis = v.axis(first, x.size());
  require(!x.empty(), "a number has no places");
  if (!v.is_value(first + 1)) {
    const int64_t at = v.number(first + 1);
    require(at >= -x[axis] && at < x[axis], "place {} of {}", at, x[axis]);
  }
  x.erase(x.begin() + static_cast<int64_t>(axis));
  return x;
}
void select(const NodeView& v) { v.gives(selected(v, v.dims(0), 1)); }
void select_scatter(const NodeView& v) {
  v.is(1, selected(v, v.dims(0), 2));
  v.gives(v.dims(0));
}
void select_backward(const NodeView& v) {
  v.is(0, selected(v, v.numbers(1), 2));
  v.gives(v.numbers(1));
}
void expand(const NodeView& v) {
  const Dims& x = v.dims(0);
  Dims out = v.numbers(1);
  require(out.size() >= x.size(), "{} expanded to {}", x, out);
  for (size_t i = 0; i < x.size(); i++) {
    int64_t& d = out[out.size() - x.size() + i];
    if (d == -1) d = x[i];
    require(d == x[i] || x[i] == 1, "{} expanded to {}", x, out);
  }
  v.gives(out);
}
void reshape(const NodeView& v) {
  require(v.result_meta(0).numel() == v.numel(0), "{} as {}", v.dims(0), v.result());
}
void squeeze(const NodeView& v) {
  const Dims& x = v.dims(0);
  std::vector<bool> gone(std::max<size_t>(x.size(), 1));
  for (int64_t a : v.numbers(1)) gone[v.axis_of(a, x.size())] = true;
  Dims out;
  for (size_t i = 0; i < x.size(); i++)
    if (!gone[i] || x[i] != 1) out.push_back(x[i]);
  v.gives(out);
}
void unsqueeze(const NodeView& v) {
  Dims out = v.dims(0);
  out.insert(out.begin() + static_cast<int64_t>(v.axis(1, out.size() + 1)), 1);
  v.gives(out);
}
// Arguments from `first`: offset, dim1, dim2
Dims diagonal_of(const NodeView& v, Dims x, size_t first) {
  const size_t a = v.axis(first + 1, x.size()), b = v.axis(first + 2, x.size());
  require(x.size() >= 2 && a != b, "no diagonal");
  const int64_t offset = v.number(first), rows = x[a], columns = x[b];
  require(offset > -base::kMostElements && offset < base::kMostElements, "no diagonal");
  const int64_t length = std::max<int64_t>(offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns), 0);
  x.erase(x.begin() + static_cast<int64_t>(std::max(a, b)));
  x.erase(x.begin() + static_cast<int64_t>(std::min(a, b)));
  x.push_back(length);
  return x;
}
void diagonal(const NodeView& v) { v.gives(diagonal_of(v, v.dims(0), 1)); }
void diagonal_scatter(const NodeView& v) {
  v.is(1, diagonal_of(v, v.dims(0), 2));
  v.gives(v.dims(0));
}
// Arguments from `first`: size, stride, offset, into the elements of x in row-major order (PRG-3).
Dims strided(const NodeView& v, int64_t elements, size_t first) {
  const Dims size = v.numbers(first), stride = v.numbers(first + 1);
  require(size.size() == stride.size(), "sizes and strides");
  const bool moves = v.is_value(first + 2);  // the runtime looks at what moves
  int64_t last = moves || !v.has(first + 2) ? 0 : v.number(first + 2), reach = 0;
  require(last >= 0, "an offset is negative");
  bool empty = false;
  for (size_t i = 0; i < size.size(); i++) {
    require(size[i] >= 0 && stride[i] >= 0, "a size or a stride is negative");
    empty |= size[i] == 0;
    if (size[i] > 1)
      require(!__builtin_mul_overflow(size[i] - 1, stride[i], &reach) && !__builtin_add_overflow(last, reach, &last), "it reaches too far");
  }
  require(empty || last < elements, "element {} of {}", last, elements);
  return size;
}
void as_strided(const NodeView& v) { v.gives(strided(v, v.numel(0), 1)); }
void as_strided_scatter(const NodeView& v) {
  v.is(1, strided(v, v.numel(0), 2));
  v.gives(v.dims(0));
}
void unfold(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(1, out.size());
  const int64_t size = v.number(2), step = v.number(3), whole = out.empty() ? 1 : out[axis];
  require(size >= 0 && size <= whole && step >= 1, "windows of {} in {}", size, out);
  if (!out.empty()) out[axis] = (whole - size) / step + 1;
  out.push_back(size);
  v.gives(out);
}
void flip(const NodeView& v) {
  for (int64_t a : v.numbers(1)) v.axis_of(a, v.rank(0));
  v.gives(v.dims(0));
}
void roll(const NodeView& v) {
  const Dims shifts = v.numbers(1), axes = v.numbers(2);
  require(axes.empty() ? shifts.size() == 1 : shifts.size() == axes.size(), "a shift for each axis");
  for (int64_t a : axes) v.axis_of(a, v.rank(0));
  v.gives(v.dims(0));
}
void repeat(const NodeView& v) {
  const Dims& x = v.dims(0);
  Dims out = v.numbers(1);
  require(out.size() >= x.size(), "fewer repeats than dims");
  for (int64_t n : out) require(n >= 0, "a repeat is negative");
  for (size_t i = 0; i < x.size(); i++) {
    int64_t& d = out[out.size() - x.size() + i];
    require(!__builtin_mul_overflow(d, x[i], &d), "too many repeats");
  }
  v.gives(out);
}
// Pairs of paddings, of the last axis first; what is negative is cut off. mirrored: what is shown beside an axis lies in it.
Dims padded(const NodeView& v, bool mirrored = false) {
  Dims out = v.dims(0);
  const Dims pads = v.numbers(1);
  require(pads.size() % 2 == 0 && pads.size() / 2 <= out.size(), "{} beside {}", pads, out);
  for (size_t k = 0; k < pads.size() / 2; k++) {
    int64_t& d = out[out.size() - 1 - k];
    const int64_t before = pads[2 * k], behind = pads[2 * k + 1];
    for (int64_t n : {before, behind, d}) require(n >= -base::kMostElements && n <= base::kMostElements, "a padding is no size");
    if (mirrored && (before || behind))
      require(std::max(before, behind) < d, "{} beside {}", pads, v.dims(0));
    d += before + behind;
    require(d >= 0, "more is cut off than there is");
  }
  return out;
}
void constant_pad(const NodeView& v) { v.gives(padded(v)); }
void reflection_pad(const NodeView& v) { v.gives(padded(v, true)); }
void replication_pad(const NodeView& v) {
  v.gives(padded(v));
  const Dims &x = v.dims(0), pads = v.numbers(1);
  for (size_t i = 0; i < pads.size(); i++) require(pads[i] <= 0 || x[x.size() - 1 - i / 2] > 0, "{} beside {}", pads, x);
}
void pad(const NodeView& v) {
  if (v.arg(2).string == "reflect") return reflection_pad(v);
  if (v.arg(2).string == "replicate") return replication_pad(v);
  v.gives(padded(v));
}
void view_as_real(const NodeView& v) {
  Dims out = v.dims(0);
  out.push_back(2);
  v.gives(out);
}
void view_as_complex(const NodeView& v) {
  Dims out = v.dims(0);
  require(!out.empty() && out.back() == 2, "{} has no pairs", out);
  out.pop_back();
  v.gives(out);
}
void triangle(const NodeView& v) {
  require(v.rank(0) >= 2, "{} is no matrix", v.dims(0));
  v.gives(v.dims(0));
}

}  // namespace

void add_views(ShapeRules& all) {
  all.add(t, {"aten::t"});
  all.add(permute, {"aten::permute"});
  all.add(transpose, {"aten::transpose"});
  all.add(slice, {"aten::slice"});
  all.add(slice_scatter, {"aten::slice_scatter"});
  all.add(slice_backward, {"aten::slice_backward"});
  all.add(select, {"aten::select"});
  all.add(select_scatter, {"aten::select_scatter"});
  all.add(select_backward, {"aten::select_backward"});
  all.add(expand, {"aten::expand"});
  all.add(reshape, {"aten::view", "aten::reshape"});
  all.add(squeeze, {"aten::squeeze"});
  all.add(unsqueeze, {"aten::unsqueeze"});
  all.add(diagonal, {"aten::diagonal"});
  all.add(diagonal_scatter, {"aten::diagonal_scatter"});
  all.add(as_strided, {"aten::as_strided"});
  all.add(as_strided_scatter, {"aten::as_strided_scatter"});
  all.add(unfold, {"aten::unfold"});
  all.add(flip, {"aten::flip"});
  all.add(roll, {"aten::roll"});
  all.add(repeat, {"aten::repeat"});
  all.add(constant_pad, {"aten::constant_pad_nd"});
  all.add(pad, {"aten::pad"});
  all.add(reflection_pad, {"aten::reflection_pad1d", "aten::reflection_pad2d"});
  all.add(replication_pad, {"aten::replication_pad2d"});
  all.add(view_as_real, {"aten::view_as_real"});
  all.add(view_as_complex, {"aten::view_as_complex"});
  all.add(triangle, {"aten::tril", "aten::triu"});
}

}  // namespace lazyt::ir
