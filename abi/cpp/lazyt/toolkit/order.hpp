// order.hpp - when each unit runs.
//
// fuse() ends a group as late as it can, so that it grows: the sums that are a bias's gradient, and the optimizer's step of each
// parameter, come behind the whole backward. By then what they read has left the caches. A group whose results take little memory, or
// lie in outputs anyway, runs as soon as what it reads is there.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_ORDER_HPP_
#define LAZYT_TOOLKIT_ORDER_HPP_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "lazyt/toolkit/fusion.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

namespace detail {

class Orderer {
 public:
  Orderer(const plugin::ProgramView& program, const std::vector<Unit>& units)
      : program_(program), units_(units), values_(program.values().size()), behind_(units.size()) {
    for (uint32_t v = 0; v < values_.size(); ++v) values_[v].shows = v;
    for (const lazyt_output_t& output : program.outputs()) {
      values_[output.value].is_output = true;
      if (output.donor == LAZYT_NONE) continue;
      const uint32_t donor = program.inputs()[output.donor].value;
      values_[output.value].donor = donor;
      values_[donor].readers = static_cast<uint32_t>(readers_.size());
      readers_.emplace_back();
    }
    for (uint32_t u = 0; u < units.size(); ++u) {
      for (uint32_t n : units[u].nodes) {
        const lazyt_node_t& node = program.nodes()[n];
        for (uint32_t r = 0; r < node.result_count; ++r) values_[node.results + r].maker = u;
        for_each_operand(program, node, [&](uint32_t v) {
          if (units[u].role == Role::kView)
            for (uint32_t r = 0; r < node.result_count; ++r) values_[node.results + r].shows = values_[v].shows;
          if (const uint32_t list = values_[values_[v].shows].readers; list != kNone && (readers_[list].empty() || readers_[list].back() != u))
            readers_[list].push_back(u);
          if (values_[v].maker != u) values_[v].leaves = true;
        });
      }
    }
  }

  // Positions in `units`, in the order in which they run.
  std::vector<uint32_t> run() {
    for (uint32_t u = 0; u < units_.size(); ++u) behind_[u] = earliest(u);
    std::vector<uint32_t> order(units_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return behind_[a] < behind_[b]; });
    return order;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint64_t kLittle = 4;  // times smaller than what the unit reads

  struct Value {
    uint32_t maker = kNone;    // unit
    uint32_t shows = 0;        // the value whose bytes it looks at; itself
    uint32_t donor = kNone;    // of an output: the input on whose bytes it may lie
    uint32_t readers = kNone;  // of a donor: the list of them
    bool is_output = false, leaves = false;  // another unit reads it
  };

  // The unit, of those that stay where they are, right behind which this one runs; itself if it stays.
  uint32_t earliest(uint32_t u) const {
    const Unit& unit = units_[u];
    if (unit.role != Role::kPointwise && unit.role != Role::kReduction) return u;
    uint32_t behind = 0;
    uint64_t read = 0, kept = 0;
    for (uint32_t n : unit.nodes) {
      const lazyt_node_t& node = program_.nodes()[n];
      for_each_operand(program_, node, [&](uint32_t v) {
        const uint32_t maker = values_[v].maker;
        if (maker == kNone || maker == u) return;
        behind = std::max(behind, behind_[maker]);
        read += program_.span_bytes(program_.values()[v]);
      });
      for (uint32_t r = 0; r < node.result_count; ++r) {
        const Value& result = values_[node.results + r];
        if (result.leaves && !result.is_output) kept += program_.span_bytes(program_.values()[node.results + r]);
        if (result.donor == kNone) continue;
        // Whoever reads the donor reads it before.
        for (uint32_t reader : readers_[values_[result.donor].readers]) {
          if (reader > u) return u;
          if (reader < u) behind = std::max(behind, behind_[reader]);
        }
      }
    }
    return read > 0 && kept * kLittle <= read ? behind : u;
  }

  const plugin::ProgramView& program_;
  const std::vector<Unit>& units_;
  std::vector<Value> values_;
  std::vector<std::vector<uint32_t>> readers_;  // units, in order
  std::vector<uint32_t> behind_;  // of the units before the one that is looked at
};

}  // namespace detail

// The units of fuse() in an order that can run, too: groups that hold little run early.
inline std::vector<Unit> ordered(const plugin::ProgramView& program, std::vector<Unit> units) {
  std::vector<Unit> out;
  out.reserve(units.size());
  for (uint32_t u : detail::Orderer(program, units).run()) out.push_back(std::move(units[u]));
  return out;
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_ORDER_HPP_
