// Operators along one axis: softmax and its kin, extremes with their places, variance.
#include <cmath>
#include <cstring>
#include <limits>

#include "elements.h"
#include "rows.h"

namespace lazyt::onednn {
namespace {

// Row-major, or lying as the operand does if that has no gaps.
Tensor make_like(Builder& b, uint32_t v, const Tensor& operand) {
  const Dims strides = toolkit::strides_in_order(operand.dims(), toolkit::memory_order(operand.dims(), operand.strides()));
  return operand.dtype == b.dtype(v) ? b.make(v, strides) : b.make_dense(v);
}

// Whether the row and column kernels walk the lines as they lie: of fewer columns than half a vector, rows are made.
template <size_t K>
bool walks(const Lines<K>& lines) {
  constexpr int64_t kFewest = 8;
  return lines.rows() || (lines.side_by_side && (lines.width >= kFewest || lines.n < kFewest));
}

// Whether the lines are rows that lie one behind the other in all operands.
template <size_t K>
bool is_one_run(const Lines<K>& lines) {
  return lines.rows() && lines.width == 1 && lines.dims.size() == 1 &&
         (lines.dims[0] <= 1 || std::all_of(lines.strides.begin(), lines.strides.end(), [&](const Dims& s) { return s[0] == lines.n; }));
}

// ---- softmax

template <bool kLog>
void lower_softmax(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const size_t axis = axis_at(b.program, node, 1);
  const uint32_t v = node.results;
  Tensor in = as_dtype(b, tensor_at(b, args[0]), b.dtype(v));  // half_to_float
  auto probe = lines_of<1>({in.layout}, axis, true);
  if (!walks(probe)) in = b.dense(in);
  const Tensor out = make_like(b, v, in);
  auto lines = lines_of<2>({in.layout, out.layout}, axis, true);
  if (!walks(lines)) {
    in = b.dense(in);
    lines = lines_of<2>({in.layout, out.layout}, axis, true);
  }
  with_floating(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(kLog ? "log_softmax" : "softmax", {}, out, {in}, {}, [=](const Frame& frame) {
      const RowKernels<T>& kernels = rows().of<T>();
      const T* x = frame.at<T>(in);
      T* y = frame.at<T>(out);
      if (lines.n <= kernels.most_short && is_one_run(lines))
        return parallel(frame, lines.count(), lines.count() * lines.n, [&](int64_t begin, int64_t end) {
          (kLog ? kernels.log_softmax_short : kernels.softmax_short)(y + begin * lines.n, x + begin * lines.n, end - begin, lines.n);
        });
      const bool whole = lines.rows();
      for_lines(frame, lines, kColumns, [&](const auto& at, int64_t width) {
        if (whole)
          (kLog ? kernels.log_softmax : kernels.softmax)(y + at[1], x + at[0], lines.n);
        else
          (kLog ? kernels.log_softmax_columns : kernels.softmax_columns)(y + at[1], x + at[0], lines.n, lines.step[1],
                                                                         lines.step[0], static_cast<int>(width));
      });
    });
  });
}

template <bool kLog>
void lower_softmax_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const size_t axis = axis_at(b.program, node, 2);
  const uint32_t v = node.results;
  const lazyt_dtype_t dtype = b.dtype(b.value_of(args[0]));
  Tensor grad = tensor_at(b, args[0]), y = dense_as(b, tensor_at(b, args[1]), dtype);
  const Tensor out = begin_result(b, v, dtype);
  auto lines = lines_of<3>({out.layout, grad.layout, y.layout}, axis, true);
  if (!walks(lines)) {
    grad = b.dense(grad);
    lines = lines_of<3>({out.layout, grad.layout, y.layout}, axis, true);
  }
  with_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(kLog ? "log_softmax_backward" : "softmax_backward", {}, out, {grad, y}, {}, [=](const Frame& frame) {
      const RowKernels<T>& kernels = rows().of<T>();
      const T *g = frame.at<T>(grad), *o = frame.at<T>(y);
      T* gi = frame.at<T>(out);
      if (lines.n <= kernels.most_together && is_one_run(lines))
        return parallel(frame, lines.count(), lines.count() * lines.n, [&](int64_t begin, int64_t end) {
          (kLog ? kernels.log_softmax_backward_short : kernels.softmax_backward_short)(gi + begin * lines.n, g + begin * lines.n,
                                                                                      o + begin * lines.n, end - begin, lines.n);
        });
      const bool whole = lines.rows();
      for_lines(frame, lines, kColumns, [&](const auto& at, int64_t width) {
        if (whole)
          (kLog ? kernels.log_softmax_backward : kernels.softmax_backward)(gi + at[0], g + at[1], o + at[2], lines.n);
        else
          (kLog ? kernels.log_softmax_backward_columns : kernels.softmax_backward_columns)(
              gi + at[0], g + at[1], o + at[2], lines.n, lines.step[0], lines.step[1], lines.step[2], static_cast<int>(width));
      });
    });
  });
  finish_result(b, v, out);
}

