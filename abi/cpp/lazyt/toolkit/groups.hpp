// groups.hpp - a group of pointwise nodes and reductions as one kernel.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_GROUPS_HPP_
#define LAZYT_TOOLKIT_GROUPS_HPP_

#include <algorithm>
#include <vector>

#include "lazyt/toolkit/pointwise.hpp"
#include "lazyt/toolkit/reductions.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// One unit of fuse() with role kPointwise or kReduction as one kernel, or as one for each set of dims that reductions
// walk. Of the Kernel it also wants store(reg, tensor), widest(dims), empty(), build(builder, may_alias_inputs) and
// kMaxReductions: as FusedKernel of plugins/onednn says. BuilderT: the backend's, of plan.hpp's; it may have
// give_operands(kernel, nodes, registers), which sets the registers of operands that lie nowhere but which the kernel can
// compute.
template <class Kernel, class BuilderT>
void lower_group(BuilderT& b, const Unit& unit) {
  using Rules = PointwiseRules<Kernel>;
  const plugin::ProgramView& program = b.program;
  // Reductions over different dims are different walks; the first one's stay, the others come after.
  std::vector<bool> reduced;
  std::vector<uint32_t> later;
  std::vector<uint32_t> nodes = unit.again;
  size_t reductions = 0;
  for (uint32_t i : unit.nodes) {
    const lazyt_node_t& node = program.nodes()[i];
    if (is_reduction(node.op)) {
      auto dims = reduced_dims(program, node);
      if (reduced.empty() && !dims.empty()) reduced = dims;
      if (dims != reduced || reductions == Kernel::kMaxReductions) {
        later.push_back(i);
        continue;
      }
      ++reductions;
    }
    nodes.push_back(i);
  }
  std::sort(nodes.begin(), nodes.end());
  if (unit.nodes.size() == 1 && unit.again.empty()) {
    const lazyt_node_t& node = program.nodes()[unit.nodes[0]];
    const bool moves = node.op == LAZYT_OP_CLONE || node.op == LAZYT_OP_TO_COPY || node.op == LAZYT_OP_LIFT_FRESH_COPY;
    if (moves && !b.is_scalar(Builder::value_of(program.args(node)[0]))) {
      const Tensor src = b.tensor(Builder::value_of(program.args(node)[0]));
      return b.copy(src, b.make(node.results, b.result_strides(node.results, b.strides(node.results))));
    }
  }
  Kernel kernel(unit.dims, reduced);
  std::vector<Reg> registers(program.values().size(), kNoReg);
  std::vector<uint32_t> inside(program.values().size(), 0);  // uses by nodes of this kernel
  for (uint32_t i : nodes)
    detail::for_each_operand(program, program.nodes()[i], [&](uint32_t v) { inside[v]++; });
  if constexpr (requires { b.give_operands(kernel, nodes, registers); }) b.give_operands(kernel, nodes, registers);
  std::vector<StorageId> aliased;
  for (uint32_t i : nodes) {
    const lazyt_node_t& node = program.nodes()[i];
    const Context<Kernel> c{program, node, kernel, &b, &registers};
    if (is_reduction(node.op)) {
      const uint32_t v = node.results;
      const Tensor place = b.make(v);
      // As the walk's dims, the reduced ones of stride 0.
      Tensor over = place;
      over.layout.dims.assign(unit.dims.size(), 1);
      over.layout.strides.assign(unit.dims.size(), 0);
      for (size_t d = 0, k = 0; d < unit.dims.size(); ++d) {
        const bool keeps = place.layout.rank() == unit.dims.size();
        if (!reduced[d]) {
          over.layout.dims[d] = unit.dims[d];
          over.layout.strides[d] = place.layout.strides[k];
        }
        if (!reduced[d] || keeps) ++k;
      }
      emit_reduction(program, node, kernel, c.tensor(0), over);
      continue;
    }
    const bool again = std::binary_search(unit.again.begin(), unit.again.end(), i);
    bool is_read = false;
    for (uint32_t r = 0; r < node.result_count; ++r) is_read |= b.is_used(node.results + r);
    if (!again && !is_read) continue;  // all its readers compute it again
    Reg out[4];
    Rules::emit(c, out);
    for (uint32_t r = 0; r < node.result_count; ++r) {
      const uint32_t v = node.results + r;
      if (out[r] == kNoReg) {  // a result that holds nothing
        b.fill(b.make(v), {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
        continue;
      }
      registers[v] = kernel.round_to(out[r], program.values()[v].dtype);
      if (again || b.uses(v) == inside[v]) continue;
      const Tensor place = b.make(v, b.result_strides(v, kernel.widest(unit.dims)));
      kernel.store(registers[v], place);
      if (b.may_be_donated(place.storage)) aliased.push_back(place.storage);
    }
  }
  if (!kernel.empty()) kernel.build(b, aliased);
  for (uint32_t i : later) {
    Unit rest{Role::kReduction, {i}, unit.dims};
    lower_group<Kernel>(b, rest);
  }
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_GROUPS_HPP_
