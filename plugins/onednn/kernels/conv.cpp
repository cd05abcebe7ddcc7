// Convolutions by oneDNN, activations channels-last, weights in oneDNN's own format; or by the CPU's tiles (amx_gemm.h).
//
// A transposed convolution is the backward of a convolution whose input is the transposed one's result: "x" is always
// the side of w's second dim, "y" that of its first.
#include <algorithm>
#include <optional>

#include "../ops.h"
#include "amx_gemm.h"
#include "channels.h"
#include "columns.h"
#include "dnnl.h"
#include "matmul.h"
#include "packed_gemm.h"

namespace lazyt::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;

struct Window {
  Dims x, y, w;  // with one spatial dim more than a 1-d convolution has; w with the groups in front, if any
  int64_t groups;
  Dims stride, dilation, pad_begin, pad_end;  // dilation 0: none between
  lazyt_dtype_t dtype;                        // of the computation
};

int64_t volume(const Dims& d, size_t from) { return toolkit::count_of(std::span(d).subspan(from)); }

memory::desc channels_last_desc(const Dims& dims, lazyt_dtype_t dtype) { return {dims, to_dnnl(dtype), channels_last(dims)}; }
memory::desc any(const Dims& dims, lazyt_dtype_t dtype) { return {dims, to_dnnl(dtype), memory::format_tag::any}; }

// [N, C, L] as [N, C, 1, L].
Tensor with_height(const Tensor& t) {
  if (t.dims().size() != 3) return t;
  return reshaped(t, {t.dims()[0], t.dims()[1], 1, t.dims()[2]}, {t.strides()[0], t.strides()[1], t.strides()[2] * t.dims()[2], t.strides()[2]});
}
Dims with_height(Dims per_axis, int64_t first) {
  if (per_axis.size() == 1) per_axis.insert(per_axis.begin(), first);
  return per_axis;
}

// Weights with the groups as a dim.
Tensor grouped(const Tensor& w, int64_t groups) {
  if (groups == 1) return w;
  Dims dims = w.dims(), strides = w.strides();
  dims[0] /= groups;
  dims.insert(dims.begin(), groups);
  strides.insert(strides.begin(), strides[0] * dims[1]);
  return reshaped(w, dims, strides);
}

// The primitives of a window; `weights` may be any.

dnnl::convolution_forward::primitive_desc forward_desc(const Window& g, bool bias, const memory::desc& weights, const dnnl::primitive_attr& attr) {
  const memory::desc src = channels_last_desc(g.x, g.dtype), dst = channels_last_desc(g.y, g.dtype);
  const auto kind = dnnl::prop_kind::forward_training;
  if (!bias) {
    return {cpu_engine(), kind, algorithm::convolution_direct, src, weights, dst, g.stride, g.dilation, g.pad_begin, g.pad_end, attr};
  }
  const memory::desc bias_desc({g.y[1]}, to_dnnl(g.dtype), Dims{1});
  return {cpu_engine(), kind, algorithm::convolution_direct, src, weights, bias_desc, dst, g.stride, g.dilation, g.pad_begin, g.pad_end, attr};
}

dnnl::convolution_backward_data::primitive_desc data_desc(const Window& g, lazyt_dtype_t result, const memory::desc& weights, const dnnl::primitive_attr& attr) {
  return {cpu_engine(), algorithm::convolution_direct, channels_last_desc(g.x, result), weights, channels_last_desc(g.y, g.dtype),
          g.stride, g.dilation, g.pad_begin, g.pad_end, forward_desc(g, false, any(g.w, g.dtype), {}), attr};
}

dnnl::convolution_backward_weights::primitive_desc weights_desc(const Window& g, const memory::desc& weights, const dnnl::primitive_attr& attr) {
  return {cpu_engine(), algorithm::convolution_direct, channels_last_desc(g.x, g.dtype), weights, channels_last_desc(g.y, g.dtype),
          g.stride, g.dilation, g.pad_begin, g.pad_end, forward_desc(g, false, any(g.w, g.dtype), {}), attr};
}

const Number kZero{true, true, 0, 0, 0, LAZYT_DTYPE_INT64};

