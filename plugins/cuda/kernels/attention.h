// Scaled dot product attention, and the library that may compute it.
#pragma once

#include <optional>

#include "walk.h"

namespace lazyt::cuda {

// out = softmax(scale q k') v, over tensors of one rank of at least 2.
struct Attention {
  Tensor q, k, v;
  bool causal;  // the first query sees the first key alone, the next two, ...
  Number scale;
};
struct AttentionResults {
  Tensor out;
  std::optional<Tensor> sums;  // log of each query's sum of exponentials, dense
};
struct AttentionGradients {
  Tensor grad, out, sums, q, k, v;  // the last three are written
};

// Add the steps that compute it by cuDNN; false, and none added, where it was not found or has no engine for it.
bool add_library_attention(Builder& b, const Attention& attention, const AttentionResults& results);
bool add_library_attention(Builder& b, const Attention& attention, const AttentionGradients& gradients);

}  // namespace lazyt::cuda
