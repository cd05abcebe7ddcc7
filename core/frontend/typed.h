// Typed kernels: operators of the commonest signatures, whose known calls are recorded without boxed arguments.
#pragma once

#include "frontend/schema.h"

namespace lazyt::frontend {

// Registers a typed kernel of one of PyTorch's operators, and one above it for calls without history (history.h). False, with
// nothing registered: its signature has none here, or its calls are more than their words.
bool register_typed(TorchOp& op);

}  // namespace lazyt::frontend
