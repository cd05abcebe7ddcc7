// Overlap: writes that eager refuses because elements of the operands share memory.
#pragma once

#include <ATen/core/stack.h>

#include "frontend/schema.h"

namespace lazyt::frontend {

// Raises eager's error where a written operand overlaps itself or, in part, another operand. Meta kernels do not
// look. A call that is replayed has the geometry and storages of one that passed.
void check_overlap(const TorchOp& op, c10::ArrayRef<c10::IValue> args);

// Whether an element of a list that is written shares memory with one that stands elsewhere in the lists: what it gets
// depends on the order in which they are gone through.
bool writes_across(const TorchOp& op, c10::ArrayRef<c10::IValue> args);

// Whether a tensor of the argument may have elements that share memory: what a write leaves there depends on the
// order in which the kernel goes.
bool shares_elements(const c10::IValue& arg);

}  // namespace lazyt::frontend
