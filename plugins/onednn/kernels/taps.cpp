#include "taps.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "bytes.h"
#include "channels.h"
#include "dnnl.h"
#include "elements.h"
#include "rows.h"

namespace lazyt::onednn {
namespace {

// ---- One row of results. inner: elements that lie together and are treated alike (channels).

template <class C>
LAZYT_INLINE void add_row(C* row, const C* x, C weight, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) row[i] += weight * x[i];
}

// One axis as tables that a loop over results reads side by side: tap k of result o lies at [k * outputs + o]. Results with
// fewer taps than others take the rest from element `inputs`, which is zero.
template <class C>
struct Columns {
  int64_t taps = 0, outputs = 0;
  bool padded = false;  // element `inputs` is read
  bool plain = true;    // all weights are 1
  bool runs = false;    // and taps, many of them, lie side by side
  std::vector<int32_t> index, begin, end;  // of runs: from where to where
  std::vector<C> weight, divisor;

  explicit Columns(const Taps& t) : outputs(t.outputs()) {
    for (int64_t o = 0; o < outputs; ++o) taps = std::max<int64_t>(taps, t.begin[o + 1] - t.begin[o]);
    index.assign(static_cast<size_t>(taps * outputs), static_cast<int32_t>(t.inputs));
    weight.assign(index.size(), C(0));
    for (int64_t o = 0; o < outputs; ++o) {
      for (int32_t k = t.begin[o]; k < t.begin[o + 1]; ++k) {
        const auto at = static_cast<size_t>((k - t.begin[o]) * outputs + o);
        index[at] = t.index[k];
        weight[at] = static_cast<C>(t.weight[k]);
      }
      padded |= t.begin[o + 1] - t.begin[o] != taps;
      divisor.push_back(t.divisor.empty() ? C(1) : static_cast<C>(t.divisor[o]));
    }
    plain = std::all_of(weight.begin(), weight.end(), [](C w) { return w == 1; });
    runs = taps >= 16 && std::all_of(t.weight.begin(), t.weight.end(), [](double w) { return w == 1; });
    for (int64_t o = 0; o < outputs && runs; ++o) {
      const int32_t first = t.begin[o], n = t.begin[o + 1] - first;
      begin.push_back(n ? t.index[first] : 0);
      end.push_back(begin.back() + n);
      for (int32_t k = 0; k < n; ++k) runs = runs && t.index[first + k] == begin.back() + k;
    }
  }
};

// Results of a row of single elements, all divided by `all` too.
template <class C>
LAZYT_INLINE void combine_single(C* __restrict y, const C* __restrict row, const Columns<C>& c, C all, bool divides) {
  const int64_t n = c.outputs;
  const int32_t* __restrict index = c.index.data();
  const C* __restrict weight = c.weight.data();
  if (c.plain && c.taps == 1) {
#pragma omp simd
    for (int64_t o = 0; o < n; ++o) y[o] = row[index[o]];
  } else if (c.runs) {
    const int32_t *begin = c.begin.data(), *end = c.end.data();
    for (int64_t o = 0; o < n; ++o) {
      C sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int32_t i = begin[o]; i < end[o]; ++i) sum += row[i];
      y[o] = sum;
    }
  } else {
    int64_t k = 0;
    if (c.taps >= 2) {  // of windows of two by two, both at once
      const int32_t* second = index + n;
      const C* its_weight = weight + n;
#pragma omp simd
      for (int64_t o = 0; o < n; ++o) y[o] = C(0) + weight[o] * row[index[o]] + its_weight[o] * row[second[o]];
      k = 2;
    } else {
#pragma omp simd
      for (int64_t o = 0; o < n; ++o) y[o] = 0;
    }
    for (index += k * n, weight += k * n; k < c.taps; ++k, index += n, weight += n)
#pragma omp simd
      for (int64_t o = 0; o < n; ++o) y[o] += weight[o] * row[index[o]];
  }
  if (!divides) return;
  const C* __restrict divisor = c.divisor.data();
#pragma omp simd
  for (int64_t o = 0; o < n; ++o) y[o] = y[o] / (all * divisor[o]);
}
LAZYT_CLONES void combine_single_of(float* y, const float* row, const Columns<float>& c, float all, bool divides) { combine_single(y, row, c, all, divides); }
LAZYT_CLONES void combine_single_of(double* y, const double* row, const Columns<double>& c, double all, bool divides) { combine_single(y, row, c, all, divides); }

