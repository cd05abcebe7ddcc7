// Elementary functions of doubles on whole vectors, where the C library's (vector_math.h) are slower or missing.
#pragma once

#include "lanes.h"

namespace lazyt::onednn::vm {
namespace {  // each instruction set has its own copy
namespace math {

// In two parts, the first short enough that its products with whole numbers are exact.
constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;

// e^r for |r| <= ln(2) / 2: r^2 times the polynomial that agrees with (e^r - 1 - r) / r^2 in Chebyshev's nodes, 2^-55.7.
inline VD exp_of_fraction(VD r) {
  VD p = VD{} + 2.5100424157005067e-08;
  auto then = [&](auto... c) { ((p = Lanes<VD>::fma(p, r, VD{} + c)), ...); };
  then(2.7620138719733994e-07, 2.7557268378684192e-06, 2.480152119021773e-05, 1.9841269863105968e-04, 1.3888888917281794e-03, 8.333333333330051e-03, 4.166666666662399e-02,
       1.6666666666666669e-01, 5.000000000000001e-01, 1.0, 1.0);
  return p;
}
// What underflows is 0 at once, as in exp of floats.
inline VD scaled(VD p, VD n, VD x, double least) { return x < least ? VD{} : Lanes<VD>::scale(p, n); }

// 0.94 ulp, 1.4 where there is no fma.
inline VD exp(VD x) {
  using L = Lanes<VD>;
  constexpr double kLeast = -746, kMost = 710;
  const VD c = L::max(VD{} + kLeast, L::min(VD{} + kMost, x));  // of a NaN itself
  const VD n = L::nearest(c * 1.4426950408889634);
  const VD r = L::fma(n, VD{} - kLn2Low, L::fma(n, VD{} - kLn2High, c));
  return scaled(exp_of_fraction(r), n, x, kLeast);
}
inline VD exp2(VD x) {
  using L = Lanes<VD>;
  constexpr double kLeast = -1076, kMost = 1025;
  const VD c = L::max(VD{} + kLeast, L::min(VD{} + kMost, x));
  const VD n = L::nearest(c), f = c - n;
  return scaled(exp_of_fraction(L::fma(f, VD{} + kLn2High, f * kLn2Low)), n, x, kLeast);
}
inline VD sigmoid(VD x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace math
}  // namespace
}  // namespace lazyt::onednn::vm
