#include "gemm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "clones.h"
#include "floats.h"
#include "products.h"
#include "rows.h"
#include "team.h"

namespace lazyt::onednn {
namespace {

// What products of T are added up in: integers wrap around.
template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>,
                               std::conditional_t<std::is_same_v<T, double>, double, float>>;

// ---- Any element type: b packed to panels as wide as two vectors

constexpr int64_t kDepth = 192, kBlock = 256;
// Floats: a packed, too, so many rows side by side: rows of a matrix often lie in the same few lines of the first-level
// cache, each in a page of its own. It pays if as many panels are multiplied.
constexpr int64_t kTall = 8, kPanelsToPack = 4;

template <class T>
struct Multiply {
  TileGemm<T> plain, turned;  // turned: null if there is none
};

template <class T>
bool packs_rows(const Gemm& g) {
  return std::is_floating_point_v<T> && g.m >= kTall && g.n >= kPanelsToPack * kPanel<T>;
}

// Pieces of work along the columns: as many as keep threads busy, as each packs its rows for itself.
int64_t shares(const Gemm& g, int64_t panels, int threads) {
  return threads == 1 ? 1 : std::min(panels, pieces(4 * threads, g.batch * pieces(g.m, kBlock)));
}

template <class T>
const T* element(const Matrix& m, int64_t batch, int64_t row, int64_t column) {
  return static_cast<const T*>(m.data) + batch * m.batch_stride + row * m.row_stride + column * m.column_stride;
}

template <class T>
void pack_panel(const Matrix& b, const T* from, int64_t depth, int64_t width, T* panel) {
  constexpr int64_t columns = kPanel<T>;
  if (width < columns) std::fill_n(panel, depth * columns, T(0));
  if constexpr (sizeof(T) >= 4) {
    if (b.column_stride != 1) return transpose(panel, columns, from, b.column_stride, width, depth);
  }
  if (width == columns)  // of a known size, so without a call each
    for (int64_t k = 0; k < depth; ++k) {
      const T* row = from + k * b.row_stride;
      // The next panel's: rows lie in as many pages, so that no CPU foresees them.
      __builtin_prefetch(row + columns);
      __builtin_prefetch(row + columns + columns / 2);
      std::memcpy(panel + k * columns, row, sizeof(T) * columns);
    }
  else
    for (int64_t k = 0; k < depth; ++k) std::copy_n(from + k * b.row_stride, width, panel + k * columns);
}

template <class T>
void pack_rows(const Matrix& a, const T* from, int64_t rows, int64_t depth, T* to) {
  if constexpr (std::is_floating_point_v<T>) {
    for (int64_t i = 0; i < rows; i += kTall, to += kTall * depth) {
      const int64_t some = std::min(kTall, rows - i);
      if (a.column_stride == 1)
        transpose(to, some, from + i * a.row_stride, a.row_stride, some, depth);
      else
        for (int64_t k = 0; k < depth; ++k) std::copy_n(from + i + k * a.column_stride, some, to + k * some);
    }
  }
}

// c = beta * addend, of a block.
template <class T>
void begin(const Gemm& g, T beta, const T* addend, T* c, int64_t rows, int64_t width) {
  for (int64_t i = 0; i < rows; ++i) {
    T* row = c + i * g.n;
    const T* from = addend + i * g.addend.row_stride;
    if (beta == 0)
      std::fill_n(row, width, T(0));
    else if (beta == 1 && g.addend.column_stride == 1)
      std::copy_n(from, width, row);
    else
      for (int64_t j = 0; j < width; ++j)
        row[j] = static_cast<T>(static_cast<Sum<T>>(beta) * static_cast<Sum<T>>(from[j * g.addend.column_stride]));
  }
}

template <class T>
void run(const Gemm& g, int threads, Multiply<T> multiply, std::byte* scratch) {
  constexpr int64_t columns = kPanel<T>;
  const bool large = static_cast<double>(g.batch) * static_cast<double>(g.m * g.n) * static_cast<double>(g.k) > 1e6;
  if (!large) threads = 1;
  const bool packs = packs_rows<T>(g), is_turned = g.a.column_stride != 1;
  const int64_t row_blocks = pieces(g.m, kBlock), panels = pieces(g.n, columns), all = shares(g, panels, threads);
  constexpr bool is_float = std::is_floating_point_v<T>;
  const T alpha = is_float ? static_cast<T>(g.alpha) : static_cast<T>(g.int_alpha);
  const T beta = is_float ? static_cast<T>(g.beta) : static_cast<T>(g.int_beta);
  const bool begun = beta != 0 || g.k == 0;  // c holds what products are added to
  with_team(threads, [&](const Team& team) {
    alignas(64) T panel[kDepth * columns];
    T* packed = packs ? reinterpret_cast<T*>(scratch) + team.rank * kDepth * kBlock : nullptr;
    const int64_t work = g.batch * row_blocks * all;
    for (int64_t w = team.begin(work); w < team.end(work); ++w) {
      const int64_t share = w % all, block = w / all % row_blocks, batch = w / all / row_blocks;
      const int64_t i0 = block * kBlock, rows = std::min(kBlock, g.m - i0);
      const int64_t first = panels * share / all * columns, last = std::min(g.n, panels * (share + 1) / all * columns);
      for (int64_t k0 = 0; k0 < std::max<int64_t>(1, g.k); k0 += kDepth) {
        const int64_t depth = std::min(kDepth, g.k - k0);
        const T* left = element<T>(g.a, batch, i0, k0);
        if (packs) pack_rows(g.a, left, rows, depth, packed);
        for (int64_t j0 = first; j0 < last; j0 += columns) {
          const int64_t width = std::min(columns, last - j0);
          T* c = static_cast<T*>(g.c) + (batch * g.m + i0) * g.n + j0;
          if (begun && k0 == 0) begin(g, beta, element<T>(g.addend, batch, i0, j0), c, rows, width);
          if (depth == 0) continue;
          pack_panel(g.b, element<T>(g.b, batch, k0, j0), depth, width, panel);
          const bool accumulate = begun || k0 > 0;
          if (packs) {
            for (int64_t i = 0; i < rows; i += kTall) {
              const int64_t some = std::min(kTall, rows - i);
              multiply.turned(some, width, depth, alpha, packed + i * depth, some, panel, c + i * g.n, g.n, accumulate);
            }
          } else if (is_turned) {
            multiply.turned(rows, width, depth, alpha, left, g.a.column_stride, panel, c, g.n, accumulate);
          } else {
            multiply.plain(rows, width, depth, alpha, left, g.a.row_stride, panel, c, g.n, accumulate);
          }
        }
      }
    }
  });
}

// ---- One row or column

// Rows are contiguous: four dot products at a time. Of floats they are RowKernels::dots.
template <class T>
LAZYT_INLINE void dots(const T* a, int64_t row_stride, const T* x, int64_t m, int64_t k, Sum<T>* y) {
  using S = Sum<T>;
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) {
    const T *r0 = a + i * row_stride, *r1 = r0 + row_stride, *r2 = r1 + row_stride, *r3 = r2 + row_stride;
    S s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t j = 0; j < k; ++j) {
      const S v = static_cast<S>(x[j]);
      s0 += static_cast<S>(r0[j]) * v;
      s1 += static_cast<S>(r1[j]) * v;
      s2 += static_cast<S>(r2[j]) * v;
      s3 += static_cast<S>(r3[j]) * v;
    }
    y[i] = s0, y[i + 1] = s1, y[i + 2] = s2, y[i + 3] = s3;
  }
  for (; i < m; ++i) {
    const T* row = a + i * row_stride;
    S sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < k; ++j) sum += static_cast<S>(row[j]) * static_cast<S>(x[j]);
    y[i] = sum;
  }
}

