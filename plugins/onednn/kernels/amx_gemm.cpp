#include "amx_gemm.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "amx.h"
#include "products.h"
#include "team.h"

#if defined(__x86_64__) && defined(__linux__)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

namespace lazyt::onednn {
namespace {

constexpr int kSide = Tiles::kSide;
// Of what is packed at a time: b's part stays in the second-level cache while a's passes by.
constexpr int64_t kRowsAtOnce = 1024, kColumnsAtOnce = 256, kDepthAtOnce = 512;

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

// 32 x 32 elements as rows to pack: of a left operand [line][element], of a right one [element][line]. They lie in the
// operand, or in a copy: turned, or filled up with zeros.
struct Source {
  const float* row[kSide];
};
Source rows_at(const float* data, int64_t stride) {
  Source rows;
  for (int i = 0; i < kSide; ++i) rows.row[i] = data + i * stride;
  return rows;
}

template <bool is_right>
AVX512 Source rows_of(const Lines& from, int64_t line, int64_t d, float* copy) {
  const float* data = from.data + line * from.line_stride + d / from.run * from.run_stride + d % from.run * from.depth_stride;
  const int64_t lines = std::min<int64_t>(kSide, from.lines - line), depth = std::min<int64_t>(kSide, from.depth - d);
  const int64_t rows = is_right ? depth : lines, columns = is_right ? lines : depth;
  const int64_t row_stride = is_right ? from.depth_stride : from.line_stride;
  const int64_t column_stride = is_right ? from.line_stride : from.depth_stride;
  if (column_stride != 1) {
    if (rows < kSide || columns < kSide) std::fill_n(copy, kSide * kSide, 0.0f);
    transpose(copy, kSide, data, column_stride, columns, rows);
  } else if (rows < kSide || columns < kSide) {
    copy_block(data, row_stride, rows, columns, copy);
  } else {
    return rows_at(data, row_stride);
  }
  return rows_at(copy, kSide);
}

// Of patches a row is always a pixel.
template <bool is_right>
Source rows_of(const Patches& from, int64_t line, int64_t d, float*) {
  alignas(64) static const float kNone[kSide] = {};
  const int64_t first_row = is_right ? d : line, column = is_right ? line : d;
  const int64_t tap = column / from.channels, channel = column % from.channels;
  int64_t image = first_row / from.pixels, pixel = first_row % from.pixels;
  Source rows;
  for (const float*& row : rows.row) {
    const int32_t source = image < from.images ? from.sources[pixel * from.taps + tap] : -1;
    row = source < 0 ? kNone : from.data + image * from.image_size + source * from.channels + channel;
    if (++pixel == from.pixels) pixel = 0, ++image;
  }
  return rows;
}

// What multiply-adds read: of a left operand [line][element], of a right one [element][line].
struct PlainBlock {
  alignas(64) float rows[kSide][kSide];
};

template <bool is_right>
AVX512 void pack_block(const Source& rows, SplitBlock& out, Largest& largest) {
  for (int i = 0; i < 16; ++i) {
    for (int tile = 0; tile < 2; ++tile) {
      const float* x = is_right ? rows.row[i] + 16 * tile : rows.row[i + 16 * tile];
      const float* y = is_right ? rows.row[i + 16] + 16 * tile : x + 16;
      split(_mm512_loadu_ps(x), _mm512_loadu_ps(y), tile, i, out, largest);
    }
  }
}
template <bool is_right>
void pack_block(const Source& rows, PlainBlock& out, Largest&) {
  for (int i = 0; i < kSide; ++i) std::copy_n(rows.row[i], kSide, out.rows[i]);
}

// 32 lines from `line`, elements from `begin` to `end`, as blocks one after the other. Gives the bits of the largest
// magnitude, where it counts.
template <bool is_right, class Operand, class Block>
AVX512 uint32_t pack(const Operand& from, int64_t line, int64_t begin, int64_t end, Block* out) {
  alignas(64) float copy[kSide * kSide];
  Largest largest{_mm512_setzero_si512()};
  for (int64_t d = begin; d < end; d += kSide, ++out)
    pack_block<is_right>(rows_of<is_right>(from, line, d, copy), *out, largest);
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
static_assert(sizeof(PlainBlock) <= sizeof(SplitBlock));

// c[m x n], dense, = alpha * (left x right) + beta * addend
struct Result {
  int64_t m, n, k;
  float* c;
  float alpha, beta;
  const float* addend;  // or null
  int64_t row_stride, column_stride;
};

void multiply(const Tiles& tiles, int64_t blocks, const SplitBlock* left, const SplitBlock* right, float* out) {
  tiles.multiply(blocks, left, right, out);
}
void multiply(const Tiles&, int64_t blocks, const PlainBlock* left, const PlainBlock* right, float* out) {
  for (int64_t i = 0; i < blocks; ++i)
    products().tile<float>().gemm(kSide, kSide, kSide, 1, left[i].rows[0], kSide, right[i].rows[0], out, kSide, i > 0);
}

// False: the operands are not in range; c holds nothing of use.
template <class Block, class Left, class Right>
bool multiply(const Left& a, const Right& b, const Result& r, const Tiles& tiles, const Team& team, Range& range, std::byte* scratch) {
  const Shape shape(r.m, r.n, r.k);
  auto* left = reinterpret_cast<Block*>(scratch);
  Block* right = left + shape.left_blocks();
  alignas(64) float results[kSide * kSide];
  for (int64_t m0 = 0; m0 < r.m; m0 += shape.rows) {
    const int64_t row_panels = pieces(std::min(shape.rows, r.m - m0), kSide);
    for (int64_t k0 = 0; k0 < r.k; k0 += shape.depth) {
      const int64_t k1 = std::min(r.k, k0 + shape.depth), blocks = pieces(k1 - k0, kSide);
      for (int64_t i = team.rank; i < row_panels; i += team.size)
        Range::widen(range.a, pack<false>(a, m0 + i * kSide, k0, k1, left + i * blocks));
      for (int64_t n0 = 0; n0 < r.n; n0 += shape.columns) {
        const int64_t column_panels = pieces(std::min(shape.columns, r.n - n0), kSide);
        for (int64_t j = team.rank; j < column_panels; j += team.size)
          Range::widen(range.b, pack<true>(b, n0 + j * kSide, k0, k1, right + j * blocks));
        team.wait();
        const bool holds = range.holds(r.k);
        team.wait();  // all know before any goes on
        if (!holds) return false;
        for (int64_t t = team.rank; t < row_panels * column_panels; t += team.size) {
          const int64_t i = t / column_panels, j = t % column_panels;
          multiply(tiles, blocks, left + i * blocks, right + j * blocks, results);
          const int64_t row = m0 + i * kSide, column = n0 + j * kSide;
          Finish f{k0 > 0, k1 == r.k, r.alpha, r.beta, nullptr, r.row_stride, r.column_stride};
          if (r.addend) f.addend = r.addend + row * f.row_stride + column * f.column_stride;
          finish(f, results, r.c + row * r.n + column, r.n, std::min<int64_t>(kSide, r.m - row), std::min<int64_t>(kSide, r.n - column));
        }
        team.wait();  // for what the next packs over
      }
    }
  }
  return true;
}

// In parts, or by multiply-adds where these do not do.
template <class Left, class Right>
void multiply(const Left& a, const Right& b, const Result& r, const Tiles& tiles, const Team& team, Range& range, std::byte* scratch) {
  if (team.rank == 0) range.reset();
  team.wait();
  if (multiply<SplitBlock>(a, b, r, tiles, team, range, scratch)) return;
  team.wait();  // who comes last has seen why
  if (team.rank == 0) range.reset();
  team.wait();
  multiply<PlainBlock>(a, b, r, tiles, team, range, scratch);
}

template <class Left, class Right>
void multiply(const Left& a, const Right& b, const Result& r, int threads, std::byte* scratch) {
  Range range;
  with_team(threads, [&](const Team& team) {
    const Tiles tiles;
    multiply(a, b, r, tiles, team, range, scratch);
  });
}

}  // namespace

size_t amx_scratch(int64_t batch, int64_t m, int64_t n, int64_t k, int threads) {
  return static_cast<size_t>(Shape(m, n, k).bytes() * std::min<int64_t>(batch, threads));
}

void amx_gemm(const Gemm& g, int threads, std::byte* scratch) {
  // Small products one thread each, else all threads at one.
  const bool together = g.batch < threads;
  const int64_t bytes = together ? 0 : Shape(g.m, g.n, g.k).bytes();
  Range shared;
  with_team(threads, [&](const Team& all) {
    const Tiles tiles;
    Range own;
    const Team team = together ? all : Team{0, 1};
    for (int64_t batch = together ? 0 : all.rank; batch < g.batch; batch += together ? 1 : all.size) {
      auto matrix = [&](const Matrix& m) { return static_cast<const float*>(m.data) + batch * m.batch_stride; };
      const Lines a{matrix(g.a), g.m, g.k, g.a.row_stride, g.a.column_stride, g.k, 0};
      const Lines b{matrix(g.b), g.n, g.k, g.b.column_stride, g.b.row_stride, g.k, 0};
      const Result r{g.m, g.n, g.k, static_cast<float*>(g.c) + batch * g.m * g.n, static_cast<float>(g.alpha), static_cast<float>(g.beta),
                     g.beta == 0 ? nullptr : matrix(g.addend), g.addend.row_stride, g.addend.column_stride};
      multiply(a, b, r, tiles, team, together ? shared : own, scratch + all.rank * bytes);
      team.wait();  // before the next resets the range
    }
  });
}

void amx_gemm(const Patches& a, const Lines& b, const float* bias, float* c, int threads, std::byte* scratch) {
  multiply(a, b, Result{a.rows(), b.lines, b.depth, c, 1, 1, bias, 0, 1}, threads, scratch);
}

void amx_gemm(const Lines& a, const Patches& b, float* c, int threads, std::byte* scratch) {
  multiply(a, b, Result{a.lines, b.columns(), a.depth, c, 1, 0, nullptr, 0, 0}, threads, scratch);
}

namespace {

// Nanoseconds, fitted to 525 shapes of 16 to 1,024 on a Xeon at 3.6 GHz, within 10 % of most. Only their ratio to what
// oneDNN takes there counts. per_left: of an element that is packed.
double amx_time(int64_t m, int64_t n, int64_t k, double per_left, double per_right) {
  auto padded = [](int64_t size) { return static_cast<double>(pieces(size, kSide) * kSide); };
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n), depth = static_cast<double>(k);
  return 320 + 0.0062 * padded(m) * padded(n) * padded(k) + per_left * rows * depth +
         per_right * depth * columns * static_cast<double>(pieces(m, kRowsAtOnce)) + 0.15 * rows * columns;
}
constexpr double kPacked = 0.2, kPatches = 0.45;

}  // namespace

bool prefers_amx(int64_t m, int64_t n, int64_t k, bool packed) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n), depth = static_cast<double>(k);
  const double fma = 400 + 0.0114 * rows * columns * depth + (packed ? 0 : 0.086 * depth * columns);
  return Tiles::available() && amx_time(m, n, k, kPacked, kPacked) < fma;
}

bool prefers_amx_patches(int64_t rows, int64_t columns, int64_t others) {
  const double fma = 0.0118 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(others);
  return Tiles::available() && amx_time(rows, others, columns, kPatches, kPacked) < fma;
}

}  // namespace lazyt::onednn

#else

namespace lazyt::onednn {
bool prefers_amx(int64_t, int64_t, int64_t, bool) { return false; }
bool prefers_amx_patches(int64_t, int64_t, int64_t) { return false; }
size_t amx_scratch(int64_t, int64_t, int64_t, int64_t, int) { return 0; }
void amx_gemm(const Gemm&, int, std::byte*) {}
void amx_gemm(const Patches&, const Lines&, const float*, float*, int, std::byte*) {}
void amx_gemm(const Lines&, const Patches&, float*, int, std::byte*) {}
}  // namespace lazyt::onednn

#endif
