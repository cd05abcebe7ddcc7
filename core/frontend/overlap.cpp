#include "frontend/overlap.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <unordered_map>

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

bool writes_across(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  constexpr size_t kForAll = -1;  // a tensor beside the lists
  struct Element {
    const at::Tensor tensor;
    size_t index;
    bool written;
  };
  const auto is_written_list = [&](size_t i) { return op.op.args[i].written && !op.op.args[i].out && args[i].isTensorList(); };
  bool any = false;
  for (size_t i = 0; i < args.size(); i++) any |= is_written_list(i);
  if (!any) return false;
  std::unordered_map<const c10::StorageImpl*, std::vector<Element>> there;
  for (size_t i = 0; i < args.size(); i++) {
    std::vector<at::Tensor> tensors;
    if (args[i].isTensor() || args[i].isTensorList()) collect(tensors, args[i]);
    for (size_t k = 0; k < tensors.size(); k++)
      if (is_lazy(tensors[k])) there[tensors[k].storage().unsafeGetStorageImpl()].push_back({tensors[k], args[i].isTensor() ? kForAll : k, is_written_list(i)});
  }
  const auto meet = [](const Element& a, const Element& b) {
    return (a.written || b.written) && a.index != b.index && at::get_overlap_status(a.tensor, b.tensor) != at::MemOverlapStatus::No;
  };
  for (const auto& [storage, elements] : there)
    for (size_t i = 0; i < elements.size(); i++)
      for (size_t j = 0; j < i; j++)
        if (meet(elements[i], elements[j])) return true;
  return false;
}

}  // namespace lazyt::frontend
