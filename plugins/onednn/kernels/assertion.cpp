// _functional_assert_async: what must be true (probabilities are, for a draw from them), or the run fails with a message.
#include "elements.h"

namespace lazyt::onednn {
namespace {

// self, message, the value that goes on
Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  if (!toolkit::has_arguments(program, node, "tst") || node.result_count != 1) return refuse_argument("other arguments");
  const lazyt_value_t &self = operand(program, node, 0), &value = operand(program, node, 2), &made = result(program, node, 0);
  if (made.dtype != value.dtype || !std::ranges::equal(program.dims(made), program.dims(value))) return refuse_argument("a result that does not fit");
  if (lazyt_value_numel(program.block(), &self) != 1 || !toolkit::is_movable(self.dtype)) return refuse_argument("more than one truth value");
  return accepted();
}

void lower(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor condition = b.dense(tensor_at(b, args[0]));
  b.add("assert", {condition.storage}, {}, [=, message = std::string(b.program.string(args[1]))](const Frame& frame) {
    const std::byte* is = frame.at<std::byte>(condition);
    for (size_t i = 0; i < condition.element(); ++i)
      if (is[i] != std::byte{0}) return;
    throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, message);
  });
  b.set(node.results, b.tensor(Builder::value_of(args[2])));
}

}  // namespace

void register_assertion(Operators& all) { all.add_named("aten::_functional_assert_async.msg", {toolkit::Role::kOpaque, accept, lower}); }

}  // namespace lazyt::onednn
