// Rules of windows that PyTorch has kernels for and the opset does not number: cut out of an image, put back, and places of the
// largest. Equal; sums of few terms in the order of PyTorch's kernels, halves in f32.
#include "passes/decomposition.h"

namespace lazyt::passes {
namespace {

using base::Dims;
using ir::Arg;
using ir::ValueId;

// (self, size, scale?), (grad, size, input size, scale?): an image of one row
Results nearest1d(Pieces& p) {
  const bool backward = p.node.name.ends_with("_backward");
  const auto with_row = [](Dims d) {
    const size_t last = d.size() - 1;
    return inserted(std::move(d), last, 1);
  };
  const ValueId x = p.reshape(p.value(0), with_row(p.dims(p.value(0))));
  std::vector<Arg> args = {Arg::of_value(x), Arg::of_ints({1, p.arg(1).ints.at(0)})};
  if (backward) args.push_back(Arg::of_ints(with_row({p.arg(2).ints.begin(), p.arg(2).ints.end()})));
  args.push_back(Arg::none());
  args.push_back(p.arg(p.args.size() - 1));
  const char* name = backward ? "aten::upsample_nearest2d_backward" : "aten::upsample_nearest2d";
  return one(p.reshape(p.op(name, "", std::move(args), p.result().dtype, with_row(p.result().dims)),
                       p.result().dims));
}

// Windows of an image: the arguments kernel, dilation, padding and stride, the first at `first`.
struct Windows {
  int64_t kernel[2], dilation[2], padding[2], stride[2], count[2];  // count: of windows

