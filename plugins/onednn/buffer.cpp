#include "buffer.h"

#include <cstring>
#include <memory>
#include <string>

#include "lazyt/dlpack.hpp"

namespace lazyt::onednn {
namespace {

using plugin::Error;
using plugin::Event;
using plugin::from_c;
using plugin::guard;
using plugin::to_handle;

// Less than vector loads like; memory below it is copied, not aliased.
constexpr uintptr_t kAliasAlignment = 16;

void require_range(const Buffer& buffer, uint64_t offset, uint64_t size, const char* what) {
  if (offset > buffer.size || size > buffer.size - offset) {
    throw Error(LAZYT_CODE_OUT_OF_RANGE, std::string(what) + ": bytes " + std::to_string(offset) + " to " +
                                             std::to_string(offset + size) + " leave a buffer of " +
                                             std::to_string(buffer.size) + " bytes");
  }
}

// Runs a synchronous operation after its waits and reports it by event, or, without one, by the
// returned status (BUF-6, BUF-7).
template <class F>
lazyt_status_t* run_after(lazyt_events_t waits, lazyt_event_t** out_event, F&& f) {
  lazyt_status_t* status = plugin::take_events(waits);
  if (!status) status = guard(std::forward<F>(f));
  if (!out_event) return status;
  *out_event = Event::make_ready(status)->handle();
  return nullptr;
}

// A buffer over foreign bytes. Fails before done is anybody's to call, or not at all.
lazyt_buffer_t* over(Device& device, std::byte* data, uint64_t size, void (*done)(void*), void* user_data) {
  auto bytes = std::make_shared<Bytes>(data);
  auto* buffer = new Buffer(device, size, bytes);
  bytes->own(done, user_data);
  return to_handle<lazyt_buffer_t>(buffer);
}

lazyt_status_t* alloc(lazyt_device_t* device, const lazyt_buffer_desc_t* desc, lazyt_buffer_t** out_buffer) {
  return guard([&] {
    plugin::require(desc->memory_space == 0, "onednn: buffers have memory space 0 only");
    plugin::require(desc->alignment <= kAlignment, "onednn: buffers are aligned to 64 bytes, no more");
    Device& d = from_c(device);
    *out_buffer = to_handle<lazyt_buffer_t>(new Buffer(d, desc->size_bytes));
  });
}

lazyt_status_t* from_host(lazyt_device_t* device, const lazyt_host_bytes_t* bytes,
                          lazyt_buffer_t** out_buffer) {
  return guard([&] {
    const bool aligned = reinterpret_cast<uintptr_t>(bytes->data) % kAliasAlignment == 0;
    // The host donates no memory that may only be read (BUF-13), so it can stand in for the buffer.
    if (bytes->sharing != LAZYT_SHARING_COPY && aligned && bytes->size_bytes) {
      auto* data = static_cast<std::byte*>(const_cast<void*>(bytes->data));
      *out_buffer = over(from_c(device), data, bytes->size_bytes, bytes->done, bytes->done_user_data);
      return;
    }
    Device& d = from_c(device);
    auto buffer = std::make_unique<Buffer>(d, bytes->size_bytes);
    if (bytes->size_bytes) std::memcpy(buffer->plain()->data(), bytes->data, bytes->size_bytes);
    *out_buffer = to_handle<lazyt_buffer_t>(buffer.release());
    if (bytes->done) bytes->done(bytes->done_user_data);
    given(d, bytes->size_bytes);
  });
}

lazyt_status_t* to_host(lazyt_buffer_t* handle, uint64_t offset, void* dst, uint64_t size,
                        lazyt_events_t waits, lazyt_event_t** out_event) {
  return guard([&]() -> lazyt_status_t* {
    Buffer& buffer = from_c(handle);
    require_range(buffer, offset, size, "to_host");
    return run_after(waits, out_event, [&] {
      if (size) std::memcpy(dst, buffer.plain()->data() + offset, size);
    });
  });
}

lazyt_status_t* copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst, uint64_t dst_offset,
                     uint64_t size, lazyt_events_t waits, lazyt_event_t** out_event) {
  return guard([&]() -> lazyt_status_t* {
    Buffer& from = from_c(src);
    Buffer& to = from_c(dst);
    require_range(from, src_offset, size, "copy, source");
    require_range(to, dst_offset, size, "copy, destination");
    return run_after(waits, out_event, [&] {
      if (size) std::memmove(to.plain_to_write()->data() + dst_offset, from.plain()->data() + src_offset, size);
    });
  });
}

lazyt_status_t* size(lazyt_buffer_t* buffer, uint64_t* out_bytes) {
  return guard([&] { *out_bytes = from_c(buffer).size; });
}

lazyt_status_t* host_pointer(lazyt_buffer_t* handle, void** out_pointer) {
  return guard([&] { *out_pointer = from_c(handle).plain_for_good()->data(); });
}

lazyt_status_t* import_dlpack(lazyt_device_t* device, DLManagedTensorVersioned* tensor, lazyt_event_t* wait,
                              lazyt_buffer_t** out_buffer) {
  return guard([&] {
    const DLTensor& t = tensor->dl_tensor;
    plugin::require(t.device.device_type == plugin::kDLCPU,
                    "import_dlpack: the tensor is not in the CPU's memory");
    const int64_t size = plugin::dense_bytes(t);
    plugin::require(
        size >= 0,
        "import_dlpack: the tensor is not row-major without gaps, or its elements are no whole bytes");
    // Whoever holds the buffer may write it.
    plugin::require(!(tensor->flags & plugin::kDLReadOnly), "import_dlpack: the tensor may only be read");
    if (wait) plugin::check(Event::from(wait)->wait(LAZYT_WAIT_FOREVER));
    auto* data = static_cast<std::byte*>(t.data) + t.byte_offset;
    auto done = [](void* self) {
      auto* foreign = static_cast<DLManagedTensorVersioned*>(self);
      if (foreign->deleter) foreign->deleter(foreign);
    };
    *out_buffer = over(from_c(device), data, static_cast<uint64_t>(size), done, tensor);
  });
}

lazyt_status_t* export_dlpack(lazyt_buffer_t* handle, DLManagedTensorVersioned** out_tensor) {
  return guard([&] {
    Buffer& buffer = from_c(handle);
    // The bytes go before the cache that they go back to.
    struct Owner {
      std::shared_ptr<BlockCache> cache;
      std::shared_ptr<Bytes> bytes;
    };
    const std::shared_ptr<Bytes> bytes = buffer.plain_for_good();
    *out_tensor = plugin::export_bytes(bytes->data(), buffer.size, {plugin::kDLCPU, 0}, Owner{buffer.device.memory, bytes});
  });
}

void release(lazyt_buffer_t* buffer) { delete plugin::from_c_or_null(buffer); }

}  // namespace

