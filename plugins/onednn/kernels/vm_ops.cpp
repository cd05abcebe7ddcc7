// Compiled once for each instruction set, with LAZYT_VM_TABLE naming the table that it defines. Plain loops that
// the compiler turns into vector code: one source for all, with intrinsics for f16 only.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "double_math.h"
#include "floats.h"
#include "stream_vectors.h"
#include "totals.h"
#include "vector_math.h"
#include "vm.h"
#include "vm_math.h"

namespace lazyt::onednn::vm {

const Table& LAZYT_VM_TABLE();

namespace {

template <class T>
constexpr bool kFloating = std::is_floating_point_v<T>;
template <class T>
using Unsigned = std::make_unsigned_t<std::conditional_t<kFloating<T> || std::is_same_v<T, bool>, int, T>>;

// Integers wrap around as in PyTorch.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (kFloating<T> || std::is_same_v<T, bool>)
    return static_cast<T>(f(a, b));
  else
    return static_cast<T>(f(static_cast<Unsigned<T>>(a), static_cast<Unsigned<T>>(b)));
}

// From mod = fmod(a, b).
template <class T>
T divided_floor(T a, T b, T mod) {
  const T even = (a - mod) / b, div = mod != 0 && (b < 0) != (mod < 0) ? even - T(1) : even;
  const T floored = std::floor(div), rounded = div - floored > T(0.5) ? floored + T(1) : floored;
  return b == 0 ? a / b : div == 0 ? std::copysign(T(0), a / b) : rounded;
}
template <class T>
T remainder_of(T b, T mod) {
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

template <Op op, class T>
T binary(T a, T b) {
  if constexpr (op == Op::kAdd) return wrapping(a, b, [](auto x, auto y) { return x + y; });
  if constexpr (op == Op::kSub) return wrapping(a, b, [](auto x, auto y) { return x - y; });
  if constexpr (op == Op::kMul) return wrapping(a, b, [](auto x, auto y) { return x * y; });
  if constexpr (op == Op::kDiv) return a / b;
  if constexpr (op == Op::kDivTrunc) {
    if constexpr (kFloating<T>) return std::trunc(a / b);
    if constexpr (!kFloating<T>) return b == 0 ? T(0) : std::is_signed_v<T> && b == T(-1) ? wrapping(T(0), a, [](auto x, auto y) { return x - y; }) : static_cast<T>(a / b);
  }
  if constexpr (op == Op::kDivFloor) {
    if constexpr (kFloating<T>) {  // as PyTorch's div_floor_floating
      return divided_floor(a, b, std::fmod(a, b));
    } else {
      if (b == 0) return T(0);
      if (std::is_signed_v<T> && b == T(-1)) return wrapping(T(0), a, [](auto x, auto y) { return x - y; });
      T q = static_cast<T>(a / b);
      return (a % b != 0 && ((a < 0) != (b < 0))) ? static_cast<T>(q - 1) : q;
    }
  }
  if constexpr (op == Op::kFmod) {
    if constexpr (kFloating<T>) return std::fmod(a, b);
    if constexpr (!kFloating<T>) return b == 0 || (std::is_signed_v<T> && b == T(-1)) ? T(0) : static_cast<T>(a % b);
  }
  if constexpr (op == Op::kRemainder) {
    if constexpr (kFloating<T>) {
      return remainder_of(b, std::fmod(a, b));
    } else {
      if (b == 0 || (std::is_signed_v<T> && b == T(-1))) return T(0);
      T r = static_cast<T>(a % b);
      return r != 0 && ((r < 0) != (b < 0)) ? static_cast<T>(r + b) : r;
    }
  }
  if constexpr (op == Op::kMax) return a != a ? a : b != b ? b : a > b ? a : b;
  if constexpr (op == Op::kMin) return a != a ? a : b != b ? b : a < b ? a : b;
  if constexpr (op == Op::kFmax) return a != a ? b : b != b ? a : a > b ? a : b;
  if constexpr (op == Op::kFmin) return a != a ? b : b != b ? a : a < b ? a : b;
  if constexpr (op == Op::kPow) {
    if constexpr (std::is_same_v<T, float>) return math::pow(a, b);
    if constexpr (std::is_same_v<T, double>) return std::pow(a, b);
    if constexpr (!kFloating<T>) {
      if (b < 0) return a == T(1) ? T(1) : (std::is_signed_v<T> && a == T(-1)) ? (b % 2 ? T(-1) : T(1)) : T(0);
      Unsigned<T> result = 1, base = static_cast<Unsigned<T>>(a);
      for (auto e = static_cast<Unsigned<T>>(b); e; e = static_cast<Unsigned<T>>(e >> 1)) {
        if (e & 1) result = static_cast<Unsigned<T>>(result * base);
        base = static_cast<Unsigned<T>>(base * base);
      }
      return static_cast<T>(result);
    }
  }
  if constexpr (op == Op::kAtan2) return std::atan2(a, b);
  if constexpr (op == Op::kHypot) return std::hypot(a, b);
  if constexpr (op == Op::kCopysign) return std::copysign(a, b);
  if constexpr (op == Op::kAnd && !kFloating<T>) return static_cast<T>(a & b);
  if constexpr (op == Op::kOr && !kFloating<T>) return static_cast<T>(a | b);
  if constexpr (op == Op::kXor && !kFloating<T>) return static_cast<T>(a ^ b);
  if constexpr (op == Op::kShl && !kFloating<T>) {  // a shift past the width gives 0, as PyTorch's
    constexpr T kWidth = sizeof(T) * 8;
    return b < 0 || b >= kWidth ? T(0) : static_cast<T>(static_cast<Unsigned<T>>(a) << b);
  }
  if constexpr (op == Op::kShr && !kFloating<T>) {
    constexpr T kWidth = sizeof(T) * 8;
    if (b < 0 || b >= kWidth) return a < 0 ? T(-1) : T(0);
    return static_cast<T>(a >> b);
  }
}

template <Op op, class T>
bool compare(T a, T b) {
  if constexpr (op == Op::kEq) return a == b;
  if constexpr (op == Op::kNe) return a != b;
  if constexpr (op == Op::kLt) return a < b;
  if constexpr (op == Op::kLe) return a <= b;
  if constexpr (op == Op::kGt) return a > b;
  if constexpr (op == Op::kGe) return a >= b;
}

template <Op op, class T>
T unary(T a) {
  if constexpr (op == Op::kMove) return a;
  if constexpr (op == Op::kAbs) {
    if constexpr (kFloating<T>) return std::fabs(a);
    if constexpr (!kFloating<T> && std::is_signed_v<T>) return a < 0 ? static_cast<T>(-static_cast<Unsigned<T>>(a)) : a;
    return a;
  }
  if constexpr (op == Op::kNeg) {
    if constexpr (kFloating<T>) return -a;
    if constexpr (!kFloating<T>) return static_cast<T>(-static_cast<Unsigned<T>>(a));
  }
  if constexpr (op == Op::kSign) {
    if constexpr (kFloating<T>) return a != a ? T(0) : static_cast<T>((a > 0) - (a < 0));
    return static_cast<T>((a > 0) - (a < 0));
  }
  if constexpr (op == Op::kNot && !kFloating<T>) return static_cast<T>(~a);
  if constexpr (kFloating<T>) {
    if constexpr (op == Op::kFloor) return std::floor(a);
    if constexpr (op == Op::kCeil) return std::ceil(a);
    if constexpr (op == Op::kRound) return std::nearbyint(a);
    if constexpr (op == Op::kTrunc) return std::trunc(a);
    if constexpr (op == Op::kSqrt) return std::sqrt(a);
    if constexpr (op == Op::kRsqrt) return T(1) / std::sqrt(a);
    if constexpr (op == Op::kReciprocal) return T(1) / a;
    if constexpr (op == Op::kExp) return std::exp(a);
    if constexpr (op == Op::kExp2) return std::exp2(a);
    if constexpr (op == Op::kExpm1) return std::expm1(a);
    if constexpr (op == Op::kLog) return std::log(a);
    if constexpr (op == Op::kLog2) return std::log2(a);
    if constexpr (op == Op::kLog10) return std::log10(a);
    if constexpr (op == Op::kLog1p) return std::log1p(a);
    if constexpr (op == Op::kSin) return std::sin(a);
    if constexpr (op == Op::kCos) return std::cos(a);
    if constexpr (op == Op::kTan) return std::tan(a);
    if constexpr (op == Op::kAsin) return std::asin(a);
    if constexpr (op == Op::kAcos) return std::acos(a);
    if constexpr (op == Op::kAtan) return std::atan(a);
    if constexpr (op == Op::kSinh) return std::sinh(a);
    if constexpr (op == Op::kCosh) return std::cosh(a);
    if constexpr (op == Op::kTanh) return std::tanh(a);
    if constexpr (op == Op::kAsinh) return std::asinh(a);
    if constexpr (op == Op::kAcosh) return std::acosh(a);
    if constexpr (op == Op::kAtanh) return std::atanh(a);
    if constexpr (op == Op::kSigmoid) return T(1) / (T(1) + std::exp(-a));
    if constexpr (op == Op::kErf) return std::erf(a);
    if constexpr (op == Op::kErfc) return std::erfc(a);
    if constexpr (op == Op::kErfinv) return math::erfinv(a);
    if constexpr (op == Op::kLgamma) return std::lgamma(a);
    if constexpr (op == Op::kDigamma) return math::digamma(a);
  }
}

template <Op op, class T>
void run_binary(void* __restrict out, const void* pa, const void* pb, const void*, int n) {
  auto* o = static_cast<T*>(out);
  auto *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) o[i] = binary<op, T>(a[i], b[i]);
}
template <Op op, class T>
void run_compare(void* out, const void* pa, const void* pb, const void*, int n) {
  auto* o = static_cast<uint8_t*>(out);
  auto *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) o[i] = compare<op, T>(a[i], b[i]);
}
template <Op op, class T>
void run_unary(void* out, const void* pa, const void*, const void*, int n) {
  auto* o = static_cast<T*>(out);
  auto* a = static_cast<const T*>(pa);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) o[i] = unary<op, T>(a[i]);
}
// fmod and what follows from it. The rounded quotient is at most 1 too large; below 2^digits it is exact as an integer, and
// so is a - q * b in one rounding. The few others go to the C library.
template <Op op, class T>
void run_divided(void* out, const void* pa, const void* pb, const void*, int n) {
  auto* o = static_cast<T*>(out);
  auto *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb);
  constexpr T kExact = sizeof(T) == 4 ? T(1 << 22) : T(UINT64_C(1) << 51);
  alignas(64) T mod[kBlock];
  int hard = 0;
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    const T q = std::trunc(a[i] / b[i]), r = std::fma(-q, b[i], a[i]);
    const T one_less = r + std::copysign(b[i], a[i]);
    mod[i] = std::copysign(r != 0 && (r < 0) != (a[i] < 0) ? one_less : r, a[i]);
    hard += !(std::fabs(q) < kExact && std::fabs(b[i]) < std::numeric_limits<T>::infinity());
  }
  if (hard)
    for (int i = 0; i < n; ++i)
      if (!(std::fabs(a[i] / b[i]) < kExact && std::fabs(b[i]) < std::numeric_limits<T>::infinity())) mod[i] = std::fmod(a[i], b[i]);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    if constexpr (op == Op::kFmod) o[i] = mod[i];
    if constexpr (op == Op::kRemainder) o[i] = remainder_of(b[i], mod[i]);
    if constexpr (op == Op::kDivFloor) o[i] = divided_floor(a[i], b[i], mod[i]);
  }
}

