// Kernels for autograd that have nothing to note: in the place of PyTorch's, which copies each operand to see that. A copy of
// a tensor that Python holds takes the GIL and gives it back, twice; that was a quarter of what a call from Python cost.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace lazyt::frontend {

// Keys of those who would see each call that another stands for.
constexpr c10::DispatchKeySet kWatchers{
    c10::DispatchKey::Python,        c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::Functionalize, c10::DispatchKey::Conjugate,         c10::DispatchKey::Negative,         c10::DispatchKey::ZeroTensor};

// Whether there is a gradient forward with t; isFwGradDefined, without the copy.
inline bool has_tangent(const at::Tensor& t) { return t._fw_grad(/*level=*/0).defined(); }

// Whether PyTorch's kernel is wanted: gradients go back to t, or forward with it, or it is undefined, which that kernel refuses.
inline bool has_history(const at::Tensor& t) {
  if (C10_UNLIKELY(!t.defined())) return true;
  if (C10_LIKELY(!t.unsafeGetTensorImpl()->autograd_meta())) return false;
  return torch::autograd::compute_requires_grad(t) || has_tangent(t);
}
inline bool has_history(const std::optional<at::Tensor>& t) { return t && t->defined() && has_history(*t); }
inline bool has_history(at::TensorList l) {
  return std::ranges::any_of(l, [](const at::Tensor& t) { return has_history(t); });
}
inline bool has_history(const at::ITensorListRef& l) {
  for (const at::Tensor& t : l)
    if (has_history(t)) return true;
  return false;
}
template <class NoTensor>
bool has_history(const NoTensor&) {
  return false;
}

// What PyTorch's kernels of writes and views do without history: the next one counts the write, or notes the view.
template <class Signature>
auto redispatched(const c10::OperatorHandle& op) {
  return [op = op.typed<Signature>()](c10::DispatchKeySet keys, auto&&... args) -> decltype(auto) {
    const at::AutoDispatchBelowAutograd below;
    return op.redispatch(keys & c10::after_autograd_keyset, args...);
  };
}

template <class Signature, class Below>
class WithoutHistory;

// Calls below with the keys of the call. Whatever has history, or anything between autograd and the device (modes, transforms, noted
// conjugation), goes to PyTorch's kernel.
template <class Result, class... Args, class Below>
class WithoutHistory<Result(Args...), Below> final : public c10::OperatorKernel {
 public:
  WithoutHistory(const c10::OperatorHandle& op, Below below) : op_(op.typed<Result(Args...)>()), below_(std::move(below)) {}

  Result operator()(c10::DispatchKeySet keys, Args... args) {
    const bool alone = (keys & c10::after_ADInplaceOrView_keyset).highestFunctionalityKey() == c10::DispatchKey::Dense;
    if (C10_LIKELY(alone && !(has_history(args) || ...))) return below_(keys, args...);
    // PyTorch's kernel lies in the table of the backends without a key of their own, too.
    return op_.redispatch((keys & c10::after_autograd_keyset).add(c10::DispatchKey::AutogradOther), args...);
  }

 private:
  const c10::TypedOperatorHandle<Result(Args...)> op_;
  Below below_;
};

// To stay for ever.
template <class Signature, class Kernel>
void register_kernel(const c10::OperatorHandle& op, c10::DispatchKey key, std::unique_ptr<Kernel> kernel) {
  static auto* registered = new std::vector<c10::RegistrationHandleRAII>;
  registered->push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key, c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::move(kernel)),
      c10::impl::CppSignature::make<Signature>(), nullptr, "lazyt"));
}

// Registers the kernel, unless more than PyTorch's kernel for autograd is asked of an operator, or less.
template <class Signature, class Below>
void pass_autograd(const c10::OperatorHandle& op, Below below) {
  const auto has = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  if (!has(c10::DispatchKey::Autograd) || has(c10::DispatchKey::AutogradPrivateUse1) || has(c10::DispatchKey::AutogradOther) ||
      has(c10::DispatchKey::CompositeImplicitAutograd))
    return;
  register_kernel<Signature>(op, c10::DispatchKey::AutogradPrivateUse1, std::make_unique<WithoutHistory<Signature, Below>>(op, std::move(below)));
}

}  // namespace lazyt::frontend
