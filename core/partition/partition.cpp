#include "partition/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "partition/pieces.h"

namespace lazyt::partition {

namespace {

using ir::Graph;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;
using ir::ValueKind;

// Host scalars as operands count too: without the schema they cannot be told from attributes, and a
// plugin that takes them as operands says TAKE.
bool args_are_constant(const Graph& graph, const ir::Node& node) {
  bool constant = true;
  for (const ir::Arg& arg : node.args)
    ir::for_each_value(arg,
                       [&](const ValueId& v) { constant &= graph.values[v].kind != ValueKind::kHostScalar; });
  return constant;
}

const char* condition_name(lazyt_condition_t condition) {
  switch (condition) {
    case LAZYT_CONDITION_NONE:
      return "always";
    case LAZYT_CONDITION_CONSTANT_ARGS:
      return "constant-args";
    case LAZYT_CONDITION_STATIC_DIMS:
      return "static-dims";
    default:
      return "unknown condition";
  }
}

bool condition_holds(const Graph& graph, const ir::Node& node, lazyt_condition_t condition) {
  switch (condition) {
    case LAZYT_CONDITION_NONE:
      return true;
    case LAZYT_CONDITION_CONSTANT_ARGS:
      return args_are_constant(graph, node);
    case LAZYT_CONDITION_STATIC_DIMS:
      return true;  // a Graph has no others
    default:
      return false;
  }
}

// Levels alternate between the device and the host; a node stands at the first level of its kind
// that is not before its operands'. So the number of levels is the length of the longest chain of
// alternations, which no cut can go below (but for groups).
struct Levels {
  std::vector<uint32_t> of_node;
  uint32_t used = 0;  // levels with a node
};

// first_is_host: the kind of level 0. groups: by node, 0 = none; those that cannot be kept (one member
// needs another through the host) are cleared.
Levels find_levels(const Graph& graph, const std::vector<bool>& taken, std::vector<uint32_t>& groups,
                   bool first_is_host) {
  Levels levels;
  std::unordered_map<uint32_t, uint32_t> group_level;
  for (uint32_t round = 0;; round++) {
    levels.of_node.assign(graph.nodes.size(), 0);
    std::vector<uint32_t> raised;  // groups whose level a member changed after others were placed
    for (NodeId n = 0; n < graph.nodes.size(); n++) {
      uint32_t level = 0;
      for (const ir::Arg& arg : graph.nodes[n].args)
        ir::for_each_value(arg, [&](const ValueId& v) {
          if (graph.values[v].kind == ValueKind::kResult)
            level = std::max(level, levels.of_node[graph.values[v].producer]);
        });
      const bool level_is_host = (level % 2 == 1) != first_is_host;
      if (level_is_host == taken[n]) level++;
      if (groups[n] != 0) {
        uint32_t& of_group = group_level[groups[n]];
        if (level > of_group) {
          of_group = level;
          raised.push_back(groups[n]);
        }
        level = of_group;
      }
      levels.of_node[n] = level;
    }
    if (raised.empty()) break;
    // Each round settles one group at least, unless groups push each other up for ever.
    if (round > group_level.size() + 1) {
      for (uint32_t& group : groups)
        if (std::ranges::find(raised, group) != raised.end()) group = 0;
      group_level.clear();
      round = 0;
    }
  }
  std::vector<uint32_t> distinct = levels.of_node;
  std::ranges::sort(distinct);
  levels.used = static_cast<uint32_t>(std::unique(distinct.begin(), distinct.end()) - distinct.begin());
  return levels;
}

class Cutter {
 public:
  // graph: nodes are taken from it.
  Cutter(Graph& graph, const std::vector<loader::NodeAnswer>& answers)
      : graph_(graph), answers_(answers) {}

  Partition by_answers() {
    place_nodes();
    return make_segments();
  }
  Partition into_pieces(const std::vector<NodeId>& starts) {
    make_room(static_cast<uint32_t>(starts.size()) + 1);
    uint32_t s = 0;
    for (NodeId n = 0; n < graph_.nodes.size(); n++) segment_of_[n] = s += s < starts.size() && starts[s] == n;
    return make_segments();
  }

