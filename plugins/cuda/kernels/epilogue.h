// Which nodes of a program are the epilogue of a matrix product, a convolution or a norm: what cuBLASLt,
// cuDNN and our own kernels can do to a result before they store it, and the prologue of a norm: what they
// can do to an operand that they load.
//
//   relu(x w + b), gelu(x w + b)                 an activation; what its gradient will read is stored beside
//   threshold_backward(g w, relu), gelu_backward an activation's gradient, with the sum of its rows: the
//   bias' gradient g' x beside sum(g)                           the sum of an operand's rows: the bias'
//   gradient, where g is no activation's conv + norm + other + relu                   what of it is there,
//   the norm as it is at inference
//
// and what our own kernel of a product, a convolution, a pool or a norm of lines does to an element before it
// stores it: any pointwise nodes, one behind the other, whose other operands are there (kChain), also behind a
// batch norm (kNorm). What makes a
// batch norm's incoming gradient is computed by the kernel of its sums, which is the first to read it.
//
// A loss over classes is computed with the log softmax that it reads, and that one's gradient with the
// loss' (kLoss).
//
// An embedding with one reader, a pointwise node, is looked up by its reader's kernel (kLookup), by its number
// where the indices are a range. Its gradient by a range is rows of another tensor, which needs no sorting.
//
// Attention's gradients that a concatenation alone reads are written where it has them (kParts).
//
// Such nodes are lowered with their product, or by themselves where the library does not take them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "lazyt/toolkit/plan.hpp"
#include "lazyt/toolkit/registers.hpp"

namespace lazyt::cuda {

class FusedKernel;

// Of one product, norm, or loss.
struct Epilogue {
  enum class Kind : uint8_t {
    kNone,
    kRelu,
    kGelu,
    kReluGradient,
    kGeluGradient,
    kWindow,
    kChain,
    kNorm,
    kLoss,
    kLookup,
    kParts
  } kind = Kind::kNone;
  uint32_t product = LAZYT_NONE, activation = LAZYT_NONE, sum = LAZYT_NONE;  // nodes
  // kRelu: a gradient wants to know where it was above 0. kGelu: others read the product, too. kLoss: others
  // read the log softmax.
  bool keeps = false;
  bool has_gradient = false;          // of kLoss: a gradient with it as `forward`
  const Epilogue* forward = nullptr;  // of kReluGradient: where the mask is made; of kLoss: the loss
  uint32_t saved = LAZYT_NONE;        // of kGeluGradient: the value that GELU was applied to

  // Of kWindow: nodes in their order, each alone reads what the one before makes. Of kChain and kNorm others
  // may read it, too: kept_values[0] tells whether they read the product, kept_values[k] the result of
  // chain[k - 1].
  std::vector<uint32_t> chain = {};
  std::vector<bool> kept_values = {};
  std::map<uint32_t, size_t> shown =
      {};  // which of these values an operand of the chain is, or shows under other dims
  std::vector<uint32_t> before =
      {};  // of kNorm and kLoss: the nodes that make operand 0, in their order; the last makes it. Of kLookup:
           // those that make a range for which nobody else asks
  uint32_t range = LAZYT_NONE;  // of kLookup: the node that makes the indices, numbers in a row
  std::vector<uint32_t> joined =
      {};  // of kNorm: other norms whose results the chain alone reads, and computes
  std::vector<uint32_t> beside =
      {};  // of kNorm: later backward nodes with the same gradient, which run with it
  // Of kParts: which element of which concatenation a result is, shown by these views, in their order.
  struct Part {
    uint32_t cat = LAZYT_NONE;
    size_t element = 0;
    std::vector<uint32_t> views;
  };
  std::map<uint32_t, Part> cats = {};
  bool is_joined = false;  // such a norm, of either list: it leaves its elements to the other's kernel

  // ---- while the program is lowered
  std::optional<toolkit::Tensor> mask;        // of bits, as cuBLASLt writes it
  std::optional<toolkit::Tensor> sum_place;   // the sum came before its product
  std::optional<toolkit::Tensor> lines;       // of kLoss without the log softmax: what it takes from each line, in two steps
  bool lowered = false, activated = false, summed = false;  // the product; with it the other two
  std::function<toolkit::Reg(FusedKernel&)> element;        // where is_joined: emits an element of the result
};

class Epilogues {
 public:
  // Finds none of a library that is not there, and a chain where our own kernel computes the product.
  Epilogues(const plugin::ProgramView& program, bool has_products, bool has_windows);

  // Of a product, convolution or norm; null for one without.
  Epilogue* of(const lazyt_node_t& product) { return find(products_, product); }
  Epilogue& at(uint32_t node) { return all_.at(node); }
  // That an activation or a sum is part of; null for other nodes.
  Epilogue* around(const lazyt_node_t& part) { return find(parts_, part); }

 private:
  using Map = std::map<uint32_t, Epilogue*>;  // by a node's first result
  static Epilogue* find(const Map& map, const lazyt_node_t& node) {
    if (node.result_count == 0) return nullptr;
    const auto found = map.find(node.results);
    return found == map.end() ? nullptr : found->second;
  }

  std::map<uint32_t, Epilogue> all_;  // by the product's node
  Map products_, parts_;
};

}  // namespace lazyt::cuda
