// Dtype promotion as PyTorch's result_type does it, so that programs can say their casts.
#pragma once

#include <span>

#include "base/shape.h"

namespace lazyt::trace {

// How strongly an operand speaks: a tensor with dims over a rank-0 tensor over a Python number.
enum class Rank : uint8_t { kNumber, kScalarTensor, kTensor };

struct PromoteOperand {
  base::DType dtype;
  Rank rank;
};

// The common dtype. default_float: what integral meets a Python float as (torch.get_default_dtype()).
base::DType promote(std::span<const PromoteOperand> operands, base::DType default_float);

bool is_floating(base::DType dtype);
bool is_complex(base::DType dtype);
bool is_integral(base::DType dtype);  // bool excluded

}  // namespace lazyt::trace