// The same of integers, through double: exact where operands are below 2^51; else element by element.
template <Op op, class T>
void run_divided_integers(void* __restrict out, const void* pa, const void* pb, const void* pc, int n) {
  auto* o = static_cast<T*>(out);
  auto *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb);
  if constexpr (sizeof(T) == 8) {
    constexpr uint64_t kExact = UINT64_C(1) << 51;
    uint64_t large = 0;
    for (int i = 0; i < n; ++i) large |= (static_cast<uint64_t>(a[i]) + kExact) | (static_cast<uint64_t>(b[i]) + kExact);
    if (large >= 2 * kExact) return run_binary<op, T>(out, pa, pb, pc, n);
#pragma GCC ivdep
    for (int i = 0; i < n; ++i) {  // all in doubles: few CPUs have vectors that convert or multiply 64-bit integers
      const double x = math::whole_double(a[i]), y = math::whole_double(b[i]), by = y == 0 ? 1.0 : y;
      const double even = std::trunc(x / by), rest = x - even * by;
      const bool signs_differ = rest * by < 0;
      double result = rest;
      if constexpr (op == Op::kDivTrunc || op == Op::kDivFloor) {
        const double one_less = signs_differ ? 1.0 : 0.0, q = op == Op::kDivFloor ? even - one_less : even;
        result = y == 0 ? 0.0 : q;
      }
      if constexpr (op == Op::kRemainder) result = signs_differ ? rest + by : rest;
      o[i] = math::whole_int(result);
    }
    return;
  }
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    const T x = a[i], y = b[i], by = y == 0 || y == -1 ? T(1) : y;  // the smallest number by -1 is no T
    const T even = static_cast<T>(static_cast<double>(x) / static_cast<double>(by)), rest = static_cast<T>(x - even * by);
    const bool signs_differ = rest != 0 && (rest ^ by) < 0;
    if constexpr (op == Op::kDivTrunc || op == Op::kDivFloor) {
      const T q = op == Op::kDivFloor && signs_differ ? static_cast<T>(even - 1) : even;
      const T negative = binary<Op::kSub, T>(T(0), x), of_special = y == 0 ? T(0) : negative;
      o[i] = y == by ? q : of_special;
    }
    if constexpr (op == Op::kFmod) o[i] = rest;
    if constexpr (op == Op::kRemainder) o[i] = signs_differ ? static_cast<T>(rest + by) : rest;
  }
}

