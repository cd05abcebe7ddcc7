#include "frontend/overlap.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>

#include "frontend/arguments.h"

namespace lazyt::frontend {
namespace {

bool shares_elements(const at::Tensor& t) {
  if (!t.defined() || t.numel() < 2 || t.is_non_overlapping_and_dense()) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int64_t i = 0; i < t.dim(); i++)
    if (t.size(i) > 1) dims.emplace_back(t.stride(i), t.size(i));
  std::sort(dims.begin(), dims.end());
  int64_t span = 0;  // of the dims so far
  for (auto [stride, size] : dims) {
    if (stride <= span) return true;
    span += stride * (size - 1);
  }
  return false;
}

}  // namespace

bool shares_elements(const c10::IValue& arg) {
  std::vector<at::Tensor> tensors;
  collect(tensors, arg);
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return shares_elements(t); });
}

void check_overlap(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  if (op.overlap == OverlapRule::kNone) return;
  for (size_t i = 0; i < args.size(); i++) {
    if (!op.op.args[i].written || !args[i].isTensor()) continue;
    const at::Tensor& written = args[i].toTensor();
    if (op.overlap == OverlapRule::kInternalAndPartial) at::assert_no_internal_overlap(written);
    for (size_t j = 0; j < args.size(); j++)
      if (j != i && args[j].isTensor() && args[j].toTensor().device() == written.device())
        at::assert_no_partial_overlap(written, args[j].toTensor());
  }
}

}  // namespace lazyt::frontend
