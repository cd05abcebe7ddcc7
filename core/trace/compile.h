// Compile: from a tape to a plan, in two steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "cache/program_cache.h"
#include "exec/host_runner.h"
#include "exec/plan.h"
#include "ir/graph.h"
#include "loader/handles.h"
#include "partition/compile.h"
#include "trace/tape.h"

namespace lazyt::trace {

// What needs no device: the tape's program, optimised and verified.
struct Prepared {
  ir::Graph graph;
  base::Ref<ir::Program> program;  // the same
  std::vector<uint32_t> rewrites;  // as Variant's
  bool whole = false;  // what it writes in place stays as it was if it fails: it is not cut into pieces
  cache::ProgramCache::Key key{};
  lazyt_compile_flags_t flags = 0;
  std::string name;  // of the plan
};
// outputs: slots. [any thread]
base::Result<Prepared> prepare(const Tape& tape, std::span<const uint32_t> outputs);

// LAZYT_PIECE_BYTES: as partition::compile's. [any thread]
base::Result<int64_t> piece_bytes();

struct Compiled {
  base::Ref<exec::Plan> plan;
  std::vector<uint32_t> rewrites;
  std::vector<partition::Refusal> refusals;
  bool cached = false;  // the plan was there
};
// A program in the making, a segment at a time. [one thread at a time]
class Compilation {
 public:
  // As compile()'s.
  static base::Result<Compilation> begin(Prepared prepared, const base::Ref<loader::Device>& device,
                                         cache::ProgramCache& programs, exec::HostRunner* host_runner);
  bool done() const { return result_.plan != nullptr; }
  // REQUIRES: !done()
  base::Status advance();
  // REQUIRES: done()
  Compiled result() && { return std::move(result_); }

 private:
  std::optional<partition::Compilation> plan_;  // none: it was there
  cache::ProgramCache* programs_ = nullptr;
  cache::ProgramCache::Key key_{};
  std::string name_;
  Compiled result_;
};
// With LAZYT_DUMP, what is compiled is written there, too.
base::Result<Compiled> compile(Prepared prepared, const base::Ref<loader::Device>& device,
                               cache::ProgramCache& programs, exec::HostRunner* host_runner);

// The passes, and a check of what is about to cross to a plugin: of every pass's work with LAZYT_VERIFY.
base::Status optimise(ir::Graph& graph);

// The line of the tape's last operator that has one: where the step ended, for messages.
std::string where(const Tape& tape);

}  // namespace lazyt::trace
