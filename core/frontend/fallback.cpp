#include "frontend/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/counters.h"
#include "base/env.h"
#include "base/host_reasons.h"
#include "frontend/arguments.h"
#include "frontend/dtype.h"
#include "frontend/errors.h"
#include "frontend/random.h"
#include "frontend/storage.h"
#include "frontend/tracer.h"
#include "frontend/thread_state.h"
#include "trace/session.h"

namespace lazyt::frontend {
namespace {

std::atomic<int> policy{-1};

void apply_policy(const TorchOp& op, const std::string& reason) {
  std::string name = op.op.name + (op.op.overload.empty() ? "" : "." + op.op.overload);
  switch (fallback_policy()) {
    case FallbackPolicy::kAllow: return;
    case FallbackPolicy::kDeny:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "lazyt: ", name, " would run on the host (", reason,
                                  "), and LAZYT_FALLBACK=deny forbids it; use an operator that the backend takes, "
                                  "another backend, or LAZYT_FALLBACK=allow");
    case FallbackPolicy::kWarn: {
      static std::mutex mutex;
      static auto* warned = new std::set<std::string>;
      std::lock_guard lock(mutex);
      if (warned->insert(name).second) TORCH_WARN("lazyt: ", name, " runs on the host: ", reason);
    }
  }
}

// The storages of a call, on the CPU for as long as it runs. Tensors that share one share one there, too: views,
// overlaps, resizes and what a kernel returns of its arguments come out as in eager.
class OnHost {
 public:
  explicit OnHost(c10::Device device) : device_(device) {}

  at::Tensor copy_of(const at::Tensor& t) {
    at::Tensor& copy = copies_[t.unsafeGetTensorImpl()];  // kernels ask whether two operands are one tensor
    if (copy.defined()) return copy;
    const c10::StorageImpl* impl = t.storage().unsafeGetStorageImpl();
    auto [it, fresh] = storages_.try_emplace(impl);
    if (fresh) it->second = {t.storage(), download_storage(*impl)};
    auto cpu = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(it->second.host), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    cpu.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    cpu._set_conj(t.is_conj());
    cpu._set_neg(t.is_neg());
    return copy = std::move(cpu);
  }

  // A tensor that was written, after the call: its geometry, and its storage's bytes.
  void take_back(const at::Tensor& device, const at::Tensor& host) {
    if (!is_lazy(device)) return;
    c10::StorageImpl& impl = *device.storage().unsafeGetStorageImpl();
    device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    const c10::Storage& bytes = host.storage();
    if (impl.nbytes() != bytes.nbytes()) resize_storage(impl, bytes.nbytes());
    base::Meta meta = meta_of(host);
    if (host.storage_offset() != 0 || !meta.is_dense() || meta.span_bytes() != bytes.nbytes())
      meta = base::Meta::contiguous(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(bytes.nbytes())});
    if (bytes.nbytes() > 0) upload(state_of(impl), std::move(meta), bytes.data(), bytes.nbytes(), std::make_shared<c10::Storage>(bytes));
  }

  // A result: a view of an argument's storage, or new.
  at::Tensor to_device(const at::Tensor& t) const {
    if (!t.defined() || !t.device().is_cpu()) return t;
    for (const auto& [impl, s] : storages_)
      if (t.storage().unsafeGetStorageImpl() == s.host.unsafeGetStorageImpl()) {
        auto view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(s.device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), t.dtype());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
        view._set_conj(t.is_conj());
        view._set_neg(t.is_neg());
        return view;
      }
    return t.to(device_);
  }

 private:
  struct Pair {
    c10::Storage device, host;
  };
  const c10::Device device_;
  std::unordered_map<const c10::StorageImpl*, Pair> storages_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> copies_;  // of the call's operands, which outlive this
};

