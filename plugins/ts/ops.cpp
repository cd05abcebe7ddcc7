#include "ops.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_scatter.h>
#include <c10/util/strides.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "errors.h"
#include "random.h"

namespace lazyt::ts {
namespace {

using plugin::Error;
using plugin::ProgramView;
using torch::jit::pop;
using torch::jit::push;
using torch::jit::Stack;

// ---- functions of this plugin

// The operand as PRG-3 sees it: row-major from the first byte of its storage on.
at::Tensor row_major(const at::Tensor& operand) {
  at::Tensor dense = operand.contiguous();
  return dense.storage_offset() == 0 ? dense : dense.clone();
}

void as_strided(Stack& stack) {
  auto offset = pop(stack).toOptional<int64_t>();
  auto strides = pop(stack).toIntVector();
  auto dims = pop(stack).toIntVector();
  at::Tensor operand = row_major(pop(stack).toTensor());
  push(stack, at::as_strided(operand, dims, strides, offset.value_or(0)));
}

void as_strided_scatter(Stack& stack) {
  auto offset = pop(stack).toOptional<int64_t>();
  auto strides = pop(stack).toIntVector();
  auto dims = pop(stack).toIntVector();
  at::Tensor source = pop(stack).toTensor();
  at::Tensor operand = row_major(pop(stack).toTensor());
  push(stack, at::as_strided_scatter(operand, source, dims, strides, offset.value_or(0)));
}

// Strides of dims of one element are any to PyTorch, but not to this operator.
void view_dtype(Stack& stack) {
  auto dtype = pop(stack).toScalarType();
  at::Tensor operand = row_major(pop(stack).toTensor());
  // PyTorch's copies of a view want the bytes behind it to be whole elements, too.
  if (operand.storage().nbytes() % c10::elementSize(dtype) != 0) operand = operand.clone();
  push(stack, at::as_strided(operand, operand.sizes(), c10::contiguous_strides(operand.sizes()), 0).view(dtype));
}

struct OwnOperator {
  const char* schema;
  Function function;
};

constexpr OwnOperator kOwnOperators[] = {
    {"lazyt::dropout(Tensor input, float p, int seed, int offset) -> (Tensor, Tensor)", random_dropout},
    {"lazyt::uniform(int[] size, ScalarType dtype, float from, float to, int seed, int offset) -> Tensor",
     random_uniform},
    {"lazyt::normal(int[] size, ScalarType dtype, float mean, float std, int seed, int offset) -> Tensor",
     random_normal},
    {"lazyt::bernoulli(Tensor p, int seed, int offset) -> Tensor", random_bernoulli},
    {"lazyt::randint(int[] size, ScalarType dtype, int low, int high, int seed, int offset) -> Tensor",
     random_randint},
    {"aten::as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor", as_strided},
    {"aten::as_strided_copy(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor", as_strided},
    {"aten::as_strided_scatter(Tensor self, Tensor src, int[] size, int[] stride, int? storage_offset=None) -> "
     "Tensor",
     as_strided_scatter},
    {"aten::view.dtype(Tensor self, ScalarType dtype) -> Tensor", view_dtype},
};

// Kernels that count on operands which PyTorch's composites, or their callers, made contiguous. A program's value may
// be an expanded one all the same: what was written from fewer elements.
bool wants_dense(std::string_view name) {
  constexpr std::string_view kNames[] = {"aten::median",         "aten::nanmedian",       "aten::native_group_norm", "aten::native_group_norm_backward",
                                         "aten::_pdist_forward", "aten::_pdist_backward", "aten::sort"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.starts_with("aten::_embedding_bag");
}

// Operators found so far. Misses are not kept: a custom operator may be defined later.
class Registry {
 public:
  Registry() {
    for (const OwnOperator& own : kOwnOperators) {
      schemas_.push_back(torch::jit::parseSchema(own.schema));
      found_[key_of(schemas_.back().name(), schemas_.back().overload_name())] = {&schemas_.back(), std::nullopt, own.function, false};
    }
  }

  const Operator* find(std::string_view name, std::string_view overload) {
    std::string key = key_of(name, overload);
    std::lock_guard lock(mutex_);
    if (auto it = found_.find(key); it != found_.end()) return &it->second;
    auto handle = c10::Dispatcher::singleton().findSchema({std::string(name), std::string(overload)});
    if (!handle) return nullptr;
    return &(found_[key] = {&handle->schema(), *handle, nullptr, wants_dense(name)});
  }

 private:
  static std::string key_of(std::string_view name, std::string_view overload) {
    std::string key(name);
    if (!overload.empty()) key.append(".").append(overload);
    return key;
  }

  std::mutex mutex_;
  std::deque<c10::FunctionSchema> schemas_;
  std::unordered_map<std::string, Operator> found_;  // nodes do not move
};

bool is_tensor_list(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType &&
         unwrap_optional(*type.castRaw<c10::ListType>()->getElementType()).kind() == c10::TypeKind::TensorType;
}

// ---- arguments

[[noreturn]] void refuse_literal(const lazyt_arg_t& arg, const c10::Type& type) {
  throw Error(LAZYT_CODE_INVALID_ARGUMENT,
              "an argument of kind " + std::to_string(arg.kind) + " cannot be passed as " + type.str());
}

bool is_integral(const lazyt_arg_t& arg) { return arg.kind == LAZYT_ARG_INT || arg.kind == LAZYT_ARG_BOOL; }

double as_double(const lazyt_arg_t& arg) { return std::bit_cast<double>(arg.payload); }

c10::IValue number(const ProgramView& program, const lazyt_arg_t& arg, const c10::Type& type) {
  switch (arg.kind) {
    case LAZYT_ARG_INT: return static_cast<int64_t>(arg.payload);
    case LAZYT_ARG_DOUBLE: return as_double(arg);
    case LAZYT_ARG_BOOL: return arg.payload != 0;
    case LAZYT_ARG_COMPLEX: {
      const int64_t* parts = lazyt_ints(program.block(), arg.payload);
      return c10::complex<double>(std::bit_cast<double>(parts[0]), std::bit_cast<double>(parts[1]));
    }
    default: refuse_literal(arg, type);
  }
}

// The elements of a list argument as args of their own, whichever way the program wrote them.
std::vector<lazyt_arg_t> elements_of(const ProgramView& program, const lazyt_arg_t& arg, const c10::Type& type) {
  std::vector<lazyt_arg_t> out;
  auto spell = [&](lazyt_arg_kind_t kind) {
    for (int64_t value : program.ints(arg)) out.push_back({kind, 0, static_cast<uint64_t>(value)});
  };
  switch (arg.kind) {
    case LAZYT_ARG_INTS: spell(LAZYT_ARG_INT); break;
    case LAZYT_ARG_DOUBLES: spell(LAZYT_ARG_DOUBLE); break;
    case LAZYT_ARG_BOOLS: spell(LAZYT_ARG_BOOL); break;
    case LAZYT_ARG_LIST:
      for (const lazyt_arg_t& element : program.elements(arg)) out.push_back(element);
      break;
    default: refuse_literal(arg, type);
  }
  return out;
}

template <class T, class F>
c10::IValue list_of(const std::vector<lazyt_arg_t>& elements, F convert) {
  c10::List<T> list;
  list.reserve(elements.size());
  for (const lazyt_arg_t& element : elements) list.push_back(convert(element));
  return list;
}

c10::IValue literal_list(const ProgramView& program, const lazyt_arg_t& arg, const c10::Type& type,
                         c10::Device device) {
  const c10::TypePtr& element = type.castRaw<c10::ListType>()->getElementType();
  auto elements = elements_of(program, arg, type);
  auto convert = [&](const lazyt_arg_t& e) { return literal(program, e, *element, device); };
  switch (element->kind()) {
    case c10::TypeKind::IntType: return list_of<int64_t>(elements, [&](auto& e) { return convert(e).toInt(); });
    case c10::TypeKind::FloatType: return list_of<double>(elements, [&](auto& e) { return convert(e).toDouble(); });
    case c10::TypeKind::BoolType: return list_of<bool>(elements, [&](auto& e) { return convert(e).toBool(); });
    default: {
      c10::impl::GenericList list(element);
      for (const lazyt_arg_t& e : elements) list.push_back(convert(e));
      return list;
    }
  }
}

// ---- capability

struct Refusal {
  lazyt_reason_t reason = LAZYT_REASON_NONE;
  const char* detail = "";
};

// A random operator draws from PyTorch's generator, which is not the program's stream. It is harmless
// where the node says that it draws nothing.
bool draws(const ProgramView& program, const lazyt_node_t& node, const Operator& op) {
  if (!op.handle || !op.handle->hasTag(at::Tag::nondeterministic_seeded)) return false;
  const auto& formals = op.schema->arguments();
  for (size_t i = 0; i < formals.size() && i < node.arg_count; ++i) {
    const lazyt_arg_t arg = program.args(node)[i];
    const std::string& name = formals[i].name();
    if ((name == "dropout_p" || name == "dropout") && arg.kind == LAZYT_ARG_DOUBLE && as_double(arg) == 0) return false;
    if ((name == "train" || name == "training") && arg.kind == LAZYT_ARG_BOOL && !arg.payload) return false;
  }
  return true;
}

Refusal judge_value(const ProgramView& program, uint32_t index) {
  const lazyt_value_t& value = program.values()[index];
  if (!to_scalar_type(value.dtype)) return {LAZYT_REASON_DTYPE, "PyTorch has no such dtype"};
  for (int64_t dim : program.dims(value)) {
    if (dim < 0) return {LAZYT_REASON_SYMBOLIC_DIM, "dims must be numbers"};
  }
  return {};
}

Refusal judge_arg(const ProgramView& program, const lazyt_arg_t& arg, const c10::Type& type, c10::Device device) {
  if (arg.kind == LAZYT_ARG_VALUE) return judge_value(program, static_cast<uint32_t>(arg.payload));
  if (arg.kind == LAZYT_ARG_LIST && holds_values(program, arg)) {
    if (unwrap_optional(type).kind() != c10::TypeKind::ListType) return {LAZYT_REASON_ARGUMENT, "a list of values"};
    for (const lazyt_arg_t& element : program.elements(arg)) {
      if (element.kind != LAZYT_ARG_VALUE) continue;
      if (Refusal r = judge_value(program, static_cast<uint32_t>(element.payload)); r.reason) return r;
    }
    return {};
  }
  try {
    literal(program, arg, type, device);
  } catch (const std::exception&) {
    return {LAZYT_REASON_ARGUMENT, "an argument does not fit the schema"};
  }
  return {};
}

// LAZYT_TS_REFUSE=aten::relu,aten::add.Tensor
bool is_disabled(const std::string& full_name) {
  std::string_view list = plugin::option("ts", "refuse");
  while (!list.empty()) {
    size_t comma = list.find(',');
    if (list.substr(0, comma) == full_name) return true;
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return false;
}

Refusal judge(const ProgramView& program, const lazyt_node_t& node, c10::Device device) {
  if (is_disabled(program.full_name(node))) return {LAZYT_REASON_DISABLED, "named in option refuse"};
  const Operator* op = find_operator(program.name(node), program.overload(node));
  if (!op) return {LAZYT_REASON_UNKNOWN_OPERATOR, "PyTorch has no operator of this name and overload"};
  if (op->function && !device.is_cpu() && program.name(node).starts_with("lazyt::")) {
    return {LAZYT_REASON_UNKNOWN_OPERATOR, "lazyt's random operators run on the CPU only"};
  }
  const c10::DispatchKey key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  if (!op->function && !op->handle->hasComputedKernelForDispatchKey(key)) {
    return {LAZYT_REASON_UNKNOWN_OPERATOR, "PyTorch has no kernel of the operator for this device"};
  }
  if (op->schema->is_mutable()) return {LAZYT_REASON_ARGUMENT, "the operator writes an operand"};
  if (draws(program, node, *op)) {
    return {LAZYT_REASON_UNKNOWN_OPERATOR, "a random operator outside the opset draws from PyTorch's generator"};
  }
  const auto& formals = op->schema->arguments();
  if (formals.size() != node.arg_count) return {LAZYT_REASON_ARGUMENT, "the schema has another number of arguments"};
  for (size_t i = 0; i < formals.size(); ++i) {
    if (Refusal r = judge_arg(program, program.args(node)[i], *formals[i].type(), device); r.reason) return r;
  }
  for (uint32_t i = 0; i < node.result_count; ++i) {
    if (Refusal r = judge_value(program, node.results + i); r.reason) return r;
  }
  try {
    result_sizes(*op->schema, program, node);
  } catch (const std::exception&) {
    return {LAZYT_REASON_ARGUMENT, "the schema has other results"};
  }
  return {};
}

lazyt_status_t* query(lazyt_device_t* device, const lazyt_program_t* block, lazyt_answer_t* answers, uint64_t count,
                      uint64_t stride) {
  return guard([&] {
    ProgramView program(block);
    plugin::require(count == program.nodes().size(), "query: one answer for each node is needed");
    const c10::Device where = plugin::from_c(device).device;
    for (uint64_t i = 0; i < count; ++i) {
      auto& answer = *reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(answers) + i * stride);
      Refusal refusal = judge(program, program.nodes()[i], where);
      answer.kind = refusal.reason ? LAZYT_ANSWER_REFUSE : LAZYT_ANSWER_TAKE;
      answer.reason = refusal.reason;
      if (refusal.reason) answer.detail = plugin::to_c(refusal.detail);
    }
  });
}

}  // namespace

void Operator::call(Stack& stack) const {
  if (function) return function(stack);
  const size_t looked_at = wants_dense ? schema->arguments().size() : 0;
  for (size_t i = stack.size() - looked_at; i < stack.size(); i++) {
    c10::IValue& v = stack[i];
    if (v.isTensor() && v.toTensor().defined() && !v.toTensor().is_non_overlapping_and_dense()) v = v.toTensor().contiguous();
  }
  handle->callBoxed(stack);
}

const Operator* find_operator(std::string_view name, std::string_view overload) {
  static auto* registry = new Registry;  // what is in flight at exit still asks it
  return registry->find(name, overload);
}

std::optional<at::ScalarType> to_scalar_type(lazyt_dtype_t dtype) {
  using enum at::ScalarType;
  switch (dtype) {
    case LAZYT_DTYPE_BOOL: return Bool;
    case LAZYT_DTYPE_UINT8: return Byte;
    case LAZYT_DTYPE_INT8: return Char;
    case LAZYT_DTYPE_UINT16: return UInt16;
    case LAZYT_DTYPE_INT16: return Short;
    case LAZYT_DTYPE_UINT32: return UInt32;
    case LAZYT_DTYPE_INT32: return Int;
    case LAZYT_DTYPE_UINT64: return UInt64;
    case LAZYT_DTYPE_INT64: return Long;
    case LAZYT_DTYPE_FLOAT16: return Half;
    case LAZYT_DTYPE_BFLOAT16: return BFloat16;
    case LAZYT_DTYPE_FLOAT32: return Float;
    case LAZYT_DTYPE_FLOAT64: return Double;
    case LAZYT_DTYPE_COMPLEX32: return ComplexHalf;
    case LAZYT_DTYPE_COMPLEX64: return ComplexFloat;
    case LAZYT_DTYPE_COMPLEX128: return ComplexDouble;
    case LAZYT_DTYPE_FLOAT8_E4M3FN: return Float8_e4m3fn;
    case LAZYT_DTYPE_FLOAT8_E5M2: return Float8_e5m2;
    case LAZYT_DTYPE_FLOAT8_E4M3FNUZ: return Float8_e4m3fnuz;
    case LAZYT_DTYPE_FLOAT8_E5M2FNUZ: return Float8_e5m2fnuz;
    case LAZYT_DTYPE_FLOAT8_E8M0FNU: return Float8_e8m0fnu;
    case LAZYT_DTYPE_FLOAT4_E2M1FN_X2: return Float4_e2m1fn_x2;
    default: return std::nullopt;
  }
}

const c10::Type& unwrap_optional(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType ? *type.castRaw<c10::OptionalType>()->getElementType() : type;
}

bool holds_values(const ProgramView& program, const lazyt_arg_t& arg) {
  if (arg.kind != LAZYT_ARG_LIST) return false;
  auto elements = program.elements(arg);
  return std::any_of(elements.begin(), elements.end(), [](const auto& e) { return e.kind == LAZYT_ARG_VALUE; });
}

std::vector<uint32_t> result_sizes(const c10::FunctionSchema& schema, const ProgramView& program,
                                   const lazyt_node_t& node) {
  const auto& returns = schema.returns();
  std::vector<uint32_t> sizes(returns.size(), 1);
  std::vector<size_t> lists;
  for (size_t i = 0; i < returns.size(); ++i) {
    const c10::Type& type = unwrap_optional(*returns[i].type());
    if (is_tensor_list(type)) {
      lists.push_back(i);
    } else if (type.kind() != c10::TypeKind::TensorType) {
      throw Error(LAZYT_CODE_UNIMPLEMENTED, schema.name() + " returns " + type.str() + ", not tensors");
    }
  }
  if (lists.size() == 1) {
    if (node.result_count + 1 >= returns.size()) sizes[lists[0]] = node.result_count + 1 - returns.size();
  } else {
    // Several lists (functional optimizer steps): `self_out` is as long as argument `self`.
    for (size_t i : lists) {
      std::string name = returns[i].name();
      if (name.ends_with("_out")) name.resize(name.size() - 4);
      for (size_t a = 0; a < schema.arguments().size() && a < node.arg_count; ++a) {
        if (schema.arguments()[a].name() == name) sizes[i] = program.args(node)[a].count;
      }
    }
  }
  uint64_t total = 0;
  for (uint32_t size : sizes) total += size;
  if (total != node.result_count) {
    throw Error(LAZYT_CODE_INVALID_ARGUMENT, schema.name() + " has other results than the node says");
  }
  return sizes;
}

c10::IValue literal(const ProgramView& program, const lazyt_arg_t& arg, const c10::Type& type, c10::Device device) {
  if (arg.kind == LAZYT_ARG_NONE) {
    if (type.kind() == c10::TypeKind::OptionalType || type.kind() == c10::TypeKind::NoneType) return {};
    if (type.kind() == c10::TypeKind::TensorType) return at::Tensor();
    refuse_literal(arg, type);
  }
  switch (type.kind()) {
    case c10::TypeKind::OptionalType: return literal(program, arg, unwrap_optional(type), device);
    case c10::TypeKind::ListType: return literal_list(program, arg, type, device);
    case c10::TypeKind::NumberType: return number(program, arg, type);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      if (is_integral(arg) || arg.kind == LAZYT_ARG_MEMORY_FORMAT || arg.kind == LAZYT_ARG_LAYOUT) {
        return static_cast<int64_t>(arg.payload);
      }
      if (arg.kind == LAZYT_ARG_DTYPE) {
        if (auto dtype = to_scalar_type(static_cast<lazyt_dtype_t>(arg.payload))) return static_cast<int64_t>(*dtype);
      }
      refuse_literal(arg, type);
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      if (arg.kind == LAZYT_ARG_DOUBLE) return as_double(arg);
      if (is_integral(arg)) return static_cast<double>(static_cast<int64_t>(arg.payload));
      refuse_literal(arg, type);
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      if (is_integral(arg)) return arg.payload != 0;
      refuse_literal(arg, type);
    case c10::TypeKind::StringType:
      if (arg.kind == LAZYT_ARG_STRING) return std::string(program.string(arg));
      refuse_literal(arg, type);
    case c10::TypeKind::DeviceObjType:
      if (arg.kind == LAZYT_ARG_DEVICE) return device;
      refuse_literal(arg, type);
    default: refuse_literal(arg, type);
  }
}

const lazyt_plugin_capability_t kCapabilityTable = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .next = nullptr,
    .query = query,
};

}  // namespace lazyt::ts
