// Copies between tensors that lie along different dims.
#pragma once

#include "../compile.h"

namespace lazyt::cuda {

// Adds dst = src where src lies together along one dim and dst along another, both long enough: tiles go through shared
// memory, so that reads and writes are of neighbours. False, and nothing is added, for other copies; src may broadcast.
bool add_transpose(Builder& b, const Tensor& src, const Tensor& dst);

}  // namespace lazyt::cuda
