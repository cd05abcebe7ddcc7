#include "gemm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "clones.h"
#include "floats.h"

namespace lazyt::onednn {
namespace {

// ---- Any element type: tiles of kRows x kColumns in registers, b packed to panels.

constexpr int kRows = 4, kVectors = 2, kDepth = 256, kBlock = 64;

template <class T>
using Vector __attribute__((vector_size(64), may_alias)) = T;
template <class T>
constexpr int kColumns = kVectors * 64 / sizeof(T);

// tile[kBlock][kColumns] += a[rows, depth] x panel[depth, kColumns]
template <class T>
LAZYT_INLINE void multiply(T* tile, const T* a, int64_t row_stride, int64_t column_stride, int64_t rows, const T* panel, int64_t depth) {
  constexpr int columns = kColumns<T>;
  for (int64_t i = 0; i < rows; i += kRows) {
    const int64_t real = std::min<int64_t>(kRows, rows - i);
    const T* at[kRows];
    for (int r = 0; r < kRows; ++r) at[r] = a + (i + std::min<int64_t>(r, real - 1)) * row_stride;
    Vector<T> sum[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) std::memcpy(sum[r], tile + (i + r) * columns, sizeof sum[r]);
    for (int64_t k = 0; k < depth; ++k) {
      Vector<T> b[kVectors];
      std::memcpy(b, panel + k * columns, sizeof b);
      for (int r = 0; r < kRows; ++r) {
        const T x = at[r][k * column_stride];
        for (int v = 0; v < kVectors; ++v) sum[r][v] += x * b[v];
      }
    }
    for (int r = 0; r < kRows; ++r) std::memcpy(tile + (i + r) * columns, sum[r], sizeof sum[r]);
  }
}

LAZYT_CLONES void multiply_f64(double* t, const double* a, int64_t rs, int64_t cs, int64_t rows, const double* p, int64_t depth) { multiply(t, a, rs, cs, rows, p, depth); }
LAZYT_CLONES void multiply_i64(int64_t* t, const int64_t* a, int64_t rs, int64_t cs, int64_t rows, const int64_t* p, int64_t depth) { multiply(t, a, rs, cs, rows, p, depth); }
LAZYT_CLONES void multiply_i32(int32_t* t, const int32_t* a, int64_t rs, int64_t cs, int64_t rows, const int32_t* p, int64_t depth) { multiply(t, a, rs, cs, rows, p, depth); }
LAZYT_CLONES void multiply_i16(int16_t* t, const int16_t* a, int64_t rs, int64_t cs, int64_t rows, const int16_t* p, int64_t depth) { multiply(t, a, rs, cs, rows, p, depth); }
LAZYT_CLONES void multiply_i8(int8_t* t, const int8_t* a, int64_t rs, int64_t cs, int64_t rows, const int8_t* p, int64_t depth) { multiply(t, a, rs, cs, rows, p, depth); }

template <class T, class Multiply>
void run(const Gemm& g, int threads, Multiply multiply_block) {
  constexpr int columns = kColumns<T>;
  const int64_t row_blocks = (g.m + kBlock - 1) / kBlock, panels = (g.n + columns - 1) / columns;
  const bool large = static_cast<double>(g.batch) * static_cast<double>(g.m * g.n) * static_cast<double>(g.k) > 1e6;
#pragma omp parallel for collapse(3) num_threads(threads) if (threads > 1 && large)
  for (int64_t batch = 0; batch < g.batch; ++batch) {
    for (int64_t block = 0; block < row_blocks; ++block) {
      for (int64_t p = 0; p < panels; ++p) {
        alignas(64) T tile[kBlock * columns];
        alignas(64) T panel[kDepth * columns];
        const int64_t i0 = block * kBlock, rows = std::min<int64_t>(kBlock, g.m - i0);
        const int64_t j0 = p * columns, width = std::min<int64_t>(columns, g.n - j0);
        const T* a = static_cast<const T*>(g.a.data) + batch * g.a.batch_stride + i0 * g.a.row_stride;
        const T* b = static_cast<const T*>(g.b.data) + batch * g.b.batch_stride + j0 * g.b.column_stride;
        std::memset(tile, 0, sizeof tile);
        for (int64_t k0 = 0; k0 < g.k; k0 += kDepth) {
          const int64_t depth = std::min<int64_t>(kDepth, g.k - k0);
          for (int64_t k = 0; k < depth; ++k) {
            T* to = panel + k * columns;
            for (int64_t j = 0; j < width; ++j) to[j] = b[(k0 + k) * g.b.row_stride + j * g.b.column_stride];
            for (int64_t j = width; j < columns; ++j) to[j] = 0;
          }
          multiply_block(tile, a + k0 * g.a.column_stride, g.a.row_stride, g.a.column_stride, rows, panel, depth);
        }
        T* c = static_cast<T*>(g.c) + (batch * g.m + i0) * g.n + j0;
        const T* addend = static_cast<const T*>(g.addend.data) + batch * g.addend.batch_stride +
                          i0 * g.addend.row_stride + j0 * g.addend.column_stride;
        constexpr bool is_float = std::is_floating_point_v<T>;
        const T alpha = is_float ? static_cast<T>(g.alpha) : static_cast<T>(g.int_alpha);
        const T beta = is_float ? static_cast<T>(g.beta) : static_cast<T>(g.int_beta);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            T value = static_cast<T>(alpha * tile[i * columns + j]);
            if (beta != 0) value = static_cast<T>(value + beta * addend[i * g.addend.row_stride + j * g.addend.column_stride]);
            c[i * g.n + j] = value;
          }
        }
      }
    }
  }
}

