// Plan: a partitioned and compiled program, ready to be launched any number of times.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "exec/data.h"
#include "exec/host_runner.h"
#include "ir/graph.h"
#include "loader/handles.h"

namespace lazyt::exec {

struct Source {  // as partition::Source: the program's input, or an output of an earlier step
  static constexpr uint32_t kProgram = UINT32_MAX;
  uint32_t step = kProgram;
  uint32_t index = 0;
};

struct Step {
  base::Ref<loader::Executable> executable;  // null: a host island
  ir::Graph graph;                           // islands only: what to run
  std::vector<Source> inputs;
  std::vector<uint32_t> donors;  // of each output: an index into inputs, or ir::kNone
  std::string operators;         // for messages: " (aten::mm, aten::relu, ...: 14 operators), model.py:12"; empty if there are none
};
// What a step's `operators` says.
std::string describe_operators(const ir::Graph& graph, bool on_device);

// What one launch binds to an input of the program.
struct Binding {
  base::Ref<Data> data;  // null: host scalar
  lazyt_scalar_t scalar{};
  // Of data only the bytes from `offset` on that the input's shape takes; they are copied at launch.
  bool part = false;
  uint64_t offset = 0, size = 0;
};

class Plan : public base::RefCounted {
 public:
  base::Ref<loader::Device> device;
  HostRunner* host_runner = nullptr;  // needed when a step is an island; outlives the plan
  std::vector<Step> steps;
  std::vector<Source> outputs;
  std::string name;  // "step 3: train.py:12", for messages

  bool has_islands() const { return std::ranges::any_of(steps, [](const Step& s) { return !s.executable; }); }

  // Runs all steps and fills every output, with an error too: a launch whose start fails poisons
  // all of its outputs and no others. Takes the bindings over: an input whose last reference they are
  // is donated where the program allows. Blocks only for host islands, and for inputs that another
  // device's executor fills. number: of the launch, for messages; 0 = not known.
  // rewrites: for each output the input whose storage it is the next content of, or ir::kNone; empty: all none.
  // Called on the executor thread.
  void launch(std::vector<Binding> inputs, std::span<const base::Ref<Data>> outputs, uint64_t number = 0,
              std::span<const uint32_t> rewrites = {}) const;
};

// Fails a launch of which nothing ran but what took its inputs from the bindings. For want of memory, what it was to
// write in place is left as it was.
// cause: of the poisoned input that failed it; null: a failure of its own.
void fail(const base::Status& error, std::span<const Binding> inputs, std::span<const base::Ref<Data>> outputs,
          std::span<const uint32_t> rewrites, base::Ref<Failure> cause = nullptr);

}  // namespace lazyt::exec
