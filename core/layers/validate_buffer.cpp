// Buffers.
#include <algorithm>

#include "layers/validate_call.h"

namespace lazyt::layers {
namespace {

constexpr uint64_t kLooked = 65536;  // larger buffers are not compared

// offset and size leave a buffer of `of` bytes.
bool leaves(uint64_t offset, uint64_t size, uint64_t of) { return offset > of || size > of - offset; }

}  // namespace

void BytesCallback::run(void* self) {
  auto& c = *static_cast<BytesCallback*>(self);
  const int run = c.runs.fetch_add(1);
  if (c.failed)
    c.v.report(Side::kPlugin, "BUF-8", "buffer.from_host", "done was called although the call failed");
  if (run > 0) return c.v.report(Side::kPlugin, "BUF-8", "buffer.from_host", "done was called a second time");
  c.call(c.user_data);
}

void* Validate::address(lazyt_buffer_t* handle, const BufferState& buffer) {
  if (!(buffer.device->flags & LAZYT_DEVICE_HOST_VISIBLE) || !below->buffer->host_pointer) return nullptr;
  void* pointer = nullptr;
  lazyt_status_t* status = take(below->buffer->host_pointer(handle, &pointer), "buffer.host_pointer");
  above->status->release(status);
  return status ? nullptr : pointer;
}

bool Validate::is_written(const std::shared_ptr<BufferState>& buffer) {
  return std::any_of(pending_.begin(), pending_.end(), [&](const auto& work) {
    return std::find(work->writes.begin(), work->writes.end(), buffer) != work->writes.end();
  });
}

void Validate::unlooked(std::unique_lock<std::mutex>& lock, const BufferState& buffer) {
  looked_.wait(lock, [&] { return buffer.looks == 0; });
}

std::optional<base::Hash128> Validate::content(lazyt_buffer_t* handle,
                                               const std::shared_ptr<BufferState>& buffer) {
  {
    std::lock_guard lock(mutex_);
    if (buffer->size == 0 || buffer->size > kLooked || buffer->opaque || is_written(buffer))
      return std::nullopt;
  }
  const void* pointer = address(handle, *buffer);
  if (!pointer) return std::nullopt;
  return base::hash128(pointer, buffer->size);
}

lazyt_status_t* Validate::buffer_alloc(lazyt_device_t* device, const lazyt_buffer_desc_t* desc,
                                       lazyt_buffer_t** out) {
  Call call(*this, "buffer.alloc");
  auto on = call.use(devices_, device, "the device");
  if (call.sized(desc, "lazyt_buffer_desc_t") && desc->reserved != 0) call.host("C-10", "reserved is not 0");
  if (call.refused()) return call.refusal();
  lazyt_buffer_t* made = Call::unwritten<lazyt_buffer_t>();
  lazyt_status_t* status = call.run([&] { return below->buffer->alloc(device, desc, &made); });
  status = call.hand_out(status, made, out, "C-5");
  if (status) return status;
  auto state = std::make_shared<BufferState>();
  state->device = on;
  state->size = desc->size_bytes;
  state->alignment = desc->alignment;
  std::lock_guard lock(mutex_);
  buffers_.add(made, std::move(state));
  return nullptr;
}

lazyt_status_t* Validate::buffer_from_host(lazyt_device_t* device, const lazyt_host_bytes_t* bytes,
                                           lazyt_buffer_t** out) {
  Call call(*this, "buffer.from_host");
  auto on = call.use(devices_, device, "the device");
  if (!call.sized(bytes, "lazyt_host_bytes_t")) return call.refusal();
  if (bytes->reserved != 0) call.host("C-10", "reserved is not 0");
  if (bytes->sharing < LAZYT_SHARING_COPY || bytes->sharing > LAZYT_SHARING_ALIAS_MUTABLE)
    call.host("C-10", fmt::format("sharing {} is none of the list", bytes->sharing));
  else if (bytes->sharing != LAZYT_SHARING_COPY && !bytes->done)
    call.host("BUF-8", "bytes are shared without done");
  if (!bytes->data && bytes->size_bytes > 0)
    call.host("BUF-4", fmt::format("{} bytes at NULL", bytes->size_bytes));
  if (call.refused()) return call.refusal();

  lazyt_host_bytes_t given = *bytes;
  std::shared_ptr<BytesCallback> done;
  if (bytes->done) {
    done = std::shared_ptr<BytesCallback>(new BytesCallback{*this, bytes->done, bytes->done_user_data, on});
    given.done = BytesCallback::run;
    given.done_user_data = done.get();
    std::lock_guard lock(mutex_);
    while (bytes_callbacks_.size() > 4096 && bytes_callbacks_.front()->runs > 0) bytes_callbacks_.pop_front();
    bytes_callbacks_.push_back(done);
  }
  lazyt_buffer_t* made = Call::unwritten<lazyt_buffer_t>();
  lazyt_status_t* status = call.run([&] { return below->buffer->from_host(device, &given, &made); });
  status = call.hand_out(status, made, out, "C-5");
  if (status) {
    if (done && done->runs > 0) call.plugin("BUF-8", "done was called although the call failed");
    if (done) done->failed = true;
    return status;
  }
  auto state = std::make_shared<BufferState>();
  state->device = on;
  state->size = bytes->size_bytes;
  state->sharing = bytes->sharing;
  const auto* from = static_cast<const uint8_t*>(bytes->data);
  if (bytes->sharing == LAZYT_SHARING_COPY && bytes->size_bytes > 0)
    if (auto* at = static_cast<const uint8_t*>(address(made, *state));
        at && at >= from && at < from + bytes->size_bytes)
      call.plugin("BUF-4", "with COPY, the buffer lies in the caller's bytes");
  std::lock_guard lock(mutex_);
  buffers_.add(made, std::move(state));
  return nullptr;
}

// rule: what says that the operation's own event gets the error of a wait.
void Validate::check_waits(lazyt_events_t waits, const char* rule, const char* function) {
  for (uint64_t i = 0; i < waits.count; i++) {
    const auto waited = outcome(waits.events[i]);
    if (waited && waited->first == LAZYT_CODE_OK) continue;
    report(Side::kPlugin, rule, function,
           waited ? fmt::format("it succeeded, though wait {} failed: {}", i, waited->second)
                  : fmt::format("it is done, though wait {} is not", i));
  }
}

lazyt_status_t* Validate::buffer_to_host(lazyt_buffer_t* buffer, uint64_t offset, void* dst, uint64_t size,
                                         lazyt_events_t waits, lazyt_event_t** out) {
  Call call(*this, "buffer.to_host");
  auto from = call.use(buffers_, buffer, "the buffer");
  for (uint64_t i = 0; i < waits.count; i++) call.use(events_, waits.events[i], "a wait");
  if (call.refused()) return call.refusal();
  const bool outside = leaves(offset, size, from->size);
  lazyt_event_t* made = Call::unwritten<lazyt_event_t>();
  lazyt_status_t* status = call.run(
      [&] { return below->buffer->to_host(buffer, offset, dst, size, waits, out ? &made : nullptr); });
  if (outside && call.code(status) != LAZYT_CODE_OUT_OF_RANGE)
    call.plugin("BUF-5", fmt::format("offset {} and size {} of {} bytes are not OUT_OF_RANGE", offset, size,
                                     from->size));
  if (out) {
    status = call.hand_out(status, made, out, "BUF-7");
    if (status) return status;
    auto work = std::make_shared<Work>();
    work->function = call.function;
    work->device = from->device;
    work->reads = {from};
    begin(std::move(work), made, waits);
    return nullptr;
  }
  if (status || outside) return status;
  check_waits(waits, "BUF-6", call.function);
  if (size > 0 && size <= kLooked && content(buffer, from))
    if (const auto* at = static_cast<const uint8_t*>(address(buffer, *from));
        at && std::memcmp(at + offset, dst, size) != 0)
      call.plugin("BUF-11", "host_pointer shows other bytes");
  return nullptr;
}

lazyt_status_t* Validate::buffer_copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst,
                                      uint64_t dst_offset, uint64_t size, lazyt_events_t waits,
                                      lazyt_event_t** out) {
  Call call(*this, "buffer.copy");
  auto from = call.use(buffers_, src, "src");
  auto to = call.use(buffers_, dst, "dst");
  for (uint64_t i = 0; i < waits.count; i++) call.use(events_, waits.events[i], "a wait");
  if (to && !to->writable()) call.host("BUF-13", "dst shares the caller's bytes, read-only");
  if (call.refused()) return call.refusal();
  const bool outside = leaves(src_offset, size, from->size) || leaves(dst_offset, size, to->size);
  {
    std::unique_lock lock(mutex_);
    unlooked(lock, *to);
    to->writes++;
  }
  lazyt_event_t* made = Call::unwritten<lazyt_event_t>();
  lazyt_status_t* status = call.run([&] {
    return below->buffer->copy(src, src_offset, dst, dst_offset, size, waits, out ? &made : nullptr);
  });
  if (outside && call.code(status) != LAZYT_CODE_OUT_OF_RANGE)
    call.plugin("BUF-5", fmt::format("{} bytes from {} of {} to {} of {} are not OUT_OF_RANGE", size,
                                     src_offset, from->size, dst_offset, to->size));
  if (!out) {
    if (!status && !outside) check_waits(waits, "BUF-6", call.function);
    return status;
  }
  status = call.hand_out(status, made, out, "BUF-7");
  if (status) return status;
  auto work = std::make_shared<Work>();
  work->function = call.function;
  work->device = to->device;
  work->reads = {from};
  work->writes = {to};
  begin(std::move(work), made, waits);
  return nullptr;
}

