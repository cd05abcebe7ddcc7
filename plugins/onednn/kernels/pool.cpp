// Pooling and resampling operators: each says, axis by axis, which elements make which; taps.cpp does the work.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "../ops.h"
#include "taps.h"

namespace lazyt::onednn {
namespace {

using AxisOf = std::function<Taps(size_t axis, int64_t inputs, int64_t outputs)>;

// Axes of an operator whose last `count` dims are spatial; depth and height may be missing.
Axes axes_of(const Dims& x, const Dims& y, size_t count, const AxisOf& f) {
  Axes out{Taps::one(), Taps::one(), Taps::one()};
  for (size_t i = 0; i < count; ++i) out[3 - count + i] = f(i, x[x.size() - count + i], y[y.size() - count + i]);
  return out;
}

Axes transposed(const Axes& axes) { return {axes[0].transposed(), axes[1].transposed(), axes[2].transposed()}; }

int64_t at(const Dims& d, size_t axis, int64_t otherwise) { return d.empty() ? otherwise : d[d.size() == 1 ? 0 : axis]; }

// ---- Windows of fixed size

struct Window {
  Dims kernel, stride, padding, dilation;
  bool count_padding = true;
  std::optional<int64_t> divisor = std::nullopt;
  bool average = false;

  Taps operator()(size_t axis, int64_t inputs, int64_t outputs) const {
    const int64_t k = at(kernel, axis, 1), s = at(stride, axis, k), p = at(padding, axis, 0), d = at(dilation, axis, 1);
    Taps taps;
    taps.inputs = inputs;
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t start = o * s - p;
      int64_t count = 0;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t from = start + i * d;
        if (from < 0 || from >= inputs) continue;
        taps.add(from, 1);
        ++count;
      }
      taps.end_output();
      if (!average) continue;
      // A window that hangs over the end of the padding is cut there.
      const int64_t padded = std::min(start + k, inputs + p) - start;
      if (divisor) {
        taps.divisor.push_back(axis == 0 ? static_cast<double>(*divisor) : 1.0);
      } else {
        taps.divisor.push_back(static_cast<double>(std::max<int64_t>(count_padding ? padded : count, 1)));
      }
    }
    return taps;
  }
};

size_t axes_count(lazyt_op_t op) {
  switch (op) {
    case LAZYT_OP_AVG_POOL1D: case LAZYT_OP_ADAPTIVE_AVG_POOL1D: return 1;
    case LAZYT_OP_AVG_POOL3D: case LAZYT_OP_MAX_POOL3D_WITH_INDICES: case LAZYT_OP_ADAPTIVE_AVG_POOL3D: return 3;
    default: return 2;
  }
}

void lower_max_pool(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const size_t n = axes_count(node.op);
  const Volumes x = volumes_of(b, b.tensor(b.value_of(args[0])), n);
  Window window{b.ints_of(args[1]), b.ints_of(args[2]), b.ints_of(args[3]), b.ints_of(args[4])};
  const Volumes y = make_volumes(b, node.results, n, x.channels_last), index = make_volumes(b, node.results + 1, n, x.channels_last);
  add_max_pool(b, x, y, index, axes_of(x.tensor.dims(), y.tensor.dims(), n, window));
}

// grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
void lower_max_pool_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Volumes index = volumes_of(b, b.tensor(b.value_of(args[7])), 2);
  const Volumes grad = volumes_of(b, b.tensor(b.value_of(args[0])), 2, index.channels_last);
  const Volumes x = make_volumes(b, node.results, 2, index.channels_last);
  const Window window{b.ints_of(args[2]), b.ints_of(args[3]), b.ints_of(args[4]), b.ints_of(args[5])};
  add_max_pool_backward(b, grad, index, x, axes_of(x.tensor.dims(), grad.tensor.dims(), 2, window));
}

