// Random operators as nodes: lazyt's own draw, whose numbers depend on (seed, offset, element) alone (PRG-7), and what
// makes the operator's distribution of them.
#pragma once

#include <vector>

#include "base/status.h"
#include "trace/nodes.h"
#include "trace/op.h"

namespace lazyt::trace {

// What the functional form of op (any lowering that draws) returns. results: their metas.
base::Result<std::vector<ir::ValueId>> lower_random(const Nodes& nodes, const Op& op, const std::vector<ir::Arg>& args,
                                                    const std::vector<base::Meta>& results, const ir::Arg& seed,
                                                    const ir::Arg& offset);

}  // namespace lazyt::trace
