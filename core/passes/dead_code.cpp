#include "passes/pass.h"

namespace lazyt::passes {

base::Status dead_code(ir::Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  std::vector<bool> keep(graph.nodes.size(), false);
  for (const ir::Output& out : graph.outputs) live[out.value] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const ir::Node& node = graph.nodes[n];
    for (uint32_t r = 0; r < node.result_count; r++) keep[n] = keep[n] || live[node.first_result + r];
    if (!keep[n]) continue;
    for (const ir::Arg& arg : node.args) ir::for_each_value(arg, [&](ir::ValueId v) { live[v] = true; });
  }
  graph.compact(keep);
  return {};
}

}  // namespace lazyt::passes
