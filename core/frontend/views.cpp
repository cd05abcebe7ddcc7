// Views are no operators of a program: they make a plain TensorImpl over the same storage, by PyTorch's own
// code, and geometry travels with the operand that reads it. So none of this records anything.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/select_native.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/slice_native.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/split_ops.h>
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/t_native.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/transpose_native.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/view_ops.h>
#include <torch/library.h>

#include "frontend/history.h"
#include "frontend/registration.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"

namespace lazyt::frontend {
namespace {

// torch.use_deterministic_algorithms: memory that nobody wrote shows, as in eager.
bool fills_unwritten() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> d, std::optional<bool>) {
  const uint32_t device = check_device(d.value_or(c10::Device(kDeviceType)));
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "lazyt: tensors of layout ", *layout,
                              " cannot live on the lazyt device; keep them on the CPU or call .to_dense() first");
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  at::Tensor t = make_tensor(size, stride, dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype())), device);
  if (C10_UNLIKELY(fills_unwritten())) at::native::fill_empty_deterministic_(t);
  return t;
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

// Eager marks such zeros by a dispatch key, which says nothing that a program needs: here they are plain ones.
at::Tensor efficient_zeros(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                           std::optional<at::Device> d, std::optional<bool> pin) {
  return empty(size, dtype, layout, d, pin, std::nullopt).zero_();
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  note_replaced(self);
  if (self.sizes() != size) {
    c10::TensorImpl* impl = self.unsafeGetTensorImpl();
    const int64_t numel = checked_numel(size);
    const size_t bytes = at::detail::computeStorageNbytesContiguous(size, self.itemsize(), self.storage_offset());
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const size_t before = storage->nbytes();
    if (numel > 0 && bytes > before) resize_storage(*storage, bytes);  // first: it fails where its bytes did
    impl->set_sizes_contiguous(size);
    if (C10_UNLIKELY(fills_unwritten())) at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  }
  if (format && *format != at::MemoryFormat::Preserve) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  state_of(*source.unsafeGetStorageImpl());  // refuses a storage of another device
  at::native::checkSetStorage(self, source, offset, size, stride);
  note_replaced(self);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  if (stride.data() == nullptr && self.sizes() != size)  // of the same sizes keeps its strides
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  else if (stride.data() != nullptr)
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
  at::Storage fresh(make_tensor({0}, {1}, self.scalar_type(), self.get_device()).storage());
  return set_storage(self, std::move(fresh), 0, {0}, {});
}

// The views that programs make most, without the way through as_strided that PyTorch's composite kernels
// take. What they refuse goes to the composite kernel, which says why.
bool wrap(int64_t& dim, int64_t rank) {
  if (dim < 0) dim += rank;
  return dim >= 0 && dim < rank;
}

at::Tensor slice(const at::Tensor& self, int64_t dim, std::optional<int64_t> start,
                 std::optional<int64_t> end, int64_t step) {
  const int64_t given = dim;
  if (step <= 0 || !wrap(dim, self.dim())) return at::native::slice(self, given, start, end, step);
  at::DimVector sizes(self.sizes()), strides(self.strides());
  const int64_t n = sizes[dim];
  auto clamp = [n](int64_t i, int64_t least) { return std::min(std::max(i < 0 ? i + n : i, least), n); };
  const int64_t from = clamp(start.value_or(0), 0), to = clamp(end.value_or(n), from);
  const int64_t offset = self.storage_offset() + from * strides[dim];
  sizes[dim] = (to - from) / step + ((to - from) % step != 0);
  strides[dim] *= step;
  return make_view(self, sizes, strides, offset);
}

at::Tensor select(const at::Tensor& self, int64_t dim, int64_t index) {
  const int64_t given = dim;
  if (!wrap(dim, self.dim()) || index < -self.size(dim) || index >= self.size(dim))
    return at::native::select_symint(self, given, index);
  at::DimVector sizes(self.sizes()), strides(self.strides());
  const int64_t offset = self.storage_offset() + (index < 0 ? index + sizes[dim] : index) * strides[dim];
  sizes.erase(sizes.begin() + dim);
  strides.erase(strides.begin() + dim);
  return make_view(self, sizes, strides, offset);
}

