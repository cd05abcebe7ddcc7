// Compiled once for each instruction set (LAZYT_ISA). GCC vector types, as wide as the instruction set's registers;
// tails go through the same code with partial loads and stores.
#include "rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "double_math.h"
#include "halves.h"
#include "prefetch.h"
#include "vm_math.h"

#define INLINE __attribute__((always_inline)) inline

namespace lazyt::onednn {
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

// ---- one row

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

// Sum of exp(x - shift).
template <class T>
INLINE double row_sum_exp(const T* in, int64_t n, Compute<T> shift) {
  using C = Compute<T>;
  Vec<C> sums[4] = {};
  sweep<C>(n, [&](int64_t i, auto c, int k) __attribute__((always_inline)) {
    sums[k] += keep<C>(exp(load(in + i, c) - shift), c, C(0));
  });
  return total<C>(sums);
}

template <class T>
void softmax(T* out, const T* in, int64_t n) {
  using C = Compute<T>;
  const C shift = row_max(in, n);
  if constexpr (std::is_same_v<T, C>) {
    Vec<C> sums[4] = {};
    sweep<C>(n, [&](int64_t i, auto c, int k) __attribute__((always_inline)) {
      const Vec<C> e = exp(load(in + i, c) - shift);
      store(out + i, e, c);
      sums[k] += keep<C>(e, c, C(0));
    });
    const C scale = static_cast<C>(1 / total<C>(sums));
    sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) { store(out + i, load(out + i, c) * scale, c); });
  } else {
    const C scale = static_cast<C>(1 / row_sum_exp(in, n, shift));
    sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
      store(out + i, exp(load(in + i, c) - shift) * scale, c);
    });
  }
}

template <class T>
void log_softmax(T* out, const T* in, int64_t n) {
  using C = Compute<T>;
  const C shift = row_max(in, n);
  const C log_sum = static_cast<C>(std::log(row_sum_exp(in, n, shift)));
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    store(out + i, load(in + i, c) - shift - log_sum, c);
  });
}

template <class T>
void softmax_backward(T* grad_in, const T* grad, const T* out, int64_t n) {
  using C = Compute<T>;
  Vec<C> sums[4] = {};
  sweep<C>(n, [&](int64_t i, auto c, int k) __attribute__((always_inline)) { sums[k] += load(grad + i, c) * load(out + i, c); });
  const C dot = static_cast<C>(total<C>(sums));
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    store(grad_in + i, (load(grad + i, c) - dot) * load(out + i, c), c);
  });
}

template <class T>
void log_softmax_backward(T* grad_in, const T* grad, const T* out, int64_t n) {
  using C = Compute<T>;
  Vec<C> sums[4] = {};
  sweep<C>(n, [&](int64_t i, auto c, int k) __attribute__((always_inline)) { sums[k] += load(grad + i, c); });
  const C sum = static_cast<C>(total<C>(sums));
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    store(grad_in + i, load(grad + i, c) - exp(load(out + i, c)) * sum, c);
  });
}

template <class T>
double logsumexp(const T* in, int64_t n) {
  using C = Compute<T>;
  const C m = row_max(in, n);
  const C shift = m - m == 0 ? m : C(0);  // infinities stay themselves
  return std::log(row_sum_exp(in, n, shift)) + static_cast<double>(shift);
}

// ---- columns

// f(j, m) over the columns.
template <class C, class F>
INLINE void across(int64_t width, F f) {
  int64_t j = 0;
  for (; j + kWidth<C> <= width; j += kWidth<C>) f(j, Full<C>{});
  if (j < width) f(j, static_cast<int>(width - j));
}

// max[j] of the columns and sum[j] of exp(x - max[j]).
template <class T>
INLINE void column_max_sum(Compute<T>* m, Compute<T>* sums, const T* in, int64_t n, int64_t stride, int width) {
  using C = Compute<T>;
  across<C>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
    Vec<C> v = splat(kLowest<C>), sum = {};
    for (int64_t i = 0; i < n; ++i) v = max<C>(load(in + i * stride + j, c), v);
    for (int64_t i = 0; i < n; ++i) sum += exp(load(in + i * stride + j, c) - v);
    store(m + j, v, c);
    store(sums + j, sum, c);
  });
}

