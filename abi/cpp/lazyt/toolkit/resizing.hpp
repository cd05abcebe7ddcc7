// resizing.hpp - other sizes of an image and borders around it: as taps, axis by axis.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_RESIZING_HPP_
#define LAZYT_TOOLKIT_RESIZING_HPP_

#include <cmath>
#include <map>
#include <numbers>
#include <string>

#include "lazyt/toolkit/taps.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {
namespace taps {

enum class Filter {
  kNearest,       // the element that begins before the result's
  kNearestExact,  // the element nearest to the result's middle
  kLinear,
  kCubic,         // Keys' with a = -0.75
  kTriangle,      // those below are as wide as a result is of elements (antialias)
  kKeys,          // with a = -0.5
  kLanczos,       // of three lobes
  kReflection,    // borders: mirrored without the edge
  kReplication,   // the edge
};

// An operator whose last `axes` dims are spatial.
struct Resizing {
  Filter filter;
  size_t axes;
  bool backward;

  bool is_border() const { return filter >= Filter::kReflection; }
  // Each result is one element, untouched.
  bool only_moves() const { return !backward && (filter <= Filter::kNearestExact || is_border()); }
};

// All of them by their full names, those of the opset too.
inline const std::map<std::string, Resizing, std::less<>>& resizings() {
  static const auto all = [] {
    struct Family {
      const char* name;
      Filter filter;
      size_t from, to;  // axes
      const char* end = "";
    };
    using enum Filter;
    std::map<std::string, Resizing, std::less<>> out;
    for (const Family& f : {Family{"upsample_nearest", kNearest, 1, 3}, {"_upsample_nearest_exact", kNearestExact, 1, 3}, {"upsample_linear", kLinear, 1, 1},
                            {"upsample_bilinear", kLinear, 2, 2}, {"upsample_trilinear", kLinear, 3, 3}, {"upsample_bicubic", kCubic, 2, 2},
                            {"_upsample_bilinear", kTriangle, 2, 2, "_aa"}, {"_upsample_bicubic", kKeys, 2, 2, "_aa"}, {"_upsample_lanczos", kLanczos, 2, 2, "_aa"},
                            {"reflection_pad", kReflection, 1, 3}, {"replication_pad", kReplication, 1, 3}})
      for (size_t axes = f.from; axes <= f.to; ++axes) {
        const std::string name = std::string("aten::") + f.name + std::to_string(axes) + "d" + f.end;
        out[name] = {f.filter, axes, false};
        out[name + "_backward"] = {f.filter, axes, true};
      }
    return out;
  }();
  return all;
}

// ---- Taps of one axis. Indices and weights are computed in the precision F that PyTorch uses: f32, or f64 for f64.

// input / output, unless the caller gave the scale.
template <class F>
F step_of(const std::optional<double>& scale, int64_t inputs, int64_t outputs) {
  return scale && *scale > 0 ? static_cast<F>(1.0 / *scale) : static_cast<F>(inputs) / static_cast<F>(outputs);
}
template <class F>
F step_of(bool align_corners, const std::optional<double>& scale, int64_t inputs, int64_t outputs) {
  if (align_corners) return outputs > 1 ? static_cast<F>(inputs - 1) / static_cast<F>(outputs - 1) : F(0);
  return step_of<F>(scale, inputs, outputs);
}

// add(taps, o) adds what result o is made of.
template <class Add>
Taps each_of(int64_t inputs, int64_t outputs, Add add) {
  Taps taps;
  taps.inputs = inputs;
  for (int64_t o = 0; o < outputs; ++o) {
    add(taps, o);
    taps.end_output();
  }
  return taps;
}
// Result o is element of(o).
template <class Of>
Taps one_of(int64_t inputs, int64_t outputs, Of of) {
  return each_of(inputs, outputs, [&](Taps& taps, int64_t o) { taps.add(of(o), 1); });
}

// PyTorch has two ways to an index: a formula in f32, which for twice as many results ignores the scale, and one in F.
enum class Index { kShort, kPrecise };

template <class F>
Taps nearest(bool exact, Index how, std::optional<double> scale, int64_t inputs, int64_t outputs) {
  const F step = step_of<F>(scale, inputs, outputs);
  const auto step32 = step_of<float>(scale, inputs, outputs);
  return one_of(inputs, outputs, [&](int64_t o) {
    if (how == Index::kShort && !exact && (outputs == inputs || outputs == 2 * inputs)) return outputs == inputs ? o : o / 2;
    const auto f = static_cast<F>(o);
    const auto at = how == Index::kShort ? static_cast<float>(exact ? (static_cast<double>(o) + 0.5) * step32 : static_cast<float>(o) * step32)
                    : exact ? static_cast<float>(static_cast<double>(std::max(step * (f + F(0.5)) - F(0.5), F(0))) + 0.5)
                            : static_cast<float>(f * step);
    return std::min(static_cast<int64_t>(std::floor(at)), inputs - 1);
  });
}
// The gradient goes the short way, and planes of few rows and columns. (Channels-last images of more than three channels do,
// too, which a program does not say: only scales that are not the sizes' quotient tell the ways apart.)
inline Index index_of(const Resizing& r, const Dims& results) {
  const size_t n = results.size();
  return r.backward || (r.axes == 2 && results[n - 2] + results[n - 1] <= 128) ? Index::kShort : Index::kPrecise;
}

// before: how many results lie before element 0; negative: elements that are cut off.
inline Taps border(bool mirrored, int64_t before, int64_t inputs, int64_t outputs) {
  return one_of(inputs, outputs, [&](int64_t o) {
    const int64_t i = o - before;
    if (!mirrored) return std::clamp<int64_t>(i, 0, inputs - 1);
    return i < 0 ? -i : i >= inputs ? 2 * (inputs - 1) - i : i;
  });
}

template <class F>
Taps linear(bool align_corners, std::optional<double> scale, int64_t inputs, int64_t outputs) {
  const F step = step_of<F>(align_corners, scale, inputs, outputs);
  return each_of(inputs, outputs, [&](Taps& taps, int64_t o) {
    if (inputs == outputs) return taps.add(o, 1);
    const F from = align_corners ? step * static_cast<F>(o) : std::max(step * (static_cast<F>(o) + F(0.5)) - F(0.5), F(0));
    const int64_t low = std::min(static_cast<int64_t>(from), inputs - 1), high = std::min(low + 1, inputs - 1);
    const F upper = std::clamp(from - static_cast<F>(low), F(0), F(1));
    taps.add(low, F(1) - upper);
    taps.add(high, upper);
  });
}

// Keys, "Cubic convolution interpolation for digital image processing" (1981): x = the distance, a = the slope at 1.
template <class F>
F keys(F x, F a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : F(0);
}

template <class F>
Taps cubic(bool align_corners, std::optional<double> scale, int64_t inputs, int64_t outputs) {
  const F step = step_of<F>(align_corners, scale, inputs, outputs);
  return each_of(inputs, outputs, [&](Taps& taps, int64_t o) {
    const F from = align_corners ? step * static_cast<F>(o) : step * (static_cast<F>(o) + F(0.5)) - F(0.5);
    const int64_t at = std::min(static_cast<int64_t>(std::floor(from)), inputs - 1);
    const F t = std::clamp(from - static_cast<F>(at), F(0), F(1));
    for (int64_t k = -1; k <= 2; ++k)
      taps.add(std::clamp<int64_t>(at + k, 0, inputs - 1), keys(static_cast<F>(k) - t, F(-0.75)));
  });
}

template <class F>
F wide_filter(Filter filter, F x) {
  const auto sinc = [](F v) { return v == 0 ? F(1) : std::sin(v * std::numbers::pi_v<F>) / (v * std::numbers::pi_v<F>); };
  if (filter == Filter::kTriangle) return std::max(F(1) - std::abs(x), F(0));
  if (filter == Filter::kKeys) return keys(x, F(-0.5));
  return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : F(0);
}

// A filter that is stretched over as many elements as a result stands for.
template <class F>
Taps wide(Filter filter, bool align_corners, std::optional<double> scale, int64_t inputs, int64_t outputs) {
  const F step = step_of<F>(align_corners, scale, inputs, outputs);
  const F stretch = std::max(step, F(1)), half = filter == Filter::kTriangle ? 1 : filter == Filter::kKeys ? 2 : 3, reach = half * stretch;
  const auto most = static_cast<int64_t>(std::ceil(reach)) * 2 + 1;
  return each_of(inputs, outputs, [&](Taps& taps, int64_t o) {
    const F middle = step * (static_cast<F>(o) + F(0.5));
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(middle - reach + F(0.5)), 0);
    const int64_t count = std::clamp<int64_t>(std::min(static_cast<int64_t>(middle + reach + F(0.5)), inputs) - first, 0, most);
    std::vector<F> weights;
    F all = 0;
    for (int64_t k = 0; k < count; ++k) all += weights.emplace_back(wide_filter<F>(filter, (static_cast<F>(k + first) - middle + F(0.5)) / stretch));
    for (int64_t k = 0; k < count; ++k) taps.add(first + k, all != 0 ? weights[static_cast<size_t>(k)] / all : weights[static_cast<size_t>(k)]);
  });
}

