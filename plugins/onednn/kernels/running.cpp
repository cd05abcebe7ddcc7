// Running sums, products and extremes along one axis.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "elements.h"
#include "rows.h"

namespace lazyt::onednn {
namespace {

Refusal accept_running(const ProgramView& program, const lazyt_node_t& node) {
  if (result(program, node, 0).dtype == LAZYT_DTYPE_BOOL) return refuse_dtype(LAZYT_DTYPE_BOOL);
  return accept_real(program, node);
}

template <class A>
struct RunningSum {
  A total = 0;
  A operator()(A x) { return total = static_cast<A>(total + x); }
};
template <class A>
struct RunningProduct {
  A total = 1;
  A operator()(A x) { return total = static_cast<A>(total * x); }
};
template <class A>
struct RunningLogSumExp {
  A total = -std::numeric_limits<A>::infinity();
  A operator()(A x) {
    const A low = std::min(x, total), high = x != x ? x : total != total ? total : std::max(x, total);
    // Equal infinities have no difference.
    total = low != high || std::isfinite(low) ? high + std::log1p(std::exp(low - high)) : x;
    return total;
  }
};

// Of lines side by side, at most so many: a row of all at a time.
constexpr int kColumns = 256;
template <class A, class R, class T>
LAZYT_INLINE void run_columns_of(const T* from, int64_t step, T* to, int64_t out_step, int64_t n, int width) {
  R running[kColumns];
  for (int64_t i = 0; i < n; ++i, from += step, to += out_step) {
#pragma omp simd
    for (int k = 0; k < width; ++k) to[k] = narrow<T>(static_cast<Compute<T>>(running[k](static_cast<A>(widen(from[k])))));
  }
}
template <class A, class R, class T>
void run_columns(const T* from, int64_t step, T* to, int64_t out_step, int64_t n, int width) {
  run_columns_of<A, R>(from, step, to, out_step, n, width);
}
#define LAZYT_COLUMNS(T, A, R)                                                                                          \
  template <>                                                                                                           \
  LAZYT_CLONES void run_columns<A, R<A>>(const T* from, int64_t step, T* to, int64_t out_step, int64_t n, int width) { \
    run_columns_of<A, R<A>>(from, step, to, out_step, n, width);                                                        \
  }
LAZYT_COLUMNS(float, double, RunningSum)
LAZYT_COLUMNS(double, double, RunningSum)
LAZYT_COLUMNS(int32_t, uint64_t, RunningSum)
LAZYT_COLUMNS(int64_t, uint64_t, RunningSum)
LAZYT_COLUMNS(float, double, RunningProduct)
LAZYT_COLUMNS(double, double, RunningProduct)
#undef LAZYT_COLUMNS

// As PyTorch: f32 and f64 in double, halves in f32, integers in int64.
template <template <class> class Running, bool kFloatOnly>
void lower_running(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const size_t axis = axis_at(b.program, node, 1);
  const uint32_t v = node.results;
  const Tensor in = as_dtype(b, tensor_at(b, args[0]), b.dtype(v));
  const Tensor out = b.make_dense(v);
  const auto lines = lines_of<2>({in.layout, out.layout}, axis, true);
  with_real(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool> && (!kFloatOnly || kIsFloat<T>)) {
      // Unsigned arithmetic wraps as PyTorch's integers do.
      using A = std::conditional_t<!std::is_same_v<T, Compute<T>>, Compute<T>, std::conditional_t<kIsFloat<T>, double, uint64_t>>;
      b.add("running", {}, out, {in}, {}, [=](const Frame& frame) {
        const T* x = frame.at<T>(in);
        T* y = frame.at<T>(out);
        for_lines(frame, lines, kColumns, [&](const auto& at, int64_t width) {
          const int64_t n = lines.n, step = lines.step[0], out_step = lines.step[1];
          const T* from = x + at[0];
          T* to = y + at[1];
          if (lines.side_by_side) return run_columns<A, Running<A>>(from, step, to, out_step, n, static_cast<int>(width));
          Running<A> running;
          if constexpr (!std::is_same_v<T, Compute<T>>)
            if (constexpr int64_t kShort = 32; step == 1 && out_step == 1 && n > kShort) {  // converted by vectors
              constexpr int64_t kChunk = 256;
              Compute<T> chunk[kChunk];
              for (int64_t begin = 0; begin < n; begin += kChunk) {
                const int64_t count = std::min(kChunk, n - begin);
                rows().of<T>().load(chunk, from + begin, count);
                for (int64_t i = 0; i < count; ++i) chunk[i] = static_cast<Compute<T>>(running(static_cast<A>(chunk[i])));
                rows().of<T>().store(to + begin, chunk, count);
              }
              return;
            }
          for (int64_t i = 0; i < n; ++i)
            to[i * out_step] = narrow<T>(static_cast<Compute<T>>(running(static_cast<A>(widen(from[i * step])))));
        });
      });
    }
  });
}

