// How reductions are added up: in f64 for floats, in int64 for integers, whatever the elements are; halves from memory for some
// elements in f32, then in f64. Included where code
// is compiled for each instruction set (vm_ops.cpp); vm::Table hands the functions out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "halves.h"
#include "prefetch.h"
#include "vector_math.h"
#include "vm.h"

namespace lazyt::onednn::vm {
namespace {  // each instruction set has its own copy

template <class W, class V>
W widened(V v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(W) == 2 * sizeof(V)) return _mm512_cvtps_pd(v);  // GCC 12 takes convertvector apart
#elif defined(__AVX2__)
  if constexpr (sizeof(W) == 2 * sizeof(V)) return _mm256_cvtps_pd(v);
#endif
  return __builtin_convertvector(v, W);
}

// f64 in eight lanes.
struct Eight {
  using V = typename Vector<double>::type;
  static constexpr int kWide = Vector<double>::lanes;
  V lanes[8 / kWide] = {};
  // Vector k of some: element i goes to lane i % 8.
  [[gnu::always_inline]] void add(int k, V x) { lanes[k % (8 / kWide)] += x; }
  [[gnu::always_inline]] void add(int k, Vector<float>::type x) {
    typedef float Half __attribute__((vector_size(kWide * sizeof(float))));
    const auto widen = [&]<int... j>(std::integer_sequence<int, j...>, int at) {
      return widened<V>(Half(at ? __builtin_shufflevector(x, x, (kWide + j)...) : __builtin_shufflevector(x, x, j...)));
    };
    add(2 * k, widen(std::make_integer_sequence<int, kWide>{}, 0));
    add(2 * k + 1, widen(std::make_integer_sequence<int, kWide>{}, 1));
  }
  double sum() const {
    double x[8];
    std::memcpy(x, lanes, sizeof x);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
  }
  // The same sum as far as a vector, of which folded_together makes the rest.
  [[gnu::always_inline]] V folded() const {
    if constexpr (kWide == 8) return lanes[0];
    else if constexpr (kWide == 4) return lanes[0] + lanes[1];
    else return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
  }
};

template <class T, ReduceKind kind>
struct Reducer {
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  static constexpr bool kExtreme = kind == ReduceKind::kMax || kind == ReduceKind::kMin;
  static constexpr bool kLogical = kind == ReduceKind::kAny || kind == ReduceKind::kAll;
  using Acc = std::conditional_t<kFloat && !kLogical, double, int64_t>;
  static Acc identity() {
    if constexpr (kind == ReduceKind::kProd || kind == ReduceKind::kAll) return 1;
    if constexpr (kind == ReduceKind::kMax)
      return kFloat ? static_cast<Acc>(-INFINITY) : static_cast<Acc>(INT64_MIN);
    if constexpr (kind == ReduceKind::kMin)
      return kFloat ? static_cast<Acc>(INFINITY) : static_cast<Acc>(INT64_MAX);
    return 0;
  }
  static Acc& of(Total& total) {
    if constexpr (std::is_same_v<Acc, double>)
      return total.d;
    else
      return total.i;
  }
  // Integers wrap around. A NaN stays.
  template <class A>
  static A join(A a, A b) {
    if constexpr (kind == ReduceKind::kSum || kind == ReduceKind::kSquares) {
      if constexpr (std::is_integral_v<A>) return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      return a + b;
    }
    if constexpr (kind == ReduceKind::kProd) {
      if constexpr (std::is_integral_v<A>) return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      return a * b;
    }
    if constexpr (kind == ReduceKind::kMax) {
      const A larger = b > a ? b : a;
      return b != b ? b : larger;
    }
    if constexpr (kind == ReduceKind::kMin) {
      const A smaller = b < a ? b : a;
      return b != b ? b : smaller;
    }
    if constexpr (kind == ReduceKind::kAny) return a | b;
    if constexpr (kind == ReduceKind::kAll) return a & b;
  }
  // What an element adds.
  template <class A>
  static A lift(T v) {
    if constexpr (kLogical) return v != T(0);
    const A x = static_cast<A>(v);
    if constexpr (kind == ReduceKind::kSquares) return x * x;
    return x;
  }
  // What lanes side by side add up in: sums of f32 in f32, as each has at most kBlock / kLanes elements; extremes and truths
  // as they are.
  using Lane = std::conditional_t<kLogical, int32_t, std::conditional_t<(kExtreme || (kind == ReduceKind::kSum && kFloat)), T, Acc>>;
  static constexpr int kLanes = 16;

