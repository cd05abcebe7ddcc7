// fault: a plugin that works as the one it wraps, until something goes wrong at the call that LAZYT_FAULT_AT
// names.
//
// It wraps the library that LAZYT_FAULT_WRAPS names, or the null plugin, which is linked in. Work is done on
// a thread of its own, in order, so that events are not ready at once; with LAZYT_FAULT_SYNC=1 inside
// execute, and the device is synchronous if the wrapped one is.
#include <dlfcn.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fault.h"
#include "lazyt/plugin.hpp"

extern "C" lazyt_status_t* good_entry(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin);  // null's

namespace fault {
namespace {

using lazyt::plugin::Error;
using lazyt::plugin::Event;
using lazyt::plugin::guard;
using lazyt::plugin::host;
using lazyt::plugin::take_events;

const lazyt_plugin_t* inner = nullptr;
lazyt_plugin_t plugin_table;
lazyt_plugin_device_t device_table;
lazyt_plugin_buffer_t buffer_table;
lazyt_plugin_event_t event_table;
lazyt_plugin_capability_t capability_table;
lazyt_plugin_executable_t executable_table;

template <class Table>
const Table& inner_table() {
  if constexpr (std::is_same_v<Table, lazyt_plugin_t>) return *inner;
  if constexpr (std::is_same_v<Table, lazyt_plugin_device_t>) return *inner->device;
  if constexpr (std::is_same_v<Table, lazyt_plugin_buffer_t>) return *inner->buffer;
  if constexpr (std::is_same_v<Table, lazyt_plugin_event_t>) return Event::table();
  if constexpr (std::is_same_v<Table, lazyt_plugin_capability_t>) return *inner->capability;
  if constexpr (std::is_same_v<Table, lazyt_plugin_executable_t>) return *inner->executable;
}

// The work of the plugin is one call at a time for each device; here: one at a time.
std::mutex device_mutex;

bool works_inside() { return lazyt::plugin::is_on(lazyt::plugin::option("fault", "sync")); }

// ---- the stream: a thread that runs what was handed to it, in order

class Stream {
 public:
  void push(std::function<void()> job) {
    if (works_inside()) return job();
    std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty(); });
  }
  void stop() {
    drain();
    std::unique_lock lock(mutex_);
    if (!thread_.joinable()) return;
    stop_ = true;
    changed_.notify_all();
    lock.unlock();
    thread_.join();
    thread_ = {};
    stop_ = false;
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      auto& job = jobs_.front();  // stays where it is while others are pushed
      lock.unlock();
      job();
      lock.lock();
      jobs_.pop_front();  // only now is it drained
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::thread thread_;
  bool stop_ = false;
};

Stream& stream() {
  static auto* s = new Stream;  // a hung thread may still be in it when the process ends
  return *s;
}

// ---- functions with events

struct Job {
  lazyt_executable_t* executable;
  std::vector<lazyt_execute_input_t> inputs;
  std::vector<lazyt_buffer_t*> outputs;
  std::vector<lazyt_event_t*> waits;
  Event* done;

  lazyt_status_t* run() {
    if (lazyt_status_t* status = take_events({waits.data(), waits.size()})) return status;
    if (lazyt_status_t* status = strike(k_executable_work)) return status;
    lazyt_execute_args_t args{};
    args.struct_size = sizeof args;
    args.inputs = inputs.data();
    args.input_count = inputs.size();
    args.input_stride = sizeof inputs[0];
    args.outputs = outputs.data();
    args.output_count = outputs.size();
    lazyt_event_t* event = nullptr;
    {
      std::lock_guard lock(device_mutex);
      if (lazyt_status_t* status = inner->executable->execute(executable, &args, &event)) return status;
    }
    lazyt_status_t* status = inner->event->wait(event, LAZYT_WAIT_FOREVER);
    inner->event->release(event);
    return status;
  }
};

lazyt_status_t* execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args,
                        lazyt_event_t** out_event) {
  if (lazyt_status_t* status = strike(k_executable_execute)) return status;
  return guard([&] {
    Job job{executable, {}, {args->outputs, args->outputs + args->output_count}, {}, Event::make_pending()};
    for (uint64_t i = 0; i < args->input_count; i++)
      job.inputs.push_back(*reinterpret_cast<const lazyt_execute_input_t*>(
          reinterpret_cast<const char*>(args->inputs) + i * args->input_stride));
    job.waits.assign(args->waits.events, args->waits.events + args->waits.count);
    for (lazyt_event_t* wait : job.waits) Event::from(wait)->retain();
    *out_event = job.done->handle();
    job.done->retain();
    stream().push([job]() mutable {
      job.done->complete(job.run());
      for (lazyt_event_t* wait : job.waits) Event::from(wait)->release();
      job.done->release();
    });
  });
}

