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

// Evaluates what depends on constants alone and is exact without a kernel: views and exact casts of constants,
// reshapes and casts of filled tensors; an expanded filled tensor where its readers cannot tell.
base::Status constant_folding(ir::Graph& graph);

// Lets readers of a node that changes nothing read its operand (a reshape to the same shape, a copy that
// lies the same, times one), and makes one of two moves of bytes (reshape of reshape, permute of permute,
// slice of slice; slice of what was written elsewhere). Nodes whose result is an output stay.
base::Status algebraic_noops(ir::Graph& graph);

// Makes one concatenation of the sum of gradients of slices (select_backward, slice_backward), with what lies between them zeros.
base::Status slice_gradients(ir::Graph& graph);

// Orders nodes for a lower peak of live bytes, by an estimate; keeps the order if it gains nothing.
// O(n log n).
base::Status memory_order(ir::Graph& graph);

// Names donors (PRG-8): an output takes over an input that lies the same, may be donated, and has no
// reader after the output's producer (readers of its views count). Marks results that nobody reads
// after the program as may_overwrite.
base::Status donation(ir::Graph& graph);

}  // namespace lazyt::passes
