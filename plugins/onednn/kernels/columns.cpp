#include "columns.h"

#include <algorithm>

#include "team.h"

namespace lazyt::onednn {

std::vector<int32_t> sources_of(const ColumnGeometry& g) {
  const size_t axes = g.kernel.size();
  const int64_t pixels = g.rows() / g.y[0], taps = g.taps();
  std::vector<int32_t> out(static_cast<size_t>(pixels * taps));
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t t = 0; t < taps; ++t) {
      int64_t at = 0, rest_p = p, rest_t = t, step = 1;
      for (size_t i = axes; i-- > 0 && at >= 0;) {
        const int64_t from = rest_p % g.y[2 + i] * g.stride[i] - g.padding[i] + rest_t % g.kernel[i] * g.dilation[i];
        at = from < 0 || from >= g.x[2 + i] ? -1 : at + from * step;
        rest_p /= g.y[2 + i], rest_t /= g.kernel[i], step *= g.x[2 + i];
      }
      out[static_cast<size_t>(p * taps + t)] = static_cast<int32_t>(at);
    }
  }
  return out;
}

std::vector<int32_t> readers_of(const ColumnGeometry& g) {
  const std::vector<int32_t> sources = sources_of(g);
  const auto taps = static_cast<size_t>(g.taps());
  std::vector<int32_t> out(static_cast<size_t>(toolkit::count_of(std::span(g.x).subspan(2))) * taps, -1);
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i] >= 0) out[static_cast<size_t>(sources[i]) * taps + i % taps] = static_cast<int32_t>(i / taps);
  return out;
}

Tensor add_columns(Builder& b, const ColumnGeometry& g, const Tensor& x) {
  const Tensor out = b.scratch(LAZYT_DTYPE_FLOAT32, {g.rows(), g.width()});
  b.add("columns", {x.storage}, {out.storage}, [=, from = sources_of(g)](const Frame& frame) {
    const int64_t channels = g.x[1], taps = g.taps(), pixels = g.rows() / g.y[0], pixel = x.strides().back();
    const int64_t image = toolkit::count_of(std::span(g.x).subspan(2)) * pixel;
    const float* data = frame.at<float>(x);
    float* to = frame.at<float>(out);
    for_each(g.rows() * g.width() > 1 << 15 ? frame.threads : 1, g.rows(), [&](int64_t row) {
      const float* in = data + row / pixels * image;
      float* line = to + row * channels * taps;
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t at = from[static_cast<size_t>(row % pixels * taps + t)];
        if (at < 0) {
          for (int64_t c = 0; c < channels; ++c) line[c * taps + t] = 0;
        } else {
          for (int64_t c = 0; c < channels; ++c) line[c * taps + t] = in[at * pixel + c];
        }
      }
    });
  });
  return out;
}

void add_columns_back(Builder& b, const ColumnGeometry& g, const Tensor& columns, const Tensor& x) {
  b.add("columns back", {columns.storage}, {x.storage}, [=, to = sources_of(g)](const Frame& frame) {
    const int64_t channels = g.x[1], taps = g.taps(), pixels = g.rows() / g.y[0], pixel = x.strides().back();
    const int64_t image = toolkit::count_of(std::span(g.x).subspan(2)) * pixel;
    const float* from = frame.at<float>(columns);
    float* data = frame.at<float>(x);
    for_each(g.rows() * g.width() > 1 << 15 ? frame.threads : 1, g.x[0], [&](int64_t n) {
      float* out = data + n * image;
      for (int64_t at = 0; at < image; at += pixel) std::fill_n(out + at, channels, 0.0f);
      for (int64_t p = 0; p < pixels; ++p) {
        const float* line = from + (n * pixels + p) * channels * taps;
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t at = to[static_cast<size_t>(p * taps + t)];
          if (at < 0) continue;
          for (int64_t c = 0; c < channels; ++c) out[at * pixel + c] += line[c * taps + t];
        }
      }
    });
  });
}

}  // namespace lazyt::onednn
