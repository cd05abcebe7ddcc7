// Expected: a typed call, compared argument by argument with the words that the recorder expects, and not written itself.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <mutex>
#include <optional>

#include "frontend/history.h"
#include "frontend/numbers.h"
#include "frontend/schema.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {

// Compares arguments with a token's words. Nothing is written but what those do not say: the values of numbers, and which storages are
// written. Under the recorders' mutex, so nobody is called: whose sizes Python may say is not compared.
class Comparer : Numbers<Comparer> {
  friend Numbers;

 public:
  Comparer(trace::Recorder& recorder, const trace::Token& expected, trace::Call& call)
      : recorder_(recorder), call_(call), words_(expected.words()), at_(words_), end_(expected.role_words()), role_(end_), roles_end_(expected.meta_words()) {}

  ~Comparer() { recorder_.unmeet(); }

  // All arguments were taken, and are all that was expected.
  bool same() const { return differs_ == 0 && at_ == end_ && role_ == roles_end_; }

  // Each takes an argument. False: it is another, or none that can be compared.
  C10_ALWAYS_INLINE bool take(const trace::OpArg& arg, const at::Tensor& t) {
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    if (C10_UNLIKELY((impl->key_set().raw_repr() & kWatchers.raw_repr()) != 0)) return false;
    trace::Storage* state = state_if_ours(t);
    if (C10_UNLIKELY(!state)) return take_number(arg, t);
    if (C10_UNLIKELY(!recorder_.meet(*state, &role_, roles_end_))) return false;
    const c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    const size_t rank = sizes.size();
    if (C10_UNLIKELY(static_cast<size_t>(end_ - at_) < 2 + 2 * rank)) return false;
    uint64_t differs = at_[0] ^ trace::tagged(trace::kTensor, rank, static_cast<uint64_t>(from_torch(t.scalar_type())));
    differs |= at_[1] ^ static_cast<uint64_t>(impl->storage_offset());
    const uint64_t* dims = at_ + 2;
    for (size_t i = 0; i < rank; i++) differs |= (dims[i] ^ static_cast<uint64_t>(sizes[i])) | (dims[rank + i] ^ static_cast<uint64_t>(strides[i]));
    if (C10_UNLIKELY(differs != 0)) return false;
    at_ = dims + 2 * rank;
    if (arg.written) {
      call_.writes.push_back(static_cast<uint32_t>(call_.operands.size()));
      call_.operands.push_back(state);
    }
    return true;
  }
  C10_ALWAYS_INLINE bool take(const trace::OpArg& arg, const std::optional<at::Tensor>& t) { return t ? take(arg, *t) : take_none(); }
  bool take(const trace::OpArg& arg, at::TensorList list) { return take_tensors(arg, list); }
  bool take(const trace::OpArg& arg, const at::ITensorListRef& list) { return take_tensors(arg, list); }
  C10_ALWAYS_INLINE bool take(const trace::OpArg& arg, const at::Scalar& s) {
    if (C10_UNLIKELY(s.isSymbolic())) return false;
    if (s.type() == at::kLong) integer(arg, s.toLong());
    else if (s.type() == at::kDouble) real(arg, s.toDouble());
    else return false;
    return true;
  }
  bool take(const trace::OpArg& arg, int64_t v) { return integer(arg, v), true; }
  bool take(const trace::OpArg& arg, const c10::SymInt& v) { return !v.is_heap_allocated() && take(arg, v.as_int_unchecked()); }
  bool take(const trace::OpArg& arg, at::ScalarType t) { return take(arg, static_cast<int64_t>(t)); }
  bool take(const trace::OpArg& arg, std::optional<at::ScalarType> t) { return t ? take(arg, *t) : take_none(); }
  bool take(const trace::OpArg& arg, double v) { return real(arg, v), true; }
  bool take(const trace::OpArg& arg, std::optional<double> v) { return v ? take(arg, *v) : take_none(); }
  bool take(const trace::OpArg&, bool v) { return boolean(v), true; }
  bool take(const trace::OpArg&, std::string_view s) { return string(s), true; }
  bool take(const trace::OpArg&, at::OptionalIntArrayRef list) { return list ? take_list(trace::kInts, *list) : take_none(); }
  bool take(const trace::OpArg&, c10::SymIntArrayRef list) {
    const auto numbers = c10::asIntArrayRefSlowOpt(list);
    return numbers && take_list(trace::kInts, *numbers);
  }
  template <size_t n>
  bool take(const trace::OpArg&, const std::array<bool, n>& list) { return take_list(trace::kBools, list); }