// Columns are contiguous: y += a[:, j] x[j], four columns at a time.
template <class T>
LAZYT_INLINE void columns(const T* a, int64_t column_stride, const T* x, int64_t m, int64_t k, Sum<T>* y) {
  using S = Sum<T>;
  for (int64_t i = 0; i < m; ++i) y[i] = 0;
  int64_t j = 0;
  for (; j + 4 <= k; j += 4) {
    const T *c0 = a + j * column_stride, *c1 = c0 + column_stride, *c2 = c1 + column_stride, *c3 = c2 + column_stride;
    const S x0 = static_cast<S>(x[j]), x1 = static_cast<S>(x[j + 1]), x2 = static_cast<S>(x[j + 2]), x3 = static_cast<S>(x[j + 3]);
#pragma omp simd
    for (int64_t i = 0; i < m; ++i) y[i] += static_cast<S>(c0[i]) * x0 + static_cast<S>(c1[i]) * x1 + (static_cast<S>(c2[i]) * x2 + static_cast<S>(c3[i]) * x3);
  }
  for (; j < k; ++j) {
    const T* column = a + j * column_stride;
    const S v = static_cast<S>(x[j]);
#pragma omp simd
    for (int64_t i = 0; i < m; ++i) y[i] += static_cast<S>(column[i]) * v;
  }
}

