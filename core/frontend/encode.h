// Encoding: a call on PyTorch's stack, written as words (trace/words.h).
#pragma once

#include <ATen/core/stack.h>

#include "frontend/schema.h"
#include "trace/recorder.h"

namespace lazyt::frontend {

// Fills call from the arguments on top of the stack, with the device it is for. Takes seed and offset of the generator for random
// operators: encode each call once. Raises eager's error for tensors of other devices.
enum class Encoded : uint8_t {
  kWhole,
  kNoted,   // an operand's conjugation or sign is only noted: the words would not say it
  kOnHost,  // a number of 2^63 or more: the words have none
};
Encoded encode(const TorchOp& op, c10::ArrayRef<c10::IValue> args, trace::Call& call);

// The same again after a change of geometry (out= was resized), without drawing random numbers anew.
void encode_again(const TorchOp& op, c10::ArrayRef<c10::IValue> args, trace::Call& call);

}  // namespace lazyt::frontend
