// Copies between the device and the host, and values asked for by the program.
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/native_batch_norm_native.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/_native_batch_norm_legit_no_training.h>
#include <torch/library.h>

#include "base/counters.h"
#include "frontend/dtype.h"
#include "frontend/errors.h"
#include "frontend/registration.h"
#include "frontend/schema.h"
#include "frontend/storage.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {
namespace {

// The recorded copy between two tensors of the device.
void record_copy(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  static TorchOp& op = torch_op(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  torch::jit::Stack stack{dst, src, non_blocking};
  trace_call(op, &stack);
}

void host_to_device(const at::Tensor& dst, const at::Tensor& src) {
  static base::Counter& copies = base::counter("lazyt::_copy_from");
  static base::Counter& misses = base::counter("DeviceDataCacheMiss");
  copies.add();
  misses.add();
  trace::Storage& state = state_of(dst);
  base::Meta meta = meta_of(dst);
  const bool whole = dst.storage_offset() == 0 && meta.is_dense() && meta.span_bytes() == state.size_bytes;
  const base::Dims strides = whole ? meta.strides : base::contiguous_strides(meta.dims);
  at::Tensor host = at::empty_strided(dst.sizes(), strides, src.options().dtype(dst.scalar_type()));
  const bool ready = src.scalar_type() == dst.scalar_type() && src.sizes() == host.sizes() &&
                     src.strides() == host.strides() && !src.is_conj() && !src.is_neg() && src.layout() == at::kStrided;
  if (ready)
    host = src;
  else
    host.copy_(src);
  const uint64_t bytes = meta.span_bytes();
  if (whole) return upload(state, std::move(meta), host.const_data_ptr(), bytes, std::make_shared<at::Tensor>(host));
  trace::Storage* part;
  at::Tensor staged = make_tensor(host.sizes(), host.strides(), host.scalar_type(), state.device, &part);
  upload(*part, meta_of(staged), host.const_data_ptr(), part->size_bytes, std::make_shared<at::Tensor>(host));
  record_copy(dst, staged, false);
}

// Starts the copy and returns: the bytes come when the source's program has run.
void device_to_device(const at::Tensor& dst, const at::Tensor& src) {
  static base::Counter& copies = base::counter("lazyt::_copy_from");
  copies.add();
  at::Tensor from = resolve(src);
  const base::Meta meta = meta_of(from);
  if (from.storage_offset() != 0 || !meta.is_dense() || meta.span_bytes() != state_of(from).size_bytes)
    from = at::clone(from, at::MemoryFormat::Contiguous);
  const base::Ref<exec::Data> source = data_of(from);
  trace::Storage* state = &state_of(dst);
  const base::Meta natural = meta_of(from);
  const bool whole = dst.storage_offset() == 0 && dst.scalar_type() == from.scalar_type() && dst.sizes() == from.sizes() &&
                     dst.strides() == from.strides() && natural.span_bytes() == state->size_bytes;
  at::Tensor staged = whole ? dst : make_tensor(from.sizes(), from.strides(), from.scalar_type(), state->device, &state);
  if (source) {
    auto data = check(session_of(*state).receive(source));
    base::Ref<exec::Data> old;  // freed after the lock
    std::lock_guard lock(trace::recording_lock);
    old = std::move(state->data);
    trace::Recorder::set_data(*state, std::move(data));
  }
  if (!whole) record_copy(dst, staged, false);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  if (is_lazy(self) && (self.is_conj() || self.is_neg())) {  // write what gives src when the notes are carried out
    at::Tensor value = (is_lazy(src) ? resolve(src) : src.resolve_conj().resolve_neg()).to(self.scalar_type());
    if (self.is_conj()) value = at::conj_physical(value);
    if (self.is_neg()) value = at::neg(value);
    at::Tensor plain = without_notes(self);
    copy_(plain, value, non_blocking);
    return self;
  }
  if (is_lazy(self) && is_lazy(src)) {
    if (self.device() == src.device()) record_copy(self, src, non_blocking);
    else if (self.numel() > 0) device_to_device(self, src);
  } else if (is_lazy(self)) {
    TORCH_CHECK(src.device().is_cpu(), "lazyt: copies from ", src.device(), " go through the host; call .cpu() first");
    if (self.numel() == 0) return self;
    host_to_device(self, src);
  } else {
    TORCH_CHECK(self.device().is_cpu() || self.is_meta(), "lazyt: copies to ", self.device(), " go through the host; call .cpu() first");
    if (self.is_meta()) return self;
    self.copy_(download(src), non_blocking);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor out = dst;
  copy_(out, self, non_blocking);
  return out;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  static base::Counter& items = base::counter("aten::_local_scalar_dense");
  items.add();
  return at::native::_local_scalar_dense_cpu(download(self));
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", other.device(), "!");
  if (self.sizes() != other.sizes()) return false;
  static base::Counter& counter = base::counter("aten::equal");
  counter.add();
  return at::equal(download(self), download(other));
}

// native_batch_norm writes its running statistics when it trains, without saying so in its schema; the _legit forms say it.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var, bool training,
    double momentum, double eps) {
  if (running_mean && running_mean->defined() && running_var && running_var->defined()) {
    if (!training) return at::_native_batch_norm_legit_no_training(input, weight, bias, *running_mean, *running_var, momentum, eps);
    at::Tensor mean = *running_mean, var = *running_var;
    return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
  }
  return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
}

}  // namespace

void register_copies() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  library.impl("equal", TORCH_FN(equal));
  library.impl("native_batch_norm", TORCH_FN(native_batch_norm));
}

}  // namespace lazyt::frontend
