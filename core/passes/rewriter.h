// Rewriter: copies a graph node by node into a new one, in another order or with other nodes between.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace lazyt::passes {

class Rewriter {
 public:
  // Takes over inputs and constants.
  explicit Rewriter(const ir::Graph& from);
  // The node with its operands mapped. REQUIRES: they are.
  ir::NodeId copy(ir::NodeId n);
  std::vector<ir::Arg> map_args(const ir::Node& node) const;
  // The new graph with the old one's outputs. REQUIRES: each output is mapped.
  ir::Graph finish();

  const ir::Graph& from;
  ir::Graph to;
  std::vector<ir::ValueId> map;  // by old value
};

}  // namespace lazyt::passes