Window average_window(Builder& b, const lazyt_node_t& node, size_t first) {
  const auto args = b.program.args(node);
  Window w{b.ints_of(args[first]), b.ints_of(args[first + 1]), b.ints_of(args[first + 2]), {}};
  w.count_padding = b.bool_of(args[first + 4]);
  w.average = true;
  if (args.size() > first + 5 && !b.is_none(args[first + 5])) w.divisor = b.int_of(args[first + 5]);
  return w;
}

void lower_avg_pool(Builder& b, const lazyt_node_t& node) {
  const size_t n = axes_count(node.op);
  const Volumes x = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), n);
  const Volumes y = make_volumes(b, node.results, n, x.channels_last);
  add_resample(b, "avg pool", x, y, axes_of(x.tensor.dims(), y.tensor.dims(), n, average_window(b, node, 1)));
}

void lower_avg_pool_backward(Builder& b, const lazyt_node_t& node) {
  const Volumes grad = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), 2);
  const Volumes x = make_volumes(b, node.results, 2, grad.channels_last);
  add_resample(b, "avg pool backward", grad, x, transposed(axes_of(x.tensor.dims(), grad.tensor.dims(), 2, average_window(b, node, 2))));
}

// ---- Windows that share an axis out evenly

template <bool average>
Taps adaptive(size_t, int64_t inputs, int64_t outputs) {
  Taps taps;
  taps.inputs = inputs;
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t start = o * inputs / outputs, end = ((o + 1) * inputs + outputs - 1) / outputs;
    for (int64_t i = start; i < end; ++i) taps.add(i, 1);
    taps.end_output();
    if (average) taps.divisor.push_back(static_cast<double>(end - start));
  }
  return taps;
}

void lower_adaptive_avg(Builder& b, const lazyt_node_t& node) {
  const size_t n = axes_count(node.op);
  const Volumes x = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), n);
  const Volumes y = make_volumes(b, node.results, n, x.channels_last);
  add_resample(b, "adaptive avg pool", x, y, axes_of(x.tensor.dims(), y.tensor.dims(), n, adaptive<true>));
}

void lower_adaptive_avg_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  // A gradient of one pixel lies both ways: the operand says which.
  const bool last = volumes_of(b, b.tensor(b.value_of(args[1])), 2).channels_last;
  const Volumes grad = volumes_of(b, b.tensor(b.value_of(args[0])), 2, last);
  const Volumes x = make_volumes(b, node.results, 2, last);
  add_resample(b, "adaptive avg pool backward", grad, x, transposed(axes_of(x.tensor.dims(), grad.tensor.dims(), 2, adaptive<true>)));
}

void lower_adaptive_max(Builder& b, const lazyt_node_t& node) {
  const Volumes x = volumes_of(b, b.tensor(b.value_of(b.program.args(node)[0])), 2);
  const Volumes y = make_volumes(b, node.results, 2, x.channels_last), index = make_volumes(b, node.results + 1, 2, x.channels_last);
  add_max_pool(b, x, y, index, axes_of(x.tensor.dims(), y.tensor.dims(), 2, adaptive<false>));
}

// ---- Other sizes of an image. Indices and weights are computed in the precision that PyTorch uses: f32, or f64 for f64.

// input / output, unless the caller gave the scale.
template <class F>
F step_of(const std::optional<double>& scale, int64_t inputs, int64_t outputs) {
  return scale && *scale > 0 ? static_cast<F>(1.0 / *scale) : static_cast<F>(inputs) / static_cast<F>(outputs);
}

Taps nearest(std::optional<double> scale, int64_t inputs, int64_t outputs) {
  const auto step = step_of<float>(scale, inputs, outputs);
  Taps taps;
  taps.inputs = inputs;
  for (int64_t o = 0; o < outputs; ++o) {
    taps.add(std::min(static_cast<int64_t>(std::floor(static_cast<float>(o) * step)), inputs - 1), 1);
    taps.end_output();
  }
  return taps;
}