// ---- reductions along an axis

// Adds a step that calls f(kernel, out, in, n, step) for each line of the reduced dims; f writes one element of out.
// Rows only: what does not lie so is copied.
template <class T, class R, class F>
void add_reduction(Builder& b, const char* name, Tensor in, const Tensor& out, const std::vector<bool>& reduced, bool contiguous, F f) {
  Tensor axis_last = with_last_axis(b, in, reduced);
  const size_t axis = axis_last.dims().size() - 1;
  if (contiguous && axis_last.dims().back() > 1 && axis_last.strides().back() != 1) axis_last = b.dense(axis_last);
  const auto lines = lines_of<2>({axis_last.layout, beside_axis(out, axis_last.layout)}, axis, false);
  b.add(name, {axis_last.storage}, {out.storage}, [=](const Frame& frame) {
    const T* x = frame.at<T>(axis_last);
    R* y = frame.at<R>(out);
    for_lines(frame, lines, 1, [&](const auto& at, int64_t) { f(y[at[1]], x + at[0], lines.n, lines.step[0]); });
  });
}

// The dims that argument i lists; a single int counts as a list of one, none as no list.
Dims listed_dims(Builder& b, const lazyt_arg_t& arg) {
  if (b.is_none(arg)) return {};
  if (arg.kind == LAZYT_ARG_INT) return {b.int_of(arg)};
  return b.ints_of(arg);
}

void lower_logsumexp(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const auto reduced = reduced_dims(listed_dims(b, args[1]), in.dims().size());
  const Tensor out = b.make_dense(node.results);
  with_floating(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Tensor rows_of_in = with_last_axis(b, in, reduced);
    const int64_t n = rows_of_in.dims().back();
    if (n > 0 && n <= rows().of<T>().most_short && rows_of_in.layout.is_dense())
      return b.add("logsumexp", {rows_of_in.storage}, {out.storage}, [=, count = rows_of_in.count() / n](const Frame& frame) {
        const T* x = frame.at<T>(rows_of_in);
        T* y = frame.at<T>(out);
        parallel(frame, count, count * n, [&](int64_t begin, int64_t end) {
          rows().of<T>().logsumexp_short(y + begin, x + begin * n, end - begin, n);
        });
      });
    add_reduction<T, T>(b, "logsumexp", in, out, reduced, true, [](T& y, const T* x, int64_t n, int64_t) {
      y = narrow<T>(static_cast<Compute<T>>(rows().of<T>().logsumexp(x, n)));
    });
  });
}
Refusal accept_logsumexp(const ProgramView& program, const lazyt_node_t& node) {
  // Integers are summed in the default dtype, and cross with that as the result's dtype.
  if (operand(program, node, 0).dtype != result(program, node, 0).dtype) return refuse_dtype(operand(program, node, 0).dtype);
  return accept_floating(program, node);
}

