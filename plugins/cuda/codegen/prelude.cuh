// What every generated kernel begins with. Compiled by NVRTC without any include path, and by the host's compiler over
// tests/cuda/fake/shim.h: nothing but built-in functions of CUDA is used.
//
//   LAZYT_KERNEL    how a kernel is declared: one parameter, an array of 64-bit words (compile.h's Word)
//   memory          lazyt_bool, lazyt_f16, lazyt_bf16 in memory; bool, float in registers
//   lazyt_<op>      the instructions of lazyt/toolkit/registers.hpp, one function each, by their names
//   lazyt_philox    the random words of rule PRG-7 and what is made of them
//   totals          reductions: of a thread, a warp, a block

template <int N>
struct lazyt_args {
  unsigned long long w[N];
};

#ifndef LAZYT_SHIM
// The words lie in constant memory, where every thread reads the same at once.
#define LAZYT_KERNEL(name, N, THREADS) \
  extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ lazyt_args<N> a)
// Shared memory whose size the launch gives.
#define LAZYT_DYNAMIC_SHARED(T, name)                                 \
  extern __shared__ __align__(16) unsigned char lazyt_shared_bytes[]; \
  T* const name = (T*)lazyt_shared_bytes
#define LAZYT_FN __device__ __forceinline__
#else
#define LAZYT_FN static inline
#endif

// Says once in a run that its input is wrong (compile.h's Fault): the words (faults, site) of the kernel, and a value to show.
LAZYT_FN void lazyt_fault(unsigned long long faults, unsigned long long site, long long value) {
  unsigned long long* const p = (unsigned long long*)faults;
  if (atomicCAS(p, 0ULL, site) == 0) p[1] = (unsigned long long)value;
}

LAZYT_FN double lazyt_f64(unsigned long long word) { return __longlong_as_double((long long)word); }

// ---- memory

struct lazyt_bool {
  unsigned char byte;
};
struct lazyt_f16 {
  unsigned short bits;
};
struct lazyt_bf16 {
  unsigned short bits;
};

// Rounds to nearest even; a NaN stays one.
#ifdef LAZYT_SHIM
LAZYT_FN float lazyt_from_f16(unsigned short h) {
  const unsigned sign = (unsigned)(h & 0x8000) << 16, body = (unsigned)(h & 0x7fff) << 13;
  // Below 1 the scale by 2^112 makes subnormals right.
  const unsigned scaled = __float_as_uint(__uint_as_float(body) * 5.192296858534828e33f);
  return __uint_as_float(((h & 0x7c00) == 0x7c00 ? body | 0x7f800000u : scaled) | sign);
}
LAZYT_FN unsigned short lazyt_to_f16(float x) {
  const unsigned b = __float_as_uint(x), sign = (b >> 16) & 0x8000u, magnitude = b & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (magnitude < 0x38800000u)  // subnormal: the addition rounds at the right bit
    return (unsigned short)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u));
  return (unsigned short)(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}
