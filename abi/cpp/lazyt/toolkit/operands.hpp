// operands.hpp - what lowerings of operators ask about their node, and how they lay out what they read and write.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_OPERANDS_HPP_
#define LAZYT_TOOLKIT_OPERANDS_HPP_

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lazyt/toolkit/operators.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// ---- dtypes

inline bool is_floating(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_FLOAT32 || dtype == LAZYT_DTYPE_FLOAT64 || dtype == LAZYT_DTYPE_BFLOAT16 ||
         dtype == LAZYT_DTYPE_FLOAT16;
}
inline bool is_real(lazyt_dtype_t dtype) {
  return is_floating(dtype) || dtype == LAZYT_DTYPE_BOOL || dtype == LAZYT_DTYPE_UINT8 || dtype == LAZYT_DTYPE_INT8 ||
         dtype == LAZYT_DTYPE_INT16 || dtype == LAZYT_DTYPE_INT32 || dtype == LAZYT_DTYPE_INT64;
}
inline bool is_movable(lazyt_dtype_t dtype) {
  const uint64_t bytes = lazyt_dtype_size(dtype);
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}
inline bool is_index(lazyt_dtype_t dtype) { return dtype == LAZYT_DTYPE_INT64 || dtype == LAZYT_DTYPE_INT32; }
// The dtype in which values of `dtype` are computed.
inline lazyt_dtype_t compute_dtype(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_BFLOAT16 || dtype == LAZYT_DTYPE_FLOAT16 ? LAZYT_DTYPE_FLOAT32 : dtype;
}

// ---- reading programs

inline const lazyt_value_t& operand(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t i) {
  return program.values()[program.args(node)[i].payload];
}
inline bool has(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t i) {
  return program.args(node)[i].kind != LAZYT_ARG_NONE;
}
inline const lazyt_value_t& result(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t i) {
  return program.values()[node.results + i];
}
inline bool is_host_scalar(const lazyt_value_t& value) { return value.flags & LAZYT_VALUE_HOST_SCALAR; }
// Whether every tensor that the node reads or makes is a tensor (not a host scalar) of a dtype that `good` takes.
template <class F>
bool all_tensors(const plugin::ProgramView& program, const lazyt_node_t& node, F good) {
  bool ok = true;
  detail::for_each_operand(program, node, [&](uint32_t v) {
    const lazyt_value_t& value = program.values()[v];
    ok = ok && (is_host_scalar(value) || good(value.dtype));
  });
  for (uint32_t r = 0; r < node.result_count; ++r) ok = ok && good(result(program, node, r).dtype);
  return ok;
}
// Whether some attribute (not a tensor) of the node is a host scalar; arguments that the schema calls tensors are not.
inline bool is_constant(const plugin::ProgramView& program, const lazyt_arg_t& arg) {
  return arg.kind != LAZYT_ARG_VALUE || !is_host_scalar(program.values()[arg.payload]);
}
// Whether the arguments are of these kinds, a letter each: t a tensor, n none, i an int, b a bool, d a number or none, s a string,
// T a dtype, I ints, B bools; all constant. For operators outside the opset, whose calls nobody has looked at before.
inline bool has_arguments(const plugin::ProgramView& program, const lazyt_node_t& node, std::string_view kinds) {
  const auto is = [&](const lazyt_arg_t& arg, char kind) {
    switch (kind) {
      case 't': return arg.kind == LAZYT_ARG_VALUE && !is_host_scalar(program.values()[arg.payload]);
      case 'n': return arg.kind == LAZYT_ARG_NONE;
      case 'i': return arg.kind == LAZYT_ARG_INT;
      case 'b': return arg.kind == LAZYT_ARG_BOOL;
      case 'd': return arg.kind == LAZYT_ARG_DOUBLE || arg.kind == LAZYT_ARG_INT || arg.kind == LAZYT_ARG_NONE;
      case 's': return arg.kind == LAZYT_ARG_STRING;
      case 'T': return arg.kind == LAZYT_ARG_DTYPE;
      case 'I': return arg.kind == LAZYT_ARG_INTS;
      default: return kind == 'B' && arg.kind == LAZYT_ARG_BOOLS;
    }
  };
  const auto args = program.args(node);
  if (args.size() != kinds.size()) return false;
  for (size_t i = 0; i < kinds.size(); ++i)
    if (!is(args[i], kinds[i])) return false;
  return true;
}
inline int64_t int_at(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t i) {
  return static_cast<int64_t>(program.args(node)[i].payload);
}

// ---- lines: an operator along one axis

// How K operands that have the same dims, but the axis, are walked line by line.
template <size_t K>
struct Lines {
  int64_t n = 1;                    // elements of a line
  std::array<int64_t, K> step{};    // of each operand along its line
  Dims dims;                        // of the lines
  std::array<Dims, K> strides;
  bool side_by_side = false;        // whether `width` lines lie so, that `dims` does not count
  int64_t width = 1;
  int64_t count() const { return count_of(dims); }
  bool rows() const {
    return n <= 1 || std::all_of(step.begin(), step.end(), [](int64_t s) { return s == 1; });
  }
};

