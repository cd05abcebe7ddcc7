// Compiled once for each instruction set (LAZYT_ISA).
#include "rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <type_traits>

#include "prefetch.h"
#include "vectors.h"

namespace lazyt::onednn {
namespace {

// ---- one row

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
void deviations(double* sums, const T* in, int64_t n, Compute<T> shift) {
  using C = Compute<T>;
  sums[0] = sums[1] = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    Vec<C> first[4] = {}, squares[4] = {};
    sweep<C>(n - begin < kRun ? n - begin : kRun, [&](int64_t i, auto c, int k) __attribute__((always_inline)) {
      const Vec<C> d = keep<C>(load(in + begin + i, c) - shift, c, C(0));
      first[k] += d;
      squares[k] += d * d;
    });
    sums[0] += total<C>(first);
    sums[1] += total<C>(squares);
  }
}
// f(row, how many) for rows that are added up before they join the sums in memory.
template <class F>
INLINE void by_rows(int64_t n, F f) {
  constexpr int kRows = 4;
  int64_t i = 0;
  for (; i + kRows <= n; i += kRows) f(i, std::integral_constant<int, kRows>());
  for (; i < n; ++i) f(i, std::integral_constant<int, 1>());
}
template <class T>
void column_sums(Compute<T>* sums, const T* in, int64_t n, int64_t stride, int64_t width) {
  by_rows(n, [&](int64_t i, auto rows) __attribute__((always_inline)) {
    across<Compute<T>>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
      Vec<Compute<T>> sum = load(sums + j, c);
      for (int r = 0; r < rows(); ++r) sum += load(in + (i + r) * stride + j, c);
      store(sums + j, sum, c);
    });
  });
}
template <class T>
void column_deviations(Compute<T>* sums, Compute<T>* squares, const T* in, const Compute<T>* shift, int64_t n, int64_t stride, int64_t width) {
  by_rows(n, [&](int64_t i, auto rows) __attribute__((always_inline)) {
    across<Compute<T>>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
      const Vec<Compute<T>> from = load(shift + j, c);
      Vec<Compute<T>> sum = load(sums + j, c), square = load(squares + j, c);
      for (int r = 0; r < rows(); ++r) {
        const Vec<Compute<T>> d = load(in + (i + r) * stride + j, c) - from;
        sum += d;
        square += d * d;
      }
      store(sums + j, sum, c);
      store(squares + j, square, c);
    });
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
  by_rows(n, [&](int64_t i, auto rows) __attribute__((always_inline)) {
    across<Compute<T>>(width, [&](int64_t j, auto c) __attribute__((always_inline)) {
      const Vec<Compute<T>> from = load(mean + j, c);
      Vec<Compute<T>> sum = load(sums_g + j, c), sum_gx = load(sums_gx + j, c);
      for (int r = 0; r < rows(); ++r) {
        const Vec<Compute<T>> g = load(grad + (i + r) * stride + j, c);
        sum += g;
        sum_gx += g * (load(in + (i + r) * stride + j, c) - from);
      }
      store(sums_g + j, sum, c);
      store(sums_gx + j, sum_gx, c);
    });
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
// Keeps what is used again in a register: GCC loads it for each use.
template <class V>
INLINE void stay(V& v) {
#ifdef __x86_64__
  asm("" : "+v"(v));
#endif
}
// y[i] = v[i]'s lanes, as folded() adds them up.
template <class C, int n>
INLINE void fold_all(const Vec<C> (&v)[n], C* y) {
#if defined(__AVX512F__)
  if constexpr (n == 4 && std::is_same_v<C, float>) {
    __m256 half[4];
    for (int i = 0; i < 4; ++i) {
      const __m512d all = _mm512_castps_pd(v[i]);
      half[i] = _mm256_castpd_ps(_mm512_castpd512_pd256(all)) + _mm256_castpd_ps(_mm512_extractf64x4_pd(all, 1));
    }
    // Quarters of 0 and 2, of 1 and 3; then halves of those in their order.
    const auto joined = [](__m256 a, __m256 b) { return _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31); };
    const __m256 even = joined(half[0], half[2]), odd = joined(half[1], half[3]);
    const __m256 pairs = _mm256_shuffle_ps(even, odd, 0x44) + _mm256_shuffle_ps(even, odd, 0xee);
    const __m128 low = _mm256_castps256_ps128(pairs), high = _mm256_extractf128_ps(pairs, 1);
    _mm_storeu_ps(y, _mm_shuffle_ps(low, high, 0x88) + _mm_shuffle_ps(low, high, 0xdd));
    return;
  }
#endif
  for (int i = 0; i < n; ++i) y[i] = folded<C>(v[i], Plus{});
}
// kRows rows at once share each of the vectors, which share each row. A sum is the same whatever it is computed beside.
template <int kRows, int kVectors, class T, class C = Compute<T>>
INLINE void dots_of(const T* a, int64_t stride, const T* x, int64_t x_stride, int64_t k, C* y, int64_t y_stride) {
  constexpr int w = kWidth<C>;
  Vec<C> even[kRows][kVectors] = {}, odd[kRows][kVectors] = {};
  int64_t j = 0;
  for (; j + 2 * w <= k; j += 2 * w) {
    Vec<C> v[kVectors][2];
    for (int s = 0; s < kVectors; ++s) {
      std::tie(v[s][0], v[s][1]) = load_two(x + s * x_stride + j);
      if (kRows > 1) stay(v[s][0]), stay(v[s][1]);
    }
    for (int r = 0; r < kRows; ++r) {
      const T* p = a + r * stride + j;
      if (kRows * kVectors <= 4)  // else memory is not the limit
        for (int i = 0; i < 2 * w; i += 64 / sizeof(T)) prefetch(p + i, 4096, prefetch_matrix_mask);
      auto [b, c] = load_two(p);
      if (kVectors > 1 && kRows * kVectors > 2) stay(b), stay(c);
      for (int s = 0; s < kVectors; ++s) even[r][s] = fma(b, v[s][0], even[r][s]), odd[r][s] = fma(c, v[s][1], odd[r][s]);
    }
  }
  for (; j < k; j += w) {
    const int m = static_cast<int>(std::min<int64_t>(w, k - j));
    for (int r = 0; r < kRows; ++r)
      for (int s = 0; s < kVectors; ++s) even[r][s] = fma(load(a + r * stride + j, m), load(x + s * x_stride + j, m), even[r][s]);
  }
  for (int s = 0; s < kVectors; ++s) {
    Vec<C> sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = even[r][s] + odd[r][s];
    fold_all(sums, y + s * y_stride);
  }
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
// Vectors by threes and twos, none alone.
template <int kRows, class T>
INLINE void dots_of_rows(const T* a, int64_t stride, const T* x, int64_t x_stride, int vectors, int64_t k, Compute<T>* y, int64_t y_stride) {
  for (int s = 0; s < vectors;) {
    const int left = vectors - s, n = left == 2 || left == 4 ? 2 : 3;
    n == 2 ? dots_of<kRows, 2>(a, stride, x + s * x_stride, x_stride, k, y + s * y_stride, y_stride)
           : dots_of<kRows, 3>(a, stride, x + s * x_stride, x_stride, k, y + s * y_stride, y_stride);
    s += n;
  }
}
template <class T>
void dots_of_several(const T* a, int64_t stride, const T* x, int64_t x_stride, int vectors, int64_t m, int64_t k, Compute<T>* y, int64_t y_stride) {
  int64_t i = 0;
  if constexpr (kVectorBytes == 64) {  // whose registers hold 12 sums
    constexpr int64_t kFromMemory = 1 << 20;  // which then is the limit, and comes in its order
    const bool in_order = vectors <= 3 && m * k * static_cast<int64_t>(sizeof(T)) >= kFromMemory;
    for (; i + 4 <= m && !in_order; i += 4) dots_of_rows<4>(a + i * stride, stride, x, x_stride, vectors, k, y + i, y_stride);
  }
  for (; i < m; ++i) dots_of_rows<1>(a + i * stride, stride, x, x_stride, vectors, k, y + i, y_stride);
}
template <class T>
constexpr RowKernels<T> row_kernels() {
  return {softmax<T>, log_softmax<T>, softmax_backward<T>, log_softmax_backward<T>, logsumexp<T>,
          kMostShort<T>, std::max(kMostTogether<T>, int64_t{kMostShort<T>}),
          softmax_short<T>, log_softmax_short<T>, softmax_backward_short<T>, log_softmax_backward_short<T>, logsumexp_short<T>, norm_short<T>, norm_backward_short<T>,
          softmax_columns<T>, log_softmax_columns<T>, softmax_backward_columns<T>, log_softmax_backward_columns<T>,
          sum<T>, deviations<T>, column_sums<T>, column_deviations<T>, normalize<T>, affine<T>, affine_columns<T>,
          backward_sums<T>, backward<T>, backward_weights<T>, column_backward_sums<T>, backward_columns<T>,
          dots<T>, dots_of_several<T>, load_all<T>, store_all<T>, add<T>, add_scaled<T>};
}
constexpr Rows kRows = {row_kernels<float>(), row_kernels<double>(), row_kernels<BFloat16>(), row_kernels<Half>()};

}  // namespace

const Rows& LAZYT_OF_ISA(rows_)() { return kRows; }

}  // namespace lazyt::onednn
