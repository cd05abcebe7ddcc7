// Encoding: a call on PyTorch's stack, written as words (trace/words.h).
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <span>

#include "frontend/schema.h"
#include "trace/recorder.h"

namespace lazyt::frontend {

enum class Encoded : uint8_t {
  kWhole,
  kNoted,   // an operand's conjugation or sign is only noted: the words would not say it
  kOnHost,  // a number of 2^63 or more: the words have none
};

// f(call), which may run code in Python that records calls of its own by the thread's: a kernel for shapes, a guard, a finalizer.
template <class F>
auto aside(trace::Call& call, F&& f) {
  trace::Call kept = std::exchange(call, {});
  auto result = f(std::as_const(kept));
  call = std::move(kept);
  return result;
}

// Fills call from the arguments on top of the stack, with the device it is for. Takes seed and offset of the generator for random
// operators: encode each call once. Raises eager's error for tensors of other devices.
Encoded encode(const TorchOp& op, c10::ArrayRef<c10::IValue> args, trace::Call& call);

// An argument as PyTorch's typed kernels get it, not boxed. It points to the argument.
struct TypedArg {
  enum Kind : uint8_t { kNone, kTensor, kTensors, kTensorRefs, kScalar, kInts, kInt, kDouble, kBool, kBools, kString };

  TypedArg(const at::Tensor& t) : kind(kTensor), at(&t) {}
  TypedArg(const std::optional<at::Tensor>& t) : kind(t ? kTensor : kNone), at(t ? &*t : nullptr) {}
  TypedArg(const at::Scalar& s) : kind(kScalar), at(&s) {}
  TypedArg(at::TensorList l) : kind(kTensors), at(l.data()), count(l.size()) {}
  TypedArg(const at::ITensorListRef& l) : kind(kTensorRefs), at(&l), count(l.size()) {}
  TypedArg(at::OptionalIntArrayRef l) : kind(l ? kInts : kNone), at(l ? l->data() : nullptr), count(l ? l->size() : 0) {}
  TypedArg(c10::SymIntArrayRef l) : TypedArg(at::OptionalIntArrayRef(c10::asIntArrayRefSlow(l, __FILE__, __LINE__))) {}
  TypedArg(std::string_view s) : kind(kString), at(s.data()), count(s.size()) {}
  TypedArg(std::optional<at::ScalarType> t) : kind(t ? kInt : kNone), number(t ? static_cast<int64_t>(*t) : 0) {}
  TypedArg(at::ScalarType t) : kind(kInt), number(static_cast<int64_t>(t)) {}
  TypedArg(int64_t v) : kind(kInt), number(v) {}
  TypedArg(const c10::SymInt& v) : kind(kInt), number(v.guard_int(__FILE__, __LINE__)) {}
  TypedArg(double v) : kind(kDouble), real(v) {}
  TypedArg(std::optional<double> v) : kind(v ? kDouble : kNone), real(v.value_or(0)) {}
  TypedArg(bool v) : kind(kBool), number(v) {}
  template <size_t n>
  TypedArg(const std::array<bool, n>& l) : kind(kBools), at(l.data()), count(n) {}

  Kind kind;
  union {
    const void* at;
    int64_t number;
    double real;
  };
  size_t count = 0;
};

// The same words from arguments that are not boxed, of an operator that is not random. False also for what only the
// boxed call can say: an error about tensors of other devices.
bool encode(const TorchOp& op, std::span<const TypedArg> args, trace::Call& call);

// The same again after a change of geometry (out= was resized), without drawing random numbers anew.
void encode_again(const TorchOp& op, c10::ArrayRef<c10::IValue> args, trace::Call& call);

}  // namespace lazyt::frontend