// The index of the one device that the call's tensors lie on; else eager's error.
uint32_t operator_device(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  const c10::Device first = device_of(args).value_or(c10::Device(kDeviceType));
  // Indices may lie on the CPU, what they pick from may not. Other operators see to their operands when they are encoded.
  const bool picks = op.masks_on_host || op.op.name == "aten::masked_select";
  for (size_t i = 0; i < args.size(); i++) {
    std::vector<at::Tensor> tensors;
    if (args[i].isTensor() || args[i].isTensorList() || args[i].isOptionalTensorList()) collect(tensors, args[i]);
    for (const at::Tensor& t : tensors)
      TORCH_CHECK(is_lazy(t) ? t.device() == first : !picks || t.dim() == 0 || !args[i].isTensor(), "Expected all tensors to be on the same device, but found at least two devices, ", first,
                  " and ", t.device(), "! (when checking argument for argument ", op.op.args[i].name, " in method ", op.op.name, ")");
  }
  return check_device(first);
}

void run_on_host(const TorchOp& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const size_t count = op.op.args.size();
  const auto args = torch::jit::last(*stack, count);
  OnHost host(device(operator_device(op, args)));
  bool aliases = false;  // else the spans that the operands cover are enough
  for (const c10::Argument& a : op.handle.schema().arguments()) aliases |= a.alias_info() != nullptr;
  torch::jit::Stack copies = replace(args, c10::Device(at::kCPU), [&](const at::Tensor& t) { return aliases ? host.copy_of(t) : download(t); });
  torch::jit::Stack results = copies;
  const auto begin = std::chrono::steady_clock::now();
  op.handle.callBoxed(results);
  base::record_time(op.op.name, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  for (size_t i = 0; i < count; i++) {
    if (!op.op.args[i].written) continue;
    std::vector<at::Tensor> ours, theirs;
    collect(ours, args[i]), collect(theirs, copies[i]);
    for (size_t k = 0; k < ours.size(); k++)
      if (ours[k].defined()) host.take_back(ours[k], theirs[k]);
  }
  for (size_t i = 0; i < results.size(); i++) {
    c10::IValue& r = results[i];
    if (i < op.returns.size() && op.returns[i] >= 0) {
      r = args[op.returns[i]];
    } else if (r.isTensor()) {
      r = host.to_device(r.toTensor());
    } else if (r.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const auto& e : r.toListRef()) list.push_back(host.to_device(e.toTensor()));
      r = std::move(list);
    }
  }
  torch::jit::drop(*stack, count);
  for (auto& r : results) stack->push_back(std::move(r));
}

}  // namespace

FallbackPolicy fallback_policy() {
  int p = policy.load(std::memory_order_relaxed);
  if (p >= 0) return static_cast<FallbackPolicy>(p);
  std::string text = check(base::env_choice("LAZYT_FALLBACK", "allow"));
  p = text == "deny" ? 2 : text == "warn" ? 1 : 0;
  policy = p;
  return static_cast<FallbackPolicy>(p);
}

void set_fallback_policy(FallbackPolicy p) { policy = static_cast<int>(p); }

void call_on_host(TorchOp& op, torch::jit::Stack* stack, const std::string& reason) {
  apply_policy(op, reason);
  base::counter(op.op.name).add();
  if (!base::has_host_reason(op.op.name)) {
    const auto line = source_line();
    base::note_host_reason(op.op.name, reason, line ? fmt::format("{}:{}", line->file, line->line) : "");
  }
  // Random operators outside the opset draw from a CPU generator that our stream seeds.
  size_t count = op.op.args.size();
  for (size_t i = 0; i < count; i++) {
    if (op.op.args[i].type != trace::ArgType::kGenerator) continue;
    c10::IValue& v = torch::jit::peek(*stack, i, count);
    std::optional<at::Generator> ours;
    if (v.isGenerator()) ours = v.toGenerator();
    RandomState r = draw(ours, operator_device(op, torch::jit::last(*stack, count)), 1);
    auto cpu = at::make_generator<at::CPUGeneratorImpl>(r.seed ^ (r.offset * 0x9E3779B97F4A7C15ull));
    v = cpu;
  }
  run_on_host(op, stack);
}

void check_backend_takes(TorchOp& op, trace::Call& call, const trace::Words& metas, uint32_t fresh) {
  if (C10_LIKELY(fallback_policy() == FallbackPolicy::kAllow)) return;
  std::string reason = check(trace::Session::get(call.device).refusal(op.op, call, metas, fresh));
  if (!reason.empty()) apply_policy(op, "the backend refuses it: " + reason);
}

}  // namespace lazyt::frontend