// o[i] = f(a[i]...), vector by vector; what is left goes through a vector of its own.
template <class T, class V, class F, class... P>
void by_vectors(T* o, int n, F f, const P*... a) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  auto load = [](const T* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V v = f(load(a + i)...);
    std::memcpy(o + i, &v, sizeof v);
  }
  if (i == n) return;
  const size_t rest = sizeof(T) * static_cast<size_t>(n - i);
  auto load_rest = [rest](const T* p) {
    V v{};
    std::memcpy(&v, p, rest);
    return v;
  };
  const V v = f(load_rest(a + i)...);
  std::memcpy(o + i, &v, rest);
}

// By a function of the C library on whole vectors.
template <Op op, class T>
UnaryVector<T> unary_vector = nullptr;
template <Op op, class T>
BinaryVector<T> binary_vector = nullptr;

// Arguments for which the library goes element by element, though the answer is known.
template <Op op>
constexpr bool kHasEdges = op == Op::kLog || op == Op::kLog2 || op == Op::kLog10 || op == Op::kAcosh || op == Op::kAtanh ||
                           op == Op::kAsin || op == Op::kAcos || op == Op::kLog1p;
// All ones in the elements at an edge. V is a vector of T.
template <Op op, class T, class V>
auto at_edge(V x) {
  const V inf = V{} + std::numeric_limits<T>::infinity();
  if constexpr (op == Op::kAcosh)
    return ~((x >= T(1)) & (x < inf));
  else if constexpr (op == Op::kAtanh)
    return ~((x > T(-1)) & (x < T(1)));
  else if constexpr (op == Op::kAsin || op == Op::kAcos)
    return ~((x >= T(-1)) & (x <= T(1)));
  else if constexpr (op == Op::kLog1p)
    return ~((x > T(-1)) & (x < inf));
  else
    return ~((x > T(0)) & (x < inf));
}
template <Op op, class T, class V>
V value_at_edge(V x) {
  const V inf = V{} + std::numeric_limits<T>::infinity(), nan = V{} + std::numeric_limits<T>::quiet_NaN();
  if constexpr (op == Op::kAcosh) return x == inf ? inf : nan;
  if constexpr (op == Op::kAtanh) return x == T(1) ? inf : x == T(-1) ? -inf : nan;
  if constexpr (op == Op::kAsin || op == Op::kAcos) return nan;
  if constexpr (op == Op::kLog1p) return x == inf ? inf : x == T(-1) ? -inf : nan;
  return x == inf ? inf : x == T(0) ? -inf : nan;
}

