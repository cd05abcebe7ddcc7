// Shapes: the dims of each result are those that the operator gives for its operands' (PRG-10).
#pragma once

#include <string_view>

#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::ir {

// INVALID_ARGUMENT naming the node and what of it does not fit. Operators outside the opset are left to who knows
// them. What PyTorch recorded fits; a file may say anything, and a kernel that is given dims that do not fit reads and
// writes where it must not.
// REQUIRES: verify(graph) is OK.
base::Status verify_shapes(const Graph& graph);
// There is a rule for the operator: of all of the opset, a test says.
bool has_shape_rule(std::string_view name, std::string_view overload);

}  // namespace lazyt::ir
