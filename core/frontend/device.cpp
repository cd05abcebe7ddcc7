#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "frontend/errors.h"
#include "frontend/random.h"
#include "frontend/registration.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"

namespace lazyt::frontend {
namespace {

c10::Stream stream(int64_t id) { return c10::Stream(c10::Stream::UNSAFE, device(), id); }

// Order is the recorders' business, so streams need no events.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    setDevice(d);
    return device();
  }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(d.type() == kDeviceType && d.index() <= 0, "lazyt: there is no device ", d, "; there is one, lazyt:0");
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return getStream(device()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return getStream(device()); }
  c10::Stream getNewStream(c10::Device, int) const override { return getStream(device()); }
  c10::Stream exchangeStream(c10::Stream s) const override { return stream(join_stream(s.id())); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { wait(); }
  void synchronizeDevice(c10::DeviceIndex) const override { wait(); }
  // Work is ordered as recorded, so an event is reached when all before it is: nothing to keep.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { wait(); }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  double elapsedTime(void*, void*, c10::DeviceIndex) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "lazyt: events measure no time; take time.perf_counter() before and after, each behind "
                                       "torch.accelerator.synchronize()");
  }
};

void record_stream(at::Tensor&, c10::Stream) {}  // memory lives as long as work that uses it

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return make_generator(); }
  at::Device getDeviceFromPtr(void*) const override { return device(); }
  bool isPinnedPtr(const void*) const override { return false; }
  // Uploads read the host's bytes before they return, so ordinary memory serves as pinned.
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), size);
  }
};

}  // namespace

void register_device() {
  c10::SetAllocator(kDeviceType, allocator());
  static Guard guard;
  c10::impl::registerDeviceGuard(kDeviceType, &guard);
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace lazyt::frontend
