// Elementary functions as straight-line code that vectorises, and what the C library lacks. Errors are of f32
// results over the whole range, in units in the last place, against double (the cases of operators in tests/conformance bound them).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "lanes.h"
#include "odd_tables.h"

namespace lazyt::onednn::vm {
namespace {  // each instruction set has its own copy
namespace math {

// F is float, or V.
template <class F>
using Int = typename Lanes<F>::I;
template <class F, class C>
F select(C c, F a, F b) {
  return Lanes<F>::select(c, a, b);
}
template <class F>
F splat(float x) {
  return F{} + x;
}
// The polynomial with these coefficients, the highest power first.
template <class F, class... C>
F polynomial(F x, float first, C... others) {
  F p = splat<F>(first);
  ((p = Lanes<F>::fma(p, x, splat<F>(others))), ...);
  return p;
}
template <class F>
F abs(F x) {
  return std::bit_cast<F>(std::bit_cast<Int<F>>(x) & 0x7fffffff);
}
template <class F>
F with_sign_of(F magnitude, F x) {
  return std::bit_cast<F>((std::bit_cast<Int<F>>(magnitude) & 0x7fffffff) | (std::bit_cast<Int<F>>(x) & INT32_MIN));
}
// e^r for |r| <= ln(2) / 2; minimax.
template <class F>
F exp_of_fraction(F r) {
  return polynomial<F>(r, 1.381453942e-3f, 8.368745446e-3f, 4.166838899e-2f, 1.666652113e-1f, 4.999999404e-1f, 1.0f,
                       1.0f);
}
// c - n ln(2), in two steps.
template <class F>
F without_powers(F c, F n) {
  return Lanes<F>::fma(n, splat<F>(2.12194440e-4f), Lanes<F>::fma(n, splat<F>(-0.693359375f), c));
}
// e^c = 2^n times the result, for |c| < 105; t: 1.5 * 2^23 + n, as in Lanes::round.
inline constexpr float kExpRounds = 12582912.0f;
template <class F>
F exp_without_power(F c, F* t) {
  using L = Lanes<F>;
  *t = L::fma(c, splat<F>(1.44269504088896341f), splat<F>(kExpRounds));
  return exp_of_fraction<F>(without_powers<F>(c, *t - kExpRounds));
}
#if defined(__AVX512F__)
// 2^n e^r for |r| <= ln(2) / 32, and 0 of what is below `least`; t: kRootRounds + n, where n has four bits behind the point, by which
// its root of two is looked up. Minimax.
inline constexpr float kRootRounds = 786432.0f;
alignas(64) inline constexpr float kRoots[16] = {1.0f,        1.04427378f, 1.09050773f, 1.13878863f, 1.18920712f, 1.24185781f,
                                                 1.29683955f, 1.35425555f, 1.41421356f, 1.47682615f, 1.54221083f, 1.61049033f,
                                                 1.68179283f, 1.75625216f, 1.83400809f, 1.91520656f};
inline V exp_by_root(V r, V t, V x, float least) {
  using L = Lanes<V>;
  const V root = _mm512_permutexvar_ps(std::bit_cast<__m512i>(t), _mm512_load_ps(kRoots));
  const V q = polynomial<V>(r, 0.16667032f, 0.50001621f, 1.0f) * r;
  return L::scale_from(x, least, L::fma(root, q, root), t - kRootRounds);
}
#endif
// 1 ulp with AVX-512, else 0.9, or 1.2 where there is no fma. What is 0 (masked scores, -inf) is not computed: a result that underflows
// takes a Xeon 55 ns instead of 1.
template <class F>
F exp(F x) {
  using L = Lanes<F>;
  constexpr float kLeast = -104.0f;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<F, V>) {
    const V c = L::min(x, 89.0f), t = L::fma(c, splat<V>(1.44269504088896341f), splat<V>(kRootRounds));
    return exp_by_root(without_powers<V>(c, t - kRootRounds), t, x, kLeast);
  }
#endif
  F t;
#if defined(__AVX2__) && !defined(__AVX512F__)
  // Where every |x| < 87: the same to the bit in two thirds of the time. Nothing is limited, and 2^n is added to the exponent.
  if constexpr (std::is_same_v<F, V>) {
    if (_mm256_movemask_ps(_mm256_cmp_ps(abs<V>(x), splat<V>(87.0f), _CMP_NLT_UQ)) == 0) [[likely]] {
      const V p = exp_without_power<V>(x, &t);
      return std::bit_cast<V>(std::bit_cast<VI>(p) + (std::bit_cast<VI>(t) << 23));
    }
  }
#endif
  const F p = exp_without_power<F>(L::min(L::from(x, kLeast), 89.0f), &t);
  return L::scale_from(x, kLeast, p, t - kExpRounds);
}

// e^c - 1 for -20 <= c <= 0, or NaN: 2^n (e^r - 1) + (2^n - 1). Minimax; 1 ulp of the result.
template <class F>
F expm1_of_negative(F c) {
  constexpr float kRounds = 12582912.0f + 127;  // as in scale_twice
  const F t = Lanes<F>::fma(c, splat<F>(1.44269504088896341f), splat<F>(kRounds)), n = t - kRounds;
  const F r = without_powers<F>(c, n);
  const F m = Lanes<F>::fma(r * r, polynomial<F>(r, 1.38825213e-3f, 8.36652052e-3f, 4.16672006e-2f, 1.66665435e-1f, 4.99999970e-1f), r);
  const F power = std::bit_cast<F>(std::bit_cast<Int<F>>(t) << 23);
  return Lanes<F>::fma(m, power, power - 1.0f);
}

// x = 2^e * (1 + m) with m in [-0.293, 0.415), and ln(1 + m) - m (fdlibm's logf by the reduction of Cephes).
// REQUIRES: x > 0, finite, and no denormal unless `denormals`
template <class F, bool denormals = true>
F log_parts(F x, F* e, F* m) {
  using I = Int<F>;
  if constexpr (denormals) {
    const auto denormal = x < 1.17549435e-38f;
    const I bits = std::bit_cast<I>(x = select<F>(denormal, x * 8388608.0f, x));
    *e = Lanes<F>::to_float((bits >> 23) - 126) - select<F>(denormal, splat<F>(23.0f), F{});
  } else {
    *e = Lanes<F>::to_float((std::bit_cast<I>(x) >> 23) - 126);
  }
  const I bits = std::bit_cast<I>(x);
  const F half = std::bit_cast<F>((bits & 0x007fffff) | 0x3f000000);
  const auto low = half < 0.707106781186547524f;
  *e = *e - select<F>(low, splat<F>(1.0f), F{});
  const F x1 = select<F>(low, half + half, half) - 1.0f;
  *m = x1;
  const F z = x1 * x1;
  const F p = polynomial<F>(x1, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                            -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  return x1 * z * p - 0.5f * z;
}
// What a logarithm is where log_parts does not hold, else `result`.
template <class F>
F log_result(F x, F result) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const F positive = select<F>(x == kInf, x, result);
  const F rest = select<F>(x == 0.0f, splat<F>(-kInf), splat<F>(std::numeric_limits<float>::quiet_NaN()));
  return select<F>(x > 0.0f, positive, rest);
}

// 1 ulp.
template <class F>
F log(F x) {
  F e, m;
  const F y = log_parts<F>(x, &e, &m) + -2.12194440e-4f * e;
  return log_result<F>(x, m + y + 0.693359375f * e);
}
// log2(e) - 1 and log10(e) are taken apart, so that the largest terms are exact; 1 and 2 ulp.
template <class F>
F log2(F x) {
  F e, m;
  const F y = log_parts<F>(x, &e, &m);
  const F small = y * 0.44269504088896341f + m * 0.44269504088896341f + y;
  return log_result<F>(x, small + m + e);
}
template <class F>
F log10(F x) {
  F e, m;
  const F y = log_parts<F>(x, &e, &m);
  // Cephes' log10f: log10(e) = 4.3359375e-1 + 7.00731903251827651129e-4, log10(2) = 3.0078125e-1 + 2.48745663981195213739e-4.
  F z = (m + y) * 7.00731903251827651129e-4f;
  z = z + e * 2.48745663981195213739e-4f;
  z = z + y * 4.3359375e-1f;
  z = z + m * 4.3359375e-1f;
  return log_result<F>(x, z + e * 3.0078125e-1f);
}

// As exp, with nothing to reduce: whole powers are exact; 1 ulp.
template <class F>
F exp2(F x) {
  using L = Lanes<F>;
  constexpr float kLeast = -151.0f;
  const F c = L::min(L::from(x, kLeast), 129.0f);
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<F, V>) {
    const V t = c + kRootRounds;
    return exp_by_root((c - (t - kRootRounds)) * 0.693147180559945309f, t, x, kLeast);
  }
#endif
  const F n = L::round(c);
  return L::scale_from(x, kLeast, exp_of_fraction<F>((c - n) * 0.693147180559945309f), n);
}

template <class F>
F expm1(F x) {
  // Taylor near 0, where exp(x) - 1 cancels; 3 ulp, 4 where there is no fma.
  const F p = polynomial<F>(x, 1.9841270e-4f, 1.3888889e-3f, 8.3333333e-3f, 4.1666667e-2f, 1.6666667e-1f, 0.5f);
  const F near = Lanes<F>::fma(p * x, x, x);
  return select<F>(abs<F>(x) < 0.35f, with_sign_of<F>(near, x), exp<F>(x) - 1.0f);  // of -0, too
}

// log(u) and what u = 1 + x has lost, divided by u; 0.9 ulp, 1.2 where there is no fma.
template <class F>
F log1p(F x) {
  const F u = x + 1.0f;
  const F d = u - 1.0f;
  F e, m;
  F y = log_parts<F, false>(u, &e, &m);
  y = y + Lanes<F>::fma(x - d, Lanes<F>::about_reciprocal(u), -2.12194440e-4f * e);
  return select<F>(d == 0.0f, x, log_result<F>(u, m + y + 0.693359375f * e));
}

template <class F>
F sigmoid(F x) {
  return Lanes<F>::reciprocal(exp<F>(-x) + 1.0f);
}

#if defined(__AVX512F__)
// A look-up by a permutation of registers for each coefficient, no division, no exponential; 1 ulp.
template <const OddTable& table>
V odd_by_table(V x) {
  const V a = Lanes<V>::min(abs<V>(x), table.last);
  const __m512i above = _mm512_subs_epu16(std::bit_cast<__m512i>(a), _mm512_set1_epi32(table.base));  // or 0
  const __m512i interval = _mm512_srli_epi32(above, 21);
  auto of_interval = [&](int k) -> V {
    return _mm512_permutex2var_ps(_mm512_load_ps(table.lines[k]), interval, _mm512_load_ps(table.lines[k] + 16));
  };
  const V d = a - of_interval(0);
  V p = of_interval(6);
  for (int k = 5; k > 1; --k) p = Lanes<V>::fma(p, d, of_interval(k));
  V at_centre = of_interval(1);
  if constexpr (table.beside) at_centre = _mm512_mask_mov_ps(at_centre, _mm512_testn_epi32_mask(interval, interval), a);
  p = Lanes<V>::fma(p, d, at_centre);
  // By two instructions: one of three operands (vpternlog) shares a Zen 4's ports with fma and the look-ups.
  __m512i sign = _mm512_and_si512(std::bit_cast<__m512i>(x), _mm512_set1_epi32(INT32_MIN));
  asm("" : "+v"(sign));
  return std::bit_cast<V>(_mm512_or_si512(std::bit_cast<__m512i>(p), sign));
}
#endif

// m / (m + 2), m = e^(-2 |x|) - 1; 2.5 ulp.
template <class F>
F tanh(F x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<F, V>) return odd_by_table<kTanhTable>(x);
#endif
  const F c = std::bit_cast<F>(std::bit_cast<Int<F>>(x + x) | INT32_MIN);
  const F m = expm1_of_negative<F>(Lanes<F>::max(c, -20.0f));
  return with_sign_of<F>(m / (m + 2.0f), x);
}

