#include "frontend/registration.h"

#include <ATen/core/dispatch/RegistrationHandleRAII.h>
#include <ATen/core/enum_tag.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/empty_like_ops.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "frontend/schema.h"
#include "frontend/storage.h"
#include "frontend/tracer.h"
#include "frontend/typed.h"

namespace lazyt::frontend {
namespace {

using c10::DispatchKey;

// One instance per operator: it knows its operator without a look-up.
class Recording final : public c10::OperatorKernel {
 public:
  explicit Recording(TorchOp& op) : op_(&op) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    trace_call(*op_.load(std::memory_order_relaxed), stack);
  }
  void set(TorchOp& op) { op_ = &op; }

 private:
  std::atomic<TorchOp*> op_;
};

void fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) { trace_call(torch_op(handle), stack); }

void refuse(const char* layout, const std::string& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "lazyt: ", layout, " tensors cannot live on the lazyt device (", op,
                              "); keep them on the CPU or call .to_dense(), .dequantize() or .to_padded_tensor() first");
}

// Layouts that PyTorch keeps on keys of their own have no kernels here.
void refuse_layout(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack*) {
  const std::string& name = handle.operator_name().name;
  const bool sparse = keys.has(DispatchKey::SparsePrivateUse1) || keys.has(DispatchKey::SparseCsrPrivateUse1) || name.find("sparse") != std::string::npos;
  refuse(sparse ? "sparse" : keys.has(DispatchKey::QuantizedPrivateUse1) ? "quantized" : "nested", c10::toString(handle.operator_name()));
}

// A nested tensor of CPU tensors on this device: no tensor of the call says so, only its argument `device`.
void refuse_nested_here(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr size_t kCount = 5, kDevice = 3;  // list, dtype, layout, device, pin_memory
  const c10::IValue& device = torch::jit::peek(*stack, kDevice, kCount);
  if (device.isDevice() && device.toDevice().type() == kDeviceType) refuse_layout(handle, keys, stack);
  handle.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect), stack);
}

// PyTorch would put one like a compressed one together without a call to the device.
at::Tensor empty_like_here(c10::DispatchKeySet keys, const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                           std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const at::Layout made = layout.value_or(self.layout());
  if (C10_UNLIKELY(made != at::kStrided) && device && device->type() == kDeviceType)
    if (made == at::kSparseCsr || made == at::kSparseCsc || made == at::kSparseBsr || made == at::kSparseBsc) refuse("sparse", "aten::empty_like");
  return at::_ops::empty_like::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect), self, dtype, layout, device, pinned, format);
}

