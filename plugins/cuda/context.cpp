#include "context.h"

namespace lazyt::cuda {

Context::Context(int index) : index(index) {
  cuda::check(cu().cuDeviceGet(&device_, index), "cuDeviceGet");
  cuda::check(cu().cuDevicePrimaryCtxRetain(&handle_, device_), "cuDevicePrimaryCtxRetain");
}

Context::~Context() {
  CUcontext before = nullptr;
  if (cu().cuCtxPushCurrent(handle_) == CUDA_SUCCESS) {
    for (CUevent event : events_) cu().cuEventDestroy(event);
    kernels_.reset();
    cu().cuCtxPopCurrent(&before);
  }
  cu().cuDevicePrimaryCtxRelease(device_);
}

int Context::attribute(CUdevice_attribute which) const {
  int value = 0;
  check(cu().cuDeviceGetAttribute(&value, which, device_), "cuDeviceGetAttribute");
  return value;
}

void Context::check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  if (!is_sticky(result)) throw error_of(result, what);
  {
    const std::lock_guard lock(mutex_);
    if (why_lost_.empty())
      why_lost_ = "cuda: device " + std::to_string(index) + " is lost: " + what + ": " + describe(result) +
                  "; nothing on it can be used any more: end this process. LAZYT_CUDA_SYNC=1 tells which kernel it was";
    lost_.store(true, std::memory_order_release);
  }
  require_alive();
}

void Context::require_alive() const {
  if (!lost()) return;
  const std::lock_guard lock(mutex_);
  throw plugin::Error(LAZYT_CODE_UNAVAILABLE, why_lost_);
}

CUevent Context::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      CUevent event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  check(cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "cuEventCreate");
  return event;
}

void Context::give_event(CUevent event) noexcept {
  if (!event) return;
  const std::lock_guard lock(mutex_);
  try {
    events_.push_back(event);
  } catch (...) {
    cu().cuEventDestroy(event);
  }
}

Mark::Mark(ContextRef context, CUstream stream) : context_(std::move(context)), stream_(stream), event_(context_->take_event()) {
  const CUresult result = cu().cuEventRecord(event_, stream);
  if (result == CUDA_SUCCESS) return;
  context_->give_event(event_);
  context_->check(result, "cuEventRecord");
}

void Mark::order(const Context& context, CUstream stream) const {
  if (stream == stream_ || reached()) return;
  context.check(cu().cuStreamWaitEvent(stream, event_, 0), "cuStreamWaitEvent");
}

bool Mark::reached() const {
  if (reached_.load(std::memory_order_acquire)) return true;
  const CUresult result = cu().cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  context_->check(result, "work of the device");
  reached_.store(true, std::memory_order_release);
  return true;
}

void Mark::wait() const {
  if (reached_.load(std::memory_order_acquire)) return;
  context_->check(cu().cuEventSynchronize(event_), "work of the device");
  reached_.store(true, std::memory_order_release);
}

}  // namespace lazyt::cuda
