#include "loader/parallel.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/env.h"
#include "base/log.h"

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
  explicit Pool(uint32_t workers) {
    for (uint32_t i = 0; i < workers; i++) std::thread([this] { work(); }).detach();
  }

  // False if the pool is in use by another thread.
  bool try_run(uint64_t count, lazyt_parallel_body_t body, void* user_data) {
    std::unique_lock use(use_, std::try_to_lock);
    if (!use) return false;
    std::unique_lock lock(mutex_);
    count_ = count;
    body_ = body;
    user_data_ = user_data;
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
      drain();
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
  std::atomic<uint64_t> next_{0};
};

// Pools are never freed: their workers may outlive static destructors, and a forked child must not
// touch the state of threads that it does not have.
Pool& pool() {
  static auto* mutex = new std::mutex;
  static std::atomic<Pool*> current{nullptr};
  static std::atomic<pid_t> owner{0};
  if (owner.load(std::memory_order_acquire) != getpid()) {
    std::lock_guard lock(*mutex);
    if (owner.load() != getpid()) {
      current.store(new Pool(configured_threads() - 1));
      owner.store(getpid(), std::memory_order_release);
    }
  }
  return *current.load(std::memory_order_acquire);
}

}  // namespace

uint32_t thread_count() { return inside_parallel ? 1 : configured_threads(); }

void parallel_for(uint64_t count, lazyt_parallel_body_t body, void* user_data) {
  if (count > 1 && !inside_parallel && configured_threads() > 1 && pool().try_run(count, body, user_data)) return;
  for (uint64_t i = 0; i < count; i++) body(user_data, i);
}

}  // namespace lazyt::loader