// Results of a row of `inner` elements side by side.
template <class T>
LAZYT_INLINE void combine(T* y, const Compute<T>* row, const Taps& w, int64_t inner, Compute<T> divisor) {
  for (int64_t o = 0; o < w.outputs(); ++o) {
    const Compute<T> d = w.divisor.empty() ? divisor : divisor * static_cast<Compute<T>>(w.divisor[o]);
    const int32_t first = w.begin[o], last = w.begin[o + 1];
    for (int64_t c0 = 0; c0 < inner; c0 += 64) {
      Compute<T> sums[64] = {};
      const int64_t n = std::min<int64_t>(64, inner - c0);
      for (int32_t t = first; t < last; ++t) {
        const Compute<T>* at = row + w.index[t] * inner + c0;
        const auto weight = static_cast<Compute<T>>(w.weight[t]);
#pragma omp simd
        for (int64_t c = 0; c < n; ++c) sums[c] += weight * at[c];
      }
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) y[o * inner + c0 + c] = static_cast<T>(sums[c] / d);
    }
  }
}

// Keeps the larger of best and x; of equals the first, and the last NaN.
template <class C>
LAZYT_INLINE void max_row(C* best, int32_t* which, const C* x, int32_t row, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C v = x[i];
    const bool larger = v > best[i] || v != v;
    best[i] = larger ? v : best[i];
    which[i] = larger ? row : which[i];
  }
}

// Whether v, at place `flat`, is taken instead of value, at `at`: as PyTorch compares elements row by row.
template <class C>
LAZYT_INLINE bool wins(C v, int32_t flat, C value, int32_t at) {
  const bool is_nan = v != v, was_nan = value != value;
  return (v > value) | ((v == value) & (flat < at)) | (is_nan & (!was_nan | (flat > at)));
}

// Taps side by side: tap k of result o lies at [k * outputs + o]. Results with fewer than others take their first again.
std::vector<int32_t> side_by_side(const Taps& t) {
  int32_t taps = 0;
  for (int64_t o = 0; o < t.outputs(); ++o) taps = std::max(taps, t.begin[o + 1] - t.begin[o]);
  std::vector<int32_t> index;
  for (int32_t k = 0; k < taps; ++k)
    for (int64_t o = 0; o < t.outputs(); ++o)
      index.push_back(t.index[t.begin[o] + (k < t.begin[o + 1] - t.begin[o] ? k : 0)]);
  return index;
}

// best and which: of each column, the largest and its row. taps: side_by_side().
template <class T>
LAZYT_INLINE void max_single(T* y, int64_t* index, const Compute<T>* best, const int32_t* which, const std::vector<int32_t>& taps, int64_t outputs,
                             int32_t width) {
  for (int64_t o = 0; o < outputs; o += 64) {
    Compute<T> value[64];
    int32_t at[64];
    const int64_t n = std::min<int64_t>(64, outputs - o);
    const int32_t* t = taps.data() + o;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) {
      value[c] = best[t[c]];
      at[c] = which[t[c]] * width + t[c];
    }
    while ((t += outputs) < taps.data() + taps.size())
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) {
        const Compute<T> v = best[t[c]];
        const int32_t flat = which[t[c]] * width + t[c];
        const bool larger = wins(v, flat, value[c], at[c]);
        value[c] = larger ? v : value[c];
        at[c] = larger ? flat : at[c];
      }
    for (int64_t c = 0; c < n; ++c) y[o + c] = static_cast<T>(value[c]);
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) index[o + c] = at[c];
  }
}