// One convolution being lowered.
class Lowering {
 public:
  // x and y: dims of the two sides. w: the weights.
  Lowering(Builder& b, const Tensor& x, const Tensor& y, const Tensor& w, const Dims& stride, const Dims& padding,
           const Dims& dilation, int64_t groups)
      : b_(b), dtype_(safe_dtype(x, w, stride)) {
    const size_t axes = x.dims().size() - 2;
    auto axis = [&](const Dims& d, size_t i) { return d[d.size() == 1 ? 0 : i]; };
    Dims s, p, d;
    for (size_t i = 0; i < axes; ++i) s.push_back(axis(stride, i)), p.push_back(axis(padding, i)), d.push_back(axis(dilation, i));
    g_ = {with_height(x).dims(), with_height(y).dims(), grouped(with_height(w), groups).dims(), groups, with_height(s, 1),
          with_height(d, 1), with_height(p, 0), {}, dtype_};
    for (size_t i = 0; i < g_.stride.size(); ++i) {
      const int64_t kernel = g_.w[g_.w.size() - g_.stride.size() + i];
      const int64_t reach = (g_.y[2 + i] - 1) * g_.stride[i] + (kernel - 1) * g_.dilation[i] + 1;
      g_.pad_end.push_back(reach - g_.x[2 + i] - g_.pad_begin[i]);
      g_.dilation[i] = kernel == 1 ? 0 : g_.dilation[i] - 1;
    }
    work_ = static_cast<double>(toolkit::count_of(g_.y)) * static_cast<double>(volume(g_.w, groups > 1 ? 2 : 1));
  }

  // Whether any tap meets any element of x, and not padding alone: with bf16 oneDNN 3.2 dies of a convolution where none does.
  bool meets() const {
    for (size_t i = 0; i < g_.stride.size(); ++i) {
      bool met = false;
      for (int64_t o = 0; o < g_.y[2 + i] && !met; ++o) {
        for (int64_t t = 0; t < g_.w[g_.w.size() - g_.stride.size() + i] && !met; ++t) {
          const int64_t at = o * g_.stride[i] - g_.pad_begin[i] + t * (g_.dilation[i] + 1);
          met = at >= 0 && at < g_.x[2 + i];
        }
      }
      if (!met) return false;
    }
    return true;
  }

  // y = x * w + bias
  void forward(const Tensor& x, const Tensor& w, const Tensor* bias, const Tensor& y) {
    if (is_product(b_.steady_input(w) == LAZYT_NONE ? 4 : 8)) return forward_by_columns(x, w, bias, y);
    if (prefers_patches(g_.x, g_.y)) {
      std::optional<Tensor> added;
      if (bias) added = vector(*bias, dtype_);
      const Tensor result = result_for(y);
      add_patches(activation(x), g_.x, sources_of(columns()), pack(w, by_taps()), {g_.w[1], 1}, added, result);
      return finish(result, y);
    }
    const bool with_bias = bias != nullptr;
    const auto desc = asked([&] { return forward_desc(g_, with_bias, any(g_.w, dtype_), {}); });
    if (is_reference(desc)) return in_f32().forward_by_columns(x, w, bias, y);
    const memory::desc packed = desc.weights_desc();
    PrimitiveArguments arguments{{{DNNL_ARG_SRC, activation(x)}, {DNNL_ARG_WEIGHTS, pack(w, packed)}}, {}, {}};
    if (bias) arguments.reads.emplace_back(DNNL_ARG_BIAS, vector(*bias, dtype_));
    const Tensor result = result_for(y);
    arguments.writes.emplace_back(DNNL_ARG_DST, result);
    add_primitive(b_, "convolution", [g = g_, with_bias, packed](const auto& attr) { return forward_desc(g, with_bias, packed, attr); }, {},
                  arguments, useful_threads(work_));
    finish(result, y);
  }

