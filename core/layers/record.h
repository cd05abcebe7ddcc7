// The layer `record`: writes the calls that a run makes into LAZYT_RECORD (recording.h).
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "layers/layer.h"
#include "layers/recording.h"

namespace lazyt::layers {

class RecordLayer : public Layer {
 public:
  explicit RecordLayer(bool data) : data_(data) {}

  lazyt_status_t* init() override;
  void shutdown() override;
  lazyt_status_t* device_describe(uint32_t index, lazyt_device_info_t* out) override;
  lazyt_status_t* device_open(uint32_t index, lazyt_device_t** out) override;
  void device_close(lazyt_device_t* device) override;
  lazyt_status_t* buffer_alloc(lazyt_device_t*, const lazyt_buffer_desc_t*, lazyt_buffer_t** out) override;
  lazyt_status_t* buffer_from_host(lazyt_device_t*, const lazyt_host_bytes_t*, lazyt_buffer_t** out) override;
  lazyt_status_t* buffer_to_host(lazyt_buffer_t*, uint64_t offset, void* dst, uint64_t size, lazyt_events_t,
                                 lazyt_event_t** out) override;
  lazyt_status_t* buffer_copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst, uint64_t dst_offset,
                              uint64_t size, lazyt_events_t, lazyt_event_t** out) override;
  void buffer_release(lazyt_buffer_t*) override;
  lazyt_status_t* executable_compile(lazyt_device_t*, const lazyt_compile_args_t*, lazyt_executable_t** out) override;
  lazyt_status_t* executable_execute(lazyt_executable_t*, const lazyt_execute_args_t*, lazyt_event_t** out) override;
  void executable_release(lazyt_executable_t*) override;

 private:
  uint64_t number(const void* object);  // REQUIRES: mutex_
  void release(Recorded kind, const void* object);

  const bool data_;
  std::mutex mutex_;
  std::unique_ptr<RecordingWriter> out_;  // null: nothing is recorded
  std::unordered_map<const void*, uint64_t> numbers_;
  uint64_t last_ = 0;
};

}  // namespace lazyt::layers
