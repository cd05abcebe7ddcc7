#include "split_gemm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <omp.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

namespace lazyt::onednn {
namespace {

constexpr int kSide = Tiles::kSide;
// Of what is packed at a time: b's part stays in the second-level cache while a's passes by.
constexpr int64_t kRowsAtOnce = 1024, kColumnsAtOnce = 256, kDepthAtOnce = 512;

int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

// ---- Packing

// The first n of 16 elements.
inline __mmask16 first(int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1); }

// to[32 x 32] = from[rows x columns] and zeros.
AVX512 void copy_block(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  for (int64_t i = 0; i < kSide; ++i) {
    const float* row = from + (i < rows ? i * stride : 0);
    _mm512_store_ps(to + i * kSide, _mm512_maskz_loadu_ps(i < rows ? first(columns) : 0, row));
    _mm512_store_ps(to + i * kSide + 16, _mm512_maskz_loadu_ps(i < rows ? first(columns - 16) : 0, row + (columns > 16 ? 16 : 0)));
  }
}

// to[j][i] = from[i][j] of 16 x 16, of which there are so many rows and columns; zeros else.
AVX512 void turn(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  __m512 a[16], b[16];
  const __mmask16 some = first(columns);
  for (int i = 0; i < 16; ++i) a[i] = i < rows ? _mm512_maskz_loadu_ps(some, from + i * stride) : _mm512_setzero_ps();
  for (int i = 0; i < 16; i += 2) {  // pairs of rows
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // fours: a[i + j] holds columns j, j + 4, j + 8, j + 12
    for (int j = 0; j < 2; ++j) {
      const __m512d x = _mm512_castps_pd(b[i + j]), y = _mm512_castps_pd(b[i + j + 2]);
      a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  for (int j = 0; j < 4; ++j) {
    b[j] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0x88);       // rows 0 to 7 of columns j, j + 8
    b[j + 4] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0xdd);   // of columns j + 4, j + 12
    b[j + 8] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0x88);
    b[j + 12] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0xdd);
  }
  for (int j = 0; j < 8; ++j) {
    _mm512_store_ps(to + j * kSide, _mm512_shuffle_f32x4(b[j], b[j + 8], 0x88));
    _mm512_store_ps(to + (j + 8) * kSide, _mm512_shuffle_f32x4(b[j], b[j + 8], 0xdd));
  }
}

// Bits of the largest magnitudes met, by lane.
struct Largest {
  __m512i bits;
};

// The upper halves of x's and y's words, by turns.
AVX512 inline __m512i upper_halves(__m512i x, __m512i y) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(x, 16), y);
}

// A row of a tile, part by part: x and y by turns. What is left of a number rounded to bf16, and of that rounded again,
// is exact; halves may be rounded up.
AVX512 inline void split(__m512 x, __m512 y, int tile, int row, SplitBlock& out, Largest& largest) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), half = _mm512_set1_epi32(0x8000);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  __m512i a = _mm512_castps_si512(x), b = _mm512_castps_si512(y);
  largest.bits = _mm512_max_epu32(largest.bits, _mm512_and_si512(a, magnitude));
  largest.bits = _mm512_max_epu32(largest.bits, _mm512_and_si512(b, magnitude));
  for (int part = 0; part < 2; ++part) {
    a = _mm512_and_si512(_mm512_add_epi32(a, half), upper);
    b = _mm512_and_si512(_mm512_add_epi32(b, half), upper);
    _mm512_store_si512(out.part[part][tile][row], upper_halves(a, b));
    x = _mm512_sub_ps(x, _mm512_castsi512_ps(a));
    y = _mm512_sub_ps(y, _mm512_castsi512_ps(b));
    a = _mm512_castps_si512(x);
    b = _mm512_castps_si512(y);
  }
  _mm512_store_si512(out.part[2][tile][row], upper_halves(a, b));
}

// A matrix as products take it: lines (rows of a, columns of b), each of `depth` elements that are summed over.
struct Lines {
  const float* data;
  int64_t line_stride, depth_stride;  // one of them is 1
  int64_t lines, depth;
};

