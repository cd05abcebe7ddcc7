// Probe: what a call does to shapes, dtypes and strides, learned from PyTorch's own kernels without its values.
//
// The first choice is eager itself: the CPU kernel, run once on operands of the same geometry that are all zeros. Its
// errors, strides and dtypes are by definition eager's. Meta kernels answer where the operands are too large for
// that (and eager is asked about small ones that are like them, so that what it refuses is refused), where the kernel
// draws random numbers, or where its verdict depends on values.
#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "frontend/schema.h"

namespace lazyt::frontend {

struct Answer {
  torch::jit::Stack args;                 // after the call: what out= tensors became
  torch::jit::Stack results;
  std::vector<at::Tensor> functional;     // of the functional form, where the operator writes and has one
  bool from_eager = false;
};

// Nothing if no kernel can tell. Raises what eager raises for these shapes and dtypes. Call below autograd.
std::optional<Answer> probe(const TorchOp& op, c10::ArrayRef<c10::IValue> args);

// Once answers are gone: the memory of eager's results goes back to the system where much of it came together. The C library
// would keep it in the heap, in which nothing of the device lies.
void give_back_results();

}  // namespace lazyt::frontend
