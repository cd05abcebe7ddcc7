// What a thread keeps from one recorded operator to the next, so that recording allocates nothing but the
// tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include "trace/recorder.h"

namespace lazyt::frontend {

struct ThreadState {
  trace::Recorder* recorder = nullptr;  // where its operators go: own, or that of the stream it has joined
  trace::Recorder* own = nullptr;       // for the thread alone
  int64_t own_stream = 0, stream = 0;   // numbers of recorders: its own, the current one
  at::ScalarType default_float = at::ScalarType::Undefined;  // the recorder's, as far as this thread knows
  trace::Call call;
  std::vector<at::Tensor> fresh;
  std::vector<trace::Storage*> states;  // of small storages, free to be taken
  std::vector<void*> storage_impls;     // memory of freed StorageImpls
};

// Of this thread; null before its first use and after its end. One word, so that every process has the static
// room that this model of access wants: it saves a call for each look.
extern __thread ThreadState* current_thread_state __attribute__((tls_model("initial-exec")));
ThreadState* make_thread_state();

inline ThreadState& thread_state() {
  return *(C10_LIKELY(current_thread_state != nullptr) ? current_thread_state : make_thread_state());
}

void take_recorder(ThreadState& thread);
inline trace::Recorder& recorder_of(ThreadState& thread) {
  if (C10_UNLIKELY(!thread.recorder)) take_recorder(thread);
  return *thread.recorder;
}

// Streams of the device are the traces of threads. A thread that records by itself stays with its own; one that does
// not (autograd's, for a backward that did not stay on the caller's thread) joins the trace of the stream it is given.
void take_stream(ThreadState& thread);
inline int64_t current_stream() {
  ThreadState& thread = thread_state();
  if (C10_UNLIKELY(!thread.own)) take_stream(thread);
  return thread.stream;
}
int64_t join_stream(int64_t stream);  // returns the one before

// Cuts this thread's trace; wait: and waits for all that was cut. Block: not with the GIL.
void flush(trace::FlushReason reason);
void wait();

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
