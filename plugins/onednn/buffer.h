// Buffer: bytes of the CPU, the device's own or the host's.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "device.h"

namespace lazyt::onednn {

// Bytes that a buffer and tensors exported from it share: the device's own, or foreign ones.
class Bytes {
 public:
  Bytes(Device& device, uint64_t size) : memory_(device, size), data_(memory_.data()) {}
  explicit Bytes(std::byte* data) : data_(data) {}
  ~Bytes() {
    if (done_) done_(user_data_);
  }
  Bytes(const Bytes&) = delete;
  std::byte* data() const { return data_; }
  // done(user_data) is called when nobody holds them any more.
  void own(void (*done)(void*), void* user_data) { done_ = done, user_data_ = user_data; }

 private:
  Memory memory_;
  std::byte* data_;
  void (*done_)(void*) = nullptr;
  void* user_data_ = nullptr;
};

// A buffer's bytes in a private format, from which they can be made again, bit for bit.
class Form {
 public:
  virtual ~Form() = default;
  virtual std::byte* data() const = 0;
  virtual void unpack(std::byte* to) const = 0;
};

// A buffer whose bytes a program keeps in a form of its own (weights at inference) may have nothing but that form, until
// somebody wants the bytes. Thread-safe.
class Buffer {
 public:
  Buffer(Device& d, uint64_t bytes) : Buffer(d, bytes, std::make_shared<Bytes>(d, bytes)) {}
  Buffer(Device& d, uint64_t bytes, std::shared_ptr<Bytes> plain) : device(d), size(bytes), plain_(std::move(plain)) {}

  Device& device;
  const uint64_t size;

  // Where memory is worth a form. Bytes of smaller buffers stay where they are.
  static constexpr int64_t kSmall = 64 << 10;
  bool is_small() const { return size < kSmall; }
  // REQUIRES: is_small().
  std::byte* small() const { return plain_->data(); }

  // The bytes, which stay there while the answer is held. Throws RESOURCE_EXHAUSTED.
  std::shared_ptr<Bytes> plain();
  // The same for a step that reads them as they are: whoever has a choice does so, too, from then on.
  std::shared_ptr<Bytes> plain_to_read();
  // The same for somebody who writes them.
  std::shared_ptr<Bytes> plain_to_write();
  // The same for somebody who keeps their address.
  std::shared_ptr<Bytes> plain_for_good();
  // The form says what the bytes say: they are let go, unless somebody holds them. Whether they were.
  bool keep_only(std::shared_ptr<const Form> form);
  // The form of what the bytes say, if there is one.
  std::shared_ptr<const Form> form();
  // For a step that can read the bytes or a form of them: the form that there is, if it is the one (`is_it`),
  // or that `make` makes of the bytes instead of them. Null: read the bytes. An earlier run has to have met
  // them, as bytes that differ in each are not worth a form, and nobody else may read or hold them.
  std::shared_ptr<const Form> form_for(uint64_t run, const std::function<bool(const Form&)>& is_it,
                                       const std::function<std::shared_ptr<const Form>(std::byte*)>& make);

 private:
  void unpack();  // REQUIRES: mutex_ is held.

  std::mutex mutex_;
  std::shared_ptr<Bytes> plain_;      // null: see form_
  std::shared_ptr<const Form> form_;  // null: see plain_
  bool for_good_ = false, read_ = false;
  uint64_t met_ = 0;  // the first run that asked for a form of what is written; 0: none
};

extern const lazyt_plugin_buffer_t kBufferTable;

}  // namespace lazyt::onednn

template <>
struct lazyt::plugin::Handle<lazyt_buffer_t> {
  using type = lazyt::onednn::Buffer;
};
