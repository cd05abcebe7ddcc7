// Resampling and pooling axis by axis: which elements of an axis make which.
#pragma once

#include "../compile.h"
#include "lazyt/toolkit/taps.hpp"

namespace lazyt::onednn {

using toolkit::Axes;
using toolkit::Taps;

// [N, C, spatial...] or [C, spatial...] as [N, C, D, H, W].
Tensor with_five_dims(const Tensor& t, size_t axes);

// Operand or result of a pooling: rows of width * inner elements, in planes, in `outer` volumes.
struct Volumes {
  Tensor tensor;  // five dims, dense or channels-last
  bool channels_last;
  int64_t outer() const { return channels_last ? tensor.dims()[0] : tensor.dims()[0] * tensor.dims()[1]; }
  int64_t inner() const { return channels_last ? tensor.dims()[1] : 1; }
};
// The operand as it lies, or a dense copy.
Volumes volumes_of(Builder& b, const Tensor& t, size_t axes);
// The operand in a layout that is given.
Volumes volumes_of(Builder& b, const Tensor& t, size_t axes, bool channels_last);
// A place for result v that lies like an operand.
Volumes make_volumes(Builder& b, uint32_t v, size_t axes, bool channels_last);

// y = the axes applied to x. Floating dtypes, and any where elements are only moved; sums in f32 (f64). Does not depend on the number of threads.
void add_resample(Builder& b, const char* name, const Volumes& x, const Volumes& y, Axes axes);

// y = the largest of the elements that the axes name, index = which, counted within the volume. As PyTorch does, the
// first of equals and the last NaN.
void add_max_pool(Builder& b, const Volumes& x, const Volumes& y, const Volumes& index, Axes axes);
// x = the sum of the gradients y that index sends there; axes are those of the forward.
void add_max_pool_backward(Builder& b, const Volumes& y, const Volumes& index, const Volumes& x, const Axes& axes);

}  // namespace lazyt::onednn