template <Op op, class T>
void run_unary_vector(void* out, const void* pa, const void*, const void*, int n) {
  using V = typename Vector<T>::type;
  auto f = [g = unary_vector<op, T>](V x) {
    if constexpr (!kHasEdges<op>) {
      return g(x);
    } else {
      constexpr T safe = op == Op::kAtanh || op == Op::kAsin || op == Op::kAcos ? T(0.5) : T(2);
      const auto edge = at_edge<op, T>(x);
      const V y = g(edge ? V{} + safe : x);
      return edge ? value_at_edge<op, T>(x) : y;
    }
  };
  by_vectors<T, V>(static_cast<T*>(out), n, f, static_cast<const T*>(pa));
}
template <class T>
void run_erfinv_vector(void* out, const void* pa, const void*, const void*, int n) {
  auto* o = static_cast<T*>(out);
  auto* a = static_cast<const T*>(pa);
  alignas(64) double log[kBlock] = {};
  for (int i = 0; i < n; ++i) log[i] = math::erfinv_argument(static_cast<double>(a[i]));
  by_vectors<double, Vector<double>::type>(log, n, unary_vector<Op::kLog, double>, static_cast<const double*>(log));
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) o[i] = static_cast<T>(math::erfinv(static_cast<double>(a[i]), log[i]));
}
// Of f32 only: double has fewer digits to spare near the zeros below 0.
void run_lgamma_vector(void* out, const void* pa, const void*, const void*, int n) {
  auto* o = static_cast<float*>(out);
  auto* a = static_cast<const float*>(pa);
  alignas(64) double shifted[kBlock] = {}, factor[kBlock] = {};
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    const math::LgammaArguments x = math::lgamma_arguments(static_cast<double>(a[i]));
    shifted[i] = x.shifted, factor[i] = x.factor;
  }
  for (double* x : {shifted, factor}) by_vectors<double, Vector<double>::type>(x, n, unary_vector<Op::kLog, double>, static_cast<const double*>(x));
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) o[i] = static_cast<float>(math::lgamma(static_cast<double>(a[i]), shifted[i], factor[i]));
}
template <Op op, class T>
void run_binary_vector(void* out, const void* pa, const void* pb, const void*, int n) {
  by_vectors<T, typename Vector<T>::type>(static_cast<T*>(out), n, binary_vector<op, T>, static_cast<const T*>(pa), static_cast<const T*>(pb));
}
// Exponents that PyTorch computes exactly, if they are all the same; else by the library.
template <class T>
void run_pow(void* out, const void* pa, const void* pb, const void* pc, int n) {
  auto* o = static_cast<T*>(out);
  auto *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb);
  const T e = b[0];
  int others = 0;
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) others += b[i] != e;
  auto each = [&](auto f) {
#pragma GCC ivdep
    for (int i = 0; i < n; ++i) o[i] = f(a[i]);
  };
  // As pow: of -0 as of 0, and of -inf a number.
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  if (!others && e == 2) return each([](T x) { return x * x; });
  if (!others && e == 3) return each([](T x) { return x * x * x; });
  if (!others && e == 1) return each([](T x) { return x; });
  if (!others && e == -1) return each([](T x) { return 1 / x; });
  if (!others && e == -2) return each([](T x) { return 1 / (x * x); });
  if (!others && e == T(0.5)) return each([](T x) { return x == -kInfinity ? -x : std::sqrt(x + 0); });
  if (!others && e == T(-0.5)) return each([](T x) { return x == -kInfinity ? T(0) : 1 / std::sqrt(x + 0); });
  // A negative base with a fraction in the exponent is NaN, which the library finds out element by element.
  alignas(64) T base[kBlock];
  int wrong = 0;
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    const bool is_nan = a[i] < 0 && a[i] != -kInfinity && std::trunc(b[i]) != b[i];
    base[i] = is_nan ? T(1) : a[i];
    wrong += is_nan;
  }
  alignas(64) T result[kBlock];
  run_binary_vector<Op::kPow, T>(wrong ? result : o, base, pb, pc, n);
  if (wrong)
    for (int i = 0; i < n; ++i)
      o[i] = a[i] < 0 && a[i] != -kInfinity && std::trunc(b[i]) != b[i] ? std::numeric_limits<T>::quiet_NaN() : result[i];
}

