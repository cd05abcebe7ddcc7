#include "strided.h"

#include <algorithm>
#include <memory>

#include "bytes.h"
#include "elements.h"
#include "streams.h"

namespace lazyt::onednn {

#ifdef __x86_64__
const bool slow_shifted_memcpy = (__builtin_cpu_init(), __builtin_cpu_is("amd"));
#else
const bool slow_shifted_memcpy = false;
#endif

namespace {

// Outer loops, then `rows` runs of n elements, walked as dst lies.
struct Outer {
  Dims dims, src, dst;
};
struct Plan {
  std::shared_ptr<const Outer> outer;  // null: none
  int64_t rows = 1, src_row = 0, dst_row = 0;
  int64_t n = 1, src_step = 0, dst_step = 0;
  bool streams = false;
};

Plan plan_of(const Tensor& src, const Tensor& dst) {
  const std::vector<Dims> strides = {src.strides(), dst.strides()};
  toolkit::Loops loops = toolkit::collapse(dst.dims(), strides, toolkit::memory_order(dst.dims(), dst.strides()));
  auto take = [&](int64_t& n, int64_t& src_step, int64_t& dst_step) {
    if (loops.dims.empty()) return;
    n = loops.dims.back(), src_step = loops.strides[0].back(), dst_step = loops.strides[1].back();
    loops.dims.pop_back(), loops.strides[0].pop_back(), loops.strides[1].pop_back();
  };
  Plan p;
  p.streams = past_caches(2 * static_cast<uint64_t>(dst.count()) * dst.element());
  take(p.n, p.src_step, p.dst_step);
  take(p.rows, p.src_row, p.dst_row);
  const bool as_bytes = p.src_step == 1 && p.dst_step == 1 && p.n * static_cast<int64_t>(dst.element()) >= 4;
  if (p.n < 8 && p.rows > p.n && !as_bytes) {  // runs too short for a loop
    std::swap(p.n, p.rows);
    std::swap(p.src_step, p.src_row);
    std::swap(p.dst_step, p.dst_row);
  }
  if (!loops.dims.empty()) p.outer = std::make_shared<const Outer>(Outer{loops.dims, loops.strides[0], loops.strides[1]});
  return p;
}

template <class T>
LAZYT_INLINE void run_of(T* __restrict dst, const T* __restrict src, int64_t n, int64_t dst_step, int64_t src_step) {
  if (dst_step == 1 && src_step == -1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dst[i] = src[-i];
  } else if (dst_step == 1 && src_step == 0) {
    const T value = *src;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dst[i] = value;
  } else if (dst_step == 1) {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[i * src_step];
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * dst_step] = src[i * src_step];
  }
}
#define LAZYT_RUN(T) \
  LAZYT_CLONES void copy_run(T* dst, const T* src, int64_t n, int64_t dst_step, int64_t src_step) { run_of(dst, src, n, dst_step, src_step); }
LAZYT_RUN(uint8_t)
LAZYT_RUN(uint16_t)
LAZYT_RUN(uint32_t)
LAZYT_RUN(uint64_t)
#undef LAZYT_RUN

template <class T>
void rows_of(const Plan& p, T* dst, const T* src, int64_t rows) {
  if (p.src_step == 1 && p.dst_step == 1) {
    constexpr int64_t kSize = sizeof(T);
    copy_rows(reinterpret_cast<std::byte*>(dst), p.dst_row * kSize, reinterpret_cast<const std::byte*>(src), p.src_row * kSize, rows, p.n * kSize, p.streams);
  } else {
    for (int64_t r = 0; r < rows; ++r) copy_run(dst + r * p.dst_row, src + r * p.src_row, p.n, p.dst_step, p.src_step);
  }
}

template <class T>
void run(const Frame& frame, const Plan& p, const T* src, T* dst) {
  const int64_t all = (p.outer ? toolkit::count_of(p.outer->dims) : 1) * p.rows;
  if (all == 1) {
    parallel(frame, p.n, p.n, [&](int64_t begin, int64_t end) {
      Plan part = p;
      part.n = end - begin;
      rows_of(part, dst + begin * p.dst_step, src + begin * p.src_step, 1);
    });
    return;
  }
  parallel(frame, all, all * p.n, [&](int64_t begin, int64_t end) {
    if (!p.outer) return rows_of(p, dst + begin * p.dst_row, src + begin * p.src_row, end - begin);
    Odometer<2> at(p.outer->dims, {&p.outer->src, &p.outer->dst}, begin / p.rows);
    for (int64_t row = begin % p.rows; begin < end; row = 0, at.next()) {
      const int64_t rows = std::min(p.rows - row, end - begin);
      rows_of(p, dst + at.offsets[1] + row * p.dst_row, src + at.offsets[0] + row * p.src_row, rows);
      begin += rows;
    }
  });
}

template <class Vector>
LAZYT_INLINE void copy_rows_by(std::byte* dst, int64_t dst_row, const std::byte* src, int64_t src_row, int64_t rows, int64_t bytes) {
  for (int64_t r = 0; r < rows; ++r) copy_by<Vector>(dst + r * dst_row, src + r * src_row, static_cast<size_t>(bytes));
}

}  // namespace

LAZYT_CLONES void copy_rows(std::byte* dst, int64_t dst_row, const std::byte* src, int64_t src_row, int64_t rows, int64_t bytes, bool streams) {
  if (streams && bytes >= 512) {  // of shorter ones lines that wait for what is read are written by parts
    for (int64_t r = 0; r < rows; ++r) stream_bytes(dst + r * dst_row, src + r * src_row, static_cast<size_t>(bytes));
  } else if (bytes > 2048) {
    for (int64_t r = 0; r < rows; ++r) copy_bytes(dst + r * dst_row, src + r * src_row, static_cast<size_t>(bytes));
  } else if (bytes >= 64) {
    copy_rows_by<Bytes64>(dst, dst_row, src, src_row, rows, bytes);
  } else if (bytes >= 32) {
    copy_rows_by<Bytes32>(dst, dst_row, src, src_row, rows, bytes);
  } else if (bytes >= 16) {
    copy_rows_by<Bytes16>(dst, dst_row, src, src_row, rows, bytes);
  } else if (bytes >= 8) {
    copy_rows_by<uint64_t>(dst, dst_row, src, src_row, rows, bytes);
  } else if (bytes >= 4) {
    copy_rows_by<uint32_t>(dst, dst_row, src, src_row, rows, bytes);
  } else {
    copy_rows_by<uint8_t>(dst, dst_row, src, src_row, rows, bytes);
  }
}

void lower_strided_copy(Builder& b, const Tensor& src, const Tensor& dst) {
  if (dst.count() == 0) return;
  const auto copy = [p = plan_of(src, dst), element = dst.element(), from = Place(src), to = Place(dst)](const Frame& frame) {
    if (frame.at<std::byte>(from) == frame.at<std::byte>(to)) return;
    with_bytes(element, [&](auto tag) {
      using T = typename decltype(tag)::type;
      run<T>(frame, p, frame.at<T>(from), frame.at<T>(to));
    });
  };
  if (b.may_lie_on(src, dst, {}))
    b.add_move("copy", src.storage, dst.storage, copy);
  else
    b.add("copy", {src.storage}, {dst.storage}, copy);
}

}  // namespace lazyt::onednn