// ---- Operators

// (self, output_size, align_corners?, scales...), (grad, output_size, input_size, align_corners?, scales...); of borders (self,
// padding), (grad, self, padding), the last dim's first. The axes of the forward.
inline AxisOf axis_of(const Builder& b, const lazyt_node_t& node, const Resizing& r) {
  const auto args = b.program.args(node);
  if (r.is_border()) {
    const Dims padding = b.ints_of(args[r.backward ? 2 : 1]);
    return [=](size_t i, int64_t inputs, int64_t outputs) {
      return border(r.filter == Filter::kReflection, padding[2 * (r.axes - 1 - i)], inputs, outputs);
    };
  }
  size_t next = r.backward ? 3 : 2;
  const bool by_one = r.filter <= Filter::kNearestExact, align = !by_one && b.bool_of(args[next]);
  next += !by_one;
  std::array<std::optional<double>, 3> scales;
  for (size_t i = 0; i < r.axes; ++i)
    if (const lazyt_arg_t& arg = args[next + i]; !b.is_none(arg)) scales[i] = b.double_of(arg);
  const Index how = index_of(r, b.dims(node.results));
  const auto taps_of = [=]<class F>(size_t i, int64_t inputs, int64_t outputs, F) {
    switch (r.filter) {
      case Filter::kNearest: case Filter::kNearestExact: return nearest<F>(r.filter == Filter::kNearestExact, how, scales[i], inputs, outputs);
      case Filter::kLinear: return linear<F>(align, scales[i], inputs, outputs);
      case Filter::kCubic: return cubic<F>(align, scales[i], inputs, outputs);
      default: return wide<F>(r.filter, align, scales[i], inputs, outputs);
    }
  };
  return [=, precise = b.dtype(node.results) == LAZYT_DTYPE_FLOAT64](size_t i, int64_t inputs, int64_t outputs) {
    return precise ? taps_of(i, inputs, outputs, double()) : taps_of(i, inputs, outputs, float());
  };
}