  template <int n>
  struct AsMany {
    typedef T type __attribute__((vector_size(n * sizeof(T))));
  };
  // The square of an f32 is exact in f64, so that one rounding or two are the same.
  template <class W>
  static W added(W sum, W x) {
    if constexpr (kind == ReduceKind::kSum) return sum + x;
#if defined(__AVX512F__)
    else if constexpr (std::is_same_v<T, float>) return _mm512_fmadd_pd(x, x, sum);
#elif defined(__FMA__)
    else if constexpr (std::is_same_v<T, float>) return _mm256_fmadd_pd(x, x, sum);
#endif
    else return sum + x * x;
  }
  // Sums in 64 lanes, of squares in 32, whatever the width of vectors is: results are the same on each. They begin
  // anew with each block. How many elements it took.
  [[gnu::always_inline]] static int sums(Eight& eight, const T* p, int n) {
    using L = std::conditional_t<kind == ReduceKind::kSum, T, double>;
    using W = typename Vector<L>::type;
    using V = typename AsMany<Vector<L>::lanes>::type;
    constexpr int kWide = Vector<L>::lanes, kAll = kind == ReduceKind::kSum ? 64 : 32;
    int i = 0;
    while (i + kAll <= n) {
      const int end = std::min(n, i + kBlock);
      prefetch_block(p + end, kBlock * sizeof(T));
      W parts[kAll / kWide] = {};
      for (; i + kAll <= end; i += kAll)
#pragma GCC unroll 32
        for (int k = 0; k < kAll / kWide; ++k) {
          V v;
          std::memcpy(&v, p + i + k * kWide, sizeof v);
          parts[k] = added(parts[k], widened<W>(v));
        }
      for (int k = 0; k < kAll / kWide; ++k) eight.add(k, parts[k]);
    }
    for (; i + 8 <= n; i += 8)
      for (int k = 0; k < 8 / Eight::kWide; ++k) {
        typename AsMany<Eight::kWide>::type v;
        std::memcpy(&v, p + i + k * Eight::kWide, sizeof v);
        eight.lanes[k] = added(eight.lanes[k], widened<Eight::V>(v));
      }
    return i;
  }

  // f over all, by halves: the second on the first.
  template <size_t n, class A, class F>
  static A folded(A (&x)[n], F f) {
    for (size_t half = n / 2; half > 0; half /= 2)
      for (size_t j = 0; j < half; ++j) x[j] = f(x[j], x[j + half]);
    return x[0];
  }

