// A plan at once, for tests that run one or look at it.
#pragma once

#include <utility>
#include <vector>

#include "partition/compile.h"

namespace lazyt::partition {

// As Compilation::begin says.
inline base::Result<base::Ref<exec::Plan>> compile(ir::Graph graph, const base::Ref<loader::Device>& device, lazyt_compile_flags_t flags,
                                                   exec::HostRunner* host_runner, std::vector<Refusal>* refusals = nullptr,
                                                   const Decompose& decompose = nullptr, Pieces pieces = {}) {
  LAZYT_ASSIGN_OR_RETURN(Compilation c, Compilation::begin(std::move(graph), nullptr, device, flags, host_runner, refusals, decompose, pieces));
  while (!c.done()) LAZYT_RETURN_IF_ERROR(c.advance());
  return c.plan();
}

}  // namespace lazyt::partition
