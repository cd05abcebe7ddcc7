#include "loader/parallel.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/env.h"
#include "base/log.h"
#include "loader/per_process.h"
#include "loader/worker.h"

namespace lazyt::loader {
namespace {

thread_local bool inside_parallel = false;

std::atomic<uint32_t> asked_threads{0};

// 0 if LAZYT_THREADS is not set.
uint32_t configured_threads() {
  static const uint32_t n = [] {
    auto configured = base::env_int("LAZYT_THREADS", 0, 1, 4096);
    if (!configured.ok()) base::log(LAZYT_LOG_WARNING, configured.status().to_string());
    return static_cast<uint32_t>(configured.ok() ? configured.value() : 0);
  }();
  return n;
}

uint32_t allowed_threads() {
  if (const uint32_t n = configured_threads()) return n;
  const uint32_t asked = asked_threads.load(std::memory_order_relaxed);
  return asked ? asked : cpu_count();
}

// One loop at a time. A worker takes the loop's indices one by one until none is left.
class Pool {
 public:
  Pool() {
    const uint32_t size = configured_threads() ? configured_threads() : cpu_count();
    for (uint32_t i = 1; i < size; i++) std::thread([this, i] { work(i); }).detach();
  }

  // False if the pool is in use by another thread.
  bool try_run(uint64_t count, lazyt_parallel_body_t body, void* user_data) {
    std::unique_lock use(use_, std::try_to_lock);
    if (!use) return false;
    std::unique_lock lock(mutex_);
    count_ = count;
    body_ = body;
    user_data_ = user_data;
    cancel_flag_ = cancel_flag();
    next_.store(0, std::memory_order_relaxed);
    generation_++;
    open_ = true;
    lock.unlock();
    wake_.notify_all();
    drain();
    lock.lock();
    open_ = false;  // a worker that wakes up late finds nothing to join
    done_.wait(lock, [&] { return active_ == 0; });
    return true;
  }

 private:
  void drain() {
    inside_parallel = true;
    for (uint64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) body_(user_data_, i);
    inside_parallel = false;
  }

  // The caller is worker 0.
  void work(uint32_t number) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return open_ && generation_ != seen && number < allowed_threads(); });
      seen = generation_;
      active_++;
      lock.unlock();
      set_cancel_flag(cancel_flag_);  // what the loop's caller is told
      drain();
      set_cancel_flag(nullptr);
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex use_, mutex_;
  std::condition_variable wake_, done_;
  uint64_t generation_ = 0, count_ = 0;
  bool open_ = false;
  uint32_t active_ = 0;
  lazyt_parallel_body_t body_ = nullptr;
  void* user_data_ = nullptr;
  const std::atomic<bool>* cancel_flag_ = nullptr;
  std::atomic<uint64_t> next_{0};
};

Pool& pool() {
  static PerProcess<Pool> instance;
  return instance.get();
}

}  // namespace

uint32_t cpu_count() {
  static const uint32_t n = [] {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
  }();
  return n;
}

uint32_t thread_count() { return inside_parallel ? 1 : allowed_threads(); }

void set_thread_count(uint32_t count) { asked_threads.store(count, std::memory_order_relaxed); }

void parallel_for(uint64_t count, lazyt_parallel_body_t body, void* user_data) {
  if (count > 1 && !inside_parallel && allowed_threads() > 1 && pool().try_run(count, body, user_data)) return;
  for (uint64_t i = 0; i < count; i++) body(user_data, i);
}

}  // namespace lazyt::loader