  static void row(Total& total, const void* in, int n) {
    auto* p = static_cast<const T*>(in);
    if constexpr (kind == ReduceKind::kProd && kFloat) {
      // Lanes that multiplied for longer would leave what f64 has, and what is denormal is slow.
      for (int i = 0; i < n; i += kBlock) {
        prefetch_block(p + i + kBlock, kBlock * sizeof(T));
        run(total, p + i, std::min(kBlock, n - i));
      }
    } else {
      run(total, p, n);
    }
  }
  static void run(Total& total, const T* p, int n) {
    Acc acc = of(total);
    [[maybe_unused]] Lane lanes[kLanes];
    int i = 0;
    if constexpr (kExtreme) {  // comparisons and choices by vectors: the compiler makes none of join
      using W = typename Vector<T>::type;
      constexpr int kWide = Vector<T>::lanes, kAtOnce = 4;
      if (n >= kWide) {
        auto larger = [](W a, W b) { return kind == ReduceKind::kMax ? (a > b ? a : b) : (a < b ? a : b); };
        W best[kAtOnce], v;
        std::memcpy(&v, p, sizeof v);
        auto wrong = v != v;
        for (W& b : best) b = v;
        i = kWide;
        while (i + kAtOnce * kWide <= n) {
          const int end = std::min(n, i + kBlock);
          prefetch_block(p + end, kBlock * sizeof(T));
          for (; i + kAtOnce * kWide <= end; i += kAtOnce * kWide)
            for (int k = 0; k < kAtOnce; ++k) {
              std::memcpy(&v, p + i + k * kWide, sizeof v);
              best[k] = larger(v, best[k]);
              wrong |= v != v;
            }
        }
        for (; i < n; i += kWide) {  // the last begins among what was seen
          i = std::min(i, n - kWide);
          std::memcpy(&v, p + i, sizeof v);
          best[0] = larger(v, best[0]);
          wrong |= v != v;
        }
        const W all = larger(larger(best[0], best[1]), larger(best[2], best[3]));
        T lane[kWide];
        std::memcpy(lane, &all, sizeof all);
        bool nan = false;
        if constexpr (kFloat)
          for (int j = 0; j < kWide; ++j) nan |= wrong[j] != 0;
        const T most = folded(lane, [](T a, T b) { return (kind == ReduceKind::kMax ? b > a : b < a) ? b : a; });
        acc = join<Acc>(acc, nan ? std::numeric_limits<Acc>::quiet_NaN() : static_cast<Acc>(most));
      }
    } else if constexpr (kind == ReduceKind::kProd && kFloat) {
      using D = typename Vector<double>::type;
      using F = typename AsMany<Vector<double>::lanes>::type;
      constexpr int kWide = Vector<double>::lanes, kAtOnce = 4;
      D products[kAtOnce] = {D{} + 1.0, D{} + 1.0, D{} + 1.0, D{} + 1.0};
      for (; i + kAtOnce * kWide <= n; i += kAtOnce * kWide)
        for (int k = 0; k < kAtOnce; ++k) {
          F v;
          std::memcpy(&v, p + i + k * kWide, sizeof v);
          products[k] *= widened<D>(v);
        }
      const D all = (products[0] * products[1]) * (products[2] * products[3]);
      double lane[kWide];
      std::memcpy(lane, &all, sizeof all);
      acc *= folded(lane, [](double a, double b) { return a * b; });
    } else if constexpr (kFloat && (kind == ReduceKind::kSum || kind == ReduceKind::kSquares)) {
      Eight eight;
      i = sums(eight, p, n);
      acc += eight.sum();
    }
    if constexpr (!kExtreme && !(kind == ReduceKind::kProd && kFloat))
      if (n - i >= kLanes) {
        for (int j = 0; j < kLanes; ++j) lanes[j] = lift<Lane>(p[i + j]);
        for (i += kLanes; i + kLanes <= n;) {
          const int end = std::min(n, i + kBlock);
          prefetch_block(p + end, kBlock * sizeof(T));
          for (; i + kLanes <= end; i += kLanes)
            for (int j = 0; j < kLanes; ++j) lanes[j] = join<Lane>(lanes[j], lift<Lane>(p[i + j]));
        }
        Acc part[kLanes];
        for (int j = 0; j < kLanes; ++j) part[j] = static_cast<Acc>(lanes[j]);
        acc = join<Acc>(acc, folded(part, [](Acc a, Acc b) { return join<Acc>(a, b); }));
      }
    for (; i < n; ++i) acc = join<Acc>(acc, static_cast<Acc>(lift<Acc>(p[i])));
    of(total) = acc;
  }
  // What is left of a row's lanes is added up for as many rows as there are lanes.
  static void rows(Total* totals, const void* in, int count, int n) {
    auto* p = static_cast<const T*>(in);
    if constexpr (kFloat && (kind == ReduceKind::kSum || kind == ReduceKind::kSquares)) {
      for (; count > 0; count -= Eight::kWide, totals += Eight::kWide, p += Eight::kWide * n) {
        const int some = std::min(count, Eight::kWide);
        Eight::V parts[Eight::kWide];
        int i = 0;
        for (int r = 0; r < some; ++r) {
          Eight eight;
          i = sums(eight, p + r * n, n);
          parts[r] = eight.folded();
        }
        for (int r = some; r < Eight::kWide; ++r) parts[r] = Eight::V{};
        const Eight::V all = folded_together(parts, [](Eight::V a, Eight::V b) { return a + b; });
        for (int r = 0; r < some; ++r) totals[r].d += all[r];
        for (; i < n; ++i)
          for (int r = 0; r < some; ++r) totals[r].d = join<Acc>(totals[r].d, static_cast<Acc>(lift<Acc>(p[r * n + i])));
      }
    } else {
      for (int r = 0; r < count; ++r) row(totals[r], p + r * n, n);
    }
  }
  static void columns(Total* totals, const void* in, int n) {
    auto* p = static_cast<const T*>(in);
#pragma GCC ivdep
    for (int i = 0; i < n; ++i) of(totals[i]) = join<Acc>(of(totals[i]), lift<Acc>(p[i]));
  }
  static void combine(Total* a, const Total* b, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) of(a[i]) = join<Acc>(of(a[i]), of(const_cast<Total&>(b[i])));
  }
  static ReduceFunctions functions() {
    Total start{};
    of(start) = identity();
    return {row, rows, columns, combine, start, std::is_same_v<Acc, double>};
  }
};

