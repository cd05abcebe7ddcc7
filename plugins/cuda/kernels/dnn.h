// A graph of cuDNN's: operations over tensors, which one call computes. It is described here, asked about when the program is
// compiled, once for all that read alike in a context, and run as one step.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../compile.h"

namespace lazyt::cuda {

std::optional<DnnDataType> dnn_type(lazyt_dtype_t dtype);
// cuDNN was found, and is at least this: 90600 = 9.6.
bool has_dnn(int version = 0);

class DnnGraph {
 public:
  using Id = int64_t;  // of a tensor; 0 = none

  // of: what an error calls it, "a convolution". name: the step's, "cudnn forward".
  // may_narrow: f32 may be multiplied in TF32.
  DnnGraph(std::string of, std::string name, bool may_narrow) : of_(std::move(of)), name_(std::move(name)), may_narrow_(may_narrow) {}

  // ---- tensors: of the program, as it lies; between two operations; a number that the program knows
  Id read(const Builder& b, const Tensor& t) { return add_operand(b, t, false); }
  Id write(const Builder& b, const Tensor& t) { return add_operand(b, t, true); }
  Id between(DnnDataType type, const Dims& dims, const Dims& strides);
  Id number(float value);

  // ---- operations
  // y = mode(x, b); t: the condition of kDnnSelect
  void pointwise(DnnPointwise mode, Id x, Id y, Id b = 0, Id t = 0, int64_t axis = -1);
  // The same into a tensor between, as x lies.
  Id pointwise(DnnPointwise mode, Id x, DnnDataType type, Id b = 0, Id t = 0, int64_t axis = -1);
  // kDnnForward, kDnnBackwardData or kDnnBackwardWeights
  void window(DnnKind kind, Id w, Id x, Id y, const Dims& stride, const Dims& padding, const Dims& dilation);
  void matmul(Id a, Id b, Id c);
  void reduce(DnnReduce mode, Id x, Id y);
  void reshape(Id x, Id y);

  // Adds the step that runs it; false, and none, if no engine takes it. The context is current.
  bool add(Builder& b);

 private:
  friend class DnnStep;
  friend struct DnnHandleOf;
  struct Node {
    DnnDataType type;
    Dims dims, strides;
    int64_t alignment;
    enum Kind : uint8_t { kMemory, kVirtual, kNumber } kind;
  };
  struct Operation {
    DnnKind kind;
    int mode = 0;
    DnnDataType compute = kDnnF32;
    int64_t axis = -1;
    std::vector<std::pair<DnnAttribute, Id>> ends = {};
    Dims stride = {}, padding = {}, dilation = {};
  };
  struct Operand {
    Id id;
    Tensor tensor;
    bool is_written;
  };

  Id add_node(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<Id>(nodes_.size());
  }
  Id add_operand(const Builder& b, const Tensor& t, bool is_written);
  const Node& node(Id id) const { return nodes_[static_cast<size_t>(id) - 1]; }
  // f64 if the tensor is, else f32
  DnnDataType compute_of(Id id) const { return node(id).type == kDnnF64 ? kDnnF64 : kDnnF32; }
  // What it says, which is also what it is known by.
  std::string text() const;

  std::string of_, name_;
  bool may_narrow_;
  std::vector<Node> nodes_;
  std::vector<Operation> operations_;
  std::vector<Operand> operands_;
  std::vector<std::pair<Id, float>> numbers_;
};

}  // namespace lazyt::cuda
