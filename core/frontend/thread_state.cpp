#include "frontend/thread_state.h"

#include "frontend/errors.h"
#include "trace/session.h"

namespace lazyt::frontend {
namespace {

trace::Recorder* recorder_if_any() { return current_thread_state ? current_thread_state->recorder : nullptr; }

}  // namespace

void take_stream(ThreadState& thread) {
  trace::Session& session = trace::Session::get();
  thread.own = &session.take_recorder();
  thread.stream = thread.own_stream = static_cast<int64_t>(session.index_of(*thread.own));
}

void take_recorder(ThreadState& thread) {
  if (!thread.own) take_stream(thread);
  thread.recorder = thread.own;
}

int64_t join_stream(int64_t stream) {
  ThreadState& thread = thread_state();
  const int64_t before = current_stream();
  thread.stream = stream;
  if (thread.recorder && thread.recorder == thread.own) return before;  // it records by itself
  thread.recorder = stream == thread.own_stream ? nullptr : trace::Session::get().recorder(static_cast<size_t>(stream));
  thread.default_float = at::ScalarType::Undefined;
  return before;
}

Gil gil;

void flush(trace::FlushReason reason) {
  if (trace::Recorder* recorder = recorder_if_any()) check(trace::Session::get().flush(*recorder, reason));
}

void wait() { check(trace::Session::get().wait(recorder_if_any())); }

}  // namespace lazyt::frontend
