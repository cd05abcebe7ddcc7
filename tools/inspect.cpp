// lazyt inspect: a program file as text.
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/program.h"
#include "ir/text.h"
#include "program_file.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

std::map<std::string, int> operators(const ir::Graph& graph) {
  std::map<std::string, int> out;
  for (const ir::Node& n : graph.nodes) out[n.overload.empty() ? n.name : n.name + "." + n.overload]++;
  return out;
}

void print_summary(const std::string& file, const ir::Program& program, const ir::Graph& graph) {
  fmt::print("{}: {} bytes, {} inputs, {} outputs, {} constants, {} nodes\n", file, program.bytes().size(),
             graph.inputs.size(), graph.outputs.size(), graph.constants.size(), graph.nodes.size());
  for (const auto& [name, count] : operators(graph)) fmt::print("{:6} {}\n", count, name);
}

void print_json(const std::string& file, const ir::Program& program, const ir::Graph& graph) {
  const nlohmann::ordered_json root{{"lazyt_program", 1},
                                    {"file", file},
                                    {"bytes", program.bytes().size()},
                                    {"hash", program.hash(0).to_string()},
                                    {"inputs", graph.inputs.size()},
                                    {"outputs", graph.outputs.size()},
                                    {"constants", graph.constants.size()},
                                    {"nodes", graph.nodes.size()},
                                    {"operators", operators(graph)},
                                    {"text", ir::print(graph)}};
  // Paths and names in a file need not be UTF-8.
  fmt::print("{}\n", root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run(const std::string& file, bool summary, bool json) {
  auto program = load_program(file);
  if (!program.ok()) {
    fmt::print(stderr, "{}: {}\n", file, program.status().to_string());
    return 1;
  }
  const ir::Graph graph = program.value()->to_graph();
  if (json)
    print_json(file, *program.value(), graph);
  else if (summary)
    print_summary(file, *program.value(), graph);
  else
    fmt::print("{}", ir::print(graph));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_status) {
  auto file = std::make_shared<std::string>();
  auto summary = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  CLI::App* verb =
      app.add_subcommand("inspect", "Print a program file (.lzp) as text, after checking all of it");
  verb->add_option("file", *file, "What LAZYT_DUMP wrote")->required();
  verb->add_flag("--summary", *summary, "Only sizes, and how often each operator is used");
  verb->add_flag("--json", *json, "Sizes, operators and text, for scripts");
  verb->callback([file, summary, json, &exit_status] { exit_status = run(*file, *summary, *json); });
}

}  // namespace lazyt::tools
