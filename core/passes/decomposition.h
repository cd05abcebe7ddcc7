// Decomposition: operators that a plugin refuses become operators that it takes.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "passes/pieces.h"

namespace lazyt::passes {

// By node of the graph: true if the plugin does not take it.
using Refuses = std::function<base::Result<std::vector<bool>>(const ir::Graph&)>;

// The graph with each refused node made of pieces, where there is a rule and all pieces are taken (they may
// be decomposed in turn); a node with a refused piece stays as it was. Nothing if no node was decomposed.
// refused: refuses(graph). The new values have no donation marks.
base::Result<std::optional<ir::Graph>> decompose(const ir::Graph& graph, std::vector<bool> refused,
                                                 const Refuses& refuses);

// decompose, then donation: what partition::compile takes as its hook.
base::Result<std::optional<ir::Graph>> decompose_and_mark(const ir::Graph& graph, std::vector<bool> refused,
                                                          const Refuses& refuses);

// Replaces a node: its results, made of pieces; nothing if this node cannot be (a dtype, a host scalar in
// the place of a number that decides).
using Rule = std::optional<std::vector<ir::ValueId>> (*)(Pieces&);
// The rule named by the operator's `decomposition` in ops.toml, or of an operator outside the opset by its own name; or null.
// decomposition_rules.cpp.
Rule find_rule(std::string_view name);

using Rules = std::unordered_map<std::string_view, Rule>;
// Of operators outside the opset, each in a file of its name.
const Rules& outside_rules();
const Rules& window_rules();
const Rules& bag_rules();
const Rules& sampling_rules();
const Rules& recurrent_rules();
// All of these.
std::span<const Rules* const> rules_outside();

}  // namespace lazyt::passes
