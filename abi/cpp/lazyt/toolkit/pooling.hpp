// pooling.hpp - pools: windows of an image and their gradients, as taps, axis by axis.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_POOLING_HPP_
#define LAZYT_TOOLKIT_POOLING_HPP_

#include <algorithm>
#include <map>
#include <string>

#include "lazyt/toolkit/taps.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {
namespace taps {

// An operator whose last `axes` dims are spatial.
struct Pooling {
  bool max;       // the largest of a window and its place, else the mean
  bool adaptive;  // windows that share an axis out evenly, else of a given size
  size_t axes;
  bool backward;

  size_t self() const { return backward ? 1 : 0; }      // arguments: the operand
  size_t geometry() const { return backward ? 2 : 1; }  // the first of what describes windows
};

// All of them by their full names, those of the opset too.
inline const std::map<std::string, Pooling, std::less<>>& poolings() {
  static const auto all = [] {
    struct Family {
      const char* name;
      bool max, adaptive;
      size_t from, to;  // axes; PyTorch makes the gradients of one axis of those of two
      const char* end = "";
    };
    std::map<std::string, Pooling, std::less<>> out;
    for (const Family& f : {Family{"max_pool", true, false, 2, 3, "_with_indices"}, {"adaptive_max_pool", true, true, 2, 3}, {"avg_pool", false, false, 1, 3},
                            {"adaptive_avg_pool", false, true, 1, 1}, {"_adaptive_avg_pool", false, true, 2, 3}})
      for (size_t axes = f.from; axes <= f.to; ++axes) {
        const std::string name = std::string("aten::") + f.name + std::to_string(axes) + "d" + f.end;
        out[name] = {f.max, f.adaptive, axes, false};
        if (axes > 1) out[name + "_backward"] = {f.max, f.adaptive, axes, true};
      }
    return out;
  }();
  return all;
}

inline const Pooling& pooling_of(const plugin::ProgramView& program, const lazyt_node_t& node) { return poolings().at(program.full_name(node)); }

// (self, kernel_size, stride, padding, dilation, ceil_mode), (grad, self, ..., indices); of means (self, kernel_size, stride, padding,
// ceil_mode, count_include_pad, divisor_override?), (grad, self, ...); adaptive (self, output_size), (grad, self, indices?).
inline std::string arguments_of(const Pooling& p) {
  const std::string operands = p.backward ? "tt" : "t", indices = p.backward && p.max ? "t" : "";
  if (p.adaptive) return operands + (p.backward ? "" : "I") + indices;
  return operands + (p.max ? "IIIIb" : p.axes == 1 ? "IIIbb" : "IIIbbd") + indices;
}

// What it says of windows of a given size; none of an adaptive one.
inline std::optional<Window> window_of(const Builder& b, const lazyt_node_t& node, const Pooling& p) {
  const size_t first = p.geometry();
  if (p.adaptive) return std::nullopt;
  if (!p.max) return average_window(b, node, first);
  const auto args = b.program.args(node);
  return Window{b.ints_of(args[first]), b.ints_of(args[first + 1]), b.ints_of(args[first + 2]), b.ints_of(args[first + 3])};
}
// The axes of the forward.
inline AxisOf axis_of(const Builder& b, const lazyt_node_t& node, const Pooling& p) {
  if (auto window = window_of(b, node, p)) return *window;
  return p.max ? adaptive<false> : adaptive<true>;
}

// Whether the operands and results of a call fit each other.
inline Refusal accept_calls(const plugin::ProgramView& program, const lazyt_node_t& node, const Pooling& p) {
  const auto args = program.args(node);
  const auto value = [&](size_t arg) { return program.values()[args[arg].payload]; };
  const lazyt_value_t x = value(p.self()), y = p.backward ? value(0) : program.values()[node.results];
  const auto same = [&](const lazyt_value_t& a, const lazyt_value_t& b) { return std::ranges::equal(program.dims(a), program.dims(b)); };
  const auto image = program.dims(x), made = program.dims(y);
  if (image.size() != made.size() || image.size() < p.axes + 1 || image.size() > p.axes + 2) return {LAZYT_REASON_RANK, "images of another rank"};
  const size_t outer = image.size() - p.axes;
  for (size_t d = 0; d < image.size(); ++d)
    if (d < outer ? image[d] != made[d] : image[d] < 1 || made[d] < 1) return refuse_argument("images that do not fit");
  if (node.result_count != (p.max && !p.backward ? 2 : 1)) return refuse_argument("other results");
  if (y.dtype != x.dtype) return refuse_dtype(y.dtype);
  if (p.backward && (!same(program.values()[node.results], x) || program.values()[node.results].dtype != x.dtype)) return refuse_argument("a gradient that does not fit");
  if (p.max) {
    const lazyt_value_t index = p.backward ? value(args.size() - 1) : program.values()[node.results + 1];
    if (!same(index, y) || index.dtype != LAZYT_DTYPE_INT64) return refuse_argument("indices that do not fit");
  }
  if (p.adaptive) return {};
  constexpr int64_t kWidest = 1 << 16;
  for (size_t i = 0; i < 3; ++i) {  // kernel, stride (none: the kernel's), padding
    const auto sizes = program.ints(args[p.geometry() + i]);
    if (sizes.size() != 1 && sizes.size() != p.axes && !(i == 1 && sizes.size() == 0)) return refuse_argument("windows of other dims");
    for (const int64_t n : sizes)
      if (n < (i == 2 ? 0 : 1) || n > kWidest) return refuse_argument("windows of no size, or of too large a one");
  }
  return {};
}

// Of floats.
inline Refusal accept_pooling(const plugin::ProgramView& program, const lazyt_node_t& node) {
  const Pooling& pooling = pooling_of(program, node);
  if (node.op == LAZYT_OP_NONE) {
    if (!has_arguments(program, node, arguments_of(pooling))) return refuse_argument("other arguments, or some that change");
    if (Refusal r = accept_calls(program, node, pooling); r.reason != LAZYT_REASON_NONE) return r;
  }
  if (Refusal r = accept_geometry(program, node); r.reason != LAZYT_REASON_NONE) return r;
  if (pooling.max && !pooling.adaptive && !pooling.backward && has_empty_window(program, node, pooling.axes))
    return refuse_argument("a window of a max pooling that lies in the padding whole");
  const lazyt_dtype_t dtype = program.values()[program.args(node)[0].payload].dtype;
  return is_floating(dtype) ? Refusal{} : refuse_dtype(dtype);
}

// All of them, lowered by one of two. The opset has some: those by their numbers.
template <class BuilderT>
void add_poolings(Operators<BuilderT>& all, typename Operator<BuilderT>::Lower forward, typename Operator<BuilderT>::Lower backward) {
  const Operator<BuilderT> pool{Role::kOpaque, accept_pooling, forward}, gradient{Role::kOpaque, accept_pooling, backward};
  for (const auto& [name, pooling] : poolings()) all.add_named(name, pooling.backward ? gradient : pool);
  for (lazyt_op_t op : {LAZYT_OP_MAX_POOL2D_WITH_INDICES, LAZYT_OP_MAX_POOL3D_WITH_INDICES, LAZYT_OP_ADAPTIVE_MAX_POOL2D, LAZYT_OP_AVG_POOL1D, LAZYT_OP_AVG_POOL2D,
                        LAZYT_OP_AVG_POOL3D, LAZYT_OP_ADAPTIVE_AVG_POOL1D, LAZYT_OP_ADAPTIVE_AVG_POOL2D, LAZYT_OP_ADAPTIVE_AVG_POOL3D})
    all.add(op, pool);
  for (lazyt_op_t op : {LAZYT_OP_MAX_POOL2D_WITH_INDICES_BACKWARD, LAZYT_OP_AVG_POOL2D_BACKWARD, LAZYT_OP_ADAPTIVE_AVG_POOL2D_BACKWARD}) all.add(op, gradient);
}

}  // namespace taps
}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_POOLING_HPP_
