// Partition: cuts a program by the plugin's answers into device segments and host islands.
//
// Segments run in order; each is a graph of its own whose inputs are inputs of the whole program or
// outputs of earlier segments. No taken node is computed on the host, nothing is computed twice,
// and nodes keep their order within a segment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "loader/handles.h"

namespace lazyt::partition {

// Where a segment's input, or an output of the whole program, comes from.
struct Source {
  static constexpr uint32_t kProgram = UINT32_MAX;
  uint32_t segment = kProgram;  // kProgram: input `index` of the whole program
  uint32_t index = 0;           // else: output `index` of that segment
};

struct Segment {
  bool on_host = false;
  ir::Graph graph;
  std::vector<Source> inputs;  // one per graph.inputs
};

struct Refusal {
  std::string op;      // "aten::lgamma"
  std::string reason;  // "unknown-operator: ..."
  std::string line;    // "model.py:12", may be empty
  uint32_t segment;    // the island it went to
};

struct Partition {
  std::vector<Segment> segments;
  std::vector<Source> outputs;  // one per output of the whole program
  std::vector<Refusal> refusals;
};

// answers: one per node (loader::query_capability). The graph's outputs' donors are kept where donor
// and output are in one segment as the segment's own; other donors are dropped.
// piece_bytes: what is taken whole is cut into pieces that read so many bytes (pieces.h); 0: it is not.
Partition cut(ir::Graph graph, const std::vector<loader::NodeAnswer>& answers, uint64_t piece_bytes = 0);

// Whether the plugin takes the node: always, or on a condition that holds.
bool is_taken(const ir::Graph& graph, const ir::Node& node, const loader::NodeAnswer& answer);

const char* reason_name(lazyt_reason_t reason);  // "unknown-operator", "dtype", ...

}  // namespace lazyt::partition
