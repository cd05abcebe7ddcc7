// Matrix products for other kernels.
#pragma once

#include "../compile.h"

namespace lazyt::onednn {

// Adds the steps of c = a b, or of c += a b, for f32 matrices (rank 2); c is row-major, a and b may lie in any way.
void add_product(Builder& b, const Tensor& left, const Tensor& right, const Tensor& c, bool adds = false);

}  // namespace lazyt::onednn
