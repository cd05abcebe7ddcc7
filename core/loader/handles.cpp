#include "loader/handles.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/log.h"
#include "loader/library.h"

namespace lazyt::loader {
namespace {

// A plugin's answer, with who was asked for what.
base::Status asked(const Plugin& plugin, const char* function, lazyt_status_t* status) {
  if (!status) return {};
  return take_status(status).with_note("plugin " + plugin.info.name, function);
}

base::Status misbehaved(const Plugin& plugin, const char* function, std::string_view what) {
  return base::internal(fmt::format("plugin '{}' broke the contract of {}: {}; report this to {}", plugin.info.name,
                                    function, what, plugin.info.vendor.empty() ? "its vendor" : plugin.info.vendor))
      .with_note("library", plugin.info.path);
}

base::Status lacks(const Plugin& plugin, const char* function) {
  return base::unimplemented(fmt::format("plugin '{}' does not offer {}", plugin.info.name, function));
}

bool power_of_two_or_zero(uint64_t n) { return n == 0 || std::has_single_bit(n); }

}  // namespace

Plugin::~Plugin() {
  close_library(this, library_);
  if (!library_) (void)layers_.release();  // a hung call may come back through them
}

base::Result<base::Ref<Device>> Device::open(base::Ref<Plugin> plugin, uint32_t index) {
  const lazyt_plugin_device_t& t = *plugin->table->device;
  uint32_t count = 0;
  LAZYT_RETURN_IF_ERROR(asked(*plugin, "device.count", t.count(&count)));
  if (count == 0)
    return base::unavailable(fmt::format("backend '{}' has no device: {}", plugin->info.name,
                                         plugin->info.why_none.empty() ? "it gives no reason" : plugin->info.why_none));
  if (index >= count)
    return base::invalid_argument(fmt::format("backend '{}' has {} device{}, there is no number {}", plugin->info.name,
                                              count, count == 1 ? "" : "s", index));
  lazyt_device_info_t raw{};
  raw.struct_size = sizeof raw;
  LAZYT_RETURN_IF_ERROR(asked(*plugin, "device.describe", t.describe(index, &raw)));
  if (!power_of_two_or_zero(raw.alignment))
    return misbehaved(*plugin, "device.describe", fmt::format("alignment {} is not a power of two", raw.alignment));
  DeviceInfo info{to_string(raw.name),
                  to_string(raw.vendor),
                  raw.flags,
                  raw.total_bytes,
                  std::max<uint64_t>(raw.alignment, 1),
                  raw.dlpack_type,
                  raw.dlpack_id};
  lazyt_device_t* handle = nullptr;
  LAZYT_RETURN_IF_ERROR(asked(*plugin, "device.open", t.open(index, &handle)));
  if (!handle) return misbehaved(*plugin, "device.open", "success without a device");
  return base::Ref<Device>(new Device(std::move(plugin), std::move(info), handle));
}

Device::~Device() { table().device->close(handle); }

base::Result<lazyt_memory_stats_t> Device::memory_stats() const {
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  LAZYT_RETURN_IF_ERROR(asked(*plugin, "device.memory_stats", table().device->memory_stats(handle, &stats)));
  stats.next = nullptr;
  return stats;
}

Event::~Event() { device->table().event->release(handle); }

base::Status Event::wait(std::optional<std::chrono::nanoseconds> timeout) const {
  const uint64_t limit = timeout ? static_cast<uint64_t>(std::max<int64_t>(timeout->count(), 0)) : LAZYT_WAIT_FOREVER;
  return asked(*device->plugin, "event.wait", device->table().event->wait(handle, limit));
}

bool Event::ready() const {
  uint32_t ready = 0;
  base::Status status = asked(*device->plugin, "event.ready", device->table().event->ready(handle, &ready));
  // An event that cannot be asked will not change any more: whoever waits then gets the error.
  return !status.ok() || ready != 0;
}

base::Result<base::Ref<Buffer>> Buffer::alloc(const base::Ref<Device>& device, uint64_t size, uint64_t alignment,
                                              uint32_t memory_space) {
  lazyt_buffer_desc_t desc{sizeof desc, nullptr, size, alignment, memory_space, 0};
  lazyt_buffer_t* handle = nullptr;
  LAZYT_RETURN_IF_ERROR(asked(*device->plugin, "buffer.alloc", device->table().buffer->alloc(device->handle, &desc, &handle)));
  if (!handle) return misbehaved(*device->plugin, "buffer.alloc", "success without a buffer");
  return base::make_ref<Buffer>(device, handle, size);
}

base::Result<base::Ref<Buffer>> Buffer::from_host(const base::Ref<Device>& device, const void* data, uint64_t size) {
  lazyt_host_bytes_t bytes{};
  bytes.struct_size = sizeof bytes;
  bytes.data = data;
  bytes.size_bytes = size;
  bytes.sharing = LAZYT_SHARING_COPY;
  lazyt_buffer_t* handle = nullptr;
  LAZYT_RETURN_IF_ERROR(
      asked(*device->plugin, "buffer.from_host", device->table().buffer->from_host(device->handle, &bytes, &handle)));
  if (!handle) return misbehaved(*device->plugin, "buffer.from_host", "success without a buffer");
  return base::make_ref<Buffer>(device, handle, size);
}

Buffer::~Buffer() { device->table().buffer->release(handle); }

base::Status Buffer::to_host(uint64_t offset, void* dst, uint64_t bytes) const {
  return asked(*device->plugin, "buffer.to_host",
               device->table().buffer->to_host(handle, offset, dst, bytes, {nullptr, 0}, nullptr));
}

base::Result<base::Ref<Event>> Buffer::copy_from(const Buffer& src, uint64_t src_offset, uint64_t offset, uint64_t bytes,
                                                 const base::Ref<Event>& wait) const {
  lazyt_event_t* const waits[] = {wait ? wait->handle : nullptr};
  lazyt_event_t* event = nullptr;
  LAZYT_RETURN_IF_ERROR(asked(*device->plugin, "buffer.copy",
                              device->table().buffer->copy(src.handle, src_offset, handle, offset, bytes,
                                                           {waits, wait ? uint64_t{1} : 0}, &event)));
  return event ? base::make_ref<Event>(device, event) : base::Ref<Event>();
}

base::Result<void*> Buffer::host_pointer() const {
  auto* get = device->table().buffer->host_pointer;
  if (!get) return lacks(*device->plugin, "buffer.host_pointer");
  void* pointer = nullptr;
  LAZYT_RETURN_IF_ERROR(asked(*device->plugin, "buffer.host_pointer", get(handle, &pointer)));
  if (!pointer && size != 0) return misbehaved(*device->plugin, "buffer.host_pointer", "success without an address");
  return pointer;
}

base::Result<base::Ref<Executable>> Executable::compile(const base::Ref<Device>& device, const ir::Program& program,
                                                        lazyt_compile_flags_t flags) {
  const Plugin& plugin = *device->plugin;
  const lazyt_plugin_executable_t& t = *device->table().executable;
  lazyt_compile_args_t args{sizeof args, nullptr, program.block(), flags};
  lazyt_executable_t* raw = nullptr;
  LAZYT_RETURN_IF_ERROR(asked(plugin, "executable.compile", t.compile(device->handle, &args, &raw)));
  if (!raw) return misbehaved(plugin, "executable.compile", "success without an executable");

  std::unique_ptr<lazyt_executable_t, void (*)(lazyt_executable_t*)> handle(raw, t.release);
  std::vector<lazyt_output_meta_t> metas(program.block()->outputs.count);
  for (uint64_t i = 0; i < metas.size(); i++) {
    metas[i] = {};
    metas[i].struct_size = sizeof metas[i];
    LAZYT_RETURN_IF_ERROR(asked(plugin, "executable.output_meta", t.output_meta(raw, i, &metas[i])));
    metas[i].next = nullptr;
    if (!power_of_two_or_zero(metas[i].alignment))
      return misbehaved(plugin, "executable.output_meta",
                        fmt::format("alignment {} of output {} is not a power of two", metas[i].alignment, i));
  }
  return base::Ref<Executable>(new Executable(device, handle.release(), std::move(metas)));
}

Executable::~Executable() { device->table().executable->release(handle); }

base::Result<base::Ref<Event>> Executable::execute(std::span<const ExecuteInput> inputs,
                                                   std::span<const Buffer* const> outputs,
                                                   std::span<const base::Ref<Event>> waits) const {
  // Kept by thread: a launch then allocates nothing.
  thread_local std::vector<lazyt_execute_input_t> raw_inputs;
  thread_local std::vector<lazyt_buffer_t*> raw_outputs;
  thread_local std::vector<lazyt_event_t*> raw_waits;
  raw_inputs.clear();
  raw_outputs.clear();
  raw_waits.clear();
  for (const ExecuteInput& in : inputs)
    raw_inputs.push_back({in.buffer ? in.buffer->handle : nullptr, in.scalar, in.stable_id, in.content_version,
                          in.donated ? LAZYT_EXECUTE_DONATED : 0});
  for (const Buffer* out : outputs) raw_outputs.push_back(out->handle);
  for (const base::Ref<Event>& event : waits) {
    if (!event) continue;
    // A plugin can wait for its own events only.
    if (event->device->plugin == device->plugin)
      raw_waits.push_back(event->handle);
    else
      LAZYT_RETURN_IF_ERROR(event->wait());
  }
  lazyt_execute_args_t args{};
  args.struct_size = sizeof args;
  args.inputs = raw_inputs.data();
  args.input_count = raw_inputs.size();
  args.input_stride = sizeof(lazyt_execute_input_t);
  args.outputs = raw_outputs.data();
  args.output_count = raw_outputs.size();
  args.waits = {raw_waits.data(), raw_waits.size()};
  lazyt_event_t* event = nullptr;
  LAZYT_RETURN_IF_ERROR(asked(*device->plugin, "executable.execute", device->table().executable->execute(handle, &args, &event)));
  if (!event) return misbehaved(*device->plugin, "executable.execute", "success without an event (EXE-2)");
  return base::make_ref<Event>(device, event);
}

base::Result<std::vector<NodeAnswer>> query_capability(const Device& device, const ir::Program& program) {
  const uint64_t count = program.block()->nodes.count;
  std::vector<lazyt_answer_t> raw(count);
  for (lazyt_answer_t& a : raw) a.struct_size = sizeof a;
  LAZYT_RETURN_IF_ERROR(
      asked(*device.plugin, "capability.query",
            device.table().capability->query(device.handle, program.block(), raw.data(), count, sizeof(lazyt_answer_t))));
  std::vector<NodeAnswer> answers;
  answers.reserve(count);
  for (const lazyt_answer_t& a : raw) {
    // An answer or a condition of a later minor is one that this host cannot keep.
    if (a.kind < LAZYT_ANSWER_REFUSE || a.kind > LAZYT_ANSWER_ONLY_IF ||
        (a.kind == LAZYT_ANSWER_ONLY_IF && a.condition > LAZYT_CONDITION_STATIC_DIMS)) {
      answers.push_back({});
      answers.back().detail = fmt::format("answer {} with condition {} is not known to this host", a.kind, a.condition);
      continue;
    }
    answers.push_back({a.kind, a.reason, a.condition, a.group, a.cost_ns, to_string(a.detail)});
  }
  return answers;
}

}  // namespace lazyt::loader
