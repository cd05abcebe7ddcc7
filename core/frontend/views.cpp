// Views are no operators of a program: they make a plain TensorImpl over the same storage, by PyTorch's own
// code, and geometry travels with the operand that reads it. So none of this records anything.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "frontend/registration.h"
#include "frontend/storage.h"

namespace lazyt::frontend {
namespace {

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> d, std::optional<bool>) {
  TORCH_CHECK(!d || d->index() <= 0, "lazyt: there is no device ", *d, "; there is one, lazyt:0");
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "lazyt: tensors of layout ", *layout,
                              " cannot live on the lazyt device; keep them on the CPU or call .to_dense() first");
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  return make_tensor(size, stride, dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype())));
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> d, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  std::vector<int64_t> strides;
  if (!format || *format == at::MemoryFormat::Contiguous || *format == at::MemoryFormat::Preserve) {
    strides.resize(size.size());
    int64_t step = 1;
    for (size_t i = size.size(); i-- > 0;) {
      strides[i] = step;
      step *= std::max<int64_t>(size[i], 1);
    }
  } else {
    strides = *format == at::MemoryFormat::ChannelsLast ? c10::get_channels_last_strides_2d(size)
                                                        : c10::get_channels_last_strides_3d(size);
  }
  return empty_strided(size, strides, dtype, layout, d, pin);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  if (self.sizes() != size) {
    c10::TensorImpl* impl = self.unsafeGetTensorImpl();
    impl->set_sizes_contiguous(size);
    size_t bytes = (self.numel() + self.storage_offset()) * self.itemsize();
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    if (self.numel() > 0 && bytes > storage->nbytes()) resize_storage(*storage, bytes);
  }
  if (format && *format != at::MemoryFormat::Preserve) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  state_of(*source.unsafeGetStorageImpl());  // refuses a storage of another device
  at::native::checkSetStorage(self, source, offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  if (stride.data() == nullptr)
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  else
    self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  size_t bytes = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(), offset);
  if (self.numel() > 0 && bytes > source.nbytes()) resize_storage(*source.unsafeGetStorageImpl(), bytes);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  auto n = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {n}, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  at::Storage fresh(make_tensor({0}, {1}, self.scalar_type()).storage());
  return set_storage(self, std::move(fresh), 0, {0}, {});
}

// Whether `x.data = y` and Module.to may put y's storage into x: on the device and to or from the CPU, as eager
// does between CPU and CUDA. Without it a module that moves gets new parameters: ties and optimizers lose theirs.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  auto plain = [](const at::Tensor& t) { return t.layout() == at::kStrided && (is_lazy(t) || t.device().is_cpu()); };
  return plain(self) && plain(from) && !self.is_quantized() && !from.is_quantized();
}

}  // namespace

void register_views() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("view.dtype", TORCH_FN(at::native::view_dtype));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("set_", TORCH_FN(set_nothing));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  static torch::Library autograd(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  autograd.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace lazyt::frontend
