// By the shape functions of PyTorch (aten/src/ATen/native, the meta functions).
#include "ir/shape_rules.h"

#include <optional>
#include <unordered_map>

#include "ir/registry.h"

namespace lazyt::ir {
namespace {

int64_t product(const Dims& dims, size_t from, size_t to) {
  int64_t n = 1;
  for (size_t i = from; i < to; i++) require(!__builtin_mul_overflow(n, dims[i], &n), "more elements than can be counted");
  return n;
}

// ---- pointwise

void pointwise(const NodeView& v) {
  v.gives(v.common());
}
// The first result only: the buffer of log_sigmoid_forward may be empty.
void like_first(const NodeView& v) {
  v.gives(v.dims(0));
}
void all_like_first(const NodeView& v) {
  for (uint32_t r = 0; r < v.results(); r++) v.gives(v.dims(0), r);
}
void like_first_two(const NodeView& v) { v.gives(broadcast(v.dims(0), v.dims(1))); }
void copy(const NodeView& v) {
  v.gives(v.dims(0));
  v.gives(broadcast(v.dims(0), v.dims(1)));
}

// ---- products

void mm(const NodeView& v) {
  require(v.rank(0) == 2 && v.rank(1) == 2 && v.dims(0)[1] == v.dims(1)[0], "{} times {}", v.dims(0), v.dims(1));
  v.gives({v.dims(0)[0], v.dims(1)[1]});
}
Dims product_of(const Dims& a, const Dims& b) {
  const bool fits = a.size() == b.size() && (a.size() == 2 || (a.size() == 3 && a[0] == b[0]));
  const size_t n = a.size();
  require(fits && a[n - 1] == b[n - 2], "{} times {}", a, b);
  return n == 2 ? Dims{a[0], b[1]} : Dims{a[0], a[1], b[2]};
}
void bmm(const NodeView& v) {
  require(v.rank(0) == 3, "no batch of matrices");
  v.gives(product_of(v.dims(0), v.dims(1)));
}
void addmm(const NodeView& v) {
  const Dims out = product_of(v.dims(1), v.dims(2));
  v.gives(out);
  v.gives(broadcast(v.dims(0), out));
}
Dims by_vector(const Dims& a, const Dims& b) {
  require(a.size() == 2 && b.size() == 1 && a[1] == b[0], "{} times {}", a, b);
  return {a[0]};
}
void mv(const NodeView& v) { v.gives(by_vector(v.dims(0), v.dims(1))); }
void addmv(const NodeView& v) {
  const Dims out = by_vector(v.dims(1), v.dims(2));
  v.gives(out);
  v.gives(broadcast(v.dims(0), out));
}
void dot(const NodeView& v) {
  require(v.rank(0) == 1 && v.dims(0) == v.dims(1), "{} times {}", v.dims(0), v.dims(1));
  v.gives({});
}
void matmul(const NodeView& v) {
  Dims a = v.dims(0), b = v.dims(1);
  require(!a.empty() && !b.empty(), "a number is no matrix");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  require(a.back() == b[b.size() - 2], "{} times {}", a, b);
  Dims out = broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  v.gives(out);
}
void linear(const NodeView& v) {
  Dims out = v.dims(0);
  const Dims& w = v.dims(1);
  require(!out.empty() && (w.size() == 2 || w.size() == 1) && out.back() == w.back(), "{} times {}", out, w);
  out.pop_back();
  if (w.size() == 2) out.push_back(w[0]);
  v.gives(out);
  if (v.has(2)) v.gives(broadcast(v.dims(2), out));
}

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

// ---- reductions

Dims reduced(const NodeView& v, const Dims& of, const Dims& axes, bool keep) {
  std::vector<bool> gone(of.size(), axes.empty());
  for (int64_t a : axes) {
    const size_t at = v.axis_of(a, of.size());
    if (at < gone.size()) gone[at] = true;
  }
  Dims out;
  for (size_t i = 0; i < of.size(); i++)
    if (!gone[i] || keep) out.push_back(gone[i] ? 1 : of[i]);
  return out;
}
void to_one(const NodeView& v) {
  v.dims(0);
  v.gives({});
}
// Arguments: kAxes, kKeep
template <size_t kAxes, size_t kKeep>
void reduce(const NodeView& v) {
  const Dims out = reduced(v, v.dims(0), v.numbers(kAxes), v.flag(kKeep));
  for (uint32_t r = 0; r < v.results(); r++) v.gives(out, r);
}
template <size_t kAxis>
void along_axis(const NodeView& v) {
  v.axis(kAxis, v.rank(0));
  for (uint32_t r = 0; r < v.results(); r++) v.gives(v.dims(0), r);
}
void softmax_backward(const NodeView& v) {
  v.is(1, v.dims(0));
  along_axis<2>(v);
}
void topk(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(2, out.size());
  const int64_t k = v.number(1);
  require(k >= 0 && k <= (out.empty() ? 1 : out[axis]), "{} of {}", k, out);
  if (!out.empty()) out[axis] = k;
  for (uint32_t r = 0; r < v.results(); r++) v.gives(out, r);
}
void kthvalue(const NodeView& v) {
  const size_t axis = v.axis(2, v.rank(0));
  require(v.number(1) >= 1 && v.number(1) <= (v.rank(0) ? v.dims(0)[axis] : 1), "the {}th of {}", v.number(1), v.dims(0));
  reduce<2, 3>(v);
}

// ---- losses

void loss(const NodeView& v) {
  const Dims whole = v.common();
  v.gives(v.number(v.node.args.back().kind == LAZYT_ARG_INT ? v.node.args.size() - 1 : 2) == 0 ? whole : Dims{});
}
void loss_backward(const NodeView& v) { v.gives(v.common()); }
// self [N, C, ...] or [C], target without C
Dims classes(const NodeView& v, size_t self, size_t target, size_t weight) {
  const Dims& x = v.dims(self);
  require(!x.empty(), "no classes");
  const size_t at = x.size() == 1 ? 0 : 1;
  Dims places = x;
  places.erase(places.begin() + static_cast<int64_t>(at));
  const bool one_row = places.empty() && v.dims(target) == Dims{1};
  require(one_row || v.dims(target) == places, "targets {} of {}", v.dims(target), x);
  v.is_or_none(weight, {x[at]});
  return v.dims(target);
}
void nll_loss(const NodeView& v) {
  const Dims places = classes(v, 0, 1, 2);
  v.gives_elements(v.number(3) == 0 ? base::numel(places) : 1, 0);
  v.gives({}, 1);
}
void nll_loss_backward(const NodeView& v) {
  const Dims places = classes(v, 1, 2, 3);
  require(v.numel(0) == (v.number(4) == 0 ? base::numel(places) : 1), "the gradient is of another loss");
  require(v.numel(6) == 1, "the total weight is one number");
  v.gives(v.dims(1));
}

// ---- norms

// Rows before the shape that argument i names.
int64_t rows_before(const NodeView& v, const Dims& input, size_t i) {
  const Dims shape = v.numbers(i);
  require(!shape.empty() && shape.size() <= input.size() && std::equal(shape.rbegin(), shape.rend(), input.rbegin()), "{} is no end of {}", shape, input);
  return product(input, 0, input.size() - shape.size());
}
void layer_norm(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(0), 1);
  v.is_or_none(2, v.numbers(1));
  v.is_or_none(3, v.numbers(1));
  v.gives(v.dims(0));
  v.gives_elements(rows, 1), v.gives_elements(rows, 2);
}
void layer_norm_backward(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(1), 2);
  v.is(0, v.dims(1));
  require(v.numel(3) == rows && v.numel(4) == rows, "the statistics are of other rows");
  v.is_or_none(5, v.numbers(2));
  v.is_or_none(6, v.numbers(2));
  if (v.mask(7, 0)) v.gives(v.dims(1), 0);
  for (uint32_t r : {1u, 2u})
    if (v.mask(7, r)) v.gives(v.numbers(2), r);
}
void rms_norm(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(0), 1);
  v.is_or_none(2, v.numbers(1));
  v.gives(v.dims(0));
  v.gives_elements(rows, 1);
}
void rms_norm_backward(const NodeView& v) {
  const int64_t rows = rows_before(v, v.dims(1), 2);
  v.is(0, v.dims(1));
  require(v.numel(3) == rows, "the statistics are of other rows");
  v.is_or_none(4, v.numbers(2));
  if (v.mask(5, 0)) v.gives(v.dims(1), 0);
  if (v.mask(5, 1)) v.gives(v.numbers(2), 1);
}
// N, C, HxW and groups begin at `first`.
int64_t groups_of(const NodeView& v, size_t input, size_t first) {
  const Dims& x = v.dims(input);
  const int64_t n = v.number(first), c = v.number(first + 1), plane = v.number(first + 2), groups = v.number(first + 3);
  require(x.size() >= 2 && n == x[0] && c == x[1] && plane == product(x, 2, x.size()), "N, C and HxW are of another image");
  require(groups >= 1 && c % groups == 0, "{} groups of {} channels", groups, c);
  return product({n, groups}, 0, 2);
}
void group_norm(const NodeView& v) {
  const int64_t groups = groups_of(v, 0, 3);
  v.is_or_none(1, {v.number(4)});
  v.is_or_none(2, {v.number(4)});
  v.gives(v.dims(0));
  v.gives_elements(groups, 1), v.gives_elements(groups, 2);
}
void group_norm_backward(const NodeView& v) {
  const int64_t groups = groups_of(v, 1, 5);
  v.is(0, v.dims(1));
  require(v.numel(2) == groups && v.numel(3) == groups, "the statistics are of other groups");
  v.is_or_none(4, {v.number(6)});
  if (v.mask(9, 0)) v.gives(v.dims(1), 0);
  for (uint32_t r : {1u, 2u})
    if (v.mask(9, r)) v.gives({v.number(6)}, r);
}
int64_t channels_of(const Dims& x) {
  require(x.size() >= 2, "{} has no channels", x);
  return x[1];
}
// Arguments from..to are vectors of the channels or nothing; results as well, or without elements.
void batch_norm(const NodeView& v, size_t to) {
  const Dims channels = {channels_of(v.dims(0))};
  for (size_t i = 1; i <= to; i++) v.is_or_none(i, channels);
  v.gives(v.dims(0));
  for (uint32_t r = 1; r < v.results(); r++)
    if (v.result_meta(r).numel()) v.gives(channels, r);
}
void batch_norm_with_statistics(const NodeView& v) { batch_norm(v, 4); }
void batch_norm_without_statistics(const NodeView& v) { batch_norm(v, 2); }
void batch_norm_backward(const NodeView& v) {
  const Dims channels = {channels_of(v.dims(1))};
  v.is(0, v.dims(1));
  for (size_t i = 2; i <= 6; i++)
    if (v.has(i) && v.numel(i)) v.is(i, channels);
  require(v.flag(7) ? v.has(5) && v.has(6) && v.dims(5) == channels && v.dims(6) == channels
                    : v.has(3) && v.has(4) && v.dims(3) == channels && v.dims(4) == channels, "the statistics are missing");
  if (v.mask(9, 0)) v.gives(v.dims(1), 0);
  for (uint32_t r : {1u, 2u})
    if (v.mask(9, r)) v.gives(channels, r);
}

