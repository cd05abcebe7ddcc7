// recompute.hpp - what a kernel computes again rather than reads.
//
// A program holds forward and backward, so most of what a group stores is for a reader far behind it: 1 + tanh(x) beside
// tanh(x), x * 0.5 beside x. Where a value costs an instruction or two from values that lie in memory anyway, its readers compute it
// again, and it is neither stored nor read nor kept until then. The instructions are the same, so are the bits.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_RECOMPUTE_HPP_
#define LAZYT_TOOLKIT_RECOMPUTE_HPP_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lazyt/ops.h"
#include "lazyt/toolkit/fusion.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// Whether a pointwise operator takes no more than an instruction or two.
inline bool is_cheap(lazyt_op_t op) {
  switch (op) {
    case LAZYT_OP_ADD_TENSOR: case LAZYT_OP_ADD_SCALAR: case LAZYT_OP_SUB_TENSOR: case LAZYT_OP_SUB_SCALAR: case LAZYT_OP_RSUB_SCALAR:
    case LAZYT_OP_MUL_TENSOR: case LAZYT_OP_MUL_SCALAR: case LAZYT_OP_NEG: case LAZYT_OP_ABS: case LAZYT_OP_SQUARE: case LAZYT_OP_RELU:
    case LAZYT_OP_EQ_TENSOR: case LAZYT_OP_EQ_SCALAR: case LAZYT_OP_NE_TENSOR: case LAZYT_OP_NE_SCALAR: case LAZYT_OP_LT_TENSOR:
    case LAZYT_OP_LT_SCALAR: case LAZYT_OP_LE_TENSOR: case LAZYT_OP_LE_SCALAR: case LAZYT_OP_GT_TENSOR: case LAZYT_OP_GT_SCALAR:
    case LAZYT_OP_GE_TENSOR: case LAZYT_OP_GE_SCALAR: case LAZYT_OP_LOGICAL_NOT: return true;
    default: return false;
  }
}

namespace detail {

class Recomputer {
 public:
  Recomputer(const plugin::ProgramView& program, std::vector<Unit>& units, uint32_t max_nodes)
      : program_(program), units_(units), max_nodes_(max_nodes), values_(program.values().size()), unit_of_(program.nodes().size(), kNone) {
    for (uint32_t u = 0; u < units.size(); ++u)
      for (uint32_t n : units[u].nodes) unit_of_[n] = u;
    for (uint32_t n = 0; n < program.nodes().size(); ++n) {
      const lazyt_node_t& node = program.nodes()[n];
      for (uint32_t r = 0; r < node.result_count; ++r) values_[node.results + r].maker = n;
      for_each_operand(program, node, [&](uint32_t v) { values_[v].readers.push_back(n); });
    }
    for (const lazyt_output_t& output : program.outputs()) {
      values_[output.value].is_output = true;
      if (output.donor != LAZYT_NONE) values_[program.inputs()[output.donor].value].is_given = true;
    }
    for (uint32_t v = 0; v < values_.size(); ++v) values_[v].may_repeat = may_repeat(v);  // once: a value may have many readers
  }

