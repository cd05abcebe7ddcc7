// fusion.hpp - which nodes of a program make one kernel.
//
// The backend says what each node is (Role). fuse() walks the program in order and grows open groups: a pointwise
// node joins the groups of its operands that walk the same elements, and merges them; a reduction joins as a
// reader, and its result leaves the group. What a node needs whole (an operand of an opaque operator or of a
// view, a value of other dims) closes the group that makes it. A closed group comes before all that was not
// yet closed, so the order of the units runs every value before its readers, and no group can wait for itself.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_FUSION_HPP_
#define LAZYT_TOOLKIT_FUSION_HPP_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lazyt/plugin.hpp"
#include "lazyt/toolkit/layout.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

enum class Role : uint8_t {
  kOpaque,     // a kernel of its own
  kView,       // no work: its results look at its operand's bytes
  kPointwise,  // element i of each result from elements i (or broadcast ones) of the operands
  kReduction,  // reads operand 0 pointwise over the operand's dims; its results have fewer
};

// Nodes that run together, in program order. One node alone unless it is pointwise or a reduction.
struct Unit {
  Role role = Role::kOpaque;  // of a group: kPointwise, or kReduction if it ends in reductions
  std::vector<uint32_t> nodes;
  Dims dims;  // that a group walks
  std::vector<uint32_t> again = {};  // nodes of groups before it that this one runs, too, for itself alone (recompute.hpp)
};

struct FusionLimits {
  uint32_t nodes = 64;  // of a group
  // Of a group: values that it reads from outside, results, any of which may be read outside, and numbers of its nodes. Its
  // kernel's registers are finite.
  uint32_t values = UINT32_MAX;
  // Of a group: values of kManyBytes or more together that other units make and that lie in memory until it runs. A sum of
  // many products, one of each turn of a loop, else keeps all of them.
  uint32_t waiting = UINT32_MAX;
  static constexpr uint64_t kManyBytes = uint64_t{256} << 10;
};

namespace detail {

// Calls f(value) for each value that the arguments of a node name, lists included.
template <class F>
void for_each_operand(const plugin::ProgramView& program, const lazyt_node_t& node, F&& f) {
  for (const lazyt_arg_t& arg : program.args(node)) {
    if (arg.kind == LAZYT_ARG_VALUE) f(static_cast<uint32_t>(arg.payload));
    if (arg.kind != LAZYT_ARG_LIST) continue;
    for (const lazyt_arg_t& element : program.elements(arg))
      if (element.kind == LAZYT_ARG_VALUE) f(static_cast<uint32_t>(element.payload));
  }
}

class Fuser {
 public:
  Fuser(const plugin::ProgramView& program, FusionLimits limits) : program_(program), limits_(limits) {
    maker_.assign(program.values().size(), kNone);
    made_.assign(program.values().size(), false);
  }