  // x = the sum over y of what reads it; bias is added after it.
  void backward_data(const Tensor& y, const Tensor& w, const Tensor* bias, const Tensor& x) {
    if (is_product() || (is_pointwise() && (!bias || dtype_ == LAZYT_DTYPE_FLOAT32))) return data_by_columns(y, w, bias, x);
    if (!is_strided() && prefers_patches(g_.y, g_.x)) {
      std::optional<Tensor> added;
      if (bias) added = vector(*bias, dtype_);
      const Tensor result = result_for(x);
      add_patches(activation(y), g_.y, readers_of(columns()), pack(w, by_taps()), {1, g_.w[1]}, added, with_height(result));
      return finish(result, x);
    }
    const lazyt_dtype_t wide = bias ? LAZYT_DTYPE_FLOAT32 : dtype_;  // one rounding, behind the bias
    const auto desc = asked([&] { return data_desc(g_, wide, any(g_.w, dtype_), {}); });
    if (is_reference(desc)) return in_f32().data_by_columns(y, w, bias, x);
    const memory::desc packed = desc.weights_desc();
    const Tensor result = wide == dtype_ ? result_for(x) : scratch_for(x, wide);
    add_primitive(b_, "convolution backward data", [g = g_, wide, packed](const auto& attr) { return data_desc(g, wide, packed, attr); }, {},
                  {{{DNNL_ARG_DIFF_DST, activation(y)}, {DNNL_ARG_WEIGHTS, pack(w, packed)}}, {{DNNL_ARG_DIFF_SRC, result}}, {}},
                  useful_threads(work_));
    if (bias) add_to_channels(b_, vector(*bias, wide), result);
    finish(result, x);
  }

