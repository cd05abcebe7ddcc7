// Buffer: bytes held as a PyTorch storage, so that results are adopted instead of copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <mutex>

#include "device.h"

namespace lazyt::ts {

// New bytes on a device, contents undefined.
c10::Storage allocate(c10::Device device, uint64_t size_bytes);

// A tensor over bytes of a storage. No autograd keys: make it under an InferenceMode guard.
at::Tensor tensor_over(c10::Storage storage, at::ScalarType dtype, at::IntArrayRef dims, at::IntArrayRef strides);

// Thread-safe: the host reads buffers from other threads than the one that executes.
class Buffer {
 public:
  // Memory comes at first use: most buffers are outputs, which take over a result's storage.
  Buffer(Device& device, uint64_t size_bytes) : device_(device), size_(size_bytes) {}
  Buffer(Device& device, uint64_t size_bytes, c10::Storage storage) : Buffer(device, size_bytes) {
    bind(std::move(storage));
  }
  ~Buffer() { device_.memory.add(-counted_); }

  Device& device() const { return device_; }
  uint64_t size() const { return size_; }

  c10::Storage storage();
  // From now on the buffer's bytes are those of this storage.
  // REQUIRES: storage.nbytes() >= size()
  void bind(c10::Storage storage);

 private:
  void bind_locked(c10::Storage storage);

  Device& device_;
  const uint64_t size_;
  std::mutex mutex_;
  c10::Storage storage_;  // null until first use
  int64_t counted_ = 0;
};

extern const lazyt_plugin_buffer_t kBufferTable;

}  // namespace lazyt::ts

template <>
struct lazyt::plugin::Handle<lazyt_buffer_t> {
  using type = lazyt::ts::Buffer;
};
