// Compiled once for each instruction set, with LAZYT_VM_TABLE naming the table that it defines. Plain loops that
// the compiler turns into vector code: no intrinsics, one source for all.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "floats.h"
#include "vm.h"
#include "vm_math.h"

namespace lazyt::onednn::vm {
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
      if (b == 0) return a / b;
      T mod = std::fmod(a, b), div = (a - mod) / b;
      if (mod != 0 && (b < 0) != (mod < 0)) div -= T(1);
      if (div == 0) return std::copysign(T(0), a / b);
      T floored = std::floor(div);
      return div - floored > T(0.5) ? floored + T(1) : floored;
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
      T mod = std::fmod(a, b);
      return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
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
  constexpr bool f32 = std::is_same_v<T, float>;
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
  if constexpr (op == Op::kNot) {
    if constexpr (std::is_same_v<T, bool>) return !a;
    if constexpr (!kFloating<T> && !std::is_same_v<T, bool>) return static_cast<T>(~a);
  }
  if constexpr (kFloating<T>) {
    if constexpr (op == Op::kFloor) return std::floor(a);
    if constexpr (op == Op::kCeil) return std::ceil(a);
    if constexpr (op == Op::kRound) return std::nearbyint(a);
    if constexpr (op == Op::kTrunc) return std::trunc(a);
    if constexpr (op == Op::kSqrt) return std::sqrt(a);
    if constexpr (op == Op::kRsqrt) return T(1) / std::sqrt(a);
    if constexpr (op == Op::kReciprocal) return T(1) / a;
    if constexpr (op == Op::kExp) { if constexpr (f32) return math::exp<float>(a); else return std::exp(a); }
    if constexpr (op == Op::kExp2) return std::exp2(a);
    if constexpr (op == Op::kExpm1) { if constexpr (f32) return math::expm1<float>(a); else return std::expm1(a); }
    if constexpr (op == Op::kLog) { if constexpr (f32) return math::log<float>(a); else return std::log(a); }
    if constexpr (op == Op::kLog2) return std::log2(a);
    if constexpr (op == Op::kLog10) return std::log10(a);
    if constexpr (op == Op::kLog1p) { if constexpr (f32) return math::log1p<float>(a); else return std::log1p(a); }
    if constexpr (op == Op::kSin) return std::sin(a);
    if constexpr (op == Op::kCos) return std::cos(a);
    if constexpr (op == Op::kTan) return std::tan(a);
    if constexpr (op == Op::kAsin) return std::asin(a);
    if constexpr (op == Op::kAcos) return std::acos(a);
    if constexpr (op == Op::kAtan) return std::atan(a);
    if constexpr (op == Op::kSinh) return std::sinh(a);
    if constexpr (op == Op::kCosh) return std::cosh(a);
    if constexpr (op == Op::kTanh) { if constexpr (f32) return math::tanh<float>(a); else return std::tanh(a); }
    if constexpr (op == Op::kAsinh) return std::asinh(a);
    if constexpr (op == Op::kAcosh) return std::acosh(a);
    if constexpr (op == Op::kAtanh) return std::atanh(a);
    if constexpr (op == Op::kSigmoid) { if constexpr (f32) return math::sigmoid<float>(a); else return T(1) / (T(1) + std::exp(-a)); }
    if constexpr (op == Op::kErf) { if constexpr (f32) return math::erf<float>(a); else return std::erf(a); }
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
  for (int i = 0; i < n; ++i) o[i] = c[i] ? a[i] : b[i];
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

template <class From, class To>
void run_cast(void* out, const void* in, int n) {
  auto* o = static_cast<To*>(out);
  auto* a = static_cast<const From*>(in);
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<To, bool>)
      o[i] = a[i] != From(0);
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
  for (int i = 0; i < n; ++i) o[i] = a[i];
}
void store_f16(void* out, const void* in, int n) {
  auto* o = static_cast<Half*>(out);
  auto* a = static_cast<const float*>(in);
  for (int i = 0; i < n; ++i) o[i] = Half(a[i]);
}

// 16 sums side by side, each of at most kBlock / 16 elements, so that float loses little; double from then on.
void sum_f32(double* sum, const float* in, int n) {
  float lanes[16] = {};
  int i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] += in[i + j];
  double total = 0;
  for (int j = 0; j < 16; ++j) total += lanes[j];
  for (; i < n; ++i) total += in[i];
  *sum += total;
}
template <bool larger>
float extreme_f32(const float* in, int n) {
  float lanes[16];
  bool nan = false;
  for (int j = 0; j < 16; ++j) lanes[j] = in[0];
  int i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) {
      const float v = in[i + j];
      nan |= v != v;
      lanes[j] = larger ? (v > lanes[j] ? v : lanes[j]) : (v < lanes[j] ? v : lanes[j]);
    }
  float best = lanes[0];
  for (int j = 1; j < 16; ++j) best = larger ? std::max(best, lanes[j]) : std::min(best, lanes[j]);
  for (; i < n; ++i) {
    nan |= in[i] != in[i];
    best = larger ? std::max(best, in[i]) : std::min(best, in[i]);
  }
  return nan ? std::numeric_limits<float>::quiet_NaN() : best;
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
void add_columns_f32(float* sums, const float* in, int n) {
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) sums[i] += in[i];
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

constexpr int at(Op op) { return static_cast<int>(op); }

template <class T, Type type>
void fill(Table& t) {
  constexpr int k = static_cast<int>(type);
  constexpr bool f = kFloating<T>, boolean = std::is_same_v<T, bool>;
#define BINARY(op) t.functions[at(Op::op)][k] = run_binary<Op::op, T>;
#define COMPARE(op) t.functions[at(Op::op)][k] = run_compare<Op::op, T>;
#define UNARY(op) t.functions[at(Op::op)][k] = run_unary<Op::op, T>;
  COMPARE(kEq) COMPARE(kNe) COMPARE(kLt) COMPARE(kLe) COMPARE(kGt) COMPARE(kGe)
  UNARY(kMove) UNARY(kSign)
  BINARY(kMax) BINARY(kMin)
  t.functions[at(Op::kWhere)][k] = run_where<T>;
  BINARY(kAdd) BINARY(kMul)
  if constexpr (!boolean) {
    BINARY(kSub) BINARY(kDivTrunc) BINARY(kDivFloor) BINARY(kFmod) BINARY(kRemainder) BINARY(kFmax) BINARY(kFmin) BINARY(kPow)
    UNARY(kAbs) UNARY(kNeg)
    t.functions[at(Op::kFma)][k] = run_fma<T>;
  }
  if constexpr (!f) {
    BINARY(kAnd) BINARY(kOr) BINARY(kXor) UNARY(kNot)
    if constexpr (!boolean) { BINARY(kShl) BINARY(kShr) }
  }
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
  t.load_f16 = load_f16, t.store_f16 = store_f16, t.load_bf16 = load_bf16, t.store_bf16 = store_bf16;
  t.round_f16 = round_f16, t.round_bf16 = round_bf16;
  t.sum_f32 = sum_f32;
  t.max_f32 = extreme_f32<true>;
  t.min_f32 = extreme_f32<false>;
  t.add_columns_f32 = add_columns_f32;
  t.philox = philox;
  return t;
}

}  // namespace

const Table& LAZYT_VM_TABLE();
const Table& LAZYT_VM_TABLE() {
  static const Table t = make();
  return t;
}

}  // namespace lazyt::onednn::vm
