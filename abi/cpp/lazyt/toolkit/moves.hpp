// moves.hpp - operators that only move elements: each result is a few strided copies.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_MOVES_HPP_
#define LAZYT_TOOLKIT_MOVES_HPP_

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lazyt/toolkit/operands.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {
namespace moves {

// A window of t: `size` elements along dim from `start`, `step` apart.
inline Tensor window(const Tensor& t, size_t dim, int64_t start, int64_t size, int64_t step = 1) {
  Tensor out = t;
  out.layout.offset += start * t.layout.strides[dim];
  out.layout.dims[dim] = size;
  out.layout.strides[dim] *= step;
  return out;
}

inline Tensor without(const Tensor& t, size_t dim) {
  Tensor out = t;
  out.layout.dims.erase(out.layout.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  out.layout.strides.erase(out.layout.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return out;
}

inline Refusal accept_geometry(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t first) {
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  const auto args = program.args(node);
  for (uint64_t i = first; i < args.size(); ++i)
    if (args[i].kind == LAZYT_ARG_VALUE)
      return refuse_argument("an argument that decides the geometry is a host scalar");
  return {};
}
template <uint64_t first>
Refusal accept_moves(const plugin::ProgramView& program, const lazyt_node_t& node) {
  return accept_geometry(program, node, first);
}

inline int64_t start_of(const lazyt_arg_t& a, int64_t size) {
  int64_t start = a.kind == LAZYT_ARG_NONE ? 0 : Builder::int_of(a);
  if (start < 0) start += size;
  return std::clamp<int64_t>(start, 0, size);
}

// Where `parts` are concatenated along dim to `dims`: row-major, or in the order of dims in which most elements lie, which are not
// turned then.
inline Dims strides_of_cat(std::span<const Tensor> parts, const Dims& dims, size_t dim) {
  const auto widest = std::max_element(parts.begin(), parts.end(), [](const Tensor& a, const Tensor& b) { return a.count() < b.count(); });
  if (widest == parts.end() || widest->dims()[dim] == 1) return row_major(dims);  // one element may have any stride
  const auto order = memory_order(widest->dims(), widest->strides());
  const auto lies_so = [&](const Tensor& part) {
    int64_t outside = INT64_MAX;  // the stride of the dim around
    return std::all_of(order.begin(), order.end(), [&](size_t d) {
      return part.dims()[d] == 1 || std::exchange(outside, part.strides()[d]) >= part.strides()[d];
    });
  };
  int64_t alike = 0;
  for (const Tensor& part : parts) alike += lies_so(part) ? part.count() : 0;
  return 2 * alike > count_of(dims) ? strides_in_order(dims, order) : row_major(dims);
}
inline void cat(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const auto dim = static_cast<size_t>(Builder::int_of(args[1]));
  const Dims dims = b.dims(node.results);
  std::vector<Tensor> parts;
  for (const lazyt_arg_t& element : b.program.elements(args[0])) {
    const Tensor& part = b.tensor(Builder::value_of(element));
    if (part.layout.rank() == dims.size()) parts.push_back(part);  // else one of PyTorch's empty tensors of one dim
  }
  const Tensor out = b.make(node.results, b.result_strides(node.results, strides_of_cat(parts, dims, dim)));
  int64_t at = 0;
  b.write_beside([&] {
    for (const Tensor& part : parts) {
      if (part.count()) b.copy(part, window(out, dim, at, part.dims()[dim]));
      at += part.dims()[dim];
    }
  });
}

inline void slice_scatter(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const auto dim = static_cast<size_t>(Builder::int_of(args[2]));
  const Tensor src = b.tensor(Builder::value_of(args[1]));
  const Tensor base = b.tensor(Builder::value_of(args[0]));
  const Tensor out = b.make(node.results);
  b.copy(base, out);
  if (src.count()) {
    b.copy(src,
           window(out, dim, start_of(args[3], base.dims()[dim]), src.dims()[dim], Builder::int_of(args[5])));
  }
}

inline void select_scatter(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const auto dim = static_cast<size_t>(Builder::int_of(args[2]));
  const Tensor base = b.tensor(Builder::value_of(args[0])), src = b.tensor(Builder::value_of(args[1]));
  int64_t index = Builder::int_of(args[3]);
  if (index < 0) index += base.dims()[dim];
  const Tensor out = b.make(node.results);
  b.copy(base, out);
  b.copy(src, without(window(out, dim, index, 1), dim));
}

inline void diagonal_scatter(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor src = b.tensor(Builder::value_of(args[1]));
  const Tensor out = b.make(node.results);
  b.copy(b.tensor(Builder::value_of(args[0])), out);
  const int64_t shift = Builder::int_of(args[2]);
  const auto a = static_cast<size_t>(Builder::int_of(args[3])),
             c = static_cast<size_t>(Builder::int_of(args[4]));
  Tensor diagonal = out;
  diagonal.layout.offset += shift >= 0 ? shift * out.strides()[c] : -shift * out.strides()[a];
  diagonal = without(without(diagonal, std::max(a, c)), std::min(a, c));
  diagonal.layout.dims.push_back(src.dims().back());
  diagonal.layout.strides.push_back(out.strides()[a] + out.strides()[c]);
  if (src.count()) b.copy(src, diagonal);
}

inline void as_strided_scatter(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor src = b.tensor(Builder::value_of(args[1]));
  const Tensor out = b.make_dense(node.results);  // PRG-3
  b.copy(b.tensor(Builder::value_of(args[0])), out);
  Tensor piece = out;
  piece.layout = {out.layout.offset + (Builder::is_none(args[4]) ? 0 : Builder::int_of(args[4])), src.dims(),
                  b.ints_of(args[3])};
  if (src.count()) b.copy(src, piece);
}

inline void slice_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const auto dim = static_cast<size_t>(Builder::int_of(args[2]));
  const Tensor grad = b.tensor(Builder::value_of(args[0]));
  const Tensor out = b.make(node.results);
  b.fill(out, {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
  if (grad.count())
    b.copy(grad,
           window(out, dim, start_of(args[3], out.dims()[dim]), grad.dims()[dim], Builder::int_of(args[5])));
}

inline void select_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const auto dim = static_cast<size_t>(Builder::int_of(args[2]));
  const Tensor grad = b.tensor(Builder::value_of(args[0]));
  const Tensor out = b.make(node.results);
  int64_t index = Builder::int_of(args[3]);
  if (index < 0) index += out.dims()[dim];
  b.fill(out, {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
  b.copy(grad, without(window(out, dim, index, 1), dim));
}

inline void constant_pad(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Dims pads = b.ints_of(args[1]);
  Tensor src = b.tensor(Builder::value_of(args[0]));
  const Tensor out = b.make(node.results);
  b.fill(out, b.number_of(args[2]));
  Tensor target = out;
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const size_t d = out.layout.rank() - 1 - i;
    const int64_t before = pads[2 * i], after = pads[2 * i + 1];
    const int64_t skip = std::max<int64_t>(0, -before);
    const int64_t size = src.dims()[d] - skip - std::max<int64_t>(0, -after);
    src = window(src, d, skip, size);
    target = window(target, d, std::max<int64_t>(0, before), size);
  }
  if (src.count() > 0) b.copy(src, target);
}

// Moves along one dim after the other; PyTorch's roll of no dims is over the flat tensor.
inline void roll(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Dims shifts = b.ints_of(args[1]);
  Dims dims = b.ints_of(args[2]);
  Tensor from = b.tensor(Builder::value_of(args[0]));
  Tensor out = b.make_dense(node.results);
  if (from.count() == 0) return;
  Tensor flat = out;
  if (dims.empty()) {
    from = b.dense(from);
    from.layout = {from.layout.offset, {from.count()}, {1}};
    flat.layout = {out.layout.offset, {out.count()}, {1}};
    dims = {0};
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto d = static_cast<size_t>(dims[i]);
    const int64_t size = from.dims()[d], shift = ((shifts[i] % size) + size) % size;
    const Tensor to = i + 1 == dims.size() ? flat : b.scratch(from.dtype, from.dims());
    if (shift) b.copy(window(from, d, size - shift, shift), window(to, d, 0, shift));
    b.copy(window(from, d, 0, size - shift), window(to, d, shift, size - shift));
    from = to;
  }
}

// The operand with a broadcast dim beside each of its own.
inline void repeat(Builder& b, const lazyt_node_t& node) {
  const Dims times = b.ints_of(b.program.args(node)[1]);
  const Tensor src = b.tensor(Builder::value_of(b.program.args(node)[0]));
  const Tensor out = b.make_dense(node.results);
  Tensor from = src, to = out;
  from.layout.dims.clear(), from.layout.strides.clear(), to.layout.dims.clear(), to.layout.strides.clear();
  const size_t added = times.size() - src.layout.rank();
  for (size_t d = 0; d < times.size(); ++d) {
    const int64_t size = d < added ? 1 : src.dims()[d - added],
                  stride = d < added ? 0 : src.strides()[d - added];
    from.layout.dims.insert(from.layout.dims.end(), {times[d], size});
    from.layout.strides.insert(from.layout.strides.end(), {0, stride});
    to.layout.dims.insert(to.layout.dims.end(), {times[d], size});
    to.layout.strides.insert(to.layout.strides.end(), {size * out.strides()[d], out.strides()[d]});
  }
  if (out.count()) b.copy(from, to);
}

// [..., C r r, H, W] -> [..., C, H r, W r]
inline void pixel_shuffle(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor x = b.tensor(b.value_of(args[0]));
  const Tensor y = b.make_dense(node.results);
  if (y.count() == 0) return;
  const int64_t r = b.int_of(args[1]);
  const size_t front = x.dims().size() - 3;
  const int64_t h = x.dims()[front + 1], w = x.dims()[front + 2];
  const Dims &d = x.dims(), &s = x.strides(), &ys = y.strides();
  Dims dims(d.begin(), d.begin() + static_cast<std::ptrdiff_t>(front));
  Dims from(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(front)), to(ys.begin(), ys.begin() + static_cast<std::ptrdiff_t>(front));
  const int64_t c = s[front];
  dims.insert(dims.end(), {d[front] / (r * r), h, r, w, r});
  from.insert(from.end(), {c * r * r, s[front + 1], c * r, s[front + 2], c});
  to.insert(to.end(), {ys[front], ys[front + 1] * r, ys[front + 1], r, 1});
  b.copy({x.storage, x.dtype, {x.layout.offset, dims, from}}, {y.storage, y.dtype, {y.layout.offset, dims, to}});
}

// aten::view.dtype: the same bytes; the last dim changes where elements change their size.
inline void bitcast(Builder& b, const lazyt_node_t& node) {
  Tensor from = b.tensor(Builder::value_of(b.program.args(node)[0]));
  const lazyt_dtype_t to = b.dtype(node.results);
  const uint64_t before = from.element(), after = lazyt_dtype_size(to);
  if (before != after) {
    from = b.dense(from);
    from.layout.offset = from.layout.offset * static_cast<int64_t>(before) / static_cast<int64_t>(after);
    from.layout.dims = b.dims(node.results);
    from.layout.strides = row_major(from.layout.dims);
  }
  from.dtype = to;
  b.set(node.results, from);
}

// Elements of a view of larger ones must lie at whole multiples of their size.
inline Refusal accept_bitcast(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (!has_arguments(program, node, "tT") || node.result_count != 1) return refuse_argument("other arguments");
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  const lazyt_value_t &from = operand(program, node, 0), &to = result(program, node, 0);
  const auto x = program.dims(from), y = program.dims(to);
  const uint64_t before = lazyt_dtype_size(from.dtype), after = lazyt_dtype_size(to.dtype);
  const size_t same = x.size() - (before != after && !x.empty() ? 1 : 0);
  if (x.size() != y.size() || !std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(same), y.begin()) ||
      static_cast<uint64_t>(count_of(x)) * before != static_cast<uint64_t>(count_of(y)) * after)
    return refuse_argument("a result of other bytes");
  return after > before && from.producer != LAZYT_NONE && count_of(x) ? refuse_argument("larger elements over a computed value") : Refusal{};
}

template <class BuilderT, void (*f)(Builder&, const lazyt_node_t&)>
void lowered(BuilderT& b, const lazyt_node_t& node) {
  f(b, node);
}

}  // namespace moves

// cat, scatters of views, backwards of views, constant_pad_nd, roll, repeat, pixel_shuffle, view.dtype: by Builder's copy
// and fill.
template <class BuilderT>
void add_moves(Operators<BuilderT>& all) {
  using namespace moves;
  using enum Role;
  all.add(LAZYT_OP_CAT, {kOpaque, accept_moves<1>, lowered<BuilderT, cat>});
  all.add(LAZYT_OP_SLICE_SCATTER, {kOpaque, accept_moves<2>, lowered<BuilderT, slice_scatter>});
  all.add(LAZYT_OP_SELECT_SCATTER, {kOpaque, accept_moves<2>, lowered<BuilderT, select_scatter>});
  all.add(LAZYT_OP_DIAGONAL_SCATTER, {kOpaque, accept_moves<2>, lowered<BuilderT, diagonal_scatter>});
  all.add(LAZYT_OP_AS_STRIDED_SCATTER, {kOpaque, accept_moves<2>, lowered<BuilderT, as_strided_scatter>});
  all.add(LAZYT_OP_SLICE_BACKWARD, {kOpaque, accept_moves<1>, lowered<BuilderT, slice_backward>});
  all.add(LAZYT_OP_SELECT_BACKWARD, {kOpaque, accept_moves<1>, lowered<BuilderT, select_backward>});
  all.add(LAZYT_OP_CONSTANT_PAD_ND, {kOpaque, accept_known, lowered<BuilderT, constant_pad>});
  all.add(LAZYT_OP_ROLL, {kOpaque, accept_moves<1>, lowered<BuilderT, roll>});
  all.add(LAZYT_OP_REPEAT, {kOpaque, accept_moves<1>, lowered<BuilderT, repeat>});
  all.add(LAZYT_OP_PIXEL_SHUFFLE, {kOpaque, accept_moves<1>, lowered<BuilderT, pixel_shuffle>});
  all.add_named("aten::view.dtype", {kOpaque, accept_bitcast, lowered<BuilderT, bitcast>});
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_MOVES_HPP_