template <class T>
void softmax_columns(T* out, const T* in, int64_t n, int64_t out_stride, int64_t in_stride, int width) {
  using C = Compute<T>;
  C m[kColumns], sums[kColumns];
  column_max_sum(m, sums, in, n, in_stride, width);
  across<C>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
    const Vec<C> v = load(m + j, c), scale = C(1) / load(sums + j, c);
    for (int64_t i = 0; i < n; ++i) store(out + i * out_stride + j, exp(load(in + i * in_stride + j, c) - v) * scale, c);
  });
}
template <class T>
void log_softmax_columns(T* out, const T* in, int64_t n, int64_t out_stride, int64_t in_stride, int width) {
  using C = Compute<T>;
  C m[kColumns], sums[kColumns];
  column_max_sum(m, sums, in, n, in_stride, width);
  for (int j = 0; j < width; ++j) sums[j] = std::log(sums[j]);
  across<C>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
    const Vec<C> v = load(m + j, c), log_sum = load(sums + j, c);
    for (int64_t i = 0; i < n; ++i) store(out + i * out_stride + j, load(in + i * in_stride + j, c) - v - log_sum, c);
  });
}
template <class T>
void softmax_backward_columns(T* grad_in, const T* grad, const T* out, int64_t n, int64_t grad_in_stride,
                              int64_t grad_stride, int64_t out_stride, int width) {
  using C = Compute<T>;
  across<C>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
    Vec<C> dot = {};
    for (int64_t i = 0; i < n; ++i) dot += load(grad + i * grad_stride + j, c) * load(out + i * out_stride + j, c);
    for (int64_t i = 0; i < n; ++i)
      store(grad_in + i * grad_in_stride + j, (load(grad + i * grad_stride + j, c) - dot) * load(out + i * out_stride + j, c), c);
  });
}
template <class T>
void log_softmax_backward_columns(T* grad_in, const T* grad, const T* out, int64_t n, int64_t grad_in_stride,
                                  int64_t grad_stride, int64_t out_stride, int width) {
  using C = Compute<T>;
  across<C>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
    Vec<C> sum = {};
    for (int64_t i = 0; i < n; ++i) sum += load(grad + i * grad_stride + j, c);
    for (int64_t i = 0; i < n; ++i)
      store(grad_in + i * grad_in_stride + j, load(grad + i * grad_stride + j, c) - exp(load(out + i * out_stride + j, c)) * sum, c);
  });
}

// ---- short rows: as many at once as a vector has lanes, turned so that a vector has one element of each

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

// Whether load and store take some elements of a vector at the price of all.
template <class T>
#if defined(__AVX512BW__)
constexpr bool kTakesSome = true;
#elif defined(__AVX2__)
constexpr bool kTakesSome = sizeof(T) >= 4;
#else
constexpr bool kTakesSome = false;
#endif
template <class C>
constexpr int kMostPicked = kWidth<C> < 4 ? 2 : kWidth<C> * 3 / 4;
// From then on a row by itself is as fast.
template <class T>
constexpr int kMostShort = kTakesSome<T> ? 4 * kWidth<Compute<T>> : kMostPicked<Compute<T>>;

// Turns kWidth rows of n elements, one behind the other, into n columns of kWidth elements, and back: of few elements by picking each
// from the vectors that the rows are together, else by squares.
template <class T>
struct Turn {
  using C = Compute<T>;
  using Index = Vec<std::conditional_t<sizeof(C) == 4, int32_t, int64_t>>;
  static constexpr int w = kWidth<C>, most = kTakesSome<T> ? w / 4 : kMostPicked<C>;
  // Of rows of one length.
  struct Picks {
    Index column_vector[most], column_at[most];  // of each element of a column: which vector of the rows, and where in it
    Index row_column[most], row_at[most];        // of each element of such a vector: which column, and where in it
  };
  const int n;
  const Picks* const picks;  // null: by squares

