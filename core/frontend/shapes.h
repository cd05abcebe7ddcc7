// Shapes: result metas of a call, from PyTorch's meta kernels, remembered by signature.
#pragma once

#include <ATen/core/stack.h>

#include "frontend/schema.h"
#include "trace/recorder.h"

namespace lazyt::frontend {

struct Resized {
  uint32_t arg;      // index of an out= argument that takes another shape
  uint32_t element;  // which of its tensors, if it is a list
  base::Dims dims, strides;
};

struct ShapeResult {
  trace::Words metas;   // fresh results, then what goes into written tensors
  uint32_t fresh = 0;
  std::vector<Resized> resized;
  const char* host_reason = nullptr;  // why the call must run on the host instead
};

// Raises the operator's own shape and dtype errors. Holds no lock while PyTorch's kernels run, and those of Python may
// record calls of their own. [any thread]
ShapeResult infer(const TorchOp& op, const trace::Call& call, c10::ArrayRef<c10::IValue> args);

}  // namespace lazyt::frontend
