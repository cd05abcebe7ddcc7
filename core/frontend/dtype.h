// Dtypes, metas and geometries between PyTorch and lazyt.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/shape.h"

namespace lazyt::frontend {

// INVALID for what has no counterpart (quantized and bits types).
base::DType from_torch(at::ScalarType type);
at::ScalarType to_torch(base::DType dtype);

base::Meta meta_of(const at::Tensor& t);  // sizes and strides, no offset

}  // namespace lazyt::frontend
