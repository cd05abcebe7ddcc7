#include "frontend/encode.h"

#include <ATen/ExpandUtils.h>

#include "frontend/arguments.h"
#include "frontend/dtype.h"
#include "frontend/numbers.h"
#include "frontend/random.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "trace/promote.h"

namespace lazyt::frontend {
namespace {

using namespace trace;  // the words' vocabulary

// At the operator's own line, with eager's words: programs draw when they run, also what nobody reads.
void check_drawn(const Op& op, c10::ArrayRef<c10::IValue> args) {
  if (op.lowering != Lowering::kUniform && op.lowering != Lowering::kNormal) return;
  const at::ScalarType type = args[0].toTensor().scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isIntegralType(type, /*includeBool=*/true), '"', op.lowering == Lowering::kUniform ? "check_uniform_bounds" : "normal_kernel_cpu",
                              "\" not implemented for '", type, "'");
}

// The integers that a tensor of this dtype holds exactly; none where that is not asked for.
std::pair<int64_t, int64_t> integers_of(at::ScalarType type) {
  switch (type) {
    case at::kByte: return {0, UINT8_MAX};
    case at::kChar: return {INT8_MIN, INT8_MAX};
    case at::kShort: return {INT16_MIN, INT16_MAX};
    case at::kInt: return {INT32_MIN, INT32_MAX};
    case at::kLong: return {INT64_MIN, INT64_MAX};
    case at::kFloat: return {-(1 << 24), 1 << 24};
    case at::kDouble: return {-(int64_t{1} << 53), int64_t{1} << 53};
    default: return {0, -1};
  }
}

// (start, end, [step,] dtype, layout, device, pin_memory)
bool counts_integers(c10::ArrayRef<c10::IValue> args) {
  const c10::IValue& dtype = args[args.size() - 4];
  return std::all_of(args.begin(), args.end() - 4, [](const c10::IValue& v) { return v.isInt(); }) &&
         (dtype.isNone() || at::isIntegralType(dtype.toScalarType(), /*includeBool=*/false));
}

// Whether the operator takes its numbers without an error, whatever the dtype: then they may change without a look at
// them. Others are left for the kernels that check them.
bool takes_numbers(const Op& op, c10::ArrayRef<c10::IValue> args) {
  auto within = [&](size_t i, double low, double high) {
    return i < args.size() && args[i].isDouble() && args[i].toDouble() >= low && args[i].toDouble() <= high;
  };
  constexpr double kMost = 30000;  // of float16, also as a difference
  if (args.empty() || !args[0].isTensor()) return false;
  const at::ScalarType type = args[0].toTensor().scalar_type();
  if (op.lowering == Lowering::kRandInt) {
    const bool both = args.size() == 4;
    if (args.size() < 3 || !args[both ? 2 : 1].isInt() || (both && !args[1].isInt())) return false;
    const int64_t low = both ? args[1].toInt() : 0, high = args[both ? 2 : 1].toInt();
    const auto [least, most] = integers_of(type);
    return low < high && low >= least && high - 1 <= most;
  }
  if (!at::isFloatingType(type)) return false;
  switch (op.lowering) {
    case Lowering::kDropout: case Lowering::kBernoulliFloat: return within(1, 0, 1);
    case Lowering::kUniform: return within(1, -kMost, kMost) && within(2, args[1].toDouble(), kMost);
    case Lowering::kNormal: return within(1, -kMost, kMost) && within(2, 0, kMost);
    default: return false;
  }
}

// Writes any call's words.
class Encoder : Numbers<Encoder> {
  friend Numbers;

 public:
  Encoder(const TorchOp& op, Call& call, bool movable) : op_(op), call_(call), movable_(movable) {}

