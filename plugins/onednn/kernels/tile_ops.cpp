// Compiled once for each instruction set, with LAZYT_TILE_MACHINE naming what it defines; and again for doubles
// (tile_f64.cpp) and for integers of 32 and 64 bits (tile_i32.cpp, tile_i64.cpp: LAZYT_TILE_INTEGERS).
#include <bit>
#include <cmath>
#include <limits>

#include "halves.h"
#include "prefetch.h"
#include "stream_vectors.h"
#include "tile_lanes.h"

namespace lazyt::onednn::tile {
#if LAZYT_TILE_F32
void LAZYT_TILE_MATH(Machine& m);  // of tile_math.cpp
#endif
namespace {

#if LAZYT_TILE_BANKS
// Two more tiles in registers, of which the compiler makes no use (-ffixed): what goes to memory and comes back within some
// instructions waits for the stores, and a CPU loads two registers in a cycle where it computes four. The second is lost where
// elementary functions take its registers (tile_math.cpp).
register V w0 asm("xmm24");
register V w1 asm("xmm25");
register V w2 asm("xmm26");
register V w3 asm("xmm27");
register V w4 asm("xmm28");
register V w5 asm("xmm29");
register V w6 asm("xmm30");
register V w7 asm("xmm31");
register V x0 asm("xmm16");
register V x1 asm("xmm17");
register V x2 asm("xmm18");
register V x3 asm("xmm19");
register V x4 asm("xmm20");
register V x5 asm("xmm21");
register V x6 asm("xmm22");
register V x7 asm("xmm23");
#endif

V load(const Scalar* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
void store(Scalar* p, V v) { std::memcpy(p, &v, sizeof v); }
constexpr Scalar kOne = 1, kZero = 0;
V truth(VI c) { return c ? V{} + kOne : V{}; }

const Scalar* at(const Operand& o, int64_t i) { return static_cast<const Scalar*>(o.base) + (i & o.mask); }
template <Form form>
auto* at(const Operand& o, int64_t i) {
  using E = std::conditional_t<form == kBf16, BFloat16, std::conditional_t<form == kF16, Half, Scalar>>;
  return static_cast<E*>(o.base) + (i & o.mask);
}

#if LAZYT_TILE_INTEGERS
// What is too large wraps around.
template <class F>
V wrapping(V a, V b, F f) {
  return std::bit_cast<V>(f(std::bit_cast<VU>(a), std::bit_cast<VU>(b)));
}
V plus(V a, V b) { return wrapping(a, b, [](VU x, VU y) { return x + y; }); }
V minus(V a, V b) { return wrapping(a, b, [](VU x, VU y) { return x - y; }); }
V times(V a, V b) { return wrapping(a, b, [](VU x, VU y) { return x * y; }); }
V fma(V a, V b, V c) { return plus(times(a, b), c); }
V max(V x, V a) { return x > a ? x : a; }
V min(V x, V a) { return x < a ? x : a; }

template <Op op>
V apply(V x) {
  if constexpr (op == Op::kSquare) return times(x, x);
  if constexpr (op == Op::kNeg) return minus(V{}, x);
  if constexpr (op == Op::kAbs) return max(x, minus(V{}, x));
  if constexpr (op == Op::kSign) return min(max(x, V{} - kOne), V{} + kOne);
  if constexpr (op == Op::kNot) return truth(x == kZero);
  if constexpr (op == Op::kToBool) return truth(x != kZero);
  if constexpr (op == Op::kBitNot) return ~x;
}
template <Op op>
V apply(V x, V a) {
  if constexpr (op == Op::kAdd) return plus(x, a);
  if constexpr (op == Op::kSub) return minus(x, a);
  if constexpr (op == Op::kSubFrom) return minus(a, x);
  if constexpr (op == Op::kMul) return times(x, a);
  if constexpr (op == Op::kMax) return max(x, a);
  if constexpr (op == Op::kMin) return min(x, a);
  if constexpr (op == Op::kBitAnd) return x & a;
  if constexpr (op == Op::kBitOr) return x | a;
  if constexpr (op == Op::kBitXor) return x ^ a;
  if constexpr (op == Op::kEq) return truth(x == a);
  if constexpr (op == Op::kNe) return truth(x != a);
  if constexpr (op == Op::kLt) return truth(x < a);
  if constexpr (op == Op::kLe) return truth(x <= a);
  if constexpr (op == Op::kGt) return truth(x > a);
  if constexpr (op == Op::kGe) return truth(x >= a);
}
#else
using L = math::Lanes<V>;
using Int = std::conditional_t<sizeof(Scalar) == 8, int64_t, int32_t>;
V copysign(V size, V sign) {
  const VI bit = VI{} + std::numeric_limits<Int>::min();
  return std::bit_cast<V>((std::bit_cast<VI>(size) & ~bit) | (std::bit_cast<VI>(sign) & bit));
}
V absolute(V x) { return std::bit_cast<V>(std::bit_cast<VI>(x) & std::numeric_limits<Int>::max()); }
V fma(V a, V b, V c) { return L::fma(a, b, c); }

template <Op op>
V apply(V x) {
  if constexpr (op == Op::kSquare) return x * x;
  if constexpr (op == Op::kNeg) return -x;
  if constexpr (op == Op::kAbs) return absolute(x);
  if constexpr (op == Op::kSqrt) return L::sqrt(x);
  if constexpr (op == Op::kRsqrt) return kOne / L::sqrt(x);
  if constexpr (op == Op::kReciprocal) return kOne / x;
#if LAZYT_TILE_F64
  if constexpr (op == Op::kExp) return math::exp(x);
  if constexpr (op == Op::kExp2) return math::exp2(x);
  if constexpr (op == Op::kSigmoid) return math::sigmoid(x);
#else
  if constexpr (op == Op::kRoundBf16) return vm::round_to(x, BFloat16{});
  if constexpr (op == Op::kRoundF16) return vm::round_to(x, Half{});
#endif
  if constexpr (op == Op::kSign) return truth(x > kZero) - truth(x < kZero);
  if constexpr (op == Op::kNot) return truth(x == kZero);
  if constexpr (op == Op::kIsNan) return truth(x != x);
  if constexpr (op == Op::kToBool) return truth(x != kZero);
  if constexpr (op == Op::kFloor) return L::floor(x);
  if constexpr (op == Op::kCeil) return L::ceil(x);
  if constexpr (op == Op::kRound) return L::nearest(x);
  if constexpr (op == Op::kTrunc) return L::trunc(x);
}

V lerp(V a, V b, V weight) {
  const VI near = absolute(weight) < kOne / 2;
  return fma(near ? weight : weight - kOne, b - a, near ? a : b);
}

template <Op op>
V apply(V x, V a) {
  if constexpr (op == Op::kAdd) return x + a;
  if constexpr (op == Op::kSub) return x - a;
  if constexpr (op == Op::kSubFrom) return a - x;
  if constexpr (op == Op::kMul) return x * a;
  if constexpr (op == Op::kDiv) return x / a;
  if constexpr (op == Op::kDivInto) return a / x;
  // A NaN on either side is the result.
  if constexpr (op == Op::kMax) return x != x ? x : L::max(x, a);
  if constexpr (op == Op::kMin) return x != x ? x : L::min(x, a);
  if constexpr (op == Op::kCopysign) return copysign(x, a);
  if constexpr (op == Op::kCopysignOf) return copysign(a, x);
  if constexpr (op == Op::kEq) return truth(x == a);
  if constexpr (op == Op::kNe) return truth(x != a);
  if constexpr (op == Op::kLt) return truth(x < a);
  if constexpr (op == Op::kLe) return truth(x <= a);
  if constexpr (op == Op::kGt) return truth(x > a);
  if constexpr (op == Op::kGe) return truth(x >= a);
}
#endif

// The next tile, without a return and a call.
void run_end(ARGUMENTS) {
  i += kTile;
  if (i >= n) return;
  ip -= ip->a.mask + 1;
  NEXT;
}

// Tiles ahead that a running operand is fetched: what the CPU foresees itself ends at its reorder buffer.
constexpr size_t kAhead = 2;

template <Form form, class E>
[[gnu::always_inline]] inline V operand(const E* a, int k) {
  if constexpr (form == kNumber) return a[0] - V{};  // of -0, too
  constexpr int kLine = 64 / sizeof(E);
  const bool begins_line = k * kWidth % kLine == 0;
#if LAZYT_TILE_F32
  if constexpr (sizeof(E) == 2) {
    if (begins_line) prefetch(a + k * kWidth, kAhead * kTile * sizeof(E));
    vm::Shorts bits;
    std::memcpy(&bits, a + k * kWidth, sizeof bits);
    return vm::to_float(bits, E{});
  } else
#endif
  {
    if (form == kRunning && begins_line) prefetch(a + k * kWidth, kAhead * kTile * sizeof(E));
    return load(a + k * kWidth);
  }
}

// The same of an operand that is read late in a tile, and of halves: in bytes, the time of memory's answer.
constexpr size_t kFetchAhead = 4096;
template <class E>
void run_fetch(ARGUMENTS) {
  const auto* a = reinterpret_cast<const std::byte*>(static_cast<const E*>(ip->a.base) + (i & ip->a.mask));
  constexpr size_t kBytes = kTile * sizeof(E);
  for (size_t k = 0; k < kBytes; k += 64) __builtin_prefetch(a + kFetchAhead + k);
  NEXT;
}

template <Form form>
void run_load(ARGUMENTS) {
  const auto* a = at<form>(ip->a, i);
#define STEP(k)               \
  v##k = operand<form>(a, k); \
  IN_ORDER;
  EACH(STEP)
#undef STEP
  NEXT;
}
// Bytes of 0 and 1. GCC 12 takes a conversion of so few elements through memory.
V from_bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  auto* from = reinterpret_cast<const __m128i*>(p);
#if LAZYT_TILE_F64
  return _mm512_cvtepi64_pd(_mm512_cvtepu8_epi64(_mm_loadl_epi64(from)));
#elif LAZYT_TILE_INTEGERS == 64
  return std::bit_cast<V>(_mm512_cvtepu8_epi64(_mm_loadl_epi64(from)));
#elif LAZYT_TILE_INTEGERS == 32
  return std::bit_cast<V>(_mm512_cvtepu8_epi32(_mm_loadu_si128(from)));
#else
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from)));
#endif
#else
  V v;
  for (int j = 0; j < kWidth; ++j) v[j] = static_cast<Scalar>(p[j]);
  return v;