// 1 - e^p(|x|), p fitted by minimax to the logarithm of erfc; 3.2 ulp.
template <class F>
F erf(F x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<F, V>) return odd_by_table<kErfTable>(x);
#endif
  const F a = Lanes<F>::min(abs<F>(x), 3.93f);
  const F p = a * polynomial<F>(a, 9.25609675e-6f, -1.17639705e-4f, 6.32831012e-4f, -1.66701619e-3f, 1.60363983e-4f, 1.91530716e-2f,
                                -1.02777831e-1f, -6.36619389e-1f, -1.12837923f);
  return with_sign_of<F>(expm1_of_negative<F>(p), x);
}

// x Phi(x) for a result that is rounded to 11 bits or fewer: Phi(-a) = 2^p(a), p fitted on [0, 13.2]. What is beyond f32 is 0. Relative
// error 2^-14 down to x = -5.7 (the least that f16 holds), 2^-10 from there.
template <class F>
F gelu_of_half(F x) {
  using L = Lanes<F>;
  const F a = L::min(abs<F>(x), 13.2f);
  const F p = polynomial<F>(a, 4.13784919e-8f, -2.42821125e-6f, 6.12490465e-5f, -8.81561312e-4f, 8.17463043e-3f, -5.30232071e-2f,
                            -4.59603621e-1f, -1.15079025f, -1.0f);
  const auto lost = p < -126.0f;
  const F c = select<F>(lost, F{}, p), n = L::round(c);
  const F q = L::scale(polynomial<F>(c - n, 9.58284426e-3f, 5.59064388e-2f, 2.40240989e-1f, 6.93124191e-1f, 1.0f), n);
  const F tail = select<F>(lost, F{}, q);
  return x * select<F>(x < 0.0f, tail, 1.0f - tail);
}

