// The validate layer: checks at each call what the headers' rules demand of both sides, and names the rule.
//
// A call of the host that breaks a rule is refused with INTERNAL (a release is dropped); what the plugin did
// wrong is reported and passed on, or becomes an error where passing it on would end the process. To see when
// work is done the layer holds a reference to its event until it was seen ready. sdk_docs/layers.md lists the
// rules.
//
// Locks: mutex_ guards all state and is never held while another side is called.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/hash.h"
#include "layers/layer.h"
#include "layers/violation.h"

namespace lazyt::layers {

struct DeviceState {
  uint32_t index = 0;
  lazyt_device_flags_t flags = 0;
  std::atomic<const char*> busy{nullptr};  // the [device] function that runs
};

struct BufferState {
  std::shared_ptr<DeviceState> device;
  uint64_t size = 0;
  uint64_t alignment = 0;
  lazyt_sharing_t sharing = LAZYT_SHARING_COPY;
  uint64_t writes = 0;  // operations that write it, begun so far
  int looks = 0;        // threads of the layer that read its bytes: Validate::unlooked
  bool opaque = false;
  bool writable() const { return sharing == LAZYT_SHARING_COPY || sharing == LAZYT_SHARING_ALIAS_MUTABLE; }
};

struct EventState {
  std::shared_ptr<DeviceState> device;  // null: of several
  uint64_t references = 1;              // the host's
  bool ready = false;
  std::optional<std::pair<lazyt_code_t, std::string>> outcome;  // once it was told
};

struct ExecutableState {
  struct Input {
    bool scalar = false, may_donate = false;
    uint64_t bytes = 0;  // that dims and strides reach; 0 where a dim is symbolic
  };
  struct Output {
    uint32_t donor = LAZYT_NONE;
    uint64_t bytes = 0, meta_bytes = 0;  // the second as output_meta answered
    bool opaque = false;
  };
  std::shared_ptr<DeviceState> device;
  bool known = false;  // inputs and outputs are; not for a loaded one
  std::vector<Input> inputs;
  std::vector<Output> outputs;
};

// An operation whose event was not seen ready yet.
struct Work {
  const char* function = "";
  lazyt_event_t* event = nullptr;     // one reference is the layer's
  std::vector<lazyt_event_t*> waits;  // the same
  const char* wait_rule = "BUF-6";    // what says that their errors are passed on
  const char* must_fail = nullptr;    // the rule that says so
  std::string why;
  std::shared_ptr<DeviceState> device;
  std::vector<std::shared_ptr<BufferState>> reads, writes;
  struct Kept {
    lazyt_buffer_t* handle;
    std::shared_ptr<BufferState> buffer;
    uint64_t writes;
    base::Hash128 bytes;
    bool donated;
  };
  std::vector<Kept> kept;                  // inputs that may not change: EXE-4, or donated ones EXE-6
  std::vector<lazyt_buffer_t*> postponed;  // released by the host too early
};

template <class Handle, class State>
class Handles {
 public:
  std::shared_ptr<State> find(Handle* handle) const {
    auto it = live_.find(handle);
    return it == live_.end() ? nullptr : it->second;
  }
  void add(Handle* handle, std::shared_ptr<State> state) {
    released_.erase(handle);
    live_[handle] = std::move(state);
  }
  void remove(Handle* handle) {
    live_.erase(handle);
    if (released_.size() > 65536) released_.clear();
    released_.insert(handle);
  }
  bool was_released(Handle* handle) const { return released_.contains(handle); }
  const std::unordered_map<Handle*, std::shared_ptr<State>>& live() const { return live_; }

 private:
  std::unordered_map<Handle*, std::shared_ptr<State>> live_;
  std::unordered_set<Handle*> released_;
};

class Validate final : public Layer {
 public:
  explicit Validate(bool abort) : abort_(abort) {}
  void closed() override;