  Windows(const Pieces& p, size_t first, const int64_t (&image)[2]) {
    const auto read = [&](int64_t (&to)[2], size_t i) {
      const auto& from = p.arg(first + i).ints;
      to[0] = from.at(0), to[1] = from.at(from.size() - 1);
    };
    read(kernel, 0), read(dilation, 1), read(padding, 2), read(stride, 3);
    for (size_t k = 0; k < 2; k++) {
      for (int64_t n : {kernel[k], dilation[k], stride[k], padding[k] + 1}) p.size_of(n);
      count[k] = (image[k] + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1) / stride[k] + 1;
    }
  }
  int64_t taps() const { return kernel[0] + kernel[1]; }
};
constexpr int64_t kMostTaps = 128;  // pieces of a window

// (self, kernel, dilation, padding, stride): the rows of all windows, then of these the columns.
Results im2col(Pieces& p) {
  ValueId x = p.value(0);
  const size_t h = p.rank(x) - 2;
  const int64_t image[2] = {p.size(x, h), p.size(x, h + 1)};
  const Windows windows(p, 1, image);
  if (windows.taps() > kMostTaps || p.result().numel() == 0) return kNot;
  for (size_t k = 0; k < 2; k++) {
    const size_t dim = h + 2 * k;  // h w, then taps h w
    x = p.pad(x, dim, windows.padding[k], windows.padding[k]);
    std::vector<ValueId> taps;
    for (int64_t i = 0; i < windows.kernel[k]; i++) {
      const int64_t at = i * windows.dilation[k];
      const ValueId tap =
          p.slice(x, dim, at, at + (windows.count[k] - 1) * windows.stride[k] + 1, windows.stride[k]);
      taps.push_back(p.with_one(tap, h + k));
    }
    x = p.cat(taps, h + k);
  }
  return one(p.reshape(x, p.result().dims));
}

// Elements `stride` apart, from `at` on, in `length` of zeros.
ValueId spread(Pieces& p, ValueId x, size_t dim, int64_t stride, int64_t at, int64_t length) {
  const int64_t whole = p.elements({p.size(x, dim), stride}), span = whole - stride + 1;
  if (stride > 1) {
    Dims joined = p.dims(x);
    joined.at(dim) = whole;
    x = p.reshape(p.pad(p.with_one(x, dim + 1), dim + 1, 0, stride - 1), std::move(joined));
    x = p.slice(x, dim, 0, span);
  }
  return p.pad(x, dim, at, length - at - span);
}

// (self, size, kernel, dilation, padding, stride): the columns are summed to rows, then the rows.
Results col2im(Pieces& p) {
  const Dims& out = p.result().dims;
  const size_t h = out.size() - 2;
  const int64_t image[2] = {out.at(h), out.at(h + 1)};
  const Windows windows(p, 2, image);
  if (windows.taps() > kMostTaps || p.result().numel() == 0 || !is_float(p.result().dtype)) return kNot;
  Dims dims(out.begin(), out.end() - 2);
  dims.insert(dims.end(), {windows.kernel[0], windows.kernel[1], windows.count[0], windows.count[1]});
  ValueId x = p.reshape(p.operand(0), std::move(dims));
  for (size_t k = 2; k-- > 0;) {
    const size_t taps = h + k, dim = h + 2 * k;  // of the elements, once the taps' dim is gone
    const int64_t whole = image[k] + 2 * windows.padding[k];
    if (windows.padding[k] == 0 && windows.dilation[k] == 1 && windows.stride[k] == windows.kernel[k] &&
        windows.count[k] * windows.kernel[k] == whole) {  // tiles: each element once
      Dims joined = erased(p.dims(x), taps);
      joined.at(dim) = whole;
      x = p.reshape(p.move(x, taps, dim + 1), std::move(joined));
      continue;
    }
    ValueId sum = ir::kNone;
    for (int64_t i = 0; i < windows.kernel[k]; i++) {
      const ValueId tap = p.without(p.slice(x, taps, i, i + 1), taps);
      const ValueId v = spread(p, tap, dim, windows.stride[k], i * windows.dilation[k], whole);
      sum = sum == ir::kNone ? v : p.add(sum, v);
    }
    x = p.slice(sum, dim, windows.padding[k], windows.padding[k] + image[k]);
  }
  return one(p.rounded(x));
}

// What windows along one dim, `step` apart, were cut out of: (grad, sizes, dim, size, step). Blocks of a step are whole tiles, so all
// windows' first blocks are added at once, then all second ones.
Results unfold_backward(Pieces& p) {
  const Dims& out = p.result().dims;
  if (!is_float(p.result().dtype) || p.result().numel() == 0 || p.meta(p.value(0)).numel() == 0 || out.empty()) return kNot;
  ValueId x = p.operand(0);
  const auto rank = static_cast<int64_t>(out.size());
  const auto dim = static_cast<size_t>(p.arg(2).i < 0 ? p.arg(2).i + rank : p.arg(2).i);
  const int64_t size = p.size_of(p.arg(3).i), step = p.size_of(p.arg(4).i), count = p.size(x, dim), blocks = (size + step - 1) / step;
  if (blocks > kMostTaps) return kNot;
  x = p.pad(p.move(x, out.size(), dim + 1), dim + 1, 0, blocks * step - size);
  Dims joined = erased(p.dims(x), dim);
  joined.at(dim) = p.elements({count, step});
  ValueId sum = ir::kNone;
  for (int64_t k = blocks; k-- > 0;) {  // an element's first window has it last
    const ValueId block = p.reshape(p.slice(x, dim + 1, k * step, (k + 1) * step), joined);
    const ValueId v = p.pad(block, dim, k * step, (blocks - 1 - k) * step);
    sum = sum == ir::kNone ? v : p.add(sum, v);
  }
  const int64_t whole = p.size(sum, dim), length = out.at(dim);
  return one(p.rounded(whole > length ? p.slice(sum, dim, 0, length) : p.pad(sum, dim, 0, length - whole)));
}

// (self, indices, output_size): each element where its index says, in zeros.
Results max_unpool(Pieces& p) {
  const ValueId x = p.value(0);
  const Dims& out = p.result().dims;
  const size_t axes = p.node.name == "aten::max_unpool3d" ? 3 : 2;
  if (p.meta(x).numel() == 0 || p.result().numel() == 0 || out.size() < axes) return kNot;
  int64_t planes = 1;
  for (size_t d = 0; d + axes < out.size(); d++) planes *= out[d];
  const auto flat = [&](ValueId v) { return p.reshape(v, {planes, p.meta(v).numel() / planes}); };
  const ValueId zeros = p.zeros(p.dtype(x), {planes, p.result().numel() / planes});
  return one(p.rounded(p.op("aten::scatter", "src", {Arg::of_value(zeros), Arg::of_int(1), Arg::of_value(flat(p.value(1))), Arg::of_value(flat(x))},
                            p.dtype(x), p.dims(zeros))));
}

}  // namespace

const Rules& window_rules() {
  static const auto& rules = *new Rules{
      {"aten::col2im", col2im},
      {"aten::im2col", im2col},
      {"aten::max_unpool2d", max_unpool},
      {"aten::max_unpool3d", max_unpool},
      {"aten::unfold_backward", unfold_backward},
      {"aten::upsample_nearest1d", nearest1d},
      {"aten::upsample_nearest1d_backward", nearest1d},
  };
  return rules;
}

}  // namespace lazyt::passes
