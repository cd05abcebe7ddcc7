// lazyt run: a program file on a backend, with inputs that are made up; against another backend, if one is named.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "ir/program.h"
#include "ir/shapes.h"
#include "loader/loader.h"
#include "program_file.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

using Bytes = std::vector<uint8_t>;

struct Arguments {
  std::string file, backend, against;
  uint64_t seed = 1;
  int repeat = 1;
  double tolerance = 1e-4;
  bool json = false;
};

struct Outcome {
  std::string backend;
  std::vector<Bytes> outputs;
  double compile_ms = 0, best_ms = 0;
};

template <class T, class F>
void fill(Bytes& bytes, F next) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    const T value = static_cast<T>(next());
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
}

// Floats from -1 to 1, integers 0 and 1 (they may be indices), other types zeros; the same on every machine.
Bytes made_up(const base::Meta& meta, std::mt19937_64& draw) {
  Bytes bytes(meta.span_bytes());
  auto real = [&draw] { return static_cast<double>(draw() >> 11) * 0x1p-52 - 1; };
  auto bit = [&draw] { return draw() >> 63; };
  switch (meta.dtype) {
    case LAZYT_DTYPE_FLOAT32: fill<float>(bytes, real); break;
    case LAZYT_DTYPE_FLOAT64: fill<double>(bytes, real); break;
    case LAZYT_DTYPE_BOOL:
    case LAZYT_DTYPE_UINT8:
    case LAZYT_DTYPE_INT8: fill<uint8_t>(bytes, bit); break;
    case LAZYT_DTYPE_INT16: fill<int16_t>(bytes, bit); break;
    case LAZYT_DTYPE_INT32: fill<int32_t>(bytes, bit); break;
    case LAZYT_DTYPE_INT64: fill<int64_t>(bytes, bit); break;
    default: break;
  }
  return bytes;
}

