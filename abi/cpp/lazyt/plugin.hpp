// plugin.hpp - C++20 over the C headers, for plugin authors. Header-only; needs no library.
//
//   Error, guard       exceptions inside, statuses at the edge (C-7)
//   Handle             which C++ class stands behind a C handle (C-6)
//   Event              a complete implementation of event.h
//   ProgramView        a program block as ranges, spans and string_views
//   take_events        waits of an operation, and the error they carry (BUF-6)
//
// All of it is hidden from the dynamic linker, so that two plugins built with different versions
// of this header live in one process.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_PLUGIN_HPP_
#define LAZYT_PLUGIN_HPP_

#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lazyt/lazyt.h"

namespace lazyt {
namespace plugin __attribute__((visibility("hidden"))) {

// ---- strings

inline std::string_view view(lazyt_string_t s) {
  return s.data ? std::string_view(s.data, s.size) : std::string_view();
}
// Borrows the characters of s.
inline lazyt_string_t to_c(std::string_view s) { return lazyt_string(s.data(), s.size()); }

// ---- the host

inline const lazyt_host_t* g_host = nullptr;

inline const lazyt_host_t& host() { return *g_host; }

// ---- errors

// What a plugin throws. Becomes a status with the same code, message and notes at the edge.
class Error : public std::exception {
 public:
  Error(lazyt_code_t code, std::string message) : code_(code), message_(std::move(message)) {}

  lazyt_code_t code() const { return code_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

  // Says where the error passed through, innermost first.
  Error& note(std::string where, std::string detail) {
    notes_.emplace_back(std::move(where), std::move(detail));
    return *this;
  }

  // A status (given) of the host.
  lazyt_status_t* to_status() const {
    const lazyt_host_status_t& table = *host().status;
    lazyt_status_t* status = table.create(code_, to_c(message_));
    for (const auto& [where, detail] : notes_) table.annotate(status, to_c(where), to_c(detail));
    return status;
  }

 private:
  lazyt_code_t code_;
  std::string message_;
  std::vector<std::pair<std::string, std::string>> notes_;
};

inline lazyt_status_t* make_status(lazyt_code_t code, std::string_view message) {
  return host().status->create(code, to_c(message));
}

// Throws INVALID_ARGUMENT with the message unless the condition holds.
inline void require(bool condition, const char* message) {
  if (!condition) throw Error(LAZYT_CODE_INVALID_ARGUMENT, message);
}

// The status (given) that stands for the exception being handled.
inline lazyt_status_t* current_exception_status() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    try {
      return e.to_status();
    } catch (...) {  // no memory for the copy: the host's create never fails
      return make_status(e.code(), "(message lost: out of memory)");
    }
  } catch (const std::bad_alloc&) {
    return make_status(LAZYT_CODE_RESOURCE_EXHAUSTED, "out of host memory");
  } catch (const std::exception& e) {
    return make_status(LAZYT_CODE_INTERNAL, e.what());
  } catch (...) {
    return make_status(LAZYT_CODE_INTERNAL, "an exception of unknown type");
  }
}

// Runs f and turns whatever it throws into a status (C-7). f returns nothing, or a status (given).
template <class F>
lazyt_status_t* guard(F&& f) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      std::forward<F>(f)();
      return nullptr;
    } else {
      return std::forward<F>(f)();
    }
  } catch (...) {
    return current_exception_status();
  }
}

// Throws the status (given) as an Error; NULL passes.
inline void check(lazyt_status_t* status) {
  if (!status) return;
  const lazyt_host_status_t& table = *host().status;
  Error error(table.code(status), std::string(view(table.message(status))));
  for (uint64_t i = 0, n = table.note_count(status); i < n; ++i) {
    lazyt_string_t where, detail;
    table.note(status, i, &where, &detail);
    error.note(std::string(view(where)), std::string(view(detail)));
  }
  table.release(status);
  throw error;
}

