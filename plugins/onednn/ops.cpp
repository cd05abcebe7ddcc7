#include "ops.h"

#include "kernels/custom.h"
#include "kernels/vm.h"

#include <array>
#include <unordered_map>

namespace lazyt::onednn {
namespace {

using plugin::from_c;

std::array<Operator, LAZYT_OP_COUNT>& operators() {
  static std::array<Operator, LAZYT_OP_COUNT> all;
  return all;
}

std::unordered_map<std::string, Operator>& named() {
  static auto& all = *new std::unordered_map<std::string, Operator>;
  return all;
}

void add(lazyt_op_t op, Operator entry) { operators()[op] = entry; }

Refusal accept_view(const ProgramView& program, const lazyt_node_t& node) {
  if (!toolkit::is_view(program, node)) return refuse_argument("an argument of a view is a host scalar");
  return accept_known(program, node);
}

constexpr lazyt_op_t kViews[] = {
    LAZYT_OP_T, LAZYT_OP_PERMUTE, LAZYT_OP_TRANSPOSE_INT, LAZYT_OP_SLICE_TENSOR, LAZYT_OP_SELECT_INT, LAZYT_OP_EXPAND,
    LAZYT_OP_VIEW, LAZYT_OP_RESHAPE, LAZYT_OP_SQUEEZE_DIMS, LAZYT_OP_UNSQUEEZE, LAZYT_OP_DIAGONAL, LAZYT_OP_AS_STRIDED,
    LAZYT_OP_ALIAS, LAZYT_OP_UNFOLD, LAZYT_OP_FLIP, LAZYT_OP_SPLIT_TENSOR, LAZYT_OP_SPLIT_WITH_SIZES, LAZYT_OP_UNBIND_INT,
    LAZYT_OP_CHUNK,
};

bool register_all() {
  for (lazyt_op_t op : kViews) add(op, {toolkit::Role::kView, accept_view, nullptr});
  for (auto f : {register_pointwise, register_reduce, register_copy, register_random, register_matmul, register_conv,
                 register_pool, register_norm, register_softmax, register_loss, register_index, register_attention})
    f(add);
  return true;
}

// Calls f(dtype) for every tensor and host scalar that a node reads or makes, until it answers false.
template <class F>
bool each_dtype(const ProgramView& program, const lazyt_node_t& node, F&& f) {
  bool good = true;
  toolkit::detail::for_each_operand(program, node, [&](uint32_t v) { good = good && f(program.values()[v].dtype); });
  for (uint32_t r = 0; r < node.result_count; ++r) good = good && f(program.values()[node.results + r].dtype);
  return good;
}

template <class F>
Refusal accept_if(const ProgramView& program, const lazyt_node_t& node, F&& f) {
  Refusal refusal;
  each_dtype(program, node, [&](lazyt_dtype_t d) {
    if (f(d)) return true;
    refusal = refuse_dtype(d);
    return false;
  });
  return refusal;
}

lazyt_status_t* query(lazyt_device_t* device, const lazyt_program_t* block, lazyt_answer_t* answers, uint64_t count,
                      uint64_t stride) {
  return plugin::guard([&] {
    from_c(device);
    const ProgramView program(block);
    static const bool ready = register_all();
    (void)ready;
    thread_local std::vector<std::string> details;
    details.assign(count, {});
    for (uint64_t i = 0; i < count && i < program.nodes().size(); ++i) {
      auto& answer = *reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(answers) + i * stride);
      const lazyt_node_t& node = program.nodes()[i];
      const Operator* op = find_operator(program, node);
      Refusal refusal;
      if (!op) {
        refusal = {LAZYT_REASON_UNKNOWN_OPERATOR, "onednn has no kernel for it"};
      } else {
        refusal = op->accept(program, node);
      }
      if (refusal.reason == LAZYT_REASON_NONE) {
        answer.kind = LAZYT_ANSWER_TAKE;
        continue;
      }
      details[i] = program.full_name(node) + ": " + refusal.detail;
      answer.kind = LAZYT_ANSWER_REFUSE;
      answer.reason = refusal.reason;
      answer.detail = plugin::to_c(details[i]);
    }
  });
}

}  // namespace

const Operator* find_operator(const ProgramView& program, const lazyt_node_t& node) {
  static const bool ready = register_all();
  (void)ready;
  if (node.op == LAZYT_OP_NONE) {
    const std::string name = program.full_name(node);
    const auto found = named().find(name);
    return found == named().end() ? find_custom(name) : &found->second;
  }
  if (node.op >= LAZYT_OP_COUNT) return nullptr;
  const Operator& found = operators()[node.op];
  return found.accept ? &found : nullptr;
}

void add_named(std::string full_name, Operator entry) { named()[std::move(full_name)] = entry; }

Refusal refuse_dtype(lazyt_dtype_t dtype) { return {LAZYT_REASON_DTYPE, "dtype " + std::to_string(dtype) + " is not taken"}; }
Refusal refuse_argument(std::string detail) { return {LAZYT_REASON_ARGUMENT, std::move(detail)}; }

Refusal accept_known(const ProgramView& program, const lazyt_node_t& node) {
  return accept_if(program, node, [](lazyt_dtype_t d) { return vm::type_of(d) != vm::Type::kCount; });
}
Refusal accept_floats(const ProgramView& program, const lazyt_node_t& node) {
  return accept_if(program, node, [](lazyt_dtype_t d) { return vm::type_of(d) == vm::Type::kF32 || d == LAZYT_DTYPE_FLOAT64; });
}
Refusal accept_f32(const ProgramView& program, const lazyt_node_t& node) {
  return accept_if(program, node, [](lazyt_dtype_t d) {
    return vm::type_of(d) != vm::Type::kCount && (!vm::is_float(vm::type_of(d)) || d == LAZYT_DTYPE_FLOAT32);
  });
}

const lazyt_plugin_capability_t kCapabilityTable = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .next = nullptr,
    .query = query,
};

}  // namespace lazyt::onednn