 private:
  static bool movable() { return false; }
  bool has_operand() const { return role_ != end_; }
  const uint64_t* words() const { return words_; }
  C10_ALWAYS_INLINE void word(uint64_t w) {
    if (C10_UNLIKELY(at_ == end_)) differs_ = 1;
    else differs_ |= *at_++ ^ w;
  }
  C10_ALWAYS_INLINE void number(uint64_t tag, uint64_t value) { word(tag), word(value); }
  C10_ALWAYS_INLINE void host_scalar(base::DType dtype, bool weak, const void* data) {
    word(trace::tagged(trace::kHostScalar, dtype, weak));
    call_.scalars.push_back(scalar_bytes(data, lazyt_dtype_size(dtype)));
  }
  bool take_none() { return word(trace::tagged(trace::kNone)), true; }
  bool take_list(trace::Tag tag, const auto& list) {
    word(trace::tagged(tag, list.size()));
    for (const auto e : list) word(static_cast<uint64_t>(e));
    return true;
  }
  bool take_tensors(const trace::OpArg& arg, const auto& list) {
    word(trace::tagged(trace::kList, list.size()));
    for (const at::Tensor& t : list)
      if (!take(arg, t)) return false;
    return true;
  }
  // A number in a tensor's clothes.
  C10_ALWAYS_INLINE bool take_number(const trace::OpArg& arg, const at::Tensor& t) {
    if (!t.defined()) return take_none();
    if (arg.written || !t.device().is_cpu() || t.layout() != at::kStrided || t.dim() != 0) return false;
    const base::DType dtype = from_torch(t.scalar_type());
    if (dtype == LAZYT_DTYPE_INVALID) return false;
    host_scalar(dtype, t.unsafeGetTensorImpl()->is_wrapped_number(), t.const_data_ptr());
    return true;
  }

  trace::Recorder& recorder_;
  trace::Call& call_;
  const uint64_t *const words_, *at_, *const end_, *role_, *const roles_end_;
  uint64_t differs_ = 0;
};

inline const trace::Storage* storage_of(const at::Tensor& t) { return state_if_ours(t); }
inline const trace::Storage* storage_of(at::TensorList list) { return list.empty() ? nullptr : state_if_ours(list[0]); }
inline const trace::Storage* storage_of(const at::ITensorListRef& list) { return list.size() == 0 ? nullptr : state_if_ours(*list.begin()); }

// Records the call if it is the one that the followed tape has next.
template <class First, class... Rest>
[[gnu::flatten]] Replay replay_expected(const TorchOp& op, ThreadState& thread, const First& first, const Rest&... rest) {
  const trace::Storage* state = storage_of(first);
  if (C10_UNLIKELY(!state)) return Replay::kUnknown;
  const Lane& lane = thread.lanes[state->device];
  if (C10_UNLIKELY(!lane.recorder || !has_settings_of(*lane.recorder, op.op.multiplies))) return Replay::kUnknown;
  trace::Recorder& recorder = *lane.recorder;
  thread.fresh.clear();
  std::lock_guard lock(recorder.mutex());
  const trace::Token* token = recorder.next_token();
  if (C10_UNLIKELY(!token || token->op != &op.op)) return Replay::kUnknown;
  trace::Call& call = thread.call;
  call.clear(&op.op);
  call.device = state->device;
  Comparer words(recorder, *token, call);
  const trace::OpArg* arg = op.op.args.data();
  if (C10_UNLIKELY(!(words.take(*arg, first) && ... && words.take(*++arg, rest)) || !words.same())) return Replay::kUnknown;
  return take_expected(recorder, *token, thread);
}

}  // namespace lazyt::frontend