#define LAZYT_DOTS(T, name) \
  LAZYT_CLONES void dots_##name(const T* a, int64_t rs, const T* x, int64_t m, int64_t k, Sum<T>* y) { dots(a, rs, x, m, k, y); }
#define LAZYT_COLUMNS(T, name) \
  LAZYT_CLONES void columns_##name(const T* a, int64_t cs, const T* x, int64_t m, int64_t k, Sum<T>* y) { columns(a, cs, x, m, k, y); }
#define LAZYT_BOTH(T, name) LAZYT_DOTS(T, name) LAZYT_COLUMNS(T, name)
LAZYT_COLUMNS(float, f32)
LAZYT_COLUMNS(double, f64)
LAZYT_COLUMNS(BFloat16, bf16)
LAZYT_BOTH(int64_t, i64)
LAZYT_BOTH(int32_t, i32)
LAZYT_BOTH(int16_t, i16)
LAZYT_BOTH(int8_t, i8)
#undef LAZYT_BOTH
#undef LAZYT_COLUMNS
#undef LAZYT_DOTS

void columns_f16(const Half* a, int64_t cs, const Half* x, int64_t m, int64_t k, float* y) {  // converted by the CPU's instructions
  std::fill_n(y, m, 0.0f);
  for (int64_t j = 0; j < k; ++j) rows().f16.add_scaled(y, a + j * cs, m, x[j]);
}

template <class T, class Dots, class Columns>
void run(const Gemv& g, int threads, Dots dots_of, Columns columns_of, const Vectors& vectors = {}) {
  constexpr int64_t kSums = 3 * 512;  // at a time, in the first-level cache
  static_assert(kMaxVectors * 64 <= kSums);
  const int64_t run = vectors.count <= 3 ? 512 : 64;
  // As many runs for each thread, which are equally long; in sixteens, as kernels take rows.
  const int64_t rounds = std::max<int64_t>(pieces(g.m, run * threads), 1);
  const int64_t size = threads == 1 ? run : std::max<int64_t>(pieces(pieces(g.m, rounds * threads), 16), 1) * 16;
  const T* x = static_cast<const T*>(g.x);
  const T* bias = static_cast<const T*>(g.bias);
  for_each(g.m * g.k > 1 << 16 ? threads : 1, pieces(g.m, size), [&](int64_t piece) {
    const int64_t i0 = piece * size, rows = std::min(size, g.m - i0);
    alignas(64) Sum<T> all[kSums];
    const T* a = static_cast<const T*>(g.a) + i0 * g.row_stride;
    if (vectors.count > 1) {
      if constexpr (std::is_same_v<T, float>)
        lazyt::onednn::rows().f32.dots_of_several(a, g.row_stride, x, vectors.x_stride, vectors.count, rows, g.k, all, run);
    } else if (g.column_stride == 1) {
      dots_of(a, g.row_stride, x, rows, g.k, all);
    } else {
      columns_of(a, g.column_stride, x, rows, g.k, all);
    }
    for (int r = 0; r < vectors.count; ++r) {
      T* y = static_cast<T*>(g.y) + r * vectors.y_stride + i0;
      const Sum<T>* sums = all + r * run;
      const T* added = bias ? bias + r * vectors.bias_stride + i0 * g.bias_stride : nullptr;
      for (int64_t i = 0; i < rows; ++i) y[i] = static_cast<T>(added ? sums[i] + static_cast<Sum<T>>(added[i * g.bias_stride]) : sums[i]);
    }
  });
}

}  // namespace

