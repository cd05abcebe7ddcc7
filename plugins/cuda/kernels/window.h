// A convolution, and the library that may compute it.
#pragma once

#include <optional>

#include "walk.h"

namespace lazyt::cuda {

inline bool is_channels_last(const Tensor& t) { return t.dims()[1] > 1 && t.strides()[1] == 1; }
// What a convolution writes: as its input lies or its weight, as in PyTorch. A weight of one tap lies both ways.
inline bool is_channels_last(const Tensor& input, const Tensor& w) {
  const int64_t taps = toolkit::count_of(w.dims()) / (w.dims()[0] * w.dims()[1]);
  return is_channels_last(input) || (is_channels_last(w) && taps > 1);
}
inline Dims channels_last(const Dims& dims) {
  Dims strides(dims.size());
  int64_t step = dims[1];
  for (size_t d = dims.size(); d-- > 2;) strides[d] = step, step *= dims[d];
  strides[1] = 1;
  strides[0] = step;
  return strides;
}

// y = x * w, or what of its gradients. Tensors of ranks 3 to 5; what is written lies where it shall.
struct Window {
  enum class Kind : uint8_t { kForward, kData, kWeights } kind;  // writes y, x, w
  Tensor x, w, y;
  std::optional<Tensor> bias;    // of one dim, added to what is written; not of kWeights
  Dims stride, padding, dilation;  // one for each spatial dim
  // Of kForward alone: y = relu(scale * (x * w) + bias + add). The scale is as the bias, f32 (f64 of f64) both if there is one.
  std::optional<Tensor> scale = {}, add = {};
  bool relu = false;

  bool has_more_than_bias() const { return scale || add || relu; }
};

// Adds the steps that compute it by cuDNN; false, and none added, where it was not found or has no engine for it.
// REQUIRES: no dim is 0
bool add_library_window(Builder& b, const Window& window);

}  // namespace lazyt::cuda