  void backward_weights(const Tensor& x, const Tensor& y, const Tensor& w) {
    if (reads_past_lines() || skips_lines() || (writes_past_scratch() && dtype_ != LAZYT_DTYPE_FLOAT32)) return in_f32().backward_weights(x, y, w);
    if (writes_past_weights()) return padded().backward_weights(with_depth_padded(x), y, w);
    if (is_product() || is_pointwise() || writes_past_scratch() || loses_padding()) return weights_by_columns(x, y, w);
    if (prefers_patches(g_.x, g_.y)) {
      add_weight_patches(activation(x), activation(y), w);
      return;
    }
    if (is_long_line()) return weights_by_taps(x, y, w);
    const auto desc = asked([&] { return weights_desc(g_, any(g_.w, dtype_), {}); });
    if (is_reference(desc)) return in_f32().weights_by_columns(x, y, w);
    const memory::desc packed = desc.diff_weights_desc();
    const Tensor plain = w.dtype == dtype_ ? w : b_.scratch(dtype_, w.dims());
    const Tensor wide = grouped(with_height(plain), g_.groups);
    const memory::desc plain_desc = describe(wide);
    const bool direct = plain_desc == packed;
    const Tensor result = direct ? wide : b_.scratch(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(packed.get_size())});
    const PrimitiveArguments arguments{{{DNNL_ARG_SRC, activation(x)}, {DNNL_ARG_DIFF_DST, activation(y)}}, {{DNNL_ARG_DIFF_WEIGHTS, result}}, {}};
    add_primitive(b_, "convolution backward weights", [g = g_, packed](const auto& attr) { return weights_desc(g, packed, attr); }, {}, arguments,
                  useful_threads(work_));
    if (!direct) add_reorder_back(b_, result, packed, wide, plain_desc);
    if (plain.storage != w.storage) b_.copy(plain, w);
  }

 private:
  // What oneDNN 3.2 computes wrongly in bf16 is computed as f32 (all found by fuzzing, with scratch filled up): the gradient of
  // weights reads scratch memory that nobody wrote where a line of x is shorter than the stride; a 3-d convolution whose
  // kernel is less deep than its stride takes wrong planes; and so does the gradient of weights of a 3-d depthwise one.
  static lazyt_dtype_t safe_dtype(const Tensor& x, const Tensor& w, const Dims& stride) {
    if (x.dtype != LAZYT_DTYPE_BFLOAT16 || !has_bf16()) return LAZYT_DTYPE_FLOAT32;
    const bool unwritten = x.dims().back() < stride.back();
    const bool misplaced = x.dims().size() == 5 && (w.dims()[2] < stride.front() || w.dims()[1] == 1);
    return unwritten || misplaced ? LAZYT_DTYPE_FLOAT32 : x.dtype;
  }
  // oneDNN 3.2's gradient of 3-d weights writes past them where it steps through a depth that is padded by 3 or more (a kernel of 7
  // with stride 2, the first of many video networks); found by fuzzing between guard pages. So x is padded before it.
  bool writes_past_weights() const { return g_.stride.size() == 3 && g_.stride[0] > 1 && g_.pad_begin[0] > 2; }
  // Its gradient of 1x1 weights that step over pixels writes past its scratch where x has fewer channels than a vector has lanes, in
  // bf16 and, without AVX-512, in f32 (found the same way): it is the product of y with the pixels of x that it meets.
  bool writes_past_scratch() const { return is_strided() && g_.groups == 1 && g_.w[1] < 16 && volume(g_.w, 2) == 1; }
  // Its gradient of 3-d weights in bf16 is wrong, waits for ever or breaks memory where a window is deeper or higher than x (found by
  // fuzzing on a CPU with AVX512-BF16; wider is no harm).
  bool reads_past_lines() const {
    if (dtype_ != LAZYT_DTYPE_BFLOAT16 || g_.stride.size() != 3) return false;
    const Dims taps = columns().kernel;
    const auto reaches_past = [&](size_t axis) { return (taps[axis] - 1) * (g_.dilation[axis] + 1) >= g_.x[2 + axis]; };
    return reaches_past(0) || reaches_past(1);
  }
  // Its gradient of weights in bf16 is wrong where a window has gaps between its lines and the channels of a group do not fill vectors
  // (found the same way).
  bool skips_lines() const {
    if (dtype_ != LAZYT_DTYPE_BFLOAT16 || g_.x[1] / g_.groups % 16 == 0) return false;
    return std::any_of(g_.dilation.begin(), g_.dilation.end() - 1, [](int64_t gap) { return gap > 0; });
  }
  // In f32 it is wrong where lines of more than one block of 28 are padded by more than 14, and a window has gaps and steps over
  // pixels (found the same way; another stands in for windows without gaps that are as wide).
  bool loses_padding() const {
    return dtype_ == LAZYT_DTYPE_FLOAT32 && g_.stride.back() > 1 && g_.dilation.back() > 0 && g_.pad_begin.back() > 14 && g_.y.back() > 28;
  }
  Lowering padded() const {
    Lowering out = *this;
    out.g_.x[2] += g_.pad_begin[0] + std::max<int64_t>(g_.pad_end[0], 0);
    out.g_.pad_begin[0] = 0;
    out.g_.pad_end[0] = std::min<int64_t>(g_.pad_end[0], 0);
    return out;
  }
  Tensor with_depth_padded(const Tensor& x) {
    const Dims dims = padded().g_.x;
    const Tensor all = b_.scratch(dtype_, dims, channels_last(dims), static_cast<uint64_t>(toolkit::count_of(dims)) * lazyt_dtype_size(dtype_));
    b_.fill(all, kZero);
    b_.copy(x, part(all, g_.pad_begin[0] * all.strides()[2], x.dims(), all.strides()));
    return all;
  }

  Lowering in_f32() const {
    Lowering out = *this;
    out.dtype_ = out.g_.dtype = LAZYT_DTYPE_FLOAT32;
    return out;
  }
  // Convolutions as products, one of each group: of few pixels, of windows of one pixel (gradients), and where oneDNN has its
  // reference loop alone (3-d windows that padding reaches past; wide padding beside dilation; without AVX-512 others of many taps).
  void forward_by_columns(const Tensor& x, const Tensor& w, const Tensor* bias, const Tensor& y) {
    const Tensor from = activation(x), weights = turned(matrix(dense(w))), result = result_for(y), to = rows(result);
    for (int64_t i = 0; i < g_.groups; ++i) {
      const Tensor mine = group(to, 1, i), product = g_.groups > 1 ? b_.scratch(dtype_, mine.dims()) : mine;
      add_product(b_, windows(group(from, 1, i)), group(weights, 1, i), product);
      if (g_.groups > 1) b_.copy(product, mine);
    }
    if (bias) add_to_channels(b_, vector(*bias, dtype_), result);
    finish(result, y);
  }
  void data_by_columns(const Tensor& y, const Tensor& w, const Tensor* bias, const Tensor& x) {
    const Tensor result = result_for(x), from = rows(activation(y)), weights = matrix(dense(w)), to = with_height(result);
    if (is_pointwise()) {
      add_product(b_, from, weights, rows(result));
    } else {
      const ColumnGeometry g = columns();
      const Tensor product = b_.scratch(dtype_, {g.rows(), g.width()});
      for (int64_t i = 0; i < g_.groups; ++i) {
        add_product(b_, group(from, 1, i), group(weights, 0, i), product);
        add_columns_back(b_, g, product, group(to, 1, i));
      }
    }
    if (bias) add_to_channels(b_, vector(*bias, dtype_), result);
    finish(result, x);
  }
  // Of many pixels with few channels of x the product is turned: a row of the result is to fill vectors.
  void weights_by_columns(const Tensor& x, const Tensor& y, const Tensor& w) {
    constexpr int64_t kFew = 64, kMany = 512;
    const Tensor from = activation(x), others = rows(activation(y));
    if (is_pointwise() && g_.x[1] <= kFew && g_.x[1] < g_.y[1] && others.dims()[0] >= kMany) {
      const Tensor result = b_.scratch(dtype_, {g_.x[1], g_.y[1]});
      add_product(b_, turned(rows(from)), others, result);
      return b_.copy(turned(result), matrix(w));
    }
    const Tensor result = w.dtype == dtype_ ? w : b_.scratch(dtype_, w.dims());
    for (int64_t i = 0; i < g_.groups; ++i)
      add_product(b_, turned(group(others, 1, i)), windows(group(from, 1, i)), group(matrix(result), 0, i));
    finish(result, w);
  }
  // Of lines: a tap's gradient is the product of y with the pixels that the tap meets, which lie a stride apart, added up over
  // the images.
  void weights_by_taps(const Tensor& x, const Tensor& y, const Tensor& w) {
    const Tensor from = activation(x), others = activation(y);
    const int64_t images = g_.x[0], line = g_.x.back(), channels = g_.x[1], results = g_.y[1], length = g_.y.back(), taps = g_.w.back();
    const int64_t stride = g_.stride.back(), padding = g_.pad_begin.back(), dilation = g_.dilation.back() + 1;
    const Tensor result = b_.scratch(dtype_, {taps, results, channels});
    for (int64_t t = 0; t < taps; ++t) {
      // y's first and last pixels whose windows have this tap within x.
      const int64_t at = t * dilation - padding;
      const int64_t first = std::max<int64_t>(0, (-at + stride - 1) / stride), end = std::min(length, (line - 1 - at + stride) / stride);
      const Tensor mine = part(result, t * results * channels, {results, channels}, {channels, 1});
      if (end <= first) {
        b_.fill(mine, kZero);
        continue;
      }
      for (int64_t i = 0; i < images; ++i)
        add_product(b_, part(others, (i * length + first) * results, {results, end - first}, {1, results}),
                    part(from, (i * line + first * stride + at) * channels, {end - first, channels}, {stride * channels, 1}), mine, i > 0);
    }
    b_.copy(reshaped(result, w.dims(), {channels, 1, results * channels}), w);
  }
  // What each window sees of one group of x. A window of one pixel sees the pixel.
  Tensor windows(const Tensor& x) { return is_pointwise() ? rows(x) : add_columns(b_, columns(), x); }
  // Group i's part of a dim that has those of all.
  Tensor group(const Tensor& t, size_t dim, int64_t i) const {
    Dims dims = t.dims();
    dims[dim] /= g_.groups;
    return part(t, i * dims[dim] * t.strides()[dim], dims, t.strides());
  }
  // What of t lies so, from an element on.
  static Tensor part(const Tensor& t, int64_t offset, Dims dims, Dims strides) {
    Tensor out = reshaped(t, std::move(dims), std::move(strides));
    out.layout.offset += offset;
    return out;
  }

  bool is_strided() const {
    return std::ranges::any_of(g_.stride, [](int64_t s) { return s != 1; });
  }
  // Windows of one pixel, one beside the other: the gradients are products of matrices that lie as they are wanted, which oneDNN
  // multiplies faster than it takes these convolutions back.
  bool is_pointwise() const {
    const auto none = [](int64_t padding) { return padding == 0; };
    return g_.groups == 1 && volume(g_.w, 2) == 1 && !is_strided() && std::ranges::all_of(g_.pad_begin, none) && std::ranges::all_of(g_.pad_end, none);
  }
  // Lines of many pixels and channels. Measured: by the products of their taps gradients of weights take as long as oneDNN's
  // convolution, and half as long where that steps over pixels or has no AVX-512.
  bool is_long_line() const {
    constexpr int64_t kLong = 128, kMostProducts = 512;
    const int64_t few = is_strided() || has_packed_gemm() ? 64 : 80;
    return g_.groups == 1 && dtype_ == LAZYT_DTYPE_FLOAT32 && g_.stride.size() == 2 && g_.x[2] == 1 && g_.w[2] == 1 &&
           g_.y.back() >= kLong && std::min(g_.x[1], g_.y[1]) >= few && g_.x[0] * g_.w.back() <= kMostProducts;
  }
  // Few pixels: the weights are what moves. Measured: from four times as many y channels as rows of columns on; eight times,
  // where weights stay in the primitive's own format from one run to the next.
  bool is_product(int64_t times = 4) const {
    return g_.groups == 1 && dtype_ == LAZYT_DTYPE_FLOAT32 && columns().rows() * times <= g_.y[1];
  }
  // Whether tiles are the faster way to what windows over `from` make of it, at the pixels of `to`.
  bool prefers_patches(const Dims& from, const Dims& to) const {
    return g_.groups == 1 && dtype_ == LAZYT_DTYPE_FLOAT32 && from[1] % 32 == 0 &&
           prefers_amx_patches(to[0] * volume(to, 2), from[1] * volume(g_.w, 2), to[1]);
  }
  // Weights as [taps][y channels][x channels].
  memory::desc by_taps() const {
    Dims strides = toolkit::Layout::dense(g_.w).strides;
    for (size_t i = 2; i < strides.size(); ++i) strides[i] *= g_.w[0] * g_.w[1];
    strides[0] = g_.w[1], strides[1] = 1;
    return {g_.w, to_dnnl(dtype_), strides};
  }
  struct Side {
    int64_t line, depth;  // strides in a matrix of weights
  };
  // result[pixels, channels] = patches of `from` times the weights of each tap, + bias.
  void add_patches(const Tensor& from, const Dims& dims, std::vector<int32_t> sources, const Tensor& weights, Side side,
                   const std::optional<Tensor>& bias, const Tensor& result) {
    const int64_t taps = volume(g_.w, 2), channels = dims[1], others = result.dims()[1], matrix = g_.w[0] * g_.w[1];
    const int64_t pixels = result.count() / others / dims[0];
    const int most = std::min(thread_count(), useful_threads(work_));
    const Tensor scratch = b_.scratch(
        LAZYT_DTYPE_UINT8, {static_cast<int64_t>(amx_scratch(1, dims[0] * pixels, others, taps * channels, most))});
    std::vector<StorageId> reads{from.storage, weights.storage};
    if (bias) reads.push_back(bias->storage);
    b_.add("convolution own:amx_bf16", reads, {result.storage, scratch.storage}, [=, sources = std::move(sources)](const Frame& frame) {
      const Patches a{frame.at<float>(from), sources.data(), dims[0], pixels, taps, channels, volume(dims, 1)};
      const Lines b{reinterpret_cast<const float*>(address(frame, weights)), others, taps * channels, side.line, side.depth, channels, matrix};
      amx_gemm(a, b, bias ? frame.at<float>(*bias) : nullptr, frame.at<float>(result), std::min(frame.threads, most), frame.storages[scratch.storage]);
    });
  }
  // w = the products of y's channels with the patches of x, summed over the pixels of y.
  void add_weight_patches(const Tensor& x, const Tensor& y, const Tensor& w) {
    const int64_t taps = volume(g_.w, 2), channels = g_.x[1], others = g_.y[1], rows = g_.y[0] * volume(g_.y, 2);
    const int most = std::min(thread_count(), useful_threads(work_));
    const Tensor scratch = b_.scratch(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(amx_scratch(1, others, taps * channels, rows, most))});
    const Tensor result = b_.scratch(dtype_, {others, taps, channels});
    b_.add("convolution backward weights own:amx_bf16", {x.storage, y.storage}, {result.storage, scratch.storage},
           [=, g = g_, sources = sources_of(columns())](const Frame& frame) {
             const Lines a{frame.at<float>(y), others, rows, 1, others, rows, 0};
             const Patches b{frame.at<float>(x), sources.data(), g.x[0], rows / g.y[0], taps, channels, volume(g.x, 1)};
             amx_gemm(a, b, frame.at<float>(result), std::min(frame.threads, most), frame.storages[scratch.storage]);
           });
    Dims strides = toolkit::Layout::dense(w.dims()).strides;
    for (size_t i = 2; i < strides.size(); ++i) strides[i] *= channels;
    strides[0] = taps * channels, strides[1] = 1;
    b_.copy(reshaped(result, w.dims(), strides), w);
  }
  // Of one group.
  ColumnGeometry columns() const {
    ColumnGeometry out{g_.x, g_.y, Dims(g_.w.end() - static_cast<ptrdiff_t>(g_.stride.size()), g_.w.end()), g_.stride, g_.pad_begin, g_.dilation};
    out.x[1] /= g_.groups;
    for (int64_t& d : out.dilation) ++d;
    return out;
  }
  // Weights as [y channels, x channels and taps], and activations as [images and pixels, channels].
  static Tensor matrix(const Tensor& w) { return reshaped(w, {w.dims()[0], volume(w.dims(), 1)}, {volume(w.dims(), 1), 1}); }
  static Tensor rows(const Tensor& t) { return reshaped(t, {t.count() / t.dims()[1], t.dims()[1]}, {t.dims()[1], 1}); }
  static Tensor turned(const Tensor& m) { return reshaped(m, {m.dims()[1], m.dims()[0]}, {m.strides()[1], m.strides()[0]}); }

  template <class Make>
  std::invoke_result_t<Make> asked(Make&& make) const {
    return with_dnnl("convolution", std::min(thread_count(), useful_threads(work_)), make);
  }

  // An operand channels-last, in the dtype of the computation.
  Tensor activation(const Tensor& t) { return with_height(as_channels_last(b_, t, dtype_)); }

  // Weights in the dtype of the computation.
  Tensor converted(const Tensor& w) {
    if (w.dtype == dtype_) return w;
    const Tensor out = b_.scratch(dtype_, w.dims());
    b_.copy(w, out);
    return out;
  }
  Tensor dense(const Tensor& w) { return b_.dense(converted(w)); }

  Tensor vector(const Tensor& t, lazyt_dtype_t dtype) {
    if (t.dtype == dtype && t.layout.is_dense()) return t;
    const Tensor out = b_.scratch(dtype, t.dims());
    b_.copy(t, out);
    return out;
  }

  Tensor pack(const Tensor& w, const memory::desc& packed) {
    Tensor plain = converted(w);
    const bool readable = std::all_of(plain.strides().begin(), plain.strides().end(), [](int64_t s) { return s > 0; });
    if (!readable) plain = b_.dense(plain);
    const Tensor wide = grouped(with_height(plain), g_.groups);
    const memory::desc desc = describe(wide);
    return desc == packed ? wide : add_reorder(b_, wide, desc, packed);
  }

  // Where the primitive writes what shall lie in t.
  Tensor result_for(const Tensor& t) {
    if (t.dtype == dtype_ && is_channels_last(t)) return t;
    return scratch_for(t, dtype_);
  }
  Tensor scratch_for(const Tensor& t, lazyt_dtype_t dtype) {
    return b_.scratch(dtype, t.dims(), channels_last(t.dims()), static_cast<uint64_t>(t.count()) * lazyt_dtype_size(dtype));
  }
  void finish(const Tensor& result, const Tensor& t) {
    if (result.storage != t.storage) b_.copy(result, t);
  }

  Builder& b_;
  lazyt_dtype_t dtype_;
  Window g_;
  double work_;
};

