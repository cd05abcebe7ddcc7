// FreeList: memory of objects of one type that come and go with every launch, made by one thread and freed by another.
// There malloc is slow: of a size it keeps seven at a thread's hand, all others go through the arena that they came from.
// Nobody waits for the list: a child may have been forked while another thread had it.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>

#include "base/spin_lock.h"

namespace lazyt::base {

template <size_t kSize>
class FreeList {
 public:
  void* take() {
    if (std::unique_lock lock(lock_, std::try_to_lock); lock) {
      if (Free* p = first_) {
        first_ = p->next;
        count_--;
        return p;
      }
    }
    return ::operator new(kSize);
  }
  void give_back(void* p) {
    if (std::unique_lock lock(lock_, std::try_to_lock); lock) {
      if (count_ < kMost) {
        first_ = new (p) Free{first_};
        count_++;
        return;
      }
    }
    ::operator delete(p);
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kMost = 0;  // freed memory shall be seen as freed
#else
  static constexpr size_t kMost = 1024;
#endif
  struct Free {
    Free* next;
  };
  static_assert(kSize >= sizeof(Free));
  SpinLock lock_;
  Free* first_ = nullptr;
  size_t count_ = 0;
};

}  // namespace lazyt::base