// Of bools.
void run_not(void* out, const void* pa, const void*, const void*, int n) {
  auto* o = static_cast<uint8_t*>(out);
  auto* a = static_cast<const uint8_t*>(pa);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) o[i] = a[i] ^ 1;
}
// By vector code of our own.
template <class T, class V, V (*f)(V)>
void run_own(void* out, const void* pa, const void*, const void*, int n) {
  by_vectors<T, V>(static_cast<T*>(out), n, [](V x) { return f(x); }, static_cast<const T*>(pa));
}

template <class T>
void run_is_nan(void* out, const void* pa, const void*, const void*, int n) {
  auto* o = static_cast<uint8_t*>(out);
  auto* a = static_cast<const T*>(pa);
  for (int i = 0; i < n; ++i) o[i] = a[i] != a[i];
}
template <class T>
void run_is_inf(void* out, const void* pa, const void*, const void*, int n) {
  auto* o = static_cast<uint8_t*>(out);
  auto* a = static_cast<const T*>(pa);
  for (int i = 0; i < n; ++i) o[i] = std::fabs(a[i]) == std::numeric_limits<T>::infinity();
}
template <class T>
void run_where(void* out, const void* pa, const void* pb, const void* pc, int n) {
  auto* o = static_cast<T*>(out);
  auto* c = static_cast<const uint8_t*>(pa);
  auto *a = static_cast<const T*>(pb), *b = static_cast<const T*>(pc);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    const T x = a[i], y = b[i];  // both, or the compiler reads each by a mask
    o[i] = c[i] ? x : y;
  }
}
template <class T>
void run_fma(void* out, const void* pa, const void* pb, const void* pc, int n) {
  auto* o = static_cast<T*>(out);
  auto *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb), *c = static_cast<const T*>(pc);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
#ifdef __FMA__
    if constexpr (kFloating<T>)
      o[i] = std::fma(a[i], b[i], c[i]);
    else
#endif
      o[i] = binary<Op::kAdd, T>(binary<Op::kMul, T>(a[i], b[i]), c[i]);
  }
}

// Bools as bytes of 0 or 1: the compiler makes no vectors of bool.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class From, class To>
void run_cast(void* out, const void* in, int n) {
  auto* o = static_cast<Stored<To>*>(out);
  auto* a = static_cast<const Stored<From>*>(in);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<To, bool>)
      o[i] = a[i] != 0;
    else if constexpr (kFloating<From> && !kFloating<To> && sizeof(To) < 8)
      // What PyTorch's conversion gives on x86-64: through the register, then cut.
      o[i] = static_cast<To>(std::is_same_v<To, int32_t> ? math::to_int32(a[i]) : static_cast<int32_t>(math::to_int64(a[i])));
    else if constexpr (kFloating<From> && !kFloating<To>)
      o[i] = math::to_int64(a[i]);
    else
      o[i] = static_cast<To>(a[i]);
  }
}

