// Plan: a partitioned and compiled program, ready to be launched any number of times.
#pragma once

#include <algorithm>
#include <memory>
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
  std::unique_ptr<const ir::Graph> graph;    // islands only: what to run
  std::vector<Source> inputs;
  std::vector<uint32_t> donors;  // of each output: an index into inputs, or ir::kNone
  // For messages: " (aten::mm, aten::relu, ...: 14 operators), model.py:12". Null if there are none; steps that say the same share it.
  std::shared_ptr<const std::string> operators;
};
// What a step's `operators` is. [any thread]
std::shared_ptr<const std::string> describe_operators(const ir::Graph& graph, bool on_device);

// What one launch binds to an input of the program.
struct Binding {
  base::Ref<Data> data;  // null: host scalar
  lazyt_scalar_t scalar{};
  // Of data only the bytes from `offset` on that the input's shape takes; they are copied at launch.
  bool part = false;
  uint64_t offset = 0, size = 0;
};

class Begun;

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
  // begun: what of this launch has run already, with the same inputs; it is used up. May be null, and may have failed.
  // Called on the executor thread.
  void launch(std::vector<Binding> inputs, std::span<const base::Ref<Data>> outputs, uint64_t number = 0,
              std::span<const uint32_t> rewrites = {}, Begun* begun = nullptr) const;
};

// A launch of which the first steps run before all of its inputs are known. It donates no input and fills no output, so it can be
// dropped at any time. For plans without islands, on synchronous devices. [executor]
class Begun {
 public:
  Begun(base::Ref<const Plan> plan, size_t inputs);
  ~Begun();
  void bind(uint32_t input, Binding binding);
  // Runs what of the first `steps` steps has not run. REQUIRES: their inputs are bound, and referred to by their owner, too.
  void advance(uint32_t steps);
  const Plan& plan() const { return *plan_; }
  // An error is not kept: the launch meets it again, from its beginning.
  bool failed() const { return failed_; }

 private:
  friend class Launch;
  friend class Plan;
  struct State;
  base::Ref<const Plan> plan_;
  std::unique_ptr<State> state_;
  uint32_t steps_ = 0;  // that have run
  bool failed_ = false;
};

// Fails a launch of which nothing ran but what took its inputs from the bindings. For want of memory, what it was to
// write in place is left as it was.
// cause: of the poisoned input that failed it; null: a failure of its own.
void fail(const base::Status& error, std::span<const Binding> inputs, std::span<const base::Ref<Data>> outputs,
          std::span<const uint32_t> rewrites, base::Ref<Failure> cause = nullptr);

}  // namespace lazyt::exec