// ---- One row or column

// Rows are contiguous: four dot products at a time.
template <class T>
LAZYT_INLINE void dots(const T* a, int64_t row_stride, const T* x, int64_t m, int64_t k, float* y) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) {
    const T *r0 = a + i * row_stride, *r1 = r0 + row_stride, *r2 = r1 + row_stride, *r3 = r2 + row_stride;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t j = 0; j < k; ++j) {
      const float v = static_cast<float>(x[j]);
      s0 += static_cast<float>(r0[j]) * v;
      s1 += static_cast<float>(r1[j]) * v;
      s2 += static_cast<float>(r2[j]) * v;
      s3 += static_cast<float>(r3[j]) * v;
    }
    y[i] = s0, y[i + 1] = s1, y[i + 2] = s2, y[i + 3] = s3;
  }
  for (; i < m; ++i) {
    const T* row = a + i * row_stride;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < k; ++j) sum += static_cast<float>(row[j]) * static_cast<float>(x[j]);
    y[i] = sum;
  }
}

// Columns are contiguous: y += a[:, j] x[j], four columns at a time.
template <class T>
LAZYT_INLINE void columns(const T* a, int64_t column_stride, const T* x, int64_t m, int64_t k, float* y) {
  for (int64_t i = 0; i < m; ++i) y[i] = 0;
  int64_t j = 0;
  for (; j + 4 <= k; j += 4) {
    const T *c0 = a + j * column_stride, *c1 = c0 + column_stride, *c2 = c1 + column_stride, *c3 = c2 + column_stride;
    const float x0 = static_cast<float>(x[j]), x1 = static_cast<float>(x[j + 1]), x2 = static_cast<float>(x[j + 2]), x3 = static_cast<float>(x[j + 3]);
#pragma omp simd
    for (int64_t i = 0; i < m; ++i) y[i] += static_cast<float>(c0[i]) * x0 + static_cast<float>(c1[i]) * x1 + (static_cast<float>(c2[i]) * x2 + static_cast<float>(c3[i]) * x3);
  }
  for (; j < k; ++j) {
    const T* column = a + j * column_stride;
    const float v = static_cast<float>(x[j]);
#pragma omp simd
    for (int64_t i = 0; i < m; ++i) y[i] += static_cast<float>(column[i]) * v;
  }
}

LAZYT_CLONES void dots_f32(const float* a, int64_t rs, const float* x, int64_t m, int64_t k, float* y) { dots(a, rs, x, m, k, y); }
LAZYT_CLONES void dots_bf16(const BFloat16* a, int64_t rs, const BFloat16* x, int64_t m, int64_t k, float* y) { dots(a, rs, x, m, k, y); }
LAZYT_CLONES void columns_f32(const float* a, int64_t cs, const float* x, int64_t m, int64_t k, float* y) { columns(a, cs, x, m, k, y); }
LAZYT_CLONES void columns_bf16(const BFloat16* a, int64_t cs, const BFloat16* x, int64_t m, int64_t k, float* y) { columns(a, cs, x, m, k, y); }

template <class T, class Dots, class Columns>
void run(const Gemv& g, int threads, Dots dots_of, Columns columns_of) {
  constexpr int64_t kRun = 512;  // results at a time, summed in the first-level cache
  const int64_t runs = (g.m + kRun - 1) / kRun;
  // Short results are cut finer, so that threads share them.
  const int64_t size = runs >= threads ? kRun : std::max<int64_t>(16, (g.m / threads + 15) / 16 * 16);
  const T* x = static_cast<const T*>(g.x);
  const T* bias = static_cast<const T*>(g.bias);
#pragma omp parallel for num_threads(threads) if (threads > 1 && g.m * g.k > 1 << 16)
  for (int64_t i0 = 0; i0 < g.m; i0 += size) {
    const int64_t rows = std::min(size, g.m - i0);
    alignas(64) float sums[kRun];
    const T* a = static_cast<const T*>(g.a) + i0 * g.row_stride;
    if (g.column_stride == 1) {
      dots_of(a, g.row_stride, x, rows, g.k, sums);
    } else {
      columns_of(a, g.column_stride, x, rows, g.k, sums);
    }
    T* y = static_cast<T*>(g.y) + i0;
    for (int64_t i = 0; i < rows; ++i) y[i] = static_cast<T>(bias ? sums[i] + static_cast<float>(bias[(i0 + i) * g.bias_stride]) : sums[i]);
  }
}

}  // namespace

bool has_gemm(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT64: case LAZYT_DTYPE_INT64: case LAZYT_DTYPE_INT32: case LAZYT_DTYPE_INT16: case LAZYT_DTYPE_INT8:
    case LAZYT_DTYPE_UINT8: return true;
    default: return false;
  }
}

void gemm(lazyt_dtype_t dtype, const Gemm& g, int threads) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT64: return run<double>(g, threads, multiply_f64);
    case LAZYT_DTYPE_INT64: return run<int64_t>(g, threads, multiply_i64);
    case LAZYT_DTYPE_INT32: return run<int32_t>(g, threads, multiply_i32);
    case LAZYT_DTYPE_INT16: return run<int16_t>(g, threads, multiply_i16);
    default: return run<int8_t>(g, threads, multiply_i8);  // products wrap alike, signed or not
  }
}

void gemv(lazyt_dtype_t dtype, const Gemv& g, int threads) {
  if (dtype == LAZYT_DTYPE_BFLOAT16) return run<BFloat16>(g, threads, dots_bf16, columns_bf16);
  run<float>(g, threads, dots_f32, columns_f32);
}

}  // namespace lazyt::onednn
