#include "partition/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"

namespace lazyt::partition {

namespace {

// "aten::lgamma, aten::digamma and 3 more"
template <class Items, class Name>
std::string first_names(const Items& items, Name name) {
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kNamed); i++) text += (i > 0 ? ", " : "") + name(items[i]);
  if (items.size() > kNamed) text += fmt::format(" and {} more", items.size() - kNamed);
  return text;
}

void log_refusals(const std::string& backend, const std::vector<Refusal>& refusals) {
  if (!base::log_enabled(LAZYT_LOG_DEBUG)) return;
  for (const Refusal& r : refusals)
    base::log(LAZYT_LOG_DEBUG, fmt::format("{} refused {} ({}){}{}; it runs on the host", backend, r.op,
                                           r.reason, r.line.empty() ? "" : " at ", r.line));
}

exec::Source to_exec(const Source& source) {
  return {source.segment == Source::kProgram ? exec::Source::kProgram : source.segment, source.index};
}

std::vector<exec::Source> to_exec(const std::vector<Source>& sources) {
  std::vector<exec::Source> result;
  result.reserve(sources.size());
  for (const Source& source : sources) result.push_back(to_exec(source));
  return result;
}

base::Result<std::vector<loader::NodeAnswer>> ask(const ir::Graph& graph, const base::Ref<loader::Device>& device) {
  return loader::query_capability(*device, *ir::Program::from_graph(graph));
}

std::vector<bool> refused_nodes(const ir::Graph& graph, const std::vector<loader::NodeAnswer>& answers) {
  std::vector<bool> refused(graph.nodes.size(), true);  // no answer is a refusal
  for (size_t n = 0; n < std::min(refused.size(), answers.size()); n++)
    refused[n] = !is_taken(graph, graph.nodes[n], answers[n]);
  return refused;
}

// The graph with what the plugin refuses made of what it takes, and its answers; nothing if there is none.
base::Result<std::optional<ir::Graph>> decompose_refused(const ir::Graph& graph,
                                                         const base::Ref<loader::Device>& device,
                                                         std::vector<loader::NodeAnswer>& answers,
                                                         const Decompose& decompose) {
  if (!decompose) return std::optional<ir::Graph>();
  std::vector<bool> refused = refused_nodes(graph, answers);
  if (std::ranges::find(refused, true) == refused.end()) return std::optional<ir::Graph>();
  auto refuses = [&](const ir::Graph& pieces) -> base::Result<std::vector<bool>> {
    LAZYT_ASSIGN_OR_RETURN(const auto new_answers, ask(pieces, device));
    return refused_nodes(pieces, new_answers);
  };
  LAZYT_ASSIGN_OR_RETURN(auto decomposed, decompose(graph, std::move(refused), refuses));
  if (!decomposed) return decomposed;
  LAZYT_ASSIGN_OR_RETURN(answers, ask(*decomposed, device));
  return decomposed;
}

// The graph as it will run: what is refused decomposed where that helps, then cut.
base::Result<Partition> partition_for(ir::Graph graph, const ir::Program* program, const base::Ref<loader::Device>& device,
                                      const Decompose& decompose, uint64_t piece_bytes = 0) {
  std::vector<loader::NodeAnswer> answers;
  if (!graph.nodes.empty()) {
    LAZYT_ASSIGN_OR_RETURN(answers, program ? loader::query_capability(*device, *program) : ask(graph, device));
  }
  LAZYT_ASSIGN_OR_RETURN(std::optional<ir::Graph> decomposed, decompose_refused(graph, device, answers, decompose));
  return cut(decomposed ? *std::move(decomposed) : std::move(graph), answers, device->synchronous() ? piece_bytes : 0);
}

}  // namespace

base::Result<std::vector<Refusal>> refusals(const ir::Graph& graph, const base::Ref<loader::Device>& device,
                                            const Decompose& decompose) {
  LAZYT_ASSIGN_OR_RETURN(Partition partition, partition_for(graph, nullptr, device, decompose));
  return std::move(partition.refusals);
}

base::Result<Compilation> Compilation::begin(ir::Graph graph, const ir::Program* program, const base::Ref<loader::Device>& device,
                                             lazyt_compile_flags_t flags, exec::HostRunner* host_runner,
                                             std::vector<Refusal>* refusals, const Decompose& decompose, Pieces pieces) {
  Compilation c;
  const size_t nodes = graph.nodes.size();
  LAZYT_ASSIGN_OR_RETURN(c.partition_, partition_for(std::move(graph), program, device, decompose, pieces.bytes));
  const Partition& partition = c.partition_;
  const std::string& backend = device->plugin->info.name;
  log_refusals(backend, partition.refusals);
  if (refusals) refusals->insert(refusals->end(), partition.refusals.begin(), partition.refusals.end());
  if (!host_runner && !partition.refusals.empty())
    return base::failed_precondition(fmt::format(
        "backend '{}' refused {}, and there is nothing to run them on the host", backend,
        first_names(partition.refusals, [](const Refusal& r) { return r.op + " (" + r.reason + ")"; })));

  c.flags_ = flags;
  const bool whole = partition.segments.size() == 1 && partition.segments[0].graph.nodes.size() == nodes;
  if (!whole) c.dump_ = std::move(pieces.dump);
  // A program that is one segment is shared as a plan (cache/program_cache.h).
  if (partition.segments.size() > 1) c.shared_ = pieces.shared;
  c.plan_ = base::make_ref<exec::Plan>();
  c.plan_->device = device;
  c.plan_->host_runner = host_runner;
  c.plan_->outputs = to_exec(partition.outputs);
  c.plan_->steps.reserve(partition.segments.size());
  return c;
}

base::Result<base::Ref<loader::Executable>> Compilation::executable_of(const ir::Graph& graph) {
  const auto program = ir::Program::from_graph(graph);
  if (!dump_.empty())
    if (auto s = program->save(fmt::format("{}.segment_{}.lzp", dump_, plan_->steps.size() + 1)); !s.ok())
      base::log(LAZYT_LOG_WARNING, "LAZYT_DUMP: " + s.to_string());
  if (!shared_) return loader::Executable::compile(plan_->device, *program, flags_);
  return shared_->get(plan_->device, *program, flags_, turns_);
}

base::Status Compilation::advance() {
  const size_t s = plan_->steps.size();
  Segment& segment = partition_.segments[s];
  exec::Step step;
  if (!segment.on_host) {
    auto executable = executable_of(segment.graph);
    if (!executable.ok())
      return executable.status().with_note(
          "compile",
          fmt::format("segment {} of {}: {}", s + 1, partition_.segments.size(),
                      first_names(segment.graph.nodes, [](const ir::Node& n) { return n.name; })));
    step.executable = std::move(executable).value();
  }
  for (const ir::Output& out : segment.graph.outputs) step.donors.push_back(out.donor);
  step.operators = exec::describe_operators(segment.graph, !segment.on_host);
  if (segment.on_host) step.graph = std::make_unique<const ir::Graph>(std::move(segment.graph));
  step.inputs = to_exec(segment.inputs);
  plan_->steps.push_back(std::move(step));
  return {};
}

}  // namespace lazyt::partition
