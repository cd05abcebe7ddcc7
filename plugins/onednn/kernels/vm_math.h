// Elementary functions as straight-line code that vectorises, and what the C library lacks. Errors are of f32
// results over the whole range, in units in the last place, measured against double (tests/plugins/onednn).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "lanes.h"

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
// e^r for |r| <= ln(2) / 2, as Cephes' expf.
template <class F>
F exp_of_fraction(F r) {
  const F p = polynomial<F>(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
  return Lanes<F>::fma(p * r, r, r) + 1.0f;
}
// The argument is reduced in two steps; 1 ulp.
template <class F>
F exp(F x) {
  using L = Lanes<F>;
  const F c = L::max(L::min(x, 89.0f), -104.0f);
  const F n = L::round(c * 1.44269504088896341f);
  const F r = L::fma(n, splat<F>(2.12194440e-4f), L::fma(n, splat<F>(-0.693359375f), c));
  return L::scale(exp_of_fraction<F>(r), n);
}

// x = 2^e * (1 + m) with m in [-0.293, 0.415), and ln(1 + m) - m (fdlibm's logf by the reduction of Cephes).
// REQUIRES: x > 0, finite
template <class F>
F log_parts(F x, F* e, F* m) {
  using I = Int<F>;
  const auto denormal = x < 1.17549435e-38f;
  const F scaled = select<F>(denormal, x * 8388608.0f, x);
  const I bits = std::bit_cast<I>(scaled);
  *e = Lanes<F>::to_float((bits >> 23) - 126) - select<F>(denormal, splat<F>(23.0f), F{});
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
  const F c = L::max(L::min(x, 129.0f), -151.0f);
  const F n = L::round(c);
  return L::scale(exp_of_fraction<F>((c - n) * 0.693147180559945309f), n);
}

template <class F>
F expm1(F x) {
  // Taylor near 0, where exp(x) - 1 cancels; 2 ulp.
  const F p = polynomial<F>(x, 1.9841270e-4f, 1.3888889e-3f, 8.3333333e-3f, 4.1666667e-2f, 1.6666667e-1f, 0.5f);
  const F near = Lanes<F>::fma(p * x, x, x);
  return select<F>(abs<F>(x) < 0.35f, near, exp<F>(x) - 1.0f);
}

// Kahan's correction: log(1 + x) * x / ((1 + x) - 1).
template <class F>
F log1p(F x) {
  const F u = x + 1.0f;
  const F d = u - 1.0f;
  const F y = log<F>(u) * (x / d);
  return select<F>(d == 0.0f, x, select<F>(u == std::numeric_limits<float>::infinity(), u, y));
}

template <class F>
F sigmoid(F x) {
  return 1.0f / (exp<F>(-x) + 1.0f);
}

// Rational near 0 (Cephes), by exp elsewhere; 2 ulp.
template <class F>
F tanh(F x) {
  const F a = abs<F>(x), z = x * x;
  const F p = polynomial<F>(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
  const F near = Lanes<F>::fma(p * z, x, x);
  const F e = exp<F>(a * -2.0f);
  const F far = with_sign_of<F>((1.0f - e) / (e + 1.0f), x);
  return select<F>(x != x, x, select<F>(a < 0.625f, near, far));
}

// Near 0 an odd polynomial, elsewhere 1 - e^p; both fitted by least squares on Chebyshev nodes; 2 ulp.
template <class F>
F erf(F v) {
  const F a = abs<F>(v), z = v * v;
  const F near = polynomial<F>(z, -5.9721025e-4f, 4.9899444e-3f, -2.6764784e-2f, 0.11281779f, -0.37612492f, 0.12837915f);
  const F t = Lanes<F>::min(a, 4.1f);
  const F far = polynomial<F>(t, -1.86185e-5f, 4.019589e-4f, -3.994216e-3f, 2.4602154e-2f, -0.10740112f, -0.6342153f,
                              -1.1290526f, 7.221465e-5f);
  return select<F>(a < 0.93f, Lanes<F>::fma(near, v, v), with_sign_of<F>(1.0f - exp<F>(far), v));
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

// Giles, Approximating the erfinv function (2012), one Newton step more.
template <class T>
T erfinv(T v) {
  const double x = static_cast<double>(v);
  if (x != x || x < -1 || x > 1) return std::numeric_limits<T>::quiet_NaN();
  if (x == 1 || x == -1) return std::copysign(std::numeric_limits<T>::infinity(), v);
  double w = -std::log((1 - x) * (1 + x)), p;
  if (w < 5) {
    w -= 2.5;
    p = 2.81022636e-08;
    for (double c : {3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941})
      p = p * w + c;
  } else {
    w = std::sqrt(w) - 3;
    p = -0.000200214257;
    for (double c : {0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682})
      p = p * w + c;
  }
  double y = p * x;
  for (int i = 0; i < 2; ++i) {
    const double slope = 1.1283791670955126 * std::exp(-y * y);
    const double error = x > 0.5 ? (1 - x) - std::erfc(y) : x < -0.5 ? std::erfc(-y) - (1 + x) : x - std::erf(y);
    if (slope > 0) y += (std::fabs(x) > 0.5 ? -error : error) / slope;
  }
  return static_cast<T>(y);
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
