#include "passes/pipeline.h"

#include <fmt/format.h>

#include "ir/verifier.h"

namespace lazyt::passes {

namespace {

constexpr Pass kPipeline[] = {
    {"dead_code", dead_code},
    {"slice_gradients", slice_gradients},
    // Folding first: what becomes a constant may be equal to another. Both leave nodes that nobody reads.
    {"constant_folding", constant_folding},
    {"algebraic_noops", algebraic_noops},
    {"common_subexpressions", common_subexpressions},
    {"dead_code", dead_code},
    // Only now is it known what lives how long.
    {"memory_order", memory_order},
    // Last: it speaks of values' lifetimes, which the others change.
    {"donation", donation},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

base::Status run_pipeline(ir::Graph& graph, bool verify_each) {
  if (verify_each) LAZYT_RETURN_IF_ERROR(ir::verify(graph).with_note("pipeline", "before the first pass"));
  for (const Pass& pass : kPipeline) {
    if (base::Status s = pass.run(graph); !s.ok()) return s.with_note("pass", pass.name);
    if (!verify_each) continue;
    if (base::Status s = ir::verify(graph); !s.ok())
      return base::internal(fmt::format("pass {} broke the program: {}", pass.name, s.message()));
  }
  return {};
}

}  // namespace lazyt::passes