// var, std, var_mean.
Refusal accept_variance(const ProgramView& program, const lazyt_node_t& node) {
  const lazyt_arg_t& correction = program.args(node)[2];
  if (correction.kind == LAZYT_ARG_COMPLEX) return refuse_argument("a complex correction");
  return accept_floating(program, node);
}
template <bool kRoot, bool kMean>
void lower_variance(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const auto reduced = reduced_dims(listed_dims(b, args[1]), in.dims().size());
  Number correction;
  if (b.is_none(args[2]))
    correction.d = 1;
  else
    correction = b.number_of(args[2]);
  const Tensor out = b.make_dense(node.results);
  const Tensor mean_out = kMean ? b.make_dense(node.results + 1) : out;
  Tensor axis_last = with_last_axis(b, in, reduced);
  const size_t axis = axis_last.dims().size() - 1;
  if (axis_last.dims().back() > 1 && axis_last.strides().back() != 1) axis_last = b.dense(axis_last);
  const auto lines = lines_of<2>({axis_last.layout, beside_axis(out, axis_last.layout)}, axis, false);
  std::vector<StorageId> writes = {out.storage};
  if (kMean) writes.push_back(mean_out.storage);
  with_floating(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add(kRoot ? "std" : "var", {axis_last.storage}, writes, [=](const Frame& frame) {
      const RowKernels<T>& kernels = rows().of<T>();
      const T* x = frame.at<T>(axis_last);
      T *y = frame.at<T>(out), *m = frame.at<T>(mean_out);
      const double n = static_cast<double>(lines.n);
      const double divisor = std::max(0.0, n - frame.as_double(correction));
      for_lines(frame, lines, 1, [&](const auto& at, int64_t) {
        C mean = static_cast<C>(kernels.sum(x + at[0], lines.n) / n);
        double about[2];
        kernels.deviations(about, x + at[0], lines.n, mean);
        const double variance = centre(mean, about[0], about[1], n) / divisor;
        y[at[1]] = narrow<T>(static_cast<C>(kRoot ? std::sqrt(variance) : variance));
        if constexpr (kMean) m[at[1]] = narrow<T>(mean);
      });
    });
  });
}

// ---- extremes

// Of a run: its extreme, then where that is first.
template <bool kMax, class T>
LAZYT_INLINE int64_t place_in_run(const T* x, int64_t n) {
  using C = Compute<T>;
  C best = widen(x[0]);
  int nan = 0;
  if constexpr (kMax) {
#pragma omp simd reduction(max : best) reduction(| : nan)
    for (int64_t i = 0; i < n; ++i) {
      const C v = widen(x[i]);
      best = v > best ? v : best;
      nan |= v != v;
    }
  } else {
#pragma omp simd reduction(min : best) reduction(| : nan)
    for (int64_t i = 0; i < n; ++i) {
      const C v = widen(x[i]);
      best = v < best ? v : best;
      nan |= v != v;
    }
  }
  int64_t i = 0;
  if (nan)
    while (widen(x[i]) == widen(x[i])) ++i;
  else
    while (widen(x[i]) != best) ++i;
  return i;
}
#define LAZYT_PLACES(T)                                                                              \
  LAZYT_CLONES int64_t place_of_most(const T* x, int64_t n) { return place_in_run<true>(x, n); } \
  LAZYT_CLONES int64_t place_of_least(const T* x, int64_t n) { return place_in_run<false>(x, n); }
LAZYT_PLACES(float)
LAZYT_PLACES(double)
LAZYT_PLACES(Half)
LAZYT_PLACES(BFloat16)
LAZYT_PLACES(uint8_t)
LAZYT_PLACES(int8_t)
LAZYT_PLACES(int16_t)
LAZYT_PLACES(int32_t)
LAZYT_PLACES(int64_t)
#undef LAZYT_PLACES

// The first place of the extreme of a line. REQUIRES: n > 0
template <bool kMax, class T>
int64_t place_of_extreme(const T* x, int64_t n, int64_t step) {
  constexpr int64_t kFew = 15;  // elements that are looked at before vectors have begun
  if constexpr (std::is_same_v<T, bool>) {
    if (step == 1) {
      const void* first = std::memchr(x, kMax, static_cast<size_t>(n));
      return first ? static_cast<const bool*>(first) - x : 0;
    }
  } else if (step == 1 && n > kFew) {
    return kMax ? place_of_most(x, n) : place_of_least(x, n);
  }
  int64_t place = 0;
  auto best = widen(x[0]);
  for (int64_t i = 1; i < n; ++i) {
    const auto v = widen(x[i * step]);
    const bool wins = beats<kMax>(v, best);  // no branch: who wins is not foreseen
    best = wins ? v : best;
    place = wins ? i : place;
  }
  return place;
}