 private:
  void make_room(uint32_t segments) {
    partition_.segments.resize(segments);
    elsewhere_.resize(segments);
    segment_of_.resize(graph_.nodes.size());
  }

  Partition make_segments() {
    find_readers();
    for (NodeId n = 0; n < graph_.nodes.size(); n++) move_node(n);
    make_outputs();
    keep_donors();
    return std::move(partition_);
  }

  void place_nodes() {
    const size_t count = graph_.nodes.size();
    std::vector<bool> taken(count);
    std::vector<uint32_t> groups(count, 0);
    for (NodeId n = 0; n < count; n++) {
      // No answer is a refusal.
      taken[n] = n < answers_.size() && is_taken(graph_, graph_.nodes[n], answers_[n]);
      if (taken[n]) groups[n] = answers_[n].group;
    }
    std::vector<uint32_t> groups_host_first = groups;
    Levels levels = find_levels(graph_, taken, groups, false);
    if (Levels host_first = find_levels(graph_, taken, groups_host_first, true);
        host_first.used < levels.used)
      levels = std::move(host_first);

    std::map<uint32_t, uint32_t> segment_of_level;  // levels may be empty; segments are not
    for (uint32_t level : levels.of_node) segment_of_level[level];
    uint32_t next = 0;
    for (auto& [level, segment] : segment_of_level) segment = next++;
    make_room(next);
    for (NodeId n = 0; n < count; n++) {
      segment_of_[n] = segment_of_level[levels.of_node[n]];
      partition_.segments[segment_of_[n]].on_host = !taken[n];
      if (!taken[n]) refuse(n);
    }
  }

  void refuse(NodeId n) {
    const ir::Node& node = graph_.nodes[n];
    std::string reason = "no answer";
    if (n < answers_.size()) {
      const loader::NodeAnswer& answer = answers_[n];
      reason = answer.kind == LAZYT_ANSWER_ONLY_IF
                   ? fmt::format("only-if {}", condition_name(answer.condition))
                   : std::string(reason_name(answer.reason));
      if (!answer.detail.empty()) reason += ": " + answer.detail;
    }
    std::string line =
        node.source ? fmt::format("{}:{}", node.source->file, node.source->line) : std::string();
    partition_.refusals.push_back({node.name, std::move(reason), std::move(line), segment_of_[n]});
  }

  // What leaves the segment that makes it, and who reads an input of the program last.
  void find_readers() {
    leaves_.assign(graph_.values.size(), false);
    is_output_.assign(graph_.values.size(), false);
    last_reader_.assign(graph_.values.size(), kNone);
    for (const ir::Output& output : graph_.outputs) is_output_[output.value] = leaves_[output.value] = true;
    for (NodeId n = 0; n < graph_.nodes.size(); n++)
      for (const ir::Arg& arg : graph_.nodes[n].args)
        ir::for_each_value(arg, [&](const ValueId& v) {
          const ir::Value& value = graph_.values[v];
          if (value.kind == ValueKind::kResult && segment_of_[value.producer] != segment_of_[n])
            leaves_[v] = true;
          if (last_reader_[v] == kNone || last_reader_[v] < segment_of_[n]) last_reader_[v] = segment_of_[n];
        });
    at_home_.assign(graph_.values.size(), kNone);
    input_of_.assign(graph_.values.size(), kNone);
    constant_of_.assign(graph_.values.size(), kNone);
    for (uint32_t i = 0; i < graph_.inputs.size(); i++) input_of_[graph_.inputs[i].value] = i;
    for (uint32_t c = 0; c < graph_.constants.size(); c++) constant_of_[graph_.constants[c].value] = c;
  }

  // A value that crosses gets bytes of its own in a buffer: its strides bind now, so those that are
  // only a hint (an expanded view's zeros) become dense ones.
  ir::Meta meta_of(ValueId v) const {
    const ir::Meta& meta = graph_.values[v].meta;
    if (!leaves_[v] || is_output_[v] || meta.is_dense()) return meta;
    return ir::Meta::contiguous(meta.dtype, meta.dims);
  }