lazyt_status_t* Validate::buffer_size(lazyt_buffer_t* buffer, uint64_t* out) {
  Call call(*this, "buffer.size");
  auto state = call.use(buffers_, buffer, "the buffer");
  if (call.refused()) return call.refusal();
  lazyt_status_t* status = call.run([&] { return below->buffer->size(buffer, out); });
  if (!status && *out != state->size)
    call.plugin("BUF-10", fmt::format("{} bytes, it was made with {}", *out, state->size));
  return status;
}

lazyt_status_t* Validate::buffer_host_pointer(lazyt_buffer_t* buffer, void** out) {
  Call call(*this, "buffer.host_pointer");
  auto state = call.use(buffers_, buffer, "the buffer");
  if (call.refused()) return call.refusal();
  void* pointer = Call::unwritten<char>();
  lazyt_status_t* status = call.run([&] { return below->buffer->host_pointer(buffer, &pointer); });
  if (status) {
    if (pointer != Call::unwritten<char>()) call.plugin("STA-1", "it failed and wrote its result");
    return status;
  }
  if (pointer == Call::unwritten<char>() || (!pointer && state->size > 0)) {
    call.plugin("C-5", "it succeeded without a result");
    return call.error("buffer.host_pointer succeeded without a result (C-5)");
  }
  if (state->alignment > 0 && reinterpret_cast<uintptr_t>(pointer) % state->alignment != 0)
    call.plugin("BUF-12", fmt::format("the bytes are not aligned to {}", state->alignment));
  *out = pointer;
  return nullptr;
}

