// Groups of pointwise nodes and reductions as fused kernels; copies and fills.
#pragma once

#include "../compile.h"

namespace lazyt::onednn {

// One unit of fuse() with role kPointwise or kReduction.
void lower_group(Builder& b, const toolkit::Unit& unit);
// dst = src, broadcast and converted.
void lower_copy(Builder& b, const Tensor& src, const Tensor& dst);
void lower_fill(Builder& b, const Tensor& dst, const Number& number);

}  // namespace lazyt::onednn