inline const Resizing& resizing_of(const plugin::ProgramView& program, const lazyt_node_t& node) { return resizings().at(program.full_name(node)); }

inline std::string arguments_of(const Resizing& r) {
  if (r.is_border()) return r.backward ? "ttI" : "tI";
  return (r.backward ? "tII" : "tI") + std::string(r.filter <= Filter::kNearestExact ? "" : "b") + std::string(r.axes, 'd');
}

// Whether each result has a place in the operand.
inline Refusal accept_sizes(const plugin::ProgramView& program, const lazyt_node_t& node, const Resizing& r) {
  const auto args = program.args(node);
  auto x = program.dims(program.values()[args[0].payload]), y = program.dims(program.values()[node.results]);
  if (r.backward) std::swap(x, y);
  if (x.size() != y.size() || x.size() < r.axes + 1 || x.size() > r.axes + 2) return {LAZYT_REASON_RANK, "images of another rank"};
  const auto image = x.size() - r.axes;
  for (size_t d = 0; d < x.size(); ++d)
    if (d < image ? x[d] != y[d] : x[d] < 1) return refuse_argument("images that do not fit");
  if (r.is_border()) {
    const auto pads = program.ints(args[r.backward ? 2 : 1]);
    if (pads.size() != 2 * r.axes) return refuse_argument("borders of other dims");
    for (size_t i = 0; i < r.axes; ++i) {
      const int64_t n = x[image + i], before = pads[2 * (r.axes - 1 - i)], after = pads[2 * (r.axes - 1 - i) + 1];
      if (y[image + i] != n + before + after) return refuse_argument("a border that does not fit");
      if (r.filter == Filter::kReflection && (before >= n || after >= n)) return refuse_argument("a border wider than what it mirrors");
    }
    return {};
  }
  for (const lazyt_arg_t& arg : args)  // a result's place is a whole number of 64 bits
    if (arg.kind == LAZYT_ARG_DOUBLE && Builder::double_of(arg) > 0 && Builder::double_of(arg) < 1e-9) return refuse_argument("a scale of almost nothing");
  return {};
}

// What PyTorch has on a CPU: floats, wide filters not of halves; borders of every dtype that can be moved, single elements
// of images of bytes.
inline Refusal accept_resizing(const plugin::ProgramView& program, const lazyt_node_t& node) {
  const Resizing& resizing = resizing_of(program, node);
  if (!has_arguments(program, node, arguments_of(resizing)) || node.result_count != 1) return refuse_argument("other arguments, or some that change");
  if (Refusal r = accept_geometry(program, node); r.reason != LAZYT_REASON_NONE) return r;
  if (Refusal r = accept_sizes(program, node, resizing); r.reason != LAZYT_REASON_NONE) return r;
  const lazyt_dtype_t dtype = program.values()[program.args(node)[0].payload].dtype;
  const bool is_wide = resizing.filter >= Filter::kTriangle && !resizing.is_border();
  const bool taken = (is_floating(dtype) && (!is_wide || compute_dtype(dtype) == dtype)) ||
                     (resizing.only_moves() && (resizing.is_border() ? is_movable(dtype) : dtype == LAZYT_DTYPE_UINT8));
  return taken ? Refusal{} : refuse_dtype(dtype);
}

// entry: for each of them. The opset has some: those by their numbers.
template <class BuilderT>
void add_resizings(Operators<BuilderT>& all, const Operator<BuilderT>& entry) {
  for (const auto& [name, resizing] : resizings()) all.add_named(name, entry);
  for (lazyt_op_t op : {LAZYT_OP_UPSAMPLE_NEAREST2D, LAZYT_OP_UPSAMPLE_NEAREST2D_BACKWARD, LAZYT_OP_UPSAMPLE_BILINEAR2D, LAZYT_OP_UPSAMPLE_BILINEAR2D_BACKWARD,
                        LAZYT_OP_REFLECTION_PAD1D, LAZYT_OP_REFLECTION_PAD2D, LAZYT_OP_REPLICATION_PAD2D})
    all.add(op, entry);
}

}  // namespace taps
}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_RESIZING_HPP_