  void run() {
    for (uint32_t v = 0; v < values_.size(); ++v) {
      std::vector<uint32_t> nodes, operands;
      if (!values_[v].may_repeat || !collect(v, nodes, operands)) continue;
      std::vector<uint32_t> readers;  // units
      for (uint32_t n : values_[v].readers)
        if (unit_of_[n] != unit_of_[values_[v].maker]) readers.push_back(unit_of_[n]);
      std::sort(readers.begin(), readers.end());
      readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
      if (!std::all_of(readers.begin(), readers.end(), [&](uint32_t u) { return pays(v, operands, nodes.size(), units_[u]); })) continue;
      for (uint32_t u : readers) add(units_[u].again, nodes);
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kMost = 3;  // nodes for one value

  struct Value {
    uint32_t maker = kNone;
    std::vector<uint32_t> readers;  // nodes, as often as they read it
    bool is_output = false;
    bool is_given = false;  // an input whose bytes an output may take
    bool may_repeat = false;
  };

  bool is_group(uint32_t unit) const { return units_[unit].role == Role::kPointwise || units_[unit].role == Role::kReduction; }
  bool is_tensor(uint32_t v) const { return !(program_.values()[v].flags & LAZYT_VALUE_HOST_SCALAR); }
  Dims dims(uint32_t v) const {
    const auto d = program_.dims(program_.values()[v]);
    return Dims(d.begin(), d.end());
  }

  // v is made by a cheap node of a group, for other groups as well, and for groups alone.
  bool may_repeat(uint32_t v) const {
    const Value& value = values_[v];
    if (value.maker == kNone || value.is_output || !is_cheap(program_.nodes()[value.maker].op)) return false;
    const uint32_t own = unit_of_[value.maker];
    if (!is_group(own)) return false;
    bool is_read = false;
    for (uint32_t n : value.readers) {
      if (unit_of_[n] == own) continue;
      const Unit& unit = units_[unit_of_[n]];
      if (!is_group(unit_of_[n]) || unit.dims != dims(v) || reduces(n, unit)) return false;
      is_read = true;
    }
    return is_read;
  }
  // A reduction may become a kernel of its own, which reads its operand.
  bool reduces(uint32_t n, const Unit& unit) const {
    const auto result = program_.dims(program_.values()[program_.nodes()[n].results]);
    return !std::equal(result.begin(), result.end(), unit.dims.begin(), unit.dims.end());
  }

  // Whether v lies in memory when later units run, and may be read there.
  bool is_stored(uint32_t v) const {
    const Value& value = values_[v];
    if (value.maker == kNone) return !value.is_given;
    const uint32_t own = unit_of_[value.maker];
    if (units_[own].role == Role::kView) return is_stored(static_cast<uint32_t>(program_.args(program_.nodes()[value.maker])[0].payload));
    if (!is_group(own)) return true;
    if (value.may_repeat) return false;
    return value.is_output || std::any_of(value.readers.begin(), value.readers.end(), [&](uint32_t n) { return unit_of_[n] != own; });
  }

  // The nodes that make v again, and the stored values that they read.
  bool collect(uint32_t v, std::vector<uint32_t>& nodes, std::vector<uint32_t>& operands) const {
    if (nodes.size() == kMost) return false;
    nodes.push_back(values_[v].maker);
    bool all = true;
    for_each_operand(program_, program_.nodes()[values_[v].maker], [&](uint32_t o) {
      if (!all || !is_tensor(o)) return;
      if (dims(o) != dims(v)) {
        all = false;
      } else if (is_stored(o)) {
        add(operands, {o});
      } else {
        const uint32_t maker = values_[o].maker;
        all = maker != kNone && is_group(unit_of_[maker]) && is_cheap(program_.nodes()[maker].op) && collect(o, nodes, operands);
      }
    });
    return all;
  }

  // A unit that makes v again reads no more bytes than v's.
  bool pays(uint32_t v, const std::vector<uint32_t>& operands, size_t nodes, const Unit& unit) const {
    if (unit.nodes.size() + unit.again.size() + nodes > max_nodes_) return false;
    uint64_t bytes = 0;
    for (uint32_t o : operands) {
      bool is_read = false;
      for (uint32_t n : unit.nodes) for_each_operand(program_, program_.nodes()[n], [&](uint32_t read) { is_read |= read == o; });
      if (!is_read) bytes += lazyt_dtype_size(program_.values()[o].dtype);
    }
    return bytes <= lazyt_dtype_size(program_.values()[v].dtype);
  }

  static void add(std::vector<uint32_t>& to, const std::vector<uint32_t>& numbers) {
    to.insert(to.end(), numbers.begin(), numbers.end());
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
  }

  const plugin::ProgramView& program_;
  std::vector<Unit>& units_;
  const uint32_t max_nodes_;
  std::vector<Value> values_;
  std::vector<uint32_t> unit_of_;
};

}  // namespace detail

// Fills Unit::again of units that fuse() made of the program with as many max_nodes.
inline void recompute(const plugin::ProgramView& program, std::vector<Unit>& units, uint32_t max_nodes = 64) {
  detail::Recomputer(program, units, max_nodes).run();
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_RECOMPUTE_HPP_
