// Op: what the recorder knows of an operator, made once from its schema by the frontend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/counters.h"

namespace lazyt::trace {

enum class ArgType : uint8_t {
  kTensor,  // also Tensor?
  kTensorList,  // also Tensor?[]
  kScalar,
  kScalarList,
  kInt,
  kDouble,
  kBool,
  kString,
  kIntList,
  kDoubleList,
  kBoolList,
  kDType,
  kLayout,
  kDevice,
  kMemoryFormat,
  kGenerator,
  kUnsupported,  // streams, dicts, objects: the call goes to the host
};

struct OpArg {
  std::string name;
  ArgType type = ArgType::kUnsupported;
  bool written = false;  // Tensor(a!): in-place or out=
  bool out = false;      // written and not read: an out= argument
  bool moves = false;      // a number that is part of the signature until it is seen to change
  bool is_static = false;  // a Scalar whose value chooses kernel or shape: part of the signature
  // A Scalar's default, if an integer (alpha=1): part of the signature as long as it is left alone.
  std::optional<int64_t> default_int;
};

// How a token becomes nodes (lower.cpp).
enum class Lowering : uint8_t {
  kPlain,  // the functional operator of the same arguments
  kCopy,   // self takes src, cast and broadcast
  kFill,   // self takes a number, nothing of it is read
  kZero,
  kDropout,
  kUniform,
  kNormal,
  kBernoulli,       // (self) or (self, p): probabilities
  kBernoulliFloat,  // in place, one probability
  kRandInt,
  kArange,  // of integers: from the start to an end that is counted from there
  kExponential,
  kCauchy,
  kLogNormal,
  kGeometric,
  kNormalOf,     // mean or deviation are tensors
  kRelu,         // leaky, of a random slope
  kMultinomial,
  kLinear,
  kLinearBackward,
};

// An argument of the functional operator that is none of the writing operator's: what makes a tensor like out=.
enum : int { kOutDType = -1, kOutLayout = -2, kOutDevice = -3, kOutPinned = -4 };

// Results of a call are numbered: first the fresh ones, then one for each written tensor in the
// order of the arguments (lists flattened). The functional operator returns them in that order, or as written_order says.
//
// An operator that is not PyTorch's and writes its arguments has no functional one: it stands in a program under its
// own name, and its results there are its new tensors, then what it leaves in each argument that it writes.
struct Op {
  std::string name;      // "aten::add_"
  std::string overload;  // "Tensor"
  std::string functional_name, functional_overload;
  std::vector<OpArg> args;
  // Where the functional operator takes its arguments from, if not in the order of args without out=: indices into
  // args, or kOut*.
  std::vector<int> functional_args;
  // For each written tensor, its place among them in the functional operator's results; empty: the same order.
  std::vector<uint32_t> written_order;
  Lowering lowering = Lowering::kPlain;
  bool multiplies = false;  // matrices, perhaps: PyTorch's precision of float32 products applies
  bool random = false;  // takes (seed, offset) from the device's generator
  base::Counter* recorded = nullptr;  // "lazyt::add_"
  std::vector<base::Counter*> stands_for;  // counted, too: the operators in whose place it is recorded

  bool writes() const {
    for (const OpArg& a : args)
      if (a.written) return true;
    return false;
  }
};

}  // namespace lazyt::trace