void Buffer::unpack() {
  if (plain_) return;
  auto made = std::make_shared<Bytes>(device, size);
  form_->unpack(made->data());
  plain_ = std::move(made);
}

std::shared_ptr<Bytes> Buffer::plain() {
  const std::lock_guard lock(mutex_);
  unpack();
  return plain_;
}

std::shared_ptr<Bytes> Buffer::plain_to_read() {
  const std::lock_guard lock(mutex_);
  unpack();
  form_ = nullptr;
  read_ = true;
  return plain_;
}

std::shared_ptr<Bytes> Buffer::plain_to_write() {
  const std::lock_guard lock(mutex_);
  unpack();
  form_ = nullptr;
  met_ = 0;
  return plain_;
}

std::shared_ptr<Bytes> Buffer::plain_for_good() {
  const std::lock_guard lock(mutex_);
  unpack();
  form_ = nullptr;
  for_good_ = true;
  return plain_;
}

bool Buffer::keep_only(std::shared_ptr<const Form> form) {
  std::shared_ptr<Bytes> let_go;  // outside the lock: what their owner does then is not known
  const std::lock_guard lock(mutex_);
  if (for_good_ || !plain_ || plain_.use_count() != 1) return false;
  form_ = std::move(form);
  let_go = std::move(plain_);
  return true;
}

std::shared_ptr<const Form> Buffer::form() {
  const std::lock_guard lock(mutex_);
  return form_;
}

std::shared_ptr<const Form> Buffer::form_for(
    uint64_t run, const std::function<bool(const Form&)>& is_it,
    const std::function<std::shared_ptr<const Form>(std::byte*)>& make) {
  std::shared_ptr<Bytes> let_go;  // outside the lock, as above
  const std::lock_guard lock(mutex_);
  if (form_ && is_it(*form_)) return form_;
  if (form_) {  // two programs want two forms
    unpack();
    form_ = nullptr;
    read_ = true;
  }
  if (for_good_ || read_ || plain_.use_count() != 1) return nullptr;
  if (met_ == 0) met_ = run;
  if (met_ == run) return nullptr;
  form_ = make(plain_->data());
  if (form_) let_go = std::move(plain_);
  return form_;
}

const lazyt_plugin_buffer_t kBufferTable = {
    .struct_size = sizeof(lazyt_plugin_buffer_t),
    .next = nullptr,
    .alloc = alloc,
    .from_host = from_host,
    .to_host = to_host,
    .copy = copy,
    .size = size,
    .host_pointer = host_pointer,
    .import_dlpack = import_dlpack,
    .export_dlpack = export_dlpack,
    .release = release,
};

}  // namespace lazyt::onednn
