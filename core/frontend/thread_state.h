// What a thread keeps from one recorded operator to the next, so that recording allocates nothing but the
// tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>

#include <array>
#include <optional>

#include "trace/recorder.h"

namespace lazyt::frontend {

// Of one thread and one device.
struct Lane {
  trace::Recorder* recorder = nullptr;  // where its operators go: own, or that of the stream it has joined
  trace::Recorder* own = nullptr;       // for the thread alone
  int64_t own_stream = 0, stream = 0;   // numbers of recorders: its own, the current one
};

constexpr int kKeptOrders = 12;  // of storages: 512 bytes to 1 MiB

#ifdef __SANITIZE_ADDRESS__
constexpr uint32_t kKeep = 0;  // freed memory shall be seen as freed
#else
constexpr uint32_t kKeep = 256;  // of each kind, by each thread: taking and giving back needs no lock
#endif

// Things of one kind that one thread keeps, free to be taken, each pointing to the next.
template <class T, T* T::* next>
class KeptList {
 public:
  // The last one that was kept; null: there is none.
  T* take() {
    T* t = first_;
    if (C10_LIKELY(t != nullptr)) first_ = t->*next, count_--;
    return t;
  }
  // False: there are enough.
  bool keep(T* t) {
    if (C10_UNLIKELY(count_ >= kKeep)) return false;
    t->*next = first_;
    first_ = t, count_++;
    return true;
  }

 private:
  T* first_ = nullptr;
  uint32_t count_ = 0;
};

struct FreeMemory {
  FreeMemory* next;
};

struct ThreadState {
  std::array<Lane, trace::kMaxDevices> lanes;
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();  // the thread's own: PyTorch asks for it by two calls
  uint32_t device = 0;  // the current one, where a call names none
  trace::Call call;
  uint64_t nodes = 0;   // of autograd's graph that the thread had made when it last recorded a call
  bool hooked = false;  // their tensors were given to hooks
  std::vector<at::Tensor> fresh;
  std::array<KeptList<trace::Storage, &trace::Storage::next>, kKeptOrders> states;  // of small storages
  KeptList<FreeMemory, &FreeMemory::next> storage_impls, tensor_impls;              // of freed StorageImpls and TensorImpls
};

// Of this thread; null before its first use and after its end. One word, so that every process has the static
// room that this model of access wants: it saves a call for each look.
extern __thread ThreadState* current_thread_state __attribute__((tls_model("initial-exec")));
ThreadState* make_thread_state();

inline ThreadState& thread_state() {
  return *(C10_LIKELY(current_thread_state != nullptr) ? current_thread_state : make_thread_state());
}

void take_recorder(Lane& lane, uint32_t device);
inline trace::Recorder& recorder_of(Lane& lane, uint32_t device) {
  if (C10_UNLIKELY(!lane.recorder)) take_recorder(lane, device);
  return *lane.recorder;
}

size_t device_count();  // [any thread, with or without the GIL]
// The index of a device: the current one if it names none. Raises if there is none of that number.
uint32_t check_device(c10::Device device);

// Streams of the device are the traces of threads. A thread that records by itself stays with its own; one that does
// not (autograd's, for a backward that did not stay on the caller's thread) joins the trace of the stream it is given.
int64_t current_stream(uint32_t device);
int64_t join_stream(uint32_t device, int64_t stream);  // returns the one before

// Cuts this thread's trace on the device, or on all; wait: and waits for all that was cut there. Block: not with the GIL.
void flush(trace::FlushReason reason, std::optional<uint32_t> device = std::nullopt);
void wait(std::optional<uint32_t> device = std::nullopt);

// For calls that may block and that PyTorch makes with the GIL: lets it go, and takes it back. Set by the language
// binding; release may return null, and take is called with what it returned.
struct Gil {
  void* (*release)() = [] { return static_cast<void*>(nullptr); };
  void (*take)(void*) = [](void*) {};
};
extern Gil gil;
struct WithoutGil {
  WithoutGil() : kept(gil.release()) {}
  ~WithoutGil() { gil.take(kept); }
  void* const kept;
};

}  // namespace lazyt::frontend
