// Staging: pinned host memory between the host's bytes and the device's, as a ring.
//
// The copy engines read and write pinned memory beside running kernels; pageable bytes would make each copy wait.
#pragma once

#include <condition_variable>

#include "context.h"

namespace lazyt::cuda {

class Staging {
 public:
  // The memory is taken at first use.
  Staging(ContextRef context, uint64_t bytes) : context_(std::move(context)), bytes_(bytes) {}
  ~Staging();
  Staging(const Staging&) = delete;

  // The most that one slice may have.
  uint64_t most() const { return bytes_ / 4; }

  struct Slice {
    std::byte* data = nullptr;  // null: there is no room now
    uint64_t end = 0;
  };
  // Waits for room if asked to. Whoever takes submits in the same order, under one lock.
  Slice take(uint64_t bytes, bool wait);
  // Slices come back in the order in which they were taken. Any thread.
  void give(const Slice& slice) noexcept;

 private:
  ContextRef context_;
  const uint64_t bytes_;
  std::byte* data_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t begin_ = 0, end_ = 0;  // of what is taken; positions count on, the ring is their remainder
};

}  // namespace lazyt::cuda
