// What the validate layer looks at in a program block.
#pragma once

#include "base/hash.h"
#include "layers/validate_call.h"

namespace lazyt::layers {

// The host's duties (PRG-n), by the verifier.
void check_program(Call& call, const lazyt_program_t* program);
base::Hash128 program_hash(const lazyt_program_t* program, uint64_t seed);
// inputs and outputs of what it compiles to.
void read_signature(const lazyt_program_t* program, ExecutableState& out);

}  // namespace lazyt::layers