lazyt_status_t* Validate::buffer_import_dlpack(lazyt_device_t* device, DLManagedTensorVersioned* tensor,
                                               lazyt_event_t* wait, lazyt_buffer_t** out) {
  Call call(*this, "buffer.import_dlpack");
  auto on = call.use(devices_, device, "the device");
  if (wait) call.use(events_, wait, "wait");
  if (call.refused()) return call.refusal();
  lazyt_buffer_t* made = Call::unwritten<lazyt_buffer_t>();
  lazyt_status_t* status =
      call.run([&] { return below->buffer->import_dlpack(device, tensor, wait, &made); });
  status = call.hand_out(status, made, out, "C-5");
  if (status) return status;
  auto state = std::make_shared<BufferState>();
  state->device = on;
  if (lazyt_status_t* failed = call.run([&] { return below->buffer->size(made, &state->size); }))
    above->status->release(failed);
  std::lock_guard lock(mutex_);
  buffers_.add(made, std::move(state));
  return nullptr;
}

lazyt_status_t* Validate::buffer_export_dlpack(lazyt_buffer_t* buffer, DLManagedTensorVersioned** out) {
  Call call(*this, "buffer.export_dlpack");
  call.use(buffers_, buffer, "the buffer");
  if (call.refused()) return call.refusal();
  DLManagedTensorVersioned* made = Call::unwritten<DLManagedTensorVersioned>();
  lazyt_status_t* status = call.run([&] { return below->buffer->export_dlpack(buffer, &made); });
  return call.hand_out(status, made, out, "C-5");
}

void Validate::buffer_release(lazyt_buffer_t* buffer) {
  if (!buffer) return below->buffer->release(nullptr);
  Call call(*this, "buffer.release");
  auto state = call.use(buffers_, buffer, "the buffer");
  if (call.refused()) return;
  auto uses = [&](const Work& work) {
    return std::find(work.reads.begin(), work.reads.end(), state) != work.reads.end() ||
           std::find(work.writes.begin(), work.writes.end(), state) != work.writes.end();
  };
  for (const auto& work : pending())
    if (uses(*work) && surely_ready(work->event)) settle(work);
  std::unique_lock lock(mutex_);
  buffers_.remove(buffer);
  unlooked(lock, *state);
  for (const auto& work : pending_) {
    if (!uses(*work)) continue;
    // The plugin need not check: it gets the release when it can bear it.
    work->postponed.push_back(buffer);
    const char* by = work->function;
    lock.unlock();
    return call.host("BUF-3", fmt::format("{} is not done with the buffer", by));
  }
  lock.unlock();
  call.run([&] { below->buffer->release(buffer); });
}

}  // namespace lazyt::layers
