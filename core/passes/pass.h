// Passes: rewrites of a graph that keep what it computes, bit for bit. One file per pass.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::passes {

struct Pass {
  const char* name;  // of its file
  base::Status (*run)(ir::Graph&);
};

// Removes nodes that no output needs. Every operator is pure (PRG-1), random ones too: they are
// functions of seed and offset.
base::Status dead_code(ir::Graph& graph);

// Lets readers of a node that computes what an earlier one does read the earlier one, and removes it;
// the same for constants. Equal means: operator, arguments by their bits (-0.0 is not 0.0), result metas.
// A node stays when an output is its result, so that no value is two outputs that were two before.
base::Status common_subexpressions(ir::Graph& graph);

// Names donors (PRG-8): an output takes over an input that lies the same, may be donated, and has no
// reader after the output's producer (readers of its views count). Marks results that nobody reads
// after the program as may_overwrite.
base::Status donation(ir::Graph& graph);

}  // namespace lazyt::passes