// ---- attention

// What queries [..., L, E], keys [..., S, E] and values [..., S, Ev] give; keys may have fewer heads.
Dims attended(const NodeView& v, size_t first, int mask, bool grouped) {
  const Dims &q = v.dims(first), &k = v.dims(first + 1), &x = v.dims(first + 2);
  const size_t n = q.size();
  const auto fit = [&](bool holds) { require(holds, "{}, {} and {} are no queries, keys and values", q, k, x); };
  fit(n >= 2 && k.size() >= 2 && x.size() >= 2 && q[n - 1] == k.back() && k[k.size() - 2] == x[x.size() - 2]);
  Dims before(q.begin(), q.end() - 2);
  const Dims of_keys(k.begin(), k.end() - 2), of_values(x.begin(), x.end() - 2);
  if (grouped) {
    fit(n >= 3 && k.size() == n && x.size() == n && k[n - 3] > 0 && x[n - 3] > 0 && q[n - 3] % k[n - 3] == 0 && q[n - 3] % x[n - 3] == 0);
  } else {
    before = broadcast(broadcast(before, of_keys), of_values);
  }
  Dims scores = before;
  scores.insert(scores.end(), {q[n - 2], k[k.size() - 2]});
  if (mask >= 0 && v.has(static_cast<size_t>(mask))) broadcast(v.dims(static_cast<size_t>(mask)), scores);
  Dims out = before;
  out.insert(out.end(), {q[n - 2], x.back()});
  return out;
}
void attention(const NodeView& v) { v.gives(attended(v, 0, 3, v.flag(7))); }
void attention_math(const NodeView& v) { v.gives(attended(v, 0, 3, v.flag(8))); }
// [batch, heads, ...], of which keys and values may have fewer.
Dims heads_attended(const NodeView& v, size_t first, int mask) {
  for (size_t i = first; i < first + 3; i++) require(v.rank(i) == 4 && v.dims(i)[0] == v.dims(first)[0], "queries, keys and values of other batches");
  return attended(v, first, mask, true);
}
void flash_attention(const NodeView& v) {
  const Dims out = heads_attended(v, 0, 5);
  v.gives(out);
  v.gives_elements(product(out, 0, 3), 1);
}
void flash_attention_backward(const NodeView& v) {
  const Dims out = heads_attended(v, 1, 8);
  v.is(0, out), v.is(4, out);
  require(v.numel(5) == product(out, 0, 3), "logsumexp is of other queries");
  for (uint32_t r = 0; r < 3; r++) v.gives(v.dims(1 + r), r);
}
void fused_attention(const NodeView& v) {
  const Dims out = heads_attended(v, 0, 3);
  v.gives(out);
  v.gives_elements(product(out, 0, 3), 1);
}
void fused_attention_backward(const NodeView& v) {
  const Dims out = heads_attended(v, 1, -1);
  v.is(0, out), v.is(6, out);
  require(v.numel(7) == product(out, 0, 3), "logsumexp is of other queries");
  for (uint32_t r = 0; r < 3; r++)
    if (v.mask(5, r)) v.gives(v.dims(1 + r), r);
  if (v.mask(5, 3)) v.gives(v.dims(4), 3);
}