Tensor make_channels_last(Builder& b, uint32_t v) { return b.make(v, channels_last(b.dims(v))); }

// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
void lower_convolution(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor input = b.tensor(b.value_of(args[0])), w = b.tensor(b.value_of(args[1]));
  std::optional<Tensor> bias;
  if (!b.is_none(args[2])) bias = b.tensor(b.value_of(args[2]));
  const Tensor result = make_channels_last(b, node.results);
  if (result.count() == 0) return;
  const bool transposed = b.bool_of(args[6]);
  Lowering lowering(b, transposed ? result : input, transposed ? input : result, w, b.ints_of(args[3]), b.ints_of(args[4]),
                    b.ints_of(args[5]), b.int_of(args[8]));
  if (input.count() == 0 || w.count() == 0 || !lowering.meets()) {
    b.fill(result, kZero);
    if (bias) add_to_channels(b, *bias, result);
    return;
  }
  const Tensor* added = bias ? &*bias : nullptr;
  if (transposed) {
    lowering.backward_data(input, w, added, result);
  } else {
    lowering.forward(input, w, added, result);
  }
}

// grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
void lower_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor grad = b.tensor(b.value_of(args[0])), input = b.tensor(b.value_of(args[1])), w = b.tensor(b.value_of(args[2]));
  const Dims mask = b.ints_of(args[10]);
  auto wanted = [&](uint32_t i) { return mask[i] && b.is_used(node.results + i); };
  std::optional<Tensor> grad_input, grad_weight, grad_bias;
  if (wanted(0)) grad_input = make_channels_last(b, node.results);
  if (wanted(1)) grad_weight = b.make_dense(node.results + 1);
  if (wanted(2)) grad_bias = b.make_dense(node.results + 2);
  const bool transposed = b.bool_of(args[7]);
  Lowering lowering(b, transposed ? grad : input, transposed ? input : grad, w, b.ints_of(args[4]), b.ints_of(args[5]),
                    b.ints_of(args[6]), b.int_of(args[9]));
  if (grad.count() == 0 || input.count() == 0 || w.count() == 0 || !lowering.meets()) {
    for (const auto& t : {grad_input, grad_weight}) {
      if (t && t->count()) b.fill(*t, kZero);
    }
    if (grad_bias) sum_channels(b, grad, *grad_bias);
    return;
  }
  if (transposed) {
    if (grad_input) lowering.forward(grad, w, nullptr, *grad_input);
    if (grad_weight) lowering.backward_weights(grad, input, *grad_weight);
  } else {
    if (grad_input) lowering.backward_data(grad, w, nullptr, *grad_input);
    if (grad_weight) lowering.backward_weights(input, grad, *grad_weight);
  }
  if (grad_bias) sum_channels(b, grad, *grad_bias);  // oneDNN's own takes up to ten times as long
}

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  const bool backward = node.op == LAZYT_OP_CONVOLUTION_BACKWARD;
  const auto args = program.args(node);
  const lazyt_value_t& input = program.values()[args[backward ? 1 : 0].payload];
  const lazyt_dtype_t dtype = input.dtype;
  if (dtype != LAZYT_DTYPE_FLOAT32 && dtype != LAZYT_DTYPE_BFLOAT16 && dtype != LAZYT_DTYPE_FLOAT16) return refuse_dtype(dtype);
  for (const lazyt_arg_t& arg : args)
    if (arg.kind == LAZYT_ARG_VALUE && program.values()[arg.payload].dtype != dtype) return refuse_dtype(program.values()[arg.payload].dtype);
  if (input.rank < 3 || input.rank > 5)
    return {LAZYT_REASON_RANK, "onednn: a convolution of rank " + std::to_string(input.rank) + ", not 3 to 5"};
  const size_t first = backward ? 4 : 3;  // stride, padding, dilation, transposed, output_padding, groups
  for (size_t i : {first, first + 1, first + 2, first + 4})
    if (args[i].kind != LAZYT_ARG_INTS) return refuse_argument("onednn: a convolution whose geometry is not constant");
  if (args[first + 5].kind != LAZYT_ARG_INT) return refuse_argument("onednn: a convolution whose groups are not constant");
  const bool transposed = args[first + 3].payload;
  if (transposed) {
    const auto stride = program.ints(args[first]), extra = program.ints(args[first + 4]);
    for (size_t i = 0; i < extra.size(); ++i)
      if (extra[i] >= stride[stride.size() == 1 ? 0 : i]) return refuse_argument("onednn: output_padding is not below stride");
  }
  return {};
}

}  // namespace

void register_conv(Operators& all) {
  all.add(LAZYT_OP_CONVOLUTION, {toolkit::Role::kOpaque, accept, lower_convolution});
  all.add(LAZYT_OP_CONVOLUTION_BACKWARD, {toolkit::Role::kOpaque, accept, lower_backward});
}

}  // namespace lazyt::onednn
