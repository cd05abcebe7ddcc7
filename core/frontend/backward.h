// Backward: one that autograd's engine has run before, and so is followed without it (trace/segment.h).
//
// Each call's tokens are known by the graph: its nodes are PyTorch's own, which depend on nothing but what they have kept, and that is
// known by the trace so far. So where the trace came as it did, and the graph is built as it was, the gradients are made, whatever lies
// between is not, and the nodes let go what they kept. The engine runs whatever else there is: hooks, functions in Python, second backwards,
// gradients of gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "frontend/follow.h"
#include "trace/segment.h"
#include "trace/storage.h"
#include "trace/words.h"

namespace lazyt::frontend {

// One call. [one thread at a time: callers hold the GIL, but not while the engine runs]
class Backward {
 public:
  // From outputs, with their gradients, to all leaves; keep_graph: as the engine has it.
  Backward(std::vector<at::Tensor> outputs, std::vector<at::Tensor> gradients, bool keep_graph);

  // Records what the engine would and gives the leaves their gradients. False, and nothing has happened: the engine is to run, then
  // learn() to be called.
  bool follow();
  // What the engine has recorded, if that can be followed the next time.
  void learn();

 private:
  using Node = torch::autograd::Node;
  using Leaf = torch::autograd::AccumulateGrad;
  // The gradient of a leaf.
  struct Made {
    enum Kind : uint8_t { kNone, kBase, kViewOfBase } kind = kNone;
    size_t of = 0;  // which base
    uint32_t version = 0;
    std::vector<int64_t> sizes, strides;  // of views
    int64_t offset = 0;
  };
  struct Known;
  struct Site;
  struct Sites;
  Site* site_in(const trace::Tape& tape) const;
  Site& site_here();  // of tape_

  trace::Recorder* recorder() const;  // null: the engine's, whatever the graph is
  bool take_segment();
  bool read_graph();
  bool add_edge(Node* node, uint32_t input);
  bool add_node(Node& node);
  trace::Storage* operand_in(const at::Tensor& gradient) const;
  bool add_leaf(Leaf& leaf);
  bool made_of(const at::Tensor& gradient, Known& known) const;
  void give_gradients(const Known& known, const std::vector<at::Tensor>& bases);

  const std::vector<at::Tensor> outputs_, gradients_;
  const bool keep_graph_;
  uint32_t device_ = 0;
  trace::Place begin_;
  base::Ref<trace::Tape> tape_;  // that the trace follows
  bool learns_ = false;
  // The graph as words, from the outputs on: nodes in the order in which they are met. Empty until read.
  trace::WordBuffer graph_;
  std::vector<Node*> nodes_;
  std::vector<at::Tensor> variables_;         // of the leaves
  std::vector<at::Tensor> added_to_;          // gradients that leaves have
  std::vector<trace::Storage*> written_;      // of these
  std::vector<trace::Storage*> operands_;     // gradients_, then what is added to
  std::vector<trace::Storage*> whole_;        // outputs', then leaves'
  std::vector<uint32_t> slots_;               // of whole_, when the engine was to run
  uint64_t first_node_ = 0, first_call_ = 0;  // numbers of nodes
  uint64_t thread_ = 0;
  std::vector<uint32_t> order_;               // of a node by its number from first_node_ on, in nodes_
  std::unordered_map<const Node*, uint32_t> order_of_leaf_;
};

// The engine runs on graphs that this thread has recorded so far, and may let go what their nodes have kept: no later backward through
// them is followed.
void note_backward();

}  // namespace lazyt::frontend
