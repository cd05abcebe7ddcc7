// Dtypes, metas and geometries between PyTorch and lazyt.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/shape.h"

namespace lazyt::frontend {

struct DTypeTables {
  base::DType of_torch[static_cast<int>(at::ScalarType::NumOptions)] = {};
  at::ScalarType of_lazyt[LAZYT_DTYPE_COUNT];
  DTypeTables();
};
extern const DTypeTables dtype_tables;

// INVALID for what has no counterpart (quantized and bits types).
inline base::DType from_torch(at::ScalarType type) { return dtype_tables.of_torch[static_cast<int>(type)]; }
inline at::ScalarType to_torch(base::DType dtype) {
  return dtype >= 0 && dtype < LAZYT_DTYPE_COUNT ? dtype_tables.of_lazyt[dtype] : at::ScalarType::Undefined;
}

base::Meta meta_of(const at::Tensor& t);  // sizes and strides, no offset

}  // namespace lazyt::frontend
