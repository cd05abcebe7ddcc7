#include "buffer.h"

#include <algorithm>
#include <cstring>

#include "lazyt/dlpack.hpp"

namespace lazyt::cuda {
namespace {

using plugin::Error;
using plugin::from_c;
using plugin::guard;
using plugin::to_handle;

constexpr int32_t kDLCUDA = 2, kDLCUDAManaged = 13;

void require_range(const Buffer& buffer, uint64_t offset, uint64_t size, const char* what) {
  if (offset > buffer.size || size > buffer.size - offset) {
    throw Error(LAZYT_CODE_OUT_OF_RANGE, std::string(what) + ": bytes " + std::to_string(offset) + " to " +
                                             std::to_string(offset + size) + " leave a buffer of " + std::to_string(buffer.size) +
                                             " bytes");
  }
}

std::unique_ptr<Buffer> make_buffer(Device& device, uint64_t size) {
  return std::unique_ptr<Buffer>(new Buffer{device, size, std::make_shared<Bytes>(device, size), nullptr});
}

// Answers by event, or, without one, waits (BUF-7). f(waits) submits the work and gives its event; what is known to
// have failed before is not submitted (BUF-6).
template <class F>
lazyt_status_t* submit(Device& device, CUstream stream, lazyt_events_t events, lazyt_event_t** out_event, F&& f) {
  Work* work = nullptr;
  lazyt_status_t* status = guard([&]() -> lazyt_status_t* {
    device.context->require_alive();
    const Current current(*device.context);
    auto waits = std::make_shared<Waits>(*device.context, stream, events);
    if (waits->failed()) return waits->error();
    work = f(std::move(waits));
    return nullptr;
  });
  if (out_event) {
    *out_event = (work ? work : Work::make_ready(status))->handle();
    return nullptr;
  }
  if (!work) return status;
  status = work->event().wait(LAZYT_WAIT_FOREVER);
  work->release();
  return status;
}

lazyt_status_t* alloc(lazyt_device_t* device, const lazyt_buffer_desc_t* desc, lazyt_buffer_t** out_buffer) {
  return guard([&] {
    plugin::require(desc->memory_space == 0, "cuda: buffers have memory space 0 only");
    plugin::require(desc->alignment <= kAlignment, "cuda: buffers are aligned to 256 bytes, no more");
    *out_buffer = to_handle<lazyt_buffer_t>(make_buffer(from_c(device), desc->size_bytes).release());
  });
}

// Every sharing mode is a copy: the device does not work on the host's memory.
lazyt_status_t* from_host(lazyt_device_t* handle, const lazyt_host_bytes_t* bytes, lazyt_buffer_t** out_buffer) {
  return guard([&] {
    Device& device = from_c(handle);
    device.context->require_alive();
    auto buffer = make_buffer(device, bytes->size_bytes);
    const Current current(*device.context);
    const auto* data = static_cast<const std::byte*>(bytes->data);
    for (uint64_t done = 0; done < bytes->size_bytes;) {
      const std::lock_guard lock(device.upload_order);
      Staging& staging = device.upload_staging;
      const uint64_t size = std::min(bytes->size_bytes - done, staging.most());
      const Staging::Slice slice = staging.take(size, true);
      std::memcpy(slice.data, data + done, size);
      try {
        device.context->check(cu().cuMemcpyHtoDAsync(buffer->address() + done, slice.data, size, device.upload.handle()),
                              "cuMemcpyHtoDAsync");
      } catch (...) {
        staging.give(slice);
        throw;
      }
      Work* work = device.upload.finish(nullptr, {}, [&staging, slice] { staging.give(slice); });
      buffer->written = work->mark();
      buffer->bytes->busy_until(work->mark());
      work->release();
      done += size;
    }
    *out_buffer = to_handle<lazyt_buffer_t>(buffer.release());
    if (bytes->done) bytes->done(bytes->done_user_data);
  });
}

// A piece of a download: through pinned memory, unless there is none now and nobody else can make room (a callback on the
// stream's own thread).
Work* download_piece(Device& device, CUdeviceptr from, std::byte* to, uint64_t size, const std::shared_ptr<Waits>& waits) {
  Staging& staging = device.download_staging;
  const Staging::Slice slice = size ? staging.take(size, !device.download.worker().is_current()) : Staging::Slice{};
  if (size) {
    void* target = slice.data ? slice.data : to;
    const CUresult result = cu().cuMemcpyDtoHAsync(target, from, size, device.download.handle());
    if (result != CUDA_SUCCESS && slice.data) staging.give(slice);
    device.context->check(result, "cuMemcpyDtoHAsync");
  }
  if (!slice.data) return device.download.finish(waits);
  return device.download.finish(
      waits, [slice, to, size] { std::memcpy(to, slice.data, size); }, [&staging, slice] { staging.give(slice); });
}

// The event of the last piece is the event of all: they are done in order, and a wait's error is the error of each.
Work* download(Device& device, CUdeviceptr from, std::byte* to, uint64_t size, std::shared_ptr<Waits> waits) {
  const std::lock_guard lock(device.download_order);
  Work* work = nullptr;
  for (uint64_t done = 0; done < size || !work;) {
    const uint64_t piece = std::min(size - done, device.download_staging.most());
    Work* before = work;
    lazyt_status_t* failed = guard([&] { work = download_piece(device, from + done, to + done, piece, waits); });
    if (before) {
      // The caller may drop its bytes when this fails: nothing may write them any more.
      if (failed && !device.download.worker().is_current())
        plugin::host().status->release(before->event().wait(LAZYT_WAIT_FOREVER));
      before->release();
    }
    plugin::check(failed);
    done += piece;
  }
  return work;
}

lazyt_status_t* to_host(lazyt_buffer_t* handle, uint64_t offset, void* dst, uint64_t size, lazyt_events_t events,
                        lazyt_event_t** out_event) {
  return guard([&]() -> lazyt_status_t* {
    Buffer& buffer = from_c(handle);
    require_range(buffer, offset, size, "to_host");
    Device& device = buffer.device;
    const CUstream stream = device.download.handle();
    return submit(device, stream, events, out_event, [&](std::shared_ptr<Waits> waits) {
      buffer.order(*device.context, stream);
      return download(device, buffer.address() + offset, static_cast<std::byte*>(dst), size, std::move(waits));
    });
  });
}

void copy_bytes(const Buffer& from, CUdeviceptr src, const Buffer& to, CUdeviceptr dst, uint64_t size, Stream& stream) {
  const Context& context = *to.device.context;
  if (from.device.context->index != context.index) {
    context.check(cu().cuMemcpyPeerAsync(dst, context.handle(), src, from.device.context->handle(), size, stream.handle()),
                  "cuMemcpyPeerAsync");
    return;
  }
  if (src < dst + size && dst < src + size && src != dst) {  // they overlap
    Block between(to.device.memory, size);
    context.check(cu().cuMemcpyDtoDAsync(between.address(), src, size, stream.handle()), "cuMemcpyDtoDAsync");
    context.check(cu().cuMemcpyDtoDAsync(dst, between.address(), size, stream.handle()), "cuMemcpyDtoDAsync");
    between.busy_until(stream.mark());
    return;
  }
  context.check(cu().cuMemcpyDtoDAsync(dst, src, size, stream.handle()), "cuMemcpyDtoDAsync");
}

lazyt_status_t* copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst, uint64_t dst_offset, uint64_t size,
                     lazyt_events_t events, lazyt_event_t** out_event) {
  return guard([&]() -> lazyt_status_t* {
    Buffer& from = from_c(src);
    Buffer& to = from_c(dst);
    require_range(from, src_offset, size, "copy, source");
    require_range(to, dst_offset, size, "copy, destination");
    Device& device = to.device;
    from.device.context->require_alive();
    return submit(device, device.compute.handle(), events, out_event, [&](std::shared_ptr<Waits> waits) {
      from.order(*device.context, device.compute.handle());
      to.order(*device.context, device.compute.handle());
      if (size) copy_bytes(from, from.address() + src_offset, to, to.address() + dst_offset, size, device.compute);
      return device.compute.finish(std::move(waits));
    });
  });
}

lazyt_status_t* size(lazyt_buffer_t* buffer, uint64_t* out_bytes) {
  return guard([&] { *out_bytes = from_c(buffer).size; });
}

// The tensor's producer has made its bytes safe on the legacy default stream, as DLPack asks for stream 1.
lazyt_status_t* import_dlpack(lazyt_device_t* handle, DLManagedTensorVersioned* tensor, lazyt_event_t* wait,
                              lazyt_buffer_t** out_buffer) {
  return guard([&] {
    Device& device = from_c(handle);
    const DLTensor& t = tensor->dl_tensor;
    plugin::require(t.device.device_type == kDLCUDA || t.device.device_type == kDLCUDAManaged,
                    "import_dlpack: the tensor is not in CUDA memory");
    plugin::require(t.device.device_id == device.context->index, "import_dlpack: the tensor is on another GPU");
    const int64_t size = plugin::dense_bytes(t);
    plugin::require(size >= 0,
                    "import_dlpack: the tensor is not row-major without gaps, or its elements are no whole bytes");
    // Whoever holds the buffer may write it.
    plugin::require(!(tensor->flags & plugin::kDLReadOnly), "import_dlpack: the tensor may only be read");
    device.context->require_alive();
    const Current current(*device.context);
    // Without a mark of ours to order by, later work waits for the legacy stream's.
    if (wait) plugin::check(Work::from(wait)->event().wait(LAZYT_WAIT_FOREVER));
    auto mark = std::make_shared<Mark>(device.context, CU_STREAM_LEGACY);
    auto done = [](void* self) {
      auto* foreign = static_cast<DLManagedTensorVersioned*>(self);
      if (foreign->deleter) foreign->deleter(foreign);
    };
    std::unique_ptr<Buffer> buffer(new Buffer{device, static_cast<uint64_t>(size), nullptr, std::move(mark)});
    const auto address = reinterpret_cast<CUdeviceptr>(t.data) + t.byte_offset;
    buffer->bytes = std::make_shared<Bytes>(address, done, tensor);
    *out_buffer = to_handle<lazyt_buffer_t>(buffer.release());
  });
}

// Others may read at once, whatever stream they do it on: the host has waited for what wrote the buffer, and uploads
// are waited for here.
lazyt_status_t* export_dlpack(lazyt_buffer_t* handle, DLManagedTensorVersioned** out_tensor) {
  return guard([&] {
    Buffer& buffer = from_c(handle);
    const ContextRef& context = buffer.device.context;
    context->require_alive();
    if (buffer.written) {
      const Current current(*context);
      buffer.written->wait();
    }
    buffer.bytes->share_with(context);
    *out_tensor = plugin::export_bytes(reinterpret_cast<void*>(buffer.address()), buffer.size, {kDLCUDA, context->index}, buffer.bytes);
  });
}

void release(lazyt_buffer_t* buffer) { delete plugin::from_c_or_null(buffer); }

}  // namespace

Bytes::~Bytes() {
  if (shared_) {
    try {
      const Current current(*shared_);
      busy_ = std::make_shared<Mark>(shared_, CU_STREAM_LEGACY);
    } catch (...) {  // lost
    }
  }
  block_.busy_until(std::move(busy_));
  if (done_) done_(user_data_);
}

const lazyt_plugin_buffer_t kBufferTable = {
    .struct_size = sizeof(lazyt_plugin_buffer_t),
    .next = nullptr,
    .alloc = alloc,
    .from_host = from_host,
    .to_host = to_host,
    .copy = copy,
    .size = size,
    .host_pointer = nullptr,
    .import_dlpack = import_dlpack,
    .export_dlpack = export_dlpack,
    .release = release,
};

}  // namespace lazyt::cuda
