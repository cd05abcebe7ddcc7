// nn.TransformerEncoder in inference packs a batch with a padding mask into a nested tensor, runs its layers
// over it and pads again: the one place where PyTorch makes nested tensors unasked. Those few calls are here;
// a layer runs over padded rows.
#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned_native.h>
#include <ATen/ops/_nested_tensor_from_mask_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/to_padded_tensor_native.h>
#include <torch/library.h>

#include "frontend/registration.h"

namespace lazyt::frontend {
namespace {

using at::Tensor;
using c10::DispatchKey;

// Which rows of [batch, rows] are not padding, on the CPU. sizes: rows and columns of each element, on the
// CPU.
Tensor filled(const Tensor& sizes, int64_t rows) {
  return at::arange(rows, sizes.options()).unsqueeze(0).lt(sizes.select(1, 0).unsqueeze(1));
}

Tensor pack(const Tensor& padded, const Tensor& sizes) {
  const Tensor rows = filled(sizes, padded.size(1)).flatten().nonzero().squeeze(1).to(padded.device());
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      padded.flatten(0, 1).index_select(0, rows).view(-1), sizes);
}

Tensor from_padded(const Tensor& padded, const Tensor& sizes, bool transposed) {
  TORCH_CHECK_NOT_IMPLEMENTED(!transposed && padded.dim() == 3 && sizes.dim() == 2 && sizes.size(1) == 2,
                              "lazyt: nested tensors cannot live on the lazyt device "
                              "(aten::_nested_from_padded); keep them on the CPU");
  return pack(padded, sizes);
}

Tensor encoder_layer(const Tensor& src, int64_t embed_dim, int64_t num_heads, const Tensor& qkv_weight,
                     const Tensor& qkv_bias, const Tensor& proj_weight, const Tensor& proj_bias,
                     bool use_gelu, bool norm_first, double eps, const Tensor& norm_weight_1,
                     const Tensor& norm_bias_1, const Tensor& norm_weight_2, const Tensor& norm_bias_2,
                     const Tensor& ffn_weight_1, const Tensor& ffn_bias_1, const Tensor& ffn_weight_2,
                     const Tensor& ffn_bias_2, const std::optional<Tensor>& mask, std::optional<int64_t>) {
  TORCH_CHECK(!mask, "NestedTensor with mask is not supported yet");
  const Tensor sizes = at::native::get_nested_sizes(src),
               padded = at::native::NestedTensor_to_padded_tensor_generic(src, 0);
  const Tensor padding = filled(sizes, padded.size(1)).logical_not().to(padded.device());
  constexpr int64_t kPaddingMask = 1;
  const Tensor rows = at::_transformer_encoder_layer_fwd(
      padded, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
      norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
      ffn_bias_2, padding, kPaddingMask);
  return pack(rows, sizes);
}

}  // namespace

void register_nested() {
  static torch::Library dense(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  dense.impl("_nested_tensor_from_mask", TORCH_FN(at::native::NestedTensor_nested_tensor_from_mask));
  dense.impl("_nested_tensor_from_mask_left_aligned",
             TORCH_FN(at::native::NestedTensor_nested_tensor_from_mask_left_aligned));
  dense.impl("_nested_from_padded", TORCH_FN(from_padded));
  static torch::Library nested(torch::Library::IMPL, "aten", DispatchKey::NestedTensorPrivateUse1, __FILE__,
                               __LINE__);
  nested.impl("to_padded_tensor", TORCH_FN(at::native::NestedTensor_to_padded_tensor_generic));
  nested.impl("_transformer_encoder_layer_fwd", TORCH_FN(encoder_layer));
}

}  // namespace lazyt::frontend
