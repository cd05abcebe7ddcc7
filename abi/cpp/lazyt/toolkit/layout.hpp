// layout.hpp - how a tensor lies in its bytes, and which operators only look at bytes another way.
//
//   Layout      dtype-free geometry: element offset, dims, strides
//   view_of     the layout of a view operator's result over the bytes of its operand
//   collapse    the fewest loops that walk several layouts together
//
// A compiler that keeps views as layouts copies nothing for permute, slice, expand and their kind.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_LAYOUT_HPP_
#define LAZYT_TOOLKIT_LAYOUT_HPP_

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "lazyt/plugin.hpp"
#include "lazyt/toolkit/dims.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

inline int64_t count_of(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

inline Dims row_major(std::span<const int64_t> dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(dims[i], 1);
  }
  return strides;
}

// Offset and strides count elements; strides may be 0 (expanded) or negative (flipped).
struct Layout {
  int64_t offset = 0;
  Dims dims;
  Dims strides;

  static Layout dense(std::span<const int64_t> dims) { return {0, Dims(dims.begin(), dims.end()), row_major(dims)}; }

  size_t rank() const { return dims.size(); }
  int64_t count() const { return count_of(dims); }
  // Row-major without gaps; dims of size 1 have any stride.
  bool is_dense() const {
    int64_t step = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      if (dims[i] == 0) return true;
      if (dims[i] != 1 && strides[i] != step) return false;
      step *= dims[i];
    }
    return true;
  }
  // The same elements in the shape `to`, or nothing if that needs a copy. REQUIRES: equal counts.
  // The rule is PyTorch's: a run of dims that lie together may be cut anew.
  std::optional<Layout> reshaped(std::span<const int64_t> to) const {
    Layout out{offset, Dims(to.begin(), to.end()), Dims(to.size())};
    if (count() == 0) {
      out.strides = row_major(to);
      return out;
    }
    size_t t = to.size();
    int64_t run = 1, stride = 1;
    bool open = false;
    for (size_t i = dims.size(); i-- > 0;) {
      if (!open) stride = dims[i] == 1 ? 1 : strides[i];
      open = true;
      run *= dims[i];
      const bool ends = i == 0 || (dims[i - 1] != 1 && strides[i - 1] != stride * run);
      if (!ends) continue;
      int64_t cut = 1;
      while (t > 0 && (cut < run || to[t - 1] == 1)) {
        out.strides[t - 1] = stride * cut;
        cut *= to[--t];
      }
      if (cut != run) return std::nullopt;
      run = 1;
      open = false;
    }
    while (t > 0 && to[t - 1] == 1) out.strides[--t] = 1;
    if (t != 0) return std::nullopt;
    return out;
  }
};

namespace detail {

inline bool all_constant(const plugin::Records<lazyt_arg_t>& args) {
  for (uint64_t i = 1; i < args.size(); ++i)
    if (args[i].kind == LAZYT_ARG_VALUE) return false;
  return true;
}

inline int64_t int_or(const lazyt_arg_t& arg, int64_t otherwise) {
  return arg.kind == LAZYT_ARG_NONE ? otherwise : static_cast<int64_t>(arg.payload);
}

}  // namespace detail

// Whether the operator's results may be views.
inline bool may_be_view(lazyt_op_t op) {
  switch (op) {
    case LAZYT_OP_T: case LAZYT_OP_PERMUTE: case LAZYT_OP_TRANSPOSE_INT: case LAZYT_OP_SLICE_TENSOR:
    case LAZYT_OP_SELECT_INT: case LAZYT_OP_EXPAND: case LAZYT_OP_VIEW: case LAZYT_OP_RESHAPE:
    case LAZYT_OP_SQUEEZE_DIMS: case LAZYT_OP_UNSQUEEZE: case LAZYT_OP_DIAGONAL: case LAZYT_OP_AS_STRIDED:
    case LAZYT_OP_ALIAS: case LAZYT_OP_UNFOLD: case LAZYT_OP_FLIP: case LAZYT_OP_SPLIT_TENSOR:
    case LAZYT_OP_SPLIT_WITH_SIZES: case LAZYT_OP_UNBIND_INT: case LAZYT_OP_CHUNK: return true;
    default: return false;
  }
}

