// assertion.hpp - _functional_assert_async.msg: what must be true (probabilities are some, for a draw from them), or the run
// fails with a message. (self, message, value): the result is the value. A backend brings what looks at `self`.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_ASSERTION_HPP_
#define LAZYT_TOOLKIT_ASSERTION_HPP_

#include <algorithm>
#include <string>

#include "lazyt/toolkit/operands.hpp"
#include "lazyt/toolkit/operators.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

inline Refusal accept_assertion(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (!has_arguments(program, node, "tst") || node.result_count != 1) return refuse_argument("other arguments");
  const lazyt_value_t &self = operand(program, node, 0), &value = operand(program, node, 2), &made = result(program, node, 0);
  if (made.dtype != value.dtype || !std::ranges::equal(program.dims(made), program.dims(value))) return refuse_argument("a result that does not fit");
  if (lazyt_value_numel(program.block(), &self) != 1 || !is_movable(self.dtype)) return refuse_argument("more than one truth value");
  return accepted();
}

// check(builder, condition, message) adds the step that looks: at one element of any dtype, dense, false if all its bits are 0.
template <class BuilderT, void (*check)(BuilderT& b, const Tensor& condition, const std::string& message)>
void lower_assertion(BuilderT& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  check(b, b.dense(tensor_at(b, args[0])), std::string(b.program.string(args[1])));
  b.set(node.results, b.tensor(BuilderT::value_of(args[2])));
}
template <class BuilderT, void (*check)(BuilderT& b, const Tensor& condition, const std::string& message)>
void add_assertion(Operators<BuilderT>& all) {
  all.add_named("aten::_functional_assert_async.msg", {Role::kOpaque, accept_assertion, lower_assertion<BuilderT, check>});
}

}  // namespace toolkit
}  // namespace lazyt
#endif  // LAZYT_TOOLKIT_ASSERTION_HPP_