at::Tensor transpose_int(const at::Tensor& self, int64_t a, int64_t b) {
  int64_t x = a, y = b;
  if (!wrap(x, self.dim()) || !wrap(y, self.dim())) return at::native::transpose(self, a, b);
  at::DimVector sizes(self.sizes()), strides(self.strides());
  std::swap(sizes[x], sizes[y]);
  std::swap(strides[x], strides[y]);
  return make_view(self, sizes, strides, self.storage_offset());
}

at::Tensor t(const at::Tensor& self) {
  if (self.dim() > 2) return at::native::t(self);
  return self.dim() == 2 ? transpose_int(self, 0, 1)
                         : make_view(self, self.sizes(), self.strides(), self.storage_offset());
}

at::Tensor permute(const at::Tensor& self, at::IntArrayRef dims) {
  const int64_t rank = self.dim();
  if (rank > 64 || static_cast<int64_t>(dims.size()) != rank) return at::native::permute(self, dims);
  at::DimVector sizes(rank), strides(rank);
  uint64_t seen = 0;
  for (int64_t i = 0; i < rank; i++) {
    int64_t d = dims[i];
    if (!wrap(d, rank) || (seen >> d & 1)) return at::native::permute(self, dims);
    seen |= uint64_t{1} << d;
    sizes[i] = self.size(d), strides[i] = self.stride(d);
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

at::Tensor unsqueeze(const at::Tensor& self, int64_t dim) {
  const int64_t given = dim;
  if (!wrap(dim, self.dim() + 1)) return at::native::unsqueeze(self, given);
  at::DimVector sizes(self.sizes()), strides(self.strides());
  const int64_t stride = dim < self.dim() ? sizes[dim] * strides[dim] : 1;
  sizes.insert(sizes.begin() + dim, 1);
  strides.insert(strides.begin() + dim, stride);
  return make_view(self, sizes, strides, self.storage_offset());
}

at::Tensor alias(const at::Tensor& self) {
  // Tracers detach tensors without bytes, whose sizes may be symbols, under the device's keys.
  if (C10_UNLIKELY(self.unsafeGetTensorImpl()->has_symbolic_sizes_strides())) return at::native::alias(self);
  return make_view(self, self.sizes(), self.strides(), self.storage_offset());
}

// Whether `x.data = y` and Module.to may put y's storage into x: on the device and to or from the CPU, as
// eager does between CPU and CUDA. Without it a module that moves gets new parameters: ties and optimizers
// lose theirs.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  if (is_lazy(self)) note_replaced(self);
  auto plain = [](const at::Tensor& t) { return t.layout() == at::kStrided && (is_lazy(t) || t.device().is_cpu()); };
  return plain(self) && plain(from) && !self.is_quantized() && !from.is_quantized();
}

// What t_(), squeeze_() and their like are made of.
const at::Tensor& as_strided_(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  note_replaced(self);
  return at::native::as_strided__symint(self, size, stride, std::move(offset));
}

// Views of what has no history are only noted as views.
template <class... Ops>
void pass_autograd_of() {
  const auto pass = []<class Op>(std::type_identity<Op>) {
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    pass_autograd<typename Op::schema>(op, redispatched<typename Op::schema>(op));
  };
  (pass(std::type_identity<Ops>{}), ...);
}

}  // namespace

void register_views() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("as_strided_", TORCH_FN(as_strided_));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("slice.Tensor", TORCH_FN(slice));
  library.impl("select.int", TORCH_FN(select));
  library.impl("transpose.int", TORCH_FN(transpose_int));
  library.impl("t", TORCH_FN(t));
  library.impl("permute", TORCH_FN(permute));
  library.impl("unsqueeze", TORCH_FN(unsqueeze));
  library.impl("alias", TORCH_FN(alias));
  library.impl("detach", TORCH_FN(alias));
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
  namespace ops = at::_ops;
  pass_autograd_of<ops::view, ops::slice_Tensor, ops::select_int, ops::transpose_int, ops::t, ops::permute, ops::unsqueeze, ops::squeeze_dim,
                   ops::expand, ops::split_Tensor>();
}

}  // namespace lazyt::frontend
