// RAII over the plugin's C tables: the only objects through which the core calls a plugin (with exec/).
//
// Each handle keeps its device, and through it the library, alive, so that destruction in any
// order is safe. All are thread-safe to share; which calls may overlap is what lazyt/*.h say.
// A call that does not come back within the deadline (call.h) ends with UNAVAILABLE and a lost device, on which
// every later call is the same error. `keep`: what a call that was given up may still read or write.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "ir/program.h"
#include "layers/stack.h"
#include "lazyt/ext/draft/custom_kernel.h"
#include "lazyt/lazyt.h"
#include "loader/call.h"

namespace lazyt::loader {

using Keep = std::shared_ptr<const void>;

// The other way: a new ABI status, given; NULL for OK.
lazyt_status_t* to_abi(const base::Status& status);
// The table that plugins are handed.
const lazyt_host_t* host_table();

inline lazyt_string_t to_abi(std::string_view s) { return {s.data(), s.size()}; }
inline std::string to_string(lazyt_string_t s) { return s.size ? std::string(s.data, s.size) : std::string(); }

struct PluginInfo {
  std::string name, version, description, vendor, why_none;
  int32_t score = 0;
  uint32_t abi_minor = 0, min_host_minor = 0;
  std::string path;  // of the library
};

// A loaded and initialised library. Shut down and unloaded when the last reference goes.
class Plugin : public base::RefCounted {
 public:
  // layers: those that table goes through, or null.
  Plugin(void* library, const lazyt_plugin_t* table, PluginInfo info, std::unique_ptr<layers::Stack> layers = nullptr)
      : info(std::move(info)),
        table(table),
        subject(base::make_ref<Subject>(this->info.name)),
        library_(library),
        layers_(std::move(layers)) {}
  ~Plugin() override;
  const PluginInfo info;
  const lazyt_plugin_t* const table;
  const base::Ref<Subject> subject;  // of the calls for no device

 private:
  void* const library_;
  std::unique_ptr<layers::Stack> layers_;  // outlives the library
};

struct DeviceInfo {
  uint32_t index = 0;
  std::string name, vendor;
  lazyt_device_flags_t flags = 0;
  uint64_t total_bytes = 0, alignment = 1;
  int32_t dlpack_type = 0, dlpack_id = 0;
};

class Device : public Subject {
 public:
  // UNAVAILABLE for a device that was lost in this process.
  static base::Result<base::Ref<Device>> open(base::Ref<Plugin> plugin, uint32_t index);
  ~Device() override;
  const lazyt_plugin_t& table() const { return *plugin->table; }
  bool host_visible() const { return info.flags & LAZYT_DEVICE_HOST_VISIBLE; }
  base::Result<lazyt_memory_stats_t> memory_stats() const;
  // Asks the plugin to free what it only caches; OK if it caches nothing.
  base::Status trim() const;

  const base::Ref<Plugin> plugin;
  const DeviceInfo info;
  lazyt_device_t* const handle;

 private:
  Device(base::Ref<Plugin> p, DeviceInfo i, lazyt_device_t* h)
      : Subject(p->info.name, i.flags & LAZYT_DEVICE_SYNCHRONOUS), plugin(std::move(p)), info(std::move(i)), handle(h) {}
  std::string what() const override;
};

class Event : public base::RefCounted {
 public:
  Event(base::Ref<Device> device, lazyt_event_t* handle) : device(std::move(device)), handle(handle) {}  // takes handle over
  ~Event() override;
  // The event's own status; DEADLINE_EXCEEDED if not ready in time. nullopt waits until the deadline: work that
  // takes longer is taken for hung, and the device is lost.
  base::Status wait(std::optional<std::chrono::nanoseconds> timeout = std::nullopt) const;
  bool ready() const;
  const base::Ref<Device> device;
  lazyt_event_t* const handle;