Refusal accept_extreme(const ProgramView& program, const lazyt_node_t& node) {
  if (toolkit::count_of(program.dims(operand(program, node, 0))) == 0) return refuse_argument("an empty operand");
  return accept_real(program, node);
}

template <bool kMax>
void lower_arg_extreme(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const auto reduced = reduced_dims(listed_dims(b, args[1]), in.dims().size());
  const Tensor out = b.make_dense(node.results);
  with_real(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    add_reduction<T, int64_t>(b, kMax ? "argmax" : "argmin", in, out, reduced, false, [](int64_t& y, const T* x, int64_t n, int64_t step) {
      y = place_of_extreme<kMax>(x, n, step);
    });
  });
}

template <bool kMax>
void lower_extreme_dim(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const size_t rank = in.dims().size();
  std::vector<bool> reduced(rank, false);
  if (rank) reduced[axis_at(b.program, node, 1)] = true;
  const Tensor values = b.make_dense(node.results), places = b.make_dense(node.results + 1);
  const Tensor x_last = with_last_axis(b, in, reduced);
  const size_t axis = x_last.dims().size() - 1;
  const auto lines = lines_of<2>({x_last.layout, beside_axis(values, x_last.layout)}, axis, false);
  with_real(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(kMax ? "max.dim" : "min.dim", {x_last.storage}, {values.storage, places.storage}, [=](const Frame& frame) {
      const T* x = frame.at<T>(x_last);
      T* y = frame.at<T>(values);
      int64_t* p = frame.at<int64_t>(places);
      for_lines(frame, lines, 1, [&](const auto& at, int64_t) {
        const int64_t place = place_of_extreme<kMax>(x + at[0], lines.n, lines.step[0]);
        y[at[1]] = x[at[0] + place * lines.step[0]];
        p[at[1]] = place;
      });
    });
  });
}

void lower_aminmax(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const auto reduced = reduced_dims(listed_dims(b, args[1]), in.dims().size());
  const Tensor least = b.make_dense(node.results), most = b.make_dense(node.results + 1);
  const Tensor x_last = with_last_axis(b, in, reduced);
  const auto lines = lines_of<2>({x_last.layout, beside_axis(least, x_last.layout)}, x_last.dims().size() - 1, false);
  with_real(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("aminmax", {x_last.storage}, {least.storage, most.storage}, [=](const Frame& frame) {
      const T* x = frame.at<T>(x_last);
      T *lo = frame.at<T>(least), *hi = frame.at<T>(most);
      for_lines(frame, lines, 1, [&](const auto& at, int64_t) {
        const T* line = x + at[0];
        lo[at[1]] = line[place_of_extreme<false>(line, lines.n, lines.step[0]) * lines.step[0]];
        hi[at[1]] = line[place_of_extreme<true>(line, lines.n, lines.step[0]) * lines.step[0]];
      });
    });
  });
}

}  // namespace

void register_softmax(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_SOFTMAX, accept_floating, lower_softmax<false>);
  opaque(LAZYT_OP_LOG_SOFTMAX, accept_floating, lower_softmax<true>);
  opaque(LAZYT_OP_SOFTMAX_BACKWARD_DATA, accept_floating, lower_softmax_backward<false>);
  opaque(LAZYT_OP_LOG_SOFTMAX_BACKWARD_DATA, accept_floating, lower_softmax_backward<true>);
  opaque(LAZYT_OP_LOGSUMEXP, accept_logsumexp, lower_logsumexp);
  opaque(LAZYT_OP_VAR_CORRECTION, accept_variance, lower_variance<false, false>);
  opaque(LAZYT_OP_STD_CORRECTION, accept_variance, lower_variance<true, false>);
  opaque(LAZYT_OP_VAR_MEAN_CORRECTION, accept_variance, lower_variance<false, true>);
  opaque(LAZYT_OP_ARGMAX, accept_extreme, lower_arg_extreme<true>);
  opaque(LAZYT_OP_ARGMIN, accept_extreme, lower_arg_extreme<false>);
  opaque(LAZYT_OP_MAX_DIM, accept_extreme, lower_extreme_dim<true>);
  opaque(LAZYT_OP_MIN_DIM, accept_extreme, lower_extreme_dim<false>);
  opaque(LAZYT_OP_AMINMAX, accept_extreme, lower_aminmax);
}

}  // namespace lazyt::onednn
