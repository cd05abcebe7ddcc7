// Copies whose source and destination run along different dims.
#pragma once

#include "../compile.h"

namespace lazyt::onednn {

// Adds a step that copies src to dst in tiles, if that is what the copy needs; false if the plain loops serve it well.
// REQUIRES: equal dtypes and dims.
bool lower_transpose(Builder& b, const Tensor& src, const Tensor& dst);

}  // namespace lazyt::onednn