// The same of a node, whatever its operand lies like; false for arguments that are host scalars. reshape and view are
// such operators, and may still need a copy.
inline bool is_view(const plugin::ProgramView& program, const lazyt_node_t& node) {
  return may_be_view(node.op) && detail::all_constant(program.args(node));
}

// Where result `index` of a view operator lies, given where its operand lies; nothing if that takes a copy
// of the operand to row-major order first (then `from` dense gives an answer).
// REQUIRES: is_view(program, node)
inline std::optional<Layout> view_of(const plugin::ProgramView& program, const lazyt_node_t& node, uint32_t index,
                                     const Layout& from) {
  const auto args = program.args(node);
  const auto result = program.dims(program.values()[node.results + index]);
  auto number = [&](uint64_t i) { return static_cast<int64_t>(args[i].payload); };
  Layout out = from;
  // A window of `size` elements along `dim` that begins at `start`.
  auto window = [&](int64_t dim, int64_t start, int64_t step) {
    const auto d = static_cast<size_t>(dim);
    out.offset += start * from.strides[d];
    out.strides[d] *= step;
    out.dims[d] = result[d];
  };
  switch (node.op) {
    case LAZYT_OP_ALIAS: return out;
    case LAZYT_OP_T:
      if (out.rank() == 2) std::swap(out.dims[0], out.dims[1]), std::swap(out.strides[0], out.strides[1]);
      return out;
    case LAZYT_OP_TRANSPOSE_INT:
      if (out.rank()) {
        const auto a = static_cast<size_t>(number(1)), b = static_cast<size_t>(number(2));
        std::swap(out.dims[a], out.dims[b]);
        std::swap(out.strides[a], out.strides[b]);
      }
      return out;
    case LAZYT_OP_PERMUTE: {
      const auto order = program.ints(args[1]);
      for (size_t i = 0; i < order.size(); ++i) {
        out.dims[i] = from.dims[static_cast<size_t>(order[i])];
        out.strides[i] = from.strides[static_cast<size_t>(order[i])];
      }
      return out;
    }
    case LAZYT_OP_SLICE_TENSOR: {
      const int64_t size = from.dims[static_cast<size_t>(number(1))];
      int64_t start = detail::int_or(args[2], 0);
      if (start < 0) start += size;
      window(number(1), std::clamp<int64_t>(start, 0, size), detail::int_or(args[4], 1));
      return out;
    }
    case LAZYT_OP_SELECT_INT: {
      const auto d = static_cast<size_t>(number(1));
      const int64_t at = number(2) < 0 ? number(2) + from.dims[d] : number(2);
      out.offset += at * from.strides[d];
      out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(d));
      out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(d));
      return out;
    }
    case LAZYT_OP_UNBIND_INT: {
      const auto d = static_cast<size_t>(number(1));
      out.offset += index * from.strides[d];
      out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(d));
      out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(d));
      return out;
    }
    case LAZYT_OP_SPLIT_TENSOR: case LAZYT_OP_SPLIT_WITH_SIZES: case LAZYT_OP_CHUNK: {
      const int64_t dim = number(2);
      int64_t start = 0;
      for (uint32_t r = 0; r < index; ++r)
        start += program.dims(program.values()[node.results + r])[static_cast<size_t>(dim)];
      window(dim, start, 1);
      return out;
    }
    case LAZYT_OP_EXPAND: {
      const size_t added = result.size() - from.rank();
      out.dims.assign(result.begin(), result.end());
      out.strides.assign(result.size(), 0);
      for (size_t i = 0; i < from.rank(); ++i)
        if (from.dims[i] == result[added + i]) out.strides[added + i] = from.strides[i];
      return out;
    }
    case LAZYT_OP_VIEW: case LAZYT_OP_RESHAPE: case LAZYT_OP_SQUEEZE_DIMS: case LAZYT_OP_UNSQUEEZE:
      return from.reshaped(result);
    case LAZYT_OP_DIAGONAL: {
      const int64_t shift = number(1);
      const auto a = static_cast<size_t>(number(2)), b = static_cast<size_t>(number(3));
      out.offset += shift >= 0 ? shift * from.strides[b] : -shift * from.strides[a];
      if (result.back() == 0) out.offset = from.offset;
      for (size_t d : {std::max(a, b), std::min(a, b)}) {
        out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(d));
        out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(d));
      }
      out.dims.push_back(result.back());
      out.strides.push_back(from.strides[a] + from.strides[b]);
      return out;
    }
    case LAZYT_OP_AS_STRIDED: {  // PRG-3: of the operand in row-major order
      if (!from.is_dense()) return std::nullopt;
      const auto strides = program.ints(args[2]);
      return Layout{from.offset + detail::int_or(args[3], 0), Dims(result.begin(), result.end()),
                    Dims(strides.begin(), strides.end())};
    }
    case LAZYT_OP_UNFOLD: {
      if (from.rank() == 0) return from.reshaped(result);
      const auto d = static_cast<size_t>(number(1));
      const int64_t stride = from.strides[d];
      out.dims[d] = result[d];
      out.strides[d] = stride * number(3);
      out.dims.push_back(number(2));
      out.strides.push_back(stride);
      return out;
    }
    case LAZYT_OP_FLIP:
      if (out.dims.empty()) return out;  // of a tensor without dims, 0 and -1 may be named
      for (int64_t dim : program.ints(args[1])) {
        const auto d = static_cast<size_t>(dim);
        if (out.dims[d] > 0) out.offset += (out.dims[d] - 1) * out.strides[d];
        out.strides[d] = -out.strides[d];
      }
      return out;
    default: return std::nullopt;
  }
}