// ---- views

Dims permuted(const NodeView& v, const Dims& x, const Dims& order) {
  std::vector<bool> seen(x.size());
  Dims out;
  require(order.size() == x.size(), "{} is no order of {}", order, x);
  for (int64_t d : order) {
    const size_t at = v.axis_of(d, x.size());
    require(!seen[at], "{} is no order", order);
    seen[at] = true;
    out.push_back(x[at]);
  }
  return out;
}
void permute(const NodeView& v) { v.gives(permuted(v, v.dims(0), v.numbers(1))); }
void transpose(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t a = v.axis(1, out.size()), b = v.axis(2, out.size());
  if (!out.empty()) std::swap(out[a], out[b]);
  v.gives(out);
}
void t(const NodeView& v) {
  Dims out = v.dims(0);
  require(out.size() <= 2, "{} is no matrix", out);
  std::reverse(out.begin(), out.end());
  v.gives(out);
}
// Argument `first` is a dim; start, end and step follow. What moves is known at run only; its length is the result's.
Dims sliced(const NodeView& v, Dims x, size_t first, const Dims& result) {
  const size_t axis = v.axis(first, x.size());
  require(!x.empty() && v.number(first + 3) >= 1, "no part");
  const int64_t size = x[axis], step = v.number(first + 3);
  if (v.is_value(first + 1) || v.is_value(first + 2)) {
    require(result.size() == x.size() && result[axis] <= size / step + (size % step != 0), "a part is longer than the whole");
    x[axis] = result[axis];
    return x;
  }
  const auto clamped = [&](size_t i, int64_t otherwise, int64_t least) {
    int64_t n = v.has(i) ? v.number(i) : otherwise;
    if (n < 0) n = n < -size ? 0 : n + size;
    return std::clamp(n, least, size);
  };
  const int64_t start = clamped(first + 1, 0, 0), end = clamped(first + 2, size, start);
  x[axis] = (end - start) / step + ((end - start) % step != 0);
  return x;
}
void slice(const NodeView& v) { v.gives(sliced(v, v.dims(0), 1, v.result())); }
void slice_scatter(const NodeView& v) {
  v.is(1, sliced(v, v.dims(0), 2, v.dims(1)));
  v.gives(v.dims(0));
}
void slice_backward(const NodeView& v) {
  const Dims whole = v.numbers(1);
  v.is(0, sliced(v, whole, 2, v.dims(0)));
  v.gives(whole);
}
// Argument `first` is a dim, an index follows.
Dims selected(const NodeView& v, Dims x, size_t first) {
  const size_t axis = v.axis(first, x.size());
  require(!x.empty(), "a number has no places");
  if (!v.is_value(first + 1)) {
    const int64_t at = v.number(first + 1);
    require(at >= -x[axis] && at < x[axis], "place {} of {}", at, x[axis]);
  }
  x.erase(x.begin() + static_cast<int64_t>(axis));
  return x;
}
void select(const NodeView& v) { v.gives(selected(v, v.dims(0), 1)); }
void select_scatter(const NodeView& v) {
  v.is(1, selected(v, v.dims(0), 2));
  v.gives(v.dims(0));
}
void select_backward(const NodeView& v) {
  v.is(0, selected(v, v.numbers(1), 2));
  v.gives(v.numbers(1));
}
void expand(const NodeView& v) {
  const Dims& x = v.dims(0);
  Dims out = v.numbers(1);
  require(out.size() >= x.size(), "{} expanded to {}", x, out);
  for (size_t i = 0; i < x.size(); i++) {
    int64_t& d = out[out.size() - x.size() + i];
    if (d == -1) d = x[i];
    require(d == x[i] || x[i] == 1, "{} expanded to {}", x, out);
  }
  v.gives(out);
}
void reshape(const NodeView& v) {
  require(v.result_meta(0).numel() == v.numel(0), "{} as {}", v.dims(0), v.result());
}
void squeeze(const NodeView& v) {
  const Dims& x = v.dims(0);
  std::vector<bool> gone(std::max<size_t>(x.size(), 1));
  for (int64_t a : v.numbers(1)) gone[v.axis_of(a, x.size())] = true;
  Dims out;
  for (size_t i = 0; i < x.size(); i++)
    if (!gone[i] || x[i] != 1) out.push_back(x[i]);
  v.gives(out);
}
void unsqueeze(const NodeView& v) {
  Dims out = v.dims(0);
  out.insert(out.begin() + static_cast<int64_t>(v.axis(1, out.size() + 1)), 1);
  v.gives(out);
}
// Arguments from `first`: offset, dim1, dim2
Dims diagonal_of(const NodeView& v, Dims x, size_t first) {
  const size_t a = v.axis(first + 1, x.size()), b = v.axis(first + 2, x.size());
  require(x.size() >= 2 && a != b, "no diagonal");
  const int64_t offset = v.number(first), rows = x[a], columns = x[b];
  require(offset > -base::kMostElements && offset < base::kMostElements, "no diagonal");
  const int64_t length = std::max<int64_t>(offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns), 0);
  x.erase(x.begin() + static_cast<int64_t>(std::max(a, b)));
  x.erase(x.begin() + static_cast<int64_t>(std::min(a, b)));
  x.push_back(length);
  return x;
}
void diagonal(const NodeView& v) { v.gives(diagonal_of(v, v.dims(0), 1)); }
void diagonal_scatter(const NodeView& v) {
  v.is(1, diagonal_of(v, v.dims(0), 2));
  v.gives(v.dims(0));
}
// Arguments from `first`: size, stride, offset, into the elements of x in row-major order (PRG-3).
Dims strided(const NodeView& v, int64_t elements, size_t first) {
  const Dims size = v.numbers(first), stride = v.numbers(first + 1);
  require(size.size() == stride.size(), "sizes and strides");
  const bool moves = v.is_value(first + 2);  // the runtime looks at what moves
  int64_t last = moves || !v.has(first + 2) ? 0 : v.number(first + 2), reach = 0;
  require(last >= 0, "an offset is negative");
  bool empty = false;
  for (size_t i = 0; i < size.size(); i++) {
    require(size[i] >= 0 && stride[i] >= 0, "a size or a stride is negative");
    empty |= size[i] == 0;
    if (size[i] > 1)
      require(!__builtin_mul_overflow(size[i] - 1, stride[i], &reach) && !__builtin_add_overflow(last, reach, &last), "it reaches too far");
  }
  require(empty || last < elements, "element {} of {}", last, elements);
  return size;
}
void as_strided(const NodeView& v) { v.gives(strided(v, v.numel(0), 1)); }
void as_strided_scatter(const NodeView& v) {
  v.is(1, strided(v, v.numel(0), 2));
  v.gives(v.dims(0));
}
void unfold(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(1, out.size());
  const int64_t size = v.number(2), step = v.number(3), whole = out.empty() ? 1 : out[axis];
  require(size >= 0 && size <= whole && step >= 1, "windows of {} in {}", size, out);
  if (!out.empty()) out[axis] = (whole - size) / step + 1;
  out.push_back(size);
  v.gives(out);
}
void flip(const NodeView& v) {
  for (int64_t a : v.numbers(1)) v.axis_of(a, v.rank(0));
  v.gives(v.dims(0));
}
void roll(const NodeView& v) {
  const Dims shifts = v.numbers(1), axes = v.numbers(2);
  require(axes.empty() ? shifts.size() == 1 : shifts.size() == axes.size(), "a shift for each axis");
  for (int64_t a : axes) v.axis_of(a, v.rank(0));
  v.gives(v.dims(0));
}
void repeat(const NodeView& v) {
  const Dims& x = v.dims(0);
  Dims out = v.numbers(1);
  require(out.size() >= x.size(), "fewer repeats than dims");
  for (int64_t n : out) require(n >= 0, "a repeat is negative");
  for (size_t i = 0; i < x.size(); i++) {
    int64_t& d = out[out.size() - x.size() + i];
    require(!__builtin_mul_overflow(d, x[i], &d), "too many repeats");
  }
  v.gives(out);
}
// Pairs of paddings, of the last axis first; what is negative is cut off. mirrored: what is shown beside an axis lies in it.
Dims padded(const NodeView& v, bool mirrored = false) {
  Dims out = v.dims(0);
  const Dims pads = v.numbers(1);
  require(pads.size() % 2 == 0 && pads.size() / 2 <= out.size(), "{} beside {}", pads, out);
  for (size_t k = 0; k < pads.size() / 2; k++) {
    int64_t& d = out[out.size() - 1 - k];
    const int64_t before = pads[2 * k], behind = pads[2 * k + 1];
    for (int64_t n : {before, behind, d}) require(n >= -base::kMostElements && n <= base::kMostElements, "a padding is no size");
    if (mirrored && (before || behind))
      require(std::max(before, behind) < d, "{} beside {}", pads, v.dims(0));
    d += before + behind;
    require(d >= 0, "more is cut off than there is");
  }
  return out;
}
void constant_pad(const NodeView& v) { v.gives(padded(v)); }
void reflection_pad(const NodeView& v) { v.gives(padded(v, true)); }
void replication_pad(const NodeView& v) {
  v.gives(padded(v));
  const Dims &x = v.dims(0), pads = v.numbers(1);
  for (size_t i = 0; i < pads.size(); i++) require(pads[i] <= 0 || x[x.size() - 1 - i / 2] > 0, "{} beside {}", pads, x);
}
void pad(const NodeView& v) {
  if (v.arg(2).string == "reflect") return reflection_pad(v);
  if (v.arg(2).string == "replicate") return replication_pad(v);
  v.gives(padded(v));
}
void view_as_real(const NodeView& v) {
  Dims out = v.dims(0);
  out.push_back(2);
  v.gives(out);
}
void view_as_complex(const NodeView& v) {
  Dims out = v.dims(0);
  require(!out.empty() && out.back() == 2, "{} has no pairs", out);
  out.pop_back();
  v.gives(out);
}
void triangle(const NodeView& v) {
  require(v.rank(0) >= 2, "{} is no matrix", v.dims(0));
  v.gives(v.dims(0));
}

