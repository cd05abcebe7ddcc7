// Copies between two strided layouts of one dtype.
#pragma once

#include "../compile.h"

namespace lazyt::onednn {

// dst = src. REQUIRES: the same dims; elements of 1, 2, 4 or 8 bytes (toolkit::is_movable).
void lower_strided_copy(Builder& b, const Tensor& src, const Tensor& dst);

}  // namespace lazyt::onednn
