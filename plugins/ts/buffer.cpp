#include "buffer.h"

#include <ATen/DLConvertor.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <memory>

#include "errors.h"

namespace lazyt::ts {
namespace {

using plugin::Error;
using plugin::Event;
using plugin::from_c;
using plugin::to_handle;

// Less than the vector loads of PyTorch's kernels like; memory below it is copied, not aliased.
constexpr uintptr_t kAliasAlignment = 16;

void require_range(const Buffer& buffer, uint64_t offset, uint64_t size, const char* what) {
  if (offset > buffer.size() || size > buffer.size() - offset) {
    throw Error(LAZYT_CODE_OUT_OF_RANGE, std::string(what) + ": bytes " + std::to_string(offset) + " to " +
                                             std::to_string(offset + size) + " leave a buffer of " +
                                             std::to_string(buffer.size()) + " bytes");
  }
}

at::Tensor bytes_of(const c10::Storage& storage, uint64_t offset, uint64_t size) {
  const int64_t dims[] = {static_cast<int64_t>(size)}, strides[] = {1};
  at::Tensor bytes = tensor_over(storage, at::kByte, dims, strides);
  bytes.unsafeGetTensorImpl()->set_storage_offset(static_cast<int64_t>(offset));
  return bytes;
}

c10::Storage over_host_memory(void* data, uint64_t size, void* context, c10::DeleterFnPtr deleter) {
  return c10::Storage(c10::Storage::use_byte_size_t(), size, c10::DataPtr(data, context, deleter, at::kCPU),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

// dst = src, whichever of them lies on the host. Returns when dst's bytes are there.
void copy_bytes(at::Tensor dst, const at::Tensor& src) {
  if (dst.numel() == 0) return;
  if (dst.is_cpu() && src.is_cpu()) {
    std::memmove(dst.mutable_data_ptr(), src.const_data_ptr(), static_cast<size_t>(dst.nbytes()));
  } else {
    dst.copy_(src);
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

lazyt_status_t* alloc(lazyt_device_t* device, const lazyt_buffer_desc_t* desc, lazyt_buffer_t** out_buffer) {
  return guard([&] {
    Device& d = from_c(device);
    plugin::require(desc->memory_space == 0, "ts: buffers have memory space 0 only");
    plugin::require(desc->alignment <= 64, "ts: buffers are aligned to 64 bytes, no more");
    // Memory comes later, but what can never come is refused now.
    if (desc->size_bytes > (d.total_bytes ? d.total_bytes : uint64_t{INT64_MAX})) {
      throw Error(LAZYT_CODE_RESOURCE_EXHAUSTED,
                  "a buffer of " + std::to_string(desc->size_bytes) + " bytes is more than the device has");
    }
    *out_buffer = to_handle<lazyt_buffer_t>(new Buffer(d, desc->size_bytes));
  });
}

struct HostBytes {
  lazyt_host_bytes_done_t done;
  void* user_data;
};

void release_host_bytes(void* context) {
  std::unique_ptr<HostBytes> bytes(static_cast<HostBytes*>(context));
  if (bytes->done) bytes->done(bytes->user_data);
}

lazyt_status_t* from_host(lazyt_device_t* device, const lazyt_host_bytes_t* bytes, lazyt_buffer_t** out_buffer) {
  return guard([&] {
    c10::InferenceMode inference;
    Device& d = from_c(device);
    void* data = const_cast<void*>(bytes->data);
    const bool aligned = reinterpret_cast<uintptr_t>(data) % kAliasAlignment == 0;
    // No execute writes in place, so memory that may only be read can stand in for the buffer too.
    if (bytes->sharing != LAZYT_SHARING_COPY && d.host_visible() && aligned && bytes->size_bytes) {
      auto context = std::make_unique<HostBytes>(HostBytes{nullptr, nullptr});
      HostBytes* shared = context.get();
      auto buffer = std::make_unique<Buffer>(
          d, bytes->size_bytes, over_host_memory(data, bytes->size_bytes, context.release(), release_host_bytes));
      // Only now: a failure before this line must not call done.
      *shared = {bytes->done, bytes->done_user_data};
      *out_buffer = to_handle<lazyt_buffer_t>(buffer.release());
      return;
    }
    c10::Storage storage = allocate(d.device, bytes->size_bytes);
    if (bytes->size_bytes) {
      c10::Storage source = over_host_memory(data, bytes->size_bytes, nullptr, &c10::detail::deleteNothing);
      copy_bytes(bytes_of(storage, 0, bytes->size_bytes), bytes_of(source, 0, bytes->size_bytes));
    }
    *out_buffer = to_handle<lazyt_buffer_t>(new Buffer(d, bytes->size_bytes, std::move(storage)));
    if (bytes->done) bytes->done(bytes->done_user_data);
  });
}

lazyt_status_t* to_host(lazyt_buffer_t* handle, uint64_t offset, void* dst, uint64_t size, lazyt_events_t waits,
                        lazyt_event_t** out_event) {
  return guard([&]() -> lazyt_status_t* {
    Buffer& buffer = from_c(handle);
    require_range(buffer, offset, size, "to_host");
    return run_after(waits, out_event, [&] {
      if (!size) return;
      c10::InferenceMode inference;
      c10::Storage target = over_host_memory(dst, size, nullptr, &c10::detail::deleteNothing);
      copy_bytes(bytes_of(target, 0, size), bytes_of(buffer.storage(), offset, size));
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
      if (!size) return;
      c10::InferenceMode inference;
      copy_bytes(bytes_of(to.storage(), dst_offset, size), bytes_of(from.storage(), src_offset, size));
    });
  });
}

lazyt_status_t* size(lazyt_buffer_t* buffer, uint64_t* out_bytes) {
  return guard([&] { *out_bytes = from_c(buffer).size(); });
}

lazyt_status_t* host_pointer(lazyt_buffer_t* handle, void** out_pointer) {
  return guard([&] {
    Buffer& buffer = from_c(handle);
    if (!buffer.device().host_visible()) {
      throw Error(LAZYT_CODE_UNIMPLEMENTED, "host_pointer: the device's memory is not visible to the CPU");
    }
    *out_pointer = buffer.storage().mutable_data();
  });
}

lazyt_status_t* import_dlpack(lazyt_device_t* device, DLManagedTensorVersioned* tensor, lazyt_event_t* wait,
                              lazyt_buffer_t** out_buffer) {
  return guard([&] {
    c10::InferenceMode inference;
    Device& d = from_c(device);
    if (wait) plugin::check(Event::from(wait)->wait(LAZYT_WAIT_FOREVER));
    // PyTorch gives the tensor back when `imported` goes, also when what follows fails; then it is still the caller's.
    auto taken = std::make_shared<bool>(false);
    at::Tensor imported = at::fromDLPackVersioned(tensor, [tensor, taken](void*) {
      if (*taken && tensor->deleter) tensor->deleter(tensor);
    });
    at::Tensor dense = imported.device() == d.device ? imported.contiguous() : imported.to(d.device).contiguous();
    if (dense.storage_offset() != 0) dense = dense.clone();
    *out_buffer =
        to_handle<lazyt_buffer_t>(new Buffer(d, static_cast<uint64_t>(dense.nbytes()), dense.storage()));
    *taken = true;
  });
}

lazyt_status_t* export_dlpack(lazyt_buffer_t* handle, DLManagedTensorVersioned** out_tensor) {
  return guard([&] {
    c10::InferenceMode inference;
    Buffer& buffer = from_c(handle);
    *out_tensor = at::toDLPackVersioned(bytes_of(buffer.storage(), 0, buffer.size()));
  });
}

void release(lazyt_buffer_t* buffer) { delete plugin::from_c_or_null(buffer); }

}  // namespace

c10::Storage allocate(c10::Device device, uint64_t size_bytes) {
  return at::empty({static_cast<int64_t>(size_bytes)}, at::TensorOptions(at::kByte).device(device)).storage();
}

at::Tensor tensor_over(c10::Storage storage, at::ScalarType dtype, at::IntArrayRef dims, at::IntArrayRef strides) {
  const c10::DispatchKeySet keys(storage.device_type() == at::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(dims, strides);
  return tensor;
}

c10::Storage Buffer::storage() {
  std::lock_guard lock(mutex_);
  if (!storage_) bind_locked(allocate(device_.device, size_));
  return storage_;
}

void Buffer::bind(c10::Storage storage) {
  std::lock_guard lock(mutex_);
  bind_locked(std::move(storage));
}

void Buffer::bind_locked(c10::Storage storage) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  device_.memory.add(bytes - counted_);
  counted_ = bytes;
  storage_ = std::move(storage);
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

}  // namespace lazyt::ts