// ---- joining and splitting

void cat(const NodeView& v) {
  Dims out;
  size_t axis = 0;
  bool any = false;
  for (size_t i = 0; i < v.list(0).size(); i++) {
    const Dims& x = v.element(0, i);
    if (x == Dims{0}) continue;  // joins anything
    if (!any) {
      any = true;
      axis = v.axis(1, x.size());
      require(!x.empty(), "numbers are not joined");
      out = x;
      continue;
    }
    require(x.size() == out.size(), "{} beside {}", x, out);
    for (size_t d = 0; d < x.size(); d++) require(d == axis || x[d] == out[d], "{} beside {}", x, out);
    require(!__builtin_add_overflow(out[axis], x[axis], &out[axis]), "too many elements");
  }
  v.gives(any ? out : Dims{0});
}
void stack(const NodeView& v) {
  require(!v.list(0).empty(), "nothing to stack");
  Dims out = v.element(0, 0);
  for (size_t i = 1; i < v.list(0).size(); i++) require(v.element(0, i) == out, "{} on {}", v.element(0, i), out);
  out.insert(out.begin() + static_cast<int64_t>(v.axis(1, out.size() + 1)), static_cast<int64_t>(v.list(0).size()));
  v.gives(out);
}
// Parts along a dim, one beside the other.
template <size_t kAxis>
void split(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(kAxis, out.size());
  require(!out.empty(), "a number has no parts");
  int64_t left = out[axis];
  for (uint32_t r = 0; r < v.results(); r++) {
    require(v.result(r).size() == out.size() && v.result(r)[axis] <= left, "the parts are more than the whole");
    left -= out[axis] = v.result(r)[axis];
    v.gives(out, r);
  }
  require(left == 0, "the parts are less than the whole");
}
void unbind(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(1, out.size());
  require(!out.empty() && out[axis] == v.results(), "not a result for each place");
  out.erase(out.begin() + static_cast<int64_t>(axis));
  for (uint32_t r = 0; r < v.results(); r++) v.gives(out, r);
}

