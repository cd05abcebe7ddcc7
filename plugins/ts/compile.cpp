#include "compile.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/version.h>

#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#include "buffer.h"
#include "errors.h"

namespace lazyt::ts {
namespace {

namespace jit = torch::jit;
using plugin::Error;
using plugin::ProgramView;

// TorchScript emits a chain of single-use nodes by recursion. A node without inputs and outputs in
// between ends the chain, so that a program's depth stays data.
constexpr uint64_t kMaxChain = 64;

constexpr const char* kCallSchema = "lazyt_ts::call(...) -> ...";
constexpr const char* kCutSchema = "lazyt_ts::cut() -> ()";

jit::Symbol call_symbol() {
  static const jit::Symbol symbol = jit::Symbol::fromQualString("lazyt_ts::call");
  return symbol;
}
jit::Symbol cut_symbol() {
  static const jit::Symbol symbol = jit::Symbol::fromQualString("lazyt_ts::cut");
  return symbol;
}
// Holds the Operator's address; operators are static.
jit::Symbol target_symbol() {
  static const jit::Symbol symbol = jit::Symbol::attr("target");
  return symbol;
}

jit::Operation make_call(const jit::Node* node) {
  const auto* op = reinterpret_cast<const Operator*>(static_cast<uintptr_t>(node->i(target_symbol())));
  return [op](jit::Stack& stack) { op->call(stack); };
}

c10::AliasAnalysisKind pure() { return c10::AliasAnalysisKind::PURE_FUNCTION; }

// The bytes of a constant: in the block, or in a file beside it.
at::Tensor load_constant(const ProgramView& program, const lazyt_constant_t& constant, const TensorSpec& spec,
                         c10::Device device) {
  plugin::require(constant.size >= spec.size_bytes, "a constant has fewer bytes than its value");
  c10::Storage storage = allocate(at::kCPU, spec.size_bytes);
  if (spec.size_bytes && constant.file.size) {
    std::ifstream file{std::string(program.text(constant.file)), std::ios::binary};
    file.seekg(static_cast<std::streamoff>(constant.offset));
    file.read(static_cast<char*>(storage.mutable_data()), static_cast<std::streamsize>(spec.size_bytes));
    if (!file) {
      throw Error(LAZYT_CODE_NOT_FOUND,
                  "cannot read a constant's bytes from " + std::string(program.text(constant.file)));
    }
  } else if (spec.size_bytes) {
    const char* bytes = reinterpret_cast<const char*>(program.block()) + program.block()->data.offset;
    std::memcpy(storage.mutable_data(), bytes + constant.offset, spec.size_bytes);
  }
  return tensor_over(std::move(storage), spec.dtype, spec.dims, spec.strides).to(device);
}

TensorSpec spec_of(const ProgramView& program, const lazyt_value_t& value) {
  TensorSpec spec;
  auto dtype = to_scalar_type(value.dtype);
  if (!dtype) throw Error(LAZYT_CODE_UNIMPLEMENTED, "dtype " + std::to_string(value.dtype) + " is not PyTorch's");
  spec.dtype = *dtype;
  auto dims = program.dims(value);
  spec.dims.assign(dims.begin(), dims.end());
  spec.strides = program.strides(value);
  spec.size_bytes = program.span_bytes(value);
  return spec;
}

Form form_for(const c10::Type& type) {
  switch (unwrap_optional(type).kind()) {
    case c10::TypeKind::NumberType: return Form::kNumber;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return Form::kInt;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType: return Form::kFloat;
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType: return Form::kBool;
    default: return Form::kTensor;
  }
}

// The static type of a graph input, as precise as the schemas of operators want it.
c10::TypePtr type_of(Form form, at::ScalarType dtype) {
  switch (form) {
    case Form::kInt: return c10::IntType::get();
    case Form::kFloat: return c10::FloatType::get();
    case Form::kBool: return c10::BoolType::get();
    case Form::kNumber:
      if (dtype == at::kBool) return c10::BoolType::get();
      if (at::isIntegralType(dtype, false)) return c10::IntType::get();
      if (at::isComplexType(dtype)) return c10::ComplexType::get();
      return c10::FloatType::get();
    default: return c10::TensorType::get();
  }
}

// Builds the TorchScript graph of a program.
class Lowering {
 public:
  Lowering(Executable& executable, const ProgramView& program)
      : executable_(executable),
        program_(program),
        graph_(std::make_shared<jit::Graph>()),
        values_(program.values().size(), nullptr),
        input_of_(program.values().size(), LAZYT_NONE),
        constant_of_(program.values().size(), LAZYT_NONE) {}