  explicit Turn(int64_t of) : n(static_cast<int>(of)), picks(n <= most ? &picks_of(n) : nullptr) {}
  INLINE void to_columns(const T* rows, Vec<C>* columns) const {
    if (picks) {
      Vec<C> seen[most];
      for (int k = 0; k < n; ++k) seen[k] = load(rows + k * w, Full<C>{});
      pick(seen, columns, picks->column_vector, picks->column_at);
    } else if constexpr (kTakesSome<T>) {
      for (int j = 0; j < n; j += w) {
        const int m = n - j < w ? n - j : w;
        Vec<C> v[w];
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i) v[i] = load(rows + i * n + j, m);
        transpose<C>(v);
        for (int i = 0; i < m; ++i) columns[j + i] = v[i];
      }
    }
  }
  INLINE void to_rows(const Vec<C>* columns, T* rows) const {
    if (picks) {
      Vec<C> made[most];
      pick(columns, made, picks->row_column, picks->row_at);
      for (int k = 0; k < n; ++k) store(rows + k * w, made[k], Full<C>{});
    } else if constexpr (kTakesSome<T>) {
      for (int j = 0; j < n; j += w) {
        const int m = n - j < w ? n - j : w;
        Vec<C> v[w];
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i) v[i] = i < m ? columns[j + i] : Vec<C>{};
        transpose<C>(v);
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i) store(rows + i * n + j, v[i], m);
      }
    }
  }

 private:
  static const Picks& picks_of(int n) {
    static const std::array<Picks, most + 1> all = [] {
      std::array<Picks, most + 1> made{};
      for (int of = 1; of <= most; ++of)
        for (int k = 0; k < of; ++k)
          for (int i = 0; i < w; ++i) {
            made[of].column_vector[k][i] = (i * of + k) / w, made[of].column_at[k][i] = (i * of + k) % w;
            made[of].row_column[k][i] = (k * w + i) % of, made[of].row_at[k][i] = (k * w + i) / of;
          }
      return made;
    }();
    return all[static_cast<size_t>(n)];
  }
  INLINE void pick(const Vec<C>* from, Vec<C>* to, const Index* which, const Index* at) const {
    for (int k = 0; k < n; ++k) {
      Vec<C> v = __builtin_shuffle(from[0], at[k]);
      for (int j = 1; j < n; ++j) v = which[k] == j ? __builtin_shuffle(from[j], at[k]) : v;
      to[k] = v;
    }
  }
};

// f(x, y, r, m) over the columns x[operand][element] of the rows r to r + m; y[element] is what they become. Without `out` nothing is
// written.
template <class T, size_t K, class F>
INLINE void over_short_rows(T* out, const T* const (&in)[K], int64_t rows, int64_t n, F f) {
  using C = Compute<T>;
  constexpr int w = kWidth<C>;
  const Turn<T> turn(n);
  Vec<C> x[K][kMostShort<T>], y[kMostShort<T>];
  T last[w * kMostShort<T>];  // rows that are no whole vector of them, behind which others may end
  for (int64_t r = 0; r < rows; r += w) {
    const auto count = static_cast<size_t>((rows - r < w ? rows - r : w) * n) * sizeof(T);
    const bool whole = rows - r >= w;
    for (size_t k = 0; k < K; ++k) {
      const T* from = in[k] + r * n;
      if (!whole) {
        std::memset(last, 0, sizeof last);
        std::memcpy(last, from, count);
        from = last;
      }
      turn.to_columns(from, x[k]);
    }
    f(x, y, r, static_cast<int>(whole ? w : rows - r));
    if (!out) continue;
    turn.to_rows(y, whole ? out + r * n : last);
    if (!whole) std::memcpy(out + r * n, last, count);
  }
}

// Rows of a few vectors that stay as they lie: the totals of as many as a vector has lanes are folded together.
template <class T>
constexpr int64_t kMostTogether = kTakesSome<T> ? 16 * kWidth<Compute<T>> : 0;

// add(sums, r, j, m) adds what elements j to j + m of row r make to the K sums of their row; before(totals, r, m) has those of the rows
// r to r + m, to change them; write(totals, i, r, j, m) writes elements j to j + m of row r, whose totals are totals[k][i].
template <class T, int K, class Add, class Before, class Write>
INLINE void over_rows_together(int64_t rows, int64_t n, Add add, Before before, Write write) {
  using C = Compute<T>;
  constexpr int w = kWidth<C>;
  auto each = [n](auto f) __attribute__((always_inline)) {
    int64_t j = 0;
    for (; j + w <= n; j += w) f(j, Full<C>{});
    if (j < n) f(j, static_cast<int>(n - j));
  };
  for (int64_t r = 0; r < rows; r += w) {
    const int m = rows - r < w ? static_cast<int>(rows - r) : w;
    Vec<C> parts[K][w];
    C totals[K][w];
    for (int i = 0; i < m; ++i) {
      Vec<C> sums[K] = {};
      each([&](int64_t j, auto c) __attribute__((always_inline)) { add(sums, r + i, j, c); });
      for (int k = 0; k < K; ++k) parts[k][i] = sums[k];
    }
    for (int k = 0; k < K; ++k) {
      for (int i = m; i < w; ++i) parts[k][i] = Vec<C>{};
      const Vec<C> total = vm::folded_together(parts[k], Plus{});
      std::memcpy(totals[k], &total, sizeof total);
    }
    before(totals, r, m);
    for (int i = 0; i < m; ++i)
      each([&](int64_t j, auto c) __attribute__((always_inline)) { write(totals, i, r + i, j, c); });
  }
}

