// Schemas: what the recorder needs to know of an operator, from PyTorch's FunctionSchema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "trace/op.h"

namespace lazyt::frontend {

// What eager's kernel of a writing operator checks: that no written element stands in another place of the written
// tensor, and that another operand shares all of its memory or none.
enum class OverlapRule : uint8_t { kNone, kPartial, kInternalAndPartial };

// Of one operator; made once, lives for the process.
struct TorchOp {
  explicit TorchOp(const c10::OperatorHandle& handle) : handle(handle) {}

  c10::OperatorHandle handle;
  std::optional<c10::OperatorHandle> functional;  // when the operator writes
  trace::Op op;
  bool recordable = false;  // else every call runs on the host
  std::string why_not;      // recordable is false: the reason
  bool has_out = false;
  uint64_t element_numbers = 0;  // arguments that are numbers and become elements (elements.h)
  bool writes_itself = false;  // not PyTorch's: recorded as if it returned what it writes (trace::Op)
  bool writes_list = false;    // _foreach_add_ and its like: the list is its first argument, and nothing is returned
  bool copies_storage = false; // select_scatter and its like, as_strided_copy
  OverlapRule overlap = OverlapRule::kNone;
  bool masks_count = false;    // the number of elements set in a mask among its indices decides a shape
  bool by_indices = false;     // what its indices hold decides whether it fails, also where it writes no element
  bool takes_cpu = false;      // indices or probabilities may lie on the CPU, as on every accelerator
  bool has_composite = false;  // recorded as one only where linear.h says so
  bool masks_on_host = false;  // the shape of its result
  // One entry per return: index of the argument it is, or -1 for a fresh tensor, -2 for a fresh list.
  std::vector<int> returns;
};

// [any thread]
TorchOp& torch_op(const c10::OperatorHandle& handle);
// A library went, and one that came defines an operator of that name again: torch_op() makes another. [any thread]
void forget_op(const c10::OperatorName& name);

}  // namespace lazyt::frontend