// The same of `inner` columns side by side.
template <class T>
LAZYT_INLINE void max_columns(T* y, int64_t* index, const Compute<T>* best, const int32_t* which, const Taps& w, int64_t inner) {
  const auto width = static_cast<int32_t>(w.inputs);
  for (int64_t o = 0; o < w.outputs(); ++o) {
    for (int64_t c0 = 0; c0 < inner; c0 += 64) {
      Compute<T> value[64];
      int32_t at[64];
      const int64_t n = std::min<int64_t>(64, inner - c0);
      const int32_t first = w.index[w.begin[o]];
      for (int64_t c = 0; c < n; ++c) value[c] = best[first * inner + c0 + c];
      for (int64_t c = 0; c < n; ++c) at[c] = which[first * inner + c0 + c] * width + first;
      for (int32_t t = w.begin[o] + 1; t < w.begin[o + 1]; ++t) {
        const int32_t i = w.index[t];
        const Compute<T>* v = best + i * inner + c0;
        const int32_t* r = which + i * inner + c0;
#pragma omp simd
        for (int64_t c = 0; c < n; ++c) {
          const int32_t flat = r[c] * width + i;
          const bool larger = wins(v[c], flat, value[c], at[c]);
          value[c] = larger ? v[c] : value[c];
          at[c] = larger ? flat : at[c];
        }
      }
      for (int64_t c = 0; c < n; ++c) y[o * inner + c0 + c] = static_cast<T>(value[c]);
      for (int64_t c = 0; c < n; ++c) index[o * inner + c0 + c] = at[c];
    }
  }
}

// x += the gradients of one row of results that name elements of this row of the operand, which begins at `base`.
template <class T>
LAZYT_INLINE void gather_row(Compute<T>* x, const T* y, const int64_t* index, const Taps& back, int64_t base, int64_t inner) {
  for (int64_t i = 0; i < back.outputs(); ++i) {
    Compute<T>* to = x + i * inner;
    const int64_t mine = base + i;
    for (int32_t t = back.begin[i]; t < back.begin[i + 1]; ++t) {
      const T* from = y + back.index[t] * inner;
      const int64_t* named = index + back.index[t] * inner;
#pragma omp simd
      for (int64_t c = 0; c < inner; ++c) to[c] += named[c] == mine ? static_cast<Compute<T>>(from[c]) : Compute<T>(0);
    }
  }
}

#define LAZYT_LINES(C)                                                                    \
  LAZYT_CLONES void add_row_of(C* r, const C* x, C w, int64_t n) { add_row(r, x, w, n); } \
  LAZYT_CLONES void max_row_of(C* b, int32_t* w, const C* x, int32_t r, int64_t n) { max_row(b, w, x, r, n); }
LAZYT_LINES(float)
LAZYT_LINES(double)
#undef LAZYT_LINES
#define LAZYT_ROWS(T)                                                                                               \
  LAZYT_CLONES void combine_of(T* y, const Compute<T>* r, const Taps& w, int64_t i, Compute<T> d) { combine(y, r, w, i, d); } \
  LAZYT_CLONES void max_columns_of(T* y, int64_t* x, const Compute<T>* b, const int32_t* w, const Taps& t, int64_t i) {   \
    max_columns(y, x, b, w, t, i);                                                                                    \
  }                                                                                                                   \
  LAZYT_CLONES void max_single_of(T* y, int64_t* x, const Compute<T>* b, const int32_t* w, const std::vector<int32_t>& t, int64_t o, int32_t width) { \
    max_single(y, x, b, w, t, o, width);                                                                              \
  }                                                                                                                   \
  LAZYT_CLONES void gather_row_of(Compute<T>* x, const T* y, const int64_t* i, const Taps& b, int64_t base, int64_t n) {   \
    gather_row(x, y, i, b, base, n);                                                                                   \
  }
LAZYT_ROWS(float)
LAZYT_ROWS(double)
LAZYT_ROWS(Half)
LAZYT_ROWS(BFloat16)
#undef LAZYT_ROWS

// Halves are converted some lines at once.
constexpr int64_t kConverted = 1024;
uint64_t converted_bytes(const Tensor& t, int64_t row) {
  return t.element() == 2 ? static_cast<uint64_t>(std::max(row, kConverted)) * sizeof(float) : 0;
}
// f(j, line(j)) for taps [first, last), lines as they are computed with.
template <class T, class Line, class F>
void for_each_line(const Taps& taps, int32_t first, int32_t last, int64_t row, Compute<T>* converted,
                   Line line, F f) {
  for (int32_t j = first; j < last;) {
    int32_t n = 1;
    if constexpr (std::is_same_v<T, Compute<T>>) {
      f(j, line(j));
    } else {
      while (j + n < last && taps.index[j + n] == taps.index[j] + n && (n + 1) * row <= kConverted) ++n;
      rows().of<T>().load(converted, line(j), n * row);
      for (int32_t k = 0; k < n; ++k) f(j + k, converted + k * row);
    }
    j += n;
  }
}