// Without a branch: who wins is not foreseen.
template <bool kMax, class T>
LAZYT_INLINE void running_extreme(const T* from, int64_t step, T* to, int64_t* places, int64_t out_step, int64_t n) {
  T best = from[0];
  auto wide = widen(best);
  int64_t place = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T x = from[i * step];
    const auto v = widen(x);
    const bool wins = !beats<kMax>(wide, v);
    wide = wins ? v : wide;
    best = wins ? x : best;
    place = wins ? i : place;
    to[i * out_step] = best;
    places[i * out_step] = place;
  }
}

// The same of integers side by side: prefixes are joined by vectors, first of the extremes, then of the places where elements reach them.
template <bool kMax, class T>
LAZYT_INLINE void running_extreme_of_run(const T* from, T* to, int64_t* places, int64_t n) {
  constexpr int64_t kChunk = 1024;
  T best = from[0];
  int64_t place = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t end = std::min(n, begin + kChunk);
    if constexpr (kMax) {
#pragma omp simd reduction(inscan, max : best)
      for (int64_t i = begin; i < end; ++i) {
        best = from[i] > best ? from[i] : best;
#pragma omp scan inclusive(best)
        to[i] = best;
      }
    } else {
#pragma omp simd reduction(inscan, min : best)
      for (int64_t i = begin; i < end; ++i) {
        best = from[i] < best ? from[i] : best;
#pragma omp scan inclusive(best)
        to[i] = best;
      }
    }
#pragma omp simd reduction(inscan, max : place)
    for (int64_t i = begin; i < end; ++i) {
      const int64_t reached = from[i] == to[i] ? i : 0;
      place = reached > place ? reached : place;
#pragma omp scan inclusive(place)
      places[i] = place;
    }
  }
}
// Floats as whole numbers of the same order: zeros are equal, and a NaN wins.
template <bool kMax, class T>
LAZYT_INLINE void running_extreme_of_floats(const T* from, T* to, int64_t* places, int64_t n) {
  using K = std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
  constexpr int64_t kChunk = 512, kBlock = 32;
  constexpr K kNan = std::numeric_limits<K>::max(), kZero = kMax ? 0 : ~K(0);
  const K kInfinity = std::bit_cast<K>(T(std::is_same_v<T, double> ? HUGE_VAL : HUGE_VALF));
  constexpr int kSign = 8 * sizeof(K) - 1;
  K keys[kChunk], best[kChunk], most = std::numeric_limits<K>::min();
  int64_t place = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(n - begin, kChunk);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      K key = std::bit_cast<K>(from[begin + i]);
      const K magnitude = key & kNan;
      key = magnitude == 0 ? K(0) : key;  // -0 is 0
      key ^= (key >> kSign) & kNan;
      keys[i] = magnitude > kInfinity ? kNan : kMax ? key : static_cast<K>(~key);
    }
    for (int64_t first = 0; first < count; first += kBlock) {
      const int64_t last = std::min(count, first + kBlock);
      if (last - first == kBlock) {  // loops of a known length, which become vectors
        K wins = 0;
        for (int64_t i = 0; i < kBlock; ++i) wins |= keys[first + i] >= most ? 1 : 0;
        if (!wins) {  // as in most blocks of most rows
          for (int64_t i = 0; i < kBlock; ++i) best[first + i] = most;
          for (int64_t i = 0; i < kBlock; ++i) places[begin + first + i] = place;
          continue;
        }
      }
#pragma omp simd reduction(inscan, max : most)
      for (int64_t i = first; i < last; ++i) {
        most = keys[i] > most ? keys[i] : most;
#pragma omp scan inclusive(most)
        best[i] = most;
      }
#pragma omp simd reduction(inscan, max : place)
      for (int64_t i = first; i < last; ++i) {
        const int64_t reached = keys[i] == best[i] ? begin + i : 0;
        place = reached > place ? reached : place;
#pragma omp scan inclusive(place)
        places[begin + i] = place;
      }
    }
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      K key = kMax ? best[i] : static_cast<K>(~best[i]);
      key ^= (key >> kSign) & kNan;
      to[begin + i] = std::bit_cast<T>(key);
    }
    if (std::binary_search(best, best + count, kZero))  // of either sign
      for (int64_t i = begin; i < begin + count; ++i) to[i] = from[places[i]];
  }
}