std::vector<Bytes> make_inputs(const ir::Graph& graph, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<Bytes> inputs;
  for (const ir::Input& input : graph.inputs) inputs.push_back(made_up(graph.values[input.value].meta, draw));
  return inputs;
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// INVALID_ARGUMENT that names the nodes which the backend does not take.
base::Status check_taken(const loader::Device& device, const ir::Program& program, const ir::Graph& graph) {
  LAZYT_ASSIGN_OR_RETURN(auto answers, loader::query_capability(device, program));
  std::string refused;
  for (size_t n = 0; n < answers.size(); n++)
    if (answers[n].kind == LAZYT_ANSWER_REFUSE) refused += fmt::format("\n  node {}: {} ({})", n, graph.nodes[n].name, answers[n].detail);
  if (refused.empty()) return {};
  return base::Status(LAZYT_CODE_UNIMPLEMENTED, fmt::format("{} does not take all of the program:{}", device.plugin->info.name, refused));
}

base::Result<Outcome> run_on(const std::string& backend, const ir::Program& program, const ir::Graph& graph,
                             const std::vector<Bytes>& inputs, int repeat) {
  LAZYT_ASSIGN_OR_RETURN(auto plugin, loader::load(backend));
  LAZYT_ASSIGN_OR_RETURN(auto device, loader::Device::open(plugin, 0));
  LAZYT_RETURN_IF_ERROR(check_taken(*device, program, graph));
  Outcome out;
  out.backend = plugin->info.name;
  const auto start = std::chrono::steady_clock::now();
  LAZYT_ASSIGN_OR_RETURN(auto executable, loader::Executable::compile(device, program, 0));
  out.compile_ms = ms_since(start);

  std::vector<base::Ref<loader::Buffer>> buffers;
  std::vector<loader::ExecuteInput> arguments;
  for (size_t i = 0; i < inputs.size(); i++) {
    loader::ExecuteInput argument;
    if (graph.values[graph.inputs[i].value].kind == ir::ValueKind::kHostScalar) {
      std::memcpy(argument.scalar.bytes, inputs[i].data(), std::min(inputs[i].size(), sizeof argument.scalar.bytes));
    } else {
      LAZYT_ASSIGN_OR_RETURN(auto buffer, loader::Buffer::from_host(device, inputs[i].data(), inputs[i].size()));
      argument.buffer = buffer.get();
      buffers.push_back(std::move(buffer));
    }
    arguments.push_back(argument);
  }
  std::vector<base::Ref<loader::Buffer>> results;
  std::vector<const loader::Buffer*> targets;
  for (const lazyt_output_meta_t& meta : executable->output_metas()) {
    LAZYT_ASSIGN_OR_RETURN(auto buffer, loader::Buffer::alloc(device, meta.size_bytes, meta.alignment, meta.memory_space));
    targets.push_back(buffer.get());
    results.push_back(std::move(buffer));
  }
  for (int i = 0; i < repeat; i++) {
    const auto begin = std::chrono::steady_clock::now();
    LAZYT_ASSIGN_OR_RETURN(auto event, executable->execute(arguments, targets, {}));
    LAZYT_RETURN_IF_ERROR(event->wait());
    out.best_ms = i == 0 ? ms_since(begin) : std::min(out.best_ms, ms_since(begin));
  }
  for (size_t i = 0; i < results.size(); i++) {
    Bytes bytes(graph.values[graph.outputs[i].value].meta.span_bytes());
    LAZYT_RETURN_IF_ERROR(results[i]->to_host(0, bytes.data(), bytes.size()));
    out.outputs.push_back(std::move(bytes));
  }
  return out;
}

template <class T>
double largest_difference(const Bytes& a, const Bytes& b) {
  double most = 0;
  for (size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    const double difference = std::abs(static_cast<double>(x) - static_cast<double>(y)) / std::max(1.0, std::abs(static_cast<double>(x)));
    if (std::isnan(static_cast<double>(x)) != std::isnan(static_cast<double>(y))) return HUGE_VAL;
    most = std::max(most, std::isnan(difference) ? 0 : difference);
  }
  return most;
}

// Relative above 1, absolute below; other types than floats are equal or not.
double difference(lazyt_dtype_t dtype, const Bytes& a, const Bytes& b) {
  if (dtype == LAZYT_DTYPE_FLOAT32) return largest_difference<float>(a, b);
  if (dtype == LAZYT_DTYPE_FLOAT64) return largest_difference<double>(a, b);
  return a == b ? 0 : HUGE_VAL;
}

int fail(const base::Status& status) {
  fmt::print(stderr, "lazyt run: {}\n", status.to_string());
  return 1;
}

int run_file(const Arguments& args) {
  auto program = load_program(args.file);
  if (!program.ok()) return fail(program.status());
  const ir::Graph graph = program.value()->to_graph();
  if (base::Status fits = ir::verify_shapes(graph); !fits.ok()) return fail(std::move(fits).with_note("file", args.file));
  const std::vector<Bytes> inputs = make_inputs(graph, args.seed);
  auto first = run_on(args.backend, *program.value(), graph, inputs, args.repeat);
  if (!first.ok()) return fail(first.status());
  const Outcome& got = first.value();
  std::vector<double> apart(got.outputs.size(), 0);
  std::string other;
  if (!args.against.empty()) {
    auto second = run_on(args.against, *program.value(), graph, inputs, 1);
    if (!second.ok()) return fail(second.status());
    other = second.value().backend;
    for (size_t i = 0; i < apart.size(); i++)
      apart[i] = difference(graph.values[graph.outputs[i].value].meta.dtype, got.outputs[i], second.value().outputs[i]);
  }
  nlohmann::ordered_json report{{"lazyt_run", 1},          {"file", args.file},       {"backend", got.backend},
                                {"against", other},        {"compile_ms", got.compile_ms}, {"execute_ms", got.best_ms},
                                {"outputs", nlohmann::json::array()}};
  bool same = true;
  for (size_t i = 0; i < apart.size(); i++) {
    same &= apart[i] <= args.tolerance;
    const std::string meta = base::to_string(graph.values[graph.outputs[i].value].meta);
    const std::string hash = base::hash128(got.outputs[i].data(), got.outputs[i].size()).to_string();
    report["outputs"].push_back({{"meta", meta}, {"hash", hash}, {"difference", apart[i]}});
  }
  if (args.json) {
    fmt::print("{}\n", report.dump(2));
    return same ? 0 : 1;
  }
  fmt::print("{} on {}: compiled in {:.2f} ms, runs in {:.3f} ms\n", args.file, got.backend, got.compile_ms, got.best_ms);
  for (size_t i = 0; i < apart.size(); i++)
    fmt::print("  output {}: {} {}{}\n", i, report["outputs"][i]["meta"].get<std::string>(), report["outputs"][i]["hash"].get<std::string>(),
               other.empty() ? "" : fmt::format(", {:.3g} from {}{}", apart[i], other, apart[i] <= args.tolerance ? "" : "  <-- too far"));
  return same ? 0 : 1;
}

// A file may ask for more than there is.
int run(const Arguments& args) {
  try {
    return run_file(args);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return fail(base::Status(LAZYT_CODE_RESOURCE_EXHAUSTED,
                           fmt::format("{}: there is no memory for its inputs and outputs; `lazyt inspect` shows their sizes", args.file)));
}

}  // namespace

void add_run(CLI::App& app, int& exit_status) {
  auto args = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("run", "Run a program file (.lzp) on a backend, or compare two");
  verb->add_option("file", args->file, "What LAZYT_DUMP wrote")->required();
  verb->add_option("--backend", args->backend, "Name or path (default: as a program would choose)");
  verb->add_option("--against", args->against, "Another backend, to compare the outputs with");
  verb->add_option("--tolerance", args->tolerance, "Largest difference, relative above 1")->capture_default_str();
  verb->add_option("--seed", args->seed, "Of the inputs")->capture_default_str();
  verb->add_option("--repeat", args->repeat, "Runs; the best time is told")->check(CLI::PositiveNumber)->capture_default_str();
  verb->add_flag("--json", args->json, "The report as JSON");
  verb->footer(
      "Inputs are made up from the seed: floats from -1 to 1, integers 0 and 1. The backend must take every node.\n"
      "Exit status: 0 it ran (and both agree), 1 it did not.");
  verb->callback([args, &exit_status] { exit_status = run(*args); });
}

}  // namespace lazyt::tools
