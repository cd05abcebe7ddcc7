// Copies and fills.
#pragma once

#include "../compile.h"

namespace lazyt::onednn {

// dst = src, broadcast and converted.
void lower_copy(Builder& b, const Tensor& src, const Tensor& dst);
void lower_fill(Builder& b, const Tensor& dst, const Number& number);

}  // namespace lazyt::onednn