// Sums, and sums of squares, of halves where they lie, any number of them. A word holds two; 64 lanes add up a run of kBlock in f32,
// lane by lane in f64 from then on, whatever the width of vectors is.
template <class E, ReduceKind kind>
struct HalfReducer {
  static constexpr bool kSquares = kind == ReduceKind::kSquares;
  static constexpr int kLanes = 64, kAtOnce = kLanes / math::kWidth;

  static float to_float(uint16_t bits) {
    E e;
    std::memcpy(&e, &bits, sizeof e);
    return static_cast<float>(e);
  }
  static math::V added(math::V sum, math::V x) { return kSquares ? math::Lanes<math::V>::fma(x, x, sum) : sum + x; }
  // Vectors k = 0, 1, ... of 64 elements from p on; which lane an element of bf16 is in differs from its place.
  template <class F>
  static void each_vector(const uint16_t* p, F f) {
    if constexpr (std::is_same_v<E, BFloat16>) {
#pragma GCC unroll 16
      for (int k = 0; k < kAtOnce / 2; ++k) {
        Words w;
        std::memcpy(&w, p + 2 * k * math::kWidth, sizeof w);
        f(k, std::bit_cast<math::V>(w << 16));
        f(kAtOnce / 2 + k, std::bit_cast<math::V>(w & 0xffff0000u));
      }
    } else {
#pragma GCC unroll 16
      for (int k = 0; k < kAtOnce; ++k) {
        Shorts bits;
        std::memcpy(&bits, p + k * math::kWidth, sizeof bits);
        f(k, vm::to_float(bits, E{}));
      }
    }
  }
  static double exactly(const uint16_t* p, int n) {
    typedef double D __attribute__((vector_size(math::kWidth * sizeof(double))));
    constexpr int kTogether = 16;  // lanes, whatever the width of vectors is
    D sums[kTogether / math::kWidth] = {};
    int i = 0;
    for (; i + kTogether <= n; i += kTogether)
      for (int k = 0; k < kTogether / math::kWidth; ++k) {
        Shorts bits;
        std::memcpy(&bits, p + i + k * math::kWidth, sizeof bits);
        const D x = __builtin_convertvector(vm::to_float(bits, E{}), D);
        sums[k] += kSquares ? x * x : x;
      }
    double lanes[kTogether];
    std::memcpy(lanes, sums, sizeof lanes);
    double sum = i ? Reducer<float, kind>::folded(lanes, [](double a, double b) { return a + b; }) : 0;
    for (; i < n; ++i) {
      const double x = static_cast<double>(to_float(p[i]));
      sum += kSquares ? x * x : x;
    }
    return sum;
  }
  static void row(Total& total, const void* in, int n) {
    auto* p = static_cast<const uint16_t*>(in);
    Eight eight;
    int i = 0;
    while (i + kLanes <= n) {
      math::V parts[kAtOnce] = {};
      const int end = std::min(n, i + kBlock);
      prefetch_block(p + end, kBlock * sizeof(E));
      for (; i + kLanes <= end; i += kLanes) each_vector(p + i, [&](int k, math::V x) { parts[k] = added(parts[k], x); });
      for (int k = 0; k < kAtOnce; ++k) eight.add(k, parts[k]);
    }
    double sum = eight.sum();
    // Squares beyond f32, or so small that it loses them.
    if (kSquares && std::is_same_v<E, BFloat16> && !(sum > 0x1p-90 && sum < 0x1p120)) sum = exactly(p, i);
    total.d += sum;
    total.d += exactly(p + i, n - i);
  }
};

