// Lowering: a tape becomes a program. Storages, views and in-place writes end here; what comes out is pure.
#pragma once

#include <span>

#include "base/status.h"
#include "ir/graph.h"
#include "trace/tape.h"

namespace lazyt::trace {

// The program that computes the given slots of the tape. Inputs: the tape's tensor inputs in order, then
// its host scalars. An output that is the last version of an input's storage names it as donor.
base::Result<ir::Graph> lower(const Tape& tape, std::span<const uint32_t> outputs);

}  // namespace lazyt::trace