void load_bf16(void* out, const void* in, int n) {
  auto* o = static_cast<float*>(out);
  auto* a = static_cast<const BFloat16*>(in);
  for (int i = 0; i < n; ++i) o[i] = a[i];
}
void store_bf16(void* out, const void* in, int n) {
  auto* o = static_cast<BFloat16*>(out);
  auto* a = static_cast<const float*>(in);
  for (int i = 0; i < n; ++i) o[i] = BFloat16(a[i]);
}
void load_f16(void* out, const void* in, int n) {
  auto* o = static_cast<float*>(out);
  auto* a = static_cast<const Half*>(in);
  int i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(o + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i))));
#endif
  for (; i < n; ++i) o[i] = a[i];
}
void store_f16(void* out, const void* in, int n) {
  auto* o = static_cast<Half*>(out);
  auto* a = static_cast<const float*>(in);
  int i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(o + i), _mm256_cvtps_ph(_mm256_loadu_ps(a + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  for (; i < n; ++i) o[i] = Half(a[i]);
}

void round_bf16(void* out, const void* in, int n) {
  alignas(64) uint16_t half[kBlock];
  store_bf16(half, in, n);
  load_bf16(out, half, n);
}
void round_f16(void* out, const void* in, int n) {
  alignas(64) uint16_t half[kBlock];
  store_f16(half, in, n);
  load_f16(out, half, n);
}
void gelu_of_half(void* out, const void* in, int n) { run_own<float, math::V, math::gelu_of_half<math::V>>(out, in, nullptr, nullptr, n); }
void iota(int64_t* out, uint64_t first, uint64_t step, int n) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<int64_t>(first + static_cast<uint64_t>(i) * step);
}
void ramp(double* out, int64_t at, int64_t stride, double first, double step, int n) {
  const auto begin = static_cast<double>(at), each = static_cast<double>(stride);  // exact: places are below 2^51
  for (int i = 0; i < n; ++i) out[i] = first + (begin + static_cast<double>(i) * each) * step;
}

// Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011), as PRG-7 fixes it.
void philox(uint64_t seed, uint64_t counter, uint32_t* words, int n) {
  constexpr int kCounters = 16;
  for (int base = 0; base < n; base += 4 * kCounters) {
    uint32_t lanes[4][kCounters];
    for (int j = 0; j < kCounters; ++j) {
      const uint64_t c = counter + static_cast<uint64_t>(base / 4 + j);
      uint32_t c0 = static_cast<uint32_t>(c), c1 = static_cast<uint32_t>(c >> 32), c2 = 0, c3 = 0;
      uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 10
      for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = static_cast<uint64_t>(c0) * 0xD2511F53u, p1 = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(p1);
        c3 = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
      }
      lanes[0][j] = c0, lanes[1][j] = c1, lanes[2][j] = c2, lanes[3][j] = c3;
    }
    const int count = std::min(4 * kCounters, n - base);
    for (int i = 0; i < count; ++i) words[base + i] = lanes[i % 4][i / 4];
  }
}

// Box and Muller's pairs.
void normal_f32(float* out, const uint32_t* words, int n, float mean, float std) {
  constexpr int kHalf = kBlock / 2;
  alignas(64) float radius[kHalf] = {}, angle[kHalf], sine[kHalf], cosine[kHalf];
  const int pairs = (n + 1) / 2;
  for (int i = 0; i < pairs; ++i) {
    radius[i] = static_cast<float>((words[2 * i] >> 8) + 1) * 0x1p-24f;
    angle[i] = static_cast<float>(words[2 * i + 1] >> 8) * 0x1p-24f * 6.28318530717958647693f;
  }
  const Table& t = LAZYT_VM_TABLE();
  auto apply = [&](Op op, float* to, const float* from) {
    t.functions[static_cast<int>(op)][static_cast<int>(Type::kF32)](to, from, nullptr, nullptr, pairs);
  };
  apply(Op::kLog, radius, radius);
  apply(Op::kSin, sine, angle);
  apply(Op::kCos, cosine, angle);
  for (int i = 0; i < pairs; ++i) radius[i] = std::sqrt(-2.0f * radius[i]);
  for (int i = 0; i < n / 2; ++i) {
    out[2 * i] = radius[i] * cosine[i] * std + mean;
    out[2 * i + 1] = radius[i] * sine[i] * std + mean;
  }
  if (n % 2) out[n - 1] = radius[pairs - 1] * cosine[pairs - 1] * std + mean;
}

constexpr int at(Op op) { return static_cast<int>(op); }

