// Autocast: the lists of PyTorch's other devices. Which dtype it casts to is the user's (`torch.autocast`).
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "frontend/registration.h"

namespace lazyt::frontend {
namespace {

using namespace at;           // NOLINT: the macros name what they use
using namespace at::autocast;  // NOLINT

#define LAZYT_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define LAZYT_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define LAZYT_FP32_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define LAZYT_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false, "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which are safe to autocast.");
}

void register_lists(torch::Library& m) {
  AT_FORALL_LOWER_PRECISION_FP(LAZYT_LOWER)
  AT_FORALL_FP32(LAZYT_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LAZYT_FP32_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(LAZYT_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_banned));
}

}  // namespace

void register_autocast() {
  static torch::Library all(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFallthrough());
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  register_lists(library);
}

}  // namespace lazyt::frontend
