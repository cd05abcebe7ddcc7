#include "frontend/schema.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "frontend/elements.h"
#include "ir/registry.h"

namespace lazyt::frontend {
namespace {

using trace::ArgType;
using trace::Lowering;

ArgType arg_type(const c10::TypePtr& fake, const c10::TypePtr& real) {
  using c10::TypeKind;
  switch (real->kind()) {
    case TypeKind::ScalarTypeType: return ArgType::kDType;
    case TypeKind::LayoutType: return ArgType::kLayout;
    case TypeKind::MemoryFormatType: return ArgType::kMemoryFormat;
    case TypeKind::OptionalType:
      return arg_type(fake->expectRef<c10::OptionalType>().getElementType(), real->expectRef<c10::OptionalType>().getElementType());
    case TypeKind::TensorType: return ArgType::kTensor;
    case TypeKind::NumberType: return ArgType::kScalar;
    case TypeKind::IntType: case TypeKind::SymIntType: return ArgType::kInt;
    case TypeKind::FloatType: case TypeKind::SymFloatType: return ArgType::kDouble;
    case TypeKind::BoolType: case TypeKind::SymBoolType: return ArgType::kBool;
    case TypeKind::StringType: return ArgType::kString;
    case TypeKind::DeviceObjType: return ArgType::kDevice;
    case TypeKind::GeneratorType: return ArgType::kGenerator;
    case TypeKind::ListType: {
      c10::TypePtr element = real->expectRef<c10::ListType>().getElementType();
      if (element->kind() == TypeKind::OptionalType) element = element->expectRef<c10::OptionalType>().getElementType();
      switch (element->kind()) {
        case TypeKind::TensorType: return ArgType::kTensorList;
        case TypeKind::NumberType: return ArgType::kScalarList;
        case TypeKind::IntType: case TypeKind::SymIntType: return ArgType::kIntList;
        case TypeKind::FloatType: return ArgType::kDoubleList;
        case TypeKind::BoolType: return ArgType::kBoolList;
        default: return ArgType::kUnsupported;
      }
    }
    default: return ArgType::kUnsupported;
  }
}

bool writes(const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); }

bool is_pure(const c10::FunctionSchema& s) {
  for (const auto& a : s.arguments())
    if (a.alias_info()) return false;
  return true;
}

// The overloads of an operator. `asker` is registered: an index that lacks it is old. REQUIRES: the lock of torch_op.
std::vector<c10::OperatorHandle> overloads(const std::string& name, const c10::OperatorName& asker) {
  static auto* index = new std::unordered_multimap<std::string, c10::OperatorName>;
  auto has = [&](const c10::OperatorName& n) {
    for (auto [it, end] = index->equal_range(n.name); it != end; ++it)
      if (it->second == n) return true;
    return false;
  };
  if (!has(asker)) {
    index->clear();
    for (const c10::OperatorName& n : c10::Dispatcher::singleton().getAllOpNames()) index->emplace(n.name, n);
  }
  std::vector<c10::OperatorHandle> out;
  for (auto [it, end] = index->equal_range(name); it != end; ++it)
    if (auto h = c10::Dispatcher::singleton().findSchema(it->second)) out.push_back(*h);
  return out;
}

// An operator that returns what another one writes.
struct Functional {
  c10::OperatorHandle handle;
  std::vector<int> args;  // where it takes them from (trace::Op::functional_args)
  bool same_order;        // they are those of the other one, without out=
};

// What a function that makes a tensor takes besides what its out= form takes.
int of_the_result(const c10::Argument& a) {
  static const auto& kNames = *new std::map<std::string, int>{
      {"dtype", trace::kOutDType}, {"layout", trace::kOutLayout}, {"device", trace::kOutDevice}, {"pin_memory", trace::kOutPinned}};
  auto it = kNames.find(a.name());
  return a.default_value() && it != kNames.end() ? it->second : 0;
}

// Takes every argument of `schema` but out=, by position or else by name; what is left over says how a result is made.
std::optional<Functional> as_functional(const c10::FunctionSchema& schema, const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& s = handle.schema();
  if (!is_pure(s)) return std::nullopt;
  std::vector<int> wanted;
  for (size_t i = 0; i < schema.arguments().size(); i++)
    if (!schema.arguments()[i].is_out()) wanted.push_back(static_cast<int>(i));
  auto fits = [&](int i, const c10::Argument& a) { return *schema.arguments()[i].real_type() == *a.real_type(); };
  Functional f{handle, {}, s.arguments().size() == wanted.size()};
  for (size_t i = 0; i < s.arguments().size() && f.same_order; i++) f.same_order = fits(wanted[i], s.arguments()[i]);
  if (f.same_order) {
    f.args = std::move(wanted);
    return f;
  }
  for (const c10::Argument& a : s.arguments()) {
    auto it = std::find_if(wanted.begin(), wanted.end(), [&](int i) { return schema.arguments()[i].name() == a.name() && fits(i, a); });
    if (it != wanted.end()) {
      f.args.push_back(*it);
      wanted.erase(it);
    } else if (int from = of_the_result(a)) {
      f.args.push_back(from);
    } else {
      return std::nullopt;
    }
  }
  return wanted.empty() ? std::optional(f) : std::nullopt;
}

// The best one: of the same order before others, and of the same overload name.
std::optional<Functional> find_functional(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  std::vector<std::string> names = {name, name + "_functional"};
  if (name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_')
    names = {name.substr(0, name.size() - 1), name.substr(0, name.size() - 1) + "_functional"};
  std::optional<Functional> found;
  for (const std::string& n : names)
    for (const c10::OperatorHandle& h : overloads(n, {schema.name(), schema.overload_name()})) {
      auto f = as_functional(schema, h);
      if (!f || (found && found->same_order && !f->same_order)) continue;
      if (!found || (f->same_order && !found->same_order) || h.schema().overload_name() == schema.overload_name()) found = std::move(f);
    }
  return found;
}

Lowering special(const std::string& name, const std::string& overload) {
  static const auto& kSpecial = *new std::map<std::string, Lowering>{
      {"aten::copy_", Lowering::kCopy},         {"aten::fill_", Lowering::kFill},
      {"aten::zero_", Lowering::kZero},         {"aten::native_dropout", Lowering::kDropout},
      {"aten::uniform_", Lowering::kUniform},   {"aten::normal_", Lowering::kNormal},
      {"aten::random_", Lowering::kRandInt},
      {"aten::exponential_", Lowering::kExponential}, {"aten::exponential", Lowering::kExponential},
      {"aten::cauchy_", Lowering::kCauchy},           {"aten::cauchy", Lowering::kCauchy},
      {"aten::log_normal_", Lowering::kLogNormal},    {"aten::log_normal", Lowering::kLogNormal},
      {"aten::geometric_", Lowering::kGeometric},     {"aten::geometric", Lowering::kGeometric},
      {"aten::rrelu_with_noise_", Lowering::kRelu},   {"aten::rrelu_with_noise", Lowering::kRelu},
      {"aten::multinomial", Lowering::kMultinomial},
      {"aten::linear", Lowering::kLinear},            {"aten::linear_backward", Lowering::kLinearBackward},
  };
  if (name == "aten::arange") return overload == "start" || overload == "start_step" ? Lowering::kArange : Lowering::kPlain;
  if (name == "aten::bernoulli_") return overload == "float" ? Lowering::kBernoulliFloat : Lowering::kBernoulli;
  if (name == "aten::bernoulli") return overload.empty() || overload == "out" ? Lowering::kBernoulli : Lowering::kPlain;
  if (name == "aten::normal") return overload.find("Tensor") != std::string::npos ? Lowering::kNormalOf : Lowering::kPlain;
  auto it = kSpecial.find(name);
  return it == kSpecial.end() ? Lowering::kPlain : it->second;
}

// Names a few more than those whose products may be rounded, which costs them a look.
bool multiplies(const std::string& name) {
  constexpr std::string_view kParts[] = {"mm", "mv", "dot", "matmul", "linear", "conv", "attention", "lstm", "gru", "rnn", "cdist", "einsum"};
  return std::ranges::any_of(kParts, [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

// The functional form of one that writes out= and more returns out= first.
template <class Refuse>
void order_written(TorchOp& t, Refuse&& refuse) {
  std::vector<size_t> written;
  uint32_t outs = 0;
  for (size_t i = 0; i < t.op.args.size(); i++)
    if (t.op.args[i].written) written.push_back(i), outs += t.op.args[i].out;
  if (outs == 0 || outs == written.size()) return;
  uint32_t next_out = 0, next = outs;
  for (size_t i : written) {
    if (t.handle.schema().arguments()[i].real_type()->kind() != c10::TypeKind::TensorType) refuse("it writes lists besides out=");
    t.op.written_order.push_back(t.op.args[i].out ? next_out++ : next++);
  }
}

void fill(TorchOp& t) {
  const c10::FunctionSchema& schema = t.handle.schema();
  trace::Op& op = t.op;
  op.name = schema.name();
  op.overload = schema.overload_name();
  op.recorded = &base::counter("lazyt::" + op.name.substr(op.name.find("::") + 2));
  op.lowering = special(op.name, op.overload);
  op.multiplies = multiplies(op.name);
  if (op.lowering == Lowering::kLinear) op.stands_for = {&base::counter("lazyt::addmm")};
  if (op.lowering == Lowering::kLinearBackward) op.stands_for = {&base::counter("lazyt::mm"), &base::counter("lazyt::sum")};
  t.recordable = true;
  t.has_composite = op.lowering == Lowering::kLinear || op.lowering == Lowering::kLinearBackward;
  auto refuse = [&](std::string why) {
    if (t.recordable) t.why_not = std::move(why);
    t.recordable = false;
  };
  t.masks_on_host = op.name == "aten::index" && op.overload == "Tensor";
  t.masks_count = t.masks_on_host || op.name.find("index_put") != std::string::npos;
  t.by_indices = t.masks_count || op.name.starts_with("aten::index_reduce") || op.name.starts_with("aten::scatter");
  t.copies_storage = op.overload.empty() && (op.name == "aten::select_scatter" || op.name == "aten::slice_scatter" ||
                                             op.name == "aten::diagonal_scatter" || op.name == "aten::as_strided_scatter" || op.name == "aten::as_strided_copy");
  t.takes_cpu = t.masks_count || (op.name == "aten::bernoulli_" && op.overload == "Tensor");
  if (!t.masks_on_host && (t.handle.hasTag(at::Tag::data_dependent_output) || t.handle.hasTag(at::Tag::dynamic_output_shape)))
    refuse("its result depends on data");
  bool mutates = false;
  for (const c10::Argument& a : schema.arguments()) {
    trace::OpArg arg;
    arg.name = a.name();
    arg.type = arg_type(a.type(), a.real_type());
    arg.written = writes(a);
    arg.out = a.is_out();
    if (a.default_value() && a.default_value()->isInt()) arg.default_int = a.default_value()->toInt();
    mutates |= arg.written;
    t.has_out |= arg.out;
    if (arg.type == ArgType::kUnsupported) refuse("argument '" + arg.name + "' cannot be recorded");
    if (arg.type == ArgType::kGenerator) op.random = true;
    if (a.alias_info() && !arg.written) refuse("it returns views");
    op.args.push_back(std::move(arg));
  }
  // Tagged as random for a dropout that its kernel refuses.
  const bool only_tagged = op.name == "aten::_scaled_dot_product_flash_attention_for_cpu";
  op.random |= op.lowering == Lowering::kDropout || (t.handle.hasTag(at::Tag::nondeterministic_seeded) && !only_tagged);
  if (op.random && op.lowering == Lowering::kPlain) refuse("it is random and outside the opset");
  // Pointwise kernels and copies are TensorIterator's, which checks; filling is exempt there.
  if (mutates && (t.handle.hasTag(at::Tag::pointwise) || op.lowering == Lowering::kCopy) &&
      op.lowering != Lowering::kFill && op.lowering != Lowering::kZero)
    t.overlap = op.name == "aten::masked_fill_" ? OverlapRule::kPartial : OverlapRule::kInternalAndPartial;
  t.writes_list = !t.has_out && schema.returns().empty() && op.name.starts_with("aten::_foreach_");
  t.element_numbers = element_numbers(schema);
  if (schema.returns().empty() && !mutates) refuse("it is called for what it does, not for a result");
  order_written(t, refuse);
  op.functional_name = op.name;
  op.functional_overload = op.overload;
  if (mutates && op.lowering == Lowering::kPlain) {
    if (auto f = find_functional(schema)) {
      const c10::FunctionSchema& s = f->handle.schema();
      op.functional_name = s.name();
      op.functional_overload = s.overload_name();
      t.functional = f->handle;
      if (!f->same_order) op.functional_args = std::move(f->args);
    } else if (op.name.rfind("aten::", 0) == 0) {
      refuse("it has no functional form");
    } else {
      t.writes_itself = true;
      t.has_out = false;
      for (trace::OpArg& a : op.args) a.out = false;
    }
  }
  size_t tensors = 0, lists = 0;
  for (const c10::Argument& r : schema.returns()) {
    if (r.alias_info() && r.alias_info()->isWrite()) {
      int index = -1;
      for (size_t i = 0; i < schema.arguments().size(); i++)
        if (writes(schema.arguments()[i]) && *schema.arguments()[i].alias_info() == *r.alias_info()) index = static_cast<int>(i);
      if (index < 0) refuse("a result aliases no argument that is written");
      t.returns.push_back(index);
      continue;
    }
    switch (arg_type(r.type(), r.real_type())) {
      case ArgType::kTensor: t.returns.push_back(-1), tensors++; break;
      case ArgType::kTensorList: t.returns.push_back(-2), lists++; break;
      default: refuse("it returns something that is no tensor"); t.returns.push_back(-1);
    }
  }
  if (lists > 1 || (lists && tensors)) refuse("its results mix tensors and lists");
  // Host scalars only where the opset says what they mean; elsewhere numbers are part of the signature.
  const ir::OpInfo* info = ir::find_op(op.functional_name, op.functional_overload);
  std::vector<int> order = op.functional_args;
  for (size_t i = 0; i < op.args.size() && op.functional_args.empty(); i++)
    if (!op.args[i].out) order.push_back(static_cast<int>(i));
  for (trace::OpArg& a : op.args) a.is_static = op.lowering != Lowering::kFill;
  for (size_t position = 0; info && position < order.size() && position < 64; position++) {
    if (order[position] < 0) continue;
    trace::OpArg& a = op.args[order[position]];
    a.moves = info->moving_args >> position & 1;
    a.is_static = a.moves || (a.is_static && (info->static_args >> position & 1));
  }
}

std::shared_mutex known_mutex;
auto& known() {
  static auto* ops = new std::unordered_map<c10::OperatorName, TorchOp*>;
  return *ops;
}

}  // namespace

TorchOp& torch_op(const c10::OperatorHandle& handle) {
  const c10::OperatorName& name = handle.operator_name();
  {
    std::shared_lock lock(known_mutex);
    if (auto it = known().find(name); it != known().end()) return *it->second;
  }
  std::unique_lock lock(known_mutex);
  TorchOp*& op = known()[name];
  if (!op) {
    auto made = std::make_unique<TorchOp>(handle);
    fill(*made);
    op = made.release();
  }
  return *op;
}

void forget_op(const c10::OperatorName& name) {
  std::unique_lock lock(known_mutex);
  known().erase(name);  // tokens still point to it
}

}  // namespace lazyt::frontend
