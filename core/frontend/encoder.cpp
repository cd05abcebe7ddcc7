// The fast path of nn.MultiheadAttention and nn.TransformerEncoderLayer in inference: PyTorch hands each to
// the device as one operator. Recorded as the operators they are made of, which backends have and fuse.
#include <ATen/ops/_softmax.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "frontend/registration.h"

namespace lazyt::frontend {
namespace {

using at::Tensor;

// What a mask of each kind means is PyTorch's numbering: MaskType in
// aten/src/ATen/native/transformers/attention.cpp.
constexpr int64_t kSourceMask = 0, kPaddingMask = 1;  // else one of the scores' own shape

// scores: [batch, heads, rows, columns]. mask: true where nothing is looked at.
Tensor masked(const Tensor& scores, const Tensor& mask, std::optional<int64_t> type) {
  Tensor hidden = mask.scalar_type() == at::kBool ? mask : mask.to(at::kBool);
  const auto batch = scores.size(0), rows = scores.size(2), columns = scores.size(3);
  if (hidden.dim() == 2) TORCH_CHECK(type.has_value(), "Mask Type should be defined");
  if (hidden.dim() == 2 && type == kSourceMask) {
    TORCH_CHECK(hidden.size(0) == rows && hidden.size(1) == columns,
                "For mask_type == 0 mask shape should be (L, L)");
  } else if (hidden.dim() == 2 && type == kPaddingMask) {
    TORCH_CHECK(hidden.size(0) == batch && hidden.size(1) == columns,
                "For mask_type == 1 mask shape should be (B, L)");
    hidden = hidden.view({batch, 1, 1, columns});
  } else {
    TORCH_CHECK(hidden.sizes() == scores.sizes(), "For mask_type == 2 mask shape should match input shape");
  }
  return scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     int64_t embed_dim, int64_t heads, const Tensor& qkv_weight,
                                     const Tensor& qkv_bias, const Tensor& proj_weight,
                                     const Tensor& proj_bias, const std::optional<Tensor>& mask,
                                     bool need_weights, bool average_weights,
                                     std::optional<int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.size(2) == embed_dim, "passed-in embed_dim ", embed_dim,
              " didn't match last dim of query ", query.size(2));
  TORCH_CHECK(key.dim() == 3, "expected 3-D `key`, got ", key.dim(), "-D tensor");
  TORCH_CHECK(value.dim() == 3, "expected 3-D `value`, got ", value.dim(), "-D tensor");
  TORCH_CHECK(query.sizes() == key.sizes() && key.sizes() == value.sizes(),
              "expected `query`/`key`/`value` shapes to match");
  TORCH_CHECK(qkv_weight.dim() == 2, "expected 2-D `qkv_weight`, got ", qkv_weight.dim(), "-D tensor");
  TORCH_CHECK(embed_dim * 3 == qkv_weight.size(0), "expected `qkv_weight` first dim to be 3x embed_dim");
  TORCH_CHECK(embed_dim == qkv_weight.size(1), "expected `qkv_weight` second dim to be embed_Dim");
  TORCH_CHECK(qkv_bias.dim() == 1, "expected 1-D `qkv_bias`, got ", qkv_bias.dim(), "-D tensor");
  TORCH_CHECK(qkv_bias.size(0) == 3 * embed_dim,
              "expected `qkv_bias` first dim and first dim of query to be equal");
  TORCH_CHECK(embed_dim % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
  const auto batch = query.size(0), rows = query.size(1), width = embed_dim / heads;
  Tensor parts[3];
  if (key.is_same(query) && value.is_same(query)) {
    const auto all = at::linear(query, qkv_weight, qkv_bias).chunk(3, -1);
    std::copy(all.begin(), all.end(), parts);
  } else {
    const auto weights = qkv_weight.chunk(3), biases = qkv_bias.chunk(3);
    const Tensor* operands[3] = {&query, &key, &value};
    for (int i = 0; i < 3; i++) parts[i] = at::linear(*operands[i], weights[i], biases[i]);
  }
  for (Tensor& part : parts) part = part.view({batch, rows, heads, width}).transpose(1, 2);
  Tensor scores = at::matmul(parts[0].div(std::sqrt(static_cast<double>(width))), parts[1].transpose(-2, -1));
  if (mask && mask->defined()) scores = masked(scores, *mask, mask_type);
  const Tensor weights = at::_softmax(scores, -1, false);
  const Tensor context = at::matmul(weights, parts[2]).transpose(1, 2).reshape({batch, rows, embed_dim});
  const Tensor out = at::linear(context, proj_weight, proj_bias);
  if (!need_weights) return {out, Tensor()};
  return {out, average_weights ? weights.sum(1).div(heads) : weights};
}

Tensor encoder_layer(const Tensor& src, int64_t embed_dim, int64_t heads, const Tensor& qkv_weight,
                     const Tensor& qkv_bias, const Tensor& proj_weight, const Tensor& proj_bias,
                     bool use_gelu, bool norm_first, double eps, const Tensor& norm_weight_1,
                     const Tensor& norm_bias_1, const Tensor& norm_weight_2, const Tensor& norm_bias_2,
                     const Tensor& ffn_weight_1, const Tensor& ffn_bias_1, const Tensor& ffn_weight_2,
                     const Tensor& ffn_bias_2, const std::optional<Tensor>& mask,
                     std::optional<int64_t> mask_type) {
  const auto norm_1 = [&](const Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_1, norm_bias_1, eps, true);
  };
  const auto norm_2 = [&](const Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_2, norm_bias_2, eps, true);
  };
  TORCH_CHECK(src.dim() == 3, "expected 3-D `query`, got ", src.dim(), "-D tensor");
  Tensor x = norm_first ? norm_1(src) : src;
  x = src.add(std::get<0>(attention(x, x, x, embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
                                    mask, false, true, mask_type)));
  if (!norm_first) x = norm_1(x);
  const Tensor first = at::linear(norm_first ? norm_2(x) : x, ffn_weight_1, ffn_bias_1);
  x = x.add(at::linear(use_gelu ? at::gelu(first) : at::relu(first), ffn_weight_2, ffn_bias_2));
  return norm_first ? x : norm_2(x);
}

}  // namespace

void register_encoder() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                                __LINE__);
  library.impl("_native_multi_head_attention", TORCH_FN(attention));
  library.impl("_transformer_encoder_layer_fwd", TORCH_FN(encoder_layer));
}

}  // namespace lazyt::frontend