// Lines from `line`, elements from `begin` to `end`, as blocks one after the other. as_pairs: as the right operand. Gives the
// bits of the largest magnitude.
template <bool as_pairs>
AVX512 uint32_t pack(const Lines& from, int64_t line, int64_t begin, int64_t end, SplitBlock* out) {
  alignas(64) float turned[kSide * kSide];
  Largest largest{_mm512_setzero_si512()};
  const int64_t lines = std::min<int64_t>(kSide, from.lines - line);
  // Rows of what is read below: lines, or, as_pairs, elements of all lines.
  const int64_t row_stride = as_pairs ? from.depth_stride : from.line_stride;
  const int64_t column_stride = as_pairs ? from.line_stride : from.depth_stride;
  for (int64_t d = begin; d < end; d += kSide, ++out) {
    const float* source = from.data + line * from.line_stride + d * from.depth_stride;
    const int64_t depth = std::min<int64_t>(kSide, end - d);
    const int64_t rows = as_pairs ? depth : lines, columns = as_pairs ? lines : depth;
    int64_t stride = row_stride;
    if (column_stride != 1) {
      for (int64_t i = 0; i < kSide; i += 16)
        for (int64_t j = 0; j < kSide; j += 16)
          turn(source + (i < columns ? i * column_stride : 0) + (j < rows ? j : 0), column_stride, columns - i, rows - j, turned + j * kSide + i);
      source = turned;
      stride = kSide;
    } else if (rows < kSide || columns < kSide) {
      copy_block(source, stride, rows, columns, turned);
      source = turned;
      stride = kSide;
    }
    if constexpr (as_pairs) {
      for (int row = 0; row < 16; ++row, source += stride)
        for (int tile = 0; tile < 2; ++tile)
          split(_mm512_loadu_ps(source + 16 * tile), _mm512_loadu_ps(source + 16 * stride + 16 * tile), tile, row, *out, largest);
    } else {
      for (int tile = 0; tile < 2; ++tile)
        for (int row = 0; row < 16; ++row, source += stride)
          split(_mm512_loadu_ps(source), _mm512_loadu_ps(source + 16), tile, row, *out, largest);
    }
  }
  return _mm512_reduce_max_epu32(largest.bits);
}

// The largest magnitudes so far, as bits.
struct Range {
  std::atomic<uint32_t> a{0}, b{0};

  static void widen(std::atomic<uint32_t>& largest, uint32_t bits) {
    uint32_t before = largest.load(std::memory_order_relaxed);
    while (before < bits && !largest.compare_exchange_weak(before, bits, std::memory_order_relaxed)) {
    }
  }
  void reset() { a = 0, b = 0; }
  // Whether parts stand for all elements, and no sum of k products of theirs overflows.
  bool holds(int64_t k) const {
    constexpr uint32_t kInfinity = 0x7f800000;
    constexpr int kLeast = -90;
    const uint32_t left = a.load(std::memory_order_relaxed), right = b.load(std::memory_order_relaxed);
    if (left >= kInfinity || right >= kInfinity) return false;
    if (left == 0 || right == 0) return true;
    const int x = static_cast<int>(left >> 23) - 127, y = static_cast<int>(right >> 23) - 127;
    const int sum = x + y + 2 + std::bit_width(static_cast<uint64_t>(k)) + 1;  // the exponent of any sum of parts is less
    return x < 127 && y < 127 && sum < 127 && x >= kLeast && y >= kLeast && x + y >= kLeast;
  }
};

// ---- What becomes of a block of results

struct Finish {
  bool begun, last;  // c holds the sum over smaller k; this is the last one
  float alpha, beta;
  const float* addend;  // at the block, or null
  int64_t row_stride, column_stride;
};

// c[rows x columns] of a block.
AVX512 void finish(const Finish& f, const float* block, float* c, int64_t ldc, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i, block += kSide, c += ldc) {
    for (int64_t j = 0; j < columns; j += 16) {
      const __mmask16 some = first(columns - j);
      __m512 v = _mm512_load_ps(block + j);
      if (f.begun) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(some, c + j));
      if (f.last) {
        if (f.alpha != 1) v = _mm512_mul_ps(v, _mm512_set1_ps(f.alpha));
        if (f.addend) {
          const float* from = f.addend + i * f.row_stride + j * f.column_stride;
          __m512 added;
          if (f.column_stride == 1) {
            added = _mm512_maskz_loadu_ps(some, from);
          } else {
            alignas(64) float gathered[16] = {};
            for (int64_t e = 0; e < std::min<int64_t>(16, columns - j); ++e) gathered[e] = from[e * f.column_stride];
            added = _mm512_load_ps(gathered);
          }
          v = _mm512_fmadd_ps(added, _mm512_set1_ps(f.beta), v);
        }
      }
      _mm512_mask_storeu_ps(c + j, some, v);
    }
  }
}

// ---- One product

struct Shape {
  int64_t rows, columns, depth;  // packed at a time

  Shape(int64_t m, int64_t n, int64_t k)
      : rows(std::min(kRowsAtOnce, m)), columns(std::min(kColumnsAtOnce, n)), depth(std::min(kDepthAtOnce, k)) {}
  int64_t left_blocks() const { return pieces(rows, kSide) * pieces(depth, kSide); }
  int64_t right_blocks() const { return pieces(columns, kSide) * pieces(depth, kSide); }
  int64_t bytes() const { return (left_blocks() + right_blocks()) * static_cast<int64_t>(sizeof(SplitBlock)); }
};

// The part of a product that is thread `rank`'s of a team that works on it together; waits for the others.
struct Team {
  int rank, size;
  void wait() const {
    if (size > 1) {
#pragma omp barrier
    }
  }
};