#endif
}
void to_bytes(uint8_t* p, V v) {
#if defined(__AVX512F__)
  auto* to = reinterpret_cast<__m128i*>(p);
#if LAZYT_TILE_F64
  _mm_storel_epi64(to, _mm512_cvtepi64_epi8(_mm512_cvtpd_epi64(v)));
#elif LAZYT_TILE_INTEGERS == 64
  _mm_storel_epi64(to, _mm512_cvtepi64_epi8(std::bit_cast<__m512i>(v)));
#elif LAZYT_TILE_INTEGERS == 32
  _mm_storeu_si128(to, _mm512_cvtepi32_epi8(std::bit_cast<__m512i>(v)));
#else
  _mm_storeu_si128(to, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
#endif
#else
  for (int j = 0; j < kWidth; ++j) p[j] = static_cast<uint8_t>(v[j]);
#endif
}
void run_load_u8(ARGUMENTS) {
  const uint8_t* a = static_cast<const uint8_t*>(ip->a.base) + (i & ip->a.mask);
#define STEP(k) v##k = from_bytes(a + k * kWidth);
  EACH(STEP)
#undef STEP
  NEXT;
}
#if LAZYT_TILE_F32
using Signed = int8_t __attribute__((vector_size(kWidth)));
using Unsigned = uint8_t __attribute__((vector_size(kWidth)));
template <class E>
using Lane = std::conditional_t<sizeof(E) == 4, VI, std::conditional_t<std::is_signed_v<E>, Signed, Unsigned>>;

template <class E>
void run_load_integers(ARGUMENTS) {
  const E* a = static_cast<const E*>(ip->a.base) + (i & ip->a.mask);
#define STEP(k)                                                                                  \
  {                                                                                              \
    Lane<E> lane;                                                                                \
    std::memcpy(&lane, a + k * kWidth, sizeof lane);                                             \
    v##k = __builtin_convertvector(__builtin_convertvector(lane, VI), V);                        \
  }
  EACH(STEP)
#undef STEP
  NEXT;
}
bool all(VI c) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(std::bit_cast<__m512i>(c)) == 0xffff;
#else
  bool yes = true;
  for (int j = 0; j < kWidth; ++j) yes &= c[j] != 0;
  return yes;
#endif
}
// As the vector machine casts; past 32 bits element by element.
template <class E>
void store_integers(E* to, V x) {
  Lane<E> lane;
  if (all(math::abs<V>(x) < 0x1p31f)) {
    lane = __builtin_convertvector(__builtin_convertvector(x, VI), Lane<E>);
  } else {
    for (int j = 0; j < kWidth; ++j)
      lane[j] = static_cast<E>(sizeof(E) == 4 ? math::to_int32(x[j]) : static_cast<int32_t>(math::to_int64(x[j])));
  }
  std::memcpy(to, &lane, sizeof lane);
}
template <class E>
void run_store_integers(ARGUMENTS) {
  E* a = static_cast<E*>(ip->a.base) + (i & ip->a.mask);
#define STEP(k) store_integers(a + k * kWidth, v##k);
  EACH(STEP)
#undef STEP
  NEXT;
}
#endif
void run_store(ARGUMENTS) {
  Scalar* a = const_cast<Scalar*>(at(ip->a, i));
#define STEP(k)                \
  store(a + k * kWidth, v##k); \
  IN_ORDER;
  EACH(STEP)
#undef STEP
  NEXT;
}

void run_stream(ARGUMENTS) {
  Scalar* a = const_cast<Scalar*>(at(ip->a, i));
  if (!vm::begins_line(a)) return run_store(ip, i, n, v0, v1, v2, v3, v4, v5, v6, v7);
#define STEP(k)                     \
  vm::stream(a + k * kWidth, v##k); \
  IN_ORDER;
  EACH(STEP)
#undef STEP
  NEXT;
}
#if LAZYT_TILE_F32
// Two vectors of halves as one: stores of half a vector take as long.
template <class E>
void store_halves(E* to, V first, V second) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<E, BFloat16>) {
    using Halves = uint16_t __attribute__((vector_size(vm::kVectorBytes)));
    Halves upper;
    for (int j = 0; j < 2 * kWidth; ++j) upper[j] = static_cast<uint16_t>(2 * j + 1);
    const auto a = std::bit_cast<__m512i>(vm::rounded(first)), b = std::bit_cast<__m512i>(vm::rounded(second));
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, std::bit_cast<__m512i>(upper), b));
  } else {
    const auto a = std::bit_cast<__m256i>(vm::to_bits(first, E{})), b = std::bit_cast<__m256i>(vm::to_bits(second, E{}));
    _mm512_storeu_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<E, BFloat16>) {
    const auto a = std::bit_cast<__m256i>(vm::rounded(first) >> 16), b = std::bit_cast<__m256i>(vm::rounded(second) >> 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
  } else {
    const auto a = std::bit_cast<__m128i>(vm::to_bits(first, E{})), b = std::bit_cast<__m128i>(vm::to_bits(second, E{}));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_set_m128i(b, a));
  }
