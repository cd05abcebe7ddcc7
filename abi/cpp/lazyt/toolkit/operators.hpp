// operators.hpp - the table of a backend: which operators it takes, and how each is lowered.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_OPERATORS_HPP_
#define LAZYT_TOOLKIT_OPERATORS_HPP_

#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lazyt/toolkit/groups.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// Why a node is not taken; reason NONE = it is.
struct Refusal {
  lazyt_reason_t reason = LAZYT_REASON_NONE;
  std::string detail;
};

inline Refusal refuse_dtype(lazyt_dtype_t dtype) {
  return {LAZYT_REASON_DTYPE, "dtype " + std::to_string(dtype) + " is not taken"};
}
inline Refusal refuse_argument(std::string detail) { return {LAZYT_REASON_ARGUMENT, std::move(detail)}; }

// The same question for capability and for compile (CAP-2): both ask here.
using Accept = Refusal (*)(const plugin::ProgramView& program, const lazyt_node_t& node);

// BuilderT: the backend's, of plan.hpp's.
template <class BuilderT>
struct Operator {
  // Emits the steps of one node and says where its results lie.
  using Lower = void (*)(BuilderT& b, const lazyt_node_t& node);

  Role role = Role::kOpaque;
  Accept accept = nullptr;
  Lower lower = nullptr;  // of kOpaque
};

// Filled once, before it is asked; thread-safe from then on.
template <class BuilderT>
class Operators {
 public:
  using Entry = Operator<BuilderT>;
  using ByName = const Entry* (*)(const std::string& full_name);

  // who: the plugin, for answers. by_name: what else is known outside the opset, may be null.
  Operators(std::string who, ByName by_name) : who_(std::move(who)), by_name_(by_name) {}

  void add(lazyt_op_t op, Entry entry) { by_op_[op] = entry; }
  // An operator outside the opset, "aten::view.dtype".
  void add_named(std::string full_name, Entry entry) { named_[std::move(full_name)] = entry; }

  // Null for an operator that this plugin does not know.
  const Entry* find(const plugin::ProgramView& program, const lazyt_node_t& node) const {
    if (node.op == LAZYT_OP_NONE) {
      const std::string name = program.full_name(node);
      const auto found = named_.find(name);
      if (found != named_.end()) return &found->second;
      return by_name_ ? by_name_(name) : nullptr;
    }
    if (node.op >= LAZYT_OP_COUNT) return nullptr;
    const Entry& found = by_op_[node.op];
    return found.accept ? &found : nullptr;
  }
  Refusal accept(const plugin::ProgramView& program, const lazyt_node_t& node) const {
    const Entry* op = find(program, node);
    return op ? op->accept(program, node) : Refusal{LAZYT_REASON_UNKNOWN_OPERATOR, who_ + " has no kernel for it"};
  }
  // For Builder::role_of: throws what accept says.
  Role role_of(const plugin::ProgramView& program, const lazyt_node_t& node) const {
    if (Refusal r = accept(program, node); r.reason != LAZYT_REASON_NONE)
      throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, who_ + ": " + program.full_name(node) + ": " + r.detail);
    return find(program, node)->role;
  }
  // lazyt_plugin_capability_t.query. The details live until the thread asks again.
  void query(const lazyt_program_t* block, lazyt_answer_t* answers, uint64_t count, uint64_t stride) const {
    const plugin::ProgramView program(block);
    thread_local std::vector<std::string> details;
    details.assign(count, {});
    for (uint64_t i = 0; i < count && i < program.nodes().size(); ++i) {
      auto& answer = *reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(answers) + i * stride);
      const lazyt_node_t& node = program.nodes()[i];
      const Refusal refusal = accept(program, node);
      if (refusal.reason == LAZYT_REASON_NONE) {
        answer.kind = LAZYT_ANSWER_TAKE;
        continue;
      }
      details[i] = program.full_name(node) + ": " + refusal.detail;
      answer.kind = LAZYT_ANSWER_REFUSE;
      answer.reason = refusal.reason;
      answer.detail = plugin::to_c(details[i]);
    }
  }

 private:
  std::string who_;
  ByName by_name_;
  std::array<Entry, LAZYT_OP_COUNT> by_op_{};
  std::unordered_map<std::string, Entry> named_;
};

// f(dtype) for every tensor and host scalar that a node reads or makes: refused at the first that it denies.
template <class F>
Refusal accept_if(const plugin::ProgramView& program, const lazyt_node_t& node, F&& f) {
  Refusal refusal;
  auto check = [&](uint32_t v) {
    const lazyt_dtype_t d = program.values()[v].dtype;
    if (refusal.reason == LAZYT_REASON_NONE && !f(d)) refusal = refuse_dtype(d);
  };
  detail::for_each_operand(program, node, check);
  for (uint32_t r = 0; r < node.result_count; ++r) check(node.results + r);
  return refusal;
}
// Every dtype one that registers hold.
inline Refusal accept_known(const plugin::ProgramView& program, const lazyt_node_t& node) {
  return accept_if(program, node, [](lazyt_dtype_t d) { return type_of(d) != Type::kCount; });
}
// Every tensor f32, f64, f16 or bf16.
inline Refusal accept_floats(const plugin::ProgramView& program, const lazyt_node_t& node) {
  return accept_if(program, node, [](lazyt_dtype_t d) { return type_of(d) == Type::kF32 || d == LAZYT_DTYPE_FLOAT64; });
}

inline Refusal accept_view(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (!is_view(program, node)) return refuse_argument("an argument of a view is a host scalar");
  return accept_known(program, node);
}
template <class Kernel>
Refusal accept_pointwise(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  const auto dims = program.dims(program.values()[node.results]);
  Kernel kernel(Dims(dims.begin(), dims.end()), {});
  Reg out[4];
  try {
    PointwiseRules<Kernel>::emit({program, node, kernel}, out);
  } catch (const plugin::Error& e) {
    return {LAZYT_REASON_DTYPE, e.message()};
  }
  return {};
}
template <class Kernel>
Refusal accept_reduction(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  try {
    const auto d = program.dims(program.values()[program.args(node)[0].payload]);
    Kernel k(Dims(d.begin(), d.end()), std::vector<bool>(d.size(), true));
    const Reg x = k.load({0, program.values()[program.args(node)[0].payload].dtype, Layout::dense(d)});
    emit_reduction(program, node, k, x, {0, program.values()[node.results].dtype, Layout::dense(d)});
  } catch (const plugin::Error& e) {
    return {LAZYT_REASON_ARGUMENT, e.message()};
  }
  return {};
}

// The operators that need no kernel of the backend's own: views, pointwise operators, reductions.
template <class Kernel, class BuilderT>
void add_common(Operators<BuilderT>& operators) {
  for (lazyt_op_t op = 1; op < LAZYT_OP_COUNT; ++op) {
    if (may_be_view(op)) operators.add(op, {Role::kView, accept_view, nullptr});
    if (PointwiseRules<Kernel>::has(op)) operators.add(op, {Role::kPointwise, accept_pointwise<Kernel>, nullptr});
    if (is_reduction(op)) operators.add(op, {Role::kReduction, accept_reduction<Kernel>, nullptr});
  }
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_OPERATORS_HPP_
