#include "channels.h"

#include <algorithm>

#include "dnnl.h"
#include "elements.h"

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
#pragma omp parallel for num_threads(frame.threads) if (frame.threads > 1 && pixels * channels > 1 << 15)
      for (int64_t p = 0; p < pixels; ++p) {
        T* at = data + p * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c)
          at[c] = static_cast<T>(static_cast<Compute<T>>(at[c]) + static_cast<Compute<T>>(added[c * v.strides()[0]]));
      }
    });
  });
}

void sum_channels(Builder& b, const Tensor& t, const Tensor& out) {
  const Tensor from = as_channels_last(b, t, t.dtype);
  const int64_t channels = from.dims()[1], pixels = channels ? from.count() / channels : 0;
  b.add("sum channels", {from.storage}, {out.storage}, [=](const Frame& frame) {
    with_floating(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int64_t kRun = 64;
      const T* data = frame.at<T>(from);
      T* to = frame.at<T>(out);
#pragma omp parallel for num_threads(frame.threads) if (frame.threads > 1 && pixels * channels > 1 << 15)
      for (int64_t c0 = 0; c0 < channels; c0 += kRun) {
        // Two levels, so that the error grows with the root of the count only.
        Compute<T> sums[kRun] = {}, part[kRun] = {};
        const int64_t n = std::min(kRun, channels - c0);
        for (int64_t p = 0; p < pixels; ++p) {
          const T* at = data + p * channels + c0;
#pragma omp simd
          for (int64_t c = 0; c < n; ++c) part[c] += static_cast<Compute<T>>(at[c]);
          if (p % 256 != 255 && p != pixels - 1) continue;
          for (int64_t c = 0; c < n; ++c) sums[c] += part[c], part[c] = 0;
        }
        for (int64_t c = 0; c < n; ++c) to[c0 + c] = static_cast<T>(sums[c]);
      }
    });
  });
}

}  // namespace lazyt::onednn