INLINE Vec<float> log(Vec<float> x) { return vm::math::log<Vec<float>>(x); }
INLINE Vec<double> log(Vec<double> x) {
  for (int i = 0; i < kWidth<double>; ++i) x[i] = std::log(x[i]);
  return x;
}
template <class C>
INLINE Vec<C> greatest(const Vec<C>* x, int64_t n) {
  Vec<C> m = splat(kLowest<C>);
  for (int64_t i = 0; i < n; ++i) m = max<C>(x[i], m);
  return m;
}

template <class T>
void softmax_short(T* out, const T* in, int64_t rows, int64_t n) {
  using C = Compute<T>;
  over_short_rows<T, 1>(out, {in}, rows, n, [&](const auto& x, auto& y, int64_t, int) __attribute__((always_inline)) {
    const Vec<C> shift = greatest<C>(x[0], n);
    Vec<C> sum = {};
    for (int64_t i = 0; i < n; ++i) sum += y[i] = exp(x[0][i] - shift);
    const Vec<C> scale = C(1) / sum;
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  });
}
template <class T>
void log_softmax_short(T* out, const T* in, int64_t rows, int64_t n) {
  using C = Compute<T>;
  over_short_rows<T, 1>(out, {in}, rows, n, [&](const auto& x, auto& y, int64_t, int) __attribute__((always_inline)) {
    const Vec<C> shift = greatest<C>(x[0], n);
    Vec<C> sum = {};
    for (int64_t i = 0; i < n; ++i) sum += exp(x[0][i] - shift);
    const Vec<C> log_sum = log(sum);
    for (int64_t i = 0; i < n; ++i) y[i] = x[0][i] - shift - log_sum;
  });
}
// From so many elements on they stay where they are, which leaves lanes empty but turns nothing.
template <class T>
constexpr int kStay = kWidth<Compute<T>> * 3 / 4 + 1;
constexpr auto kAsTheyAre = [](auto&, int64_t, int) {};

template <class T>
void softmax_backward_short(T* grad_in, const T* grad, const T* out, int64_t rows, int64_t n) {
  using C = Compute<T>;
  if constexpr (kTakesSome<T>)
    if (n >= kStay<T>)
      return over_rows_together<T, 1>(
          rows, n,
          [=](auto& sums, int64_t r, int64_t j, auto m) __attribute__((always_inline)) { sums[0] += load(grad + r * n + j, m) * load(out + r * n + j, m); },
          kAsTheyAre,
          [=](const auto& dot, int i, int64_t r, int64_t j, auto m) __attribute__((always_inline)) {
            store(grad_in + r * n + j, (load(grad + r * n + j, m) - dot[0][i]) * load(out + r * n + j, m), m);
          });
  over_short_rows<T, 2>(grad_in, {grad, out}, rows, n, [&](const auto& x, auto& y, int64_t, int) __attribute__((always_inline)) {
    Vec<C> dot = {};
    for (int64_t i = 0; i < n; ++i) dot += x[0][i] * x[1][i];
    for (int64_t i = 0; i < n; ++i) y[i] = (x[0][i] - dot) * x[1][i];
  });
}
template <class T>
void log_softmax_backward_short(T* grad_in, const T* grad, const T* out, int64_t rows, int64_t n) {
  using C = Compute<T>;
  if constexpr (kTakesSome<T>)
    if (n >= kStay<T>)
      return over_rows_together<T, 1>(
          rows, n, [=](auto& sums, int64_t r, int64_t j, auto m) __attribute__((always_inline)) { sums[0] += load(grad + r * n + j, m); }, kAsTheyAre,
          [=](const auto& sum, int i, int64_t r, int64_t j, auto m) __attribute__((always_inline)) {
            store(grad_in + r * n + j, load(grad + r * n + j, m) - exp(load(out + r * n + j, m)) * sum[0][i], m);
          });
  over_short_rows<T, 2>(grad_in, {grad, out}, rows, n, [&](const auto& x, auto& y, int64_t, int) __attribute__((always_inline)) {
    Vec<C> sum = {};
    for (int64_t i = 0; i < n; ++i) sum += x[0][i];
    for (int64_t i = 0; i < n; ++i) y[i] = x[0][i] - exp(x[1][i]) * sum;
  });
}