#define LAZYT_RUNNING(T)                                                                                                         \
  LAZYT_CLONES void running_most(const T* from, T* to, int64_t* places, int64_t n) { running_extreme_of_run<true>(from, to, places, n); } \
  LAZYT_CLONES void running_least(const T* from, T* to, int64_t* places, int64_t n) { running_extreme_of_run<false>(from, to, places, n); }
LAZYT_RUNNING(uint8_t)
LAZYT_RUNNING(int8_t)
LAZYT_RUNNING(int16_t)
LAZYT_RUNNING(int32_t)
LAZYT_RUNNING(int64_t)
#undef LAZYT_RUNNING
#define LAZYT_RUNNING(T)                                                                                                               \
  LAZYT_CLONES void running_most(const T* from, T* to, int64_t* places, int64_t n) { running_extreme_of_floats<true>(from, to, places, n); } \
  LAZYT_CLONES void running_least(const T* from, T* to, int64_t* places, int64_t n) { running_extreme_of_floats<false>(from, to, places, n); }
LAZYT_RUNNING(float)
LAZYT_RUNNING(double)
LAZYT_RUNNING(BFloat16)
LAZYT_RUNNING(Half)
#undef LAZYT_RUNNING

// The latest of equal extremes counts; a NaN stays, the latest NaN's place.
template <bool kMax>
void lower_running_extreme(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const size_t axis = axis_at(b.program, node, 1);
  const Tensor in = tensor_at(b, args[0]);
  const Tensor values = b.make_dense(node.results), places = b.make_dense(node.results + 1);
  const auto lines = lines_of<2>({in.layout, values.layout}, axis, false);
  with_real(in.dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    using T = std::conditional_t<std::is_same_v<Element, bool>, uint8_t, Element>;
    b.add(kMax ? "cummax" : "cummin", {in.storage}, {values.storage, places.storage}, [=](const Frame& frame) {
      const T* x = frame.at<T>(in);
      T* y = frame.at<T>(values);
      int64_t* p = frame.at<int64_t>(places);
      for_lines(frame, lines, 1, [&](const auto& at, int64_t) {
        const int64_t n = lines.n, step = lines.step[0], out_step = lines.step[1];
        if (n == 0) return;
        if (step != 1 || out_step != 1)
          running_extreme<kMax>(x + at[0], step, y + at[1], p + at[1], out_step, n);
        else if constexpr (kMax)
          running_most(x + at[0], y + at[1], p + at[1], n);
        else
          running_least(x + at[0], y + at[1], p + at[1], n);
      });
    });
  });
}

}  // namespace

void register_running(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_CUMSUM, accept_running, lower_running<RunningSum, false>);
  opaque(LAZYT_OP_CUMPROD, accept_running, lower_running<RunningProduct, false>);
  opaque(LAZYT_OP_LOGCUMSUMEXP, accept_floating, lower_running<RunningLogSumExp, true>);
  opaque(LAZYT_OP_CUMMAX, accept_real, lower_running_extreme<true>);
  opaque(LAZYT_OP_CUMMIN, accept_real, lower_running_extreme<false>);
}

}  // namespace lazyt::onednn