// Of floats, where there is something better than a function for each element.
template <class T>
void fill_vector_functions(Table& t) {
  constexpr int k = static_cast<int>(std::is_same_v<T, float> ? Type::kF32 : Type::kF64);
#define UNARY(op, name) \
  if ((unary_vector<Op::op, T> = vector_function<T, UnaryVector<T>>(name))) t.functions[at(Op::op)][k] = run_unary_vector<Op::op, T>;
#define BINARY(op, name, run) \
  if ((binary_vector<Op::op, T> = vector_function<T, BinaryVector<T>>(name))) t.functions[at(Op::op)][k] = run;
  UNARY(kSin, "sin") UNARY(kCos, "cos") UNARY(kTan, "tan")
  UNARY(kAsin, "asin") UNARY(kAcos, "acos") UNARY(kAtan, "atan") UNARY(kSinh, "sinh") UNARY(kCosh, "cosh")
  UNARY(kAsinh, "asinh") UNARY(kAcosh, "acosh") UNARY(kAtanh, "atanh") UNARY(kErfc, "erfc")
  if constexpr (std::is_same_v<T, double>) {
    UNARY(kLog2, "log2") UNARY(kLog10, "log10") UNARY(kExpm1, "expm1") UNARY(kLog, "log") UNARY(kLog1p, "log1p") UNARY(kTanh, "tanh") UNARY(kErf, "erf")
#define OWN(op, f) t.functions[at(Op::op)][k] = run_own<double, math::VD, math::f>;
    OWN(kExp, exp) OWN(kExp2, exp2) OWN(kSigmoid, sigmoid)
#undef OWN
  } else {
#define OWN(op, f) t.functions[at(Op::op)][k] = run_own<float, math::V, math::f<math::V>>;
    OWN(kExp, exp) OWN(kExp2, exp2) OWN(kExpm1, expm1) OWN(kLog, log) OWN(kLog2, log2) OWN(kLog10, log10) OWN(kLog1p, log1p)
    OWN(kTanh, tanh) OWN(kSigmoid, sigmoid) OWN(kErf, erf)
#undef OWN
  }
  BINARY(kPow, "pow", run_pow<T>)
  BINARY(kAtan2, "atan2", (run_binary_vector<Op::kAtan2, T>))
  BINARY(kHypot, "hypot", (run_binary_vector<Op::kHypot, T>))
#undef UNARY
#undef BINARY
#ifdef __FMA__
  t.functions[at(Op::kFmod)][k] = run_divided<Op::kFmod, T>;
  t.functions[at(Op::kRemainder)][k] = run_divided<Op::kRemainder, T>;
  t.functions[at(Op::kDivFloor)][k] = run_divided<Op::kDivFloor, T>;
#endif
}

