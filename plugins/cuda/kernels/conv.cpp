// Convolutions as contractions (implicit GEMM): the window's geometry is in the text of the operands, nothing
// is copied.
//
// A transposed convolution is the backward of a convolution whose input is the transposed one's result: "x"
// is always the side of w's second dim, "y" that of its first.
#include <algorithm>
#include <optional>

#include "../codegen/kernel.h"
#include "contraction.h"
#include "dnn.h"
#include "product.h"
#include "window.h"

namespace lazyt::cuda {
namespace {

using toolkit::Reg;

// In texts: XC, YC channels of a group, AXES spatial dims; X_SIZE(d), X_AT(d) size and stride of spatial dim
// d of x (of y, w the same), X_IMAGE, X_CHANNEL strides of its other dims; STRIDE(d), PAD(d), DILATE(d) the
// window.
constexpr std::string_view kCut = R"(
  struct Cut {  // a linear index over spatial dims
    int at[AXES];
    __device__ __forceinline__ void of_y(long long i) {
#pragma unroll
      for (int d = AXES - 1; d >= 0; --d) at[d] = (int)(i % Y_SIZE(d)), i /= Y_SIZE(d);
    }
    __device__ __forceinline__ void of_x(long long i) {
#pragma unroll
      for (int d = AXES - 1; d >= 0; --d) at[d] = (int)(i % X_SIZE(d)), i /= X_SIZE(d);
    }
    __device__ __forceinline__ void of_tap(long long i) {
#pragma unroll
      for (int d = AXES - 1; d >= 0; --d) at[d] = (int)(i % W_SIZE(d)), i /= W_SIZE(d);
    }
  };
)";

// Tables: NAME(d) of spatial dim d as a chain of conditions on a number that unrolling makes constant.
std::string table(const Dims& values, const char* suffix) {
  std::string text = std::to_string(values.back()) + suffix;
  for (size_t i = values.size() - 1; i-- > 0;)
    text = "(d) == " + std::to_string(i) + " ? " + std::to_string(values[i]) + suffix + " : " + text;
  return "(" + text + ")";
}

constexpr std::string_view kAddresses = R"(
  struct Place {
    static __device__ __forceinline__ bool x_of(const Cut& y, const Cut& t, long long* offset) {
      bool inside = true;
#pragma unroll
      for (int d = 0; d < AXES; ++d) {
        const int i = y.at[d] * STRIDE(d) - PAD(d) + t.at[d] * DILATE(d);
        inside = inside && i >= 0 && i < X_SIZE(d);
        *offset += i * X_AT(d);
      }
      return inside;
    }
    static __device__ __forceinline__ bool y_of(const Cut& x, const Cut& t, long long* offset) {
      bool inside = true;
#pragma unroll
      for (int d = 0; d < AXES; ++d) {
        const int i = x.at[d] + PAD(d) - t.at[d] * DILATE(d), o = i / STRIDE(d);
        inside = inside && i >= 0 && o * STRIDE(d) == i && o < Y_SIZE(d);
        *offset += o * Y_AT(d);
      }
      return inside;
    }
    static __device__ __forceinline__ long long x(const Cut& x) {
      long long offset = 0;
#pragma unroll
      for (int d = 0; d < AXES; ++d) offset += x.at[d] * X_AT(d);
      return offset;
    }
    static __device__ __forceinline__ long long y(const Cut& y) {
      long long offset = 0;
#pragma unroll
      for (int d = 0; d < AXES; ++d) offset += y.at[d] * Y_AT(d);
      return offset;
    }
    static __device__ __forceinline__ long long w(const Cut& t) {
      long long offset = 0;
#pragma unroll
      for (int d = 0; d < AXES; ++d) offset += t.at[d] * W_AT(d);
      return offset;
    }
  };
)";

// Words: x, w, y, bias. Sums over channels and taps: TAP_OF(i, channels) and CHANNEL_OF(i, channels) of a
// linear index.