// Through double, where a vectorised logarithm and exponential are exact enough for f32.
inline float pow(float a, float b) {
  if (b == 2.0f) return a * a;
  if (b == 3.0f) return a * a * a;
  if (b == 0.5f) return a == -std::numeric_limits<float>::infinity() ? -a : std::sqrt(a + 0.0f);
  if (b == 1.0f) return a;
  if (b == -1.0f) return 1.0f / a;
  return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

// As cvttsd2si: what is no int64 becomes the smallest.
template <class F>
int64_t to_int64(F x) {
  return x >= F(-9223372036854775808.0) && x < F(9223372036854775808.0) ? static_cast<int64_t>(x) : INT64_MIN;
}
template <class F>
int32_t to_int32(F x) {
  return x >= F(-2147483648.0) && x < F(2147483648.0) ? static_cast<int32_t>(x) : INT32_MIN;
}

// What the inverse error function takes the logarithm of; 1 outside of (-1, 1).
inline double erfinv_argument(double x) {
  const double product = (1 - x) * (1 + x);
  return product > 0 ? product : 1;
}
// Giles, Approximating the erfinv function (2012), in double. log: of erfinv_argument(x).
inline double erfinv(double x, double log) {
  auto of = [](double t, auto first, auto... others) {
    double p = first;
    ((p = p * t + others), ...);
    return p;
  };
  const double w = -log, s = std::sqrt(w);
  const double middle = of(w - 3.125, -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
                           1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
                           6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
                           2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
                           1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
                           4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
                           0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
                           0.24015818242558961693, 1.6536545626831027356);
  const double outer = of(s - 3.25, 2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
                          1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
                          2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
                          6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
                          0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
                          -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635);
  const double tail = of(s - 5, -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
                         -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
                         2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
                         -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
                         7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
                         1.0103004648645343977, 4.8499064014085844221);
  const double y = x * (w < 6.25 ? middle : w < 16 ? outer : tail);
  const double edge = x == 1 || x == -1 ? x * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return x > -1 && x < 1 ? y : edge;
}
template <class T>
T erfinv(T v) {
  const double x = static_cast<double>(v);
  return static_cast<T>(erfinv(x, std::log(erfinv_argument(x))));
}

// The logarithm of |gamma(x)| in double, exact enough for f32, around two logarithms that are taken of vectors.
struct LgammaArguments {
  double shifted, factor;
};
template <class... C>
double series_of(double t, double first, C... others) {
  double p = first;
  ((p = p * t + others), ...);
  return p;
}
// Stirling's series holds from 8 on; smaller arguments are shifted there, and those below 0.5 reflected first.
inline LgammaArguments lgamma_arguments(double x) {
  const bool reflected = x < 0.5;
  const double w = reflected ? 1 - x : x;
  const double product = w * (w + 1) * (w + 2) * (w + 3) * (w + 4) * (w + 5) * (w + 6) * (w + 7), below = w < 8 ? product : 1;
  const double f = x - std::nearbyint(x);
  const double sine = f * series_of(f * f, 5.3926646626081284894e-10, -2.294842899726987311e-8, 7.9520540014755127848e-7,
                                 -2.1915353447830215827e-5, 4.6630280576761256442e-4, -7.3704309457143507773e-3,
                                 8.2145886611128228799e-2, -0.59926452932079207689, 2.5501640398773454439,
                                 -5.1677127800499700292, 3.1415926535897932385);
  const double factor = reflected ? below * 3.1415926535897932385 / std::fabs(sine) : 1 / below;
  return {w < 8 ? w + 8 : w, factor > 0 && factor < std::numeric_limits<double>::infinity() ? factor : 1};
}
inline double lgamma(double x, double log_shifted, double log_factor) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double v = lgamma_arguments(x).shifted, z = 1 / v;
  const double stirling = (v - 0.5) * log_shifted - v + 0.91893853320467274178 +
                          z * series_of(z * z, 6.4102564102564102564e-3, -1.9175269175269175269e-3, 8.4175084175084175084e-4,
                                     -5.952380952380952381e-4, 7.9365079365079365079e-4, -2.7777777777777777778e-3, 8.3333333333333333333e-2);
  // Near its zeros at 1 and 2 what is left of that has few digits.
  const double a = x - 1, b = x - 2;
  const double near_1 = a * series_of(a, 0.12550966952474304242, -0.14404989676884611812, 0.16955717699740818995, -0.20738555102867398527,
                                   0.27058080842778454788, -0.40068563438653142847, 0.82246703342411321824, -0.57721566490153286061);
  const double near_2 = b * series_of(b, 5.0966952474304242234e-4, -1.1927539117032609771e-3, 2.8905103307415232858e-3, -7.3855510286739852663e-3,
                                   2.0580808427784547879e-2, -6.7352301053198095133e-2, 0.32246703342411321824, 0.42278433509846713939);
  const double rest = log_factor + (x < 0.5 ? -stirling : stirling);
  const double y = std::fabs(a) < 0.03 ? near_1 : std::fabs(b) < 0.03 ? near_2 : rest;
  const bool pole = x <= 0 && x == std::nearbyint(x);
  return x != x ? x : pole || x > 1e300 ? kInf : y + 0.0;  // no -0 at 1
}

// Recurrence to x >= 10, then the asymptotic series (Cephes' psi); reflection below 0.
template <class T>
T digamma(T v) {
  double x = static_cast<double>(v), result = 0;
  if (x == 0) return std::copysign(std::numeric_limits<T>::infinity(), -v);
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<T>::quiet_NaN();
    const double fraction = x - std::trunc(x);
    result = -3.14159265358979323846 / std::tan(3.14159265358979323846 * fraction);
    x = 1 - x;
  }
  while (x < 10) result -= 1 / x, x += 1;
  if (x == 10) return static_cast<T>(result + 2.25175258906672110764);
  double series = 0;
  if (x < 1e17) {
    const double z = 1 / (x * x);
    series = 8.33333333333333333333e-2;
    for (double c : {-2.10927960927960927961e-2, 7.57575757575757575758e-3, -4.16666666666666666667e-3, 3.96825396825396825397e-3,
                     -8.33333333333333333333e-3, 8.33333333333333333333e-2})
      series = series * z + c;
    series *= z;
  }
  return static_cast<T>(result + std::log(x) - 0.5 / x - series);
}

}  // namespace math
}  // namespace
}  // namespace lazyt::onednn::vm