template <class T, Type type>
void fill(Table& t) {
  constexpr int k = static_cast<int>(type);
  constexpr bool f = kFloating<T>, boolean = std::is_same_v<T, bool>;
#define BINARY(op) t.functions[at(Op::op)][k] = run_binary<Op::op, T>;
#define COMPARE(op) t.functions[at(Op::op)][k] = run_compare<Op::op, Stored<T>>;
#define UNARY(op) t.functions[at(Op::op)][k] = run_unary<Op::op, T>;
#define BOOLEAN(op, as) t.functions[at(Op::op)][k] = run_binary<Op::as, uint8_t>;
  COMPARE(kEq) COMPARE(kNe) COMPARE(kLt) COMPARE(kLe) COMPARE(kGt) COMPARE(kGe)
  t.functions[at(Op::kWhere)][k] = run_where<Stored<T>>;
  if constexpr (boolean) {
    BOOLEAN(kAdd, kOr) BOOLEAN(kMul, kAnd) BOOLEAN(kMax, kOr) BOOLEAN(kMin, kAnd) BOOLEAN(kAnd, kAnd) BOOLEAN(kOr, kOr) BOOLEAN(kXor, kXor)
    t.functions[at(Op::kMove)][k] = t.functions[at(Op::kSign)][k] = run_unary<Op::kMove, uint8_t>;
    t.functions[at(Op::kNot)][k] = run_not;
  } else {
    UNARY(kMove) UNARY(kSign)
    BINARY(kMax) BINARY(kMin) BINARY(kAdd) BINARY(kMul)
    BINARY(kSub) BINARY(kDivTrunc) BINARY(kDivFloor) BINARY(kFmod) BINARY(kRemainder) BINARY(kFmax) BINARY(kFmin) BINARY(kPow)
    UNARY(kAbs) UNARY(kNeg)
    t.functions[at(Op::kFma)][k] = run_fma<T>;
  }
  if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {
#define DIVIDED(op) t.functions[at(Op::op)][k] = run_divided_integers<Op::op, T>;
    DIVIDED(kDivTrunc) DIVIDED(kDivFloor) DIVIDED(kFmod) DIVIDED(kRemainder)
#undef DIVIDED
  }
  if constexpr (!f && !boolean) { BINARY(kAnd) BINARY(kOr) BINARY(kXor) UNARY(kNot) BINARY(kShl) BINARY(kShr) }
  if constexpr (f) {
    BINARY(kDiv) BINARY(kAtan2) BINARY(kHypot) BINARY(kCopysign)
    UNARY(kFloor) UNARY(kCeil) UNARY(kRound) UNARY(kTrunc) UNARY(kSqrt) UNARY(kRsqrt) UNARY(kReciprocal) UNARY(kExp)
    UNARY(kExp2) UNARY(kExpm1) UNARY(kLog) UNARY(kLog2) UNARY(kLog10) UNARY(kLog1p) UNARY(kSin) UNARY(kCos) UNARY(kTan)
    UNARY(kAsin) UNARY(kAcos) UNARY(kAtan) UNARY(kSinh) UNARY(kCosh) UNARY(kTanh) UNARY(kAsinh) UNARY(kAcosh)
    UNARY(kAtanh) UNARY(kSigmoid) UNARY(kErf) UNARY(kErfc) UNARY(kErfinv) UNARY(kLgamma) UNARY(kDigamma)
    t.functions[at(Op::kIsNan)][k] = run_is_nan<T>;
    t.functions[at(Op::kIsInf)][k] = run_is_inf<T>;
  }
#undef BINARY
#undef COMPARE
#undef UNARY
#undef BOOLEAN
  fill_totals<Stored<T>>(t.totals[k]);
  constexpr auto to = [](Type type2) { return static_cast<int>(type2); };
  t.casts[k][to(Type::kBool)] = run_cast<T, bool>;
  t.casts[k][to(Type::kU8)] = run_cast<T, uint8_t>;
  t.casts[k][to(Type::kI8)] = run_cast<T, int8_t>;
  t.casts[k][to(Type::kI16)] = run_cast<T, int16_t>;
  t.casts[k][to(Type::kI32)] = run_cast<T, int32_t>;
  t.casts[k][to(Type::kI64)] = run_cast<T, int64_t>;
  t.casts[k][to(Type::kF32)] = run_cast<T, float>;
  t.casts[k][to(Type::kF64)] = run_cast<T, double>;
}

void stream_bytes(void* out, const void* in, size_t bytes) {
  typedef uint8_t Vector __attribute__((vector_size(kVectorBytes)));
  constexpr size_t kLine = 64;
  auto* to = static_cast<std::byte*>(out);
  auto* from = static_cast<const std::byte*>(in);
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, head);
  for (to += head, from += head, bytes -= head; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    Vector line[kLine / sizeof(Vector)];
    std::memcpy(line, from, kLine);
    for (size_t k = 0; k < kLine / sizeof(Vector); ++k) stream(to + k * sizeof(Vector), line[k]);
  }
  std::memcpy(to, from, bytes);
}

Table make() {
  Table t{};
  t.name = LAZYT_VM_ISA;
  fill<bool, Type::kBool>(t);
  fill<uint8_t, Type::kU8>(t);
  fill<int8_t, Type::kI8>(t);
  fill<int16_t, Type::kI16>(t);
  fill<int32_t, Type::kI32>(t);
  fill<int64_t, Type::kI64>(t);
  fill<float, Type::kF32>(t);
  fill<double, Type::kF64>(t);
  fill_vector_functions<float>(t);
  fill_vector_functions<double>(t);
  if (unary_vector<Op::kLog, double>) {
    t.functions[at(Op::kErfinv)][static_cast<int>(Type::kF32)] = run_erfinv_vector<float>;
    t.functions[at(Op::kLgamma)][static_cast<int>(Type::kF32)] = run_lgamma_vector;
    t.functions[at(Op::kErfinv)][static_cast<int>(Type::kF64)] = run_erfinv_vector<double>;
  }
  t.load_f16 = load_f16, t.store_f16 = store_f16, t.load_bf16 = load_bf16, t.store_bf16 = store_bf16;
  t.round_f16 = round_f16, t.round_bf16 = round_bf16;
  fill_half_totals<BFloat16>(t.totals_bf16), fill_half_totals<Half>(t.totals_f16);
  t.gelu_of_half = gelu_of_half;
  t.stream = stream_bytes;
  t.iota = iota;
  t.ramp = ramp;
  t.add_columns = add_columns;
  fill_columns<float>(t.columns_f32), fill_columns<BFloat16>(t.columns_bf16), fill_columns<Half>(t.columns_f16);
  t.philox = philox;
  t.normal_f32 = normal_f32;
  return t;
}

}  // namespace

const Table& LAZYT_VM_TABLE() {
  static const Table t = make();
  return t;
}

}  // namespace lazyt::onednn::vm
