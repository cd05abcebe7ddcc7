#include "exec/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lazyt::exec {

Executor::Executor(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)), thread_([this] { loop(); }) {}

Executor::~Executor() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  not_empty_.notify_one();
  thread_.join();
}

void Executor::submit(std::function<void()> task) {
  {
    std::unique_lock lock(mutex_);
    // A task that waited for room would wait for its own end.
    if (std::this_thread::get_id() != thread_.get_id())
      progress_.wait(lock, [this] { return queue_.size() + (running_ ? 1 : 0) < capacity_; });
    queue_.push_back(std::move(task));
    submitted_++;
  }
  not_empty_.notify_one();
}

void Executor::drain() {
  if (std::this_thread::get_id() == thread_.get_id()) return;  // the caller is what it would wait for
  std::unique_lock lock(mutex_);
  const uint64_t goal = submitted_;
  progress_.wait(lock, [&] { return finished_ >= goal; });
}

void Executor::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    not_empty_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
      lock.unlock();
      const auto start = std::chrono::steady_clock::now();
      task();
      task = nullptr;  // before it counts as finished: drain promises that what it held is gone
      const auto spent = std::chrono::steady_clock::now() - start;
      busy_ns_.fetch_add(std::chrono::nanoseconds(spent).count(), std::memory_order_relaxed);
    }
    lock.lock();
    running_ = false;
    finished_++;
    progress_.notify_all();
  }
}

}  // namespace lazyt::exec
