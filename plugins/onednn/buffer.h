// Buffer: bytes of the CPU, the device's own or the host's.
#pragma once

#include "device.h"

namespace lazyt::onednn {

// Bytes that a buffer and tensors exported from it share: the device's own, or foreign ones.
class Bytes {
 public:
  Bytes(Device& device, uint64_t size) : memory_(device, size), data_(memory_.data()) {}
  // done(user_data) is called when nobody holds them any more.
  Bytes(std::byte* data, void (*done)(void*), void* user_data) : data_(data), done_(done), user_data_(user_data) {}
  ~Bytes() {
    if (done_) done_(user_data_);
  }
  Bytes(const Bytes&) = delete;
  std::byte* data() const { return data_; }

 private:
  Memory memory_;
  std::byte* data_;
  void (*done_)(void*) = nullptr;
  void* user_data_ = nullptr;
};

struct Buffer {
  Device& device;
  const uint64_t size;
  std::shared_ptr<Bytes> bytes;

  std::byte* data() const { return bytes->data(); }
};

extern const lazyt_plugin_buffer_t kBufferTable;

}  // namespace lazyt::onednn

template <>
struct lazyt::plugin::Handle<lazyt_buffer_t> {
  using type = lazyt::onednn::Buffer;
};
