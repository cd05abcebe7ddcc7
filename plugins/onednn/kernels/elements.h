// What kernels over strided tensors share: C++ types of dtypes, ways to walk dims.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include "../ops.h"
#include "floats.h"
#include "lazyt/toolkit/operands.hpp"
#include "team.h"

namespace lazyt::onednn {

using toolkit::accepted;
using toolkit::all_tensors;
using toolkit::beside_axis;
using toolkit::begin_result;
using toolkit::compute_dtype;
using toolkit::dense_as;
using toolkit::finish_result;
using toolkit::has;
using toolkit::int_at;
using toolkit::is_constant;
using toolkit::is_floating;
using toolkit::is_host_scalar;
using toolkit::is_index;
using toolkit::is_movable;
using toolkit::is_real;
using toolkit::Lines;
using toolkit::lines_of;
using toolkit::operand;
using toolkit::reduced_dims;
using toolkit::result;
using toolkit::tensor_at;
using toolkit::with_last_axis;

// ---- types

template <class T>
struct Tag {
  using type = T;
};

// f(Tag<T>{}) for the type of a floating dtype.
template <class F>
decltype(auto) with_floating(lazyt_dtype_t dtype, F&& f) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT64: return f(Tag<double>{});
    case LAZYT_DTYPE_BFLOAT16: return f(Tag<BFloat16>{});
    case LAZYT_DTYPE_FLOAT16: return f(Tag<Half>{});
    case LAZYT_DTYPE_FLOAT32: return f(Tag<float>{});
    default: throw plugin::Error(LAZYT_CODE_INTERNAL, "onednn: no floating dtype: " + std::to_string(dtype));
  }
}
// f(Tag<T>{}) for the type of a real dtype.
template <class F>
decltype(auto) with_real(lazyt_dtype_t dtype, F&& f) {
  switch (dtype) {
    case LAZYT_DTYPE_BOOL: return f(Tag<bool>{});
    case LAZYT_DTYPE_UINT8: return f(Tag<uint8_t>{});
    case LAZYT_DTYPE_INT8: return f(Tag<int8_t>{});
    case LAZYT_DTYPE_INT16: return f(Tag<int16_t>{});
    case LAZYT_DTYPE_INT32: return f(Tag<int32_t>{});
    case LAZYT_DTYPE_INT64: return f(Tag<int64_t>{});
    default: return with_floating(dtype, std::forward<F>(f));
  }
}
// f(Tag<unsigned integer of so many bytes>{}), for kernels that only move elements. REQUIRES: is_movable
template <class F>
decltype(auto) with_bytes(uint64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f(Tag<uint8_t>{});
    case 2: return f(Tag<uint16_t>{});
    case 4: return f(Tag<uint32_t>{});
    default: return f(Tag<uint64_t>{});
  }
}
template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<Compute<T>>;

// ---- arguments

// Negative axes do not cross (PRG-5); rank 0 counts as one axis of one element.
inline size_t axis_at(const ProgramView& program, const lazyt_node_t& node, uint64_t arg) {
  return static_cast<size_t>(std::max<int64_t>(int_at(program, node, arg), 0));
}
inline Refusal accept_floating(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_floating)) return refuse_dtype(operand(program, node, 0).dtype);
  return accepted();
}
inline Refusal accept_real(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_real)) return refuse_dtype(operand(program, node, 0).dtype);
  return accepted();
}

// ---- extremes

// Whether a is to be taken rather than b: larger (smaller), and NaN before all.
template <bool kMax, class C>
bool beats(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (b != b) return false;
    if (a != a) return true;
  }
  return kMax ? a > b : a < b;
}

// ---- walking dims

inline constexpr size_t kMaxRank = 64;

// Walks `dims` in row-major order with the offset of each of K operands.
template <size_t K>
class Odometer {
 public:
  // strides: [operand][dim]. Starts at element `first`.
  Odometer(const Dims& dims, const std::array<const Dims*, K>& strides, int64_t first = 0) : dims_(dims), strides_(strides) {
    for (size_t d = dims.size(); d-- > 0;) {
      at_[d] = first % dims[d];
      first /= dims[d];
      for (size_t k = 0; k < K; ++k) offsets[k] += at_[d] * (*strides[k])[d];
    }
  }
  void next() {
    for (size_t d = dims_.size(); d-- > 0;) {
      if (++at_[d] < dims_[d]) {
        for (size_t k = 0; k < K; ++k) offsets[k] += (*strides_[k])[d];
        return;
      }
      for (size_t k = 0; k < K; ++k) offsets[k] -= (dims_[d] - 1) * (*strides_[k])[d];
      at_[d] = 0;
    }
  }
  int64_t at(size_t d) const { return at_[d]; }

  std::array<int64_t, K> offsets{};

 private:
  const Dims& dims_;
  const std::array<const Dims*, K> strides_;
  std::array<int64_t, kMaxRank> at_;
};

// Elements touched, from which on a step is worth several threads.
inline constexpr int64_t kWorthIt = 32768;

// Calls f(begin, end) for parts of [0, n), on the step's threads where `work` (elements touched) is worth it. What f
// computes for an element must not depend on the part it is in.
template <class F>
void parallel(const Frame& frame, int64_t n, int64_t work, F f) {
  if (n > 0) in_parts(work >= kWorthIt ? static_cast<int>(std::min<int64_t>(frame.threads, n)) : 1, n, f);
}

// Scratch memory of as many threads as there were when the program was compiled; not more will work.
struct PerThread {
  Tensor tensor;
  int threads;
  uint64_t bytes;

  std::byte* of(int thread, const Frame& frame) const { return frame.at<std::byte>(tensor) + static_cast<uint64_t>(thread) * bytes; }
};

inline PerThread per_thread(Builder& b, uint64_t bytes) {
  const int threads = thread_count();
  const uint64_t each = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return {b.scratch(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(each) * threads}), threads, each};
}

// As above, on no more threads than have scratch: f(the thread's, begin, end).
template <class F>
void parallel(const Frame& frame, const PerThread& scratch, int64_t n, int64_t work, F f) {
  const int64_t most = std::min<int64_t>(std::min(frame.threads, scratch.threads), n);
  with_team(work >= kWorthIt ? static_cast<int>(most) : 1, [&](const Team& team) { f(scratch.of(team.rank, frame), team.begin(n), team.end(n)); });
}

// ---- lines: an operator along one axis

// f(offsets of the operands, width) for each line, or for up to `most` lines side by side.
template <size_t K, class F>
void for_lines(const Frame& frame, const Lines<K>& lines, int64_t most, F f) {
  const int64_t pieces = (lines.width + most - 1) / most, count = lines.count() * pieces;
  std::array<const Dims*, K> strides;
  for (size_t k = 0; k < K; ++k) strides[k] = &lines.strides[k];
  parallel(frame, count, lines.count() * lines.width * lines.n, [&](int64_t begin, int64_t end) {
    Odometer<K> at(lines.dims, strides, begin / pieces);
    int64_t piece = begin % pieces;
    for (int64_t i = begin; i < end; ++i) {
      std::array<int64_t, K> offsets = at.offsets;
      for (int64_t& o : offsets) o += piece * most;
      f(offsets, std::min(most, lines.width - piece * most));
      if (++piece == pieces) piece = 0, at.next();
    }
  });
}

}  // namespace lazyt::onednn