  std::shared_ptr<jit::Graph> run() {
    for (uint64_t i = 0; i < program_.inputs().size(); ++i) {
      input_of_[program_.inputs()[i].value] = static_cast<uint32_t>(i);
    }
    for (uint64_t i = 0; i < program_.constants().size(); ++i) {
      constant_of_[program_.constants()[i].value] = static_cast<uint32_t>(i);
    }
    make_source();
    for (uint64_t i = 0; i < program_.nodes().size(); ++i) {
      try {
        lower(i);
      } catch (Error& e) {
        throw e.note(executable_.nodes[i], "while it was compiled");
      }
    }
    for (const lazyt_output_t& output : program_.outputs()) graph_->registerOutput(tensor(output.value));
    order_inputs();
    bundle_inputs();
    return graph_;
  }

 private:
  // The text that source ranges point into: a line for each node, so that an error of the interpreter,
  // which carries a line number and no node, can be told apart.
  void make_source() {
    std::string text;
    for (uint64_t i = 0; i < program_.nodes().size(); ++i) {
      line_start_.push_back(text.size());
      text.append(program_.name(program_.nodes()[i])).append("\n");
    }
    source_ = std::make_shared<jit::Source>(text, kSourceName);
  }

  // Feeds and constants are made when first used, in any order; the graph wants feeds first.
  void order_inputs() {
    std::vector<size_t> order;
    for (size_t i = 0; i < is_feed_.size(); ++i) {
      if (is_feed_[i]) order.push_back(i);
    }
    for (size_t i = 0; i < is_feed_.size(); ++i) {
      if (!is_feed_[i]) order.push_back(i);
    }
    graph_->block()->permuteInputs(order);
  }

  void bundle_inputs() {
    const size_t count = graph_->inputs().size();
    for (size_t first = kMostInputs; first < count; first += kMostInputs) {
      const auto parts = graph_->inputs().slice(first, std::min(kMostInputs, count - first)).vec();
      std::vector<c10::TypePtr> types;
      for (const jit::Value* part : parts) types.push_back(part->type());
      jit::Node* unpack = graph_->createTupleUnpack(graph_->addInput()->setType(c10::TupleType::create(types)));
      graph_->prependNode(unpack);
      for (size_t i = 0; i < parts.size(); ++i) parts[i]->replaceAllUsesWith(unpack->output(i));
    }
    for (size_t i = count; i-- > kMostInputs;) graph_->eraseInput(i);
  }

  jit::Value* feed(uint32_t input, Form form) {
    jit::Value*& value = feeds_[{input, form}];
    if (!value) {
      value = graph_->addInput()->setType(type_of(form, executable_.inputs[input].dtype));
      executable_.feeds.push_back({input, form});
      is_feed_.push_back(true);
    }
    return value;
  }

  jit::Value* tensor(uint32_t index) {
    if (values_[index]) return values_[index];
    if (uint32_t input = input_of_[index]; input != LAZYT_NONE) {
      return feed(input, executable_.inputs[input].host_scalar ? Form::kTensor : Form::kBuffer);
    }
    plugin::require(constant_of_[index] != LAZYT_NONE, "a value is used before it is made");
    const lazyt_constant_t& constant = program_.constants()[constant_of_[index]];
    TensorSpec spec = spec_of(program_, program_.values()[index]);
    executable_.constants.push_back(load_constant(program_, constant, spec, executable_.device.device));
    executable_.constant_bytes += spec.size_bytes;
    is_feed_.push_back(false);
    return values_[index] = graph_->addInput();
  }

  jit::Value* append(jit::Node* node) { return graph_->appendNode(node)->output(); }

  // One argument as a value of the graph.
  jit::Value* operand(const lazyt_arg_t& arg, const c10::Type& type) {
    if (arg.kind == LAZYT_ARG_VALUE) {
      const auto index = static_cast<uint32_t>(arg.payload);
      const uint32_t input = input_of_[index];
      if (input == LAZYT_NONE || !executable_.inputs[input].host_scalar) return tensor(index);
      return feed(input, form_for(type));
    }
    const c10::Type& inner = unwrap_optional(type);
    if (inner.kind() == c10::TypeKind::ListType && arg.kind != LAZYT_ARG_NONE) {
      const c10::TypePtr& element = inner.castRaw<c10::ListType>()->getElementType();
      const auto kind = unwrap_optional(*element).kind();
      const bool dynamic = holds_values(program_, arg) || kind == c10::TypeKind::TensorType;
      if (dynamic) return list_of_values(arg, element);
    }
    return constant(literal(program_, arg, type, executable_.device.device), inner);
  }

