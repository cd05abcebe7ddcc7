// Pieces: where a program that the plugin takes whole is cut all the same, so that its beginning can run while the
// rest is still recorded (trace/early.h).
//
// It is cut only where that costs next to nothing: each piece reads weights enough that their way from memory hides another
// call of the plugin, and what crosses is small. So it happens to a token of a language model, and to no training, large batch or
// convolution. It depends on the program alone: the same program has the same pieces, and so the same results, at each run.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "loader/handles.h"

namespace lazyt::partition {

// The first node of each piece but the first, ascending; empty: the program stays whole. bytes: of inputs that a piece reads
// first, but of the first piece, which is smaller, at least; 0: it stays whole. Nodes that the plugin wants together (answers) stay so.
std::vector<ir::NodeId> piece_starts(const ir::Graph& graph, const std::vector<loader::NodeAnswer>& answers, uint64_t bytes);

}  // namespace lazyt::partition
