// Context: what all work on one GPU shares, and Mark: a point in a stream that others wait for.
//
// The primary context is retained, never reset: PyTorch and CuPy work in the same one, so pointers pass freely.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"

namespace lazyt::cuda {

// Thread-safe. Outlives the device while buffers' memory or events are still held.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Throws.
  explicit Context(int index);
  ~Context();
  Context(const Context&) = delete;

  const int index;
  CUdevice device() const { return device_; }
  CUcontext handle() const { return handle_; }
  int attribute(CUdevice_attribute which) const;

  // Throws the error of a result; one that ends the context makes the device lost.
  void check(CUresult result, const char* what) const;
  // Throws UNAVAILABLE if the device is lost.
  void require_alive() const;
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  // Without timing; waiting for them blocks and does not spin. The context is current.
  CUevent take_event();
  void give_event(CUevent event) noexcept;

  // Kernels that are loaded, of codegen/cache.cpp: made by the first who asks, ends with the context current.
  template <class T>
  T& kernels() const {
    const std::lock_guard lock(mutex_);
    if (!kernels_) kernels_ = std::make_shared<T>();
    return *static_cast<T*>(kernels_.get());
  }

 private:
  CUdevice device_ = 0;
  CUcontext handle_ = nullptr;
  mutable std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  mutable std::string why_lost_;
  std::vector<CUevent> events_;
  mutable std::shared_ptr<void> kernels_;
};

using ContextRef = std::shared_ptr<Context>;

// Makes a context the thread's current one and afterwards what was before: the caller may be in the middle of CUDA
// work of its own.
class Current {
 public:
  explicit Current(const Context& context) { context.check(cu().cuCtxPushCurrent(context.handle()), "cuCtxPushCurrent"); }
  ~Current() {
    CUcontext before = nullptr;
    cu().cuCtxPopCurrent(&before);
  }
  Current(const Current&) = delete;
};

// What was submitted to a stream up to a point. Thread-safe.
class Mark {
 public:
  // The context is current.
  Mark(ContextRef context, CUstream stream);
  ~Mark() { context_->give_event(event_); }
  Mark(const Mark&) = delete;

  CUstream stream() const { return stream_; }
  CUevent event() const { return event_; }
  // Orders what the stream does from now on behind the mark; the stream may be another device's.
  void order(const Context& context, CUstream stream) const;
  bool reached() const;
  // Blocks; throws what the work failed with.
  void wait() const;

 private:
  ContextRef context_;
  CUstream stream_;
  CUevent event_;
  mutable std::atomic<bool> reached_{false};
};

using MarkRef = std::shared_ptr<Mark>;

}  // namespace lazyt::cuda
