#include "transpose.h"

#include "lazyt/toolkit/walk.hpp"
#include "text.h"

namespace lazyt::cuda {
namespace {

constexpr int64_t kTile = 32;
// Shorter ones leave most of a tile empty.
constexpr int64_t kShortest = 16;

// x is gapless along dim A, y along dim B. One more column, so that a column's elements are in different banks.
constexpr std::string_view kText = R"(
LAZYT_KERNEL(KERNEL, 2, 256) {
  __shared__ T room[32][33];
  const T* x = (const T*)a.w[0];
  T* y = (T*)a.w[1];
  for (long long tile = blockIdx.x; tile < TILES; tile += gridDim.x) {
    const I first = (I)(tile % TILES_A) * 32, second = (I)(tile / TILES_A % TILES_B) * 32;
    OFFSETS
    for (int r = threadIdx.y; r < 32; r += 8)
      if (first + (I)threadIdx.x < SIZE_A && second + r < SIZE_B)
        room[r][threadIdx.x] = x[from + first + (I)threadIdx.x + (second + r) * (I)STRIDE_X];
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 8)
      if (first + r < SIZE_A && second + (I)threadIdx.x < SIZE_B)
        y[to + second + (I)threadIdx.x + (first + r) * (I)STRIDE_Y] = room[threadIdx.x][r];
    __syncthreads();
  }
}
)";

}  // namespace

bool add_transpose(Builder& b, const Tensor& src, const Tensor& dst) {
  if (src.dtype != dst.dtype || !toolkit::is_movable(src.dtype) || dst.count() == 0) return false;
  const Dims from = toolkit::broadcast_strides(src, dst.dims());
  toolkit::Loops loops =
      toolkit::collapse(dst.dims(), std::vector<Dims>{from, dst.strides()}, toolkit::memory_order(dst.dims(), dst.strides()));
  Dims &x = loops.strides[0], &y = loops.strides[1];
  const size_t second = loops.dims.size() - 1;
  if (y[second] != 1 || std::abs(x[second]) <= 1 || loops.dims[second] < kShortest) return false;
  size_t first = 0;
  while (first < second && x[first] != 1) ++first;
  if (first == second || loops.dims[first] < kShortest) return false;

  const int64_t size_a = loops.dims[first], size_b = loops.dims[second], stride_x = x[second], stride_y = y[first];
  for (size_t d : {second, first}) {
    const auto at = static_cast<std::ptrdiff_t>(d);
    loops.dims.erase(loops.dims.begin() + at), x.erase(x.begin() + at), y.erase(y.begin() + at);
  }
  const int64_t tiles_a = (size_a + kTile - 1) / kTile, tiles_b = (size_b + kTile - 1) / kTile;
  const int64_t tiles = tiles_a * tiles_b * toolkit::count_of(loops.dims);
  const Layout read{0, dst.dims(), from};
  const std::string per_outer = std::to_string(tiles_a * tiles_b);
  b.add_kernel(specialise("transpose", kText,
                          {{"T", bits_type(src.element())},
                           {"I", index_type({span_of(read), span_of(dst.layout), tiles})},
                           {"TILES", std::to_string(tiles) + "ll"},
                           {"TILES_A", std::to_string(tiles_a)},
                           {"TILES_B", std::to_string(tiles_b)},
                           {"SIZE_A", std::to_string(size_a)},
                           {"SIZE_B", std::to_string(size_b)},
                           {"STRIDE_X", std::to_string(stride_x)},
                           {"STRIDE_Y", std::to_string(stride_y)},
                           {"OFFSETS", offsets("tile / " + per_outer, loops.dims, {{"from", x}, {"to", y}})}}),
               {static_cast<uint32_t>(std::min<int64_t>(tiles, INT32_MAX)), 1, 1}, {kTile, 8, 1}, 0,
               {Word::address(src), Word::address(dst)}, {src.storage}, {dst.storage});
  return true;
}

}  // namespace lazyt::cuda