template <class T>
void logsumexp_short(T* out, const T* in, int64_t rows, int64_t n) {
  using C = Compute<T>;
  over_short_rows<T, 1>(static_cast<T*>(nullptr), {in}, rows, n, [&](const auto& x, auto&, int64_t r, int m) __attribute__((always_inline)) {
    const Vec<C> most = greatest<C>(x[0], n), shift = most - most == 0 ? most : Vec<C>{};  // infinities stay themselves
    Vec<C> sum = {};
    for (int64_t i = 0; i < n; ++i) sum += exp(x[0][i] - shift);
    store(out + r, log(sum) + shift, m);
  });
}
// The mean is taken twice, the second time of what is left, so that rows far from zero lose nothing.
template <class T>
void norm_short(T* out, Compute<T>* means, Compute<T>* rstds, const T* in, int64_t rows, int64_t n, bool centred, double eps,
                const Compute<T>* weight, const Compute<T>* bias) {
  using C = Compute<T>;
  const C count = static_cast<C>(n);
  over_short_rows<T, 1>(out, {in}, rows, n, [&](const auto& x, auto& y, int64_t r, int m) __attribute__((always_inline)) {
    Vec<C> mean = {}, left = {}, squares = {};
    if (centred)
      for (int64_t i = 0; i < n; ++i) mean += x[0][i];
    mean /= count;
    for (int64_t i = 0; i < n; ++i) left += y[i] = x[0][i] - mean;
    left = centred ? left / count : Vec<C>{};
    for (int64_t i = 0; i < n; ++i) {
      y[i] -= left;
      squares += y[i] * y[i];
    }
    Vec<C> rstd = squares / count + static_cast<C>(eps);
    for (int i = 0; i < kWidth<C>; ++i) rstd[i] = 1 / std::sqrt(rstd[i]);
    for (int64_t i = 0; i < n; ++i) {
      y[i] *= rstd;
      if (weight) y[i] *= weight[i];
      if (bias) y[i] += bias[i];
    }
    if (means) store(means + r, mean + left, m);
    if (rstds) store(rstds + r, rstd, m);
  });
}
// grad_in = rstd * (gw - mean of gw - xhat * mean of gw * xhat), where gw = grad * weight and xhat = (x - mean) * rstd.
template <class T>
void norm_backward_together(T* grad_in, Compute<T>* grad_weight, Compute<T>* grad_bias, const T* grad, const T* in, int64_t rows, int64_t n,
                            const Compute<T>* means, const Compute<T>* rstds, const Compute<T>* weight) {
  using C = Compute<T>;
  const C count = static_cast<C>(n);
  constexpr int w = kWidth<C>;
  Vec<C> weights[kMostTogether<T> / w + 1] = {}, biases[kMostTogether<T> / w + 1] = {};
  auto xhat = [=](int64_t r, int64_t j, auto m) __attribute__((always_inline)) { return (load(in + r * n + j, m) - (means ? means[r] : C(0))) * rstds[r]; };
  auto weighed = [=](Vec<C> g, int64_t j, auto m) __attribute__((always_inline)) { return weight ? g * load(weight + j, m) : g; };
  over_rows_together<T, 2>(
      rows, n,
      [&](auto& sums, int64_t r, int64_t j, auto m) __attribute__((always_inline)) {
        const Vec<C> g = load(grad + r * n + j, m), gx = g * xhat(r, j, m);
        weights[j / w] += gx;
        biases[j / w] += g;
        sums[0] += weighed(g, j, m);
        sums[1] += weighed(gx, j, m);
      },
      [=](auto& sums, int64_t, int m) __attribute__((always_inline)) {
        for (int i = 0; i < m; ++i) sums[0][i] = means ? sums[0][i] / count : C(0), sums[1][i] /= count;
      },
      [=](const auto& sums, int i, int64_t r, int64_t j, auto m) __attribute__((always_inline)) {
        if (grad_in) store(grad_in + r * n + j, rstds[r] * (weighed(load(grad + r * n + j, m), j, m) - sums[0][i] - xhat(r, j, m) * sums[1][i]), m);
      });
  for (int64_t j = 0; j < n; ++j) {
    if (grad_weight) grad_weight[j] += weights[j / w][j % w];
    if (grad_bias) grad_bias[j] += biases[j / w][j % w];
  }
}
template <class T>
void norm_backward_short(T* grad_in, Compute<T>* grad_weight, Compute<T>* grad_bias, const T* grad, const T* in, int64_t rows, int64_t n,
                         const Compute<T>* means, const Compute<T>* rstds, const Compute<T>* weight) {
  using C = Compute<T>;
  const C count = static_cast<C>(n);
  if constexpr (kTakesSome<T>)
    if (n >= kStay<T>) return norm_backward_together(grad_in, grad_weight, grad_bias, grad, in, rows, n, means, rstds, weight);
  Vec<C> weights[kMostShort<T>], biases[kMostShort<T>];
  for (int64_t i = 0; i < n; ++i) weights[i] = biases[i] = Vec<C>{};
  over_short_rows<T, 2>(grad_in, {grad, in}, rows, n, [&](auto& x, auto& y, int64_t r, int m) __attribute__((always_inline)) {
    const Vec<C> mean = means ? load(means + r, m) : Vec<C>{}, rstd = load(rstds + r, m);
    Vec<C> sum = {}, dot = {};
    for (int64_t i = 0; i < n; ++i) {
      const Vec<C> g = x[0][i], xhat = (x[1][i] - mean) * rstd, gx = g * xhat;
      if (grad_weight) weights[i] += gx;
      if (grad_bias) biases[i] += g;
      const C w = weight ? weight[i] : C(1);
      sum += y[i] = g * w;
      dot += gx * w;
      x[1][i] = xhat;
    }
    if (!grad_in) return;
    dot /= count;
    sum = means ? sum / count : Vec<C>{};
    for (int64_t i = 0; i < n; ++i) y[i] = rstd * (y[i] - sum - x[1][i] * dot);
  });
  for (int64_t i = 0; i < n; ++i) {
    if (grad_weight) grad_weight[i] += folded<C>(weights[i], Plus{});
    if (grad_bias) grad_bias[i] += folded<C>(biases[i], Plus{});
  }
}

