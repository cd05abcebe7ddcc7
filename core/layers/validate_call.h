// One call of the host while the validate layer checks it. Used by the parts of Validate only.
#pragma once

#include <cxxabi.h>

#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "layers/validate.h"

namespace lazyt::layers {

class Call {
 public:
  Call(Validate& layer, const char* function) : v(layer), function(function) {}
  ~Call() {
    if (busy_) busy_->busy.store(nullptr);
  }

  void plugin(const char* rule, std::string seen) {
    v.report(Side::kPlugin, rule, function, std::move(seen));
  }
  // The host's mistake: the call is refused.
  void host(const char* rule, const std::string& seen) {
    v.report(Side::kHost, rule, function, seen);
    if (!refused_) refusal_ = fmt::format("the host broke {} in {}: {}", rule, function, seen);
    refused_ = true;
  }
  bool refused() const { return refused_; }
  lazyt_status_t* refusal() const { return error(refusal_); }
  lazyt_status_t* error(const std::string& message) const {
    return v.above->status->create(LAZYT_CODE_INTERNAL, {message.data(), message.size()});
  }

  // The state of a live handle; null, and the call refused, for another.
  template <class Handle, class State>
  std::shared_ptr<State> use(const Handles<Handle, State>& handles, Handle* handle, const char* what) {
    if (v.phase_ != Validate::Phase::kRunning) host("LIB-9", "called while the plugin is not running");
    std::unique_lock lock(v.mutex_);
    std::shared_ptr<State> state = handles.find(handle);
    const bool released = handles.was_released(handle);
    lock.unlock();
    if (!state)
      host("C-13", !handle    ? fmt::format("{} is NULL", what)
                   : released ? fmt::format("{} was released before", what)
                              : fmt::format("{} is no handle that this plugin gave", what));
    return state;
  }

  // Tag [device]: one call at a time for each device handle.
  void alone(const std::shared_ptr<DeviceState>& device) {
    if (!device) return;
    if (const char* other = device->busy.exchange(function))
      host("C-9", fmt::format("{} of the same device is running", other));
    busy_ = device;
  }

  template <class T>
  bool sized(const T* pointer, const char* type) {
    if (pointer && pointer->struct_size >= sizeof(T)) return true;
    host("C-1", pointer ? fmt::format("{} says {} bytes, it has {}", type, pointer->struct_size, sizeof(T))
                        : fmt::format("{} is NULL", type));
    return false;
  }

  // Calls the plugin. Its status is the host's from now on.
  template <class F>
  lazyt_status_t* run(F f) {
    lazyt_status_t* status = nullptr;
    std::string left;
    try {
      if constexpr (std::is_void_v<decltype(f())>)
        f();
      else
        status = f();
#ifdef __GLIBCXX__  // a thread that is cancelled unwinds by it; other C++ libraries have no name for it
    } catch (abi::__forced_unwind&) {
      throw;
#endif
    } catch (const std::exception& e) {
      left = fmt::format("an exception left it: {}", e.what());
    } catch (...) {
      left = "an exception left it";
    }
    if (left.empty()) return v.take(status, function);
    plugin("C-7", left);
    return error(left);
  }

  // Hands `value` out if the call succeeded. rule: what says that there is one then.
  template <class T>
  lazyt_status_t* hand_out(lazyt_status_t* status, T* value, T** out, const char* rule) {
    if (status) {
      if (value != unwritten<T>()) plugin("STA-1", "it failed and wrote its result");
      return status;
    }
    if (!value || value == unwritten<T>()) {
      plugin(rule, "it succeeded without a result");
      return error(fmt::format("{} succeeded without a result ({})", function, rule));
    }
    *out = value;
    return nullptr;
  }
  // What an out_ pointer points at before the call.
  template <class T>
  static T* unwritten() {
    return reinterpret_cast<T*>(uintptr_t{0x5a5a5a50});
  }

  // A struct that the plugin fills, with room behind it that it must leave alone (C-1).
  template <class T, class F>
  lazyt_status_t* fill(T* out, F f) {
    struct {
      T value;
      uint8_t behind[64];
    } room;
    std::memcpy(&room.value, out, sizeof(T));
    std::memset(room.behind, 0x5a, sizeof room.behind);
    lazyt_status_t* status = run([&] { return f(&room.value); });
    for (uint8_t byte : room.behind) {
      if (byte == 0x5a) continue;
      plugin("C-1", fmt::format("it wrote behind the {} bytes of the struct", out->struct_size));
      break;
    }
    if (status && std::memcmp(&room.value, out, sizeof(T)) != 0)
      plugin("STA-1", "it failed and wrote its result");
    if (!status) std::memcpy(out, &room.value, sizeof(T));
    return status;
  }

  lazyt_code_t code(lazyt_status_t* status) const {
    return status ? v.above->status->code(status) : LAZYT_CODE_OK;
  }

  Validate& v;
  const char* const function;

 private:
  bool refused_ = false;
  std::string refusal_;
  std::shared_ptr<DeviceState> busy_;
};

// The host's callback for an event, with how often it ran.
struct EventCallback {
  Validate& v;
  lazyt_event_callback_t call;
  void* user_data;
  lazyt_event_t* event;
  std::shared_ptr<EventState> state;
  std::atomic<int> runs{0};
  std::atomic<bool> failed{false};  // on_ready did
  static void run(void* self, lazyt_status_t* status);
};

// The host's callback for bytes that from_host shares.
struct BytesCallback {
  Validate& v;
  lazyt_host_bytes_done_t call;
  void* user_data;
  std::shared_ptr<DeviceState> device;
  std::atomic<int> runs{0};
  std::atomic<bool> failed{false};
  static void run(void* self);
};

// Strings that cross are UTF-8 (C-4), and not without bytes where they have a size.
bool is_text(lazyt_string_t text);

}  // namespace lazyt::layers
