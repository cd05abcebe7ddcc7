// How near the results are is said at each rule (decomposition_rules.cpp): equal bits, or a bound.
#include "passes/decomposition.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

#include "base/log.h"
#include "ir/registry.h"
#include "ir/verifier.h"
#include "passes/pass.h"

namespace lazyt::passes {

namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

Rule rule_of(const ir::Node& node) {
  const ir::OpInfo* op = ir::find_op(node.name, node.overload);
  if (!op) return find_rule(node.name);
  return op->decomposition.empty() ? nullptr : find_rule(op->decomposition);
}

// False where a round would only copy.
bool has_rule(const Graph& graph, const std::vector<bool>& refused, const std::vector<bool>& stays,
              const std::vector<NodeId>& origin) {
  for (NodeId n = 0; n < graph.nodes.size(); n++)
    if (refused[n] && !stays[origin[n]] && rule_of(graph.nodes[n])) return true;
  return false;
}

// One round: refused nodes with a rule become pieces, once.
class Round {
 public:
  Round(const Graph& graph, const std::vector<NodeId>& origin) : rewriter_(graph), origin_(origin) {
    is_output_.assign(graph.values.size(), false);
    for (const ir::Output& out : graph.outputs) is_output_[out.value] = true;
  }

  // stays: by original node. changed: original nodes that became pieces.
  Graph run(const std::vector<bool>& refused, const std::vector<bool>& stays, std::vector<bool>& changed) {
    for (NodeId n = 0; n < rewriter_.from.nodes.size(); n++) {
      const ir::Node& node = rewriter_.from.nodes[n];
      Rule rule = refused[n] && !stays[origin_[n]] ? rule_of(node) : nullptr;
      if (rule && replace(node, rule))
        any = changed[origin_[n]] = true;
      else
        rewriter_.copy(n);
      origin.resize(rewriter_.to.nodes.size(), origin_[n]);
    }
    return rewriter_.finish();
  }

  std::vector<NodeId> origin;  // by new node
  bool any = false;

 private:
  bool replace(const ir::Node& node, Rule rule) {
    Graph& to = rewriter_.to;
    const size_t nodes = to.nodes.size(), values = to.values.size();
    Results made = apply(rule, node);
    if (made && (made->size() != node.result_count || std::ranges::any_of(*made, [&](ValueId v) { return v >= to.values.size(); }))) made.reset();
    // Operands that a rule did not think of, which broadcast, say, give another shape.
    for (uint32_t r = 0; made && r < node.result_count; r++) {
      const ir::Meta &is = to.values[(*made)[r]].meta, &was = rewriter_.from.values[node.first_result + r].meta;
      if (is.dims != was.dims || is.dtype != was.dtype) made.reset();
    }
    if (!made) {
      to.nodes.resize(nodes);
      to.values.resize(values);
      return false;
    }
    for (uint32_t r = 0; r < node.result_count; r++) rewriter_.map[node.first_result + r] = own((*made)[r], node, r, values);
    return true;
  }

  // Nothing where the node is not what the rule takes it for.
  Results apply(Rule rule, const ir::Node& node) {
    const auto countable = [](const ir::Graph& g, ValueId v) { return base::is_countable(g.values[v].meta.dims); };
    try {
      Pieces pieces(rewriter_, node);
      bool fits = true;
      for (const ir::Arg& a : pieces.args) {
        ir::for_each_value(a, [&](ValueId v) { fits &= countable(rewriter_.to, v); });
        // Lists are sizes, axes and paddings.
        for (int64_t n : a.ints) fits &= n >= -base::kMostElements && n <= base::kMostElements;
      }
      for (uint32_t r = 0; r < node.result_count; r++) fits &= countable(rewriter_.from, node.first_result + r);
      return fits ? rule(pieces) : kNot;
    } catch (const std::out_of_range&) {
      return kNot;
    }
  }

  // An output is a value of its own, and lies as before.
  ValueId own(ValueId v, const ir::Node& node, uint32_t r, size_t first_new) {
    Graph& to = rewriter_.to;
    const ValueId old = node.first_result + r;
    const ir::Meta& meta = rewriter_.from.values[old].meta;
    if (!is_output_[old]) return v;
    if (v >= first_new && used_.insert(v).second) {
      to.values[v].meta.strides = meta.strides;
      return v;
    }
    v = to.add_op("aten::clone", "", {ir::Arg::of_value(v), ir::Arg::none()}, meta, node.source);
    used_.insert(v);
    return v;
  }

  Rewriter rewriter_;
  const std::vector<NodeId>& origin_;
  std::vector<bool> is_output_;
  std::unordered_set<ValueId> used_;  // new values that are outputs
};

}  // namespace

base::Result<std::optional<Graph>> decompose(const Graph& graph, std::vector<bool> refused,
                                             const Refuses& refuses) {
  constexpr int kDepth = 4;  // pieces of pieces
  const size_t count = graph.nodes.size();
  std::vector<bool> stays(count, false);
  // The second attempt leaves what failed in the first; that another fails then is not to be expected.
  for (int attempt = 0; attempt < 3; attempt++) {
    Graph pieces;
    const Graph* now = &graph;
    std::vector<bool> changed(count, false), refused_now = refused;
    std::vector<NodeId> origin(count);
    for (NodeId n = 0; n < count; n++) origin[n] = n;
    for (int depth = 0; depth < kDepth; depth++) {
      if (!has_rule(*now, refused_now, stays, origin)) break;
      Round round(*now, origin);
      Graph next = round.run(refused_now, stays, changed);
      if (!round.any) break;
      pieces = std::move(next);
      now = &pieces;
      origin = std::move(round.origin);
      LAZYT_ASSIGN_OR_RETURN(refused_now, refuses(pieces));
    }
    bool failed = false;
    for (NodeId n = 0; n < now->nodes.size(); n++)
      if (refused_now[n] && changed[origin[n]]) failed = stays[origin[n]] = true;
    if (failed) continue;
    if (std::ranges::find(changed, true) == changed.end()) return std::optional<Graph>();
    // A rule hands on what its node had, which an operator of the opset may not have.
    if (const base::Status status = ir::verify(pieces); !status.ok()) {
      base::log(LAZYT_LOG_WARNING, "nothing is decomposed; of the pieces, the verifier says: " + status.to_string());
      return std::optional<Graph>();
    }
    return std::optional<Graph>(std::move(pieces));
  }
  return std::optional<Graph>();
}

base::Result<std::optional<ir::Graph>> decompose_and_mark(const ir::Graph& graph, std::vector<bool> refused,
                                                          const Refuses& refuses) {
  LAZYT_ASSIGN_OR_RETURN(auto decomposed, decompose(graph, std::move(refused), refuses));
  if (decomposed) {
    LAZYT_RETURN_IF_ERROR(dead_code(*decomposed));  // pieces of a result that nobody reads
    LAZYT_RETURN_IF_ERROR(donation(*decomposed));
  }
  return decomposed;
}

}  // namespace lazyt::passes