// ---- sums. Floats are added in runs of kRun, double from then on.

constexpr int64_t kRun = 4096;

template <class T, class F>
INLINE double run_sum(int64_t n, F f) {
  using C = Compute<T>;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    Vec<C> sums[4] = {};
    sweep<C>(n - begin < kRun ? n - begin : kRun, [&](int64_t i, auto c, int k) __attribute__((always_inline)) {
      sums[k] += keep<C>(f(begin + i, c), c, C(0));
    });
    sum += total<C>(sums);
  }
  return sum;
}
template <class T>
double sum(const T* in, int64_t n) {
  return run_sum<T>(n, [&](int64_t i, auto c) __attribute__((always_inline)) { return load(in + i, c); });
}
template <class T>
double sum_squares(const T* in, int64_t n, Compute<T> shift) {
  return run_sum<T>(n, [&](int64_t i, auto c) __attribute__((always_inline)) {
    const auto d = load(in + i, c) - shift;
    return d * d;
  });
}
template <class T>
void column_sums(Compute<T>* sums, const T* in, int64_t n, int64_t stride, int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    across<Compute<T>>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
      store(sums + j, load(sums + j, c) + load(in + i * stride + j, c), c);
    });
}
template <class T>
void column_squares(Compute<T>* sums, const T* in, const Compute<T>* shift, int64_t n, int64_t stride, int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    across<Compute<T>>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
      const auto d = load(in + i * stride + j, c) - load(shift + j, c);
      store(sums + j, load(sums + j, c) + d * d, c);
    });
}

// ---- normalisations

template <class T>
void normalize(T* out, const T* in, int64_t n, Compute<T> mean, Compute<T> rstd, const Compute<T>* weight,
               const Compute<T>* bias) {
  using C = Compute<T>;
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    Vec<C> v = (load(in + i, c) - mean) * rstd;
    if (weight) v = v * load(weight + i, c);
    if (bias) v = v + load(bias + i, c);
    store(out + i, v, c);
  });
}
template <class T>
void affine(T* out, const T* in, int64_t n, Compute<T> mean, Compute<T> scale, Compute<T> bias) {
  sweep<Compute<T>>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    store(out + i, (load(in + i, c) - mean) * scale + bias, c);
  });
}
template <class T>
void affine_columns(T* out, const T* in, const Compute<T>* mean, const Compute<T>* scale, const Compute<T>* bias,
                    int64_t n, int64_t stride, int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    across<Compute<T>>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
      const auto x = load(in + i * stride + j, c) - load(mean + j, c);
      store(out + i * stride + j, x * load(scale + j, c) + load(bias + j, c), c);
    });
}