// Extremes of halves where they lie, by their bits: as integers numbers without a sign are in order, those with one in reverse. The
// greatest and the least of int16 and the greatest of uint16 tell both extremes, and whether there are NaNs, beyond infinity.
template <class E, ReduceKind kind>
struct HalfExtreme {
  static constexpr bool kMax = kind == ReduceKind::kMax;
  static constexpr uint16_t kSign = 0x8000, kInfinity = std::is_same_v<E, BFloat16> ? 0x7f80 : 0x7c00;
  static void row(Total& total, const void* in, int n) {
    constexpr int kWide = kVectorBytes / 2;
    using Signed = int16_t __attribute__((vector_size(kVectorBytes)));
    using Plain = uint16_t __attribute__((vector_size(kVectorBytes)));
    if (n == 0) return;
    auto* p = static_cast<const uint16_t*>(in);
    int16_t greatest = std::numeric_limits<int16_t>::min(), least = std::numeric_limits<int16_t>::max();
    uint16_t largest = 0;
    auto join = [](auto& greatest, auto& least, auto& largest, auto x, auto bits) {
      greatest = x > greatest ? x : greatest;
      least = x < least ? x : least;
      largest = bits > largest ? bits : largest;
    };
    int i = 0;
    if (n >= kWide) {
      Signed high = Signed{} + greatest, low = Signed{} + least;
      Plain large{};
      while (i + kWide <= n) {
        const int end = std::min(n, i + 2 * kBlock);
        prefetch_block(p + end, 2 * kBlock * sizeof(E));
        for (; i + kWide <= end; i += kWide) {
          Signed x;
          std::memcpy(&x, p + i, sizeof x);
          join(high, low, large, x, std::bit_cast<Plain>(x));
        }
      }
      for (int j = 0; j < kWide; ++j) greatest = std::max(greatest, high[j]), least = std::min(least, low[j]), largest = std::max(largest, large[j]);
    }
    for (; i < n; ++i) join(greatest, least, largest, static_cast<int16_t>(p[i]), p[i]);
    const bool nan = greatest > kInfinity || largest > (kSign | kInfinity);
    const bool all_alike = kMax ? greatest < 0 : largest < kSign;
    const auto bits = static_cast<uint16_t>(all_alike ? least : kMax ? greatest : largest);
    total.d = Reducer<float, kind>::join(total.d, nan ? std::numeric_limits<double>::quiet_NaN() : HalfReducer<E, kind>::to_float(bits));
  }
};

template <class E>
math::V widened(const E* p) {
  std::conditional_t<sizeof(E) == 4, math::V, Shorts> v;
  std::memcpy(&v, p, sizeof v);
  if constexpr (sizeof(E) == 4)
    return v;
  else
    return to_float(v, E{});
}

void add_columns(float* sums, const void* in, int n) {
  auto* p = static_cast<const float*>(in);
  for (int i = 0; i < n; ++i) sums[i] += p[i];
}

