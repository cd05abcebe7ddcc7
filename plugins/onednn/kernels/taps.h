// Resampling and pooling axis by axis: which elements of an axis make which.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "../compile.h"

namespace lazyt::onednn {

// Along one axis, result o is made of the operand's elements index[t], begin[o] <= t < begin[o + 1], times weight[t],
// divided by divisor[o] if there are any.
struct Taps {
  int64_t inputs = 1;
  std::vector<int32_t> begin{0}, index;
  std::vector<double> weight, divisor;

  int64_t outputs() const { return static_cast<int64_t>(begin.size()) - 1; }
  void add(int64_t i, double w) {
    index.push_back(static_cast<int32_t>(i));
    weight.push_back(w);
  }
  void end_output() { begin.push_back(static_cast<int32_t>(index.size())); }
  // The adjoint: from gradients of results to gradients of the operand, divisors in the weights.
  Taps transposed() const;
  // One element, untouched: an axis that is not there.
  static Taps one();
};
using Axes = std::array<Taps, 3>;  // depth, height, width

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

// y = the axes applied to x. Floating dtypes; sums in f32 (f64). Does not depend on the number of threads.
void add_resample(Builder& b, const char* name, const Volumes& x, const Volumes& y, Axes axes);

// y = the largest of the elements that the axes name, index = which, counted within the volume. As PyTorch does, the
// first of equals and the last NaN.
void add_max_pool(Builder& b, const Volumes& x, const Volumes& y, const Volumes& index, Axes axes);
// x = the sum of the gradients y that index sends there; axes are those of the forward.
void add_max_pool_backward(Builder& b, const Volumes& y, const Volumes& index, const Volumes& x, const Axes& axes);

}  // namespace lazyt::onednn
