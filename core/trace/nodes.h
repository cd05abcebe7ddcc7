// Nodes: the ones that lowering makes by itself.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "trace/views.h"

namespace lazyt::trace {

// Adds nodes to a graph, for one line of the user's program. Results are row-major.
struct Nodes {
  ir::Graph& graph;
  const SourceRef& source;

  const base::Meta& meta(ir::ValueId v) const { return graph.values[v].meta; }

  ir::ValueId add(std::string name, std::string overload, std::vector<ir::Arg> args, base::DType dtype, base::Dims dims) const {
    return graph.add_op(std::move(name), std::move(overload), std::move(args), base::Meta::contiguous(dtype, std::move(dims)), source);
  }
  // Of the operand's dtype and shape: op(v, more...).
  ir::ValueId map(std::string name, std::string overload, ir::ValueId v, std::vector<ir::Arg> more = {}) const {
    more.insert(more.begin(), ir::Arg::of_value(v));
    return add(std::move(name), std::move(overload), std::move(more), base::DType(meta(v).dtype), base::Dims(meta(v).dims));
  }
  ir::ValueId cast(ir::ValueId v, base::DType dtype) const {
    if (meta(v).dtype == dtype) return v;
    return add("aten::_to_copy", "",
               {ir::Arg::of_value(v), ir::Arg::of_int(dtype, LAZYT_ARG_DTYPE), ir::Arg::none(), ir::Arg::none(), ir::Arg::none(),
                ir::Arg::of_bool(false), ir::Arg::none()},
               dtype, base::Dims(meta(v).dims));
  }
  ir::ValueId expand(ir::ValueId v, const base::Dims& dims) const {
    if (meta(v).dims == dims) return v;
    return add("aten::expand", "", {ir::Arg::of_value(v), ir::Arg::of_ints(dims), ir::Arg::of_bool(false)}, meta(v).dtype, dims);
  }
  // The same elements in another shape, or broadcast to it: arange(4, out=t) fills a t of 2 x 2.
  ir::ValueId fit(ir::ValueId v, const base::Dims& dims) const {
    if (meta(v).dims == dims || meta(v).numel() != base::numel(dims)) return expand(v, dims);
    return add("aten::reshape", "", {ir::Arg::of_value(v), ir::Arg::of_ints(dims)}, meta(v).dtype, dims);
  }
  // v, and the step fails with these words unless all of the condition holds.
  ir::ValueId checked(ir::ValueId v, ir::ValueId condition, const char* words) const {
    const ir::ValueId all = add("aten::all", "", {ir::Arg::of_value(condition)}, LAZYT_DTYPE_BOOL, {});
    return add("aten::_functional_assert_async", "msg", {ir::Arg::of_value(all), ir::Arg::of_string(words), ir::Arg::of_value(v)},
               meta(v).dtype, base::Dims(meta(v).dims));
  }
  ir::ValueId full(const base::Dims& dims, ir::Arg number, base::DType dtype) const {
    return add("aten::full", "", {ir::Arg::of_ints(dims), std::move(number), ir::Arg::of_int(dtype, LAZYT_ARG_DTYPE),
                                  ir::Arg::of_int(0, LAZYT_ARG_LAYOUT), ir::Arg::of_int(0, LAZYT_ARG_DEVICE), ir::Arg::none()},
               dtype, dims);
  }
};

}  // namespace lazyt::trace