bool has_gemm(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT64: case LAZYT_DTYPE_INT64: case LAZYT_DTYPE_INT32: case LAZYT_DTYPE_INT16: case LAZYT_DTYPE_INT8:
    case LAZYT_DTYPE_UINT8: return true;
    default: return false;
  }
}

bool reads_turned_left(lazyt_dtype_t dtype) { return dtype == LAZYT_DTYPE_FLOAT64; }
bool reads_turned_right(lazyt_dtype_t dtype) { return lazyt_dtype_size(dtype) >= 4; }

size_t gemm_scratch(lazyt_dtype_t dtype, const Gemm& g, int threads) {
  if (dtype != LAZYT_DTYPE_FLOAT64 || !packs_rows<double>(g)) return 0;
  return static_cast<size_t>(threads * kDepth * kBlock) * sizeof(double);
}

void gemm(lazyt_dtype_t dtype, const Gemm& g, int threads, std::byte* scratch) {
  const Products& kernels = products();
  switch (dtype) {  // products wrap alike, signed or not
    case LAZYT_DTYPE_FLOAT64: return run<double>(g, threads, {kernels.tile_f64.gemm, kernels.tile_f64.gemm_turned}, scratch);
    case LAZYT_DTYPE_INT64: return run<uint64_t>(g, threads, {kernels.gemm_u64, nullptr}, scratch);
    case LAZYT_DTYPE_INT32: return run<uint32_t>(g, threads, {kernels.gemm_u32, nullptr}, scratch);
    case LAZYT_DTYPE_INT16: return run<uint16_t>(g, threads, {kernels.gemm_u16, nullptr}, scratch);
    default: return run<uint8_t>(g, threads, {kernels.gemm_u8, nullptr}, scratch);
  }
}

void begin_block(const Gemm& g, float beta, const float* addend, float* c, int64_t rows, int64_t width) { begin(g, beta, addend, c, rows, width); }

void gemm_pairs(const Gemm& g, int threads) { run<uint32_t>(g, threads, {products().gemm_pairs, nullptr}, nullptr); }

void gemvs(const Gemv& g, const Vectors& vectors, int threads) { run<float>(g, threads, rows().f32.dots, columns_f32, vectors); }

void gemv(lazyt_dtype_t dtype, const Gemv& g, int threads) {
  switch (dtype) {
    case LAZYT_DTYPE_BFLOAT16: return run<BFloat16>(g, threads, rows().bf16.dots, columns_bf16);
    case LAZYT_DTYPE_FLOAT16: return run<Half>(g, threads, rows().f16.dots, columns_f16);
    case LAZYT_DTYPE_FLOAT32: return run<float>(g, threads, rows().f32.dots, columns_f32);
    case LAZYT_DTYPE_FLOAT64: return run<double>(g, threads, rows().f64.dots, columns_f64);
    case LAZYT_DTYPE_INT64: return run<int64_t>(g, threads, dots_i64, columns_i64);
    case LAZYT_DTYPE_INT32: return run<int32_t>(g, threads, dots_i32, columns_i32);
    case LAZYT_DTYPE_INT16: return run<int16_t>(g, threads, dots_i16, columns_i16);
    default: return run<int8_t>(g, threads, dots_i8, columns_i8);  // products wrap alike, signed or not
  }
}

}  // namespace lazyt::onednn
