// Stream: work in order, and the thread that tells when it is done. Work: the ABI's event.
//
// Callbacks of an event may call back into the plugin, which CUDA forbids inside its own host functions
// (cuLaunchHostFunc). So each stream that has ABI events has a thread, which waits for marks one after the other.
//
// How an error travels: what fails when it is submitted makes a Work that is ready with the error. What fails later ends
// the context: every mark behind it fails, too. And a Work keeps the Works that it was ordered behind, so that their
// errors are its own, also those of another device.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "context.h"

namespace lazyt::cuda {

// Jobs one after the other on a thread that starts with the first. The destructor does what is left.
class Worker {
 public:
  ~Worker();
  void post(std::function<void()> job);
  bool is_current() const;

 private:
  void run();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::thread thread_;
  bool ending_ = false;
};

// Reference-counted as plugin::Event is.
class Work {
 public:
  // Done already. Takes over status (given); NULL = OK.
  static Work* make_ready(lazyt_status_t* status = nullptr) { return new Work(plugin::Event::make_ready(status), nullptr); }
  static Work* make_pending(MarkRef mark) { return new Work(plugin::Event::make_pending(), std::move(mark)); }

  static Work* from(lazyt_event_t* handle) { return reinterpret_cast<Work*>(handle); }
  lazyt_event_t* handle() { return reinterpret_cast<lazyt_event_t*>(this); }
  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  plugin::Event& event() const { return *event_; }
  const MarkRef& mark() const { return mark_; }

  static const lazyt_plugin_event_t& table();

 private:
  Work(plugin::Event* event, MarkRef mark) : event_(event), mark_(std::move(mark)) {}
  ~Work() { event_->release(); }
  std::atomic<uint32_t> references_{1};
  plugin::Event* event_;
  MarkRef mark_;
};

// The list that an operation was given to wait for: errors that are known, and Works that may still fail.
class Waits {
 public:
  // Orders the stream behind what is not done. The stream's context is current.
  Waits(const Context& context, CUstream stream, lazyt_events_t events);
  ~Waits();
  Waits(const Waits&) = delete;

  // The first error that one of them ended with (given), or NULL: blocks until they are done. One thread at a time.
  lazyt_status_t* error();
  bool failed() const { return error_ != nullptr; }

 private:
  lazyt_status_t* error_ = nullptr;
  std::vector<Work*> pending_;
};

class Stream {
 public:
  explicit Stream(ContextRef context);
  ~Stream();
  Stream(const Stream&) = delete;

  CUstream handle() const { return stream_; }
  Worker& worker() { return worker_; }
  MarkRef mark() const { return std::make_shared<Mark>(context_, stream_); }

  // The event (given) of all that was submitted so far. `after` runs on the stream's thread when it is done, before
  // the event is ready, and only if all went well; what it throws is the event's error. `ended`, too, but always.
  Work* finish(std::shared_ptr<Waits> waits, std::function<void()> after = {}, std::function<void()> ended = {});

 private:
  ContextRef context_;
  CUstream stream_ = nullptr;
  Worker worker_;
};

}  // namespace lazyt::cuda

template <>
struct lazyt::plugin::Handle<lazyt_event_t> {
  using type = lazyt::cuda::Work;
};