  jit::Value* list_of_values(const lazyt_arg_t& arg, const c10::TypePtr& element) {
    plugin::require(arg.kind == LAZYT_ARG_LIST || arg.count == 0, "a list of values is not written as a list");
    std::vector<jit::Value*> parts;
    if (arg.kind == LAZYT_ARG_LIST) {
      for (const lazyt_arg_t& e : program_.elements(arg)) parts.push_back(operand(e, *element));
    }
    return make_list(parts, element);
  }

  jit::Value* make_list(const std::vector<jit::Value*>& parts, const c10::TypePtr& element) {
    plugin::require(parts.size() <= INT16_MAX, "TorchScript has no lists of more than 32767 values");
    jit::Node* node = graph_->create(jit::prim::ListConstruct, parts, 1);
    node->output()->setType(c10::ListType::create(element));
    return append(node);
  }

  jit::Value* constant(const c10::IValue& value, const c10::Type& type) {
    if (auto made = jit::tryInsertConstant(*graph_, value)) return *made;
    // Only lists of Scalars are no constants of TorchScript: put them together from their elements.
    plugin::require(value.isList(), "an argument is no constant of TorchScript");
    std::vector<jit::Value*> parts;
    for (const c10::IValue& e : value.toListRef()) parts.push_back(graph_->insertConstant(e));
    return make_list(parts, type.castRaw<c10::ListType>()->getElementType());
  }

  // A node that calls exactly this operator.
  jit::Node* make_node(const Operator& op, const std::vector<jit::Value*>& operands) {
    const auto results = op.schema->returns().size();
    if (op.is_plain()) {
      jit::Node* node = graph_->create(jit::Symbol::fromQualString(op.schema->name()), operands, results);
      const jit::Operator* chosen = node->maybeOperator();
      if (chosen && chosen->schema().operator_name() == op.schema->operator_name()) return node;
      node->destroy();
    }
    jit::Node* node = graph_->create(call_symbol(), operands, results);
    node->i_(target_symbol(), static_cast<int64_t>(reinterpret_cast<uintptr_t>(&op)));
    return node;
  }

  void lower(uint64_t index) {
    const lazyt_node_t& node = program_.nodes()[index];
    const Operator* op = find_operator(program_.name(node), program_.overload(node));
    if (!op) throw Error(LAZYT_CODE_UNIMPLEMENTED, "PyTorch has no operator " + program_.full_name(node));
    const auto& formals = op->schema->arguments();
    plugin::require(formals.size() == node.arg_count, "a node has another number of arguments than its schema");
    std::vector<jit::Value*> operands;
    for (size_t i = 0; i < formals.size(); ++i) {
      operands.push_back(operand(program_.args(node)[i], *formals[i].type()));
    }
    jit::Node* made = make_node(*op, operands);
    const size_t start = line_start_[index];
    made->setSourceRange(jit::SourceRange(source_, start, start + node.name.size));
    graph_->appendNode(made);
    bind_results(node, made, result_sizes(*op->schema, program_, node));
    if (index % kMaxChain == kMaxChain - 1) graph_->appendNode(graph_->create(cut_symbol(), 0));
  }

  void bind_results(const lazyt_node_t& node, jit::Node* made, const std::vector<uint32_t>& sizes) {
    const auto& returns = made->kind() == call_symbol() ? target_of(made).schema->returns()
                                                        : made->schema().returns();
    uint32_t next = node.results;
    for (size_t i = 0; i < sizes.size(); ++i) {
      jit::Value* result = made->output(i);
      const c10::Type& type = unwrap_optional(*returns[i].type());
      if (type.kind() != c10::TypeKind::ListType) {
        values_[next++] = result;
        continue;
      }
      plugin::require(sizes[i] <= INT16_MAX, "TorchScript has no results of more than 32767 tensors");
      result->setType(c10::ListType::ofTensors());
      jit::Node* unpack = graph_->appendNode(graph_->createListUnpack(result, sizes[i]));
      unpack->setSourceRange(made->sourceRange());
      for (jit::Value* part : unpack->outputs()) values_[next++] = part;
    }
  }

