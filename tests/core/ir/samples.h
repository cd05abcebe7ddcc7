// Programs that the tests of this folder share.
#pragma once

#include "ir/graph.h"

namespace lazyt::ir {

// Everything a program can say, once.
inline Graph sample_graph() {
  auto f32 = [](base::Dims dims) { return Meta::contiguous(LAZYT_DTYPE_FLOAT32, std::move(dims)); };
  auto v = [](ValueId id) { return Arg::of_value(id); };
  auto here = std::make_shared<SourceLine>(SourceLine{"train me.py", "encoder.0", 12});
  auto there = std::make_shared<SourceLine>(SourceLine{"model.py", "", 7});
  Graph g;
  ValueId x = g.add_input(f32({2, 3}));
  g.inputs[0].may_donate = true;
  ValueId w = g.add_input({LAZYT_DTYPE_FLOAT32, {2, 3}, {1, 2}});
  ValueId lr = g.add_host_scalar(LAZYT_DTYPE_FLOAT64, true);
  ValueId seed = g.add_host_scalar(LAZYT_DTYPE_INT64, false);
  ValueId offset = g.add_host_scalar(LAZYT_DTYPE_INT64, false);
  ValueId k = g.add_constant(f32({2}), {0, 0, 128, 63, 0, 0, 0, 64});
  ValueId sum = g.add_op("aten::add", "Tensor", {v(x), v(w), v(lr)}, f32({2, 3}), here);
  g.values[sum].may_overwrite = true;
  NodeId drop = g.add_node("lazyt::dropout", "", {v(sum), Arg::of_double(0.5), v(seed), v(offset)},
                           {f32({2, 3}), Meta::contiguous(LAZYT_DTYPE_BOOL, {2, 3})}, there);
  ValueId dropped = g.nodes[drop].first_result;
  NodeId odd =
      g.add_node("mylib::odd", "all_kinds",
                 {Arg::none(), Arg::of_list({v(k), Arg::none(), Arg::of_int(-3), Arg::of_double(-0.0)}),
                  Arg::of_int(INT64_MIN), Arg::of_double(1e300), Arg::of_bool(true), Arg::of_ints({-1, 2}),
                  Arg::of_ints({1, 0}, LAZYT_ARG_BOOLS), Arg::of_doubles({0.1, -1.0}),
                  Arg::of_complex({1, -2}), Arg::of_string("a \"b\"\n\\"), Arg::of_ints({}),
                  Arg::of_int(LAZYT_DTYPE_BFLOAT16, LAZYT_ARG_DTYPE), Arg::of_int(2, LAZYT_ARG_MEMORY_FORMAT),
                  Arg::of_int(0, LAZYT_ARG_LAYOUT), Arg::of_int(0, LAZYT_ARG_DEVICE), Arg::of_list({})},
                 {f32({2, 3}), f32({}), f32({0, 3})}, there);
  g.outputs.push_back({dropped, 0});
  g.outputs.push_back({g.nodes[odd].first_result});
  return g;
}

}  // namespace lazyt::ir
