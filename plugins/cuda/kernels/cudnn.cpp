// Convolutions by cuDNN: one operation, and what stands behind it where an engine takes all of it: the bias, or the scale and
// shift of a batch norm at inference; another tensor; ReLU.
#include "../codegen/kernel.h"
#include "dnn.h"
#include "window.h"

namespace lazyt::cuda {
namespace {

// As cuDNN sees a tensor: at least two spatial dims.
Tensor as_image(const Tensor& t) {
  if (t.dims().size() != 3) return t;
  Tensor out = t;
  out.layout.dims.insert(out.layout.dims.begin() + 2, 1);
  out.layout.strides.insert(out.layout.strides.begin() + 2, t.dims()[2] * t.strides()[2]);
  return out;
}
Dims as_image(Dims each, int64_t filler, size_t axes) {
  if (axes == 1) each.insert(each.begin(), filler);
  return each;
}

// False if there is no engine.
bool add_step(Builder& b, const Window& window, const Tensor& x, const Tensor& w, const Tensor& y) {
  const size_t axes = window.x.dims().size() - 2;
  constexpr const char* kNames[] = {"forward", "data", "weights"};
  constexpr DnnKind kKinds[] = {kDnnForward, kDnnBackwardData, kDnnBackwardWeights};
  const auto kind = static_cast<size_t>(window.kind);
  std::string name = std::string("cudnn ") + kNames[kind] + " " + memory_type(x.dtype);
  for (const auto& [part, is_there] : {std::pair{" scale", window.scale.has_value()}, {" bias", window.bias.has_value()}, {" add", window.add.has_value()},
                                       {" relu", window.relu}})
    if (is_there) name += part;
  DnnGraph g("a convolution", name, (b.flags() & LAZYT_COMPILE_TF32) != 0);
  const DnnDataType type = *dnn_type(x.dtype), wide = type == kDnnF64 ? kDnnF64 : kDnnF32;
  const Tensor& to = window.kind == Window::Kind::kForward ? y : window.kind == Window::Kind::kData ? x : w;
  const bool is_alone = !window.scale && !window.bias && !window.add && !window.relu;
  const Tensor image = as_image(to);
  DnnGraph::Id last = is_alone ? g.write(b, image) : g.between(wide, image.dims(), image.strides());
  auto id_of = [&](const Tensor& t, Window::Kind writes) { return window.kind == writes ? last : g.read(b, as_image(t)); };
  const auto w_id = id_of(w, Window::Kind::kWeights), x_id = id_of(x, Window::Kind::kData), y_id = id_of(y, Window::Kind::kForward);
  g.window(kKinds[kind], w_id, x_id, y_id, as_image(window.stride, 1, axes), as_image(window.padding, 0, axes), as_image(window.dilation, 1, axes));
  auto channels = [&](const Tensor& t) {
    Dims dims(image.dims().size(), 1);
    dims[1] = t.dims()[0];
    return g.read(b, reshaped(t, dims, toolkit::row_major(dims)));
  };
  struct Behind {
    DnnPointwise mode;
    DnnGraph::Id with;
  };
  std::vector<Behind> all;
  if (window.scale) all.push_back({kDnnMul, channels(*window.scale)});
  if (window.bias) all.push_back({kDnnAdd, channels(*window.bias)});
  if (window.add) all.push_back({kDnnAdd, g.read(b, as_image(*window.add))});
  if (window.relu) all.push_back({kDnnRelu, 0});
  for (size_t i = 0; i < all.size(); ++i) {
    const DnnGraph::Id next = i + 1 == all.size() ? g.write(b, image) : g.between(wide, image.dims(), image.strides());
    g.pointwise(all[i].mode, last, next, all[i].with);
    last = next;
  }
  return g.add(b);
}

// t += bias, in place.
void add_bias(Builder& b, const Tensor& bias, const Tensor& t) {
  Dims strides(t.dims().size(), 0);
  strides[1] = bias.strides()[0];
  const toolkit::Type type = toolkit::type_of(toolkit::compute_dtype(t.dtype));
  FusedKernel kernel(t.dims(), {});
  const auto sum = kernel.op(toolkit::Op::kAdd, kernel.cast(kernel.load(t), type), kernel.cast(kernel.load(reshaped(bias, t.dims(), strides)), type));
  kernel.store(kernel.cast(sum, toolkit::type_of(t.dtype)), t);
  kernel.build(b, {});
}

}  // namespace

bool add_library_window(Builder& b, const Window& asked) {
  if (!has_dnn() || !dnn_type(asked.x.dtype)) return false;
  const Current current(*b.device().context);
  Window window = asked;
  // All three lie alike, as the result of a forward and the operand of a gradient do; what is written in another order is copied.
  const bool last = is_channels_last(window.kind == Window::Kind::kWeights ? window.x : window.y);
  auto strides = [&](const Tensor& t) { return last ? channels_last(t.dims()) : toolkit::row_major(t.dims()); };
  std::optional<Tensor> copy;
  auto place = [&](const Tensor& t, Window::Kind writes) {
    if (toolkit::same_strides(t.dims(), t.strides(), strides(t))) return reshaped(t, t.dims(), strides(t));
    if (window.kind != writes) return b.laid_out(t, t.dtype, strides(t));
    return *(copy = b.scratch(t.dtype, t.dims(), strides(t), static_cast<uint64_t>(t.count()) * t.element()));
  };
  const Tensor x = place(window.x, Window::Kind::kData), w = place(window.w, Window::Kind::kWeights), y = place(window.y, Window::Kind::kForward);
  if (window.bias) window.bias = b.dense(*window.bias);
  if (window.add) window.add = b.laid_out(*window.add, window.add->dtype, strides(*window.add));
  const Tensor& to = window.kind == Window::Kind::kForward ? y : window.kind == Window::Kind::kData ? x : w;
  if (!add_step(b, window, x, w, y)) {
    if (window.has_more_than_bias() || !window.bias) return false;
    const Tensor bias = *std::exchange(window.bias, std::nullopt);
    if (!add_step(b, window, x, w, y)) return false;
    add_bias(b, bias, to);
  }
  if (copy) b.copy(to, window.kind == Window::Kind::kForward ? window.y : window.kind == Window::Kind::kData ? window.x : window.w);
  return true;
}

}  // namespace lazyt::cuda
