// A lock for sections of well under a microsecond that are hardly ever contended: one atomic exchange to
// take, a store to give back (std::mutex: two calls, two exchanges). Who has to wait spins a little, then
// yields.
#pragma once

#include <atomic>
#include <thread>

namespace lazyt::base {

class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) wait();
  }
  bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void wait() {
    for (int spins = 0; taken_.load(std::memory_order_relaxed); spins++)
      if (spins > 64) std::this_thread::yield();
  }
  std::atomic<bool> taken_{false};
};

}  // namespace lazyt::base
