// Executor: one thread per device that runs tasks in the order they were submitted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lazyt::exec {

class Executor {
 public:
  // capacity: tasks waiting or running; submit blocks beyond that.
  explicit Executor(size_t capacity = 4);
  // Runs what was submitted, then ends the thread.
  ~Executor();

  // Blocks while the queue is full: callers must hold neither the GIL nor a lock that a task takes.
  // A task must not throw; it is destroyed on the executor thread right after it ran.
  void submit(std::function<void()> task);
  // Blocks until everything submitted before the call has run.
  void drain();
  uint64_t busy_ns() const { return busy_ns_.load(std::memory_order_relaxed); }  // time spent in tasks

 private:
  void loop();
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable not_empty_, progress_;
  std::deque<std::function<void()>> queue_;
  bool running_ = false, stop_ = false;
  uint64_t submitted_ = 0, finished_ = 0;
  std::atomic<uint64_t> busy_ns_{0};
  std::thread thread_;
};

}  // namespace lazyt::exec