// Calls f(thread, volume, d, h, first) for every row of results, in parallel; first: the thread made no row before this one.
template <class F>
void for_each_row(int threads, int64_t outer, const Axes& axes, int64_t work_per_row, F&& f) {
  const int64_t depth = axes[0].outputs(), height = axes[1].outputs(), rows = outer * depth * height;
  const int used = rows * work_per_row > 1 << 15 ? static_cast<int>(std::min<int64_t>(threads, rows)) : 1;
  with_team(used, [&](const Team& team) {
    const int64_t begin = team.begin(rows), end = team.end(rows);
    int64_t n = begin / height / depth, d = begin / height % depth, h = begin % height;
    for (int64_t r = begin; r < end; ++r) {
      f(team.rank, n, d, h, r == begin);
      if (++h < height) continue;
      h = 0;
      if (++d == depth) d = 0, ++n;
    }
  });
}
// Whether result o of an axis is made as result o - 1 is.
bool repeats(const Taps& t, int64_t o) {
  if (o == 0) return false;
  const int32_t a = t.begin[o - 1], b = t.begin[o], n = t.begin[o + 1] - b;
  if (b - a != n || (!t.divisor.empty() && t.divisor[o] != t.divisor[o - 1])) return false;
  return std::equal(t.index.begin() + a, t.index.begin() + b, t.index.begin() + b) &&
         std::equal(t.weight.begin() + a, t.weight.begin() + b, t.weight.begin() + b);
}

}  // namespace

Tensor with_five_dims(const Tensor& t, size_t axes) {
  Dims dims = t.dims(), strides = t.strides();
  if (dims.size() == axes + 1) {
    strides.insert(strides.begin(), dims[0] * strides[0]);
    dims.insert(dims.begin(), 1);
  }
  while (dims.size() < 5) {
    strides.insert(strides.begin() + 2, dims[2] * strides[2]);
    dims.insert(dims.begin() + 2, 1);
  }
  return reshaped(t, dims, strides);
}

Volumes volumes_of(Builder& b, const Tensor& t, size_t axes) {
  const Tensor five = with_five_dims(t, axes);
  if (five.layout.is_dense()) return {five, false};
  if (is_channels_last(five)) return {five, true};
  return {with_five_dims(b.dense(t), axes), false};
}

Volumes volumes_of(Builder& b, const Tensor& t, size_t axes, bool last) {
  if (!last) return {with_five_dims(b.dense(t), axes), false};
  return {as_channels_last(b, with_five_dims(t, axes), t.dtype), true};
}

Volumes make_volumes(Builder& b, uint32_t v, size_t axes, bool last) {
  if (!last) return {with_five_dims(b.make_dense(v), axes), false};
  const Dims dims = b.dims(v);
  const Tensor shape = with_five_dims({0, b.dtype(v), Layout::dense(dims)}, axes);
  Dims strides = channels_last(shape.dims());
  strides.erase(strides.begin() + 2, strides.begin() + 2 + static_cast<std::ptrdiff_t>(3 - axes));
  if (dims.size() == axes + 1) strides.erase(strides.begin());
  return {with_five_dims(b.make(v, strides), axes), true};
}

namespace {

// An axis whose results are elements of the operand, untouched: [first, last) are those from `from` on, the others are at
// `index`.
struct Picks {
  int64_t first = 0, last = 0, from = 0;
  std::vector<int32_t> index;
};
// Nothing if an axis adds, weighs or divides.
std::optional<Picks> picks_of(const Taps& t) {
  Picks out;
  if (!t.divisor.empty() || t.index.size() != static_cast<size_t>(t.outputs())) return std::nullopt;
  for (int64_t o = 0; o < t.outputs(); ++o)
    if (t.begin[o] != o || t.weight[o] != 1) return std::nullopt;
  for (int64_t o = 0, run = 0; o < t.outputs(); ++o) {
    if (o > run && t.index[o] != t.index[o - 1] + 1) run = o;
    if (o + 1 - run > out.last - out.first) out.first = run, out.last = o + 1;
  }
  out.from = t.index[out.first];
  out.index = t.index;
  return out;
}

template <class T>
LAZYT_INLINE void pick(T* __restrict y, const T* __restrict x, const int32_t* __restrict index, int64_t begin, int64_t end, int64_t inner) {
  if (inner == 1)
    for (int64_t o = begin; o < end; ++o) y[o] = x[index[o]];
  else
    for (int64_t o = begin; o < end; ++o) std::memcpy(y + o * inner, x + index[o] * inner, static_cast<size_t>(inner) * sizeof(T));
}

// Rows of any dtype; most of a row at once.
template <class T>
struct PickedRows {
  const T* from;
  T* to;
  const int32_t *depth, *height, *width;
  int64_t depths, heights, outputs, inner, row, first, last, at;  // of the operand: depths, heights, row; the run of Picks