  lazyt_status_t* init() override;
  void shutdown() override;
  lazyt_status_t* info(lazyt_plugin_info_t* out) override;
  lazyt_status_t* device_count(uint32_t* out) override;
  lazyt_status_t* device_describe(uint32_t index, lazyt_device_info_t* out) override;
  lazyt_status_t* device_open(uint32_t index, lazyt_device_t** out) override;
  void device_close(lazyt_device_t* device) override;
  lazyt_status_t* device_memory_stats(lazyt_device_t* device, lazyt_memory_stats_t* out) override;
  lazyt_status_t* device_trim(lazyt_device_t* device) override;
  lazyt_status_t* buffer_alloc(lazyt_device_t* device, const lazyt_buffer_desc_t* desc,
                               lazyt_buffer_t** out) override;
  lazyt_status_t* buffer_from_host(lazyt_device_t* device, const lazyt_host_bytes_t* bytes,
                                   lazyt_buffer_t** out) override;
  lazyt_status_t* buffer_to_host(lazyt_buffer_t* buffer, uint64_t offset, void* dst, uint64_t size,
                                 lazyt_events_t waits, lazyt_event_t** out) override;
  lazyt_status_t* buffer_copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst,
                              uint64_t dst_offset, uint64_t size, lazyt_events_t waits,
                              lazyt_event_t** out) override;
  lazyt_status_t* buffer_size(lazyt_buffer_t* buffer, uint64_t* out) override;
  lazyt_status_t* buffer_host_pointer(lazyt_buffer_t* buffer, void** out) override;
  lazyt_status_t* buffer_import_dlpack(lazyt_device_t* device, DLManagedTensorVersioned* tensor,
                                       lazyt_event_t* wait, lazyt_buffer_t** out) override;
  lazyt_status_t* buffer_export_dlpack(lazyt_buffer_t* buffer, DLManagedTensorVersioned** out) override;
  void buffer_release(lazyt_buffer_t* buffer) override;
  lazyt_status_t* event_ready(lazyt_event_t* event, uint32_t* out) override;
  lazyt_status_t* event_wait(lazyt_event_t* event, uint64_t timeout_ns) override;
  lazyt_status_t* event_on_ready(lazyt_event_t* event, lazyt_event_callback_t callback,
                                 void* user_data) override;
  void event_retain(lazyt_event_t* event) override;
  void event_release(lazyt_event_t* event) override;
  lazyt_status_t* capability_query(lazyt_device_t* device, const lazyt_program_t* program,
                                   lazyt_answer_t* answers, uint64_t count, uint64_t stride) override;
  lazyt_status_t* executable_compile(lazyt_device_t* device, const lazyt_compile_args_t* args,
                                     lazyt_executable_t** out) override;
  lazyt_status_t* executable_output_meta(lazyt_executable_t* executable, uint64_t index,
                                         lazyt_output_meta_t* out) override;
  lazyt_status_t* executable_memory(lazyt_executable_t* executable, lazyt_executable_memory_t* out) override;
  lazyt_status_t* executable_execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args,
                                     lazyt_event_t** out) override;
  lazyt_status_t* executable_serialize(lazyt_executable_t* executable, lazyt_write_t write,
                                       void* user_data) override;
  lazyt_status_t* executable_load(lazyt_device_t* device, const void* data, uint64_t size,
                                  lazyt_executable_t** out) override;
  lazyt_status_t* executable_identity(lazyt_device_t* device, lazyt_string_t* out) override;
  void executable_release(lazyt_executable_t* executable) override;

  lazyt_status_t* status_create(lazyt_code_t code, lazyt_string_t message) override;
  void status_annotate(lazyt_status_t* status, lazyt_string_t where, lazyt_string_t detail) override;
  lazyt_code_t status_code(const lazyt_status_t* status) override;
  lazyt_string_t status_message(const lazyt_status_t* status) override;
  uint64_t status_note_count(const lazyt_status_t* status) override;
  void status_note(const lazyt_status_t* status, uint64_t index, lazyt_string_t* out_where,
                   lazyt_string_t* out_detail) override;
  lazyt_status_t* status_retain(lazyt_status_t* status) override;
  void status_release(lazyt_status_t* status) override;
  void* service_alloc(uint64_t size, uint64_t alignment) override;
  void service_free(void* pointer) override;
  lazyt_status_t* service_option(lazyt_string_t plugin, lazyt_string_t name, lazyt_string_t* out) override;
  lazyt_status_t* service_cache_get(lazyt_string_t key, void** out_data, uint64_t* out_size) override;
  lazyt_status_t* service_cache_put(lazyt_string_t key, const void* data, uint64_t size) override;

 private:
  friend class Call;  // validate_call.h: one call of the host while it is checked
  friend struct EventCallback;
  friend struct BytesCallback;

  struct Block {
    void* start;  // of the host's allocation
    uint64_t front, size;
  };

  void report(Side side, const char* rule, const char* function, std::string seen);
  // A status that the plugin gives to the host; another where it had none to give.
  lazyt_status_t* take(lazyt_status_t* status, const char* function);
  lazyt_status_t* give(lazyt_status_t* status);  // the other way
  bool holds(const lazyt_status_t* status, const char* function);
  void may_call_host(const char* function);
  static std::string damage(const Block& block);
  void check_guards(const char* function);  // of all memory that the plugin holds

  // The event's own status once it is ready; nullopt before.
  std::optional<std::pair<lazyt_code_t, std::string>> outcome(lazyt_event_t* event);
  bool was_ready(const EventState& state);
  bool seen_ready(lazyt_event_t* event);
  bool surely_ready(lazyt_event_t* event);  // before somebody is blamed that it is not
  void add_event(lazyt_event_t* event, const std::shared_ptr<DeviceState>& device);
  void begin(std::shared_ptr<Work> work, lazyt_event_t* event, lazyt_events_t waits);
  // What can be said when work is done; `event`: all of it that has this event.
  void settle(const std::shared_ptr<Work>& work);
  void settle(lazyt_event_t* event);
  void sweep();
  void check_kept(const Work& work, lazyt_code_t outcome);
  void check_told(lazyt_event_t* event, EventState& state, lazyt_status_t* status, const char* function);
  std::vector<std::shared_ptr<Work>> pending();
  bool is_written(const std::shared_ptr<BufferState>& buffer);  // REQUIRES: mutex_
  // Waits until no other thread, which settles work that is done, reads bytes that are about to go.
  void unlooked(std::unique_lock<std::mutex>& lock, const BufferState& buffer);
  void* address(lazyt_buffer_t* handle, const BufferState& buffer);
  // Of bytes that the CPU can see and that no work writes.
  std::optional<base::Hash128> content(lazyt_buffer_t* handle, const std::shared_ptr<BufferState>& buffer);
  void check_waits(lazyt_events_t waits, const char* rule, const char* function);

  const bool abort_;
  std::mutex mutex_;
  std::condition_variable looked_;
  std::string name_;  // the plugin's
  enum class Phase { kKnown, kRunning, kShutDown };
  std::atomic<Phase> phase_{Phase::kKnown};
  std::atomic<int64_t> count_{-1};  // devices; -1: not asked yet
  Handles<lazyt_device_t, DeviceState> devices_;
  Handles<lazyt_buffer_t, BufferState> buffers_;
  Handles<lazyt_event_t, EventState> events_;
  Handles<lazyt_executable_t, ExecutableState> executables_;
  std::list<std::shared_ptr<Work>> pending_;
  std::deque<std::shared_ptr<struct EventCallback>> event_callbacks_;
  std::deque<std::shared_ptr<struct BytesCallback>> bytes_callbacks_;
  struct Answers {
    std::vector<lazyt_answer_t> of_nodes;
    bool all_taken = false;
  };
  std::unordered_map<base::Hash128, Answers, base::Hash128::Hasher> answers_;  // by program and device
  std::map<std::pair<uint64_t, uint64_t>, base::Hash128> contents_;            // EXE-7
  std::unordered_map<const lazyt_status_t*, int64_t> statuses_;                // the plugin's references
  std::unordered_map<void*, Block> blocks_;
};

}  // namespace lazyt::layers
