#include "frontend/overlap.h"

#include <ATen/MemoryOverlap.h>

namespace lazyt::frontend {

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
