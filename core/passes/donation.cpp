#include <algorithm>

#include "passes/layout.h"
#include "passes/pass.h"

namespace lazyt::passes {

namespace {

class Donation {
 public:
  explicit Donation(ir::Graph& graph) : g_(graph), input_of_(graph.values.size(), ir::kNone) {
    for (uint32_t i = 0; i < g_.inputs.size(); i++) input_of_[g_.inputs[i].value] = i;
    is_output_.assign(g_.values.size(), false);
    taken_.assign(g_.inputs.size(), false);
    for (const ir::Output& out : g_.outputs) {
      is_output_[out.value] = true;
      if (out.donor != ir::kNone) taken_[out.donor] = true;
    }
    find_last_readers();
  }

  void run() {
    // An operand of the producer first: `p - lr * g` takes over p, not another tensor of p's shape.
    for (ir::Output& out : g_.outputs) give(out, true);
    for (ir::Output& out : g_.outputs) give(out, false);
    for (ir::ValueId v = 0; v < g_.values.size(); v++)
      g_.values[v].may_overwrite = g_.values[v].kind == ir::ValueKind::kResult && !is_output_[v];
  }

 private:
  // A plugin may let the result of a view lie in its operand's bytes: who reads the one reads the other.
  void find_last_readers() {
    last_reader_.assign(g_.values.size(), 0);
    for (ir::NodeId n = static_cast<ir::NodeId>(g_.nodes.size()); n-- > 0;) {
      const ir::Node& node = g_.nodes[n];
      ir::NodeId last = n;
      for (uint32_t r = 0; r < node.result_count && is_view(node.name); r++) {
        ir::ValueId v = node.first_result + r;
        last = std::max(last, is_output_[v] ? ir::kNone : last_reader_[v]);
      }
      for (const ir::Arg& arg : node.args)
        ir::for_each_value(arg, [&](ir::ValueId v) { last_reader_[v] = std::max(last_reader_[v], last); });
    }
  }

  void give(ir::Output& out, bool from_operands) {
    const ir::Value& value = g_.values[out.value];
    if (out.donor != ir::kNone || value.kind != ir::ValueKind::kResult || !value.meta.is_dense()) return;
    auto try_input = [&](uint32_t i) {
      if (out.donor != ir::kNone || i == ir::kNone || taken_[i] || !g_.inputs[i].may_donate) return;
      ir::ValueId in = g_.inputs[i].value;
      if (is_output_[in] || last_reader_[in] > value.producer || !(g_.values[in].meta == value.meta)) return;
      out.donor = i;
      taken_[i] = true;
    };
    if (!from_operands) {
      while (next_ < g_.inputs.size() && taken_[next_]) next_++;
      for (uint32_t i = next_; i < g_.inputs.size() && out.donor == ir::kNone; i++) try_input(i);
      return;
    }
    for (const ir::Arg& arg : g_.nodes[value.producer].args)
      ir::for_each_value(arg, [&](ir::ValueId v) { try_input(input_of_[v]); });
  }

  ir::Graph& g_;
  std::vector<uint32_t> input_of_;       // by value
  std::vector<ir::NodeId> last_reader_;  // by value; 0 also for none
  std::vector<bool> is_output_;          // by value
  std::vector<bool> taken_;              // by input
  uint32_t next_ = 0;                    // inputs before it are taken
};

}  // namespace

base::Status donation(ir::Graph& graph) {
  Donation(graph).run();
  return {};
}

}  // namespace lazyt::passes
