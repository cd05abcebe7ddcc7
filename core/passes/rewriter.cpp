#include "passes/rewriter.h"

namespace lazyt::passes {

Rewriter::Rewriter(const ir::Graph& graph) : from(graph), map(graph.values.size(), ir::kNone) {
  for (const ir::Input& in : from.inputs) {
    const ir::Value& value = from.values[in.value];
    map[in.value] = value.kind == ir::ValueKind::kHostScalar ? to.add_host_scalar(value.meta.dtype, value.weak)
                                                             : to.add_input(value.meta);
    to.inputs.back().may_donate = in.may_donate;
  }
  for (const ir::Constant& c : from.constants) map[c.value] = to.add_constant(from.values[c.value].meta, c.bytes);
}

std::vector<ir::Arg> Rewriter::map_args(const ir::Node& node) const {
  std::vector<ir::Arg> args = node.args;
  for (ir::Arg& arg : args) ir::for_each_value(arg, [&](ir::ValueId& v) { v = map[v]; });
  return args;
}

ir::NodeId Rewriter::copy(ir::NodeId n) {
  const ir::Node& node = from.nodes[n];
  std::vector<ir::Meta> metas;
  for (uint32_t r = 0; r < node.result_count; r++) metas.push_back(from.values[node.first_result + r].meta);
  const ir::NodeId made = to.add_node(node.name, node.overload, map_args(node), std::move(metas), node.source);
  for (uint32_t r = 0; r < node.result_count; r++) {
    map[node.first_result + r] = to.nodes[made].first_result + r;
    to.values[to.nodes[made].first_result + r].may_overwrite = from.values[node.first_result + r].may_overwrite;
  }
  return made;
}

ir::Graph Rewriter::finish() {
  for (const ir::Output& out : from.outputs) to.outputs.push_back({map[out.value], out.donor});
  return std::move(to);
}

}  // namespace lazyt::passes
