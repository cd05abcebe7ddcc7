#include "trace/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "ir/shapes.h"
#include "ir/verifier.h"
#include "partition/compile.h"
#include "passes/decomposition.h"
#include "passes/pipeline.h"
#include "trace/lower.h"

namespace lazyt::trace {

std::string where(const Tape& tape) {
  for (size_t i = tape.tokens.size(); i-- > 0;)
    if (tape.token(i).source)
      return fmt::format("{}:{}", tape.token(i).source->file, tape.token(i).source->line);
  return "";
}

base::Status optimise(ir::Graph& graph) {
  static const auto& verify_each = *new base::Result<bool>(base::env_bool("LAZYT_VERIFY", false));
  LAZYT_RETURN_IF_ERROR(verify_each.status());
  LAZYT_RETURN_IF_ERROR(passes::run_pipeline(graph, verify_each.value()));
  return verify_each.value() ? base::Status() : ir::verify(graph);
}

base::Result<int64_t> piece_bytes() {
  static const auto& bytes = *new base::Result<int64_t>(base::env_int("LAZYT_PIECE_BYTES", 1 << 20, 0, int64_t{1} << 40));
  return bytes;
}

base::Result<Prepared> prepare(const Tape& tape, std::span<const uint32_t> outputs) {
  Prepared p;
  LAZYT_ASSIGN_OR_RETURN(p.graph, lower(tape, outputs));
  // Before passes let an output have any input's memory.
  for (const ir::Output& out : p.graph.outputs) p.rewrites.push_back(out.donor);
  p.whole = std::ranges::any_of(p.rewrites, [](uint32_t input) { return input != ir::kNone; });
  LAZYT_RETURN_IF_ERROR(optimise(p.graph));
  p.program = ir::Program::from_graph(p.graph);
  p.key = cache::ProgramCache::key(*p.program, tape.flags, p.whole);
  p.flags = tape.flags;
  p.name = where(tape);
  return p;
}

base::Result<Compilation> Compilation::begin(Prepared prepared, const base::Ref<loader::Device>& device,
                                             cache::ProgramCache& programs, exec::HostRunner* host_runner) {
  Compilation c;
  Compiled& result = c.result_;
  result.rewrites = std::move(prepared.rewrites);
  if (auto plan = programs.find(prepared.key); plan && plan->device == device) {
    result.plan = std::move(plan);
    result.cached = true;
    return c;
  }
  std::string dump;  // a path without its ending
  if (auto folder = base::env("LAZYT_DUMP")) {
    std::error_code ignored;  // what is wrong is said by who writes
    std::filesystem::create_directories(*folder, ignored);
    dump = fmt::format("{}/program_{}", *folder, programs.size());
    if (auto s = prepared.program->save(dump + ".lzp"); !s.ok())
      base::log(LAZYT_LOG_WARNING, "LAZYT_DUMP: " + s.to_string());
  }
  LAZYT_RETURN_IF_ERROR(ir::verify_shapes(prepared.graph));  // a plugin may take them for granted (PRG-10)
  LAZYT_ASSIGN_OR_RETURN(const int64_t bytes, piece_bytes());
  LAZYT_ASSIGN_OR_RETURN(c.plan_, partition::Compilation::begin(std::move(prepared.graph), prepared.program.get(), device, prepared.flags, host_runner,
                                                                &result.refusals, &passes::decompose_and_mark,
                                                                {prepared.whole ? 0 : static_cast<uint64_t>(bytes), &programs.executables(), std::move(dump)}));
  c.programs_ = &programs;
  c.key_ = prepared.key;
  c.name_ = std::move(prepared.name);
  return c;
}

base::Status Compilation::advance() {
  if (!plan_->done()) LAZYT_RETURN_IF_ERROR(plan_->advance());
  if (!plan_->done()) return {};
  result_.plan = plan_->plan();
  result_.plan->name = std::move(name_);
  programs_->insert(key_, result_.plan);
  return {};
}

base::Result<Compiled> compile(Prepared prepared, const base::Ref<loader::Device>& device,
                               cache::ProgramCache& programs, exec::HostRunner* host_runner) {
  LAZYT_ASSIGN_OR_RETURN(Compilation c, Compilation::begin(std::move(prepared), device, programs, host_runner));
  while (!c.done()) LAZYT_RETURN_IF_ERROR(c.advance());
  return std::move(c).result();
}

}  // namespace lazyt::trace
