// PerProcess: an object with threads, made at first use and again in a forked child, which has none of
// the parent's threads. Never destroyed: its threads may outlive static destructors.
#pragma once

#include <unistd.h>

#include <atomic>
#include <mutex>

namespace lazyt::loader {

template <class T>
class PerProcess {
 public:
  T& get() {
    if (owner_.load(std::memory_order_acquire) != getpid()) make();
    return *object_.load(std::memory_order_acquire);
  }

 private:
  void make() {
    std::lock_guard lock(*mutex_);
    if (owner_.load() == getpid()) return;
    object_.store(new T, std::memory_order_release);
    owner_.store(getpid(), std::memory_order_release);
  }
  std::mutex* const mutex_ = new std::mutex;
  std::atomic<T*> object_{nullptr};
  std::atomic<pid_t> owner_{0};
};

}  // namespace lazyt::loader
