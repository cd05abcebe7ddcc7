// Convolutions, pools, and images of other sizes.
#include "ir/shape_rules/rules.h"

namespace lazyt::ir {
namespace {

// What windows of a kernel give along an axis.
int64_t windows(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil = false) {
  constexpr int64_t kMost = INT32_MAX;
  for (int64_t n : {kernel, stride, dilation}) require(n >= 1 && n <= kMost, "a window's size or step is no size");
  require(padding >= 0 && padding <= kMost && in <= base::kMostElements, "a padding is no size");
  const int64_t rest = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (rest + (ceil ? stride - 1 : 0) < 0) return 0;
  int64_t out = (rest + (ceil ? stride - 1 : 0)) / stride + 1;
  if (ceil && (out - 1) * stride >= in + padding) out--;
  return std::max<int64_t>(out, 0);
}

// input, weight, and where the arguments begin: stride, padding, dilation, transposed, output_padding, groups
Dims convolved(const NodeView& v, const Dims& input, const Dims& weight, size_t first) {
  require(input.size() >= 3 && input.size() == weight.size(), "{} convolved with {}", input, weight);
  const size_t axes = input.size() - 2;
  const Dims ones(axes, 1), zeros(axes, 0);
  const Dims stride = v.each(first, axes, ones), padding = v.each(first + 1, axes, zeros), dilation = v.each(first + 2, axes, ones),
             more = v.each(first + 4, axes, zeros);
  const bool transposed = v.flag(first + 3);
  const int64_t groups = v.number(first + 5);
  require(groups >= 1 && input[1] % groups == 0 && weight[0] % groups == 0, "{} groups", groups);
  require(transposed ? weight[0] == input[1] : weight[1] == input[1] / groups, "{} convolved with {}", input, weight);
  Dims out = {input[0], transposed ? product({weight[1], groups}, 0, 2) : weight[0]};
  for (size_t k = 0; k < axes; k++) {
    const int64_t n = windows(input[2 + k], weight[2 + k], stride[k], padding[k], dilation[k]);
    require(more[k] >= 0 && more[k] < std::max(stride[k], dilation[k]), "a padding of results is no less than stride and dilation");
    require(!transposed || input[2 + k] <= INT32_MAX, "an image is too large");
    out.push_back(transposed ? (input[2 + k] - 1) * stride[k] - 2 * padding[k] + dilation[k] * (weight[2 + k] - 1) + more[k] + 1 : n);
  }
  return out;
}
void convolution(const NodeView& v) {
  const Dims out = convolved(v, v.dims(0), v.dims(1), 3);
  v.gives(out);
  v.is_or_none(2, {out[1]});
}
void convolution_backward(const NodeView& v) {
  const Dims out = convolved(v, v.dims(1), v.dims(2), 4);
  v.is(0, out);
  if (v.mask(10, 0)) v.gives(v.dims(1), 0);
  if (v.mask(10, 1)) v.gives(v.dims(2), 1);
  if (v.mask(10, 2)) v.gives({out[1]}, 2);
}

// ---- pools and images

// kernel, stride, padding and dilation of `axes` axes begin at `first`; -1: no dilation
Dims pooled(const NodeView& v, const Dims& image, size_t axes, size_t first, int dilation_at, size_t ceil_at) {
  require(image.size() == axes + 1 || image.size() == axes + 2, "{} is no image", image);
  const Dims kernel = v.each(first, axes, {}), stride = v.each(first + 1, axes, kernel), padding = v.each(first + 2, axes, Dims(axes, 0)),
             dilation = dilation_at < 0 ? Dims(axes, 1) : v.each(static_cast<size_t>(dilation_at), axes, Dims(axes, 1));
  require(kernel.size() == axes, "no kernel");
  Dims out(image.begin(), image.end() - static_cast<int64_t>(axes));
  for (size_t k = 0; k < axes; k++)
    out.push_back(windows(image[image.size() - axes + k], kernel[k], stride[k], padding[k], dilation[k], v.flag(ceil_at)));
  return out;
}
template <size_t kAxes>
void max_pool(const NodeView& v) {
  const Dims out = pooled(v, v.dims(0), kAxes, 1, 4, 5);
  v.gives(out, 0);
  v.gives(out, 1);
}
void max_pool_backward(const NodeView& v) {
  const Dims out = pooled(v, v.dims(1), 2, 2, 5, 6);
  v.is(0, out);
  v.is(7, out);
  v.gives(v.dims(1));
}
template <size_t kAxes>
void avg_pool(const NodeView& v) {
  v.gives(pooled(v, v.dims(0), kAxes, 1, -1, 4));
}
void avg_pool_backward(const NodeView& v) {
  v.is(0, pooled(v, v.dims(1), 2, 2, -1, 5));
  v.gives(v.dims(1));
}
// The last axes of an image become the numbers of argument `sizes`.
Dims resized(const NodeView& v, const Dims& image, size_t axes, size_t sizes) {
  require(image.size() == axes + 1 || image.size() == axes + 2, "{} is no image", image);
  Dims out(image.begin(), image.end() - static_cast<int64_t>(axes));
  for (int64_t n : v.each(sizes, axes, {})) out.push_back(n);
  return out;
}
template <size_t kAxes>
void adaptive_pool(const NodeView& v) {
  const Dims out = resized(v, v.dims(0), kAxes, 1);
  for (uint32_t r = 0; r < v.results(); r++) v.gives(out, r);
}
void adaptive_pool_backward(const NodeView& v) {
  require(v.rank(0) == v.rank(1) && v.rank(0) >= 3 && std::equal(v.dims(0).begin(), v.dims(0).end() - 2, v.dims(1).begin()), "the gradient is of another image");
  v.gives(v.dims(1));
}
void upsample(const NodeView& v) {
  const Dims& in = v.dims(0);  // of no images at all, too
  require(in.size() == 4 && std::find(in.begin() + 1, in.end(), 0) == in.end(), "no image");
  v.gives(resized(v, v.dims(0), 2, 1));
}
void upsample_backward(const NodeView& v) {
  const Dims in = v.numbers(2);
  require(in.size() == 4, "no image");
  v.is(0, resized(v, in, 2, 1));
  v.gives(in);
}
void grid_sampler(const NodeView& v) {
  const Dims &x = v.dims(0), &grid = v.dims(1);
  require(x.size() == 4 && grid.size() == 4 && grid[3] == 2 && grid[0] == x[0], "{} sampled at {}", x, grid);
  v.gives({x[0], x[1], grid[1], grid[2]});
}
void pixel_shuffle(const NodeView& v) {
  Dims out = v.dims(0);
  const int64_t r = v.number(1);
  require(out.size() >= 3 && r >= 1 && r <= INT16_MAX && out[out.size() - 3] % (r * r) == 0, "channels are no whole pixels");
  out[out.size() - 3] /= r * r;
  for (size_t d : {out.size() - 2, out.size() - 1}) require(!__builtin_mul_overflow(out[d], r, &out[d]), "too many pixels");
  v.gives(out);
}

}  // namespace

void add_windows(ShapeRules& all) {
  all.add(convolution, {"aten::convolution"});
  all.add(convolution_backward, {"aten::convolution_backward"});
  all.add(max_pool<2>, {"aten::max_pool2d_with_indices"});
  all.add(max_pool<3>, {"aten::max_pool3d_with_indices"});
  all.add(max_pool_backward, {"aten::max_pool2d_with_indices_backward"});
  all.add(avg_pool<1>, {"aten::avg_pool1d"});
  all.add(avg_pool<2>, {"aten::avg_pool2d"});
  all.add(avg_pool<3>, {"aten::avg_pool3d"});
  all.add(avg_pool_backward, {"aten::avg_pool2d_backward"});
  all.add(adaptive_pool<1>, {"aten::adaptive_avg_pool1d"});
  all.add(adaptive_pool<2>, {"aten::_adaptive_avg_pool2d", "aten::adaptive_max_pool2d"});
  all.add(adaptive_pool<3>, {"aten::_adaptive_avg_pool3d"});
  all.add(adaptive_pool_backward, {"aten::_adaptive_avg_pool2d_backward"});
  all.add(upsample, {"aten::upsample_nearest2d", "aten::upsample_bilinear2d"});
  all.add(upsample_backward, {"aten::upsample_nearest2d_backward", "aten::upsample_bilinear2d_backward"});
  all.add(grid_sampler, {"aten::grid_sampler_2d"});
  all.add(pixel_shuffle, {"aten::pixel_shuffle"});
}

}  // namespace lazyt::ir
