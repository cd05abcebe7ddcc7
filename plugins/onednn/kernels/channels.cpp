#include "channels.h"

#include <algorithm>

#include "dnnl.h"
#include "elements.h"
#include "fused.h"

namespace lazyt::onednn {
Dims channels_last(const Dims& dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  auto put = [&](size_t i) {
    strides[i] = step;
    step *= std::max<int64_t>(dims[i], 1);
  };
  put(1);
  for (size_t i = dims.size(); i-- > 2;) put(i);
  put(0);
  return strides;
}

bool is_channels_last(const Tensor& t) {
  const Dims strides = channels_last(t.dims());
  for (size_t i = 0; i < strides.size(); ++i)
    if (t.dims()[i] != 1 && t.strides()[i] != strides[i]) return false;
  return true;
}

Tensor as_channels_last(Builder& b, const Tensor& t, lazyt_dtype_t dtype) {
  const Dims strides = channels_last(t.dims());
  if (t.dtype == dtype && is_channels_last(t)) return reshaped(t, t.dims(), strides);
  const Tensor out = b.scratch(dtype, t.dims(), strides, static_cast<uint64_t>(t.count()) * lazyt_dtype_size(dtype));
  b.copy(t, out);
  return out;
}

void add_to_channels(Builder& b, const Tensor& v, const Tensor& t) {
  const int64_t channels = t.dims()[1], pixels = channels ? t.count() / channels : 0;
  b.add("add to channels", {v.storage, t.storage}, {t.storage}, [=](const Frame& frame) {
    with_floating(t.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* added = frame.at<T>(v);
      T* data = frame.at<T>(t);
      for_each(pixels * channels > 1 << 15 ? frame.threads : 1, pixels, [&](int64_t p) {
        T* at = data + p * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c)
          at[c] = static_cast<T>(static_cast<Compute<T>>(at[c]) + static_cast<Compute<T>>(added[c * v.strides()[0]]));
      });
    });
  });
}

void sum_channels(Builder& b, const Tensor& t, const Tensor& out) {
  std::vector<bool> reduced(t.dims().size(), true);
  reduced[1] = false;
  Dims strides(t.dims().size(), 0);
  strides[1] = 1;
  FusedKernel kernel(t.dims(), reduced);
  kernel.reduce(kernel.load(t), ReduceKind::kSum, {out.storage, out.dtype, {out.layout.offset, t.dims(), strides}});
  kernel.build(b, {});
}

}  // namespace lazyt::onednn