template <class F>
Taps linear(bool align_corners, std::optional<double> scale, int64_t inputs, int64_t outputs) {
  F step = step_of<F>(scale, inputs, outputs);
  if (align_corners) step = outputs > 1 ? static_cast<F>(inputs - 1) / static_cast<F>(outputs - 1) : F(0);
  Taps taps;
  taps.inputs = inputs;
  for (int64_t o = 0; o < outputs; ++o) {
    if (inputs == outputs) {
      taps.add(o, 1);
    } else {
      const F from = align_corners ? step * static_cast<F>(o) : std::max(step * (static_cast<F>(o) + F(0.5)) - F(0.5), F(0));
      const int64_t low = std::min(static_cast<int64_t>(from), inputs - 1), high = std::min(low + 1, inputs - 1);
      const F upper = std::clamp(from - static_cast<F>(low), F(0), F(1));
      taps.add(low, F(1) - upper);
      taps.add(high, upper);
    }
    taps.end_output();
  }
  return taps;
}

std::optional<double> double_or_none(const lazyt_arg_t& arg) {
  if (Builder::is_none(arg)) return std::nullopt;
  return Builder::double_of(arg);
}

void lower_upsample(Builder& b, const lazyt_node_t& node) {
  const bool is_linear = node.op == LAZYT_OP_UPSAMPLE_BILINEAR2D || node.op == LAZYT_OP_UPSAMPLE_BILINEAR2D_BACKWARD;
  const bool backward = node.op == LAZYT_OP_UPSAMPLE_NEAREST2D_BACKWARD || node.op == LAZYT_OP_UPSAMPLE_BILINEAR2D_BACKWARD;
  const auto args = b.program.args(node);
  const size_t after_sizes = backward ? 3 : 2;
  const bool align = is_linear && b.bool_of(args[after_sizes]);
  const size_t scales = after_sizes + (is_linear ? 1 : 0);
  const AxisOf axis = [&](size_t i, int64_t inputs, int64_t outputs) {
    const auto scale = double_or_none(args[scales + i]);
    if (!is_linear) return nearest(scale, inputs, outputs);
    return b.dtype(node.results) == LAZYT_DTYPE_FLOAT64 ? linear<double>(align, scale, inputs, outputs) : linear<float>(align, scale, inputs, outputs);
  };
  const Volumes from = volumes_of(b, b.tensor(b.value_of(args[0])), 2);
  const Volumes to = make_volumes(b, node.results, 2, from.channels_last);
  if (backward) {
    add_resample(b, "upsample backward", from, to, transposed(axes_of(to.tensor.dims(), from.tensor.dims(), 2, axis)));
  } else {
    add_resample(b, "upsample", from, to, axes_of(from.tensor.dims(), to.tensor.dims(), 2, axis));
  }
}

// [..., C r r, H, W] -> [..., C, H r, W r]
void lower_pixel_shuffle(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor x = b.tensor(b.value_of(args[0]));
  const Tensor y = b.make_dense(node.results);
  if (y.count() == 0) return;
  const int64_t r = b.int_of(args[1]);
  const size_t front = x.dims().size() - 3;
  const int64_t h = x.dims()[front + 1], w = x.dims()[front + 2];
  const Dims &d = x.dims(), &s = x.strides(), &ys = y.strides();
  Dims dims(d.begin(), d.begin() + static_cast<std::ptrdiff_t>(front));
  Dims from(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(front)), to(ys.begin(), ys.begin() + static_cast<std::ptrdiff_t>(front));
  const int64_t c = s[front];
  dims.insert(dims.end(), {d[front] / (r * r), h, r, w, r});
  from.insert(from.end(), {c * r * r, s[front + 1], c * r, s[front + 2], c});
  to.insert(to.end(), {ys[front], ys[front + 1] * r, ys[front + 1], r, 1});
  b.copy({x.storage, x.dtype, {x.layout.offset, dims, from}}, {y.storage, y.dtype, {y.layout.offset, dims, to}});
}