  LAZYT_INLINE void operator()(int64_t result, int64_t n, int64_t d, int64_t h) const {
    T* y = to + result * outputs * inner;
    const T* x = from + ((n * depths + depth[d]) * heights + height[h]) * row;
    pick(y, x, width, 0, first, inner);
    copy_row(y + first * inner, x + at * inner, static_cast<size_t>((last - first) * inner) * sizeof(T));
    pick(y, x, width, last, outputs, inner);
  }
};

void add_picks(Builder& b, const char* name, const Volumes& x, const Volumes& y, const Axes& axes, Picks columns) {
  const int64_t inner = x.inner(), row = axes[2].inputs * inner;
  b.add(name, {x.tensor.storage}, {y.tensor.storage}, [=, columns = std::move(columns), outer = x.outer()](const Frame& frame) {
    with_bytes(y.tensor.element(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Taps &ad = axes[0], &ah = axes[1];
      const PickedRows<T> rows{frame.at<T>(x.tensor), frame.at<T>(y.tensor), ad.index.data(), ah.index.data(), columns.index.data(), ad.inputs, ah.inputs,
                               axes[2].outputs(), inner, row, columns.first, columns.last, columns.from};
      for_each_row(frame.threads, outer, axes, axes[2].outputs() * inner,
                   [rows, depth = ad.outputs(), height = ah.outputs()](int, int64_t n, int64_t d, int64_t h, bool) { rows((n * depth + d) * height + h, n, d, h); });
    });
  });
}

}  // namespace

void add_resample(Builder& b, const char* name, const Volumes& x, const Volumes& y, Axes axes) {
  if (y.tensor.count() == 0) return;
  if (std::optional<Picks> columns = picks_of(axes[2]); columns && picks_of(axes[0]) && picks_of(axes[1])) {
    // Gathering single floats is quicker by vectors.
    const bool by_runs = x.inner() > 1 || 2 * (columns->last - columns->first) >= axes[2].outputs();
    if (by_runs || !toolkit::is_floating(y.tensor.dtype)) return add_picks(b, name, x, y, axes, std::move(*columns));
  }
  const int64_t inner = x.inner(), row = axes[2].inputs * inner, made = axes[2].outputs() * inner;
  const PerThread rows =
      per_thread(b, static_cast<uint64_t>(row + 1 + made) * sizeof(double) + converted_bytes(x.tensor, row));
  with_floating(y.tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    Columns<C> columns(axes[2]);
    b.add(name, {x.tensor.storage}, {y.tensor.storage, rows.tensor.storage},
          [=, axes = std::move(axes), columns = std::move(columns), outer = x.outer()](const Frame& frame) {
      const T* from = frame.at<T>(x.tensor);
      T* to = frame.at<T>(y.tensor);
      const Taps &ad = axes[0], &ah = axes[1], &aw = axes[2];
      const RowKernels<T>& kernels = lazyt::onednn::rows().of<T>();
      for_each_row(std::min(frame.threads, rows.threads), outer, axes, row + made, [&](int thread, int64_t n, int64_t d, int64_t h, bool first) {
        T* out = to + ((n * ad.outputs() + d) * ah.outputs() + h) * made;
        if (!first && repeats(ah, h)) {
          std::copy_n(out - made, made, out);
          return;
        }
        C* sums = reinterpret_cast<C*>(rows.of(thread, frame));
        C* results = sums + row + 1;
        const int64_t taps = (ad.begin[d + 1] - ad.begin[d]) * (ah.begin[h + 1] - ah.begin[h]);
        auto line = [&](int32_t i, int32_t j) { return from + ((n * ad.inputs + ad.index[i]) * ah.inputs + ah.index[j]) * row; };
        auto weight = [&](int32_t i, int32_t j) { return static_cast<C>(ad.weight[i] * ah.weight[j]); };
        const C* added = sums;
        constexpr bool as_it_lies = std::is_same_v<C, T>;
        if (taps == 1 && weight(ad.begin[d], ah.begin[h]) == 1 && !(as_it_lies && columns.padded)) {
          if constexpr (as_it_lies)
            added = line(ad.begin[d], ah.begin[h]);
          else
            kernels.load(sums, line(ad.begin[d], ah.begin[h]), row);
        } else {
          std::fill_n(sums, row, C(0));
          for (int32_t i = ad.begin[d]; i < ad.begin[d + 1]; ++i)
            for_each_line<T>(
                ah, ah.begin[h], ah.begin[h + 1], row, results + made, [&](int32_t j) { return line(i, j); },
                [&](int32_t j, const C* x) { add_row_of(sums, x, weight(i, j), row); });
        }
        sums[row] = 0;
        const double divisor = (ad.divisor.empty() ? 1 : ad.divisor[d]) * (ah.divisor.empty() ? 1 : ah.divisor[h]);
        if (inner > 1) return combine_of(out, added, aw, inner, static_cast<C>(divisor));
        const bool divides = divisor != 1 || !aw.divisor.empty();
        if constexpr (as_it_lies) {
          combine_single_of(out, added, columns, static_cast<C>(divisor), divides);
        } else {
          combine_single_of(results, added, columns, static_cast<C>(divisor), divides);
          kernels.store(out, results, made);
        }
      });
    });
  });
}

