// Compiled once for each instruction set (LAZYT_ISA).
#include "products.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "vectors.h"

namespace lazyt::onednn {
namespace {

// ---- tiles of attention

// c + the products of a's and b's lower halves, and of their upper ones, as int16.
INLINE Vec<uint32_t> fma_pairs(Vec<uint32_t> a, Vec<uint32_t> b, Vec<uint32_t> c) {
#if defined(__AVX512F__)
  return c + std::bit_cast<Vec<uint32_t>>(_mm512_madd_epi16(std::bit_cast<__m512i>(a), std::bit_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return c + std::bit_cast<Vec<uint32_t>>(_mm256_madd_epi16(std::bit_cast<__m256i>(a), std::bit_cast<__m256i>(b)));
#else
  const auto low = [](Vec<uint32_t> x) { return std::bit_cast<Vec<uint32_t>>(std::bit_cast<Vec<int32_t>>(x << 16) >> 16); };
  const auto high = [](Vec<uint32_t> x) { return std::bit_cast<Vec<uint32_t>>(std::bit_cast<Vec<int32_t>>(x) >> 16); };
  return c + low(a) * low(b) + high(a) * high(b);
#endif
}

// What products add up in, a vector of it.
template <class C>
struct Sum {
  Vec<C> value{};
  INLINE void add(Vec<C> a, Vec<C> b) { value = fma(a, b, value); }
  INLINE Vec<C> all() const { return value; }
};
#if defined(__AVX2__) && !defined(__AVX512DQ__)
// Without an instruction that multiplies 64 bits: products of the lower halves, and, apart, those of lower by upper ones, whose upper half nobody sees.
template <>
struct Sum<uint64_t> {
  Vec<uint64_t> lower{}, crossed{};
  INLINE void add(Vec<uint64_t> a, Vec<uint64_t> b) {
    const auto product = [](Vec<uint64_t> x, Vec<uint64_t> y) __attribute__((always_inline)) {
      return std::bit_cast<Vec<uint64_t>>(_mm256_mul_epu32(std::bit_cast<__m256i>(x), std::bit_cast<__m256i>(y)));
    };
    const auto upper = [](Vec<uint64_t> x) __attribute__((always_inline)) {
      return std::bit_cast<Vec<uint64_t>>(_mm256_shuffle_epi32(std::bit_cast<__m256i>(x), 0xf5));
    };
    lower += product(a, b);
    crossed += product(a, upper(b));
    crossed += product(upper(a), b);
  }
  INLINE Vec<uint64_t> all() const { return lower + (crossed << 32); }
};
#endif
// Rows whose sums fill the registers beside their operands.
template <class C>
constexpr int kRowsAtOnce = kVectorBytes == 64 ? 8 : sizeof(Sum<C>) > sizeof(Vec<C>) ? 2 : 4;

// kM rows of two vectors of the output stay in registers while k runs. kTurned: element (r, p) of a lies at a[p * lda + r].
template <class C, int kM, bool kTurned, bool kPairs>
INLINE void gemm_block(int64_t n, int64_t k, C alpha, const C* a, int64_t lda, const C* panel, C* out, int64_t ldo, bool accumulate) {
  constexpr int w = kWidth<C>;
  const Full<C> full;
  Sum<C> sums[kM][2];
  if (accumulate && k >= 128) {  // by then it is there
#pragma GCC unroll 8
    for (int r = 0; r < kM; ++r) __builtin_prefetch(out + r * ldo, 1), __builtin_prefetch(out + r * ldo + w, 1);
  }
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p) {
    const Vec<C> b0 = load(panel + p * kPanel<C>, full), b1 = load(panel + p * kPanel<C> + w, full);
#pragma GCC unroll 8
    for (int r = 0; r < kM; ++r) {
      const Vec<C> x = splat_from(a + (kTurned ? p * lda + r : r * lda + p));
      if constexpr (kPairs) {
        sums[r][0].value = fma_pairs(x, b0, sums[r][0].value);
        sums[r][1].value = fma_pairs(x, b1, sums[r][1].value);
      } else {
        sums[r][0].add(x, b0);
        sums[r][1].add(x, b1);
      }
    }
  }
  auto put = [&](C* o, Vec<C> v, auto m) __attribute__((always_inline)) { store(o, accumulate ? v + load(o, m) : v, m); };
#pragma GCC unroll 8
  for (int r = 0; r < kM; ++r) {
    C* o = out + r * ldo;
    const Vec<C> v0 = sums[r][0].all() * alpha, v1 = sums[r][1].all() * alpha;
    if (n >= 2 * w) {
      put(o, v0, full);
      put(o + w, v1, full);
    } else {
      const int rest = static_cast<int>(n);
      put(o, v0, rest < w ? rest : w);
      put(o + w, v1, rest < w ? 0 : rest - w);
    }
  }
}
template <class C, bool kTurned, bool kPairs, int kM>
INLINE int64_t gemm_rows(int64_t i, int64_t m, int64_t n, int64_t k, C alpha, const C* a, int64_t lda, const C* panel, C* out, int64_t ldo,
                         bool accumulate) {
  for (; i + kM <= m; i += kM)
    for (int64_t j = 0; j < n; j += 2 * kWidth<C>)
      gemm_block<C, kM, kTurned, kPairs>(n - j, k, alpha, a + (kTurned ? i : i * lda), lda, panel + j, out + i * ldo + j, ldo, accumulate);
  return i;
}
template <class C, bool kTurned, bool kPairs = false>
void gemm(int64_t m, int64_t n, int64_t k, C alpha, const C* a, int64_t lda, const C* panel, C* out, int64_t ldo, bool accumulate) {
  int64_t i = 0;
  if constexpr (kRowsAtOnce<C> > 4) i = gemm_rows<C, kTurned, kPairs, kRowsAtOnce<C>>(i, m, n, k, alpha, a, lda, panel, out, ldo, accumulate);
  i = gemm_rows<C, kTurned, kPairs, std::min(4, kRowsAtOnce<C>)>(i, m, n, k, alpha, a, lda, panel, out, ldo, accumulate);
  gemm_rows<C, kTurned, kPairs, 1>(i, m, n, k, alpha, a, lda, panel, out, ldo, accumulate);
}

// ---- strips of packed products

template <int kM>
INLINE void strip(int64_t k, float alpha, const float* a, const float* b, int64_t b_step, float* out, int64_t ldo, bool accumulate) {
  constexpr int w = kWidth<float>;
  const Full<float> full;
  Vec<float> sums[kM][2] = {};
#pragma GCC unroll 8
  for (int r = 0; r < kM; ++r) __builtin_prefetch(out + r * ldo, 1);
#pragma GCC unroll 4  // the instructions of the loop itself count where a second program is on the core
  for (int64_t p = 0; p < k; ++p, a += kM, b += b_step) {
    const Vec<float> b0 = load(b, full), b1 = load(b + w, full);
#pragma GCC unroll 8
    for (int r = 0; r < kM; ++r) {
      const Vec<float> x = splat_from(a + r);
      sums[r][0] = fma(x, b0, sums[r][0]);
      sums[r][1] = fma(x, b1, sums[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kM; ++r) {
    float* o = out + r * ldo;
    const Vec<float> v0 = sums[r][0] * alpha, v1 = sums[r][1] * alpha;
    store(o, accumulate ? v0 + load(o, full) : v0, full);
    store(o + w, accumulate ? v1 + load(o + w, full) : v1, full);
  }
}
void strip_of(int rows, int64_t k, float alpha, const float* a, const float* b, int64_t b_step, float* out, int64_t ldo, bool accumulate) {
  static_assert(kStrip == 6);
  switch (rows) {
    case 1: return strip<1>(k, alpha, a, b, b_step, out, ldo, accumulate);
    case 2: return strip<2>(k, alpha, a, b, b_step, out, ldo, accumulate);
    case 3: return strip<3>(k, alpha, a, b, b_step, out, ldo, accumulate);
    case 4: return strip<4>(k, alpha, a, b, b_step, out, ldo, accumulate);
    case 5: return strip<5>(k, alpha, a, b, b_step, out, ldo, accumulate);
    default: return strip<6>(k, alpha, a, b, b_step, out, ldo, accumulate);
  }
}

// Rows i and i + w / 2 are zipped to rows 2 i and 2 i + 1: an element's place, row and column as one number, is rotated by a
// bit, and after as many times as a row's number has bits they have changed places.
template <class C>
INLINE void transpose_square(C* out, int64_t out_row, const C* in, int64_t in_row) {
  constexpr int w = kWidth<C>;
  Vec<C> v[w];
#pragma GCC unroll 16
  for (int i = 0; i < w; ++i) v[i] = load(in + i * in_row, Full<C>{});
  transpose<C>(v);
#pragma GCC unroll 16
  for (int i = 0; i < w; ++i) store(out + i * out_row, v[i], Full<C>{});
}
template <class C>
void transpose(C* out, int64_t out_row, const C* in, int64_t in_row, int64_t rows, int64_t columns) {
  constexpr int w = kWidth<C>;
  for (int64_t i = 0; i < rows; i += w)
    for (int64_t j = 0; j < columns; j += w) {
      if (i + w <= rows && j + w <= columns) {
        transpose_square(out + j * out_row + i, out_row, in + i * in_row + j, in_row);
        continue;
      }
      for (int64_t c = j; c < (j + w < columns ? j + w : columns); ++c)
        for (int64_t r = i; r < (i + w < rows ? i + w : rows); ++r) std::memcpy(out + c * out_row + r, in + r * in_row + c, sizeof(C));
    }
}

// Stores overlap: of a vector the first `rows` elements stay.
void pack_strip(float* out, const float* in, int64_t in_row, int rows, int64_t k) {
  constexpr int w = kWidth<float>;
  static_assert(w <= kStripSlack);
  int64_t p = 0;
  if (rows <= w) {
    for (; p + w <= k; p += w) {
      Vec<float> v[w] = {};
#pragma GCC unroll 16
      for (int i = 0; i < w; ++i)
        if (i < rows) v[i] = load(in + i * in_row + p, Full<float>{});
      transpose<float>(v);
#pragma GCC unroll 16
      for (int i = 0; i < w; ++i) store(out + (p + i) * rows, v[i], Full<float>{});
    }
  }
  for (; p < k; ++p)
    for (int i = 0; i < rows; ++i) out[p * rows + i] = in[i * in_row + p];
}
void pack_strip_turned(float* out, const float* in, int64_t in_column, int rows, int64_t k) {
  constexpr int w = kWidth<float>;
  for (int64_t p = 0; p < k; ++p, in += in_column, out += rows)
    for (int i = 0; i < rows; i += w) {
      const int some = std::min(w, rows - i);
      if ((k - p) * rows - i >= w)
        store(out + i, load(in + i, some), Full<float>{});  // what follows is written over
      else
        store(out + i, load(in + i, some), some);
    }
}

template <class C>
void exp_minus(C* x, int64_t n, C shift) {
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) { store(x + i, exp(load(x + i, c) - shift), c); });
}
template <class C>
C online_softmax(C* x, int64_t n, C* m, C* sum) {
  const C own = row_max(x, n), before = *m, now = own > before ? own : before;
  *m = now;
  if (now == kLowest<C>) {  // nothing but masked elements so far; NaN comes through below
    bool nan = false;
    for (int64_t i = 0; i < n; ++i) nan |= x[i] != x[i], x[i] = x[i] != x[i] ? x[i] : C(0);
    if (nan) *sum = std::numeric_limits<C>::quiet_NaN();
    return C(1);
  }
  Vec<C> sums[4] = {};
  sweep<C>(n, [&](int64_t i, auto c, int k) __attribute__((always_inline)) {
    const Vec<C> e = exp(load(x + i, c) - now);
    store(x + i, e, c);
    sums[k] += keep<C>(e, c, C(0));
  });
  const C factor = before == kLowest<C> ? C(0) : std::exp(before - now);
  *sum = *sum * factor + static_cast<C>(total<C>(sums));
  return factor;
}
template <class C>
void scale(C* x, int64_t n, C factor) {
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) { store(x + i, load(x + i, c) * factor, c); });
}
template <class C>
C dot(const C* a, const C* b, int64_t n) {
  Vec<C> sums[4] = {};
  sweep<C>(n, [&](int64_t i, auto c, int k) __attribute__((always_inline)) { sums[k] += load(a + i, c) * load(b + i, c); });
  return static_cast<C>(total<C>(sums));
}
template <class C>
void softmax_grad(C* d, const C* p, int64_t n, C delta, C factor) {
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    store(d + i, load(p + i, c) * (load(d + i, c) - delta) * factor, c);
  });
}