// Loops over `dims`, outermost first, with one stride for each of several operands.
struct Loops {
  Dims dims;
  std::vector<Dims> strides;  // [operand][loop]
};

// The loops that walk `dims` in the order `order` (a permutation of the dims, outermost first), neighbours joined
// where every operand lets them. strides: [operand][dim]. At least one loop.
inline Loops collapse(std::span<const int64_t> dims, std::span<const Dims> strides, std::span<const size_t> order) {
  Loops out;
  out.strides.resize(strides.size());
  for (size_t d : order) {
    if (dims[d] == 1) continue;
    bool joins = !out.dims.empty();
    for (size_t k = 0; joins && k < strides.size(); ++k)
      joins = out.strides[k].back() == strides[k][d] * dims[d];
    if (joins) {
      out.dims.back() *= dims[d];
      for (size_t k = 0; k < strides.size(); ++k) out.strides[k].back() = strides[k][d];
    } else {
      out.dims.push_back(dims[d]);
      for (size_t k = 0; k < strides.size(); ++k) out.strides[k].push_back(strides[k][d]);
    }
  }
  if (out.dims.empty()) {
    out.dims.push_back(1);
    for (auto& s : out.strides) s.push_back(0);
  }
  return out;
}

// Dims from the largest stride to the smallest: the order in which a layout walks its bytes.
inline std::vector<size_t> memory_order(std::span<const int64_t> dims, std::span<const int64_t> strides) {
  std::vector<size_t> order(dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto key = [&](size_t d) { return dims[d] == 1 ? 0 : std::abs(strides[d]); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) > key(b); });
  return order;
}
// Strides without gaps, the last dim of `order` innermost; row-major for 0, 1, 2, ...
inline Dims strides_in_order(std::span<const int64_t> dims, std::span<const size_t> order) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0; step *= std::max<int64_t>(dims[order[i]], 1)) strides[order[i]] = step;
  return strides;
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_LAYOUT_HPP_