void add_max_pool(Builder& b, const Volumes& x, const Volumes& y, const Volumes& index, Axes axes) {
  if (y.tensor.count() == 0) return;
  const int64_t inner = x.inner(), row = axes[2].inputs * inner;
  const PerThread rows = per_thread(
      b, static_cast<uint64_t>(row) * (sizeof(double) + sizeof(int32_t)) + converted_bytes(x.tensor, row));
  b.add("max pool", {x.tensor.storage}, {y.tensor.storage, index.tensor.storage, rows.tensor.storage},
        [=, taps = inner == 1 ? side_by_side(axes[2]) : std::vector<int32_t>(), axes = std::move(axes), outer = x.outer()](const Frame& frame) {
    with_floating(y.tensor.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = frame.at<T>(x.tensor);
      T* to = frame.at<T>(y.tensor);
      auto* named = frame.at<int64_t>(index.tensor);
      const Taps &ad = axes[0], &ah = axes[1], &aw = axes[2];
      for_each_row(std::min(frame.threads, rows.threads), outer, axes, row, [&](int thread, int64_t n, int64_t d, int64_t h, bool) {
        auto* best = reinterpret_cast<Compute<T>*>(rows.of(thread, frame));
        auto* which = reinterpret_cast<int32_t*>(best + row);
        auto* converted = reinterpret_cast<Compute<T>*>(which + row);
        bool first = true;
        for (int32_t i = ad.begin[d]; i < ad.begin[d + 1]; ++i) {
          auto number = [&](int32_t j) {
            return static_cast<int32_t>(ad.index[i] * ah.inputs + ah.index[j]);
          };
          auto line = [&](int32_t j) { return from + (n * ad.inputs * ah.inputs + number(j)) * row; };
          for_each_line<T>(ah, ah.begin[h], ah.begin[h + 1], row, converted, line,
                           [&](int32_t j, const Compute<T>* x) {
                             if (!first) return max_row_of(best, which, x, number(j), row);
                             std::copy_n(x, row, best);
                             std::fill_n(which, row, number(j));
                             first = false;
                           });
        }
        const int64_t out = ((n * ad.outputs() + d) * ah.outputs() + h) * aw.outputs() * inner;
        if (inner == 1) return max_single_of(to + out, named + out, best, which, taps, aw.outputs(), static_cast<int32_t>(aw.inputs));
        max_columns_of(to + out, named + out, best, which, aw, inner);
      });
    });
  });
}

