// Joining, splitting and indexing.
#include <optional>

#include "ir/shape_rules/rules.h"

namespace lazyt::ir {
namespace {

// ---- joining and splitting

void cat(const NodeView& v) {
  Dims out;
  size_t axis = 0;
  bool any = false;
  for (size_t i = 0; i < v.list(0).size(); i++) {
    const Dims& x = v.element(0, i);
    if (x == Dims{0}) continue;  // joins anything
    if (!any) {
      any = true;
      axis = v.axis(1, x.size());
      require(!x.empty(), "numbers are not joined");
      out = x;
      continue;
    }
    require(x.size() == out.size(), "{} beside {}", x, out);
    for (size_t d = 0; d < x.size(); d++) require(d == axis || x[d] == out[d], "{} beside {}", x, out);
    require(!__builtin_add_overflow(out[axis], x[axis], &out[axis]), "too many elements");
  }
  v.gives(any ? out : Dims{0});
}
void stack(const NodeView& v) {
  require(!v.list(0).empty(), "nothing to stack");
  Dims out = v.element(0, 0);
  for (size_t i = 1; i < v.list(0).size(); i++) require(v.element(0, i) == out, "{} on {}", v.element(0, i), out);
  out.insert(out.begin() + static_cast<int64_t>(v.axis(1, out.size() + 1)), static_cast<int64_t>(v.list(0).size()));
  v.gives(out);
}
// Parts along a dim, one beside the other.
template <size_t kAxis>
void split(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(kAxis, out.size());
  require(!out.empty(), "a number has no parts");
  int64_t left = out[axis];
  for (uint32_t r = 0; r < v.results(); r++) {
    require(v.result(r).size() == out.size() && v.result(r)[axis] <= left, "the parts are more than the whole");
    left -= out[axis] = v.result(r)[axis];
    v.gives(out, r);
  }
  require(left == 0, "the parts are less than the whole");
}
void unbind(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(1, out.size());
  require(!out.empty() && out[axis] == v.results(), "not a result for each place");
  out.erase(out.begin() + static_cast<int64_t>(axis));
  for (uint32_t r = 0; r < v.results(); r++) v.gives(out, r);
}

// ---- indexing

// An index within x but along one axis.
void index_fits(const Dims& x, const Dims& index, size_t axis) {
  require(x.size() == index.size() || (x.size() <= 1 && index.size() <= 1), "{} into {}", index, x);
  for (size_t d = 0; d < std::min(x.size(), index.size()); d++) require(d == axis || index[d] <= x[d], "{} into {}", index, x);
}
void gather(const NodeView& v) {
  const size_t axis = v.axis(1, v.rank(0));
  if (v.numel(2)) index_fits(v.dims(0), v.dims(2), axis);
  v.gives(v.dims(2));
}
void scatter(const NodeView& v) {
  const size_t axis = v.axis(1, v.rank(0));
  if (v.numel(2)) {
    index_fits(v.dims(0), v.dims(2), axis);
    if (v.is_value(3) && v.node.overload != "value") index_fits(v.dims(3), v.dims(2), SIZE_MAX);
  }
  v.gives(v.dims(0));
}
// What tensors in the places of dims choose of x: where they stand side by side, there, else first. Nothing where a mask,
// which stands for as many dims as it has, is among them: how many it chooses depends on data.
std::optional<Dims> indexed(const NodeView& v, const Dims& x, const std::vector<Arg>& indices) {
  Dims common, out;
  size_t read = 0, first = 0, groups = 0;
  bool inside = false, masked = false;
  for (const Arg& a : indices) {
    const bool given = a.kind != LAZYT_ARG_NONE;
    size_t takes = 1;
    if (given) {
      const Meta& m = v.meta(a);
      if (m.dtype == LAZYT_DTYPE_BOOL || m.dtype == LAZYT_DTYPE_UINT8) {
        takes = m.dims.size();
        masked = true;
        require(read + takes <= x.size() && std::equal(m.dims.begin(), m.dims.end(), x.begin() + static_cast<int64_t>(read)), "a mask {} of {}", m.dims, x);
      } else {
        common = broadcast(common, m.dims);
      }
      if (!inside && groups++ == 0) first = out.size();
    }
    inside = given;
    require(read + takes <= x.size(), "{} indices of {}", indices.size(), x);
    if (!given) out.push_back(x[read]);
    read += takes;
  }
  if (masked) return std::nullopt;
  out.insert(out.end(), x.begin() + static_cast<int64_t>(read), x.end());
  out.insert(out.begin() + static_cast<int64_t>(groups > 1 ? 0 : first), common.begin(), common.end());
  return out;
}
void index(const NodeView& v) {
  const auto out = indexed(v, v.dims(0), v.list(1));
  require(out.has_value(), "the length of what a mask chooses depends on data");
  v.gives(*out);
}
void index_put(const NodeView& v) {
  const auto places = indexed(v, v.dims(0), v.list(1));
  if (places) require(broadcast(v.dims(2), *places) == *places, "{} into {}", v.dims(2), *places);
  v.gives(v.dims(0));
}
// self, dim, index of one dim
Dims index_along(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(1, out.size());
  require(v.rank(2) <= 1, "an index has one dim");
  if (!out.empty()) out[axis] = v.numel(2);
  return out;
}
void index_select(const NodeView& v) { v.gives(index_along(v)); }
void index_add(const NodeView& v) {
  const Dims part = index_along(v);
  require(v.dims(3) == part || (part.empty() && v.numel(3) == 1) || (v.rank(3) == 0 && base::numel(part) == 1), "{} into {}", v.dims(3), part);
  v.gives(v.dims(0));
}
void index_fill(const NodeView& v) {
  index_along(v);
  v.gives(v.dims(0));
}
void like_second(const NodeView& v) { v.gives(v.dims(1)); }
void embedding(const NodeView& v) {
  require(v.rank(0) == 2, "the table is no matrix");
  Dims out = v.dims(1);
  out.push_back(v.dims(0)[1]);
  v.gives(out);
}
void embedding_backward(const NodeView& v) {
  Dims rows = v.dims(1);
  require(v.rank(0) == rows.size() + 1 && std::equal(rows.begin(), rows.end(), v.dims(0).begin()), "the gradient is of other rows");
  v.gives({v.number(2), v.dims(0).back()});
}
void searchsorted(const NodeView& v) {
  const Dims &sorted = v.dims(0), &x = v.dims(1);
  require(!sorted.empty(), "no row to search");
  if (sorted.size() > 1)
    require(sorted.size() == x.size() && std::equal(sorted.begin(), sorted.end() - 1, x.begin()), "{} in {}", x, sorted);
  v.is_or_none(5, sorted);
  v.gives(x);
}
void bucketize(const NodeView& v) {
  require(v.rank(1) == 1, "boundaries have one dim");
  v.gives(v.dims(0));
}

}  // namespace

void add_indexing(ShapeRules& all) {
  all.add(cat, {"aten::cat"});
  all.add(stack, {"aten::stack"});
  all.add(split<2>, {"aten::split", "aten::split_with_sizes", "aten::chunk"});
  all.add(unbind, {"aten::unbind"});
  all.add(gather, {"aten::gather"});
  all.add(scatter, {"aten::scatter", "aten::scatter_add", "aten::scatter_reduce"});
  all.add(index, {"aten::index", "aten::_unsafe_index"});
  all.add(index_put, {"aten::index_put", "aten::_unsafe_index_put"});
  all.add(index_select, {"aten::index_select"});
  all.add(index_add, {"aten::index_add", "aten::index_copy"});
  all.add(index_fill, {"aten::index_fill"});
  all.add(like_second, {"aten::take"});
  all.add(embedding, {"aten::embedding"});
  all.add(embedding_backward, {"aten::embedding_dense_backward"});
  all.add(searchsorted, {"aten::searchsorted"});
  all.add(bucketize, {"aten::bucketize"});
}

}  // namespace lazyt::ir
