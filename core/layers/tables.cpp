#include "layers/tables.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "layers/trace.h"

namespace lazyt::layers {
namespace {

std::mutex slots_mutex;
Layer* layers[Tables::kSlots] = {};

template <size_t size>
struct Name {
  constexpr Name(const char (&literal)[size]) { std::copy_n(literal, size, text); }
  char text[size];
};

template <size_t slot, Name name, auto method>
struct Thunk;
template <size_t slot, Name name, class R, class... A, R (Layer::*method)(A...)>
struct Thunk<slot, name, method> {
  static R call(A... a) {
    Layer& layer = *layers[slot];
    return layer.trace ? layer.trace->call(layer, name.text, method, a...) : (layer.*method)(a...);
  }
};

struct Wrapped {
  lazyt_host_t& host;
  lazyt_host_status_t& status;
  lazyt_host_services_t& services;
  lazyt_plugin_t& plugin;
  lazyt_plugin_device_t& device;
  lazyt_plugin_buffer_t& buffer;
  lazyt_plugin_event_t& event;
  lazyt_plugin_capability_t& capability;
  lazyt_plugin_executable_t& executable;
};

// What is not offered stays so.
template <class F>
void put(F*& field, F* thunk) {
  if (field) field = thunk;
}
#define LAZYT_PUT(table, name, method) put(w.table.name, &Thunk<slot, #table "." #name, &Layer::method>::call)

template <size_t slot>
void fill_host(Wrapped w) {
  LAZYT_PUT(host, get_extension, host_extension);
  LAZYT_PUT(status, create, status_create);
  LAZYT_PUT(status, annotate, status_annotate);
  LAZYT_PUT(status, code, status_code);
  LAZYT_PUT(status, message, status_message);
  LAZYT_PUT(status, note_count, status_note_count);
  LAZYT_PUT(status, note, status_note);
  LAZYT_PUT(status, retain, status_retain);
  LAZYT_PUT(status, release, status_release);
  LAZYT_PUT(services, log, service_log);
  LAZYT_PUT(services, alloc, service_alloc);
  LAZYT_PUT(services, free, service_free);
  LAZYT_PUT(services, thread_count, service_thread_count);
  LAZYT_PUT(services, parallel_for, service_parallel_for);
  LAZYT_PUT(services, trace_begin, service_trace_begin);
  LAZYT_PUT(services, trace_end, service_trace_end);
  LAZYT_PUT(services, count, service_count);
  LAZYT_PUT(services, cancelled, service_cancelled);
  LAZYT_PUT(services, option, service_option);
  LAZYT_PUT(services, cache_get, service_cache_get);
  LAZYT_PUT(services, cache_put, service_cache_put);
}

template <size_t slot>
void fill_plugin(Wrapped w) {
  LAZYT_PUT(plugin, init, init);
  LAZYT_PUT(plugin, shutdown, shutdown);
  LAZYT_PUT(plugin, info, info);
  LAZYT_PUT(plugin, get_extension, get_extension);
  LAZYT_PUT(device, count, device_count);
  LAZYT_PUT(device, describe, device_describe);
  LAZYT_PUT(device, open, device_open);
  LAZYT_PUT(device, close, device_close);
  LAZYT_PUT(device, memory_stats, device_memory_stats);
  LAZYT_PUT(device, trim, device_trim);
  LAZYT_PUT(buffer, alloc, buffer_alloc);
  LAZYT_PUT(buffer, from_host, buffer_from_host);
  LAZYT_PUT(buffer, to_host, buffer_to_host);
  LAZYT_PUT(buffer, copy, buffer_copy);
  LAZYT_PUT(buffer, size, buffer_size);
  LAZYT_PUT(buffer, host_pointer, buffer_host_pointer);
  LAZYT_PUT(buffer, import_dlpack, buffer_import_dlpack);
  LAZYT_PUT(buffer, export_dlpack, buffer_export_dlpack);
  LAZYT_PUT(buffer, release, buffer_release);
  LAZYT_PUT(event, ready, event_ready);
  LAZYT_PUT(event, wait, event_wait);
  LAZYT_PUT(event, on_ready, event_on_ready);
  LAZYT_PUT(event, retain, event_retain);
  LAZYT_PUT(event, release, event_release);
  LAZYT_PUT(capability, query, capability_query);
  LAZYT_PUT(executable, compile, executable_compile);
  LAZYT_PUT(executable, output_meta, executable_output_meta);
  LAZYT_PUT(executable, memory, executable_memory);
  LAZYT_PUT(executable, execute, executable_execute);
  LAZYT_PUT(executable, serialize, executable_serialize);
  LAZYT_PUT(executable, load, executable_load);
  LAZYT_PUT(executable, identity, executable_identity);
  LAZYT_PUT(executable, release, executable_release);
}

using Fill = void (*)(Wrapped);
template <size_t... slot>
constexpr std::array<std::pair<Fill, Fill>, sizeof...(slot)> fills(std::index_sequence<slot...>) {
  return {{{fill_host<slot>, fill_plugin<slot>}...}};
}
constexpr auto kFills = fills(std::make_index_sequence<Tables::kSlots>{});

// A table of another minor may be shorter or longer than ours.
template <class T>
void copy(T& to, const T* from) {
  to = {};
  if (!from) return;
  std::memcpy(&to, from, std::min<uint64_t>(sizeof to, from->struct_size));
  to.struct_size = std::min<uint64_t>(sizeof to, from->struct_size);
}

}  // namespace

std::unique_ptr<Tables> Tables::make(Layer& layer) {
  std::lock_guard lock(slots_mutex);
  for (size_t slot = 0; slot < kSlots; slot++) {
    if (layers[slot]) continue;
    layers[slot] = &layer;
    return std::unique_ptr<Tables>(new Tables(slot));
  }
  return nullptr;
}

Tables::~Tables() {
  std::lock_guard lock(slots_mutex);
  layers[slot_] = nullptr;
}

const lazyt_host_t* Tables::host_over(const lazyt_host_t* above) {
  copy(host_, above);
  copy(status_, above->status);
  copy(services_, above->services);
  host_.status = &status_;
  host_.services = &services_;
  kFills[slot_].first(
      {host_, status_, services_, plugin_, device_, buffer_, event_, capability_, executable_});
  return &host_;
}

const lazyt_plugin_t* Tables::plugin_over(const lazyt_plugin_t* below) {
  copy(plugin_, below);
  copy(device_, below->device);
  copy(buffer_, below->buffer);
  copy(event_, below->event);
  copy(capability_, below->capability);
  copy(executable_, below->executable);
  plugin_.device = &device_;
  plugin_.buffer = &buffer_;
  plugin_.event = &event_;
  plugin_.capability = &capability_;
  plugin_.executable = &executable_;
  kFills[slot_].second(
      {host_, status_, services_, plugin_, device_, buffer_, event_, capability_, executable_});
  return &plugin_;
}

}  // namespace lazyt::layers
