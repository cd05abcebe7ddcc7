#include "partition/pieces.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace lazyt::partition {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;
using ir::ValueKind;

// A model whose layers are many and small is not cut into more pieces than this; large ones have larger pieces.
constexpr uint64_t kMostPieces = 16;
// What may cross from a piece to later ones: written, and read again, by another call.
constexpr int64_t kMostBytes = 64 << 10;
constexpr int64_t kMostValues = 8;
// A piece begins where much is read first, a share of a piece: what follows a product or a convolution (its bias, a norm's few
// numbers) stays with it.
constexpr uint64_t kShare = 8;
// The first piece is a part of one: until it is recorded nothing runs.
constexpr uint64_t kFirst = 4;

struct Border {  // before a node
  uint64_t bytes_read = 0;  // of inputs, by the nodes before it
  int64_t values = 0;       // that cross
  int64_t bytes = 0;
  bool in_group = false;
};

// Takes a few rows of what may be large.
bool looks_up(const ir::Node& node) {
  static const auto& names = *new std::unordered_set<std::string_view>{"aten::embedding", "aten::gather", "aten::index", "aten::index_select", "aten::select", "aten::slice"};
  return names.contains(node.name);
}

// One for each node, and one behind the last.
std::vector<Border> borders_of(const ir::Graph& graph, const std::vector<loader::NodeAnswer>& answers) {
  const auto count = static_cast<NodeId>(graph.nodes.size());
  std::vector<Border> borders(count + 1);
  std::vector<NodeId> last_reader(graph.values.size(), kNone);
  std::vector<bool> is_read(graph.values.size(), false), is_output(graph.values.size(), false);
  for (const ir::Output& output : graph.outputs) is_output[output.value] = true;
  std::unordered_map<uint32_t, NodeId> last_of_group;
  for (NodeId n = 0; n < count; n++) {
    borders[n + 1].bytes_read = borders[n].bytes_read;
    const bool reads_all = !looks_up(graph.nodes[n]);
    for (const ir::Arg& arg : graph.nodes[n].args)
      ir::for_each_value(arg, [&](const ValueId& v) {
        last_reader[v] = n;
        if (!reads_all || graph.values[v].kind != ValueKind::kInput || is_read[v]) return;
        is_read[v] = true;
        borders[n + 1].bytes_read += graph.values[v].meta.span_bytes();
      });
    const uint32_t group = n < answers.size() ? answers[n].group : 0;
    if (group == 0) continue;
    NodeId& last = last_of_group.try_emplace(group, n).first->second;
    for (; last < n; last++) borders[last + 1].in_group = true;
  }
  // What crosses, as what a border adds to the one before it. An output of the program is written and kept in any case.
  std::vector<int64_t> values(count + 2, 0), bytes(count + 2, 0);
  for (NodeId n = 0; n < count; n++)
    for (ValueId v = graph.nodes[n].first_result; v < graph.nodes[n].first_result + graph.nodes[n].result_count; v++) {
      if (last_reader[v] == kNone || is_output[v]) continue;
      const auto size = static_cast<int64_t>(graph.values[v].meta.span_bytes());
      values[n + 1]++, bytes[n + 1] += size;
      values[last_reader[v] + 1]--, bytes[last_reader[v] + 1] -= size;
    }
  for (NodeId b = 1; b <= count; b++) {
    borders[b].values = values[b] += values[b - 1];
    borders[b].bytes = bytes[b] += bytes[b - 1];
  }
  return borders;
}

}  // namespace

std::vector<NodeId> piece_starts(const ir::Graph& graph, const std::vector<loader::NodeAnswer>& answers, uint64_t bytes) {
  if (bytes == 0) return {};
  // Their layouts go from one to the next, and they compute for longer than they are recorded.
  if (std::ranges::any_of(graph.nodes, [](const ir::Node& node) { return node.name == "aten::convolution"; })) return {};
  const std::vector<Border> borders = borders_of(graph, answers);
  const uint64_t all = borders.back().bytes_read;
  bytes = std::max(bytes, all / kMostPieces);
  if (all < 2 * bytes) return {};
  const auto may_be_cut = [&](NodeId n) {
    const Border& b = borders[n];
    return borders[n + 1].bytes_read - b.bytes_read >= bytes / kShare && all - b.bytes_read >= bytes / 2 && !b.in_group &&
           b.values <= kMostValues && b.bytes <= kMostBytes;
  };
  std::vector<NodeId> starts;
  uint64_t begin = 0, size = bytes / kFirst;  // of the piece; begin: bytes read before it
  for (NodeId n = 0; n < graph.nodes.size(); n++) {
    if (!may_be_cut(n) || borders[n].bytes_read < begin + size) continue;
    // Of the places up to twice as far, the one that least crosses: between two layers, say, and not within one.
    NodeId best = n;
    for (NodeId b = n; b < graph.nodes.size() && borders[b].bytes_read <= begin + 2 * (borders[n].bytes_read - begin); b++)
      if (may_be_cut(b) && borders[b].values < borders[best].values) best = b;
    starts.push_back(best);
    begin = borders[best].bytes_read, size = bytes;
    n = best;
  }
  return starts;
}

}  // namespace lazyt::partition