  void run(c10::ArrayRef<c10::IValue> args) {
    args_ = args;
    const OpArg* arg = op_.op.args.data();
    if (C10_UNLIKELY(op_.op.lowering == Lowering::kArange) && counts_integers(args)) {  // the end, from a start that may move
      const auto start = static_cast<uint64_t>(args[0].toInt()), end = static_cast<uint64_t>(args[1].toInt());
      call_.signature.append({number_tag(kInt, true, start), start, tagged(kInt), end - start});
      args = args.slice(2), arg += 2;
    }
    for (const c10::IValue& v : args) {
      if (v.isTensor()) tensor(*arg++, v.toTensor());
      else if (v.isInt()) integer(*arg++, v.toInt());
      else value(*arg++, v);
    }
  }
  void run(std::span<const TypedArg> args) {
    typed_ = true;
    const OpArg* arg = op_.op.args.data();
    for (const TypedArg& v : args) value(*arg++, v);
  }
  const std::optional<at::Generator>& generator() const { return generator_; }
  int64_t numel() const { return numel_; }
  Encoded encoded() const { return unsigned_ ? Encoded::kOnHost : notes_ ? Encoded::kNoted : Encoded::kWhole; }
  // The index of the call's device: of its first operand, else of what an argument names.
  uint32_t device() const { return C10_LIKELY(!call_.operands.empty()) ? call_.operands[0]->device : check_device({kDeviceType, named_}); }

 private:
  bool movable() const { return movable_; }
  bool has_operand() const { return !call_.operands.empty(); }
  const uint64_t* words() const { return call_.signature.data(); }
  void word(uint64_t w) { call_.signature.push_back(w); }
  void number(uint64_t tag, uint64_t value) {
    uint64_t* w = call_.signature.extend(2);
    w[0] = tag, w[1] = value;
  }
  void host_scalar(base::DType dtype, bool weak, const void* data) {
    word(tagged(kHostScalar, dtype, weak));
    call_.scalars.push_back(scalar_bytes(data, lazyt_dtype_size(dtype)));
    call_.scalar_types.push_back({dtype, weak});
  }

  void tensor(const OpArg& arg, const at::Tensor& t) {
    if (C10_UNLIKELY(!t.defined())) return word(tagged(kNone));
    Storage* state = state_if_ours(t);
    if (C10_UNLIKELY(!state)) {
      if (t.device().type() != kDeviceType) return other_device(arg, t);
      state = &state_of(t);  // says what is wrong with it
    }
    base::DType dtype = from_torch(t.scalar_type());
    TORCH_CHECK_NOT_IMPLEMENTED(dtype != LAZYT_DTYPE_INVALID, "lazyt: dtype ", t.scalar_type(), " is not supported on the device");
    if (arg.written) call_.writes.push_back(static_cast<uint32_t>(call_.operands.size()));
    call_.operands.push_back(state);
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    constexpr c10::DispatchKeySet kNotes{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};
    notes_ |= impl->key_set().has_any(kNotes);
    const auto sizes = impl->sizes(), strides = impl->strides();
    const size_t rank = sizes.size();
    uint64_t* w = call_.signature.extend(2 + 2 * rank);
    *w++ = tagged(kTensor, rank, static_cast<uint64_t>(dtype));
    *w++ = static_cast<uint64_t>(impl->storage_offset());
    for (size_t i = 0; i < rank; i++) w[i] = static_cast<uint64_t>(sizes[i]), w[rank + i] = static_cast<uint64_t>(strides[i]);
    if (typed_ || arg.out) return;  // no operator whose arguments are not boxed draws random numbers
    const int64_t numbers = impl->numel() << at::isComplexType(t.scalar_type());
    if (numel_ < numbers) numel_ = numbers;
  }

  // A number in a tensor's clothes is taken by value; anything else is eager's error.
  void other_device(const OpArg& arg, const at::Tensor& t) {
    if (t.device().is_cpu() && t.dim() == 0 && !arg.written && t.layout() == at::kStrided) {
      base::DType dtype = from_torch(t.scalar_type());
      if (dtype != LAZYT_DTYPE_INVALID)
        return host_scalar(dtype, t.unsafeGetTensorImpl()->is_wrapped_number(),
                           C10_LIKELY(!t.is_conj() && !t.is_neg()) ? t.const_data_ptr() : t.resolve_conj().resolve_neg().const_data_ptr());
    }
    notes_ = true;  // for the boxed call to say
    TORCH_CHECK(typed_, "Expected all tensors to be on the same device, but found at least two devices, ",
                device_of(args_).value_or(c10::Device(kDeviceType)), " and ", t.device(), "! (when checking argument for argument ", arg.name, " in method ", op_.op.name, ")");
  }

