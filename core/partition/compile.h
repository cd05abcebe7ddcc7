// compile: from a whole program to a plan: ask the plugin, cut, compile what it takes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "cache/executables.h"
#include "exec/host_runner.h"
#include "exec/plan.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "loader/handles.h"
#include "partition/partition.h"

namespace lazyt::partition {

// By node: true if the backend does not take it.
using Refuses = std::function<base::Result<std::vector<bool>>(const ir::Graph&)>;
// Makes refused nodes of what is taken (passes/decomposition.h); nothing if no node could be. A hook, since the
// passes stand before this folder. refused: refuses(graph).
using Decompose = std::function<base::Result<std::optional<ir::Graph>>(const ir::Graph& graph, std::vector<bool> refused,
                                                                       const Refuses& refuses)>;

// How what is taken whole is cut all the same, on synchronous devices.
struct Pieces {
  uint64_t bytes = 0;                    // as cut()'s
  cache::Executables* shared = nullptr;  // what other plans' pieces and segments are; null: each is compiled
  std::string dump;  // a path: what the device gets is written to it + ".segment_N.lzp", unless it is the whole program
};

// A plan in the making, a segment at a time: for a thread that has other things to do between. [one thread at a time]
class Compilation {
 public:
  // Asks and cuts. program: the graph's, if there is one already. host_runner may be null when nothing is refused;
  // else FAILED_PRECONDITION names the operators. refusals: appended to, also when compiling
  // fails; may be null. Without decompose, what is refused runs on the host as it is. REQUIRES: graph is verified. [any thread]
  static base::Result<Compilation> begin(ir::Graph graph, const ir::Program* program, const base::Ref<loader::Device>& device,
                                         lazyt_compile_flags_t flags, exec::HostRunner* host_runner,
                                         std::vector<Refusal>* refusals, const Decompose& decompose, Pieces pieces);
  bool done() const { return plan_->steps.size() == partition_.segments.size(); }
  // Compiles the next segment. REQUIRES: !done()
  base::Status advance();
  // It has no name yet: its owner gives it one. REQUIRES: done()
  base::Ref<exec::Plan> plan() const { return plan_; }

 private:
  base::Result<base::Ref<loader::Executable>> executable_of(const ir::Graph& graph);

  Partition partition_;
  lazyt_compile_flags_t flags_ = 0;
  cache::Executables* shared_ = nullptr;
  std::string dump_;
  cache::Executables::Turns turns_;
  base::Ref<exec::Plan> plan_;
};

// What of the graph would run on the host, and why.
base::Result<std::vector<Refusal>> refusals(const ir::Graph& graph, const base::Ref<loader::Device>& device,
                                            const Decompose& decompose);

}  // namespace lazyt::partition