template <class T>
void backward_sums(double* sums, const T* grad, const T* in, int64_t n, Compute<T> mean, const Compute<T>* weight) {
  using C = Compute<T>;
  sums[0] = sums[1] = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    Vec<C> g_sums[4] = {}, gx_sums[4] = {};
    sweep<C>(n - begin < kRun ? n - begin : kRun, [&](int64_t o, auto c, int k) __attribute__((always_inline)) {
      const int64_t i = begin + o;
      Vec<C> g = load(grad + i, c);
      if (weight) g = g * load(weight + i, c);
      g_sums[k] += g;  // zero past the end
      gx_sums[k] += keep<C>(g * (load(in + i, c) - mean), c, C(0));
    });
    sums[0] += total<C>(g_sums);
    sums[1] += total<C>(gx_sums);
  }
}
template <class T>
void backward(T* grad_in, const T* grad, const T* in, int64_t n, Compute<T> mean, const Compute<T>* weight,
              Compute<T> a, Compute<T> b, Compute<T> c) {
  using C = Compute<T>;
  sweep<C>(n, [&](int64_t i, auto m, int) __attribute__((always_inline)) {
    Vec<C> g = load(grad + i, m);
    if (weight) g = g * load(weight + i, m);
    store(grad_in + i, g * a + (load(in + i, m) - mean) * b + c, m);
  });
}
template <class T>
void backward_weights(Compute<T>* grad_weight, Compute<T>* grad_bias, const T* grad, const T* in, int64_t n,
                      Compute<T> mean, Compute<T> rstd) {
  using C = Compute<T>;
  sweep<C>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    const Vec<C> g = load(grad + i, c);
    store(grad_weight + i, load(grad_weight + i, c) + g * ((load(in + i, c) - mean) * rstd), c);
    if (grad_bias) store(grad_bias + i, load(grad_bias + i, c) + g, c);
  });
}
template <class T>
void column_backward_sums(Compute<T>* sums_g, Compute<T>* sums_gx, const T* grad, const T* in, const Compute<T>* mean,
                          int64_t n, int64_t stride, int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    across<Compute<T>>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
      const auto g = load(grad + i * stride + j, c);
      store(sums_g + j, load(sums_g + j, c) + g, c);
      store(sums_gx + j, load(sums_gx + j, c) + g * (load(in + i * stride + j, c) - load(mean + j, c)), c);
    });
}
template <class T>
void backward_columns(T* grad_in, const T* grad, const T* in, const Compute<T>* mean, const Compute<T>* a,
                      const Compute<T>* b, const Compute<T>* c, int64_t n, int64_t stride, int64_t width) {
  for (int64_t i = 0; i < n; ++i)
    across<Compute<T>>(width, [&](int64_t j, auto m) __attribute__((always_inline)) {
      const auto x = load(in + i * stride + j, m) - load(mean + j, m);
      store(grad_in + i * stride + j, load(grad + i * stride + j, m) * load(a + j, m) + x * load(b + j, m) + load(c + j, m), m);
    });
}

template <class T>
void load_all(Compute<T>* out, const T* in, int64_t n) {
  sweep<Compute<T>>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) { store(out + i, load(in + i, c), c); });
}
template <class T>
void store_all(T* out, const Compute<T>* in, int64_t n) {
  sweep<Compute<T>>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) { store(out + i, load(in + i, c), c); });
}