// layouts: of the operands; `axis` counts in each. A missing axis (a reduced result) has the stride 0.
// With `columns`, lines that lie side by side in all operands (stride 1) are taken together, if the axis has no
// stride 1 itself.
template <size_t K>
Lines<K> lines_of(std::array<Layout, K> layouts, size_t axis, bool columns) {
  Lines<K> out;
  if (layouts[0].rank() > 0) {
    out.n = layouts[0].dims[axis];
    for (size_t k = 0; k < K; ++k) {
      out.step[k] = layouts[k].strides[axis];
      layouts[k].dims.erase(layouts[k].dims.begin() + static_cast<std::ptrdiff_t>(axis));
      layouts[k].strides.erase(layouts[k].strides.begin() + static_cast<std::ptrdiff_t>(axis));
    }
  } else {
    out.step.fill(1);
  }
  std::array<Dims, K> strides;
  for (size_t k = 0; k < K; ++k) strides[k] = layouts[k].strides;
  const auto order = memory_order(layouts[0].dims, layouts[0].strides);
  Loops loops = collapse(layouts[0].dims, strides, order);
  const bool side_by_side =
      std::all_of(loops.strides.begin(), loops.strides.end(), [](const Dims& s) { return s.back() == 1; });
  if (columns && !out.rows() && side_by_side) {
    out.side_by_side = true;
    out.width = loops.dims.back();
    loops.dims.pop_back();
    for (Dims& s : loops.strides) s.pop_back();
  }
  out.dims = std::move(loops.dims);
  for (size_t k = 0; k < K; ++k) out.strides[k] = std::move(loops.strides[k]);
  return out;
}

// The dims that an operator reduces: those listed, or all if there are none.
inline std::vector<bool> reduced_dims(std::span<const int64_t> listed, size_t rank) {
  std::vector<bool> reduced(rank, listed.empty());
  for (int64_t d : listed)
    if (rank) reduced[static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(rank) : d)] = true;
  return reduced;
}

// A tensor with its reduced dims last, as one axis: dims = kept..., n. Copies where they do not lie evenly.
inline Tensor with_last_axis(Builder& b, const Tensor& t, const std::vector<bool>& reduced) {
  Tensor out = t;
  out.layout.dims.clear();
  out.layout.strides.clear();
  int64_t n = 1;
  for (bool wanted : {false, true})
    for (size_t d = 0; d < reduced.size(); ++d) {
      if (reduced[d] != wanted) continue;
      out.layout.dims.push_back(t.dims()[d]);
      out.layout.strides.push_back(t.strides()[d]);
      if (wanted) n *= t.dims()[d];
    }
  const auto kept = std::count(reduced.begin(), reduced.end(), false);
  Dims to(out.layout.dims.begin(), out.layout.dims.begin() + kept);
  to.push_back(n);
  auto flat = out.layout.reshaped(to);
  if (!flat) {
    out = b.dense(out);
    flat = out.layout.reshaped(to);
  }
  out.layout = *flat;
  return out;
}
// The dense result of such a reduction, as seen beside it: kept..., n with the stride 0.
inline Layout beside_axis(const Tensor& result, const Layout& axis_last) {
  Dims kept(axis_last.dims.begin(), axis_last.dims.end() - 1);
  Layout out = *result.layout.reshaped(kept);
  out.dims.push_back(axis_last.dims.back());
  out.strides.push_back(0);
  return out;
}

// ---- operands

// The same elements seen with other dims and strides.
inline Tensor reshaped(const Tensor& t, Dims dims, Dims strides) {
  return {t.storage, t.dtype, {t.layout.offset, std::move(dims), std::move(strides)}};
}

// An operand that the schema calls a tensor; one that came as a host scalar is written into memory first.
inline Tensor tensor_at(Builder& b, const lazyt_arg_t& arg) {
  const uint32_t v = Builder::value_of(arg);
  if (!b.is_scalar(v)) return b.tensor(v);
  const Tensor out = b.scratch(b.dtype(v), {});
  b.fill(out, b.number_of(arg));
  return out;
}

// Dense, in `dtype`.
inline Tensor dense_as(Builder& b, const Tensor& t, lazyt_dtype_t dtype) {
  if (t.dtype == dtype) return b.dense(t);
  Tensor out = b.scratch(dtype, t.dims());
  b.copy(t, out);
  return out;
}
// As it lies if it has that dtype.
inline Tensor as_dtype(Builder& b, const Tensor& t, lazyt_dtype_t dtype) { return t.dtype == dtype ? t : dense_as(b, t, dtype); }
// Where a kernel writes result v in `dtype`: the result itself, or scratch that finish_result copies from.
inline Tensor begin_result(Builder& b, uint32_t v, lazyt_dtype_t dtype) {
  return b.dtype(v) == dtype ? b.make_dense(v) : b.scratch(dtype, b.dims(v));
}
// The same with dims in memory in the order of `like`'s, the last innermost: heads that are a part of a token stay one.
inline Tensor begin_result(Builder& b, uint32_t v, lazyt_dtype_t dtype, const Tensor& like) {
  const Dims dims = b.dims(v);
  Dims strides = b.result_strides(v, strides_in_order(dims, memory_order(dims, like.strides())));
  if (strides.back() != 1) strides = row_major(dims);
  return b.dtype(v) == dtype ? b.make(v, strides) : b.scratch(dtype, dims, strides, static_cast<uint64_t>(count_of(dims)) * lazyt_dtype_size(dtype));
}
inline void finish_result(Builder& b, uint32_t v, const Tensor& written) {
  if (b.dtype(v) != written.dtype) b.copy(written, b.make(v, b.result_strides(v, written.strides())));
}

inline Refusal accepted() { return {}; }

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_OPERANDS_HPP_
