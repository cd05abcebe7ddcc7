// A vector of floats as wide as the registers of the instruction set that is compiled for, and what elementary functions
// need of it beside GCC's operators. The same for one float, for loops that the compiler turns into vectors itself.
#pragma once

#if defined(__AVX__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // of GCC 12's own header (its bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace lazyt::onednn::vm {
namespace {  // each instruction set has its own copy

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// The lower halves of a and b, lane by lane in turn, and the upper ones.
template <class V, int... i>
[[gnu::always_inline]] inline V zip_low(V a, V b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (i % 2 * int(sizeof...(i)) + i / 2)...);
}
template <class V, int... i>
[[gnu::always_inline]] inline V zip_high(V a, V b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (i % 2 * int(sizeof...(i)) + i / 2 + int(sizeof...(i)) / 2)...);
}
// Of as many vectors as each has lanes: lane i is all lanes of v[i], the upper half joined to the lower, until one is left. v is spent.
template <class V, int n, class F>
[[gnu::always_inline]] inline V folded_together(V (&v)[n], F join) {
  static_assert(sizeof(V) == n * sizeof(v[0][0]));
  constexpr auto all = std::make_integer_sequence<int, n>();
#pragma GCC unroll 4
  for (int half = n / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) v[i] = join(zip_low(v[i], v[i + half], all), zip_high(v[i], v[i + half], all));
  return v[0];
}