// The operation's own status, or its event with that status (BUF-7).
lazyt_status_t* finish(lazyt_status_t* status, lazyt_event_t** out_event) {
  if (!out_event) return status;
  *out_event = Event::make_ready(status)->handle();
  return nullptr;
}

lazyt_status_t* to_host(lazyt_buffer_t* buffer, uint64_t offset, void* dst, uint64_t size,
                        lazyt_events_t waits, lazyt_event_t** out_event) {
  if (lazyt_status_t* status = strike(k_buffer_to_host)) return status;
  if (lazyt_status_t* status = take_events(waits)) return finish(status, out_event);
  lazyt_status_t* status = inner->buffer->to_host(buffer, offset, dst, size, {nullptr, 0}, nullptr);
  return status ? status : finish(nullptr, out_event);
}

lazyt_status_t* copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst, uint64_t dst_offset,
                     uint64_t size, lazyt_events_t waits, lazyt_event_t** out_event) {
  if (lazyt_status_t* status = strike(k_buffer_copy)) return status;
  if (lazyt_status_t* status = take_events(waits)) return finish(status, out_event);
  lazyt_status_t* status = inner->buffer->copy(src, src_offset, dst, dst_offset, size, {nullptr, 0}, nullptr);
  return status ? status : finish(nullptr, out_event);
}

lazyt_status_t* import_dlpack(lazyt_device_t* device, DLManagedTensorVersioned* tensor, lazyt_event_t* wait,
                              lazyt_buffer_t** out_buffer) {
  if (lazyt_status_t* status = strike(k_buffer_import_dlpack)) return status;
  if (lazyt_status_t* status = take_events({&wait, wait ? 1u : 0u})) return status;
  return inner->buffer->import_dlpack(device, tensor, nullptr, out_buffer);
}

// ---- functions that need the stream at rest, or the device for themselves

lazyt_status_t* query(lazyt_device_t* device, const lazyt_program_t* program, lazyt_answer_t* answers,
                      uint64_t count, uint64_t stride) {
  if (lazyt_status_t* status = strike(k_capability_query)) return status;
  std::lock_guard lock(device_mutex);
  return inner->capability->query(device, program, answers, count, stride);
}

lazyt_status_t* describe(uint32_t index, lazyt_device_info_t* out_info) {
  if (lazyt_status_t* status = strike(k_device_describe)) return status;
  if (lazyt_status_t* status = inner->device->describe(index, out_info)) return status;
  if (!works_inside()) out_info->flags &= ~LAZYT_DEVICE_SYNCHRONOUS;
  return nullptr;
}

lazyt_status_t* trim(lazyt_device_t* device) {
  if (lazyt_status_t* status = strike(k_device_trim)) return status;
  std::lock_guard lock(device_mutex);
  return inner->device->trim ? inner->device->trim(device) : nullptr;
}

void close(lazyt_device_t* device) {
  (void)strike(k_device_close);
  stream().drain();
  inner->device->close(device);
}

void release_executable(lazyt_executable_t* executable) {
  (void)strike(k_executable_release);
  if (executable) stream().push([executable] { inner->executable->release(executable); });  // EXE-13
}

void shutdown() {
  (void)strike(k_plugin_shutdown);
  stream().stop();
  inner->shutdown();
}

uint64_t handshake(uint64_t seed, lazyt_handshake_t* out) {
  (void)strike(k_plugin_handshake);
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}

lazyt_status_t* info(lazyt_plugin_info_t* out_info) {
  if (lazyt_status_t* status = strike(k_plugin_info)) return status;
  if (lazyt_status_t* status = inner->info(out_info)) return status;
  out_info->name = LAZYT_STR("fault");
  out_info->score = -1000;
  return nullptr;
}