// What is being caught, of whatever type, as an Error: to note where it passed through.
inline Error current_error() {
  try {
    check(current_exception_status());
  } catch (Error& error) {
    return std::move(error);
  }
  return {LAZYT_CODE_INTERNAL, "an error without a status"};
}

// ---- host services

// Keeps the host table and refuses a host whose ABI this plugin was not built for. For entry.
inline lazyt_status_t* adopt_host(const lazyt_host_t* table) {
  g_host = table;
  if (table->abi_major != LAZYT_ABI_MAJOR || table->abi_draft != LAZYT_ABI_DRAFT) {
    return make_status(LAZYT_CODE_FAILED_PRECONDITION,
                       "plugin and host are built from headers of different ABI drafts: rebuild the older one");
  }
  return nullptr;
}

// The value of an option; empty when it is not set.
inline std::string_view option(std::string_view plugin, std::string_view name) {
  if (!LAZYT_HAS_FIELD(host().services, lazyt_host_services_t, option) || !host().services->option) return {};
  lazyt_string_t value{};
  check(host().services->option(to_c(plugin), to_c(name), &value));
  return view(value);
}

inline bool is_on(std::string_view value) {
  return !value.empty() && value != "0" && value != "off" && value != "false" && value != "no";
}

inline void log(lazyt_log_level_t level, std::string_view message) { host().services->log(level, to_c(message)); }

// ---- handles

// Specialise as `template <> struct Handle<lazyt_buffer_t> { using type = MyBuffer; };`.
template <class C>
struct Handle;

template <class C>
typename Handle<C>::type& from_c(C* handle) {
  if (!handle) throw Error(LAZYT_CODE_INVALID_ARGUMENT, "a handle is NULL");
  return *reinterpret_cast<typename Handle<C>::type*>(handle);
}
template <class C>
typename Handle<C>::type* from_c_or_null(C* handle) {
  return reinterpret_cast<typename Handle<C>::type*>(handle);
}
template <class C>
C* to_handle(typename Handle<C>::type* object) {
  return reinterpret_cast<C*>(object);
}

// ---- events

// An event that is ready at once, or completed once by any thread. Reference-counted: who makes one
// owns a reference, and who will complete it needs one of its own until complete() returned.
class Event {
 public:
  // Ready at once. Takes over status (given); NULL = OK.
  static Event* make_ready(lazyt_status_t* status = nullptr) {
    auto* event = new Event;
    event->status_ = status;
    event->ready_.store(true, std::memory_order_release);
    return event;
  }
  static Event* make_pending() { return new Event; }

