// The random operators of the opset (lazyt::dropout, uniform, normal, bernoulli, randint).
//
// Their values are fixed by rule PRG-7 and the rules of the opset table; nothing of PyTorch's own
// generators takes part. The functions read their arguments from a stack in schema order and leave
// their results there.
#pragma once

#include <ATen/core/stack.h>

#include <array>
#include <cstdint>

namespace lazyt::ts {

// One counter's four words of Philox 4x32-10.
std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter_low, uint64_t counter_high = 0);

void random_dropout(torch::jit::Stack& stack);
void random_uniform(torch::jit::Stack& stack);
void random_normal(torch::jit::Stack& stack);
void random_bernoulli(torch::jit::Stack& stack);
void random_randint(torch::jit::Stack& stack);

}  // namespace lazyt::ts