  // What Python says that a symbolic number is.
  int64_t known(const c10::SymInt& s) {
    return aside(call_, [&](const Call&) { return s.guard_int(__FILE__, __LINE__); });
  }
  at::Scalar known(const at::Scalar& s) {
    return aside(call_, [&](const Call&) {
      if (s.isSymInt()) return at::Scalar(s.toLong());
      return s.isSymFloat() ? at::Scalar(s.toDouble()) : at::Scalar(s.toBool());
    });
  }

  void scalar(const OpArg& arg, const at::Scalar& s) {
    if (C10_UNLIKELY(s.isSymbolic())) return scalar(arg, known(s));
    switch (s.type()) {
      case at::kLong: return integer(arg, s.toLong());
      case at::kDouble: return real(arg, s.toDouble());
      default: return value(arg, c10::IValue(s));
    }
  }

  C10_ALWAYS_INLINE void value(const OpArg& arg, const TypedArg& v) {
    switch (v.kind) {
      case TypedArg::kNone: return word(tagged(kNone));
      case TypedArg::kTensor: return tensor(arg, *static_cast<const at::Tensor*>(v.at));
      case TypedArg::kScalar: return scalar(arg, *static_cast<const at::Scalar*>(v.at));
      case TypedArg::kInt: return integer(arg, v.number);
      case TypedArg::kDouble: return real(arg, v.real);
      case TypedArg::kBool: return boolean(v.number != 0);
      case TypedArg::kString: return string({static_cast<const char*>(v.at), v.count});
      case TypedArg::kTensors:
        word(tagged(kList, v.count));
        for (const at::Tensor& t : at::TensorList(static_cast<const at::Tensor*>(v.at), v.count)) tensor(arg, t);
        return;
      case TypedArg::kTensorRefs:
        word(tagged(kList, v.count));
        for (const at::Tensor& t : *static_cast<const at::ITensorListRef*>(v.at)) tensor(arg, t);
        return;
      case TypedArg::kBools:
        word(tagged(kBools, v.count));
        for (size_t i = 0; i < v.count; i++) word(static_cast<const bool*>(v.at)[i]);
        return;
      case TypedArg::kInts:
        word(tagged(kInts, v.count));
        std::memcpy(call_.signature.extend(v.count), v.at, v.count * sizeof(int64_t));
        return;
    }
  }

  void value(const OpArg& arg, const c10::IValue& v) {
    if (v.isTensor()) return tensor(arg, v.toTensor());
    if (v.isNone()) return word(tagged(kNone));
    if (v.isInt()) return integer(arg, v.toInt());
    if (v.isDouble()) return real(arg, v.toDouble());
    if (v.isBool()) return boolean(v.toBool());
    if (v.isIntList()) {
      c10::List<int64_t> list = v.toIntList();
      word(tagged(kInts, list.size()));
      for (int64_t e : list) word(static_cast<uint64_t>(e));
      return;
    }
    if (v.isBoolList()) {
      c10::List<bool> list = v.toBoolList();
      word(tagged(kBools, list.size()));
      for (bool e : list) word(e);
      return;
    }
    if (v.isDoubleList()) {
      c10::List<double> list = v.toDoubleList();
      word(tagged(kDoubles, list.size()));
      for (double e : list) word(bits_of(e));
      return;
    }
    if (v.isList()) {  // tensors, optional tensors, numbers
      c10::ArrayRef<c10::IValue> list = v.toListRef();
      if (arg.type == ArgType::kIntList) {
        word(tagged(kInts, list.size()));
        for (const auto& e : list) word(static_cast<uint64_t>(known(e.toSymInt())));
        return;
      }
      word(tagged(kList, list.size()));
      for (const auto& e : list) value(arg, e);
      return;
    }
    if (v.isDevice()) {
      if (v.toDevice().type() == kDeviceType) named_ = v.toDevice().index();
      word(tagged(kInt));
      return word(0);
    }
    if (v.isGenerator()) {
      generator_ = v.toGenerator();
      return word(tagged(kGenerator));
    }
    if (v.isSymInt()) return integer(arg, known(v.toSymInt()));
    if (v.isComplexDouble()) {
      auto c = v.toComplexDouble();
      word(tagged(kComplex));
      word(bits_of(c.real()));
      return word(bits_of(c.imag()));
    }
    if (v.isString()) return string(v.toStringRef());
    if (v.isUnsigned()) {
      unsigned_ = true;
      return word(tagged(kNone));
    }
    TORCH_CHECK_NOT_IMPLEMENTED(false, "lazyt: argument '", arg.name, "' of ", op_.op.name, " (", v.tagKind(), ") cannot be recorded");
  }