  static const Operator& target_of(const jit::Node* node) {
    return *reinterpret_cast<const Operator*>(static_cast<uintptr_t>(node->i(target_symbol())));
  }

  Executable& executable_;
  const ProgramView& program_;
  std::shared_ptr<jit::Graph> graph_;
  std::shared_ptr<jit::Source> source_;
  std::vector<size_t> line_start_;
  std::vector<jit::Value*> values_;
  std::vector<uint32_t> input_of_;     // value -> program input
  std::vector<uint32_t> constant_of_;  // value -> constant
  std::map<std::pair<uint32_t, Form>, jit::Value*> feeds_;
  std::vector<bool> is_feed_;  // for each graph input
};

lazyt_status_t* compile(lazyt_device_t* device, const lazyt_compile_args_t* args,
                        lazyt_executable_t** out_executable) {
  return guard([&] {
    c10::InferenceMode inference;
    ProgramView program(args->program);
    *out_executable = plugin::to_handle<lazyt_executable_t>(new Executable(plugin::from_c(device), program));
  });
}

lazyt_status_t* output_meta(lazyt_executable_t* handle, uint64_t index, lazyt_output_meta_t* out_meta) {
  return guard([&] {
    const Executable& executable = plugin::from_c(handle);
    plugin::require(index < executable.outputs.size(), "output_meta: no such output");
    out_meta->size_bytes = executable.outputs[index].size_bytes;
    out_meta->alignment = 0;
    out_meta->memory_space = 0;
    out_meta->opaque = 0;
  });
}

lazyt_status_t* memory(lazyt_executable_t* handle, lazyt_executable_memory_t* out_memory) {
  return guard([&] {
    const Executable& executable = plugin::from_c(handle);
    out_memory->code_bytes = executable.constant_bytes;
    out_memory->scratch_bytes = 0;
    out_memory->flags = LAZYT_EXECUTABLE_KEEPS_NOTHING;
  });
}

lazyt_status_t* load(lazyt_device_t*, const void*, uint64_t, lazyt_executable_t**) {
  return plugin::make_status(LAZYT_CODE_UNIMPLEMENTED, "ts stores no compiled programs");
}

lazyt_status_t* identity(lazyt_device_t*, lazyt_string_t* out_identity) {
  return guard([&] { *out_identity = plugin::to_c("ts 0.1.0, PyTorch " TORCH_VERSION); });
}

void release(lazyt_executable_t* executable) { delete plugin::from_c_or_null(executable); }

}  // namespace

Executable::Executable(Device& d, const ProgramView& program) : device(d) {
  plugin::require(!program.has_symbols(), "ts: programs with symbolic dims are not taken");
  for (const lazyt_input_t& input : program.inputs()) {
    const lazyt_value_t& value = program.values()[input.value];
    InputSpec spec;
    static_cast<TensorSpec&>(spec) = spec_of(program, value);
    spec.host_scalar = value.flags & LAZYT_VALUE_HOST_SCALAR;
    spec.weak = value.flags & LAZYT_VALUE_WEAK;
    inputs.push_back(std::move(spec));
  }
  for (const lazyt_output_t& output : program.outputs()) {
    outputs.push_back(spec_of(program, program.values()[output.value]));
  }
  for (uint64_t i = 0; i < program.nodes().size(); ++i) nodes.push_back(program.describe(i));
  code = jit::Code(Lowering(*this, program).run(), "program");
  device.memory.add(static_cast<int64_t>(constant_bytes));
}

void register_jit_operators() {
  jit::registerOperator(jit::Operator(kCallSchema, make_call, pure()));
  jit::registerOperator(jit::Operator(kCutSchema, jit::Operation([](jit::Stack&) {}), pure()));
}

void deregister_jit_operators() {
  for (jit::Symbol symbol : {call_symbol(), cut_symbol()}) {
    // Copied: deregistering changes the list.
    auto operators = jit::getAllOperatorsFor(symbol);
    for (const auto& op : operators) jit::deregisterOperator(op->schema());
  }
}

const lazyt_plugin_executable_t kExecutableTable = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .next = nullptr,
    .compile = compile,
    .output_meta = output_meta,
    .memory = memory,
    .execute = execute,
    .serialize = nullptr,
    .load = load,
    .identity = identity,
    .release = release,
};

}  // namespace lazyt::ts
