// Executable: a program lowered to a TorchScript graph.
//
// Every node becomes a TorchScript node of the same operator where TorchScript would call exactly the
// overload that the program names, else a node `lazyt_ts::call`, which carries the operator with it
// (sdk_docs/decisions/0003-ts-plugin.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <deque>
#include <string>
#include <vector>

#include "device.h"
#include "ops.h"

namespace lazyt::ts {

// In which form a host scalar reaches an operator; decided by the operator's schema.
enum class Form : uint8_t { kBuffer, kTensor, kNumber, kInt, kFloat, kBool };

// One input of the TorchScript graph. A program input read in two forms feeds two of them.
struct Feed {
  uint32_t input;
  Form form;
};

struct TensorSpec {
  at::ScalarType dtype{};
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  uint64_t size_bytes = 0;
};

struct InputSpec : TensorSpec {
  bool host_scalar = false;
  bool weak = false;
};

// TorchScript's instructions count in 15 bits. More inputs than this arrive as tuples of so many each.
constexpr size_t kMostInputs = 1 << 14;

struct Executable {
  Executable(Device& device, const plugin::ProgramView& program);
  ~Executable() { device.memory.add(-static_cast<int64_t>(constant_bytes)); }
  Executable(const Executable&) = delete;

  Device& device;
  std::vector<InputSpec> inputs;    // of the program
  std::vector<TensorSpec> outputs;  // of the program
  std::vector<Feed> feeds;          // the graph's first inputs, in its order
  std::vector<at::Tensor> constants;  // the graph's other inputs
  uint64_t constant_bytes = 0;
  std::vector<std::string> nodes;  // what errors call them
  torch::jit::Code code;
};

// The operator that TorchScript nodes of this plugin's own kind call; for init and shutdown.
void register_jit_operators();
void deregister_jit_operators();

// The file name in the source ranges of graph nodes; line i of it, counted from 0 as the interpreter
// does, is node i of the program.
inline constexpr const char* kSourceName = "lazyt program";

lazyt_status_t* execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args, lazyt_event_t** out_event);

extern const lazyt_plugin_executable_t kExecutableTable;

}  // namespace lazyt::ts

template <>
struct lazyt::plugin::Handle<lazyt_executable_t> {
  using type = lazyt::ts::Executable;
};