  const TorchOp& op_;
  Call& call_;
  const bool movable_;  // numbers that are no Scalars
  c10::ArrayRef<c10::IValue> args_;
  std::optional<at::Generator> generator_;
  int64_t numel_ = 0;
  c10::DeviceIndex named_ = -1;
  bool typed_ = false, notes_ = false, unsigned_ = false;
};

void seed_and_offset(Call& call, RandomState r) {
  for (uint64_t v : {r.seed, r.offset}) {
    call.scalars.push_back(scalar_bytes(&v, 8));
    call.scalar_types.push_back({LAZYT_DTYPE_INT64, false});
  }
}

// How many numbers the operator draws; most: as many as its largest operand has elements.
int64_t drawn(const Op& op, c10::ArrayRef<c10::IValue> args, int64_t most) {
  if (op.lowering == Lowering::kNormalOf && args[0].isTensor() && args[1].isTensor())
    return c10::multiply_integers(at::infer_size(args[0].toTensor().sizes(), args[1].toTensor().sizes()));
  if (op.lowering == Lowering::kMultinomial) {  // by row, and as many as it takes of each
    const int64_t rows = args[0].toTensor().dim() == 2 ? args[0].toTensor().size(0) : 1;
    return std::max(most, rows * std::max<int64_t>(args[1].toInt(), 0));
  }
  return most;
}

// The words, without seed and offset.
template <class Args>
C10_ALWAYS_INLINE Encoded write(const TorchOp& op, const Args& args, Call& call, Encoder& encoder) {
  call.clear(&op.op);
  encoder.run(args);
  call.device = encoder.device();
  return encoder.encoded();
}

}  // namespace

Encoded encode(const TorchOp& op, c10::ArrayRef<c10::IValue> args, Call& call) {
  if (op.op.random) check_drawn(op.op, args);
  Encoder encoder(op, call, op.op.random && takes_numbers(op.op, args));
  const Encoded written = write(op, args, call, encoder);
  if (op.op.random) seed_and_offset(call, draw(encoder.generator(), call.device, (drawn(op.op, args, encoder.numel()) + 1) / 2));
  return written;
}

bool encode(const TorchOp& op, std::span<const TypedArg> args, Call& call) {
  Encoder encoder(op, call, /*movable=*/false);
  return write(op, args, call, encoder) == Encoded::kWhole;
}

void encode_again(const TorchOp& op, c10::ArrayRef<c10::IValue> args, Call& call) {
  const std::vector<lazyt_scalar_t> before = call.scalars;
  Encoder encoder(op, call, op.op.random && takes_numbers(op.op, args));
  write(op, args, call, encoder);
  for (size_t i = before.size() - 2; op.op.random && i < before.size(); i++) {  // the same seed and offset
    call.scalars.push_back(before[i]);
    call.scalar_types.push_back({LAZYT_DTYPE_INT64, false});
  }
}

}  // namespace lazyt::frontend
