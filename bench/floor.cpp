// The least that recording an operator from Python can take: a device whose kernels make a tensor of the right size, without
// storage, and do nothing else. For bench/floor.py.
#include <ATen/core/Tensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

at::Tensor fresh(c10::IntArrayRef sizes) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::DispatchKeySet{c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1},
                                                   caffe2::TypeMeta::Make<float>(), c10::Device(kDevice, 0));
  impl->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(impl));
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType>, std::optional<c10::Layout>, std::optional<c10::Device>,
                 std::optional<bool>, std::optional<c10::MemoryFormat>) {
  return fresh(sizes);
}
at::Tensor unary(const at::Tensor& x) { return fresh(x.sizes()); }
at::Tensor binary(const at::Tensor& x, const at::Tensor&) { return fresh(x.sizes()); }
at::Tensor scaled(const at::Tensor& x, const at::Tensor&, const at::Scalar&) { return fresh(x.sizes()); }

void add_operators(torch::Library& m) {
  for (const char* name : {"abs", "exp", "neg", "relu", "tanh"}) m.impl(name, unary);
  for (const char* name : {"add.Tensor", "sub.Tensor"}) m.impl(name, scaled);
  m.impl("mul.Tensor", binary);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return {kDevice, 0}; }
  c10::Device getDevice() const override { return {kDevice, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  add_operators(m);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { add_operators(m); }  // past PyTorch's kernels for autograd