  template <class RoleOf>
  std::vector<Unit> run(RoleOf&& role_of) {
    for (uint32_t i = 0; i < program_.nodes().size(); ++i) {
      const lazyt_node_t& node = program_.nodes()[i];
      const Role role = role_of(i);
      for (uint32_t r = 0; r < node.result_count; ++r) made_[node.results + r] = true;
      if (role == Role::kPointwise || role == Role::kReduction) {
        join(i, node, role);
        continue;
      }
      for_each_operand(program_, node, [&](uint32_t v) { close(maker_[v]); });
      units_.push_back({role, {i}, {}});
    }
    for (uint32_t g = 0; g < groups_.size(); ++g) close(g);
    return std::move(units_);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Group {
    Unit unit;
    bool open = true;
    uint32_t merged_into = kNone;
    std::vector<uint32_t> waiting = {};  // for it: values that other units make
    std::vector<uint32_t> operands = {};  // values from outside, each once
    size_t own = 0;                       // results and numbers of its nodes
    size_t values() const { return operands.size() + own; }
  };

  uint32_t root(uint32_t g) {
    while (g != kNone && groups_[g].merged_into != kNone) g = groups_[g].merged_into;
    return g;
  }

  void close(uint32_t g) {
    g = root(g);
    if (g == kNone || !groups_[g].open) return;
    groups_[g].open = false;
    std::sort(groups_[g].unit.nodes.begin(), groups_[g].unit.nodes.end());
    units_.push_back(groups_[g].unit);
  }

  void join(uint32_t index, const lazyt_node_t& node, Role role) {
    const uint32_t walked = role == Role::kReduction ? static_cast<uint32_t>(program_.args(node)[0].payload) : node.results;
    const auto span = program_.dims(program_.values()[walked]);
    const Dims dims(span.begin(), span.end());
    uint32_t target = kNone;
    for_each_operand(program_, node, [&](uint32_t v) {
      const uint32_t g = root(maker_[v]);
      if (g == kNone || !groups_[g].open) return;
      const bool fits = groups_[g].unit.dims == dims && readable(v, node, role, dims);
      if (fits && (g == target || target == kNone || merge(g, target))) {
        if (target == kNone) target = g;
        return;
      }
      close(g);
      if (g == target) target = kNone;
    });
    if (target != kNone && (groups_[target].unit.nodes.size() >= limits_.nodes || keeps_many(groups_[target]) ||
                            groups_[target].values() + values_of(node) > limits_.values)) {
      close(target);
      target = kNone;
    }
    if (target == kNone) {
      target = static_cast<uint32_t>(groups_.size());
      groups_.push_back({{Role::kPointwise, {}, dims}});
    }
    Group& group = groups_[target];
    group.unit.nodes.push_back(index);
    if (role == Role::kReduction) group.unit.role = Role::kReduction;
    for (uint32_t r = 0; r < node.result_count; ++r) maker_[node.results + r] = target;
    if (role == Role::kReduction) mark_reduced(node);
    if (limits_.values != UINT32_MAX) {
      group.own += own_values(node);
      for_each_operand(program_, node, [&](uint32_t v) {
        if (root(maker_[v]) != target) add_once(group.operands, v);
      });
    }
    if (limits_.waiting == UINT32_MAX) return;
    for_each_operand(program_, node, [&](uint32_t v) {
      if (made_[v] && root(maker_[v]) != target) add_once(group.waiting, v);
    });
  }

  static void add_once(std::vector<uint32_t>& list, uint32_t v) {
    if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
  }
  // Results and numbers; 0 and 1 are mostly no numbers of a kernel but a dim, a factor that is none.
  size_t own_values(const lazyt_node_t& node) const {
    size_t n = node.result_count;
    for (const lazyt_arg_t& arg : program_.args(node))
      n += arg.kind == LAZYT_ARG_DOUBLE || (arg.kind == LAZYT_ARG_INT && arg.payload > 1);
    return n;
  }
  // At most, with operands that the group may have already.
  size_t values_of(const lazyt_node_t& node) const {
    size_t n = own_values(node);
    for_each_operand(program_, node, [&](uint32_t) { ++n; });
    return n;
  }

  bool keeps_many(const Group& group) const {
    if (group.waiting.size() < limits_.waiting) return false;
    uint64_t bytes = 0;
    for (uint32_t v : group.waiting) bytes += program_.span_bytes(program_.values()[v]);
    return bytes >= FusionLimits::kManyBytes;
  }

  // Whether a node of the group may read v inside it: v is no result of a reduction there, and walks the same dims
  // (a broadcast operand is needed whole).
  bool readable(uint32_t v, const lazyt_node_t& node, Role role, const Dims& dims) const {
    if (v < is_reduced_.size() && is_reduced_[v]) return false;
    const auto own = program_.dims(program_.values()[v]);
    if (!std::equal(own.begin(), own.end(), dims.begin(), dims.end())) return false;
    return role != Role::kReduction || v == static_cast<uint32_t>(program_.args(node)[0].payload);
  }

  void mark_reduced(const lazyt_node_t& node) {
    is_reduced_.resize(program_.values().size(), false);
    for (uint32_t r = 0; r < node.result_count; ++r) is_reduced_[node.results + r] = true;
  }

  // Moves all of `from` into `to`.
  bool merge(uint32_t from, uint32_t to) {
    Group &a = groups_[from], &b = groups_[to];
    if (a.unit.nodes.size() + b.unit.nodes.size() > limits_.nodes || a.values() + b.values() > limits_.values) return false;
    for (uint32_t v : a.operands) add_once(b.operands, v);
    b.own += a.own;
    b.waiting.insert(b.waiting.end(), a.waiting.begin(), a.waiting.end());
    b.unit.nodes.insert(b.unit.nodes.end(), a.unit.nodes.begin(), a.unit.nodes.end());
    if (a.unit.role == Role::kReduction) b.unit.role = Role::kReduction;
    a.open = false;
    a.merged_into = to;
    return true;
  }

  const plugin::ProgramView& program_;
  const FusionLimits limits_;
  std::vector<uint32_t> maker_;  // group that makes a value
  std::vector<bool> made_;       // values: by a node that was met
  std::vector<Group> groups_;
  std::vector<bool> is_reduced_;
  std::vector<Unit> units_;
};

}  // namespace detail

// role_of(node index) -> Role.
// The nodes of all units together are those of the program, each once.
template <class RoleOf>
std::vector<Unit> fuse(const plugin::ProgramView& program, RoleOf&& role_of, FusionLimits limits = {}) {
  return detail::Fuser(program, limits).run(role_of);
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_FUSION_HPP_
