// What a thread keeps from one recorded operator to the next, so that recording allocates nothing but the
// tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include "trace/recorder.h"

namespace lazyt::frontend {

struct ThreadState {
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

}  // namespace lazyt::frontend
