#include "context.h"

#include <charconv>
#include <chrono>
#include <thread>

namespace lazyt::cuda {
namespace {

// Most waits are short, and to be woken costs more than they last: so a thread looks for a while before it blocks.
// LAZYT_CUDA_SPIN_US says how long; 0 never. Throws INVALID_ARGUMENT.
std::chrono::microseconds spin() {
  static const auto time = [] {
    const std::string_view option = plugin::option("cuda", "spin_us");
    uint32_t us = 50;
    const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), us);
    if (!option.empty() && (error != std::errc() || end != option.data() + option.size()))
      throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "cuda: LAZYT_CUDA_SPIN_US is no number of microseconds: " + std::string(option));
    return std::chrono::microseconds(us);
  }();
  return time;
}

}  // namespace

Context::Context(int index) : index(index) {
  spin();  // a wrong option is told here
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
  using Clock = std::chrono::steady_clock;
  for (const auto begin = Clock::now(); Clock::now() - begin < spin(); std::this_thread::yield())
    if (reached()) return;
  if (reached_.load(std::memory_order_acquire)) return;
  context_->check(cu().cuEventSynchronize(event_), "work of the device");
  reached_.store(true, std::memory_order_release);
}

}  // namespace lazyt::cuda