// ---- indexing

// An index within x but along one axis.
void index_fits(const Dims& x, const Dims& index, size_t axis) {
  require(x.size() == index.size() || (x.size() <= 1 && index.size() <= 1), "{} into {}", index, x);
  for (size_t d = 0; d < std::min(x.size(), index.size()); d++) require(d == axis || index[d] <= x[d], "{} into {}", index, x);
}
void gather(const NodeView& v) {
  const size_t axis = v.axis(1, v.rank(0));
  if (v.numel(2)) index_fits(v.dims(0), v.dims(2), axis);
  v.gives(v.dims(2));
}
void scatter(const NodeView& v) {
  const size_t axis = v.axis(1, v.rank(0));
  if (v.numel(2)) {
    index_fits(v.dims(0), v.dims(2), axis);
    if (v.is_value(3) && v.node.overload != "value") index_fits(v.dims(3), v.dims(2), SIZE_MAX);
  }
  v.gives(v.dims(0));
}
// What tensors in the places of dims choose of x: where they stand side by side, there, else first. Nothing where a mask,
// which stands for as many dims as it has, is among them: how many it chooses depends on data.
std::optional<Dims> indexed(const NodeView& v, const Dims& x, const std::vector<Arg>& indices) {
  Dims common, out;
  size_t read = 0, first = 0, groups = 0;
  bool inside = false, masked = false;
  for (const Arg& a : indices) {
    const bool given = a.kind != LAZYT_ARG_NONE;
    size_t takes = 1;
    if (given) {
      const Meta& m = v.meta(a);
      if (m.dtype == LAZYT_DTYPE_BOOL || m.dtype == LAZYT_DTYPE_UINT8) {
        takes = m.dims.size();
        masked = true;
        require(read + takes <= x.size() && std::equal(m.dims.begin(), m.dims.end(), x.begin() + static_cast<int64_t>(read)), "a mask {} of {}", m.dims, x);
      } else {
        common = broadcast(common, m.dims);
      }
      if (!inside && groups++ == 0) first = out.size();
    }
    inside = given;
    require(read + takes <= x.size(), "{} indices of {}", indices.size(), x);
    if (!given) out.push_back(x[read]);
    read += takes;
  }
  if (masked) return std::nullopt;
  out.insert(out.end(), x.begin() + static_cast<int64_t>(read), x.end());
  out.insert(out.begin() + static_cast<int64_t>(groups > 1 ? 0 : first), common.begin(), common.end());
  return out;
}
void index(const NodeView& v) {
  const auto out = indexed(v, v.dims(0), v.list(1));
  require(out.has_value(), "the length of what a mask chooses depends on data");
  v.gives(*out);
}
void index_put(const NodeView& v) {
  const auto places = indexed(v, v.dims(0), v.list(1));
  if (places) require(broadcast(v.dims(2), *places) == *places, "{} into {}", v.dims(2), *places);
  v.gives(v.dims(0));
}
// self, dim, index of one dim
Dims index_along(const NodeView& v) {
  Dims out = v.dims(0);
  const size_t axis = v.axis(1, out.size());
  require(v.rank(2) <= 1, "an index has one dim");
  if (!out.empty()) out[axis] = v.numel(2);
  return out;
}
void index_select(const NodeView& v) { v.gives(index_along(v)); }
void index_add(const NodeView& v) {
  const Dims part = index_along(v);
  require(v.dims(3) == part || (part.empty() && v.numel(3) == 1) || (v.rank(3) == 0 && base::numel(part) == 1), "{} into {}", v.dims(3), part);
  v.gives(v.dims(0));
}
void index_fill(const NodeView& v) {
  index_along(v);
  v.gives(v.dims(0));
}
void like_second(const NodeView& v) { v.gives(v.dims(1)); }
void embedding(const NodeView& v) {
  require(v.rank(0) == 2, "the table is no matrix");
  Dims out = v.dims(1);
  out.push_back(v.dims(0)[1]);
  v.gives(out);
}
void embedding_backward(const NodeView& v) {
  Dims rows = v.dims(1);
  require(v.rank(0) == rows.size() + 1 && std::equal(rows.begin(), rows.end(), v.dims(0).begin()), "the gradient is of other rows");
  v.gives({v.number(2), v.dims(0).back()});
}
void searchsorted(const NodeView& v) {
  const Dims &sorted = v.dims(0), &x = v.dims(1);
  require(!sorted.empty(), "no row to search");
  if (sorted.size() > 1)
    require(sorted.size() == x.size() && std::equal(sorted.begin(), sorted.end() - 1, x.begin()), "{} in {}", x, sorted);
  v.is_or_none(5, sorted);
  v.gives(x);
}
void bucketize(const NodeView& v) {
  require(v.rank(1) == 1, "boundaries have one dim");
  v.gives(v.dims(0));
}

