#include "transpose.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "products.h"
#include "streams.h"
#include "team.h"

namespace lazyt::onednn {
namespace {

// Elements along each side of a tile: its lines of both tensors stay in the first-level cache.
constexpr int64_t kTile = 32;
// Below this the copy is over before tiles pay.
constexpr int64_t kSmallest = 4096;
constexpr int64_t kGrain = 65536;

// Outer loops, then `rows` along which src is contiguous, then `columns` along which dst is.
struct Plan {
  Dims outer, src_outer, dst_outer;
  int64_t rows, columns, src_step, dst_step;  // src[row + column * src_step], dst[row * dst_step + column]
};

// Rows i and i + 4 are zipped to rows 2 i and 2 i + 1; after three times rows and columns have changed places.
void transpose_eight(uint16_t* out, int64_t out_row, const uint16_t* in, int64_t in_row) {
  using V = uint16_t __attribute__((vector_size(16)));
  V v[8], zipped[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&v[i], in + i * in_row, sizeof v[i]);
#pragma GCC unroll 3
  for (int step = 0; step < 3; ++step) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      zipped[2 * i] = __builtin_shufflevector(v[i], v[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      zipped[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::copy_n(zipped, 8, v);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(out + i * out_row, &v[i], sizeof v[i]);
}

// Through a buffer: lines of either tensor may all fall into one set of the cache, so each is touched once and whole.
template <class T>
void tile(const T* src, T* dst, int64_t rows, int64_t columns, int64_t src_step, int64_t dst_step, bool streams) {
  alignas(64) T buffer[kTile * kTile];
  for (int64_t c = 0; c < columns; ++c) std::copy_n(src + c * src_step, rows, buffer + c * kTile);
  if (streams) {
    alignas(64) T turned[kTile * kTile];
    tile(buffer, turned, rows, columns, kTile, kTile, false);
    for (int64_t r = 0; r < rows; ++r) stream_bytes(dst + r * dst_step, turned + r * kTile, static_cast<size_t>(columns) * sizeof(T));
    return;
  }
  if constexpr (sizeof(T) >= 4) {
    transpose(dst, dst_step, buffer, kTile, columns, rows);
  } else {
    int64_t whole = 0;  // columns of the squares of eight
    if constexpr (std::is_same_v<T, uint16_t>) {
      if (rows % 8 == 0) whole = columns / 8 * 8;
      for (int64_t r = 0; r < rows && whole; r += 8)
        for (int64_t c = 0; c < whole; c += 8) transpose_eight(dst + r * dst_step + c, dst_step, buffer + c * kTile + r, kTile);
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = whole; c < columns; ++c) dst[r * dst_step + c] = buffer[c * kTile + r];
  }
}

template <class T>
void run(const Frame& frame, const Plan& p, const Tensor& from, const Tensor& to) {
  const T* src = frame.at<T>(from);
  T* dst = frame.at<T>(to);
  const int64_t down = (p.rows + kTile - 1) / kTile, across = (p.columns + kTile - 1) / kTile;
  const int64_t outer = toolkit::count_of(p.outer), work = outer * down * across;
  // Where a tile's rows are whole lines; of few rows or columns (channels of images) it is no faster.
  const bool streams = sizeof(T) >= 2 && std::min(p.rows, p.columns) >= 16 * kTile && p.dst_step * static_cast<int64_t>(sizeof(T)) % 64 == 0 &&
                       past_caches(2 * static_cast<uint64_t>(outer * p.rows * p.columns) * sizeof(T));
  for_each(work * kTile * kTile > kGrain ? frame.threads : 1, work, [&](int64_t w) {
    const int64_t c = w % across * kTile, r = w / across % down * kTile;
    int64_t o = w / across / down, s = 0, d = 0;
    for (size_t i = p.outer.size(); i-- > 0;) {
      s += o % p.outer[i] * p.src_outer[i];
      d += o % p.outer[i] * p.dst_outer[i];
      o /= p.outer[i];
    }
    tile(src + s + r + c * p.src_step, dst + d + r * p.dst_step + c, std::min(kTile, p.rows - r),
         std::min(kTile, p.columns - c), p.src_step, p.dst_step, streams);
  });
}

}  // namespace

bool lower_transpose(Builder& b, const Tensor& src, const Tensor& dst) {
  if (dst.count() < kSmallest) return false;
  const std::vector<Dims> strides = {src.strides(), dst.strides()};
  const auto order = toolkit::memory_order(dst.dims(), dst.strides());
  const toolkit::Loops loops = toolkit::collapse(dst.dims(), strides, order);
  const size_t inner = loops.dims.size() - 1;
  if (loops.strides[1][inner] != 1 || loops.strides[0][inner] == 1 || loops.strides[0][inner] == 0) return false;
  size_t row = inner;
  for (size_t i = 0; i < inner; ++i)
    if (loops.strides[0][i] == 1) row = i;
  if (row == inner || loops.dims[row] < 4) return false;
  Plan p{{}, {}, {}, loops.dims[row], loops.dims[inner], loops.strides[0][inner], loops.strides[1][row]};
  for (size_t i = 0; i < inner; ++i) {
    if (i == row) continue;
    p.outer.push_back(loops.dims[i]);
    p.src_outer.push_back(loops.strides[0][i]);
    p.dst_outer.push_back(loops.strides[1][i]);
  }
  b.add("transpose", {src.storage}, {dst.storage}, [p, src, dst](const Frame& frame) {
    switch (src.element()) {
      case 1: return run<uint8_t>(frame, p, src, dst);
      case 2: return run<uint16_t>(frame, p, src, dst);
      case 4: return run<uint32_t>(frame, p, src, dst);
      default: return run<uint64_t>(frame, p, src, dst);
    }
  });
  return true;
}

}  // namespace lazyt::onednn
