// Vectors as wide as an instruction set's registers (GCC's vector types), for what is compiled once for each (LAZYT_ISA): tails go
// through the same code with partial loads and stores.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "double_math.h"
#include "floats.h"
#include "halves.h"
#include "vm_math.h"

#define INLINE __attribute__((always_inline)) inline

namespace lazyt::onednn {
// Of each instruction set its own: nothing of this may be one function for the linker.
namespace {

using vm::kVectorBytes;

template <class E>
struct VectorOf {
  typedef E type __attribute__((vector_size(kVectorBytes)));
};
template <class E>
using Vec = typename VectorOf<E>::type;
template <class C>
constexpr int kWidth = kVectorBytes / sizeof(C);
using vm::Shorts;
using vm::to_bits;
using vm::to_float;

template <class C>
using Full = std::integral_constant<int, kWidth<C>>;

// ---- loads and stores of m <= kWidth elements; m is Full in the main loops

template <class C>
INLINE Vec<C> splat(C x) {
  return x - Vec<C>{};
}
// The same of what lies in memory, by the port that loads. Left to itself GCC loads elements of several rows at once and shuffles
// each to all lanes, which on Intel takes a port that multiply-adds want: 0.65 of their peak.
template <class C>
INLINE Vec<C> splat_from(const C* p) {
#if defined(__AVX2__)
  Vec<C> v;
  if constexpr (sizeof(C) == 8) {
    asm("vbroadcastsd %1, %0" : "=v"(v) : "m"(*p));
    return v;
  }
  if constexpr (sizeof(C) == 4) {
    asm("vbroadcastss %1, %0" : "=v"(v) : "m"(*p));
    return v;
  }
#endif
  return splat(*p);
}

// The first m elements of a vector, zeros behind them; a call of memcpy would take as long as a row of 100 elements.
template <class Raw, class T>
INLINE Raw load_some(const T* p, int m) {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  const uint32_t mask = (uint32_t{1} << m) - 1;  // m < 32
  if constexpr (sizeof(T) == 4 && sizeof(Raw) == 64) return (Raw)_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p);
  if constexpr (sizeof(T) == 8 && sizeof(Raw) == 64) return (Raw)_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p);
  if constexpr (sizeof(T) == 2 && sizeof(Raw) == 32) return (Raw)_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4 && sizeof(Raw) == 32)
    return (Raw)_mm256_maskload_epi32(reinterpret_cast<const int*>(p), _mm256_cmpgt_epi32(_mm256_set1_epi32(m), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
  if constexpr (sizeof(T) == 8 && sizeof(Raw) == 32)
    return (Raw)_mm256_maskload_epi64(reinterpret_cast<const long long*>(p), _mm256_cmpgt_epi64(_mm256_set1_epi64x(m), _mm256_setr_epi64x(0, 1, 2, 3)));
#endif
  Raw raw{};
  std::memcpy(&raw, p, static_cast<size_t>(m) * sizeof(T));
  return raw;
}
template <class Raw, class T>
INLINE void store_some(T* p, Raw raw, int m) {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  const uint32_t mask = (uint32_t{1} << m) - 1;
  if constexpr (sizeof(T) == 4 && sizeof(Raw) == 64) return _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), (__m512i)raw);
  if constexpr (sizeof(T) == 8 && sizeof(Raw) == 64) return _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), (__m512i)raw);
  if constexpr (sizeof(T) == 2 && sizeof(Raw) == 32) return _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(mask), (__m256i)raw);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4 && sizeof(Raw) == 32)
    return _mm256_maskstore_epi32(reinterpret_cast<int*>(p), _mm256_cmpgt_epi32(_mm256_set1_epi32(m), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), (__m256i)raw);
  if constexpr (sizeof(T) == 8 && sizeof(Raw) == 32)
    return _mm256_maskstore_epi64(reinterpret_cast<long long*>(p), _mm256_cmpgt_epi64(_mm256_set1_epi64x(m), _mm256_setr_epi64x(0, 1, 2, 3)), (__m256i)raw);
#endif
  std::memcpy(p, &raw, static_cast<size_t>(m) * sizeof(T));
}
template <class T, class M>
INLINE Vec<Compute<T>> load(const T* p, M m) {
  using Raw = std::conditional_t<std::is_same_v<T, Compute<T>>, Vec<Compute<T>>, Shorts>;
  Raw raw;
  if constexpr (std::is_same_v<M, int>) {
    raw = load_some<Raw>(p, m);
  } else {
    std::memcpy(&raw, p, sizeof raw);
  }
  if constexpr (std::is_same_v<T, Compute<T>>)
    return raw;
  else
    return to_float(raw, T{});
}
template <class T, class M>
INLINE void store(T* p, Vec<Compute<T>> v, M m) {
  auto put = [&](auto raw) __attribute__((always_inline)) {
    if constexpr (std::is_same_v<M, int>)
      store_some(p, raw, m);
    else
      std::memcpy(p, &raw, sizeof raw);
  };
  if constexpr (std::is_same_v<T, Compute<T>>)
    put(v);
  else
    put(to_bits(v, T{}));
}
// v, with `other` from element m on.
template <class C, class M>
INLINE Vec<C> keep(Vec<C> v, M m, C other) {
  if constexpr (std::is_same_v<M, int>)
    for (int i = m; i < kWidth<C>; ++i) v[i] = other;
  return v;
}