  static Event* from(lazyt_event_t* handle) { return reinterpret_cast<Event*>(handle); }
  lazyt_event_t* handle() { return reinterpret_cast<lazyt_event_t*>(this); }

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Makes the event ready. Takes over status (given); NULL = OK. Only the first call counts (EVT-1).
  // Runs the callbacks on the calling thread.
  void complete(lazyt_status_t* status = nullptr) {
    std::vector<Callback> callbacks;
    {
      std::lock_guard lock(mutex_);
      if (ready_.load(std::memory_order_relaxed)) {
        host().status->release(status);
        return;
      }
      status_ = status;
      ready_.store(true, std::memory_order_release);
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (const Callback& callback : callbacks) callback.function(callback.user_data, status_);
  }

  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // Borrowed; meaningful once ready.
  lazyt_status_t* status() const { return status_; }

  // The event's status (given), or DEADLINE_EXCEEDED (EVT-3).
  lazyt_status_t* wait(uint64_t timeout_ns) {
    if (!ready()) {
      // Longer than a year is no limit; it would overflow the clock's arithmetic.
      constexpr uint64_t kYear = UINT64_C(31536000000000000);
      std::unique_lock lock(mutex_);
      auto is_ready = [this] { return ready(); };
      if (timeout_ns > kYear) {
        changed_.wait(lock, is_ready);
      } else if (!changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), is_ready)) {
        return make_status(LAZYT_CODE_DEADLINE_EXCEEDED, "the event is not ready yet");
      }
    }
    return status_ ? host().status->retain(status_) : nullptr;
  }

  void on_ready(lazyt_event_callback_t callback, void* user_data) {
    if (!ready()) {
      std::lock_guard lock(mutex_);
      if (!ready()) {
        callbacks_.push_back({callback, user_data});
        return;
      }
    }
    callback(user_data, status_);
  }

  static const lazyt_plugin_event_t& table() {
    static const lazyt_plugin_event_t table = {
        .struct_size = sizeof(lazyt_plugin_event_t),
        .next = nullptr,
        .ready = [](lazyt_event_t* event, uint32_t* out_ready) -> lazyt_status_t* {
          *out_ready = from(event)->ready() ? 1 : 0;
          return nullptr;
        },
        .wait = [](lazyt_event_t* event, uint64_t timeout_ns) -> lazyt_status_t* {
          lazyt_status_t* result = nullptr;
          lazyt_status_t* failed = guard([&] { result = from(event)->wait(timeout_ns); });
          return failed ? failed : result;
        },
        .on_ready = [](lazyt_event_t* event, lazyt_event_callback_t callback, void* user_data) -> lazyt_status_t* {
          return guard([&] { from(event)->on_ready(callback, user_data); });
        },
        .retain = [](lazyt_event_t* event) { from(event)->retain(); },
        .release = [](lazyt_event_t* event) {
          if (event) from(event)->release();
        },
    };
    return table;
  }

 private:
  struct Callback {
    lazyt_event_callback_t function;
    void* user_data;
  };

  Event() = default;
  ~Event() { host().status->release(status_); }

  std::atomic<uint32_t> references_{1};
  std::atomic<bool> ready_{false};
  lazyt_status_t* status_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Callback> callbacks_;
};

// Waits for all events of the list, which are Events of this plugin, and returns the first error
// that one carries (given), or NULL (BUF-6).
inline lazyt_status_t* take_events(lazyt_events_t waits) {
  lazyt_status_t* first = nullptr;
  for (uint64_t i = 0; i < waits.count; ++i) {
    lazyt_status_t* status = Event::from(waits.events[i])->wait(LAZYT_WAIT_FOREVER);
    if (!status) continue;
    if (first) {
      host().status->release(status);
    } else {
      first = status;
    }
  }
  return first;
}

// ---- programs

// A table of a program block as a range. Records lie `stride` bytes apart, so that they can grow.
template <class T>
class Records {
 public:
  class Iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::forward_iterator_tag;
    Iterator() = default;
    Iterator(const char* at, uint64_t stride) : at_(at), stride_(stride) {}
    const T& operator*() const { return *reinterpret_cast<const T*>(at_); }
    const T* operator->() const { return reinterpret_cast<const T*>(at_); }
    Iterator& operator++() {
      at_ += stride_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator old = *this;
      ++*this;
      return old;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const char* at_ = nullptr;
    uint64_t stride_ = 0;
  };

  Records(const void* first, uint64_t count, uint64_t stride)
      : first_(static_cast<const char*>(first)), count_(count), stride_(stride) {}

  uint64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const T& operator[](uint64_t i) const { return *reinterpret_cast<const T*>(first_ + i * stride_); }
  Iterator begin() const { return {first_, stride_}; }
  Iterator end() const { return {first_ + count_ * stride_, stride_}; }

 private:
  const char* first_;
  uint64_t count_;
  uint64_t stride_;
};

// A program block as ranges, spans and string_views, all of them borrowed from the block.
class ProgramView {
 public:
  explicit ProgramView(const lazyt_program_t* block) : block_(block) {}

  const lazyt_program_t* block() const { return block_; }
  bool has_symbols() const { return block_->flags & LAZYT_PROGRAM_HAS_SYMBOLS; }

  Records<lazyt_value_t> values() const { return table<lazyt_value_t>(block_->values); }
  Records<lazyt_node_t> nodes() const { return table<lazyt_node_t>(block_->nodes); }
  Records<lazyt_input_t> inputs() const { return table<lazyt_input_t>(block_->inputs); }
  Records<lazyt_output_t> outputs() const { return table<lazyt_output_t>(block_->outputs); }
  Records<lazyt_constant_t> constants() const { return table<lazyt_constant_t>(block_->constants); }

