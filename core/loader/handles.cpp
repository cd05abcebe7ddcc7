#include "loader/handles.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "base/free_list.h"
#include "base/log.h"
#include "loader/library.h"

namespace lazyt::loader {
namespace {

base::Status misbehaved(const Plugin& plugin, const char* function, std::string_view what) {
  return base::internal(fmt::format("plugin '{}' broke the contract of {}: {}; report this to {}", plugin.info.name,
                                    function, what, plugin.info.vendor.empty() ? "its vendor" : plugin.info.vendor))
      .with_note("library", plugin.info.path);
}

base::Status lacks(const Plugin& plugin, const char* function) {
  return base::unimplemented(fmt::format("plugin '{}' does not offer {}", plugin.info.name, function));
}

constinit base::FreeList<sizeof(Buffer)> buffer_memory;

bool power_of_two_or_zero(uint64_t n) { return n == 0 || std::has_single_bit(n); }

// The loss of the device of this number in this process, if it was lost: opening it again would hang again.
base::Status lost_device(const Plugin& plugin, uint32_t index) {
  for (const auto& subject : lost_subjects())
    if (auto* device = dynamic_cast<const Device*>(subject.get()); device && device->plugin.get() == &plugin && device->info.index == index)
      return device->lost_status();
  return plugin.subject->lost_status();
}

}  // namespace

Plugin::~Plugin() {
  close_library(*this, library_);
  if (subject->lost()) subject->keep(layers_.release());  // a hung call may come back through them
}

// ---- devices

base::Result<base::Ref<Device>> Device::open(base::Ref<Plugin> plugin, uint32_t index) {
  const lazyt_plugin_device_t* t = plugin->table->device;
  const Subject& subject = *plugin->subject;
  LAZYT_RETURN_IF_ERROR(lost_device(*plugin, index));
  uint32_t count = 0;
  LAZYT_RETURN_IF_ERROR(call(subject, "device.count", count, [t](uint32_t& out) { return t->count(&out); }));
  if (count == 0)
    return base::unavailable(fmt::format("backend '{}' has no device: {}", plugin->info.name,
                                         plugin->info.why_none.empty() ? "it gives no reason" : plugin->info.why_none));
  if (index >= count)
    return base::invalid_argument(fmt::format("backend '{}' has {} device{}, there is no number {}", plugin->info.name,
                                              count, count == 1 ? "" : "s", index));
  lazyt_device_info_t raw{};
  raw.struct_size = sizeof raw;
  LAZYT_RETURN_IF_ERROR(
      call(subject, "device.describe", raw, [t, index](lazyt_device_info_t& out) { return t->describe(index, &out); }));
  if (!power_of_two_or_zero(raw.alignment))
    return misbehaved(*plugin, "device.describe", fmt::format("alignment {} is not a power of two", raw.alignment));
  DeviceInfo info{index,
                  to_string(raw.name),
                  to_string(raw.vendor),
                  raw.flags,
                  raw.total_bytes,
                  std::max<uint64_t>(raw.alignment, 1),
                  raw.dlpack_type,
                  raw.dlpack_id};
  lazyt_device_t* handle = nullptr;
  LAZYT_RETURN_IF_ERROR(
      call(subject, "device.open", handle, [t, index](lazyt_device_t*& out) { return t->open(index, &out); }));
  if (!handle) return misbehaved(*plugin, "device.open", "success without a device");
  return base::Ref<Device>(new Device(std::move(plugin), std::move(info), handle));
}

Device::~Device() {
  // Never of a lost one, which lives for ever.
  give_back(*plugin->subject, *plugin, "device.close", handle, table().device->close);
}

std::string Device::what() const { return fmt::format("device {} ('{}') of backend '{}'", info.index, info.name, plugin->info.name); }

base::Result<lazyt_memory_stats_t> Device::memory_stats() const {
  settle();
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  LAZYT_RETURN_IF_ERROR(call(*this, "device.memory_stats", stats, [t = table().device, h = handle](lazyt_memory_stats_t& out) {
    return t->memory_stats(h, &out);
  }));
  stats.next = nullptr;
  return stats;
}

base::Status Device::trim() const {
  auto* trim = table().device->trim;
  if (!trim) return {};
  return call(*this, "device.trim", [trim, h = handle] { return trim(h); });
}

// ---- events

Event::~Event() {
  give_back(*device, *device, "event.release", handle, device->table().event->release);
}

base::Status Event::wait(std::optional<std::chrono::nanoseconds> timeout) const {
  const std::chrono::nanoseconds limit = deadline();
  const bool forever = !timeout && limit.count() == 0;
  const int64_t ns = std::max<int64_t>(timeout.value_or(limit).count(), 0);
  // The plugin may wait for that long; only then is it the call itself that hangs.
  const auto patience = limit.count() == 0 ? limit : std::chrono::nanoseconds(ns) + limit / 4;
  struct Nothing {
  } nothing;
  const auto ask = [&] {
    return call(*this->device, "event.wait", nothing,
                [t = device->table().event, h = handle, ns = forever ? LAZYT_WAIT_FOREVER : uint64_t(ns)](
                    Nothing&) { return t->wait(h, ns); },
                patience);
  };
  base::Status status = ask();
  // The work, which is tried again where it lacked memory (EXE-6), or only the wait? An event's own error stays.
  if (status.code() == LAZYT_CODE_RESOURCE_EXHAUSTED) status = ask();
  // The event's own status may be a DEADLINE_EXCEEDED, too: then it is ready.
  if (timeout || status.code() != LAZYT_CODE_DEADLINE_EXCEEDED || device->lost() || ask_ready().value_or(false)) return status;
  return device->lose("the work behind an event", limit);
}

std::optional<bool> Event::ask_ready() const {
  uint32_t ready = 0;
  base::Status status = call(*device, "event.ready", ready,
                             [t = device->table().event, h = handle](uint32_t& out) { return t->ready(h, &out); });
  return status.ok() ? std::optional(ready != 0) : std::nullopt;
}

bool Event::ready() const {
  if (const auto ready = ask_ready()) return *ready;
  // An event that cannot be asked is waited for: who hears that it is ready may release what its work used.
  (void)wait();
  return true;
}

// ---- buffers

base::Result<base::Ref<Buffer>> Buffer::alloc(const base::Ref<Device>& device, uint64_t size, uint64_t alignment,
                                              uint32_t memory_space) {
  lazyt_buffer_t* handle = nullptr;
  LAZYT_RETURN_IF_ERROR(call(*device, "buffer.alloc", handle,
                             [t = device->table().buffer, h = device->handle, size, alignment, memory_space](lazyt_buffer_t*& out) {
                               lazyt_buffer_desc_t desc{sizeof desc, nullptr, size, alignment, memory_space, 0};
                               return t->alloc(h, &desc, &out);
                             }));
  if (!handle) return misbehaved(*device->plugin, "buffer.alloc", "success without a buffer");
  return base::make_ref<Buffer>(device, handle, size);
}

base::Result<base::Ref<Buffer>> Buffer::from_host(const base::Ref<Device>& device, const void* data, uint64_t size,
                                                  Keep keep) {
  lazyt_buffer_t* handle = nullptr;
  LAZYT_RETURN_IF_ERROR(call(*device, "buffer.from_host", handle,
                             [t = device->table().buffer, h = device->handle, data, size, keep = std::move(keep)](lazyt_buffer_t*& out) {
                               lazyt_host_bytes_t bytes{};
                               bytes.struct_size = sizeof bytes;
                               bytes.data = data;
                               bytes.size_bytes = size;
                               bytes.sharing = LAZYT_SHARING_COPY;
                               return t->from_host(h, &bytes, &out);
                             }));
  if (!handle) return misbehaved(*device->plugin, "buffer.from_host", "success without a buffer");
  return base::make_ref<Buffer>(device, handle, size);
}

Buffer::~Buffer() {
  give_back(*device, *device, "buffer.release", handle, device->table().buffer->release);
}

void* Buffer::operator new(size_t) { return buffer_memory.take(); }
void Buffer::operator delete(void* p) noexcept { buffer_memory.give_back(p); }

void Buffer::expose(bool on) const {
  if (!on) return exposed_.store(nullptr, std::memory_order_relaxed);
  auto pointer = host_pointer();  // a plugin that has none is asked for copies
  if (pointer.ok()) exposed_.store(static_cast<const uint8_t*>(pointer.value()), std::memory_order_release);
}

base::Status Buffer::to_host(uint64_t offset, void* dst, uint64_t bytes, Keep keep) const {
  if (const uint8_t* bytes_here = exposed_.load(std::memory_order_acquire);
      bytes_here && offset <= size && bytes <= size - offset && !device->lost()) {
    std::memcpy(dst, bytes_here + offset, bytes);
    return {};
  }
  return call(*device, "buffer.to_host",
              [t = device->table().buffer, h = handle, offset, dst, bytes, keep = std::move(keep)] {
                return t->to_host(h, offset, dst, bytes, {nullptr, 0}, nullptr);
              });
}

base::Result<base::Ref<Event>> Buffer::copy_from(const Buffer& src, uint64_t src_offset, uint64_t offset, uint64_t bytes,
                                                 const base::Ref<Event>& wait) const {
  lazyt_event_t* event = nullptr;
  LAZYT_RETURN_IF_ERROR(call(*device, "buffer.copy", event,
                             [t = device->table().buffer, from = src.handle, src_offset, to = handle, offset, bytes, wait](lazyt_event_t*& out) {
                               lazyt_event_t* const waits[] = {wait ? wait->handle : nullptr};
                               return t->copy(from, src_offset, to, offset, bytes, {waits, wait ? uint64_t{1} : 0}, &out);
                             }));
  return event ? base::make_ref<Event>(device, event) : base::Ref<Event>();
}

base::Result<void*> Buffer::host_pointer() const {
  auto* get = device->table().buffer->host_pointer;
  if (!get) return lacks(*device->plugin, "buffer.host_pointer");
  void* pointer = nullptr;
  LAZYT_RETURN_IF_ERROR(call(*device, "buffer.host_pointer", pointer, [get, h = handle](void*& out) { return get(h, &out); }));
  if (!pointer && size != 0) return misbehaved(*device->plugin, "buffer.host_pointer", "success without an address");
  return pointer;
}

base::Result<base::Ref<Buffer>> Buffer::import_dlpack(const base::Ref<Device>& device, DLManagedTensorVersioned* tensor,
                                                      uint64_t size) {
  auto* import = device->table().buffer->import_dlpack;
  if (!import) return lacks(*device->plugin, "buffer.import_dlpack");
  lazyt_buffer_t* handle = nullptr;
  LAZYT_RETURN_IF_ERROR(call(*device, "buffer.import_dlpack", handle, [import, h = device->handle, tensor](lazyt_buffer_t*& out) {
    return import(h, tensor, nullptr, &out);
  }));
  if (!handle) return misbehaved(*device->plugin, "buffer.import_dlpack", "success without a buffer");
  return base::make_ref<Buffer>(device, handle, size);
}

base::Result<DLManagedTensorVersioned*> Buffer::export_dlpack() const {
  auto* get = device->table().buffer->export_dlpack;
  if (!get) return lacks(*device->plugin, "buffer.export_dlpack");
  DLManagedTensorVersioned* tensor = nullptr;
  LAZYT_RETURN_IF_ERROR(
      call(*device, "buffer.export_dlpack", tensor, [get, h = handle](DLManagedTensorVersioned*& out) { return get(h, &out); }));
  if (!tensor) return misbehaved(*device->plugin, "buffer.export_dlpack", "success without a tensor");
  return tensor;
}

// ---- executables

base::Result<base::Ref<Executable>> Executable::compile(const base::Ref<Device>& device, const ir::Program& program,
                                                        lazyt_compile_flags_t flags) {
  const Plugin& plugin = *device->plugin;
  const lazyt_plugin_executable_t* t = device->table().executable;
  lazyt_executable_t* raw = nullptr;
  LAZYT_RETURN_IF_ERROR(call(*device, "executable.compile", raw,
                             [t, h = device->handle, program = base::Ref<const ir::Program>(&program), flags](lazyt_executable_t*& out) {
                               lazyt_compile_args_t args{sizeof args, nullptr, program->block(), flags};
                               return t->compile(h, &args, &out);
                             }));
  if (!raw) return misbehaved(plugin, "executable.compile", "success without an executable");

  auto executable = base::Ref<Executable>(new Executable(device, raw));
  executable->output_metas_.resize(program.block()->outputs.count);
  for (uint64_t i = 0; i < executable->output_metas_.size(); i++) {
    lazyt_output_meta_t& meta = executable->output_metas_[i];
    meta.struct_size = sizeof meta;
    LAZYT_RETURN_IF_ERROR(
        call(*device, "executable.output_meta", meta, [t, raw, i](lazyt_output_meta_t& out) { return t->output_meta(raw, i, &out); }));
    meta.next = nullptr;
    if (!power_of_two_or_zero(meta.alignment))
      return misbehaved(plugin, "executable.output_meta",
                        fmt::format("alignment {} of output {} is not a power of two", meta.alignment, i));
  }
  lazyt_executable_memory_t memory{};
  memory.struct_size = sizeof memory;
  LAZYT_RETURN_IF_ERROR(
      call(*device, "executable.memory", memory, [t, raw](lazyt_executable_memory_t& out) { return t->memory(raw, &out); }));
  executable->keeps_nothing_ = (memory.flags & LAZYT_EXECUTABLE_KEEPS_NOTHING) != 0;
  return executable;
}

Executable::~Executable() {
  give_back(*device, *device, "executable.release", handle, device->table().executable->release);
}

base::Result<base::Ref<Event>> Executable::execute(std::span<const ExecuteInput> inputs,
                                                   std::span<const Buffer* const> outputs,
                                                   std::span<const base::Ref<Event>> waits) const {
  struct Arguments {
    std::vector<lazyt_execute_input_t> inputs;
    std::vector<lazyt_buffer_t*> outputs;
    std::vector<lazyt_event_t*> waits;
    lazyt_event_t* event = nullptr;
  };
  thread_local Arguments a;  // a launch then allocates nothing
  a.inputs.clear();
  a.outputs.clear();
  a.waits.clear();
  a.event = nullptr;
  for (const ExecuteInput& in : inputs)
    a.inputs.push_back({in.buffer ? in.buffer->handle : nullptr, in.scalar, in.stable_id, in.content_version,
                        in.donated ? LAZYT_EXECUTE_DONATED : 0});
  for (const Buffer* out : outputs) a.outputs.push_back(out->handle);
  for (const base::Ref<Event>& event : waits) {
    if (!event) continue;
    // A plugin can wait for its own events only.
    if (event->device->plugin == device->plugin)
      a.waits.push_back(event->handle);
    else
      LAZYT_RETURN_IF_ERROR(event->wait());
  }
  LAZYT_RETURN_IF_ERROR(call(*device, "executable.execute", a, [t = device->table().executable, h = handle](Arguments& a) {
    lazyt_execute_args_t args{};
    args.struct_size = sizeof args;
    args.inputs = a.inputs.data();
    args.input_count = a.inputs.size();
    args.input_stride = sizeof(lazyt_execute_input_t);
    args.outputs = a.outputs.data();
    args.output_count = a.outputs.size();
    args.waits = {a.waits.data(), a.waits.size()};
    return t->execute(h, &args, &a.event);
  }));
  if (!a.event) return misbehaved(*device->plugin, "executable.execute", "success without an event (EXE-2)");
  return base::make_ref<Event>(device, a.event);
}

base::Result<std::vector<NodeAnswer>> query_capability(const Device& device, const ir::Program& program) {
  const uint64_t count = program.block()->nodes.count;
  std::vector<lazyt_answer_t> raw(count);
  for (lazyt_answer_t& a : raw) a.struct_size = sizeof a;
  LAZYT_RETURN_IF_ERROR(call(device, "capability.query", raw,
                             [t = device.table().capability, h = device.handle,
                              program = base::Ref<const ir::Program>(&program)](std::vector<lazyt_answer_t>& out) {
                               return t->query(h, program->block(), out.data(), out.size(), sizeof(lazyt_answer_t));
                             }));
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

base::Status add_kernel(const Device& device, const CustomKernel& kernel) {
  const lazyt_plugin_t* plugin = device.plugin->table;
  const lazyt_custom_kernel_t* table = nullptr;
  if (plugin->get_extension)
    LAZYT_RETURN_IF_ERROR(call(device, "plugin.get_extension", table, [plugin](const lazyt_custom_kernel_t*& out) -> lazyt_status_t* {
      out = static_cast<const lazyt_custom_kernel_t*>(plugin->get_extension(to_abi(LAZYT_CUSTOM_KERNEL_ID)));
      return nullptr;
    }));
  if (!table || !LAZYT_HAS_FIELD(table, lazyt_custom_kernel_t, add) || !table->add)
    return base::Status(LAZYT_CODE_UNIMPLEMENTED, fmt::format("backend '{}' takes no kernels of users ({})", device.plugin->info.name,
                                                              LAZYT_CUSTOM_KERNEL_ID));
  return call(device, "custom_kernel.add", [table, kernel] {
    lazyt_kernel_desc_t desc{};
    desc.struct_size = sizeof desc;
    desc.name = to_abi(kernel.name);
    desc.kind = kernel.function ? LAZYT_KERNEL_FUNCTION : LAZYT_KERNEL_CUDA_C;
    desc.function = kernel.function;
    desc.user_data = kernel.user_data;
    desc.source = to_abi(kernel.source);
    desc.entry = to_abi(kernel.entry);
    std::copy(kernel.grid.begin(), kernel.grid.end(), desc.grid);
    std::copy(kernel.block.begin(), kernel.block.end(), desc.block);
    return table->add(&desc);
  });
}

}  // namespace lazyt::loader
