#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "frontend/errors.h"
#include "frontend/random.h"
#include "frontend/registration.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "trace/session.h"

namespace lazyt::frontend {
namespace {

c10::Stream stream(uint32_t index, int64_t id) { return c10::Stream(c10::Stream::UNSAFE, device(index), id); }

uint32_t index_of(const c10::Stream& s) { return check_device(s.device()); }

using Moment = base::Ref<trace::Moment>;

// Order is the recorders' business: streams need no events, and what stands behind an event is recorded behind it. Only
// one that measures time keeps something, the moment when the device got there.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device d) const override { return device(std::exchange(thread_state().device, check_device(d))); }
  c10::Device getDevice() const override { return device(thread_state().device); }
  void setDevice(c10::Device d) const override { thread_state().device = check_device(d); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0 && static_cast<uint32_t>(d.index()) < trace::kMaxDevices) thread_state().device = static_cast<uint32_t>(d.index());
  }
  c10::Stream getStream(c10::Device d) const override {
    const uint32_t index = check_device(d);
    return stream(index, current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return getStream(d); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getStream(d); }
  c10::Stream getNewStream(c10::Device d, int) const override { return getStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return stream(index_of(s), join_stream(index_of(s), s.id())); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& s) const override { wait(index_of(s)); }
  void synchronizeDevice(c10::DeviceIndex d) const override { wait(check_device(device(d))); }
  void record(void** event, const c10::Stream& s, c10::DeviceIndex, c10::EventFlag flag) const override {
    if (flag != c10::EventFlag::BACKEND_DEFAULT) return;  // enable_timing=False
    WithoutGil released;
    trace::Session& session = trace::Session::get(index_of(s));
    Moment reached = check(session.moment(session.recorder(static_cast<size_t>(s.id()))));
    if (*event) *static_cast<Moment*>(*event) = std::move(reached);
    else *event = new Moment(std::move(reached));
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override { return !event || moment(event).reached(); }
  void synchronizeEvent(void* event) const override {
    WithoutGil released;
    if (event) moment(event).wait();
    else wait();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Moment*>(event); }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    return static_cast<double>(moment(second).nanoseconds() - moment(first).nanoseconds()) * 1e-6;
  }
  static const trace::Moment& moment(void* event) { return **static_cast<Moment*>(event); }
};

void record_stream(at::Tensor&, c10::Stream) {}  // memory lives as long as work that uses it

// Ordinary memory serves as pinned (Hooks); there is nothing to keep or to count.
struct HostMemory final : at::HostAllocator {
  at::DataPtr allocate(size_t bytes) override { return c10::GetAllocator(c10::kCPU)->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetAllocator(c10::kCPU)->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return false; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex d) const override { exchangeDevice(d); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(thread_state().device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override {
    return static_cast<c10::DeviceIndex>(std::exchange(thread_state().device, check_device({kDeviceType, d})));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override { return d < 0 ? getCurrentDevice() : exchangeDevice(d); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex d) const override { return default_generator(check_device({kDeviceType, d})); }
  at::Generator getNewGenerator(c10::DeviceIndex d) const override { return make_generator(check_device({kDeviceType, d})); }
  // Addresses are the process's, not a device's.
  at::Device getDeviceFromPtr(void*) const override { return device(thread_state().device); }
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
  static HostMemory host_memory;
  at::setHostAllocator(kDeviceType, &host_memory);
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace lazyt::frontend