  std::string_view text(lazyt_text_t t) const { return view(lazyt_text(block_, t)); }
  std::string_view name(const lazyt_node_t& node) const { return text(node.name); }
  std::string_view overload(const lazyt_node_t& node) const { return text(node.overload); }
  // "aten::add.Tensor", "aten::relu"
  std::string full_name(const lazyt_node_t& node) const {
    std::string full(name(node));
    if (node.overload.size) full.append(".").append(overload(node));
    return full;
  }

  Records<lazyt_arg_t> args(const lazyt_node_t& node) const { return arg_run(node.args, node.arg_count); }
  // The elements of an ARG_LIST.
  Records<lazyt_arg_t> elements(const lazyt_arg_t& list) const { return arg_run(list.payload, list.count); }
  // The numbers of ARG_INTS and ARG_BOOLS; of ARG_DOUBLES as bits.
  std::span<const int64_t> ints(const lazyt_arg_t& arg) const { return int_run(arg.payload, arg.count); }
  std::vector<double> doubles(const lazyt_arg_t& arg) const {
    std::vector<double> out;
    for (int64_t bits : ints(arg)) out.push_back(std::bit_cast<double>(bits));
    return out;
  }
  std::string_view string(const lazyt_arg_t& arg) const {
    return view(lazyt_text(block_, {static_cast<uint32_t>(arg.payload), arg.count}));
  }

  std::span<const int64_t> dims(const lazyt_value_t& value) const { return int_run(value.dims, value.rank); }
  // With the row-major strides written out where the value has none of its own.
  std::vector<int64_t> strides(const lazyt_value_t& value) const {
    if (value.strides != LAZYT_NONE) {
      auto run = int_run(value.strides, value.rank);
      return {run.begin(), run.end()};
    }
    auto sizes = dims(value);
    std::vector<int64_t> out(value.rank);
    int64_t step = 1;
    for (size_t i = value.rank; i-- > 0;) {
      out[i] = step;
      step *= sizes[i] > 1 ? sizes[i] : 1;
    }
    return out;
  }
  // Bytes from the first to past the last element, as the strides spread them.
  uint64_t span_bytes(const lazyt_value_t& value) const {
    auto sizes = dims(value);
    auto steps = strides(value);
    uint64_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0) return 0;
      last += static_cast<uint64_t>(sizes[i] - 1) * static_cast<uint64_t>(steps[i]);
    }
    return (last + 1) * lazyt_dtype_size(value.dtype);
  }

  // "aten::mm, node 12, model.py:34": what an error says about a node.
  std::string describe(uint64_t index) const {
    const lazyt_node_t& node = nodes()[index];
    std::string out = full_name(node) + ", node " + std::to_string(index);
    if (node.note != LAZYT_NONE) {
      const lazyt_note_t& note = *lazyt_note(block_, node.note);
      if (note.file.size) out.append(", ").append(text(note.file)).append(":").append(std::to_string(note.line));
      if (note.module.size) out.append(", ").append(text(note.module));
    }
    return out;
  }

 private:
  template <class T>
  Records<T> table(const lazyt_table_t& t) const {
    return {reinterpret_cast<const char*>(block_) + t.offset, t.count, t.stride};
  }
  Records<lazyt_arg_t> arg_run(uint64_t first, uint64_t count) const {
    const lazyt_table_t& t = block_->args;
    return {reinterpret_cast<const char*>(block_) + t.offset + first * t.stride, count, t.stride};
  }
  std::span<const int64_t> int_run(uint64_t first, uint64_t count) const {
    return {count ? lazyt_ints(block_, first) : nullptr, static_cast<size_t>(count)};
  }

  const lazyt_program_t* block_;
};

}  // namespace plugin
}  // namespace lazyt

#endif  // LAZYT_PLUGIN_HPP_