#else
LAZYT_FN float lazyt_from_f16(unsigned short h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
LAZYT_FN unsigned short lazyt_to_f16(float x) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#endif
LAZYT_FN float lazyt_from_bf16(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
LAZYT_FN unsigned short lazyt_to_bf16(float x) {
  const unsigned b = __float_as_uint(x);
  return (unsigned short)(x != x ? 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
LAZYT_FN float lazyt_round_f16(float x) { return lazyt_from_f16(lazyt_to_f16(x)); }
LAZYT_FN float lazyt_round_bf16(float x) { return lazyt_from_bf16(lazyt_to_bf16(x)); }

// An element of memory as a register, and back.
template <class T>
LAZYT_FN T lazyt_widen(T x) {
  return x;
}
LAZYT_FN bool lazyt_widen(lazyt_bool x) { return x.byte != 0; }
LAZYT_FN float lazyt_widen(lazyt_f16 x) { return lazyt_from_f16(x.bits); }
LAZYT_FN float lazyt_widen(lazyt_bf16 x) { return lazyt_from_bf16(x.bits); }
template <class T>
LAZYT_FN void lazyt_narrow(T& out, T x) {
  out = x;
}
LAZYT_FN void lazyt_narrow(lazyt_bool& out, bool x) { out.byte = x ? 1 : 0; }
LAZYT_FN void lazyt_narrow(lazyt_f16& out, float x) { out.bits = lazyt_to_f16(x); }
LAZYT_FN void lazyt_narrow(lazyt_bf16& out, float x) { out.bits = lazyt_to_bf16(x); }

template <class T>
LAZYT_FN auto lazyt_load(const T* p, long long i) -> decltype(lazyt_widen(*p)) {
  return lazyt_widen(p[i]);
}
template <class T, class R>
LAZYT_FN void lazyt_store(T* p, long long i, R x) {
  lazyt_narrow(p[i], x);
}

// N elements side by side, one access where N * sizeof(T) <= 16.
template <class T, int N>
struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) lazyt_pack {
  T v[N];
};
// A pack at p. Elsewhere than on a multiple of its size it is a fault of the GPU, and of the shim.
template <int N, class T>
LAZYT_FN lazyt_pack<T, N>& lazyt_pack_at(T* p) {
#ifdef LAZYT_SHIM
  if ((unsigned long long)p % alignof(lazyt_pack<T, N>)) lazyt_shim_fault("a pack of elements does not lie on a multiple of its size");
#endif
  return *(lazyt_pack<T, N>*)p;
}

// The pack at p. Where it is not whole only the first `left` elements are there, and the others are zero.
template <int N, class T, class I>
LAZYT_FN lazyt_pack<T, N> lazyt_take(const T* p, I left, bool whole) {
  if (whole) return lazyt_pack_at<N>((T*)p);
  lazyt_pack<T, N> pack = {};
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (k < left) pack.v[k] = p[k];
  return pack;
}
template <int N, class T, class I>
LAZYT_FN void lazyt_put(T* p, const lazyt_pack<T, N>& pack, I left, bool whole) {
  if (whole) {
    lazyt_pack_at<N>(p) = pack;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (k < left) p[k] = pack.v[k];
}

// ---- kinds of registers

template <class A, class B>
struct lazyt_same {
  static constexpr bool value = false;
};
template <class A>
struct lazyt_same<A, A> {
  static constexpr bool value = true;
};
template <class T>
constexpr bool lazyt_is_float = lazyt_same<T, float>::value || lazyt_same<T, double>::value;
template <class T>
constexpr bool lazyt_is_bool = lazyt_same<T, bool>::value;
template <class T>
constexpr bool lazyt_is_signed = (T)-1 < (T)0;

// What integers are computed in, so that they wrap around.
template <int bytes>
struct lazyt_wrap {
  using type = unsigned;
};
template <>
struct lazyt_wrap<8> {
  using type = unsigned long long;
};
template <class T>
using lazyt_unsigned = typename lazyt_wrap<sizeof(T)>::type;

template <class T>
LAZYT_FN T lazyt_inf() {
  return sizeof(T) == 4 ? (T)__int_as_float(0x7f800000) : (T)__longlong_as_double(0x7ff0000000000000LL);
}
template <class T>
LAZYT_FN T lazyt_nan() {
  return sizeof(T) == 4 ? (T)__int_as_float(0x7fc00000) : (T)__longlong_as_double(0x7ff8000000000000LL);
}

// ---- casts: PyTorch's. What a float holds beyond the integer's range is what x86-64 makes of it.

template <class R, class T>
LAZYT_FN R lazyt_cast(T x) {
  if constexpr (lazyt_same<R, T>::value) {
    return x;
  } else if constexpr (lazyt_is_bool<R>) {
    return x != (T)0;
  } else if constexpr (lazyt_is_float<T> && lazyt_same<R, int>::value) {
    return x >= (T)-2147483648.0 && x < (T)2147483648.0 ? (int)x : (int)0x80000000;
  } else if constexpr (lazyt_is_float<T> && !lazyt_is_float<R>) {
    const long long wide = x >= (T)-9223372036854775808.0 && x < (T)9223372036854775808.0 ? (long long)x : (long long)(1ULL << 63);
    return sizeof(R) == 8 ? (R)wide : (R)(int)wide;
  } else {
    return (R)x;
  }
}

// ---- two operands

#define LAZYT_WRAPPING(name, op, of_bools)                                    \
  template <class T>                                                          \
  LAZYT_FN T lazyt_##name(T a, T b) {                                         \
    if constexpr (lazyt_is_bool<T>) return of_bools;                          \
    else if constexpr (lazyt_is_float<T>) return a op b;                      \
    else return (T)((lazyt_unsigned<T>)a op(lazyt_unsigned<T>) b);            \
  }
LAZYT_WRAPPING(add, +, a || b)
LAZYT_WRAPPING(sub, -, a != b)
LAZYT_WRAPPING(mul, *, a && b)
#undef LAZYT_WRAPPING

LAZYT_FN float lazyt_trunc(float a) { return truncf(a); }
LAZYT_FN double lazyt_trunc(double a) { return trunc(a); }
LAZYT_FN float lazyt_floor(float a) { return floorf(a); }
LAZYT_FN double lazyt_floor(double a) { return floor(a); }
LAZYT_FN float lazyt_copysign(float a, float b) { return copysignf(a, b); }
LAZYT_FN double lazyt_copysign(double a, double b) { return copysign(a, b); }

// Integers: by 0 gives 0, by -1 wraps around.
template <class T>
LAZYT_FN T lazyt_div_trunc(T a, T b) {
  if constexpr (lazyt_is_float<T>) {
    return lazyt_trunc(a / b);
  } else {
    if (b == 0) return 0;
    if (lazyt_is_signed<T> && b == (T)-1) return lazyt_sub((T)0, a);
    return (T)(a / b);
  }
}
template <class T>
LAZYT_FN T lazyt_div(T a, T b) {
  if constexpr (lazyt_is_float<T>) return a / b;
  else return lazyt_div_trunc(a, b);
}
LAZYT_FN float lazyt_fmod(float a, float b) { return fmodf(a, b); }
LAZYT_FN double lazyt_fmod(double a, double b) { return fmod(a, b); }
template <class T>
LAZYT_FN T lazyt_fmod(T a, T b) {
  if (b == 0 || (lazyt_is_signed<T> && b == (T)-1)) return 0;
  return (T)(a % b);
}
template <class T>
LAZYT_FN T lazyt_div_floor(T a, T b) {
  if constexpr (lazyt_is_float<T>) {  // as PyTorch's div_floor_floating
    const T mod = lazyt_fmod(a, b), even = (a - mod) / b;
    const T div = mod != 0 && (b < 0) != (mod < 0) ? even - (T)1 : even;
    const T floored = lazyt_floor(div), rounded = div - floored > (T)0.5 ? floored + (T)1 : floored;
    return b == 0 ? a / b : div == 0 ? lazyt_copysign((T)0, a / b) : rounded;
  } else {
    const T q = lazyt_div_trunc(a, b);
    if (b == 0 || (lazyt_is_signed<T> && b == (T)-1)) return q;
    return a % b != 0 && (a < 0) != (b < 0) ? (T)(q - 1) : q;
  }
}
template <class T>
LAZYT_FN T lazyt_remainder(T a, T b) {
  const T mod = lazyt_fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? lazyt_add(mod, b) : mod;
}

// A NaN wins; with fmax and fmin it loses.
template <class T>
LAZYT_FN T lazyt_max(T a, T b) {
  if constexpr (lazyt_is_bool<T>) return a || b;
  else return a != a ? a : b != b ? b : a > b ? a : b;
}
template <class T>
LAZYT_FN T lazyt_min(T a, T b) {
  if constexpr (lazyt_is_bool<T>) return a && b;
  else return a != a ? a : b != b ? b : a < b ? a : b;
}
template <class T>
LAZYT_FN T lazyt_fmax(T a, T b) {
  return a != a ? b : b != b ? a : a > b ? a : b;
}
template <class T>
LAZYT_FN T lazyt_fmin(T a, T b) {
  return a != a ? b : b != b ? a : a < b ? a : b;
}

LAZYT_FN float lazyt_libm_pow(float a, float b) { return powf(a, b); }
LAZYT_FN double lazyt_libm_pow(double a, double b) { return pow(a, b); }
LAZYT_FN float lazyt_sqrt(float a) { return sqrtf(a); }
LAZYT_FN double lazyt_sqrt(double a) { return sqrt(a); }
template <class T>
LAZYT_FN T lazyt_pow(T a, T b) {
  if constexpr (lazyt_is_float<T>) {  // exponents that PyTorch computes exactly first
    if (b == (T)2) return a * a;
    if (b == (T)3) return a * a * a;
    if (b == (T)0.5) return a == -lazyt_inf<T>() ? -a : lazyt_sqrt(a + (T)0);
    if (b == (T)1) return a;
    if (b == (T)-1) return (T)1 / a;
    return lazyt_libm_pow(a, b);
  } else {
    if (b < 0) return a == (T)1 ? (T)1 : lazyt_is_signed<T> && a == (T)-1 ? (b % 2 ? (T)-1 : (T)1) : (T)0;
    lazyt_unsigned<T> result = 1, base = (lazyt_unsigned<T>)a;
    for (lazyt_unsigned<T> e = (lazyt_unsigned<T>)b; e; e >>= 1) {
      if (e & 1) result *= base;
      base *= base;
    }
    return (T)result;
  }
}

LAZYT_FN float lazyt_atan2(float a, float b) { return atan2f(a, b); }
LAZYT_FN double lazyt_atan2(double a, double b) { return atan2(a, b); }
LAZYT_FN float lazyt_hypot(float a, float b) { return hypotf(a, b); }
LAZYT_FN double lazyt_hypot(double a, double b) { return hypot(a, b); }

template <class T>
LAZYT_FN T lazyt_and(T a, T b) {
  return (T)(a & b);
}
template <class T>
LAZYT_FN T lazyt_or(T a, T b) {
  return (T)(a | b);
}
template <class T>
LAZYT_FN T lazyt_xor(T a, T b) {
  return (T)(a ^ b);
}
// A shift past the width gives 0, as PyTorch's; to the right the sign.
template <class T>
LAZYT_FN T lazyt_shl(T a, T b) {
  return b < 0 || b >= (T)(sizeof(T) * 8) ? (T)0 : (T)((lazyt_unsigned<T>)a << b);
}
template <class T>
LAZYT_FN T lazyt_shr(T a, T b) {
  if (b < 0 || b >= (T)(sizeof(T) * 8)) return a < 0 ? (T)-1 : (T)0;
  return (T)(a >> b);
}

#define LAZYT_COMPARISON(name, op)       \
  template <class T>                     \
  LAZYT_FN bool lazyt_##name(T a, T b) { \
    return a op b;                       \
  }
LAZYT_COMPARISON(eq, ==)
LAZYT_COMPARISON(ne, !=)
LAZYT_COMPARISON(lt, <)
LAZYT_COMPARISON(le, <=)
LAZYT_COMPARISON(gt, >)
LAZYT_COMPARISON(ge, >=)
#undef LAZYT_COMPARISON

// ---- one operand

template <class T>
LAZYT_FN T lazyt_move(T a) {
  return a;
}
LAZYT_FN float lazyt_abs(float a) { return fabsf(a); }
LAZYT_FN double lazyt_abs(double a) { return fabs(a); }
template <class T>
LAZYT_FN T lazyt_neg(T a) {
  if constexpr (lazyt_is_float<T>) return -a;
  else return lazyt_sub((T)0, a);
}
template <class T>
LAZYT_FN T lazyt_abs(T a) {
  return a < (T)0 ? lazyt_neg(a) : a;
}
template <class T>
LAZYT_FN T lazyt_sign(T a) {
  if constexpr (lazyt_is_bool<T>) return a;
  else return (T)((a > (T)0) - (a < (T)0));
}
template <class T>
LAZYT_FN T lazyt_not(T a) {
  if constexpr (lazyt_is_bool<T>) return !a;
  else return (T)~a;
}

#define LAZYT_FUNCTION(name, fn)                            \
  LAZYT_FN float lazyt_##name(float a) { return fn##f(a); } \
  LAZYT_FN double lazyt_##name(double a) { return fn(a); }
LAZYT_FUNCTION(ceil, ceil)
LAZYT_FUNCTION(round, rint)
LAZYT_FUNCTION(exp, exp)
LAZYT_FUNCTION(exp2, exp2)
LAZYT_FUNCTION(expm1, expm1)
LAZYT_FUNCTION(log, log)
LAZYT_FUNCTION(log2, log2)
LAZYT_FUNCTION(log10, log10)
LAZYT_FUNCTION(log1p, log1p)
LAZYT_FUNCTION(sin, sin)
LAZYT_FUNCTION(cos, cos)
LAZYT_FUNCTION(tan, tan)
LAZYT_FUNCTION(asin, asin)
LAZYT_FUNCTION(acos, acos)
LAZYT_FUNCTION(atan, atan)
LAZYT_FUNCTION(sinh, sinh)
LAZYT_FUNCTION(cosh, cosh)
LAZYT_FUNCTION(tanh, tanh)
LAZYT_FUNCTION(asinh, asinh)
LAZYT_FUNCTION(acosh, acosh)
LAZYT_FUNCTION(atanh, atanh)
LAZYT_FUNCTION(erf, erf)
LAZYT_FUNCTION(erfc, erfc)
LAZYT_FUNCTION(erfinv, erfinv)
LAZYT_FUNCTION(lgamma, lgamma)
#undef LAZYT_FUNCTION

template <class T>
LAZYT_FN T lazyt_rsqrt(T a) {
  return (T)1 / lazyt_sqrt(a);
}
template <class T>
LAZYT_FN T lazyt_reciprocal(T a) {
  return (T)1 / a;
}
template <class T>
LAZYT_FN T lazyt_sigmoid(T a) {
  return (T)1 / ((T)1 + lazyt_exp(-a));
}
// Recurrence to x >= 10, then the asymptotic series (Cephes' psi); reflection below 0. In f64: near its zeros nothing is
// left of f32.
template <class T>
LAZYT_FN T lazyt_digamma(T v) {
  double x = (double)v, result = 0;
  if (x == 0) return lazyt_copysign(lazyt_inf<T>(), -v);
  if (x < 0) {
    if (x == floor(x)) return lazyt_nan<T>();
    const double fraction = x - trunc(x);
    result = -3.14159265358979323846 / tan(3.14159265358979323846 * fraction);
    x = 1 - x;
  }
  while (x < 10) result -= 1 / x, x += 1;
  if (x == 10) return (T)(result + 2.25175258906672110764);
  double series = 0;
  if (x < 1e17) {
    const double z = 1 / (x * x);
    series = 8.33333333333333333333e-2;
    series = series * z - 2.10927960927960927961e-2;
    series = series * z + 7.57575757575757575758e-3;
    series = series * z - 4.16666666666666666667e-3;
    series = series * z + 3.96825396825396825397e-3;
    series = series * z - 8.33333333333333333333e-3;
    series = series * z + 8.33333333333333333333e-2;
    series *= z;
  }
  return (T)(result + log(x) - 0.5 / x - series);
}

template <class T>
LAZYT_FN bool lazyt_isnan(T a) {
  return a != a;
}
template <class T>
LAZYT_FN bool lazyt_isinf(T a) {
  return lazyt_abs(a) == lazyt_inf<T>();
}
template <class T>
LAZYT_FN T lazyt_where(bool c, T a, T b) {
  return c ? a : b;
}
LAZYT_FN float lazyt_fma(float a, float b, float c) { return fmaf(a, b, c); }
LAZYT_FN double lazyt_fma(double a, double b, double c) { return fma(a, b, c); }
template <class T>
LAZYT_FN T lazyt_fma(T a, T b, T c) {
  return lazyt_add(lazyt_mul(a, b), c);
}

// ---- random numbers: Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011), rule PRG-7

struct lazyt_words {
  unsigned w[4];
};
LAZYT_FN lazyt_words lazyt_philox(unsigned long long seed, unsigned long long counter) {
  unsigned c0 = (unsigned)counter, c1 = (unsigned)(counter >> 32), c2 = 0, c3 = 0;
  unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(c0, 0xD2511F53u), l0 = c0 * 0xD2511F53u;
    const unsigned h1 = __umulhi(c2, 0xCD9E8D57u), l1 = c2 * 0xCD9E8D57u;
    c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
// Word i of the stream that begins at `offset`.
LAZYT_FN unsigned lazyt_word(unsigned long long seed, unsigned long long offset, unsigned long long i) {
  const lazyt_words x = lazyt_philox(seed, offset + i / 4);
  const unsigned low = i & 1 ? x.w[1] : x.w[0], high = i & 1 ? x.w[3] : x.w[2];
  return i & 2 ? high : low;
}
// Element i of draws that take two words: of dtype f64 and i64.
LAZYT_FN unsigned long long lazyt_wide_word(unsigned long long seed, unsigned long long offset, unsigned long long i) {
  const lazyt_words x = lazyt_philox(seed, offset + i / 2);
  return i & 1 ? x.w[2] | (unsigned long long)x.w[3] << 32 : x.w[0] | (unsigned long long)x.w[1] << 32;
}
// In [0, 1).
LAZYT_FN float lazyt_unit(unsigned word) { return (float)(word >> 8) * 5.9604644775390625e-8f; }
LAZYT_FN double lazyt_unit(unsigned long long word) { return (double)(word >> 11) * 1.1102230246251565e-16; }
// In (0, 1].
LAZYT_FN float lazyt_positive_unit(unsigned word) { return (float)((word >> 8) + 1) * 5.9604644775390625e-8f; }
LAZYT_FN double lazyt_positive_unit(unsigned long long word) { return (double)((word >> 11) + 1) * 1.1102230246251565e-16; }
LAZYT_FN float lazyt_uniform(unsigned long long seed, unsigned long long offset, unsigned long long i) {
  return lazyt_unit(lazyt_word(seed, offset, i));
}
// Elements i .. i + 3. REQUIRES: i % 4 == 0
LAZYT_FN void lazyt_uniform4(float (&out)[4], unsigned long long seed, unsigned long long offset, unsigned long long i) {
  const lazyt_words x = lazyt_philox(seed, offset + i / 4);
#pragma unroll
  for (int k = 0; k < 4; ++k) out[k] = lazyt_unit(x.w[k]);
}
// Box and Muller's pair of normal numbers, of elements 2 j and 2 j + 1, from their words.
LAZYT_FN void lazyt_normal_pair(unsigned first, unsigned second, float& even, float& odd) {
  const float radius = sqrtf(-2.0f * logf(lazyt_positive_unit(first))), angle = lazyt_unit(second) * 6.28318530717958647693f;
  even = radius * cosf(angle), odd = radius * sinf(angle);
}
LAZYT_FN void lazyt_normal_pair(unsigned long long first, unsigned long long second, double& even, double& odd) {
  const double radius = sqrt(-2 * log(lazyt_positive_unit(first))), angle = 2 * 3.14159265358979323846 * lazyt_unit(second);
  even = radius * cos(angle), odd = radius * sin(angle);
}

// ---- totals. KIND counts as toolkit::ReduceKind; a total A is a double for floating registers, else a long long.

enum { lazyt_sum, lazyt_squares, lazyt_prod, lazyt_maximum, lazyt_minimum, lazyt_any, lazyt_all };

template <class T>
struct lazyt_total_of {
  using type = long long;
};
template <>
struct lazyt_total_of<float> {
  using type = double;
};
template <>
struct lazyt_total_of<double> {
  using type = double;
};
template <class T>
using lazyt_total = typename lazyt_total_of<T>::type;

template <int KIND, class A>
LAZYT_FN A lazyt_start() {
  if constexpr (KIND == lazyt_prod || KIND == lazyt_all) return 1;
  else if constexpr (KIND == lazyt_maximum) return lazyt_is_float<A> ? -(A)lazyt_inf<double>() : (A)(1ULL << 63);
  else if constexpr (KIND == lazyt_minimum) return lazyt_is_float<A> ? (A)lazyt_inf<double>() : (A)(~0ULL >> 1);
  else return 0;
}
// The same, as whichever total it is stored in.
template <int KIND>
struct lazyt_start_of_any {
  __device__ __forceinline__ operator double() const { return lazyt_start<KIND, double>(); }
  __device__ __forceinline__ operator long long() const { return lazyt_start<KIND, long long>(); }
};
template <int KIND>
LAZYT_FN lazyt_start_of_any<KIND> lazyt_start() {
  return {};
}

template <int KIND, class A>
LAZYT_FN A lazyt_combine(A a, A b) {
  if constexpr (KIND == lazyt_sum || KIND == lazyt_squares) return lazyt_add(a, b);
  else if constexpr (KIND == lazyt_prod) return lazyt_mul(a, b);
  else if constexpr (KIND == lazyt_maximum) return b != b ? b : b > a ? b : a;
  else if constexpr (KIND == lazyt_minimum) return b != b ? b : b < a ? b : a;
  else if constexpr (KIND == lazyt_any) return (A)(a != (A)0 || b != (A)0);
  else return (A)(a != (A)0 && b != (A)0);
}
template <int KIND, class A, class T>
LAZYT_FN A lazyt_join(A total, T x) {
  if constexpr (KIND == lazyt_any || KIND == lazyt_all) return lazyt_combine<KIND>(total, (A)(x != (T)0));
  else if constexpr (KIND == lazyt_squares) return lazyt_combine<KIND>(total, lazyt_mul((A)x, (A)x));
  else return lazyt_combine<KIND>(total, (A)x);
}
// Of WIDTH lanes (a power of two) that lie side by side; every one of them gets it. All lanes of the warp call it.
template <int KIND, int WIDTH, class A>
LAZYT_FN A lazyt_lanes_total(A x) {
#pragma unroll
  for (int k = WIDTH / 2; k > 0; k /= 2) x = lazyt_combine<KIND>(x, __shfl_xor_sync(0xffffffffu, x, k));
  return x;
}
// Of a block of THREADS (a multiple of 32) along x; thread 0 gets it. All threads call it, any number of times.
template <int KIND, class A, int THREADS>
LAZYT_FN A lazyt_block_total(A x) {
  constexpr int kWarps = THREADS / 32;
  x = lazyt_lanes_total<KIND, 32>(x);
  if constexpr (kWarps > 1) {
    __shared__ A parts[kWarps];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
      x = threadIdx.x < kWarps ? parts[threadIdx.x] : lazyt_start<KIND, A>();
      x = lazyt_lanes_total<KIND, 32>(x);
    }
    __syncthreads();  // before the next one writes
  }
  return x;
}
// Of a block's threads whose index is the same modulo WIDE (a power of two); those below WIDE get it. All threads call it,
// any number of times.
template <int KIND, int WIDE, int THREADS, class A>
LAZYT_FN A lazyt_down_total(A x) {
  __shared__ A parts[THREADS];
  parts[threadIdx.x] = x;
#pragma unroll
  for (int k = THREADS / 2; k >= WIDE; k /= 2) {
    __syncthreads();
    if (threadIdx.x < k) parts[threadIdx.x] = x = lazyt_combine<KIND>(x, parts[threadIdx.x + k]);
  }
  __syncthreads();  // before the next one writes
  return x;
}
// Whether this block is the last of `blocks` that come here with this counter, which is 0 before and after. All threads of a
// block of one dim call it. What the others wrote before, the last one reads.
LAZYT_FN bool lazyt_is_last(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(counter, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}