  // The value inside segment s, brought in if another segment or the program makes it.
  ValueId value_in(uint32_t s, ValueId v) {
    const ir::Value& value = graph_.values[v];
    if (value.kind == ValueKind::kResult && segment_of_[value.producer] == s) return at_home_[v];
    auto [it, is_new] = elsewhere_[s].try_emplace(v, kNone);
    if (!is_new) return it->second;
    Segment& segment = partition_.segments[s];
    ValueId local = kNone;
    switch (value.kind) {
      case ValueKind::kHostScalar:
        local = segment.graph.add_host_scalar(value.meta.dtype, value.weak);
        segment.inputs.push_back({Source::kProgram, input_of_[v]});
        break;
      case ValueKind::kInput:
        local = segment.graph.add_input(value.meta);
        segment.inputs.push_back({Source::kProgram, input_of_[v]});
        break;
      case ValueKind::kConstant:
        local = segment.graph.add_constant(value.meta, graph_.constants[constant_of_[v]].bytes);
        break;
      case ValueKind::kResult:
        local = segment.graph.add_input(meta_of(v));
        segment.inputs.push_back(output_of_producer(v));
        break;
    }
    return it->second = local;
  }

  // The output of the producing segment that holds v; made on first use.
  Source output_of_producer(ValueId v) {
    auto [it, is_new] = crossing_.try_emplace(v);
    if (is_new) {
      const uint32_t s = segment_of_[graph_.values[v].producer];
      Graph& graph = partition_.segments[s].graph;
      it->second = {s, static_cast<uint32_t>(graph.outputs.size())};
      graph.outputs.push_back({at_home_[v], kNone});
    }
    return it->second;
  }

  void move_node(NodeId n) {
    ir::Node& node = graph_.nodes[n];
    const uint32_t s = segment_of_[n];
    for (ir::Arg& arg : node.args) ir::for_each_value(arg, [&](ValueId& v) { v = value_in(s, v); });
    std::vector<ir::Meta> metas;
    for (uint32_t r = 0; r < node.result_count; r++) metas.push_back(meta_of(node.first_result + r));
    Graph& graph = partition_.segments[s].graph;
    const NodeId moved = graph.add_node(std::move(node.name), std::move(node.overload), std::move(node.args), std::move(metas),
                                        std::move(node.source));
    for (uint32_t r = 0; r < node.result_count; r++) {
      const ValueId old = node.first_result + r, local = graph.nodes[moved].first_result + r;
      at_home_[old] = local;
      graph.values[local].may_overwrite = graph_.values[old].may_overwrite && !leaves_[old];
    }
  }

  void make_outputs() {
    uint32_t constants = kNone;  // the segment for outputs that are constants
    for (const ir::Output& output : graph_.outputs) {
      switch (graph_.values[output.value].kind) {
        case ValueKind::kResult:
          partition_.outputs.push_back(output_of_producer(output.value));
          break;
        case ValueKind::kInput:
        case ValueKind::kHostScalar:
          partition_.outputs.push_back({Source::kProgram, input_of_[output.value]});
          break;
        case ValueKind::kConstant: {
          if (constants == kNone) {
            constants = static_cast<uint32_t>(partition_.segments.size());
            partition_.segments.emplace_back().on_host = true;
            elsewhere_.emplace_back();
          }
          auto [it, is_new] = crossing_.try_emplace(output.value);
          if (is_new) {
            const ValueId local = value_in(constants, output.value);
            Graph& graph = partition_.segments[constants].graph;
            it->second = {constants, static_cast<uint32_t>(graph.outputs.size())};
            graph.outputs.push_back({local, kNone});
          }
          partition_.outputs.push_back(it->second);
          break;
        }
      }
    }
  }

  void keep_donors() {
    for (const ir::Output& output : graph_.outputs) {
      if (output.donor == kNone || graph_.values[output.value].kind != ValueKind::kResult) continue;
      const ValueId donor = graph_.inputs[output.donor].value;
      const Source made = crossing_.at(output.value);
      Segment& segment = partition_.segments[made.segment];
      ir::Output& local = segment.graph.outputs[made.index];
      // A later reader needs the old bytes; so does an output that is the input itself.
      const bool read_later = last_reader_[donor] != kNone && last_reader_[donor] > made.segment;
      if (segment.on_host || local.donor != kNone || read_later || is_output_[donor]) continue;
      // A donor that nobody reads only gives its memory, and becomes an input for that.
      const ValueId in_segment = value_in(made.segment, donor);
      auto& inputs = segment.graph.inputs;
      const auto it = std::ranges::find(inputs, in_segment, &ir::Input::value);
      it->may_donate = true;
      local.donor = static_cast<uint32_t>(it - inputs.begin());
    }
  }

