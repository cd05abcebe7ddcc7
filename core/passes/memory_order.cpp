// Why bits stay: nodes are pure (PRG-1), random ones too, so any order that makes operands before their
// readers gives the same values.
#include <queue>
#include <utility>

#include "passes/layout.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace lazyt::passes {

namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// Bytes of values and who reads them. Views share the bytes of what they show; inputs and constants stay.
class Lifetimes {
 public:
  explicit Lifetimes(const ir::Graph& graph) : g_(graph) {
    bytes.assign(g_.values.size(), 0);
    root_.resize(g_.values.size());
    for (ValueId v = 0; v < root_.size(); v++) root_[v] = v;
    made.resize(g_.nodes.size());
    reads.resize(g_.nodes.size());
    readers.assign(g_.values.size(), 0);
    mixed.assign(g_.values.size(), 0);
    std::vector<bool> stays(g_.values.size(), false);
    for (NodeId n = 0; n < g_.nodes.size(); n++) {
      const ir::Node& node = g_.nodes[n];
      const bool view = is_view(node.name) && !node.args.empty() && node.args[0].kind == LAZYT_ARG_VALUE;
      for (uint32_t r = 0; r < node.result_count; r++) {
        const ValueId v = node.first_result + r;
        if (view)
          root_[v] = root_[node.args[0].value];
        else
          made[n] += bytes[v] = g_.values[v].meta.span_bytes();
      }
    }
    for (const ir::Output& out : g_.outputs) {
      const ValueId v = root_[out.value];
      stays[v] = true;
      if (out.donor == kNone || v != out.value || g_.values[v].kind != ir::ValueKind::kResult) continue;
      made[g_.values[v].producer] -= bytes[v];  // takes over its donor's bytes
      bytes[v] = 0;
    }
    std::vector<NodeId> last(g_.values.size(), kNone);  // counts each reader once
    for (NodeId n = 0; n < g_.nodes.size(); n++) {
      for (const ir::Arg& arg : g_.nodes[n].args)
        ir::for_each_value(arg, [&](const ValueId& operand) {
          const ValueId v = root_[operand];
          if (std::exchange(last[v], n) == n || bytes[v] == 0 || stays[v]) return;
          reads[n].push_back(v);
          readers[v]++;
          mixed[v] ^= n;
        });
    }
    // What nobody reads is gone as soon as it is made.
    unread.assign(g_.nodes.size(), 0);
    for (NodeId n = 0; n < g_.nodes.size(); n++)
      for (uint32_t r = 0; r < g_.nodes[n].result_count; r++) {
        const ValueId v = g_.nodes[n].first_result + r;
        if (readers[v] == 0 && !stays[v]) unread[n] += bytes[v];
      }
  }

  uint64_t peak(const std::vector<NodeId>& order) const {
    std::vector<uint32_t> left = readers;
    uint64_t now = 0, most = 0;
    for (NodeId n : order) {
      now += made[n];
      most = std::max(most, now);
      now -= unread[n];
      for (ValueId v : reads[n])
        if (--left[v] == 0) now -= bytes[v];
    }
    return most;
  }

  std::vector<uint64_t> bytes;               // by value: of its own
  std::vector<uint64_t> made, unread;        // by node: bytes of its results; of those nobody reads
  std::vector<std::vector<ValueId>> reads;   // by node: values with bytes, once each
  std::vector<uint32_t> readers;             // by value: nodes that read it or a view of it
  std::vector<NodeId> mixed;                 // by value: exclusive or of those nodes

 private:
  const ir::Graph& g_;
  std::vector<ValueId> root_;  // by value: whose bytes it lies in
};

// List scheduling. Among the nodes that are ready: the one that leaves the fewest bytes more (eager), or
// one that leaves fewer bytes than before, else the first of the program's order (!eager).
std::vector<NodeId> schedule(const ir::Graph& g, const Lifetimes& lives, bool eager) {
  const auto count = static_cast<NodeId>(g.nodes.size());
  std::vector<uint32_t> waits(count, 0);  // for this many operands
  std::vector<std::vector<NodeId>> waiting(count);
  for (NodeId n = 0; n < count; n++)
    for (const ir::Arg& arg : g.nodes[n].args)
      ir::for_each_value(arg, [&](const ValueId& v) {
        if (g.values[v].kind != ir::ValueKind::kResult) return;
        waits[n]++;
        waiting[g.values[v].producer].push_back(n);
      });

  std::vector<uint64_t> frees(count, 0);  // bytes that go when the node has run
  std::vector<uint32_t> left = lives.readers;
  std::vector<NodeId> mixed = lives.mixed;
  std::vector<bool> done(count, false);
  using Entry = std::pair<int64_t, NodeId>;  // least first
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  auto push = [&](NodeId n) {
    auto more = static_cast<int64_t>(lives.made[n] - lives.unread[n] - frees[n]);
    ready.emplace(eager || more < 0 ? more : 0, n);
  };
  for (NodeId n = 0; n < count; n++)
    for (ValueId v : lives.reads[n])
      if (left[v] == 1) frees[n] += lives.bytes[v];
  for (NodeId n = 0; n < count; n++)
    if (waits[n] == 0) push(n);

  std::vector<NodeId> order;
  order.reserve(count);
  while (!ready.empty()) {
    const NodeId n = ready.top().second;
    ready.pop();
    if (done[n]) continue;  // an entry from before it got better
    done[n] = true;
    order.push_back(n);
    for (ValueId v : lives.reads[n]) {
      mixed[v] ^= n;
      if (--left[v] != 1) continue;
      const NodeId last = mixed[v];
      frees[last] += lives.bytes[v];
      if (waits[last] == 0) push(last);
    }
    for (NodeId next : waiting[n])
      if (--waits[next] == 0) push(next);
  }
  return order;
}

}  // namespace

base::Status memory_order(ir::Graph& graph) {
  const Lifetimes lives(graph);
  std::vector<NodeId> best(graph.nodes.size());
  for (NodeId n = 0; n < best.size(); n++) best[n] = n;
  const uint64_t before = lives.peak(best);
  uint64_t least = before;
  for (bool eager : {false, true}) {
    std::vector<NodeId> order = schedule(graph, lives, eager);
    const uint64_t peak = lives.peak(order);
    if (peak >= least) continue;
    least = peak;
    best = std::move(order);
  }
  if (least == before) return {};
  Rewriter rewriter(graph);
  for (NodeId n : best) rewriter.copy(n);
  graph = rewriter.finish();
  return {};
}

}  // namespace lazyt::passes
