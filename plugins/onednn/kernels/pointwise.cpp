// Copies and fills; those that convert as fused kernels of one load or number.
#include "pointwise.h"

#include "fused.h"
#include "lazyt/toolkit/operands.hpp"
#include "lazyt/toolkit/walk.hpp"
#include "strided.h"
#include "transpose.h"

namespace lazyt::onednn {

void lower_copy(Builder& b, const Tensor& src, const Tensor& dst) {
  if (src.dtype == dst.dtype && toolkit::is_movable(dst.dtype)) {
    const Tensor from{src.storage, src.dtype, {src.layout.offset, dst.dims(), toolkit::broadcast_strides(src, dst.dims())}};
    if (!lower_transpose(b, from, dst)) lower_strided_copy(b, from, dst);
    return;
  }
  FusedKernel kernel(dst.dims(), {});
  const Reg x = kernel.cast(kernel.load(src), vm::type_of(dst.dtype));
  kernel.store(x, dst);
  kernel.build(b, {});
}

void lower_fill(Builder& b, const Tensor& dst, const Number& number) {
  FusedKernel kernel(dst.dims(), {});
  kernel.store(kernel.number(number, vm::type_of(dst.dtype)), dst);
  kernel.build(b, {});
}

}  // namespace lazyt::onednn