  Graph& graph_;
  const std::vector<loader::NodeAnswer>& answers_;
  Partition partition_;
  std::vector<uint32_t> segment_of_;                          // by node
  std::vector<ValueId> at_home_;                              // by value: as the segment has it that makes it
  std::vector<std::unordered_map<ValueId, ValueId>> elsewhere_;  // by segment: values that it does not make -> its own
  std::unordered_map<ValueId, Source> crossing_;              // values that are an output of a segment
  std::vector<bool> leaves_, is_output_;                      // by value
  std::vector<uint32_t> last_reader_, input_of_, constant_of_;  // by value
};

// Whether the graph as it is would be the one segment: all of it is taken, each output is a result of its own, and no
// input is there for nothing.
bool stays_whole(const Graph& graph, const std::vector<loader::NodeAnswer>& answers) {
  if (graph.nodes.empty() || answers.size() < graph.nodes.size()) return false;
  std::vector<bool> is_output(graph.values.size(), false), is_used(graph.values.size(), false);
  for (NodeId n = 0; n < graph.nodes.size(); n++) {
    if (!is_taken(graph, graph.nodes[n], answers[n])) return false;
    for (const ir::Arg& arg : graph.nodes[n].args) ir::for_each_value(arg, [&](const ValueId& v) { is_used[v] = true; });
  }
  for (const ir::Output& output : graph.outputs) {
    if (graph.values[output.value].kind != ValueKind::kResult || is_output[output.value]) return false;
    is_output[output.value] = true;
    if (output.donor != kNone) is_used[graph.inputs[output.donor].value] = true;
  }
  return std::ranges::all_of(graph.inputs, [&](const ir::Input& input) { return is_used[input.value]; });
}

Partition whole(Graph graph) {
  Partition partition;
  Segment& segment = partition.segments.emplace_back();
  for (uint32_t i = 0; i < graph.inputs.size(); i++) {
    graph.inputs[i].may_donate = false;
    segment.inputs.push_back({Source::kProgram, i});
  }
  for (uint32_t o = 0; o < graph.outputs.size(); o++) {
    if (graph.outputs[o].donor != kNone) graph.inputs[graph.outputs[o].donor].may_donate = true;
    partition.outputs.push_back({0, o});
  }
  segment.graph = std::move(graph);
  return partition;
}

}  // namespace

bool is_taken(const Graph& graph, const ir::Node& node, const loader::NodeAnswer& answer) {
  if (answer.kind == LAZYT_ANSWER_TAKE) return true;
  return answer.kind == LAZYT_ANSWER_ONLY_IF && condition_holds(graph, node, answer.condition);
}

Partition cut(ir::Graph graph, const std::vector<loader::NodeAnswer>& answers, uint64_t piece_bytes) {
  if (!stays_whole(graph, answers)) return Cutter(graph, answers).by_answers();
  const std::vector<NodeId> starts = piece_starts(graph, answers, piece_bytes);
  return starts.empty() ? whole(std::move(graph)) : Cutter(graph, answers).into_pieces(starts);
}

const char* reason_name(lazyt_reason_t reason) {
  switch (reason) {
    case LAZYT_REASON_NONE:
      return "no reason given";
    case LAZYT_REASON_UNKNOWN_OPERATOR:
      return "unknown-operator";
    case LAZYT_REASON_DTYPE:
      return "dtype";
    case LAZYT_REASON_RANK:
      return "rank";
    case LAZYT_REASON_ARGUMENT:
      return "argument";
    case LAZYT_REASON_LAYOUT:
      return "layout";
    case LAZYT_REASON_SIZE:
      return "size";
    case LAZYT_REASON_SYMBOLIC_DIM:
      return "symbolic-dim";
    case LAZYT_REASON_DISABLED:
      return "disabled";
    case LAZYT_REASON_COST:
      return "cost";
    default:
      return "unknown reason";
  }
}

}  // namespace lazyt::partition