// ---- all others: strike, then the same function of the wrapped plugin

template <Function kFunction, auto kSlot>
struct Forward;
template <Function kFunction, class Table, class R, class... Args, R (*Table::*kSlot)(Args...)>
struct Forward<kFunction, kSlot> {
  static R call(Args... args) {
    lazyt_status_t* status = strike(kFunction);
    if constexpr (std::is_same_v<R, lazyt_status_t*>) {
      if (status) return status;
    }
    return (inner_table<Table>().*kSlot)(args...);
  }
};

// A slot that the wrapped plugin leaves out stays out.
#define FORWARD(table, name) \
  if (table##_table.name)    \
  table##_table.name = Forward<k_##table##_##name, &decltype(table##_table)::name>::call
#define REPLACE(table, name, function) \
  if (table##_table.name) table##_table.name = function

template <class Table>
void take(Table& mine, const Table& theirs) {
  mine = {};
  memcpy(&mine, &theirs, std::min<uint64_t>(sizeof mine, theirs.struct_size));
  mine.struct_size = sizeof mine;
}

void fill_tables() {
  take(plugin_table, *inner);
  take(device_table, *inner->device);
  take(buffer_table, *inner->buffer);
  take(event_table, Event::table());
  take(capability_table, *inner->capability);
  take(executable_table, *inner->executable);

  plugin_table.handshake = handshake;
  plugin_table.info = info;
  plugin_table.shutdown = shutdown;
  FORWARD(plugin, init);
  FORWARD(plugin, get_extension);
  plugin_table.device = &device_table;
  plugin_table.buffer = &buffer_table;
  plugin_table.event = &event_table;
  plugin_table.capability = &capability_table;
  plugin_table.executable = &executable_table;

  FORWARD(device, count);
  REPLACE(device, describe, describe);
  FORWARD(device, open);
  REPLACE(device, close, close);
  FORWARD(device, memory_stats);
  device_table.trim = trim;

  FORWARD(buffer, alloc);
  FORWARD(buffer, from_host);
  REPLACE(buffer, to_host, to_host);
  REPLACE(buffer, copy, copy);
  FORWARD(buffer, size);
  FORWARD(buffer, host_pointer);
  REPLACE(buffer, import_dlpack, import_dlpack);
  FORWARD(buffer, export_dlpack);
  FORWARD(buffer, release);

  FORWARD(event, ready);
  FORWARD(event, wait);
  FORWARD(event, on_ready);
  FORWARD(event, retain);
  FORWARD(event, release);

  REPLACE(capability, query, query);

  FORWARD(executable, compile);
  FORWARD(executable, output_meta);
  FORWARD(executable, memory);
  REPLACE(executable, execute, execute);
  FORWARD(executable, serialize);
  FORWARD(executable, load);
  FORWARD(executable, identity);
  REPLACE(executable, release, release_executable);
}

lazyt_status_t* open_wrapped(const lazyt_host_t* table) {
  const std::string path(lazyt::plugin::option("fault", "wraps"));
  if (path.empty()) return good_entry(table, &inner);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(LAZYT_CODE_NOT_FOUND, "LAZYT_FAULT_WRAPS: " + std::string(dlerror()));
  auto* entry = reinterpret_cast<lazyt_plugin_entry_v1_t>(dlsym(library, LAZYT_PLUGIN_ENTRY_NAME));
  if (!entry)
    throw Error(LAZYT_CODE_NOT_FOUND, "LAZYT_FAULT_WRAPS: " + path + " has no " LAZYT_PLUGIN_ENTRY_NAME);
  return entry(table, &inner);
}

}  // namespace
}  // namespace fault

lazyt_status_t* lazyt_plugin_entry_v1(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin) {
  using namespace fault;
  if (lazyt_status_t* status = lazyt::plugin::adopt_host(host)) return status;
  if (lazyt_status_t* status = configure()) return status;
  if (lazyt_status_t* status = strike(k_plugin_entry)) return status;
  return guard([&]() -> lazyt_status_t* {
    if (lazyt_status_t* status = open_wrapped(host)) return status;
    fill_tables();
    *out_plugin = &plugin_table;
    return nullptr;
  });
}
