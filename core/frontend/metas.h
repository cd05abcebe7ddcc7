// Shapes without a kernel. Of contractions: their CPU kernels cost too much to be asked, and PyTorch's meta kernels of them
// are written in Python, whose first use takes a second. And of what a growing text makes at each length.
#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "frontend/schema.h"

namespace lazyt::frontend {

// Whether computing takes much longer than reading the operands: products, convolutions, attention, factorizations.
bool is_contraction(const TorchOp& op);

// The results, on the meta device, of operands there. Nothing for an operator without a rule here. Raises what eager
// raises for these shapes and dtypes.
std::optional<torch::jit::Stack> contraction_results(const TorchOp& op, const torch::jit::Stack& args);

// The results of a call that eager takes for certain, and nothing for any other. args: of any device, whose tensors are only
// looked at; the results are on the meta device.
std::optional<torch::jit::Stack> certain_results(const TorchOp& op, c10::ArrayRef<c10::IValue> args);

}  // namespace lazyt::frontend