namespace math {

constexpr int kWidth = kVectorBytes / 4;
using V = float __attribute__((vector_size(kVectorBytes)));
using VI = int32_t __attribute__((vector_size(kVectorBytes)));

// select: by a comparison. min, max: x where it is NaN; of
// two vectors: a where both are 0, or one is NaN. fma: a * b + c in one rounding where the CPU has it. round: to
// the nearest integer, ties to even, |x| < 2^22. scale: p * 2^n, n whole and in [-152, 130]. reciprocal: of x >= 1; about_reciprocal:
// of any x between 2^-120 and 2^120, 1 ulp.
// scale_from: the same where x >= least or is NaN, else 0; from: x, so far as scale_from takes what is made of it.
template <class F>
struct Lanes;

// p * 2^n by two factors, as 2^n may be beyond f32. The bits of the sum end in n + 254, and all that is above them leaves with the shifts.
template <class F, class I = std::conditional_t<std::is_same_v<F, float>, int32_t, VI>>
inline F scale_twice(F p, F n) {
  const I both = std::bit_cast<I>(n + (12582912.0f + 254)), half = both >> 1;
  return p * std::bit_cast<F>(half << 23) * std::bit_cast<F>((both - half) << 23);
}

template <>
struct Lanes<float> {
  using I = int32_t;
  static float select(bool c, float a, float b) { return c ? a : b; }
  static float to_float(I x) { return static_cast<float>(x); }
  static float min(float x, float limit) { return x > limit ? limit : x; }
  static float max(float x, float limit) { return x < limit ? limit : x; }
  static float fma(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
  }
  static float round(float x) { return (x + 12582912.0f) - 12582912.0f; }  // 1.5 * 2^23 leaves no room for a fraction
  static float reciprocal(float x) { return 1.0f / x; }
  static float about_reciprocal(float x) { return 1.0f / x; }
  static float scale(float p, float n) { return scale_twice(p, n); }
  static float from(float x, float least) { return x < least ? 0.0f : x; }
  static float scale_from(float x, float least, float p, float n) { return x < least ? 0.0f : scale(p, n); }
};

template <>
struct Lanes<V> {
  using I = VI;
  static V select(I c, V a, V b) { return c ? a : b; }
  static V to_float(I x) { return __builtin_convertvector(x, V); }
#if defined(__AVX512F__)
  static V min(V x, float limit) { return _mm512_min_ps(_mm512_set1_ps(limit), x); }
  static V max(V x, float limit) { return _mm512_max_ps(_mm512_set1_ps(limit), x); }
  static V min(V x, V a) { return _mm512_min_ps(x, a); }
  static V max(V x, V a) { return _mm512_max_ps(x, a); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V round(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V scale(V p, V n) { return _mm512_scalef_ps(p, n); }
  static V from(V x, float) { return x; }
  static V scale_from(V x, float least, V p, V n) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ), p, n);
  }
  static V sqrt(V x) { return _mm512_sqrt_ps(x); }
  static V floor(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
  static V ceil(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
  static V trunc(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
  static V nearest(V x) { return round(x); }
  // 14 bits and a step of Newton's, which a division takes three times as long for; beyond that has no small reciprocal.
  static V reciprocal(V x) {
    const V y = about_reciprocal(x);
    const __mmask16 large = _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1p120f), _CMP_GT_OQ);
    return large ? V(_mm512_mask_div_ps(y, large, _mm512_set1_ps(1.0f), x)) : y;  // each lane as beside any other
  }
  static V about_reciprocal(V x) {
    const V y = _mm512_rcp14_ps(x);
    return _mm512_fmadd_ps(y, _mm512_fnmadd_ps(x, y, _mm512_set1_ps(1.0f)), y);
  }
#else
  static V reciprocal(V x) { return 1.0f / x; }
  static V about_reciprocal(V x) { return 1.0f / x; }
  static V scale(V p, V n) { return scale_twice(p, n); }
  static V from(V x, float least) { return x < least ? V{} : x; }
  static V scale_from(V x, float least, V p, V n) { return x < least ? V{} : scale(p, n); }
#if defined(__AVX2__)
  static V min(V x, float limit) { return _mm256_min_ps(_mm256_set1_ps(limit), x); }
  static V max(V x, float limit) { return _mm256_max_ps(_mm256_set1_ps(limit), x); }
  static V min(V x, V a) { return _mm256_min_ps(x, a); }
  static V max(V x, V a) { return _mm256_max_ps(x, a); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V round(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V sqrt(V x) { return _mm256_sqrt_ps(x); }
  static V floor(V x) { return _mm256_floor_ps(x); }
  static V ceil(V x) { return _mm256_ceil_ps(x); }
  static V trunc(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
  static V nearest(V x) { return round(x); }
#else
  static V min(V x, float limit) { return x > limit ? V{} + limit : x; }
  static V max(V x, float limit) { return x < limit ? V{} + limit : x; }
  static V min(V x, V a) { return x < a ? x : a; }
  static V max(V x, V a) { return x > a ? x : a; }
  static V fma(V a, V b, V c) { return a * b + c; }
  static V round(V x) { return (x + 12582912.0f) - 12582912.0f; }
  static V sqrt(V x) { return each(x, [](float f) { return std::sqrt(f); }); }
  static V floor(V x) { return each(x, [](float f) { return std::floor(f); }); }
  static V ceil(V x) { return each(x, [](float f) { return std::ceil(f); }); }
  static V trunc(V x) { return each(x, [](float f) { return std::trunc(f); }); }
  static V nearest(V x) { return each(x, [](float f) { return std::nearbyint(f); }); }

 private:
  template <class F>
  static V each(V x, F f) {
    for (int j = 0; j < kWidth; ++j) x[j] = f(x[j]);
    return x;
  }
#endif
#endif
};

// Whole numbers below 2^51 as doubles and back, by what every CPU has vectors for: added to 1.5 * 2^52 they are in its lowest bits.
inline constexpr double kWholeBase = 6755399441055744.0;
inline double whole_double(int64_t x) {
  return std::bit_cast<double>(static_cast<int64_t>(static_cast<uint64_t>(x) + std::bit_cast<uint64_t>(kWholeBase))) - kWholeBase;
}
inline int64_t whole_int(double x) { return static_cast<int64_t>(std::bit_cast<uint64_t>(x + kWholeBase) - std::bit_cast<uint64_t>(kWholeBase)); }

// The same of doubles, as far as it is used. scale: n whole and in [-1080, 1030].
using VD = double __attribute__((vector_size(kVectorBytes)));
using VL = int64_t __attribute__((vector_size(kVectorBytes)));

template <>
struct Lanes<VD> {
#if defined(__AVX512F__)
  static VD min(VD x, VD a) { return _mm512_min_pd(x, a); }
  static VD max(VD x, VD a) { return _mm512_max_pd(x, a); }
  static VD fma(VD a, VD b, VD c) { return _mm512_fmadd_pd(a, b, c); }
  static VD sqrt(VD x) { return _mm512_sqrt_pd(x); }
  static VD floor(VD x) { return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
  static VD ceil(VD x) { return _mm512_roundscale_pd(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
  static VD trunc(VD x) { return _mm512_roundscale_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
  static VD nearest(VD x) { return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static VD scale(VD p, VD n) { return _mm512_scalef_pd(p, n); }
#elif defined(__AVX2__)
  static VD min(VD x, VD a) { return _mm256_min_pd(x, a); }
  static VD max(VD x, VD a) { return _mm256_max_pd(x, a); }
  static VD fma(VD a, VD b, VD c) { return _mm256_fmadd_pd(a, b, c); }
  static VD sqrt(VD x) { return _mm256_sqrt_pd(x); }
  static VD floor(VD x) { return _mm256_floor_pd(x); }
  static VD ceil(VD x) { return _mm256_ceil_pd(x); }
  static VD trunc(VD x) { return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
  static VD nearest(VD x) { return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static VD scale(VD p, VD n) { return scale_twice(p, n); }
#else
  static VD min(VD x, VD a) { return x < a ? x : a; }
  static VD max(VD x, VD a) { return x > a ? x : a; }
  static VD fma(VD a, VD b, VD c) { return a * b + c; }
  static VD sqrt(VD x) { return each(x, [](double d) { return std::sqrt(d); }); }
  static VD floor(VD x) { return each(x, [](double d) { return std::floor(d); }); }
  static VD ceil(VD x) { return each(x, [](double d) { return std::ceil(d); }); }
  static VD trunc(VD x) { return each(x, [](double d) { return std::trunc(d); }); }
  static VD nearest(VD x) { return each(x, [](double d) { return std::nearbyint(d); }); }
  static VD scale(VD p, VD n) { return scale_twice(p, n); }

 private:
  template <class F>
  static VD each(VD x, F f) {
    for (int j = 0; j < kVectorBytes / 8; ++j) x[j] = f(x[j]);
    return x;
  }
#endif
#if !defined(__AVX512F__)

 private:
  static VD scale_twice(VD p, VD n) {
    auto pow2 = [](VD whole) { return std::bit_cast<VD>(std::bit_cast<VL>(whole + (kWholeBase + 1023)) << 52); };
    const VD half = (n * 0.5 + kWholeBase) - kWholeBase;
    return p * pow2(half) * pow2(n - half);
  }
#endif
};

}  // namespace math
}  // namespace
}  // namespace lazyt::onednn::vm
