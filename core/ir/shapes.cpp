#include "ir/shapes.h"

#include <fmt/format.h>

#include "ir/dtype_rules.h"
#include "ir/registry.h"
#include "ir/shape_rules.h"

namespace lazyt::ir {

base::Status verify_shapes(const Graph& graph) {
  for (NodeId n = 0; n < graph.nodes.size(); n++) {
    const Node& node = graph.nodes[n];
    const OpInfo* op = find_op(node.name, node.overload);
    if (!op) continue;
    try {
      const NodeView view(graph, node);
      check_promotion(view, *op);
      if (const ShapeRule rule = find_shape_rule(node.name, node.overload)) rule(view);
      check_dtypes(view);
    } catch (const Wrong& e) {
      return base::invalid_argument(fmt::format("program: node {} {}: {} (PRG-10)", n, node.name, e.what));
    }
  }
  return {};
}

bool has_shape_rule(std::string_view name, std::string_view overload) { return find_shape_rule(name, overload) != nullptr; }

}  // namespace lazyt::ir
