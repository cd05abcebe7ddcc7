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

uint32_t configured_threads() {
  static const uint32_t n = [] {
    cpu_set_t set;
    int64_t cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    auto asked = base::env_int("LAZYT_THREADS", cpus, 1, 4096);
    if (!asked.ok()) base::log(LAZYT_LOG_WARNING, asked.status().to_string());
    return static_cast<uint32_t>(asked.ok() ? asked.value() : cpus);
  }();
  return n;
}

// One loop at a time. A worker takes the loop's indices one by one until none is left.
class Pool {
 public:
  Pool() {
    for (uint32_t i = 1; i < configured_threads(); i++) std::thread([this] { work(); }).detach();
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

  void work() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return open_ && generation_ != seen; });
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

uint32_t thread_count() { return inside_parallel ? 1 : configured_threads(); }

void parallel_for(uint64_t count, lazyt_parallel_body_t body, void* user_data) {
  if (count > 1 && !inside_parallel && configured_threads() > 1 && pool().try_run(count, body, user_data)) return;
  for (uint64_t i = 0; i < count; i++) body(user_data, i);
}

}  // namespace lazyt::loader
