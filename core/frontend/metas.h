// Shapes of contractions: their CPU kernels cost too much to be asked, and PyTorch's meta kernels of them are written in
// Python, whose first use takes a second.
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

}  // namespace lazyt::frontend
