// Convolutions as matrix products, for images of a few pixels and many channels: there the time goes into bringing
// the weights into a primitive's own format and back, and a product reads them as they lie.
//
// columns[row][x channel, taps...]: the elements of x that row = (image, pixel of y) reads, zero in the padding.
#pragma once

#include "../compile.h"

namespace lazyt::onednn {

struct ColumnGeometry {
  Dims x, y, kernel;                   // x, y: [N, C, spatial...]
  Dims stride, padding, dilation;      // per spatial dim; dilation 1: none between

  int64_t rows() const { return y[0] * toolkit::count_of(std::span(y).subspan(2)); }
  int64_t taps() const { return toolkit::count_of(kernel); }
  int64_t width() const { return x[1] * taps(); }
};

// For one image: which pixel of x stands at (pixel of y, tap), and which of y reads (pixel of x) by the tap; -1: none.
std::vector<int32_t> sources_of(const ColumnGeometry& g);
std::vector<int32_t> readers_of(const ColumnGeometry& g);

// x: f32, channels last, or some of the channels of such a one. The result is [rows, width], row-major.
Tensor add_columns(Builder& b, const ColumnGeometry& g, const Tensor& x);
// x = the sum of what each of its elements is in `columns`. x: as above.
void add_columns_back(Builder& b, const ColumnGeometry& g, const Tensor& columns, const Tensor& x);

}  // namespace lazyt::onednn
