// Tracer: the boxed kernel that records every operator, and the replay of known calls that typed ones (typed.h) share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>

#include "frontend/schema.h"
#include "frontend/thread_state.h"
#include "ir/graph.h"

namespace lazyt::frontend {

// Records the call on top of the stack, or runs it on the host if it cannot be recorded.
void trace_call(TorchOp& op, torch::jit::Stack* stack);

enum class Replay : uint8_t {
  kUnknown,  // not what the tape says next: nothing has happened
  kKnown,    // recorded; its fresh results are in thread.fresh
  kGate,     // the same, and what of the trace can run is to be begun (look_up)
  kFull,     // the same, and the trace is to be cut (look_up)
};
// Records the encoded call of the thread if a tape knows it.
Replay replay(ThreadState& thread);
// Records thread.call, which was found to be the token that the recorder has next. REQUIRES: the recorders' mutex.
Replay take_expected(trace::Recorder& recorder, const trace::Token& token, ThreadState& thread);
// Does what a replay's outcome says beyond kKnown, with neither the recorders' mutex nor half a result in hand.
void look_up(ThreadState& thread, Replay outcome);

// Whether no kernel above counted (_version) what the call writes; count_write does.
bool is_uncounted_write(const TorchOp& op);
void count_write(const at::Tensor& t);

// Whether the user's settings are those that the recorder records by, for an operator that multiplies matrices or not.
bool has_settings_of(const trace::Recorder& recorder, bool multiplies);
// Calls that a trace takes before it is cut.
size_t max_pending();

// LAZYT_EAGER: each operator runs before its call returns, so that an error is raised at its own line.
bool one_by_one();

// t with its noted conjugation and sign (x.conj(), x.conj().imag) carried out; t itself where it has neither.
at::Tensor resolve(const at::Tensor& t);
// The same bytes without the notes.
at::Tensor without_notes(const at::Tensor& t);

// Where the user's program stands: called for operators recorded for the first time, without locks.
// Set by the language binding; null results are fine.
using SourceHook = std::shared_ptr<const ir::SourceLine> (*)();
void set_source_hook(SourceHook hook);
std::shared_ptr<const ir::SourceLine> source_line();  // null without a hook

}  // namespace lazyt::frontend
