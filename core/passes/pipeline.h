// The pipeline: which passes run over a recorded program, in which order.
#pragma once

#include <span>

#include "passes/pass.h"

namespace lazyt::passes {

std::span<const Pass> pipeline();

// Runs them all. With verify_each the graph is checked before the first and after each; a pass that
// breaks it is an INTERNAL error that names the pass.
base::Status run_pipeline(ir::Graph& graph, bool verify_each);

}  // namespace lazyt::passes
