// lazyt inspect: a program file as text.
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "ir/program.h"
#include "ir/text.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

void print_summary(const std::string& file, const ir::Program& program, const ir::Graph& graph) {
  std::map<std::string, int> operators;
  for (const ir::Node& n : graph.nodes) operators[n.overload.empty() ? n.name : n.name + "." + n.overload]++;
  fmt::print("{}: {} bytes, {} inputs, {} outputs, {} constants, {} nodes\n", file, program.bytes().size(),
             graph.inputs.size(), graph.outputs.size(), graph.constants.size(), graph.nodes.size());
  for (const auto& [name, count] : operators) fmt::print("{:6} {}\n", count, name);
}

int run(const std::string& file, bool summary) {
  auto program = ir::Program::load(file);
  if (!program.ok()) {
    fmt::print(stderr, "{}: {}\n", file, program.status().to_string());
    return 1;
  }
  const ir::Graph graph = program.value()->to_graph();
  if (summary)
    print_summary(file, *program.value(), graph);
  else
    fmt::print("{}", ir::print(graph));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_status) {
  auto file = std::make_shared<std::string>();
  auto summary = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("inspect", "Print a program file (.lzp) as text, after checking all of it");
  verb->add_option("file", *file, "What LAZYT_DUMP wrote")->required();
  verb->add_flag("--summary", *summary, "Only sizes, and how often each operator is used");
  verb->callback([file, summary, &exit_status] { exit_status = run(*file, *summary); });
}

}  // namespace lazyt::tools
