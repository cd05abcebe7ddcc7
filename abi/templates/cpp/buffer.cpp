// buffer.cpp - bytes on the device. All work is done when its call returns, so that events are born ready.
#include "plugin.h"

namespace acme_backend {
namespace {

lazyt_buffer_t* make(lazyt_device_t* handle, uint64_t size, uint64_t alignment) {
  Device& device = from_c(handle);
  auto* buffer = new Buffer{device, size, allocate(size, std::max(alignment, kAlignment))};
  device.count(static_cast<int64_t>(size));
  return to_handle<lazyt_buffer_t>(buffer);
}

char* range(lazyt_buffer_t* handle, uint64_t offset, uint64_t size) {
  const Buffer& b = from_c(handle);
  if (offset > b.size || size > b.size - offset)
    throw Error(LAZYT_CODE_OUT_OF_RANGE, "acme: offset and size leave the buffer");  // BUF-5
  return b.data.get() + offset;
}

// Moves bytes after the waits, whose errors become the operation's (BUF-6). Without out_event the outcome is the
// result (BUF-7).
lazyt_status_t* move(char* dst, const char* src, uint64_t size, lazyt_events_t waits, lazyt_event_t** out_event) {
  lazyt_status_t* status = take_events(waits);
  if (!status && size) std::memmove(dst, src, size);
  if (!out_event) return status;
  *out_event = Event::make_ready(status)->handle();
  return nullptr;
}

}  // namespace

Memory allocate(uint64_t size, uint64_t alignment) {
  Memory memory(static_cast<char*>(host().services->alloc(size, alignment)));
  if (!memory) throw Error(LAZYT_CODE_RESOURCE_EXHAUSTED, "acme: memory is exhausted");
  return memory;
}

const lazyt_plugin_buffer_t buffer_table = {
    .struct_size = sizeof(lazyt_plugin_buffer_t),
    .alloc = [](lazyt_device_t* device, const lazyt_buffer_desc_t* desc, lazyt_buffer_t** out) {
      return guard([&] {
        require(desc->memory_space == 0, "acme has memory space 0 only");
        *out = make(device, desc->size_bytes, desc->alignment);
      });
    },
    .from_host = [](lazyt_device_t* device, const lazyt_host_bytes_t* bytes, lazyt_buffer_t** out) {
      return guard([&] {
        lazyt_buffer_t* buffer = make(device, bytes->size_bytes, 0);
        if (bytes->size_bytes) std::memcpy(from_c(buffer).data.get(), bytes->data, bytes->size_bytes);
        if (bytes->done) bytes->done(bytes->done_user_data);  // every sharing mode is a copy here (BUF-8)
        *out = buffer;
      });
    },
    .to_host = [](lazyt_buffer_t* buffer, uint64_t offset, void* dst, uint64_t size, lazyt_events_t waits,
                  lazyt_event_t** out_event) {
      return guard([&] { return move(static_cast<char*>(dst), range(buffer, offset, size), size, waits, out_event); });
    },
    .copy = [](lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst, uint64_t dst_offset, uint64_t size,
               lazyt_events_t waits, lazyt_event_t** out_event) {
      return guard([&] {
        return move(range(dst, dst_offset, size), range(src, src_offset, size), size, waits, out_event);
      });
    },
    .size = [](lazyt_buffer_t* buffer, uint64_t* out) { return guard([&] { *out = from_c(buffer).size; }); },
    .host_pointer = [](lazyt_buffer_t* buffer, void** out) {
      return guard([&] { *out = from_c(buffer).data.get(); });
    },
    .release = [](lazyt_buffer_t* handle) {
      std::unique_ptr<Buffer> buffer(from_c_or_null(handle));
      if (buffer) buffer->device.count(-static_cast<int64_t>(buffer->size));
    },
};

}  // namespace acme_backend