template <class T>
void add(T* out, const T* in, int64_t n) {
  sweep<Compute<T>>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) { store(out + i, load(out + i, c) + load(in + i, c), c); });
}
template <class T>
void add_scaled(Compute<T>* out, const T* in, int64_t n, Compute<T> factor) {
  sweep<Compute<T>>(n, [&](int64_t i, auto c, int) __attribute__((always_inline)) {
    store(out + i, load(out + i, c) + load(in + i, c) * factor, c);
  });
}

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
// The elements of two vectors side by side; of bf16 those at even places and those at odd ones.
template <class T>
INLINE std::pair<Vec<Compute<T>>, Vec<Compute<T>>> load_two(const T* p) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    vm::Words both;
    std::memcpy(&both, p, sizeof both);
    return {std::bit_cast<Vec<float>>(both << 16), std::bit_cast<Vec<float>>(both & 0xffff0000u)};
  } else {
    return {load(p, Full<Compute<T>>{}), load(p + kWidth<Compute<T>>, Full<Compute<T>>{})};
  }
}
// kRows rows at once share each of the vectors, which share each row.
template <int kRows, int kVectors, class T, class C = Compute<T>>
INLINE void dots_of(const T* a, int64_t stride, const T* x, int64_t x_stride, int64_t k, C* y, int64_t y_stride) {
  Vec<C> even[kRows][kVectors] = {}, odd[kRows][kVectors] = {};
  int64_t j = 0;
  for (; j + 2 * kWidth<C> <= k; j += 2 * kWidth<C>) {
    std::pair<Vec<C>, Vec<C>> v[kVectors];
    for (int s = 0; s < kVectors; ++s) v[s] = load_two(x + s * x_stride + j);
    for (int r = 0; r < kRows; ++r) {
      const T* p = a + r * stride + j;
      for (int i = 0; i < 2 * kWidth<C>; i += 64 / sizeof(T)) prefetch(p + i, 4096);
      const auto [b, c] = load_two(p);
      for (int s = 0; s < kVectors; ++s) even[r][s] = fma(b, v[s].first, even[r][s]), odd[r][s] = fma(c, v[s].second, odd[r][s]);
    }
  }
  for (; j < k; j += kWidth<C>) {
    const int m = static_cast<int>(std::min<int64_t>(kWidth<C>, k - j));
    for (int r = 0; r < kRows; ++r)
      for (int s = 0; s < kVectors; ++s) even[r][s] = fma(load(a + r * stride + j, m), load(x + s * x_stride + j, m), even[r][s]);
  }
  for (int r = 0; r < kRows; ++r)
    for (int s = 0; s < kVectors; ++s) y[s * y_stride + r] = folded<C>(even[r][s] + odd[r][s], Plus{});
}
template <class T>
void dots(const T* a, int64_t stride, const T* x, int64_t m, int64_t k, Compute<T>* y) {
  // Where nothing is asked for ahead (prefetch.h), memory comes fastest in its order (27 GB/s instead of 11 on a Zen 4): row by row,
  // unless rows are so short that folding sums counts, or so long that x leaves the first-level cache.
  const int64_t bytes = k * static_cast<int64_t>(sizeof(T));
  const bool in_order = prefetch_mask == 0 && bytes >= 1024 && bytes <= 8192;
  int64_t i = 0;
  for (; i + 4 <= m && !in_order; i += 4) dots_of<4, 1>(a + i * stride, stride, x, 0, k, y + i, 0);
  for (; i < m; ++i) dots_of<1, 1>(a + i * stride, stride, x, 0, k, y + i, 0);
}
template <class T>
void dots_of_several(const T* a, int64_t stride, const T* x, int64_t x_stride, int vectors, int64_t m, int64_t k, Compute<T>* y, int64_t y_stride) {
  for (int64_t i = 0; i < m; ++i)
    vectors == 2 ? dots_of<1, 2>(a + i * stride, stride, x, x_stride, k, y + i, y_stride)
                 : dots_of<1, 3>(a + i * stride, stride, x, x_stride, k, y + i, y_stride);
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

template <class T>
constexpr RowKernels<T> row_kernels() {
  return {softmax<T>, log_softmax<T>, softmax_backward<T>, log_softmax_backward<T>, logsumexp<T>,
          kMostShort<T>, std::max(kMostTogether<T>, int64_t{kMostShort<T>}),
          softmax_short<T>, log_softmax_short<T>, softmax_backward_short<T>, log_softmax_backward_short<T>, logsumexp_short<T>, norm_short<T>, norm_backward_short<T>,
          softmax_columns<T>, log_softmax_columns<T>, softmax_backward_columns<T>, log_softmax_backward_columns<T>,
          sum<T>, sum_squares<T>, column_sums<T>, column_squares<T>, normalize<T>, affine<T>, affine_columns<T>,
          backward_sums<T>, backward<T>, backward_weights<T>, column_backward_sums<T>, backward_columns<T>,
          dots<T>, dots_of_several<T>, load_all<T>, store_all<T>, add<T>, add_scaled<T>};
}
template <class C>
constexpr TileKernels<C> tile_kernels() {
  return {gemm<C, false>, gemm<C, true>, online_softmax<C>, exp_minus<C>, scale<C>, dot<C>, softmax_grad<C>};
}

constexpr Rows kRows = {row_kernels<float>(), row_kernels<double>(), row_kernels<BFloat16>(), row_kernels<Half>(),
                        tile_kernels<float>(), tile_kernels<double>(),
                        gemm<uint64_t, false>, gemm<uint32_t, false>, gemm<uint16_t, false>, gemm<uint8_t, false>,
                        gemm<uint32_t, false, true>, Strip{2 * kWidth<float>, strip_of, pack_strip},
                        gather_four<float>, gather_four<double>,
                        transpose<uint32_t>, transpose<uint64_t>};

}  // namespace

#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
const Rows& CONCAT(rows_, LAZYT_ISA)() { return kRows; }

}  // namespace lazyt::onednn
