// Activations [N, C, spatial...] with the channels innermost in memory.
#pragma once

#include "../compile.h"

namespace lazyt::onednn {

// Strides of dims with the second dim innermost.
Dims channels_last(const Dims& dims);

// Whether the bytes lie so; strides of dims of size 1 say nothing.
bool is_channels_last(const Tensor& t);

// The tensor itself with the strides of channels_last(), or a copy in that layout and dtype.
Tensor as_channels_last(Builder& b, const Tensor& t, lazyt_dtype_t dtype);

// t[:, c] += v[c]; t: any floating dtype, channels last; v: the same dtype.
void add_to_channels(Builder& b, const Tensor& v, const Tensor& t);

// out[c] = the sum of t[:, c], in f32 (f64); out is dense.
void sum_channels(Builder& b, const Tensor& t, const Tensor& out);

}  // namespace lazyt::onednn
