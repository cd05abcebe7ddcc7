// taps.hpp - pooling axis by axis: which elements of an axis make which.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_TAPS_HPP_
#define LAZYT_TOOLKIT_TAPS_HPP_

#include <array>
#include <functional>
#include <optional>

#include "lazyt/toolkit/operands.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// Along one axis, result o is made of the operand's elements index[t], begin[o] <= t < begin[o + 1], times weight[t],
// divided by divisor[o] if there are any.
struct Taps {
  int64_t inputs = 1;
  std::vector<int32_t> begin{0}, index;
  std::vector<double> weight, divisor;

  int64_t outputs() const { return static_cast<int64_t>(begin.size()) - 1; }
  void add(int64_t i, double w) {
    index.push_back(static_cast<int32_t>(i));
    weight.push_back(w);
  }
  void end_output() { begin.push_back(static_cast<int32_t>(index.size())); }
  // The adjoint: from gradients of results to gradients of the operand, divisors in the weights.
  Taps transposed() const;
  // One element, untouched: an axis that is not there.
  static Taps one();
};
using Axes = std::array<Taps, 3>;  // depth, height, width

inline Taps Taps::one() {
  Taps taps;
  taps.add(0, 1);
  taps.end_output();
  return taps;
}

inline Taps Taps::transposed() const {
  std::vector<std::vector<std::pair<int64_t, double>>> lists(static_cast<size_t>(inputs));
  for (int64_t o = 0; o < outputs(); ++o)
    for (int32_t t = begin[o]; t < begin[o + 1]; ++t)
      lists[static_cast<size_t>(index[t])].emplace_back(o, divisor.empty() ? weight[t] : weight[t] / divisor[o]);
  Taps out;
  out.inputs = outputs();
  for (const auto& list : lists) {
    for (const auto& [o, w] : list) out.add(o, w);
    out.end_output();
  }
  return out;
}

namespace taps {

using AxisOf = std::function<Taps(size_t axis, int64_t inputs, int64_t outputs)>;

// Axes of an operator whose last `count` dims are spatial; depth and height may be missing.
inline Axes axes_of(const Dims& x, const Dims& y, size_t count, const AxisOf& f) {
  Axes out{Taps::one(), Taps::one(), Taps::one()};
  for (size_t i = 0; i < count; ++i) out[3 - count + i] = f(i, x[x.size() - count + i], y[y.size() - count + i]);
  return out;
}

inline Axes transposed(const Axes& axes) { return {axes[0].transposed(), axes[1].transposed(), axes[2].transposed()}; }

inline int64_t at(const Dims& d, size_t axis, int64_t otherwise) { return d.empty() ? otherwise : d[d.size() == 1 ? 0 : axis]; }

// ---- Windows of fixed size

struct Window {
  Dims kernel, stride, padding, dilation;
  bool count_padding = true;
  std::optional<int64_t> divisor = std::nullopt;
  bool average = false;

  Taps operator()(size_t axis, int64_t inputs, int64_t outputs) const {
    const int64_t k = at(kernel, axis, 1), s = at(stride, axis, k), p = at(padding, axis, 0), d = at(dilation, axis, 1);
    Taps taps;
    taps.inputs = inputs;
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t start = o * s - p;
      int64_t count = 0;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t from = start + i * d;
        if (from < 0 || from >= inputs) continue;
        taps.add(from, 1);
        ++count;
      }
      taps.end_output();
      if (!average) continue;
      // A window that hangs over the end of the padding is cut there.
      const int64_t padded = std::min(start + k, inputs + p) - start;
      if (divisor) {
        taps.divisor.push_back(axis == 0 ? static_cast<double>(*divisor) : 1.0);
      } else {
        taps.divisor.push_back(static_cast<double>(std::max<int64_t>(count_padding ? padded : count, 1)));
      }
    }
    return taps;
  }
};

inline Window average_window(const Builder& b, const lazyt_node_t& node, size_t first) {
  const auto args = b.program.args(node);
  Window w{b.ints_of(args[first]), b.ints_of(args[first + 1]), b.ints_of(args[first + 2]), {}};
  w.count_padding = b.bool_of(args[first + 4]);
  w.average = true;
  if (args.size() > first + 5 && !b.is_none(args[first + 5])) w.divisor = b.int_of(args[first + 5]);
  return w;
}

// ---- Windows that share an axis out evenly

template <bool average>
Taps adaptive(size_t, int64_t inputs, int64_t outputs) {
  Taps taps;
  taps.inputs = inputs;
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t start = o * inputs / outputs, end = ((o + 1) * inputs + outputs - 1) / outputs;
    for (int64_t i = start; i < end; ++i) taps.add(i, 1);
    taps.end_output();
    if (average) taps.divisor.push_back(static_cast<double>(end - start));
  }
  return taps;
}

inline bool has_empty_window(const plugin::ProgramView& program, const lazyt_node_t& node, size_t axes) {
  const auto args = program.args(node);
  auto ints = [&](size_t i) {
    const auto run = program.ints(args[i]);
    return Dims(run.begin(), run.end());
  };
  const Window window{ints(1), ints(2), ints(3), ints(4)};
  const auto x = program.dims(program.values()[args[0].payload]), y = program.dims(program.values()[node.results]);
  for (size_t i = 0; i < axes; ++i) {
    const Taps taps = window(i, x[x.size() - axes + i], y[y.size() - axes + i]);
    for (int64_t o = 0; o < taps.outputs(); ++o)
      if (taps.begin[o] == taps.begin[o + 1]) return true;
  }
  return false;
}

inline Refusal accept_geometry(const plugin::ProgramView& program, const lazyt_node_t& node) {
  for (uint64_t i = 0; i < node.arg_count; ++i) {
    const lazyt_arg_t& arg = program.args(node)[i];
    if (arg.kind == LAZYT_ARG_LIST) return refuse_argument("a geometry that is not constant");
    if (arg.kind == LAZYT_ARG_VALUE && program.values()[arg.payload].flags & LAZYT_VALUE_HOST_SCALAR)
      return refuse_argument("a geometry that is not constant");
  }
  if (lazyt_value_numel(program.block(), &program.values()[program.args(node)[0].payload]) > INT32_MAX ||
      lazyt_value_numel(program.block(), &program.values()[node.results]) > INT32_MAX)
    return {LAZYT_REASON_SIZE, "windows over more than 2^31 elements"};
  return {};
}

}  // namespace taps

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_TAPS_HPP_