// A few vectors of a row stay in registers: what goes to memory and comes back for each row takes longer than the elements.
template <class E, ReduceKind kind>
void columns(float* out, const void* in, int64_t row, int64_t rows, int n) {
  constexpr bool is_sum = kind == ReduceKind::kSum;
  constexpr float start = is_sum ? 0 : kind == ReduceKind::kMax ? -INFINITY : INFINITY;
  auto* p = static_cast<const E*>(in);
  const bool asks = prefetch_mask;
  const int64_t end = std::max<int64_t>(1, rows);  // of no rows there is what all start from
  auto joined = [](auto a, auto x) {  // vectors or floats; a NaN stays
    if constexpr (is_sum) return a + x;
    const auto further = kind == ReduceKind::kMax ? (x > a ? x : a) : (x < a ? x : a);
    return x != x ? x : further;
  };
  // Of rows [first, first + kRowsInF32).
  auto join = [&](auto vectors, int i, int64_t first) {
    math::V all[vectors], before;
    for (math::V& v : all) v = math::V{} + start;
    for (int64_t r = first; r < std::min(rows, first + kRowsInF32); ++r) {
      const E* from = p + r * row + i;
      if (asks) prefetch_row(from + vectors * math::kWidth, vectors * math::kWidth * sizeof(E));
      for (int k = 0; k < vectors; ++k) all[k] = joined(all[k], widened(from + k * math::kWidth));
    }
    for (int k = 0; k < vectors && first; ++k) {
      std::memcpy(&before, out + i + k * math::kWidth, sizeof before);
      all[k] = joined(before, all[k]);
    }
    std::memcpy(out + i, all, sizeof all);
  };
  int i = 0;
  for (int64_t first = 0; first < end; first += kRowsInF32) {
    for (i = 0; i + 8 * math::kWidth <= n; i += 8 * math::kWidth) join(std::integral_constant<int, 8>{}, i, first);
    for (; i + 2 * math::kWidth <= n; i += 2 * math::kWidth) join(std::integral_constant<int, 2>{}, i, first);
    for (; i + math::kWidth <= n; i += math::kWidth) join(std::integral_constant<int, 1>{}, i, first);
  }
  if (i == n) return;
  if (n >= math::kWidth) {  // some of them again, from the beginning
    for (int64_t first = 0; first < end; first += kRowsInF32) join(std::integral_constant<int, 1>{}, n - math::kWidth, first);
    return;
  }
  for (; i < n; ++i) {
    for (int64_t first = 0; first < end; first += kRowsInF32) {
      float all = start;
      for (int64_t r = first; r < std::min(rows, first + kRowsInF32); ++r) all = joined(all, static_cast<float>(p[i + r * row]));
      out[i] = first ? joined(out[i], all) : all;
    }
  }
}

template <class E>
void fill_columns(Columns* by_kind) {
  by_kind[static_cast<int>(ReduceKind::kSum)] = columns<E, ReduceKind::kSum>;
  by_kind[static_cast<int>(ReduceKind::kMax)] = columns<E, ReduceKind::kMax>;
  by_kind[static_cast<int>(ReduceKind::kMin)] = columns<E, ReduceKind::kMin>;
}

template <class E>
void fill_half_totals(ReduceFunctions* by_kind) {
  auto put = [&]<template <class, ReduceKind> class Halves, ReduceKind kind>() {
    ReduceFunctions& f = by_kind[static_cast<int>(kind)];
    f = Reducer<float, kind>::functions();
    f.row = Halves<E, kind>::row;
    f.rows = [](Total* totals, const void* in, int count, int n) {
      for (int r = 0; r < count; ++r) Halves<E, kind>::row(totals[r], static_cast<const E*>(in) + r * n, n);
    };
  };
  put.template operator()<HalfReducer, ReduceKind::kSum>();
  put.template operator()<HalfReducer, ReduceKind::kSquares>();
  put.template operator()<HalfExtreme, ReduceKind::kMax>();
  put.template operator()<HalfExtreme, ReduceKind::kMin>();
}

template <class T>
void fill_totals(ReduceFunctions* by_kind) {
  auto put = [&](auto reducer, ReduceKind kind) { by_kind[static_cast<int>(kind)] = decltype(reducer)::functions(); };
  put(Reducer<T, ReduceKind::kSum>{}, ReduceKind::kSum);
  put(Reducer<T, ReduceKind::kSquares>{}, ReduceKind::kSquares);
  put(Reducer<T, ReduceKind::kProd>{}, ReduceKind::kProd);
  put(Reducer<T, ReduceKind::kMax>{}, ReduceKind::kMax);
  put(Reducer<T, ReduceKind::kMin>{}, ReduceKind::kMin);
  put(Reducer<T, ReduceKind::kAny>{}, ReduceKind::kAny);
  put(Reducer<T, ReduceKind::kAll>{}, ReduceKind::kAll);
}

}  // namespace
}  // namespace lazyt::onednn::vm