// p[places[i]] where inside[i] is not 0, else 0
template <class C>
INLINE Vec<C> gather(const C* p, Vec<OffsetOf<C>> places, Vec<OffsetOf<C>> inside) {
#if defined(__AVX512F__)
  if constexpr (sizeof(C) == 4)
    return std::bit_cast<Vec<C>>(_mm512_mask_i32gather_ps(_mm512_setzero_ps(), _mm512_test_epi32_mask((__m512i)inside, (__m512i)inside), (__m512i)places, p, 4));
  else
    return std::bit_cast<Vec<C>>(_mm512_mask_i64gather_pd(_mm512_setzero_pd(), _mm512_test_epi64_mask((__m512i)inside, (__m512i)inside), (__m512i)places, p, 8));
#elif defined(__AVX2__)
  const auto mask = inside != 0;
  if constexpr (sizeof(C) == 4)
    return std::bit_cast<Vec<C>>(_mm256_mask_i32gather_ps(_mm256_setzero_ps(), p, (__m256i)places, (__m256)mask, 4));
  else
    return std::bit_cast<Vec<C>>(_mm256_mask_i64gather_pd(_mm256_setzero_pd(), p, (__m256i)places, (__m256d)mask, 8));
#else
  Vec<C> v{};
  for (int i = 0; i < kWidth<C>; ++i)
    if (inside[i]) v[i] = p[places[i]];
  return v;
#endif
}
template <class C>
void gather_four(C* y, const OffsetOf<C>* offset, const OffsetOf<C>* inside, const C* share, int64_t step, const C* plane, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth<C>) {
    const int m = static_cast<int>(std::min<int64_t>(kWidth<C>, n - i));
    Vec<C> sum{};
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const int64_t j = k * step + i;
      const Vec<C> v = gather(plane, load_some<Vec<OffsetOf<C>>>(offset + j, m), load_some<Vec<OffsetOf<C>>>(inside + j, m)) * load(share + j, m);
      sum = k ? sum + v : v;
    }
    store(y + i, sum, m);
  }
}

template <class C>
constexpr TileKernels<C> tile_kernels() {
  return {gemm<C, false>, gemm<C, true>, online_softmax<C>, exp_minus<C>, scale<C>, dot<C>, softmax_grad<C>};
}

constexpr Products kProducts = {tile_kernels<float>(), tile_kernels<double>(),
                                gemm<uint64_t, false>, gemm<uint32_t, false>, gemm<uint16_t, false>, gemm<uint8_t, false>,
                                gemm<uint32_t, false, true>, Strip{2 * kWidth<float>, strip_of, pack_strip, pack_strip_turned},
                                gather_four<float>, gather_four<double>,
                                transpose<uint32_t>, transpose<uint64_t>};

}  // namespace

const Products& LAZYT_OF_ISA(products_)() { return kProducts; }

}  // namespace lazyt::onednn
