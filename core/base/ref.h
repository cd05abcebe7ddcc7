// Intrusive reference counts: shared objects that know how many hold them (donation asks).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace lazyt::base {

// Base of shared objects. Made with make_ref; freed when the last Ref goes, on that thread.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // False if the last reference is gone. For tables of weak pointers whose entries the object's
  // destructor removes under the table's lock.
  bool try_retain() const {
    uint32_t n = count_.load(std::memory_order_relaxed);
    while (n != 0 && !count_.compare_exchange_weak(n, n + 1, std::memory_order_acq_rel)) {
    }
    return n != 0;
  }
  // True if the caller's reference is the only one. Nobody else can make another then.
  bool unique() const { return count_.load(std::memory_order_acquire) == 1; }

 private:
  mutable std::atomic<uint32_t> count_{0};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  Ref(const Ref<U>& o) : Ref(static_cast<T*>(o.get())) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace lazyt::base
