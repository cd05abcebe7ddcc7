// compile: from a whole program to a plan: ask the plugin, cut, compile what it takes.
#pragma once

#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "exec/host_runner.h"
#include "exec/plan.h"
#include "ir/graph.h"
#include "loader/handles.h"
#include "partition/partition.h"

namespace lazyt::partition {

// The plan has no name yet: its owner gives it one. host_runner may be null when nothing is refused;
// else FAILED_PRECONDITION names the operators. refusals: appended to, also when compiling
// fails; may be null. REQUIRES: graph is verified. [any thread]
base::Result<base::Ref<exec::Plan>> compile(const ir::Graph& graph, const base::Ref<loader::Device>& device,
                                            lazyt_compile_flags_t flags, exec::HostRunner* host_runner,
                                            std::vector<Refusal>* refusals = nullptr);

}  // namespace lazyt::partition