// ---- fills

template <size_t kSize>
void sized(const NodeView& v) {
  v.gives(v.numbers(kSize));
}
void number(const NodeView& v) { v.gives({}); }
void eye(const NodeView& v) { v.gives({v.number(0), v.number(0)}); }
void row(const NodeView& v) { require(v.result().size() == 1, "the result has one dim"); }
void linspace(const NodeView& v) { v.gives({v.number(2)}); }

// ---- lists: each result by what stands at its place in the lists

void foreach_pointwise(const NodeView& v) {
  for (uint32_t r = 0; r < v.results(); r++) {
    Dims out;
    for (size_t i = 0; i < v.node.args.size(); i++) {
      const Arg& a = v.arg(i);
      if (a.kind == LAZYT_ARG_LIST) {
        require(r < a.list.size(), "argument {} lists {}", i, a.list.size());
        if (a.list[r].kind == LAZYT_ARG_VALUE) out = broadcast(out, v.meta(a.list[r]).dims);
      } else if (a.kind == LAZYT_ARG_INTS || a.kind == LAZYT_ARG_DOUBLES) {
        require(r < std::max(a.ints.size(), a.doubles.size()), "argument {} lists too few numbers", i);
      } else if (a.kind == LAZYT_ARG_VALUE && v.node.overload == "Tensor" && !v.node.name.starts_with("aten::_foreach_addc")) {
        require(v.numel(i) == 1, "one number for all");
      }
    }
    v.gives(out, r);
  }
}
void foreach_norm(const NodeView& v) {
  for (uint32_t r = 0; r < v.results(); r++) {
    v.element(0, r);
    v.gives({}, r);
  }
}
// Lists of tensors like the parameters, and steps that are one number each; the results are lists like the first ones.
template <size_t kLists, size_t kSteps>
void optimizer(const NodeView& v) {
  const size_t count = v.list(0).size();
  uint32_t r = 0;
  for (size_t i = 0; i < kLists; i++) {
    require(v.list(i).empty() || v.list(i).size() == count, "argument {} lists {} for {} parameters", i, v.list(i).size(), count);
    for (size_t n = 0; n < v.list(i).size(); n++) {
      const bool number = i == kSteps;
      if (number) require(v.meta(v.list(i)[n]).numel() == 1, "a step is one number");
      else require(v.element(i, n) == v.element(0, n), "argument {}: {} for a parameter of {}", i, v.element(i, n), v.element(0, n));
    }
  }
  for (size_t i = 0; i < kLists && r < v.results(); i++) {
    for (size_t n = 0; n < v.list(i).size() && r < v.results(); n++) v.gives(v.element(i, n), r++);
  }
  require(r == v.results(), "more results than operands");
}

