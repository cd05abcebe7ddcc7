// The program that the tests of caches know things by.
#pragma once

#include <memory>

#include "ir/program.h"

namespace lazyt::cache {

// neg of so many elements; line: of its source, 0 = none.
inline base::Ref<ir::Program> program(int64_t size, uint32_t line = 0) {
  ir::Graph graph;
  const auto meta = ir::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {size});
  const auto in = graph.add_input(meta);
  std::shared_ptr<const ir::SourceLine> source;
  if (line != 0) source = std::make_shared<ir::SourceLine>(ir::SourceLine{"model.py", "", line});
  graph.outputs.push_back({graph.add_op("aten::neg", "", {ir::Arg::of_value(in)}, meta, source)});
  return ir::Program::from_graph(graph);
}

}  // namespace lazyt::cache