bool has_empty_window(const ProgramView& program, const lazyt_node_t& node) {
  const auto args = program.args(node);
  auto ints = [&](size_t i) {
    const auto run = program.ints(args[i]);
    return Dims(run.begin(), run.end());
  };
  const Window window{ints(1), ints(2), ints(3), ints(4)};
  const auto x = program.dims(program.values()[args[0].payload]), y = program.dims(program.values()[node.results]);
  const size_t n = axes_count(node.op);
  for (size_t i = 0; i < n; ++i) {
    const Taps taps = window(i, x[x.size() - n + i], y[y.size() - n + i]);
    for (int64_t o = 0; o < taps.outputs(); ++o)
      if (taps.begin[o] == taps.begin[o + 1]) return true;
  }
  return false;
}

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  for (uint64_t i = 0; i < node.arg_count; ++i) {
    const lazyt_arg_t& arg = program.args(node)[i];
    if (arg.kind == LAZYT_ARG_LIST) return refuse_argument("onednn: a geometry that is not constant");
    if (arg.kind == LAZYT_ARG_VALUE && program.values()[arg.payload].flags & LAZYT_VALUE_HOST_SCALAR)
      return refuse_argument("onednn: a geometry that is not constant");
  }
  const lazyt_value_t& x = program.values()[program.args(node)[0].payload];
  if ((node.op == LAZYT_OP_MAX_POOL2D_WITH_INDICES || node.op == LAZYT_OP_MAX_POOL3D_WITH_INDICES) && has_empty_window(program, node))
    return refuse_argument("onednn: a window of a max pooling that lies in the padding whole");
  if (lazyt_value_numel(program.block(), &x) > INT32_MAX) return {LAZYT_REASON_SIZE, "onednn: pooling of more than 2^31 elements"};
  switch (x.dtype) {
    case LAZYT_DTYPE_FLOAT32: case LAZYT_DTYPE_FLOAT64: case LAZYT_DTYPE_FLOAT16: case LAZYT_DTYPE_BFLOAT16: return {};
    default: return node.op == LAZYT_OP_PIXEL_SHUFFLE ? accept_known(program, node) : refuse_dtype(x.dtype);
  }
}

}  // namespace

void register_pool(Operators& all) {
  auto opaque = [&](lazyt_op_t op, Operator::Lower lower) { all.add(op, {toolkit::Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_MAX_POOL2D_WITH_INDICES, lower_max_pool);
  opaque(LAZYT_OP_MAX_POOL3D_WITH_INDICES, lower_max_pool);
  opaque(LAZYT_OP_MAX_POOL2D_WITH_INDICES_BACKWARD, lower_max_pool_backward);
  opaque(LAZYT_OP_ADAPTIVE_MAX_POOL2D, lower_adaptive_max);
  for (lazyt_op_t op : {LAZYT_OP_AVG_POOL1D, LAZYT_OP_AVG_POOL2D, LAZYT_OP_AVG_POOL3D}) opaque(op, lower_avg_pool);
  opaque(LAZYT_OP_AVG_POOL2D_BACKWARD, lower_avg_pool_backward);
  for (lazyt_op_t op : {LAZYT_OP_ADAPTIVE_AVG_POOL1D, LAZYT_OP_ADAPTIVE_AVG_POOL2D, LAZYT_OP_ADAPTIVE_AVG_POOL3D})
    opaque(op, lower_adaptive_avg);
  opaque(LAZYT_OP_ADAPTIVE_AVG_POOL2D_BACKWARD, lower_adaptive_avg_backward);
  for (lazyt_op_t op : {LAZYT_OP_UPSAMPLE_NEAREST2D, LAZYT_OP_UPSAMPLE_NEAREST2D_BACKWARD, LAZYT_OP_UPSAMPLE_BILINEAR2D,
                        LAZYT_OP_UPSAMPLE_BILINEAR2D_BACKWARD})
    opaque(op, lower_upsample);
  opaque(LAZYT_OP_PIXEL_SHUFFLE, lower_pixel_shuffle);
}

}  // namespace lazyt::onednn