bool multiply(const Gemm& g, int64_t batch, const Tiles& tiles, const Team& team, Range& range, SplitBlock* scratch) {
  const Shape shape(g.m, g.n, g.k);
  const Lines a{static_cast<const float*>(g.a.data) + batch * g.a.batch_stride, g.a.row_stride, g.a.column_stride, g.m, g.k};
  const Lines b{static_cast<const float*>(g.b.data) + batch * g.b.batch_stride, g.b.column_stride, g.b.row_stride, g.n, g.k};
  float* c = static_cast<float*>(g.c) + batch * g.m * g.n;
  const float* addend = g.beta == 0 ? nullptr : static_cast<const float*>(g.addend.data) + batch * g.addend.batch_stride;
  SplitBlock *left = scratch, *right = scratch + shape.left_blocks();
  alignas(64) float results[kSide * kSide];
  for (int64_t m0 = 0; m0 < g.m; m0 += shape.rows) {
    const int64_t row_panels = pieces(std::min(shape.rows, g.m - m0), kSide);
    for (int64_t k0 = 0; k0 < g.k; k0 += shape.depth) {
      const int64_t k1 = std::min(g.k, k0 + shape.depth), blocks = pieces(k1 - k0, kSide);
      for (int64_t i = team.rank; i < row_panels; i += team.size)
        Range::widen(range.a, pack<false>(a, m0 + i * kSide, k0, k1, left + i * blocks));
      for (int64_t n0 = 0; n0 < g.n; n0 += shape.columns) {
        const int64_t column_panels = pieces(std::min(shape.columns, g.n - n0), kSide);
        for (int64_t j = team.rank; j < column_panels; j += team.size)
          Range::widen(range.b, pack<true>(b, n0 + j * kSide, k0, k1, right + j * blocks));
        team.wait();
        const bool holds = range.holds(g.k);
        team.wait();  // all know before any goes on
        if (!holds) return false;
        for (int64_t t = team.rank; t < row_panels * column_panels; t += team.size) {
          const int64_t i = t / column_panels, j = t % column_panels;
          tiles.multiply(blocks, left + i * blocks, right + j * blocks, results);
          const int64_t row = m0 + i * kSide, column = n0 + j * kSide;
          Finish f{k0 > 0, k1 == g.k, static_cast<float>(g.alpha), static_cast<float>(g.beta), nullptr, g.addend.row_stride, g.addend.column_stride};
          if (addend) f.addend = addend + row * f.row_stride + column * f.column_stride;
          finish(f, results, c + row * g.n + column, g.n, std::min<int64_t>(kSide, g.m - row), std::min<int64_t>(kSide, g.n - column));
        }
        team.wait();  // for what the next packs over
      }
    }
  }
  return true;
}

}  // namespace

size_t split_scratch(int64_t batch, int64_t m, int64_t n, int64_t k, int threads) {
  return static_cast<size_t>(Shape(m, n, k).bytes() * std::min<int64_t>(batch, threads));
}

bool split_gemm(const Gemm& g, int threads, std::byte* scratch) {
  std::atomic<bool> holds{true};
  // Small products one thread each, else all threads at one.
  const bool together = g.batch < threads;
  const int64_t bytes = together ? 0 : Shape(g.m, g.n, g.k).bytes();
  Range range;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Tiles tiles;
    const int rank = omp_get_thread_num(), size = omp_get_num_threads();
    auto* mine = reinterpret_cast<SplitBlock*>(scratch + rank * bytes);
    const Team team = together ? Team{rank, size} : Team{0, 1};
    for (int64_t batch = together ? 0 : rank; batch < g.batch; batch += together ? 1 : size) {
      Range own;
      if (together) {
        if (rank == 0) range.reset();
        team.wait();
      }
      if (!multiply(g, batch, tiles, team, together ? range : own, mine)) {
        holds = false;
        break;
      }
    }
  }
  return holds;
}

// Nanoseconds of both, fitted to 525 shapes of 16 to 1,024 on a Xeon at 3.6 GHz, within 10 % of most. Only their ratio counts.
bool prefers_split(int64_t m, int64_t n, int64_t k, bool packed) {
  if (!Tiles::available()) return false;
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n), depth = static_cast<double>(k);
  auto padded = [](int64_t size) { return static_cast<double>(pieces(size, kSide) * kSide); };
  const double split = 320 + 0.0062 * padded(m) * padded(n) * padded(k) + 0.18 * rows * depth +
                       0.2 * depth * columns * static_cast<double>(pieces(m, kRowsAtOnce)) + 0.15 * rows * columns;
  const double fma = 400 + 0.0114 * rows * columns * depth + (packed ? 0 : 0.086 * depth * columns);
  return split < fma;
}

}  // namespace lazyt::onednn

#else

namespace lazyt::onednn {
bool prefers_split(int64_t, int64_t, int64_t, bool) { return false; }
size_t split_scratch(int64_t, int64_t, int64_t, int64_t, int) { return 0; }
bool split_gemm(const Gemm&, int, std::byte*) { return false; }
}  // namespace lazyt::onednn

#endif
