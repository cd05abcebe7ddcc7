#include "frontend/tracer.h"

#include <ATen/Context.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/neg.h>
#include <c10/core/DefaultDtype.h>

#include "base/env.h"
#include "frontend/arguments.h"
#include "frontend/dtype.h"
#include "frontend/elements.h"
#include "frontend/encode.h"
#include "frontend/errors.h"
#include "frontend/fallback.h"
#include "frontend/linear.h"
#include "frontend/overlap.h"
#include "frontend/registration.h"
#include "frontend/shapes.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "trace/session.h"

namespace lazyt::frontend {
namespace {

SourceHook source_hook = nullptr;

// Makes the tensors of the fresh results; they take the slots from `slot` on. Holds the recorder's mutex.
void make_results(trace::Recorder& recorder, const uint64_t* metas, uint32_t count, std::vector<at::Tensor>& out) {
  uint32_t slot = recorder.first_result();
  for (uint32_t i = 0; i < count; i++, slot++) {
    auto dtype = static_cast<base::DType>(*metas & 0xff);
    size_t rank = *metas >> 8;
    metas++;
    if (dtype == LAZYT_DTYPE_INVALID) {
      out.emplace_back();
      continue;
    }
    const auto* dims = reinterpret_cast<const int64_t*>(metas);
    metas += 2 * rank;
    trace::Storage* state;
    out.push_back(make_result({dims, rank}, {dims + rank, rank}, to_torch(dtype), recorder.device, &state));
    recorder.bind(*state, slot);
  }
}

// Replaces the arguments on the stack by the results.
void push_results(const TorchOp& op, torch::jit::Stack* stack, std::vector<at::Tensor>& fresh) {
  size_t count = op.op.args.size();
  if (op.returns.size() == 1 && op.returns[0] >= -1 && count > 0) {  // the common case: one tensor, fresh or written
    const int r = op.returns[0];
    c10::IValue& first = torch::jit::peek(*stack, 0, count);
    if (r < 0) first = std::move(fresh[0]);
    else if (r > 0) first = std::move(torch::jit::peek(*stack, r, count));
    stack->resize(stack->size() - count + 1);
    return;
  }
  std::vector<c10::IValue> results;
  size_t next = 0;
  for (int r : op.returns) {
    if (r >= 0) {
      results.push_back(torch::jit::peek(*stack, r, count));
    } else if (r == -1) {
      results.emplace_back(std::move(fresh[next++]));
    } else {
      c10::List<at::Tensor> list;
      while (next < fresh.size()) list.push_back(std::move(fresh[next++]));
      results.emplace_back(std::move(list));
    }
  }
  torch::jit::drop(*stack, count);
  for (auto& v : results) stack->push_back(std::move(v));
}

// How the program that the call becomes part of is to be run.
lazyt_compile_flags_t flags_now(bool multiplies, lazyt_compile_flags_t before) {
  static const at::Context& context = at::globalContext();
  auto flags = multiplies ? context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32 ? LAZYT_COMPILE_TF32 : 0
                          : before & LAZYT_COMPILE_TF32;
  if (context.deterministicAlgorithms()) flags |= LAZYT_COMPILE_DETERMINISTIC;
  return flags;
}

// What the recorder records by becomes what the user's settings are now.
void follow_settings(trace::Recorder& recorder, bool multiplies) {
  const base::DType default_float = from_torch(c10::get_default_dtype_as_scalartype());
  const lazyt_compile_flags_t flags = flags_now(multiplies, recorder.flags());
  auto same = [&] {
    std::lock_guard lock(recorder.mutex());
    if (recorder.empty() && recorder.default_float() != default_float) recorder.set_default_float(default_float);
    if (recorder.empty() && recorder.flags() != flags) recorder.set_flags(flags);
    return recorder.default_float() == default_float && recorder.flags() == flags;
  };
  while (!same()) check(trace::Session::get(recorder.device).flush(recorder, trace::FlushReason::kSetting));
}

// f under the recorder's mutex; true once it is not null. Traces of other threads in which the call's operands are
// pending are cut first.
template <class F>
bool unblocked(trace::Recorder& recorder, F&& f) {
  while (true) {
    trace::Recorder* other;
    {
      std::lock_guard lock(recorder.mutex());
      if (f()) return true;
      other = recorder.blocked_by();
    }
    if (!other) return false;
    check(trace::Session::get(other->device).flush(*other, trace::FlushReason::kOtherThread));
  }
}

// Makes the results of the call that was recorded, under the mutex.
Replay finish(trace::Recorder& recorder, const uint64_t* metas, uint32_t count, std::vector<at::Tensor>& fresh) {
  make_results(recorder, metas, count, fresh);
  const size_t pending = recorder.pending_ops(), most = max_pending();
  if (C10_LIKELY(pending < std::min(most, recorder.next_gate()))) return Replay::kKnown;
  return pending >= most ? Replay::kFull : Replay::kGate;
}

// f(recorder, count) takes the encoded call, gives the metas of its results and sets how many there are; null: it did not.
template <class F>
Replay take(ThreadState& thread, F&& f) {
  trace::Recorder& recorder = *thread.lanes[thread.call.device].recorder;
  thread.fresh.clear();
  Replay outcome = Replay::kUnknown;
  unblocked(recorder, [&] {
    uint32_t count = 0;
    const uint64_t* metas = f(recorder, count);
    if (metas) outcome = finish(recorder, metas, count, thread.fresh);
    return metas != nullptr;
  });
  return outcome;
}

// A few operators reach a device with tensors whose conjugation or sign is only noted: they get plain ones.
void record_resolved(TorchOp& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const size_t count = op.op.args.size();
  const auto args = torch::jit::last(*stack, count);
  const torch::jit::Stack plain = replace(args, *device_of(args), resolve);
  torch::jit::Stack results = plain;
  trace_call(op, &results);
  for (size_t i = 0; i < count; i++) {
    if (!op.op.args[i].written) continue;
    std::vector<at::Tensor> ours, theirs;
    collect(ours, args[i]), collect(theirs, plain[i]);
    for (size_t k = 0; k < ours.size(); k++)
      if (ours[k].defined() && !ours[k].is_same(theirs[k])) ours[k].copy_(theirs[k]);
  }
  for (size_t i = 0; i < results.size(); i++)
    if (op.returns[i] >= 0) results[i] = args[op.returns[i]];
  torch::jit::drop(*stack, count);
  for (auto& r : results) stack->push_back(std::move(r));
}

void wait_for_results(const TorchOp& op, const trace::Call& call, const torch::jit::Stack& stack) {
  std::vector<trace::Storage*> storages;
  for (uint32_t w : call.writes) storages.push_back(call.operands[w]);
  std::vector<at::Tensor> results;
  for (const c10::IValue& v : torch::jit::last(stack, op.returns.size())) collect(results, v);
  for (const at::Tensor& t : results)
    if (is_lazy(t)) storages.push_back(&state_of(t));
  for (trace::Storage* s : storages)
    if (auto data = check(session_of(*s).materialize(*s))) check(data->wait(), *s, data);
}

// Lists by eager's kernel that goes through them one by one, if there is one.
bool record_each(const TorchOp& op, torch::jit::Stack* stack) {
  constexpr auto kOneByOne = c10::DispatchKey::CompositeExplicitAutograd;
  if (!op.op.name.starts_with("aten::_foreach_") || !op.handle.hasKernelForDispatchKey(kOneByOne)) return false;
  op.handle.callBoxedForDispatchKey(kOneByOne, *stack);
  return true;
}

// Operands on several devices: eager's error, or, where eager goes through a list one by one, its kernel that does so.
bool record_by_device(TorchOp& op, torch::jit::Stack* stack, const trace::Call& call) {
  const auto elsewhere = std::ranges::find_if(call.operands, [&](const trace::Storage* s) { return s->device != call.device; });
  if (elsewhere == call.operands.end()) return false;
  if (record_each(op, stack)) return true;
  size_t operand = elsewhere - call.operands.begin();
  const auto args = torch::jit::last(*stack, op.op.args.size());
  for (size_t i = 0; i < args.size(); i++) {
    std::vector<at::Tensor> tensors;
    if (args[i].isTensor() || args[i].isTensorList() || args[i].isOptionalTensorList()) collect(tensors, args[i]);
    for (const at::Tensor& t : tensors)
      TORCH_CHECK(!is_lazy(t) || operand-- > 0, "Expected all tensors to be on the same device, but found at least two devices, ", device(call.device),
                  " and ", t.device(), "! (when checking argument for argument ", op.op.args[i].name, " in method ", op.op.name, ")");
  }
  TORCH_INTERNAL_ASSERT(false);
}

// An operand that out= resizes, too, is read as it was: by another tensor over the same storage.
void keep_operands(const TorchOp& op, torch::jit::Stack* stack, const ShapeResult& shapes) {
  const size_t count = op.op.args.size();
  std::vector<at::Tensor> resized;
  for (const auto& r : shapes.resized) {
    const c10::IValue& arg = torch::jit::peek(*stack, r.arg, count);
    resized.push_back(arg.isTensor() ? arg.toTensor() : arg.toListRef()[r.element].toTensor());
  }
  auto kept = [&](const at::Tensor& t) {
    return std::ranges::any_of(resized, [&](const at::Tensor& r) { return r.is_same(t); }) ? at::alias(t) : t;
  };
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (size_t i = 0; i < count; i++)
    if (!op.op.args[i].written) torch::jit::peek(*stack, i, count) = map_tensors(torch::jit::peek(*stack, i, count), kept);
}

void record_composite(const TorchOp& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  // PyTorch's generated out= has no derivative.
  const auto key = op.has_out ? c10::DispatchKey::CompositeExplicitAutograd : c10::DispatchKey::CompositeImplicitAutograd;
  op.handle.callBoxedForDispatchKey(key, *stack);
}

void record_call(TorchOp& op, torch::jit::Stack* stack) {
  ThreadState& thread = thread_state();
  trace::Call& call = thread.call;
  auto args = torch::jit::last(*stack, op.op.args.size());
  if (const Encoded encoded = encode(op, args, call); C10_UNLIKELY(encoded != Encoded::kWhole))
    return encoded == Encoded::kNoted ? record_resolved(op, stack) : call_on_host(op, stack, "a number is 2^63 or more");
  if (C10_UNLIKELY(op.element_numbers != 0)) check_elements(op, args);
  const auto shapes_of = [&](const trace::Call& kept) { return infer(op, kept, args); };
  std::optional<ShapeResult> of_out;
  if (op.has_out) {
    if (record_by_device(op, stack, call)) return;  // an out= tensor of another shape is resized first, as in eager
    of_out = aside(call, shapes_of);
    if (of_out->host_reason) return call_on_host(op, stack, of_out->host_reason);
    if (!of_out->resized.empty()) keep_operands(op, stack, *of_out);
    for (const auto& [index, element, dims, strides] : of_out->resized) {
      const at::Tensor out = args[index].isTensor() ? args[index].toTensor() : args[index].toListRef()[element].toTensor();
      out.resize_(dims);
      out.unsafeGetTensorImpl()->set_sizes_and_strides(dims, strides);
    }
    if (!of_out->resized.empty()) encode_again(op, args, call);
  }

  Replay outcome = replay(thread);
  if (outcome == Replay::kUnknown) {
    record_new_operators();
    if (op.has_composite && !is_plain_linear(op, args)) return record_composite(op, stack);
    if (writes_across(op, args)) {
      if (!record_each(op, stack)) call_on_host(op, stack, "what it writes of a list is another's, too");
      return;
    }
    if (record_by_device(op, stack, call)) return;
    ShapeResult shapes;
    try {
      shapes = of_out ? std::move(*of_out) : aside(call, shapes_of);
    } catch (const c10::Error&) {  // eager's error about one of a list, once those before it are done
      if (!op.writes_list || !record_each(op, stack)) throw;
      return;
    }
    if (shapes.host_reason) return call_on_host(op, stack, shapes.host_reason);
    check_backend_takes(op, call, shapes.metas, shapes.fresh);
    auto source = aside(call, [](const trace::Call&) { return source_line(); });
    outcome = take(thread, [&](trace::Recorder& recorder, uint32_t& count) {
      count = shapes.fresh;
      return recorder.append(call, shapes.metas, shapes.fresh, source);
    });
  }
  push_results(op, stack, thread.fresh);
  if (C10_UNLIKELY(outcome > Replay::kKnown)) {
    look_up(thread, outcome);
    if (one_by_one()) wait_for_results(op, call, *stack);
  }
}

}  // namespace

size_t max_pending() {
  static const size_t n =
      one_by_one() ? 1 : static_cast<size_t>(check(base::env_int("LAZYT_MAX_PENDING", 20000, 1, 1 << 30)));
  return n;
}

bool has_settings_of(const trace::Recorder& recorder, bool multiplies) {
  return from_torch(c10::get_default_dtype_as_scalartype()) == recorder.default_float() && flags_now(multiplies, recorder.flags()) == recorder.flags();
}

bool one_by_one() {
  static const bool on = check(base::env_bool("LAZYT_EAGER", false));
  return on;
}

// What autograd keeps of this thread's calls is known by how many nodes it has made. A tensor that Python keeps for it may be any.
static uint64_t nodes_made(ThreadState& thread) {
  const uint64_t made = at::sequence_number::peek();
  if (C10_UNLIKELY(made != thread.nodes)) {
    thread.nodes = made;
    thread.hooked = !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
  }
  return thread.hooked ? made | trace::kHooked : made;
}

Replay replay(ThreadState& thread) {
  trace::Call& call = thread.call;
  call.nodes = nodes_made(thread);
  Lane& lane = thread.lanes[call.device];
  trace::Recorder& recorder = recorder_of(lane, call.device);
  if (C10_UNLIKELY(!has_settings_of(recorder, call.op->multiplies))) follow_settings(recorder, call.op->multiplies);
  return take(thread, [&](trace::Recorder& r, uint32_t& count) {
    const uint64_t* metas = r.replay(thread.call);
    count = metas ? r.fresh_count() : 0;
    return metas;
  });
}

Replay take_expected(trace::Recorder& recorder, const trace::Token& token, ThreadState& thread) {
  thread.call.nodes = nodes_made(thread);
  return finish(recorder, recorder.take(thread.call, token), token.fresh, thread.fresh);
}

void look_up(ThreadState& thread, Replay outcome) {
  trace::Recorder& recorder = *thread.lanes[thread.call.device].recorder;
  trace::Session& session = trace::Session::get(recorder.device);
  if (outcome == Replay::kGate) session.begin(recorder);
  else check(session.flush(recorder, trace::FlushReason::kNodeBudget));
}

void set_source_hook(SourceHook hook) { source_hook = hook; }

std::shared_ptr<const ir::SourceLine> source_line() { return source_hook ? source_hook() : nullptr; }

namespace {

// x[i] takes an index on the CPU, as eager does on every device, and x.bernoulli_(p) takes p.
void move_from_cpu(const TorchOp& op, torch::jit::Stack* stack) {
  const size_t count = op.op.args.size();
  for (size_t i = 0; i < count; i++) {
    c10::IValue& v = torch::jit::peek(*stack, i, count);
    const bool tensor = !op.masks_count && v.isTensor() && !op.op.args[i].written;
    if (!tensor && !v.isOptionalTensorList()) continue;
    bool any = false;
    const c10::Device device = *device_of(torch::jit::last(*stack, count));
    if (tensor) {
      if (v.toTensor().device().is_cpu() && v.toTensor().dim() > 0) v = v.toTensor().to(device);
      continue;
    }
    c10::List<std::optional<at::Tensor>> moved;
    for (const c10::IValue& e : v.toListRef()) {
      const bool here = e.isTensor() && e.toTensor().defined() && e.toTensor().device().is_cpu();
      any |= here;
      moved.push_back(e.isNone() ? std::nullopt : std::optional<at::Tensor>(here ? e.toTensor().to(device) : e.toTensor()));
    }
    if (any) v = std::move(moved);
  }
}

}  // namespace

at::Tensor without_notes(const at::Tensor& t) {
  at::Tensor plain = t.is_conj() ? at::_conj(t) : t;
  return plain.is_neg() ? at::_neg_view(plain) : plain;
}

at::Tensor resolve(const at::Tensor& t) {
  if (!t.defined() || !(t.is_conj() || t.is_neg())) return t;
  at::Tensor plain = without_notes(t);
  if (t.is_conj()) plain = at::conj_physical(plain);
  return t.is_neg() ? at::neg(plain) : plain;
}

namespace {

// Eager's kernels of unbind_copy and its like resize what they write by an operator, which counts, too.
bool counts_resizes(const TorchOp& op) { return op.has_out && op.functional && op.functional->hasTag(at::Tag::view_copy); }

}  // namespace

// Lists that are written and operators that are not PyTorch's may come here without that the write was counted
// (_version): what eager's kernels call would count it.
bool is_uncounted_write(const TorchOp& op) {
  constexpr auto kCounts = c10::DispatchKey::ADInplaceOrView;
  return (op.has_out ? op.returns.empty() : op.writes_itself || op.writes_list) && c10::impl::tls_is_dispatch_key_included(kCounts) &&
         !c10::impl::tls_is_dispatch_key_excluded(kCounts) && !op.handle.hasKernelForDispatchKey(kCounts);
}

void count_write(const at::Tensor& t) {
  if (t.defined() && !t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
}

namespace {

// _foreach_add_ and its like, which optimizers call at every step.
void trace_counted(TorchOp& op, torch::jit::Stack* stack) {
  const c10::IValue list = torch::jit::peek(*stack, 0, op.op.args.size());
  {
    at::AutoDispatchBelowADInplaceOrView counted;
    trace_call(op, stack);
  }
  for (const c10::IValue& e : list.toListRef()) count_write(e.toTensor());
}

// Eager's x.select_scatter(...) copies the whole storage of x and keeps its geometry; as_strided_copy reads outside of x.
// Where x is all that lies there, row-major, they are plain operators.
bool looks_at_storage(const at::Tensor& self) {
  return self.storage_offset() != 0 || !self.is_contiguous() || self.nbytes() != self.storage().nbytes();
}

// Why a call that writes by indices is made at once; null: no reason.
const char* needs_values(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  const at::Tensor& self = args[0].toTensor();
  if (op.masks_count && (op.masks_on_host || !has_mask(args))) return nullptr;
  if (op.op.args[0].written && self.numel() == 0) return "whether it fails depends on data, and nobody looks at a tensor without elements";
  if (!op.masks_count) return nullptr;
  // x[mask] = z of one element: eager takes z as a number.
  const at::Tensor& value = args[2].toTensor();
  const bool maybe_real = value.is_complex() && !self.is_complex() && value.numel() == 1;
  return maybe_real ? "whether a complex number is a real one depends on data" : nullptr;
}

}  // namespace

void trace_call(TorchOp& op, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(op.copies_storage) && looks_at_storage(torch::jit::peek(*stack, 0, op.op.args.size()).toTensor())) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op.handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional, *stack);
  }
  if (C10_UNLIKELY(is_uncounted_write(op))) {
    if (op.writes_list) return trace_counted(op, stack);
    std::vector<at::Tensor> written;
    for (size_t i = 0; i < op.op.args.size(); i++)
      if (op.op.args[i].written) collect(written, torch::jit::peek(*stack, i, op.op.args.size()));
    std::vector<std::vector<int64_t>> before;
    for (const at::Tensor& t : written) before.push_back(t.defined() ? t.sizes().vec() : std::vector<int64_t>());
    {
      at::AutoDispatchBelowADInplaceOrView counted;
      trace_call(op, stack);
    }
    for (size_t i = 0; i < written.size(); i++) {
      const at::Tensor& t = written[i];
      count_write(t);
      if (t.defined() && t.sizes() != before[i] && counts_resizes(op)) count_write(t);
    }
    return;
  }
  if (C10_UNLIKELY(op.takes_cpu)) move_from_cpu(op, stack);
  if (!op.recordable) return call_on_host(op, stack, op.why_not);
  if (C10_UNLIKELY(op.masks_on_host) && has_mask(torch::jit::last(*stack, op.op.args.size())))
    return call_on_host(op, stack, "its result depends on data");
  if (C10_UNLIKELY(op.by_indices))
    if (const char* why = needs_values(op, torch::jit::last(*stack, op.op.args.size()))) return call_on_host(op, stack, why);
  record_call(op, stack);
}

}  // namespace lazyt::frontend