// Composites that would make one of tensors of the device, and no other operator takes it; those that would read the
// parts of a compressed one (zeros_like of one on the CPU, device= this one).
void refuse_makers() {
  static std::vector<torch::Library> libraries;
  const auto add = [&](DispatchKey key, const char* name, torch::CppFunction kernel) {
    libraries.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__).impl(name, std::move(kernel));
  };
  for (const char* name : {"_sparse_compressed_tensor_unsafe", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices"})
    add(DispatchKey::SparseCsrPrivateUse1, name, torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
  add(DispatchKey::PrivateUse1, "_nested_tensor_from_tensor_list", torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
  add(DispatchKey::BackendSelect, "_nested_tensor_from_tensor_list", torch::CppFunction::makeFromBoxedFunction<&refuse_nested_here>());
  add(DispatchKey::BackendSelect, "empty_like", torch::CppFunction(TORCH_FN(empty_like_here)));
}

bool is_view(const c10::FunctionSchema& s) {
  for (const auto& r : s.returns())
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;
  return false;
}

// Composite operators that are better recorded as what they are made of: an unwritten tensor and a fill,
// a random in-place operator, a copy.
bool stays_composite(const std::string& name) {
  static const auto& kNames = *new std::set<std::string>{
      "aten::empty_like", "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted", "aten::zeros",
      "aten::zeros_like", "aten::new_zeros", "aten::ones", "aten::ones_like", "aten::new_ones", "aten::full",
      "aten::full_like", "aten::new_full", "aten::rand", "aten::rand_like", "aten::randn", "aten::randn_like",
      "aten::randint", "aten::randint_like", "aten::_to_copy", "aten::resize_as_", "aten::resize",
      "aten::is_pinned", "aten::_pin_memory", "aten::pin_memory", "aten::lift", "aten::lift_fresh",
      // Their lengths stay on the CPU.
      "aten::_pack_padded_sequence", "aten::_pack_padded_sequence_backward", "aten::_pad_packed_sequence",
      "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::_unsafe_view",  // views that do not say so
      "aten::scalar_tensor", "aten::_efficientzerotensor", "aten::normal", "aten::uniform", "aten::_lazy_clone",
      "aten::is_same_size", "aten::_has_same_storage_numel",  // of geometry alone
      "aten::_safe_softmax",  // outside the opset; what it is made of is inside
  };
  return kNames.count(name) > 0;
}

// linear.h
bool is_linear(const std::string& name) { return name == "aten::linear" || name == "aten::linear_backward"; }
// Composite-implicit only where a device has no kernel: autograd has one of its own above both, as for the CPU. As what it is made of it
// rounds halves five times and more instead of once.
bool has_own_autograd(const std::string& name) { return name == "aten::silu_backward" || name == "aten::mish_backward"; }

bool registered_here(const c10::OperatorHandle& h) { return h.hasKernelForDispatchKey(DispatchKey::PrivateUse1); }

// Composite-explicit operators would arrive decomposed if only the backend fallback were there: they
// have a kernel already. Those with kernels of their own per device would reach it, which has to look them up.
// Composite-implicit ones must decompose, for autograd.
bool wants_recording(const c10::OperatorHandle& h) {
  if (!h.hasSchema() || registered_here(h)) return false;
  if (h.hasTag(at::Tag::inplace_view)) return false;  // t_, unsqueeze_, ...: geometry alone changes
  bool explicit_kernel = h.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
                         h.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
                         h.hasKernelForDispatchKey(DispatchKey::CPU);
  if (is_linear(h.operator_name().name) || has_own_autograd(h.operator_name().name)) return true;
  if (!explicit_kernel || h.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) return false;
  // One that gives nothing is called for what it does: a check, a print. Its body runs when it is called.
  const auto& s = h.schema();
  if (s.returns().empty() && std::none_of(s.arguments().begin(), s.arguments().end(), [](const auto& a) { return a.alias_info(); })) return false;
  return !is_view(s) && !stays_composite(h.operator_name().name);
}

torch::Library& library_of(const std::string& name_space) {
  static auto* libraries = new std::map<std::string, torch::Library>;
  auto it = libraries->find(name_space);
  if (it == libraries->end())
    it = libraries->try_emplace(name_space, torch::Library::IMPL, name_space, DispatchKey::PrivateUse1, __FILE__, __LINE__).first;
  return it->second;
}

// Kernels stay registered when a library goes: the next operator of that name finds its own.
auto& recordings() {
  static auto* map = new std::unordered_map<c10::OperatorName, Recording*>;
  return *map;
}

void record_by_name(const c10::OperatorHandle& h) {
  const c10::OperatorName& n = h.operator_name();
  if (n.name.starts_with("aten::") && register_typed(torch_op(h))) return;
  size_t colon = n.name.find("::");
  std::string in_library = n.name.substr(colon + 2) + (n.overload_name.empty() ? "" : "." + n.overload_name);
  auto kernel = std::make_unique<Recording>(torch_op(h));
  recordings()[n] = kernel.get();
  library_of(n.name.substr(0, colon)).impl(in_library.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
}

// Operators whose schema came after initialize(); whether they are to be recorded shows when their kernels come.
class LateOperators final : public c10::OpRegistrationListener {
 public:
  // Under the dispatcher's lock: nothing can be registered here.
  void onOperatorRegistered(const c10::OperatorHandle& h) override {
    std::lock_guard lock(mutex_);
    names_.push_back(h.operator_name());
    some_new_ = true;
  }
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}

  void forget_all() {
    std::lock_guard lock(mutex_);
    names_.clear();
    some_new_ = false;
  }

  bool has_new() const { return some_new_.load(std::memory_order_relaxed); }
  void record() {
    std::vector<c10::OperatorName> names, undecided;
    {
      std::lock_guard lock(mutex_);
      std::swap(names, names_);
      some_new_ = false;
    }
    std::lock_guard lock(registering_);
    for (const c10::OperatorName& name : names) {
      auto h = c10::Dispatcher::singleton().findSchema(name);
      if (!h) continue;
      forget_op(name);
      if (auto it = recordings().find(name); it != recordings().end()) it->second->set(torch_op(*h));
      else if (wants_recording(*h)) record_by_name(*h);
      else if (!registered_here(*h) && !h->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) undecided.push_back(name);
    }
    std::lock_guard lock_names(mutex_);
    names_.insert(names_.end(), undecided.begin(), undecided.end());
  }

 private:
  std::mutex mutex_, registering_;
  std::atomic<bool> some_new_{false};     // since record()
  std::vector<c10::OperatorName> names_;  // those of before, too, that had no kernel yet
};

LateOperators* late_operators = nullptr;  // the dispatcher's

// scaled_dot_product_attention: one operator where eager on the CPU takes its fused kernel (PyTorch says for which
// dtypes, masks and heads), else what it is made of.
void register_attention() { at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&at::native::_fused_sdp_choice_cpp); }

}  // namespace

void record_late_operators() {
  if (late_operators) late_operators->record();
}

void record_new_operators() {
  if (C10_UNLIKELY(late_operators && late_operators->has_new())) late_operators->record();
}

void register_tracer() {
  static torch::Library all(torch::Library::IMPL, "_", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  static std::vector<torch::Library> layouts;
  for (DispatchKey key : {DispatchKey::SparsePrivateUse1, DispatchKey::SparseCsrPrivateUse1,
                          DispatchKey::QuantizedPrivateUse1, DispatchKey::NestedTensorPrivateUse1})
    layouts.emplace_back(torch::Library::IMPL, "_", key, __FILE__, __LINE__)
        .fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
  refuse_makers();
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
    if (auto h = c10::Dispatcher::singleton().findSchema(name); h && wants_recording(*h)) record_by_name(*h);
  auto listener = std::make_unique<LateOperators>();
  late_operators = listener.get();
  // Hears of all that is known first, too.
  static auto* listening = new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::move(listener)));
  (void)listening;
  late_operators->forget_all();
}

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    free_locks_in_forks();
    register_device();
    register_views();
    register_copies();
    register_rnn();
    register_rnn_layers();
    register_linear();
    register_nested();
    register_encoder();
    register_optimizers();
    register_composed();
    register_attention();
    register_tracer();
    register_autocast();
    register_host_runner();
  });
}

}  // namespace lazyt::frontend