#else
  const vm::Shorts bits[2] = {vm::to_bits(first, E{}), vm::to_bits(second, E{})};
  std::memcpy(to, bits, sizeof bits);
#endif
}
template <Form form>
void run_store_half(ARGUMENTS) {
  auto* a = at<form>(ip->a, i);
#define PAIR(k, l)                          \
  store_halves(a + k * kWidth, v##k, v##l); \
  IN_ORDER;
  PAIR(0, 1) PAIR(2, 3) PAIR(4, 5) PAIR(6, 7)
#undef PAIR
  NEXT;
}
template <Form form>
void run_stream_half(ARGUMENTS) {
  auto* a = at<form>(ip->a, i);
  if (!vm::begins_line(a)) return run_store_half<form>(ip, i, n, v0, v1, v2, v3, v4, v5, v6, v7);
  alignas(64) std::remove_pointer_t<decltype(a)> halves[kTile];
#define PAIR(k, l)                               \
  store_halves(halves + k * kWidth, v##k, v##l); \
  IN_ORDER;
  PAIR(0, 1) PAIR(2, 3) PAIR(4, 5) PAIR(6, 7)
#undef PAIR
  for (int k = 0; k < kTile; k += 2 * kWidth) {
    V pair;
    std::memcpy(&pair, halves + k, sizeof pair);
    vm::stream(a + k, pair);
  }
  NEXT;
}
#endif
void run_store_u8(ARGUMENTS) {
  uint8_t* a = static_cast<uint8_t*>(ip->a.base) + (i & ip->a.mask);
#define STEP(k) to_bytes(a + k * kWidth, v##k);
  EACH(STEP)
#undef STEP
  NEXT;
}
#if LAZYT_TILE_F64
// By the C library, if it has them.
template <Op op>
vm::UnaryVector<double> library = nullptr;
template <Op op>
void run_library(ARGUMENTS) {
#define STEP(k) v##k = library<op>(v##k);
  EACH(STEP)
#undef STEP
  NEXT;
}
#endif
template <Op op, Form form>
void run_binary(ARGUMENTS) {
  const auto* a = at<form>(ip->a, i);
#if !LAZYT_TILE_INTEGERS
  if constexpr (form == kNumber && (op == Op::kMax || op == Op::kMin)) {
    const V bound = operand<form>(a, 0);
    if (a[0] != a[0]) {  // asked once for all
      v0 = v1 = v2 = v3 = v4 = v5 = v6 = v7 = bound;
    } else {
#define STEP(k) v##k = op == Op::kMax ? L::max(bound, v##k) : L::min(bound, v##k);
      EACH(STEP)
#undef STEP
    }
    NEXT;
  }
#endif
#define STEP(k)                                \
  v##k = apply<op>(v##k, operand<form>(a, k)); \
  if constexpr (form != kNumber) IN_ORDER;
  EACH(STEP)
#undef STEP
  NEXT;
}
#if LAZYT_TILE_BANKS
// bank: kBank or kBank2.
#define KEPT(k) (bank == kBank ? w##k : x##k)
#define KEEP(k, v)                       \
  if constexpr (bank == kBank) w##k = v; \
  else x##k = v;
template <Op op, Form bank>
void run_binary_bank(ARGUMENTS) {
#define STEP(k) v##k = apply<op>(v##k, KEPT(k));
  EACH(STEP)
#undef STEP
  NEXT;
}
// The operand is in the bank, too, from here on.
template <Op op, Form bank>
void run_binary_keep(ARGUMENTS) {
  const Scalar* a = at(ip->a, i);
#define STEP(k)                       \
  {                                   \
    const V y = load(a + k * kWidth); \
    v##k = apply<op>(v##k, y);        \
    KEEP(k, y)                        \
    IN_ORDER;                         \
  }
  EACH(STEP)
#undef STEP
  NEXT;
}
template <Form bank>
void run_load_keep(ARGUMENTS) {
  const Scalar* a = at(ip->a, i);
#define STEP(k)                \
  v##k = load(a + k * kWidth); \
  KEEP(k, v##k)                \
  IN_ORDER;
  EACH(STEP)
#undef STEP
  NEXT;
}
template <Form bank>
void run_store_bank(ARGUMENTS) {
#define STEP(k) KEEP(k, v##k)
  EACH(STEP)
#undef STEP
  NEXT;
}
template <Form bank>
void run_load_bank(ARGUMENTS) {
#define STEP(k) v##k = KEPT(k);
  EACH(STEP)
#undef STEP
  NEXT;
}
#endif
#if LAZYT_TILE_INTEGERS
#define LERP(k)
#else
#define LERP(k) else if constexpr (op == Op::kLerp) v##k = lerp(p, q, v##k);
#endif
constexpr Form form_of(Kind kind) {
  constexpr Form kForm[] = {kAnyForm, kNumber, kBf16, kF16};
  return kForm[kind];
}
template <Op op, Kind kind_a, Kind kind_b>
void run_ternary(ARGUMENTS) {
  const auto* a = at<form_of(kind_a)>(ip->a, i);
  const auto* b = at<form_of(kind_b)>(ip->b, i);
#define STEP(k)                                                                                                   \
  {                                                                                                               \
    const V p = operand<form_of(kind_a)>(a, k), q = operand<form_of(kind_b)>(b, k);                               \
    if constexpr (op == Op::kFma) v##k = fma(v##k, p, q);                                                         \
    else if constexpr (op == Op::kFmaAdd) v##k = fma(p, q, v##k);                                                 \
    else if constexpr (op == Op::kWherePositive) v##k = p > kZero ? q : v##k;                                     \
    LERP(k)                                                                                                       \
    else v##k = v##k != kZero ? p : q;                                                                            \
    if constexpr (kind_a != kKindNumber || kind_b != kKindNumber) IN_ORDER;                                       \
  }
  EACH(STEP)
#undef STEP
  NEXT;
}

void run(const Bound* code, int64_t n) {
  const V z{};
  if (n > 0) reinterpret_cast<Next>(code[0].function)(code, 0, n, z, z, z, z, z, z, z, z);
}

Machine make() {
  Machine m{};
  m.tile = kTile;
  m.run = run;
  auto set = [&](Op op, Next f, int form = kAnyForm) {
    m.functions[static_cast<int>(op)][form] = reinterpret_cast<Function>(f);
  };
  set(Op::kEnd, run_end);
  set(Op::kFetch, run_fetch<Scalar>);
  set(Op::kFetch, run_fetch<uint16_t>, kBf16);
  set(Op::kFetch, run_fetch<uint16_t>, kF16);
  set(Op::kFetch, run_fetch<uint8_t>, kI8);
  set(Op::kFetch, run_fetch<uint8_t>, kU8);
  set(Op::kFetch, run_fetch<int32_t>, kI32);
  set(Op::kLoad, run_load<kAnyForm>);
  set(Op::kLoad, run_load<kNumber>, kNumber);
  set(Op::kLoad, run_load<kRunning>, kRunning);
#if LAZYT_TILE_F32
  set(Op::kLoad, run_load<kBf16>, kBf16);
  set(Op::kLoad, run_load<kF16>, kF16);
  set(Op::kLoad, run_load_integers<int8_t>, kI8);
  set(Op::kLoad, run_load_integers<uint8_t>, kU8);
  set(Op::kLoad, run_load_integers<int32_t>, kI32);
  set(Op::kStore, run_store_integers<int8_t>, kI8);
  set(Op::kStore, run_store_integers<uint8_t>, kU8);
  set(Op::kStore, run_store_integers<int32_t>, kI32);
  set(Op::kStore, run_store_half<kBf16>, kBf16);
  set(Op::kStore, run_store_half<kF16>, kF16);
  set(Op::kStream, run_stream_half<kBf16>, kBf16);
  set(Op::kStream, run_stream_half<kF16>, kF16);
#endif
#if LAZYT_TILE_BANKS
  set(Op::kLoad, run_load_bank<kBank>, kBank);
  set(Op::kLoad, run_load_bank<kBank2>, kBank2);
  set(Op::kLoad, run_load_keep<kBank>, kKeep);
  set(Op::kLoad, run_load_keep<kBank2>, kKeep2);
  set(Op::kStore, run_store_bank<kBank>, kBank);
  set(Op::kStore, run_store_bank<kBank2>, kBank2);
#define OF_BANKS(op)                                 \
  set(Op::op, run_binary_bank<Op::op, kBank>, kBank);   \
  set(Op::op, run_binary_bank<Op::op, kBank2>, kBank2); \
  set(Op::op, run_binary_keep<Op::op, kBank>, kKeep);   \
  set(Op::op, run_binary_keep<Op::op, kBank2>, kKeep2);
#else
#define OF_BANKS(op)
#endif
  set(Op::kLoadU8, run_load_u8);
  set(Op::kStore, run_store);
  set(Op::kStream, run_stream);
  set(Op::kStoreU8, run_store_u8);
#define BINARY(op)                                  \
  set(Op::op, run_binary<Op::op, kAnyForm>);             \
  set(Op::op, run_binary<Op::op, kNumber>, kNumber);    \
  set(Op::op, run_binary<Op::op, kRunning>, kRunning);  \
  OF_HALVES(op)                                         \
  OF_BANKS(op)
#if LAZYT_TILE_F32
#define OF_HALVES(op)                            \
  set(Op::op, run_binary<Op::op, kBf16>, kBf16); \
  set(Op::op, run_binary<Op::op, kF16>, kF16);
#else
#define OF_HALVES(op)
#endif
#define UNARY(op) set(Op::op, run_unary<Op::op>);
#define KINDS(op, kind_a, kind_b) set(Op::op, run_ternary<Op::op, kind_a, kind_b>, kind_a + kKinds * kind_b);
#define TERNARY(op)                                                                                                   \
  KINDS(op, kKindAny, kKindAny) KINDS(op, kKindNumber, kKindAny)                                                      \
  KINDS(op, kKindAny, kKindNumber) KINDS(op, kKindNumber, kKindNumber)                                                \
  TERNARY_OF_HALVES(op, kKindBf16) TERNARY_OF_HALVES(op, kKindF16)
#if LAZYT_TILE_F32
#define TERNARY_OF_HALVES(op, half)                                                                                   \
  KINDS(op, half, kKindAny) KINDS(op, half, kKindNumber) KINDS(op, half, half)                                        \
  KINDS(op, kKindAny, half) KINDS(op, kKindNumber, half)
#else
#define TERNARY_OF_HALVES(op, half)
#endif
  BINARY(kAdd) BINARY(kSub) BINARY(kSubFrom) BINARY(kMul) BINARY(kMax) BINARY(kMin)
  BINARY(kEq) BINARY(kNe) BINARY(kLt) BINARY(kLe) BINARY(kGt) BINARY(kGe)
  TERNARY(kFma) TERNARY(kFmaAdd) TERNARY(kSelect) TERNARY(kWherePositive)
  UNARY(kSquare) UNARY(kNeg) UNARY(kAbs) UNARY(kSign) UNARY(kNot) UNARY(kToBool)
#if LAZYT_TILE_INTEGERS
  BINARY(kBitAnd) BINARY(kBitOr) BINARY(kBitXor) UNARY(kBitNot)
#else
  TERNARY(kLerp) BINARY(kDiv) BINARY(kDivInto) BINARY(kCopysign) BINARY(kCopysignOf)
  UNARY(kSqrt) UNARY(kRsqrt) UNARY(kReciprocal)
  UNARY(kIsNan) UNARY(kFloor) UNARY(kCeil) UNARY(kRound) UNARY(kTrunc)
#endif
#if LAZYT_TILE_F64
#define LIBRARY(op, name) \
  if ((library<Op::op> = vm::vector_function<double, vm::UnaryVector<double>>(name))) set(Op::op, run_library<Op::op>);
  LIBRARY(kExpm1, "expm1") LIBRARY(kTanh, "tanh") LIBRARY(kErf, "erf")
  UNARY(kExp) UNARY(kExp2) UNARY(kSigmoid)
#elif LAZYT_TILE_F32
  UNARY(kRoundBf16) UNARY(kRoundF16)
  LAZYT_TILE_MATH(m);
#endif
  return m;
}

}  // namespace

const Machine& LAZYT_TILE_MACHINE();
const Machine& LAZYT_TILE_MACHINE() {
  static const Machine m = make();
  return m;
}

}  // namespace lazyt::onednn::tile
