#include "layers/record.h"

#include <cstring>

#include <fmt/format.h>

#include "base/env.h"
#include "base/hash.h"

namespace lazyt::layers {

namespace {
std::span<const uint8_t> bytes_of(const void* data, uint64_t size) { return {static_cast<const uint8_t*>(data), size}; }
}  // namespace

uint64_t RecordLayer::number(const void* object) {
  auto [it, is_new] = numbers_.try_emplace(object, last_ + 1);
  last_ += is_new;
  return it->second;
}

void RecordLayer::release(Recorded kind, const void* object) {
  std::lock_guard lock(mutex_);
  auto it = numbers_.find(object);
  if (it == numbers_.end() || !out_) return;
  out_->add(kind, {it->second});
  numbers_.erase(it);  // the address may be another object's soon
}

// Not in the constructor: a plugin that is only looked at would leave an empty file.
lazyt_status_t* RecordLayer::init() {
  auto error = [this](const std::string& why) {
    return above->status->create(LAZYT_CODE_FAILED_PRECONDITION, lazyt_string(why.data(), why.size()));
  };
  const auto path = base::env("LAZYT_RECORD");
  if (!path) return error("the layer `record` writes into the file that LAZYT_RECORD names: set it");
  auto writer = RecordingWriter::create(*path);
  if (!writer.ok()) return error(std::string(writer.status().message()));
  std::lock_guard lock(mutex_);
  out_ = std::move(writer).value();
  return below->init();
}

void RecordLayer::shutdown() {
  below->shutdown();
  std::lock_guard lock(mutex_);
  out_.reset();
}

// Through host_pointer bytes would be read and written without a call to record.
lazyt_status_t* RecordLayer::device_describe(uint32_t index, lazyt_device_info_t* out) {
  lazyt_status_t* status = below->device->describe(index, out);
  if (!status) out->flags &= ~LAZYT_DEVICE_HOST_VISIBLE;
  return status;
}

lazyt_status_t* RecordLayer::device_open(uint32_t index, lazyt_device_t** out) {
  lazyt_status_t* status = below->device->open(index, out);
  std::lock_guard lock(mutex_);
  if (!status && out_) out_->add(Recorded::kDevice, {number(*out), index});
  return status;
}

void RecordLayer::device_close(lazyt_device_t* device) {
  release(Recorded::kCloseDevice, device);
  below->device->close(device);
}

lazyt_status_t* RecordLayer::buffer_alloc(lazyt_device_t* device, const lazyt_buffer_desc_t* desc, lazyt_buffer_t** out) {
  lazyt_status_t* status = below->buffer->alloc(device, desc, out);
  std::lock_guard lock(mutex_);
  if (!status && out_)
    out_->add(Recorded::kAlloc, {number(*out), number(device), desc->size_bytes, desc->alignment, desc->memory_space});
  return status;
}

lazyt_status_t* RecordLayer::buffer_from_host(lazyt_device_t* device, const lazyt_host_bytes_t* bytes, lazyt_buffer_t** out) {
  std::vector<uint8_t> copy;  // afterwards they may be gone
  if (data_) copy.assign(bytes_of(bytes->data, bytes->size_bytes).begin(), bytes_of(bytes->data, bytes->size_bytes).end());
  lazyt_status_t* status = below->buffer->from_host(device, bytes, out);
  std::lock_guard lock(mutex_);
  if (!status && out_) out_->add(Recorded::kFromHost, {number(*out), number(device), bytes->size_bytes}, copy);
  return status;
}

// The bytes are waited for: what was read is part of the recording.
lazyt_status_t* RecordLayer::buffer_to_host(lazyt_buffer_t* buffer, uint64_t offset, void* dst, uint64_t size,
                                            lazyt_events_t waits, lazyt_event_t** out) {
  lazyt_status_t* status = below->buffer->to_host(buffer, offset, dst, size, waits, out);
  if (status) return status;
  if (out && *out) {
    lazyt_status_t* failed = below->event->wait(*out, LAZYT_WAIT_FOREVER);
    above->status->release(failed);
    if (failed) return nullptr;  // the event tells
  }
  const base::Hash128 hash = base::hash128(dst, size);
  std::lock_guard lock(mutex_);
  if (out_) out_->add(Recorded::kToHost, {number(buffer), offset, size, hash.low, hash.high});
  return nullptr;
}

lazyt_status_t* RecordLayer::buffer_copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst, uint64_t dst_offset,
                                         uint64_t size, lazyt_events_t waits, lazyt_event_t** out) {
  lazyt_status_t* status = below->buffer->copy(src, src_offset, dst, dst_offset, size, waits, out);
  std::lock_guard lock(mutex_);
  if (!status && out_) out_->add(Recorded::kCopy, {number(src), src_offset, number(dst), dst_offset, size});
  return status;
}

void RecordLayer::buffer_release(lazyt_buffer_t* buffer) {
  release(Recorded::kReleaseBuffer, buffer);
  below->buffer->release(buffer);
}

lazyt_status_t* RecordLayer::executable_compile(lazyt_device_t* device, const lazyt_compile_args_t* args,
                                                lazyt_executable_t** out) {
  lazyt_status_t* status = below->executable->compile(device, args, out);
  std::lock_guard lock(mutex_);
  if (!status && out_)
    out_->add(Recorded::kCompile, {number(*out), number(device), args->flags}, bytes_of(args->program, args->program->total_size));
  return status;
}

lazyt_status_t* RecordLayer::executable_execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args,
                                                lazyt_event_t** out) {
  lazyt_status_t* status = below->executable->execute(executable, args, out);
  std::lock_guard lock(mutex_);
  if (status || !out_) return status;
  std::vector<uint64_t> words = {number(executable), args->input_count, args->output_count};
  for (uint64_t i = 0; i < args->input_count; i++) {
    const auto& in = *reinterpret_cast<const lazyt_execute_input_t*>(reinterpret_cast<const char*>(args->inputs) + i * args->input_stride);
    uint64_t scalar[2];
    std::memcpy(scalar, in.scalar.bytes, sizeof scalar);
    words.insert(words.end(), {in.buffer ? number(in.buffer) : 0, in.flags, in.stable_id, in.content_version, scalar[0], scalar[1]});
  }
  for (uint64_t i = 0; i < args->output_count; i++) words.push_back(number(args->outputs[i]));
  out_->add(Recorded::kExecute, words);
  return status;
}

void RecordLayer::executable_release(lazyt_executable_t* executable) {
  release(Recorded::kReleaseExecutable, executable);
  below->executable->release(executable);
}

}  // namespace lazyt::layers
