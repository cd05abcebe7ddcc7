// Linear layers are recorded as one operator, and so are their gradients: PyTorch's composite would record ten.
// What PyTorch looks at call by call (shapes that are wrong, transforms, forward-mode gradients, dispatch modes, memory
// that lies column-major) stays that composite.
#pragma once

#include "frontend/schema.h"

namespace lazyt::frontend {

// Whether a call of op, aten::linear or aten::linear_backward, is recorded as it is.
bool is_plain_linear(const TorchOp& op, c10::ArrayRef<c10::IValue> args);

}  // namespace lazyt::frontend
