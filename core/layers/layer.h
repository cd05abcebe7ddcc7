// Layers between the host and a plugin (LAZYT_LAYERS): function tables that wrap function tables.
//
//   host -> first layer named -> ... -> last layer named -> plugin
//
// A layer has one virtual function for each call that crosses, in both directions; what it does not override
// goes on unchanged. A new layer is a class that derives from Layer and a line in stack.cpp. Without
// LAZYT_LAYERS nothing of this is in the path of a call.
#pragma once

#include "lazyt/lazyt.h"

namespace lazyt::layers {

class Trace;

class Layer {
 public:
  virtual ~Layer() = default;
  Trace* trace = nullptr;  // writes a line about each call that comes here; null: none
  // Who is called: set by the stack. above before the plugin's entry, below as soon as its table is known.
  const lazyt_host_t* above = nullptr;
  const lazyt_plugin_t* below = nullptr;
  // The library is closed: nothing is called any more.
  virtual void closed() {}

  // --- the host calls the plugin
  virtual lazyt_status_t* init() { return below->init(); }
  virtual void shutdown() { below->shutdown(); }
  virtual lazyt_status_t* info(lazyt_plugin_info_t* out) { return below->info(out); }
  virtual const void* get_extension(lazyt_string_t id) { return below->get_extension(id); }

  virtual lazyt_status_t* device_count(uint32_t* out) { return below->device->count(out); }
  virtual lazyt_status_t* device_describe(uint32_t index, lazyt_device_info_t* out) {
    return below->device->describe(index, out);
  }
  virtual lazyt_status_t* device_open(uint32_t index, lazyt_device_t** out) {
    return below->device->open(index, out);
  }
  virtual void device_close(lazyt_device_t* device) { below->device->close(device); }
  virtual lazyt_status_t* device_memory_stats(lazyt_device_t* device, lazyt_memory_stats_t* out) {
    return below->device->memory_stats(device, out);
  }
  virtual lazyt_status_t* device_trim(lazyt_device_t* device) { return below->device->trim(device); }

  virtual lazyt_status_t* buffer_alloc(lazyt_device_t* device, const lazyt_buffer_desc_t* desc,
                                       lazyt_buffer_t** out) {
    return below->buffer->alloc(device, desc, out);
  }
  virtual lazyt_status_t* buffer_from_host(lazyt_device_t* device, const lazyt_host_bytes_t* bytes,
                                           lazyt_buffer_t** out) {
    return below->buffer->from_host(device, bytes, out);
  }
  virtual lazyt_status_t* buffer_to_host(lazyt_buffer_t* buffer, uint64_t offset, void* dst, uint64_t size,
                                         lazyt_events_t waits, lazyt_event_t** out) {
    return below->buffer->to_host(buffer, offset, dst, size, waits, out);
  }
  virtual lazyt_status_t* buffer_copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst,
                                      uint64_t dst_offset, uint64_t size, lazyt_events_t waits,
                                      lazyt_event_t** out) {
    return below->buffer->copy(src, src_offset, dst, dst_offset, size, waits, out);
  }
  virtual lazyt_status_t* buffer_size(lazyt_buffer_t* buffer, uint64_t* out) {
    return below->buffer->size(buffer, out);
  }
  virtual lazyt_status_t* buffer_host_pointer(lazyt_buffer_t* buffer, void** out) {
    return below->buffer->host_pointer(buffer, out);
  }
  virtual lazyt_status_t* buffer_import_dlpack(lazyt_device_t* device, DLManagedTensorVersioned* tensor,
                                               lazyt_event_t* wait, lazyt_buffer_t** out) {
    return below->buffer->import_dlpack(device, tensor, wait, out);
  }
  virtual lazyt_status_t* buffer_export_dlpack(lazyt_buffer_t* buffer, DLManagedTensorVersioned** out) {
    return below->buffer->export_dlpack(buffer, out);
  }
  virtual void buffer_release(lazyt_buffer_t* buffer) { below->buffer->release(buffer); }

  virtual lazyt_status_t* event_ready(lazyt_event_t* event, uint32_t* out) {
    return below->event->ready(event, out);
  }
  virtual lazyt_status_t* event_wait(lazyt_event_t* event, uint64_t timeout_ns) {
    return below->event->wait(event, timeout_ns);
  }
  virtual lazyt_status_t* event_on_ready(lazyt_event_t* event, lazyt_event_callback_t callback,
                                         void* user_data) {
    return below->event->on_ready(event, callback, user_data);
  }
  virtual void event_retain(lazyt_event_t* event) { below->event->retain(event); }
  virtual void event_release(lazyt_event_t* event) { below->event->release(event); }