 private:
  std::optional<bool> ask_ready() const;  // nothing if the plugin fails to answer
};

class Buffer final : public base::RefCounted {
 public:
  static void* operator new(size_t size);
  static void operator delete(void* p) noexcept;
  Buffer(base::Ref<Device> device, lazyt_buffer_t* handle, uint64_t size)
      : device(std::move(device)), handle(handle), size(size) {}  // takes handle over
  static base::Result<base::Ref<Buffer>> alloc(const base::Ref<Device>& device, uint64_t size,
                                               uint64_t alignment = 0, uint32_t memory_space = 0);
  // Copies the bytes before it returns.
  static base::Result<base::Ref<Buffer>> from_host(const base::Ref<Device>& device, const void* data, uint64_t size,
                                                   Keep keep = nullptr);
  ~Buffer() override;
  // Blocks until the bytes are in dst.
  base::Status to_host(uint64_t offset, void* dst, uint64_t size, Keep keep = nullptr) const;
  // Starts a copy of size bytes from src, of the same plugin, after `wait` (may be null). Null: it is done already.
  base::Result<base::Ref<Event>> copy_from(const Buffer& src, uint64_t src_offset, uint64_t offset, uint64_t size,
                                           const base::Ref<Event>& wait) const;
  // CPU address, for host-visible devices.
  base::Result<void*> host_pointer() const;
  // A buffer over a foreign tensor's memory, as dense bytes; takes the tensor over on success only.
  static base::Result<base::Ref<Buffer>> import_dlpack(const base::Ref<Device>& device, DLManagedTensorVersioned* tensor,
                                                       uint64_t size);
  // The bytes as a one-dimensional uint8 tensor, given, that keeps them alive.
  base::Result<DLManagedTensorVersioned*> export_dlpack() const;
  // On a worker: makes to_host of these bytes a plain copy, without a call, until they are next written by the
  // plugin; then call expose(false). REQUIRES: host-visible, not opaque, and no work that writes them unfinished.
  void expose(bool on) const;
  const base::Ref<Device> device;
  lazyt_buffer_t* const handle;
  const uint64_t size;

 private:
  mutable std::atomic<const uint8_t*> exposed_{nullptr};
};

struct ExecuteInput {
  const Buffer* buffer = nullptr;  // null: host scalar
  lazyt_scalar_t scalar{};
  uint64_t stable_id = 0, content_version = 0;
  bool donated = false;
};

class Executable : public base::RefCounted {
 public:
  static base::Result<base::Ref<Executable>> compile(const base::Ref<Device>& device, const ir::Program& program,
                                                     lazyt_compile_flags_t flags);
  ~Executable() override;
  // Starts the work; the event carries its outcome. REQUIRES: one call at a time per device.
  base::Result<base::Ref<Event>> execute(std::span<const ExecuteInput> inputs, std::span<const Buffer* const> outputs,
                                         std::span<const base::Ref<Event>> waits) const;
  const base::Ref<Device> device;
  lazyt_executable_t* const handle;
  const std::vector<lazyt_output_meta_t>& output_metas() const { return output_metas_; }
  // LAZYT_EXECUTABLE_KEEPS_NOTHING.
  bool keeps_nothing() const { return keeps_nothing_; }

 private:
  Executable(base::Ref<Device> d, lazyt_executable_t* h) : device(std::move(d)), handle(h) {}
  std::vector<lazyt_output_meta_t> output_metas_;
  bool keeps_nothing_ = false;
};

struct NodeAnswer {
  lazyt_answer_kind_t kind = LAZYT_ANSWER_REFUSE;
  lazyt_reason_t reason = LAZYT_REASON_NONE;
  lazyt_condition_t condition = LAZYT_CONDITION_NONE;
  uint32_t group = 0;
  uint64_t cost_ns = 0;
  std::string detail;
};
// One answer per node of the program.
base::Result<std::vector<NodeAnswer>> query_capability(const Device& device, const ir::Program& program);

// A user's kernel for the user's operator `name`, a function or CUDA C (lazyt/ext/draft/custom_kernel.h).
struct CustomKernel {
  std::string name;
  lazyt_kernel_function_t function = nullptr;
  void* user_data = nullptr;
  std::string source, entry;
  std::array<uint32_t, 3> grid{}, block{};
};
// UNIMPLEMENTED if the plugin takes none of this kind. Programs that were queried before must be asked for again.
base::Status add_kernel(const Device& device, const CustomKernel& kernel);

}  // namespace lazyt::loader