// f(i, m, k) over n elements: k < 4 tells which of four accumulators is free.
template <class C, class F>
INLINE void sweep(int64_t n, F f) {
  constexpr int w = kWidth<C>;
  int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    f(i, Full<C>{}, 0);
    f(i + w, Full<C>{}, 1);
    f(i + 2 * w, Full<C>{}, 2);
    f(i + 3 * w, Full<C>{}, 3);
  }
  for (; i + w <= n; i += w) f(i, Full<C>{}, 0);
  if (i < n) f(i, static_cast<int>(n - i), 0);
}

// Folds the halves of a vector onto one another until a number is left.
template <class C, class V, class F, int... i>
INLINE C fold(V v, F f, std::integer_sequence<int, i...>) {
  constexpr int half = sizeof...(i);
  const auto low = __builtin_shufflevector(v, v, i...), high = __builtin_shufflevector(v, v, (i + half)...);
  if constexpr (half == 1)
    return f(C(v[0]), C(v[1]));
  else if constexpr (half == 2)
    return f(f(C(low[0]), C(high[0])), f(C(low[1]), C(high[1])));
  else
    return fold<C>(f(low, high), f, std::make_integer_sequence<int, half / 2>());
}
template <class C, class F>
INLINE C folded(Vec<C> v, F f) {
  return fold<C>(v, f, std::make_integer_sequence<int, kWidth<C> / 2>());
}
struct Plus {
  template <class V>
  INLINE V operator()(V a, V b) const {
    return a + b;
  }
};

INLINE Vec<double> in_double(Vec<float> v) {
  using Half = float __attribute__((vector_size(kVectorBytes / 2)));
  Half halves[2];
  std::memcpy(halves, &v, sizeof v);
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(halves[0]) + _mm512_cvtps_pd(halves[1]);  // GCC 12 takes convertvector apart
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(halves[0]) + _mm256_cvtps_pd(halves[1]);
#else
  return __builtin_convertvector(halves[0], Vec<double>) + __builtin_convertvector(halves[1], Vec<double>);
#endif
}
INLINE Vec<double> in_double(Vec<double> v) { return v; }
template <class C>
INLINE double total(const Vec<C>* a) {
  return folded<double>((in_double(a[0]) + in_double(a[1])) + (in_double(a[2]) + in_double(a[3])), Plus{});
}

// ---- elementary functions

template <class C>
INLINE Vec<C> max(Vec<C> a, Vec<C> b) {
  return a > b ? a : b;
}
INLINE Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) { return vm::math::Lanes<Vec<float>>::fma(a, b, c); }
INLINE Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#ifdef __FMA__
  for (int i = 0; i < kWidth<double>; ++i) a[i] = std::fma(a[i], b[i], c[i]);
  return a;
#else
  return a * b + c;
#endif
}
template <class V>
INLINE V fma(V a, V b, V c) {  // of integers
  return a * b + c;
}

INLINE Vec<float> exp(Vec<float> x) { return vm::math::exp<Vec<float>>(x); }
INLINE Vec<double> exp(Vec<double> x) { return vm::math::exp(x); }

template <class C>
constexpr C kLowest = -std::numeric_limits<C>::infinity();

template <class T>
INLINE Compute<T> row_max(const T* in, int64_t n) {
  using C = Compute<T>;
  Vec<C> m[4] = {splat(kLowest<C>), splat(kLowest<C>), splat(kLowest<C>), splat(kLowest<C>)};
  sweep<C>(n, [&](int64_t i, auto c, int k) __attribute__((always_inline)) {
    m[k] = max<C>(keep<C>(load(in + i, c), c, kLowest<C>), m[k]);
  });
  const Vec<C> all = max<C>(max<C>(m[0], m[1]), max<C>(m[2], m[3]));
  return folded<C>(all, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

// Of a square of vectors: element j of v[i] and element i of v[j] change places.
template <class C>
INLINE void transpose(Vec<C> (&v)[kWidth<C>]) {
  constexpr int w = kWidth<C>;
  constexpr auto all = std::make_integer_sequence<int, w>();
  Vec<C> zipped[w];
#pragma GCC unroll 4
  for (int step = 1; step < w; step *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < w / 2; ++i) {
      zipped[2 * i] = vm::zip_low(v[i], v[i + w / 2], all);
      zipped[2 * i + 1] = vm::zip_high(v[i], v[i + w / 2], all);
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) v[i] = zipped[i];
  }
}

}  // namespace
}  // namespace lazyt::onednn