const std::unordered_map<std::string_view, ShapeRule>& rules() {
  static const auto& all = *[] {
    auto* out = new std::unordered_map<std::string_view, ShapeRule>;
    const auto add = [&](ShapeRule rule, std::initializer_list<const char*> names) {
      for (const char* name : names) out->emplace(name, rule);
    };
    add(pointwise, {"aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::div", "aten::remainder", "aten::fmod", "aten::maximum", "aten::minimum",
                    "aten::fmax", "aten::fmin", "aten::bitwise_and", "aten::bitwise_or", "aten::bitwise_xor", "aten::bitwise_left_shift",
                    "aten::bitwise_right_shift", "aten::hypot", "aten::atan2", "aten::xlogy", "aten::copysign", "aten::pow", "aten::eq", "aten::ne",
                    "aten::lt", "aten::le", "aten::gt", "aten::ge", "aten::logical_and", "aten::logical_or", "aten::logical_xor"});
    add(pointwise, {"aten::abs", "aten::neg", "aten::sign", "aten::sgn", "aten::floor", "aten::ceil", "aten::round", "aten::trunc", "aten::frac",
                    "aten::square", "aten::logical_not", "aten::bitwise_not", "aten::isnan", "aten::isinf", "aten::exp", "aten::exp2", "aten::expm1",
                    "aten::log", "aten::log2", "aten::log10", "aten::log1p", "aten::sqrt", "aten::rsqrt", "aten::reciprocal", "aten::sin", "aten::cos",
                    "aten::tan", "aten::asin", "aten::acos", "aten::atan", "aten::sinh", "aten::cosh", "aten::tanh", "aten::asinh", "aten::acosh",
                    "aten::atanh", "aten::sigmoid", "aten::erf", "aten::erfc", "aten::erfinv", "aten::lgamma", "aten::digamma", "aten::nan_to_num",
                    "aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::relu", "aten::relu6", "aten::leaky_relu", "aten::elu", "aten::gelu",
                    "aten::silu", "aten::mish", "aten::softplus", "aten::hardtanh", "aten::hardswish", "aten::hardsigmoid", "aten::celu",
                    "aten::threshold"});
    add(pointwise, {"aten::threshold_backward", "aten::leaky_relu_backward", "aten::elu_backward", "aten::gelu_backward", "aten::silu_backward",
                    "aten::softplus_backward", "aten::hardtanh_backward", "aten::hardswish_backward", "aten::hardsigmoid_backward",
                    "aten::sigmoid_backward", "aten::tanh_backward", "aten::native_dropout_backward"});
    add(pointwise, {"aten::where", "aten::addcmul", "aten::addcdiv", "aten::lerp", "aten::masked_fill", "aten::complex", "aten::polar"});
    add(like_first, {"aten::log_sigmoid_forward", "aten::real", "aten::imag", "aten::_conj_physical", "aten::angle", "aten::alias", "aten::_to_copy",
                     "aten::clone", "aten::fill", "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::empty_like", "aten::lift_fresh_copy",
                     "lazyt::bernoulli"});
    add(all_like_first, {"lazyt::dropout"});
    add(like_first_two, {"aten::log_sigmoid_backward", "aten::masked_scatter"});
    add(copy, {"aten::copy"});
    add(mm, {"aten::mm", "aten::_int_mm"});
    add(bmm, {"aten::bmm"});
    add(addmm, {"aten::addmm", "aten::baddbmm"});
    add(addmv, {"aten::addmv"});
    add(mv, {"aten::mv"});
    add(dot, {"aten::dot"});
    add(matmul, {"aten::matmul"});
    add(linear, {"aten::linear"});
    add(convolution, {"aten::convolution"});
    add(convolution_backward, {"aten::convolution_backward"});
    add(max_pool<2>, {"aten::max_pool2d_with_indices"});
    add(max_pool<3>, {"aten::max_pool3d_with_indices"});
    add(max_pool_backward, {"aten::max_pool2d_with_indices_backward"});
    add(avg_pool<1>, {"aten::avg_pool1d"});
    add(avg_pool<2>, {"aten::avg_pool2d"});
    add(avg_pool<3>, {"aten::avg_pool3d"});
    add(avg_pool_backward, {"aten::avg_pool2d_backward"});
    add(adaptive_pool<1>, {"aten::adaptive_avg_pool1d"});
    add(adaptive_pool<2>, {"aten::_adaptive_avg_pool2d", "aten::adaptive_max_pool2d"});
    add(adaptive_pool<3>, {"aten::_adaptive_avg_pool3d"});
    add(adaptive_pool_backward, {"aten::_adaptive_avg_pool2d_backward"});
    add(upsample, {"aten::upsample_nearest2d", "aten::upsample_bilinear2d"});
    add(upsample_backward, {"aten::upsample_nearest2d_backward", "aten::upsample_bilinear2d_backward"});
    add(grid_sampler, {"aten::grid_sampler_2d"});
    add(pixel_shuffle, {"aten::pixel_shuffle"});
    add(reduce<1, 3>, {"aten::var.correction", "aten::var_mean.correction", "aten::std.correction"});
    add(reduce<1, 2>, {"aten::sum.dim_IntList", "aten::mean.dim", "aten::prod.dim_int", "aten::amax", "aten::amin", "aten::aminmax", "aten::any.dim",
                       "aten::any.dims", "aten::all.dim", "aten::all.dims", "aten::argmax", "aten::argmin", "aten::logsumexp", "aten::max.dim",
                       "aten::min.dim", "aten::median.dim"});
    add(reduce<2, 3>, {"aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", "aten::linalg_vector_norm"});
    add(to_one, {"aten::sum", "aten::mean", "aten::prod", "aten::any", "aten::all", "aten::max", "aten::min", "aten::norm.Scalar"});
    add(along_axis<1>, {"aten::_softmax", "aten::_log_softmax", "aten::cumsum", "aten::cumprod", "aten::cummax", "aten::cummin", "aten::logcumsumexp",
                        "aten::sort"});
    add(along_axis<2>, {"aten::sort.stable"});
    add(softmax_backward, {"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"});
    add(topk, {"aten::topk"});
    add(kthvalue, {"aten::kthvalue"});
    add(nll_loss, {"aten::nll_loss_forward", "aten::nll_loss2d_forward"});
    add(nll_loss_backward, {"aten::nll_loss_backward", "aten::nll_loss2d_backward"});
    add(loss, {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::binary_cross_entropy", "aten::binary_cross_entropy_with_logits"});
    add(loss_backward, {"aten::mse_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward", "aten::binary_cross_entropy_backward"});
    add(layer_norm, {"aten::native_layer_norm"});
    add(layer_norm_backward, {"aten::native_layer_norm_backward"});
    add(rms_norm, {"aten::_fused_rms_norm"});
    add(rms_norm_backward, {"aten::_fused_rms_norm_backward"});
    add(group_norm, {"aten::native_group_norm"});
    add(group_norm_backward, {"aten::native_group_norm_backward"});
    add(batch_norm_with_statistics, {"aten::_native_batch_norm_legit_functional", "aten::_native_batch_norm_legit_no_training"});
    add(batch_norm_without_statistics, {"aten::_native_batch_norm_legit.no_stats"});
    add(batch_norm_backward, {"aten::native_batch_norm_backward"});
    add(attention, {"aten::scaled_dot_product_attention"});
    add(attention_math, {"aten::_scaled_dot_product_attention_math"});
    add(flash_attention, {"aten::_scaled_dot_product_flash_attention_for_cpu"});
    add(flash_attention_backward, {"aten::_scaled_dot_product_flash_attention_for_cpu_backward"});
    add(fused_attention, {"aten::_scaled_dot_product_fused_attention_overrideable"});
    add(fused_attention_backward, {"aten::_scaled_dot_product_fused_attention_overrideable_backward"});
    add(t, {"aten::t"});
    add(permute, {"aten::permute"});
    add(transpose, {"aten::transpose"});
    add(slice, {"aten::slice"});
    add(slice_scatter, {"aten::slice_scatter"});
    add(slice_backward, {"aten::slice_backward"});
    add(select, {"aten::select"});
    add(select_scatter, {"aten::select_scatter"});
    add(select_backward, {"aten::select_backward"});
    add(expand, {"aten::expand"});
    add(reshape, {"aten::view", "aten::reshape"});
    add(squeeze, {"aten::squeeze"});
    add(unsqueeze, {"aten::unsqueeze"});
    add(diagonal, {"aten::diagonal"});
    add(diagonal_scatter, {"aten::diagonal_scatter"});
    add(as_strided, {"aten::as_strided"});
    add(as_strided_scatter, {"aten::as_strided_scatter"});
    add(unfold, {"aten::unfold"});
    add(flip, {"aten::flip"});
    add(roll, {"aten::roll"});
    add(repeat, {"aten::repeat"});
    add(constant_pad, {"aten::constant_pad_nd"});
    add(pad, {"aten::pad"});
    add(reflection_pad, {"aten::reflection_pad1d", "aten::reflection_pad2d"});
    add(replication_pad, {"aten::replication_pad2d"});
    add(view_as_real, {"aten::view_as_real"});
    add(view_as_complex, {"aten::view_as_complex"});
    add(triangle, {"aten::tril", "aten::triu"});
    add(cat, {"aten::cat"});
    add(stack, {"aten::stack"});
    add(split<2>, {"aten::split", "aten::split_with_sizes", "aten::chunk"});
    add(unbind, {"aten::unbind"});
    add(gather, {"aten::gather"});
    add(scatter, {"aten::scatter", "aten::scatter_add", "aten::scatter_reduce"});
    add(index, {"aten::index", "aten::_unsafe_index"});
    add(index_put, {"aten::index_put", "aten::_unsafe_index_put"});
    add(index_select, {"aten::index_select"});
    add(index_add, {"aten::index_add", "aten::index_copy"});
    add(index_fill, {"aten::index_fill"});
    add(like_second, {"aten::take"});
    add(embedding, {"aten::embedding"});
    add(embedding_backward, {"aten::embedding_dense_backward"});
    add(searchsorted, {"aten::searchsorted"});
    add(bucketize, {"aten::bucketize"});
    add(sized<0>, {"aten::zeros", "aten::ones", "aten::full", "aten::empty", "lazyt::uniform", "lazyt::normal", "lazyt::randint"});
    add(sized<1>, {"aten::new_zeros", "aten::new_full"});
    add(number, {"aten::scalar_tensor"});
    add(eye, {"aten::eye"});
    add(row, {"aten::arange"});
    add(linspace, {"aten::linspace"});
    add(foreach_norm, {"aten::_foreach_norm"});
    add(optimizer<6, 5>, {"aten::_fused_adam", "aten::_fused_adamw"});
    add(optimizer<3, SIZE_MAX>, {"aten::_fused_sgd"});
    add(optimizer<4, 3>, {"aten::_fused_adagrad"});
    for (const OpInfo& op : all_ops())
      if (op.name.starts_with("aten::_foreach_")) out->emplace(op.name, foreach_pointwise);
    return out;
  }();
  return all;
}

}  // namespace

ShapeRule find_shape_rule(std::string_view name, std::string_view overload) {
  const ShapeRule* rule = find_in(rules(), name, overload);
  return rule ? *rule : nullptr;
}

}  // namespace lazyt::ir
