// Operators by exact name and overload, and the arguments of nodes as PyTorch values.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <string_view>

#include "device.h"

namespace lazyt::ts {

using Function = void (*)(torch::jit::Stack& stack);

// What a node calls: a function of this plugin where the opset's meaning is not PyTorch's own, else
// the dispatcher's operator.
struct Operator {
  const c10::FunctionSchema* schema = nullptr;
  std::optional<c10::OperatorHandle> handle;
  Function function = nullptr;
  bool wants_dense = false;  // PyTorch's kernel reads past an expanded operand, or refuses it: it gets a copy

  bool is_plain() const { return !function && !wants_dense; }  // TorchScript may call the operator itself
  void call(torch::jit::Stack& stack) const;
};

// Null when neither this plugin nor PyTorch knows the operator. Static: a pointer stays valid.
const Operator* find_operator(std::string_view name, std::string_view overload);

// nullopt for dtypes that PyTorch lacks.
std::optional<at::ScalarType> to_scalar_type(lazyt_dtype_t dtype);

// How many tensors a schema's result of list type stands for, one entry for each result (1 for a plain
// tensor). Throws when the node's count cannot be divided that way.
std::vector<uint32_t> result_sizes(const c10::FunctionSchema& schema, const plugin::ProgramView& program,
                                   const lazyt_node_t& node);

// The value of an argument that names no value of the program, converted to the type that the schema
// wants. Throws INVALID_ARGUMENT when that cannot be done.
c10::IValue literal(const plugin::ProgramView& program, const lazyt_arg_t& arg, const c10::Type& type,
                    c10::Device device);

// Whether a list must be put together when the program runs.
bool holds_values(const plugin::ProgramView& program, const lazyt_arg_t& arg);

// The type below Optional.
const c10::Type& unwrap_optional(const c10::Type& type);

extern const lazyt_plugin_capability_t kCapabilityTable;

}  // namespace lazyt::ts