// A plane of single elements: each gradient goes where its index says, in order, as PyTorch adds them.
void add_scattered(Builder& b, const Volumes& y, const Volumes& index, const Volumes& x, const Axes& axes) {
  const int64_t from_plane = axes[0].outputs() * axes[1].outputs() * axes[2].outputs();
  const int64_t to_plane = axes[0].inputs * axes[1].inputs * axes[2].inputs;
  // Windows that share no element: each gradient is a sum by itself.
  const bool apart = std::all_of(axes.begin(), axes.end(), [](const Taps& t) {
    return std::adjacent_find(t.index.begin(), t.index.end(), std::greater_equal<>()) == t.index.end();
  });
  constexpr int64_t kChunk = 256;
  const PerThread sums_of = per_thread(b, static_cast<uint64_t>(to_plane) * sizeof(float));  // of 16-bit gradients
  b.add("max pool backward", {y.tensor.storage, index.tensor.storage}, {x.tensor.storage, sums_of.tensor.storage},
        [=, outer = x.outer()](const Frame& frame) {
    with_floating(x.tensor.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = Compute<T>;
      const T* from = frame.at<T>(y.tensor);
      const auto* named = frame.at<int64_t>(index.tensor);
      T* to = frame.at<T>(x.tensor);
      const auto is_inside = [&](int64_t at) { return static_cast<uint64_t>(at) < static_cast<uint64_t>(to_plane); };
      const int threads = std::min(frame.threads, sums_of.threads);
      with_team(outer * to_plane > 65536 ? threads : 1, [&](const Team& team) {
        for (int64_t n = team.begin(outer); n < team.end(outer); ++n) {
          T* plane = to + n * to_plane;
          const int64_t begin = n * from_plane, end = begin + from_plane;
          if (std::is_same_v<T, C> || apart) {
            std::memset(plane, 0, static_cast<size_t>(to_plane) * sizeof(T));
            for (int64_t k = begin; k < end; ++k) {
              if (!is_inside(named[k])) continue;
              T& sum = plane[named[k]];
              if constexpr (std::is_same_v<T, C>)
                sum += from[k];
              else
                sum = sum.bits == 0 ? from[k] : narrow<T>(widen(sum) + widen(from[k]));
            }
            continue;
          }
          C* sums = reinterpret_cast<C*>(sums_of.of(team.rank, frame));
          std::fill_n(sums, to_plane, C(0));
          C chunk[kChunk];  // converted by vectors
          for (int64_t k = begin, some; k < end; k += some) {
            some = std::min(kChunk, end - k);
            rows().of<T>().load(chunk, from + k, some);
            for (int64_t i = 0; i < some; ++i)
              if (is_inside(named[k + i])) sums[named[k + i]] += chunk[i];
          }
          rows().of<T>().store(plane, sums, to_plane);
        }
      });
    });
  });
}

void add_max_pool_backward(Builder& b, const Volumes& y, const Volumes& index, const Volumes& x, const Axes& axes) {
  if (x.tensor.count() == 0) return;
  if (x.inner() == 1 && !x.channels_last) return add_scattered(b, y, index, x, axes);
  Axes back{axes[0].transposed(), axes[1].transposed(), axes[2].transposed()};
  const int64_t inner = x.inner(), row = axes[2].inputs * inner;
  const PerThread rows = per_thread(b, static_cast<uint64_t>(row) * sizeof(double));
  b.add("max pool backward", {y.tensor.storage, index.tensor.storage}, {x.tensor.storage, rows.tensor.storage},
        [=, back = std::move(back), outer = x.outer()](const Frame& frame) {
    with_floating(x.tensor.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = frame.at<T>(y.tensor);
      const auto* named = frame.at<int64_t>(index.tensor);
      T* to = frame.at<T>(x.tensor);
      const Taps &bd = back[0], &bh = back[1], &bw = back[2];
      for_each_row(std::min(frame.threads, rows.threads), outer, back, row, [&](int thread, int64_t n, int64_t d, int64_t h, bool) {
        auto* sums = reinterpret_cast<Compute<T>*>(rows.of(thread, frame));
        std::fill_n(sums, row, Compute<T>(0));
        const int64_t base = (d * bh.outputs() + h) * bw.outputs();
        for (int32_t i = bd.begin[d]; i < bd.begin[d + 1]; ++i) {
          for (int32_t j = bh.begin[h]; j < bh.begin[h + 1]; ++j) {
            const int64_t at = ((n * bd.inputs + bd.index[i]) * bh.inputs + bh.index[j]) * bw.inputs * inner;
            gather_row_of(sums, from + at, named + at, bw, base, inner);
          }
        }
        T* line = to + ((n * bd.outputs() + d) * bh.outputs() + h) * row;
        lazyt::onednn::rows().of<T>().store(line, sums, row);
      });
    });
  });
}

}  // namespace lazyt::onednn