  virtual lazyt_status_t* capability_query(lazyt_device_t* device, const lazyt_program_t* program,
                                           lazyt_answer_t* answers, uint64_t count, uint64_t stride) {
    return below->capability->query(device, program, answers, count, stride);
  }

  virtual lazyt_status_t* executable_compile(lazyt_device_t* device, const lazyt_compile_args_t* args,
                                             lazyt_executable_t** out) {
    return below->executable->compile(device, args, out);
  }
  virtual lazyt_status_t* executable_output_meta(lazyt_executable_t* executable, uint64_t index,
                                                 lazyt_output_meta_t* out) {
    return below->executable->output_meta(executable, index, out);
  }
  virtual lazyt_status_t* executable_memory(lazyt_executable_t* executable, lazyt_executable_memory_t* out) {
    return below->executable->memory(executable, out);
  }
  virtual lazyt_status_t* executable_execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args,
                                             lazyt_event_t** out) {
    return below->executable->execute(executable, args, out);
  }
  virtual lazyt_status_t* executable_serialize(lazyt_executable_t* executable, lazyt_write_t write,
                                               void* user_data) {
    return below->executable->serialize(executable, write, user_data);
  }
  virtual lazyt_status_t* executable_load(lazyt_device_t* device, const void* data, uint64_t size,
                                          lazyt_executable_t** out) {
    return below->executable->load(device, data, size, out);
  }
  virtual lazyt_status_t* executable_identity(lazyt_device_t* device, lazyt_string_t* out) {
    return below->executable->identity(device, out);
  }
  virtual void executable_release(lazyt_executable_t* executable) { below->executable->release(executable); }

  // --- the plugin calls the host
  virtual lazyt_status_t* status_create(lazyt_code_t code, lazyt_string_t message) {
    return above->status->create(code, message);
  }
  virtual void status_annotate(lazyt_status_t* status, lazyt_string_t where, lazyt_string_t detail) {
    above->status->annotate(status, where, detail);
  }
  virtual lazyt_code_t status_code(const lazyt_status_t* status) { return above->status->code(status); }
  virtual lazyt_string_t status_message(const lazyt_status_t* status) {
    return above->status->message(status);
  }
  virtual uint64_t status_note_count(const lazyt_status_t* status) {
    return above->status->note_count(status);
  }
  virtual void status_note(const lazyt_status_t* status, uint64_t index, lazyt_string_t* out_where,
                           lazyt_string_t* out_detail) {
    above->status->note(status, index, out_where, out_detail);
  }
  virtual lazyt_status_t* status_retain(lazyt_status_t* status) { return above->status->retain(status); }
  virtual void status_release(lazyt_status_t* status) { above->status->release(status); }

  virtual void service_log(lazyt_log_level_t level, lazyt_string_t message) {
    above->services->log(level, message);
  }
  virtual void* service_alloc(uint64_t size, uint64_t alignment) {
    return above->services->alloc(size, alignment);
  }
  virtual void service_free(void* pointer) { above->services->free(pointer); }
  virtual uint32_t service_thread_count() { return above->services->thread_count(); }
  virtual void service_parallel_for(uint64_t count, lazyt_parallel_body_t body, void* user_data) {
    above->services->parallel_for(count, body, user_data);
  }
  virtual uint64_t service_trace_begin(lazyt_string_t name) { return above->services->trace_begin(name); }
  virtual void service_trace_end(uint64_t token) { above->services->trace_end(token); }
  virtual void service_count(lazyt_string_t name, int64_t delta) { above->services->count(name, delta); }
  virtual uint32_t service_cancelled() { return above->services->cancelled(); }
  virtual lazyt_status_t* service_option(lazyt_string_t plugin, lazyt_string_t name, lazyt_string_t* out) {
    return above->services->option(plugin, name, out);
  }
  virtual lazyt_status_t* service_cache_get(lazyt_string_t key, void** out_data, uint64_t* out_size) {
    return above->services->cache_get(key, out_data, out_size);
  }
  virtual lazyt_status_t* service_cache_put(lazyt_string_t key, const void* data, uint64_t size) {
    return above->services->cache_put(key, data, size);
  }
  virtual const void* host_extension(lazyt_string_t id) { return above->get_extension(id); }
};

}  // namespace lazyt::layers
