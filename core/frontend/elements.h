// Numbers that become elements: eager refuses those that their dtype cannot hold, backends would wrap them.
#pragma once

#include <cstdint>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "frontend/schema.h"

namespace lazyt::frontend {

// Bit i: argument i of the operator is such a number, or may be absent.
uint64_t element_numbers(const c10::FunctionSchema& schema);

// Eager's error at the operator's line. REQUIRES: op.element_numbers. [any thread]
void check_elements(const TorchOp& op, c10::ArrayRef<c10::IValue> args);

}  // namespace lazyt::frontend
