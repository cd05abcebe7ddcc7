// Buffer: bytes of a GPU, the device's own or foreign ones.
#pragma once

#include "device.h"

namespace lazyt::cuda {

// Bytes that a buffer and tensors exported from it share.
class Bytes {
 public:
  Bytes(Device& device, uint64_t size) : block_(device.memory, size), address_(block_.address()) {}
  // done(user_data) is called when nobody holds them any more.
  Bytes(CUdeviceptr address, void (*done)(void*), void* user_data) : address_(address), done_(done), user_data_(user_data) {}
  ~Bytes();
  Bytes(const Bytes&) = delete;

  CUdeviceptr address() const { return address_; }
  // They are used up to here, whoever holds them.
  void busy_until(MarkRef mark) { busy_ = std::move(mark); }
  // Others work on them, on streams that order with the legacy default stream, as long as they hold them.
  void share_with(ContextRef context) { shared_ = std::move(context); }

 private:
  Block block_;
  CUdeviceptr address_;
  void (*done_)(void*) = nullptr;
  void* user_data_ = nullptr;
  MarkRef busy_;
  ContextRef shared_;
};

struct Buffer {
  Device& device;
  const uint64_t size;
  std::shared_ptr<Bytes> bytes;
  MarkRef written;  // what fills it, if that has no event: an upload, work of another library

  CUdeviceptr address() const { return bytes->address(); }
  // Orders the stream behind what fills the buffer. The stream's context is current.
  void order(const Context& context, CUstream stream) const {
    if (written) written->order(context, stream);
  }
};

extern const lazyt_plugin_buffer_t kBufferTable;

}  // namespace lazyt::cuda

template <>
struct lazyt::plugin::Handle<lazyt_buffer_t> {
  using type = lazyt::cuda::Buffer;
};
