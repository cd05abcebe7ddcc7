// CapturedGraph: a graph that torch.compile captured. What it records is known by its arguments, so where the tape goes on with it
// the graph is not called: its results are made, whatever lies between is not (trace/segment.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "frontend/follow.h"
#include "trace/segment.h"
#include "trace/storage.h"
#include "trace/words.h"

namespace lazyt::frontend {

// An argument or a result of the graph.
using GraphValue = std::variant<std::monostate, bool, int64_t, double, const at::Tensor*>;

// A result of a graph that was not called: a tensor, an argument of it, or else a number (or nothing).
struct GraphResult {
  at::Tensor tensor;
  std::optional<size_t> argument;
  GraphValue number;
};

// [one thread at a time: callers hold the GIL, but not while the graph is called]
class CapturedGraph {
 public:
  // Records what the graph would for these arguments, and makes its results. False, and nothing is recorded: the graph is to be called,
  // then learn() with the place given here. REQUIRES: the graph is pure, and its results want no gradients of their own.
  bool follow(std::span<const GraphValue> arguments, std::vector<GraphResult>& results, trace::Place& place);
  // What the call has recorded since, if that can be followed the next time.
  void learn(std::span<const GraphValue> arguments, std::span<const GraphValue> results, const trace::Place& place);

 private:
  // How a result is made.
  struct Made {
    enum Kind : uint8_t { kNumber, kArgument, kViewOfArgument, kBase, kViewOfBase, kResult } kind = kNumber;
    size_t of = 0;  // which argument, base, or result before this one
    std::vector<int64_t> sizes, strides;  // of views
    int64_t offset = 0;
    GraphValue number;
  };
  struct Known {
    trace::Words arguments;
    trace::Segment segment;
    Bases bases;  // that results lie in
    std::vector<Made> results;
  };
  bool read(std::span<const GraphValue> arguments);
  static std::optional<Made> made_of(const GraphValue& result, std::span<const GraphValue> arguments, std::span<const GraphValue> before, Known& known);

  std::vector<Known> known_;  // oldest first
  // The arguments as words and storages; scratch.
  trace::WordBuffer words_;
  std::vector<trace::Storage*> operands_;
  uint32_t device_ = 0;
};

}  // namespace lazyt::frontend