// Stores end where `v` is what belongs at `i`.

// y[pixel, y channel] = sum over x channels and taps
constexpr std::string_view kForwardLeft = R"(
  struct Left {
    const T* p;
    Cut y;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long m) {
      p = (const T*)a.w[0] + m / Y_PIXELS * X_IMAGE + z * XC * X_CHANNEL;
      y.of_y(m % Y_PIXELS);
    }
    __device__ __forceinline__ C at(long long k) const {
      Cut t;
      t.of_tap(TAP_OF(k, XC));
      long long offset = CHANNEL_OF(k, XC) * X_CHANNEL;
      return Place::x_of(y, t, &offset) ? lazyt_load(p, offset) : (C)0;
    }
  };
)";
constexpr std::string_view kForwardRight = R"(
  struct Right {
    const T* p;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long n) { p = (const T*)a.w[1] + (z * YC + n) * W_Y; }
    __device__ __forceinline__ C at(long long k) const {
      Cut t;
      t.of_tap(TAP_OF(k, XC));
      return lazyt_load(p, CHANNEL_OF(k, XC) * W_X + Place::w(t));
    }
  };
)";
constexpr std::string_view kForwardStore = R"(
  struct Store {
    static __device__ __forceinline__ void put(const Args& a, long long z, long long m, long long n, A v) {
      Cut y;
      y.of_y(m % Y_PIXELS);
      const long long channel = z * YC + n;
      if (BIAS) v += lazyt_load((const T*)a.w[3], channel * B_AT);
      const long long i = m / Y_PIXELS * Y_IMAGE + channel * Y_CHANNEL + Place::y(y);
)";

// x[pixel, x channel] = sum over y channels and taps
constexpr std::string_view kDataLeft = R"(
  struct Left {
    const T* p;
    Cut x;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long m) {
      p = (const T*)a.w[2] + m / X_PIXELS * Y_IMAGE + z * YC * Y_CHANNEL;
      x.of_x(m % X_PIXELS);
    }
    __device__ __forceinline__ C at(long long k) const {
      Cut t;
      t.of_tap(TAP_OF(k, YC));
      long long offset = CHANNEL_OF(k, YC) * Y_CHANNEL;
      return Place::y_of(x, t, &offset) ? lazyt_load(p, offset) : (C)0;
    }
  };
)";
constexpr std::string_view kDataRight = R"(
  struct Right {
    const T* p;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long n) { p = (const T*)a.w[1] + z * YC * W_Y + n * W_X; }
    __device__ __forceinline__ C at(long long k) const {
      Cut t;
      t.of_tap(TAP_OF(k, YC));
      return lazyt_load(p, CHANNEL_OF(k, YC) * W_Y + Place::w(t));
    }
  };
)";
constexpr std::string_view kDataStore = R"(
  struct Store {
    static __device__ __forceinline__ void put(const Args& a, long long z, long long m, long long n, A v) {
      Cut x;
      x.of_x(m % X_PIXELS);
      const long long channel = z * XC + n;
      if (BIAS) v += lazyt_load((const T*)a.w[3], channel * B_AT);
      const long long i = m / X_PIXELS * X_IMAGE + channel * X_CHANNEL + Place::x(x);
)";

// w[y channel, x channel and tap] = sum over images and pixels of y
constexpr std::string_view kWeightsLeft = R"(
  struct Left {
    const T* p;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long m) { p = (const T*)a.w[2] + (z * YC + m) * Y_CHANNEL; }
    __device__ __forceinline__ C at(long long k) const {
      Cut y;
      y.of_y(k % Y_PIXELS);
      return lazyt_load(p, k / Y_PIXELS * Y_IMAGE + Place::y(y));
    }
  };
)";
constexpr std::string_view kWeightsRight = R"(
  struct Right {
    const T* p;
    Cut t;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long n) {
      p = (const T*)a.w[0] + (z * XC + CHANNEL_OF(n, XC)) * X_CHANNEL;
      t.of_tap(TAP_OF(n, XC));
    }
    __device__ __forceinline__ C at(long long k) const {
      Cut y;
      y.of_y(k % Y_PIXELS);
      long long offset = k / Y_PIXELS * X_IMAGE;
      return Place::x_of(y, t, &offset) ? lazyt_load(p, offset) : (C)0;
    }
  };
)";
constexpr std::string_view kWeightsStore = R"(
  struct Store {
    static __device__ __forceinline__ void put(const Args& a, long long z, long long m, long long n, A v) {
      Cut t;
      t.of_tap(TAP_OF(n, XC));
      const long long i = (z * YC + m) * W_Y + CHANNEL_OF(n, XC) * W_X + Place::w(t);
)";

class Lowering {
 public:
  // x and y: the two sides; w: the weights. Those that a kernel writes lie already where it shall write.
  Lowering(Builder& b, Tensor x, Tensor w, Tensor y, const Dims& stride, const Dims& padding,
           const Dims& dilation, int64_t groups)
      : b_(b), x_(std::move(x)), w_(std::move(w)), y_(std::move(y)), groups_(groups) {
    const size_t axes = x_.dims().size() - 2;
    auto spatial = [](const Dims& d) { return Dims(d.begin() + 2, d.end()); };
    auto each = [&](const Dims& d) {
      Dims out(axes);
      for (size_t i = 0; i < axes; ++i) out[i] = d[d.size() == 1 ? 0 : i];
      return out;
    };
    stride_ = each(stride), padding_ = each(padding), dilation_ = each(dilation);
    taps_ = toolkit::count_of(spatial(w_.dims()));
    x_pixels_ = toolkit::count_of(spatial(x_.dims()));
    y_pixels_ = toolkit::count_of(spatial(y_.dims()));
    xc_ = x_.dims()[1] / groups;
    yc_ = y_.dims()[1] / groups;
    defines_ = {{"AXES", std::to_string(axes)},
                {"TAPS", literal(taps_)},
                {"X_PIXELS", literal(x_pixels_)},
                {"Y_PIXELS", literal(y_pixels_)},
                {"XC", literal(xc_)},
                {"YC", literal(yc_)},
                {"X_SIZE(d)", table(spatial(x_.dims()), "")},
                {"Y_SIZE(d)", table(spatial(y_.dims()), "")},
                {"W_SIZE(d)", table(spatial(w_.dims()), "")},
                {"X_AT(d)", table(spatial(x_.strides()), "LL")},
                {"Y_AT(d)", table(spatial(y_.strides()), "LL")},
                {"W_AT(d)", table(spatial(w_.strides()), "LL")},
                {"STRIDE(d)", table(stride_, "")},
                {"PAD(d)", table(padding_, "")},
                {"DILATE(d)", table(dilation_, "")},
                {"X_IMAGE", literal(x_.strides()[0])},
                {"X_CHANNEL", literal(x_.strides()[1])},
                {"Y_IMAGE", literal(y_.strides()[0])},
                {"Y_CHANNEL", literal(y_.strides()[1])},
                {"W_Y", literal(w_.strides()[0])},
                {"W_X", literal(w_.strides()[1])}};
  }

  // y = x * w + bias, and what stands behind it (`more`), or nothing at all.
  bool fused(const Tensor* bias, Window more) {
    more.kind = Window::Kind::kForward, more.x = x_, more.w = w_, more.y = y_;
    more.stride = stride_, more.padding = padding_, more.dilation = dilation_;
    if (!more.bias && bias) more.bias = *bias;
    return add_library_window(b_, more);
  }
  // y = x * w + bias
  void forward(const Tensor* bias) {
    if (by_library(Window::Kind::kForward, bias)) return;
    const bool last = is_channels_last(x_);
    add("convolution", {x_.dims()[0] * y_pixels_, yc_, xc_ * taps_}, last, last, true, bias,
        {kForwardLeft, kForwardRight, kForwardStore}, y_, 2);
  }
  // x = the sum over y of what reads it, + bias
  void backward_data(const Tensor* bias) {
    if (by_library(Window::Kind::kData, bias)) return;
    const bool last = is_channels_last(y_);
    add("convolution_data", {x_.dims()[0] * x_pixels_, xc_, yc_ * taps_}, last, last, false, bias,
        {kDataLeft, kDataRight, kDataStore}, x_, 0);
  }
  void backward_weights() {
    if (by_library(Window::Kind::kWeights, nullptr)) return;
    const bool last = is_channels_last(x_);
    add("convolution_weights", {yc_, xc_ * taps_, x_.dims()[0] * y_pixels_}, last, !is_channels_last(y_),
        !last, nullptr, {kWeightsLeft, kWeightsRight, kWeightsStore}, w_, 1);
  }

 private:
  bool by_library(Window::Kind kind, const Tensor* bias) {
    return add_library_window(b_, {kind, x_, w_, y_, bias ? std::optional(*bias) : std::nullopt, stride_, padding_, dilation_});
  }
  void add(const char* name, const std::array<int64_t, 3>& sizes, bool taps_outer, bool left_along_k,
           bool right_along_k, const Tensor* bias, const std::array<std::string_view, 3>& texts,
           const Tensor& write, size_t word) {
    Contraction c;
    c.name = name;
    c.dtype = x_.dtype;
    c.batch = groups_, c.m = sizes[0], c.n = sizes[1], c.k = sizes[2];
    c.text_m = literal(c.m), c.text_n = literal(c.n), c.text_k = literal(c.k);
    c.common = kCut, c.common += kAddresses;
    c.left = texts[0];
    c.right = texts[1];
    c.store = texts[2];
    c.left_along_k = left_along_k, c.right_along_k = right_along_k;
    c.defines = defines_;
    c.defines.emplace_back("CHANNEL_OF(i, channels)", taps_outer ? "((i) % (channels))" : "((i) / TAPS)");
    c.defines.emplace_back("TAP_OF(i, channels)", taps_outer ? "((i) / (channels))" : "((i) % TAPS)");
    c.defines.emplace_back("BIAS", bias ? "true" : "false");
    c.defines.emplace_back("B_AT", bias ? literal(bias->strides()[0]) : "0LL");
    c.words = {Word::address(x_), Word::address(w_), Word::address(y_),
               bias ? Word::address(*bias) : Word::integer(0)};
    for (const Tensor* t : {&x_, &w_, &y_})
      if (t->storage != write.storage) c.reads.push_back(t->storage);
    if (bias) c.reads.push_back(bias->storage);
    if (write.storage == w_.storage) {
      c.store += "lazyt_store((T*)a.w[1], i, v);\n";
      c.writes = {write.storage};
    } else {
      c.store += b_.store_text(write, word, c.words, c.reads, c.writes, c.reads_in_place);
    }
    c.store += "}\n};\n";
    add_contraction(b_, std::move(c));
  }

  Builder& b_;
  Tensor x_, w_, y_;
  int64_t groups_, taps_, x_pixels_, y_pixels_, xc_, yc_;
  Dims stride_, padding_, dilation_;
  Defines defines_;
};

// The sum over all dims but the channels.
void sum_channels(Builder& b, const Tensor& t, const Tensor& out) {
  std::vector<bool> reduced(t.dims().size(), true);
  reduced[1] = false;
  Tensor seen = out;
  seen.layout = beside(out.layout, t.dims(), reduced);
  FusedKernel kernel(t.dims(), reduced);
  kernel.reduce(kernel.cast(kernel.load(t), toolkit::type_of(compute_dtype(t.dtype))),
                toolkit::ReduceKind::kSum, seen);
  kernel.build(b, {});
}
// Its inverse: bias[channel] for all elements of t.
void fill_channels(Builder& b, const Tensor& bias, const Tensor& t) {
  Dims strides(t.dims().size(), 0);
  strides[1] = bias.strides()[0];
  b.copy(reshaped(bias, t.dims(), strides), t);
}

// A batch norm at inference as a scale and a bias of f32 (f64 of f64) for each channel. before: the convolution's own bias.
// input, weight, bias, running_mean, running_var, momentum, eps
void fold_norm(Builder& b, const lazyt_node_t& node, const std::optional<Tensor>& before, Window& out) {
  const auto args = b.program.args(node);
  const Tensor mean = tensor_at(b, args[3]), var = tensor_at(b, args[4]);
  const lazyt_dtype_t wide = compute_dtype(b.dtype(node.results));
  const toolkit::Type type = toolkit::type_of(wide);
  const Dims dims = mean.dims();
  FusedKernel kernel(dims, {});
  auto load = [&](const Tensor& t) { return kernel.cast(kernel.load(t), type); };
  Reg scale = kernel.op(toolkit::Op::kRsqrt, kernel.op(toolkit::Op::kAdd, load(var), kernel.number(b.number_of(args[6]), type)));
  if (!b.is_none(args[1])) scale = kernel.op(toolkit::Op::kMul, scale, load(tensor_at(b, args[1])));
  Reg from = load(mean);
  if (before) from = kernel.op(toolkit::Op::kSub, from, load(*before));
  Reg bias = kernel.op(toolkit::Op::kNeg, kernel.op(toolkit::Op::kMul, from, scale));
  if (!b.is_none(args[2])) bias = kernel.op(toolkit::Op::kAdd, bias, load(tensor_at(b, args[2])));
  out.scale = b.scratch(wide, dims), out.bias = b.scratch(wide, dims);
  kernel.store(scale, *out.scale);
  kernel.store(bias, *out.bias);
  kernel.build(b, {});
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
void lower_alone(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor input = tensor_at(b, args[0]), w = tensor_at(b, args[1]);
  std::optional<Tensor> bias;
  if (!b.is_none(args[2])) bias = tensor_at(b, args[2]);
  const Dims dims = b.dims(node.results);
  const bool is_empty = input.count() == 0 || w.count() == 0;
  const bool last = !is_empty && (has_dnn() && !b.bool_of(args[6]) ? is_channels_last(input, w) : is_channels_last(input));
  const Tensor result = last ? b.make(node.results, channels_last(dims)) : b.make_dense(node.results);
  if (result.count() == 0) return;
  if (is_empty) {
    if (bias) return fill_channels(b, *bias, result);
    return b.fill(result, kZero);
  }
  const bool transposed = b.bool_of(args[6]);
  Lowering lowering(b, transposed ? result : input, w, transposed ? input : result, b.ints_of(args[3]),
                    b.ints_of(args[4]), b.ints_of(args[5]), b.int_of(args[8]));
  const Tensor* added = bias ? &*bias : nullptr;
  if (transposed) return lowering.backward_data(added);
  lowering.forward(added);
}

// With all that stands behind it, by the library; false if it does not take it.
bool lower_with_chain(Builder& b, const lazyt_node_t& node, const Epilogue& e) {
  const auto args = b.program.args(node);
  const Tensor input = tensor_at(b, args[0]), w = tensor_at(b, args[1]);
  if (input.count() == 0 || w.count() == 0 || toolkit::count_of(b.dims(node.results)) == 0) return false;
  // Engines for more than a bias and ReLU want channels last.
  const bool is_short = e.chain.size() == 1 && b.program.nodes()[e.chain[0]].op == LAZYT_OP_RELU;
  const bool is_last = is_channels_last(input, w);
  if (!is_short && !is_last) return false;
  std::optional<Tensor> bias;
  if (!b.is_none(args[2])) bias = tensor_at(b, args[2]);
  Window more{};
  uint32_t last = node.results;
  for (uint32_t i : e.chain) {
    const lazyt_node_t& next = b.program.nodes()[i];
    const auto operands = b.program.args(next);
    if (next.op == LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING) fold_norm(b, next, bias, more);
    else if (next.op == LAZYT_OP_RELU) more.relu = true;
    else more.add = tensor_at(b, operands[Builder::value_of(operands[0]) == last ? 1 : 0]);
    last = next.results;
  }
  const Dims dims = b.dims(last);
  const Tensor result = is_last ? b.make(last, channels_last(dims)) : b.make_dense(last);
  Lowering lowering(b, input, w, result, b.ints_of(args[3]), b.ints_of(args[4]), b.ints_of(args[5]), b.int_of(args[8]));
  return lowering.fused(bias ? &*bias : nullptr, more);
}

void lower_convolution(Builder& b, const lazyt_node_t& node) {
  const Epilogue* const e = b.epilogue();
  const bool is_window = e && e->kind == Epilogue::Kind::kWindow;
  if (is_window && lower_with_chain(b, node, *e)) return;
  lower_alone(b, node);
  if (is_window) b.add_chain(*e);
}

// grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
// output_mask
void lower_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor grad = tensor_at(b, args[0]), input = tensor_at(b, args[1]), w = tensor_at(b, args[2]);
  const Dims mask = b.ints_of(args[10]);
  auto wanted = [&](uint32_t i) { return mask[i] && b.is_used(node.results + i); };
  const bool empty = grad.count() == 0 || input.count() == 0 || w.count() == 0,
             transposed = b.bool_of(args[7]);
  auto lower = [&](const Tensor& in, const Tensor& weights) {
    return Lowering(b, transposed ? grad : in, weights, transposed ? in : grad, b.ints_of(args[4]),
                    b.ints_of(args[5]), b.ints_of(args[6]), b.int_of(args[9]));
  };
  if (wanted(0)) {
    const Tensor out = is_channels_last(grad) ? b.make(node.results, channels_last(input.dims()))
                                              : b.make_dense(node.results);
    if (empty && out.count()) b.fill(out, kZero);
    if (!empty && transposed) lower(out, w).forward(nullptr);
    if (!empty && !transposed) lower(out, w).backward_data(nullptr);
  }
  if (wanted(1)) {
    const Tensor out = b.make_dense(node.results + 1);
    if (empty && out.count()) b.fill(out, kZero);
    if (!empty) lower(input, out).backward_weights();
  }
  if (wanted(2)) {
    const Tensor out = b.make_dense(node.results + 2);
    if (out.count()) sum_channels(b, grad, out);
  }
}

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  const bool backward = node.op == LAZYT_OP_CONVOLUTION_BACKWARD;
  const auto args = program.args(node);
  const lazyt_value_t& input = operand(program, node, backward ? 1 : 0);
  if (!is_floating(input.dtype)) return refuse_dtype(input.dtype);
  for (const lazyt_arg_t& arg : args)
    if (arg.kind == LAZYT_ARG_VALUE && program.values()[arg.payload].dtype != input.dtype)
      return refuse_dtype(program.values()[arg.payload].dtype);
  if (input.rank < 3 || input.rank > 5)
    return {LAZYT_REASON_RANK, "a convolution of rank " + std::to_string(input.rank) + ", not 3 to 5"};
  const size_t first = backward ? 4 : 3;  // stride, padding, dilation, transposed, output_padding, groups
  for (size_t i : {first, first + 1, first + 2, first + 4})
    if (args[i].kind != LAZYT_ARG_INTS)
      return refuse_argument("a convolution whose geometry is not constant");
  if (args[first + 5].kind != LAZYT_ARG_INT)
    return refuse_argument("a convolution whose groups are not constant");
  return accepted();
}

}  // namespace

void register_conv(Operators& all) {
  all.add(LAZYT_OP_CONVOLUTION, {toolkit::Role::kOpaque, accept, lower_convolution});
  all.add(LAZYT_OP_CONVOLUTION_BACKWARD, {toolkit::Role::kOpaque, accept, lower_backward});
}

}  // namespace lazyt::cuda
