// Early: the beginning of a known program runs while the rest of it is recorded.
//
// A program that was waited for (a token of a language model) is recorded and then run, and each waits for the other. Its plan
// may have several steps (partition/pieces.h). As soon as a trace that follows the program's tape has met all that a step
// reads, the executor may run it: the trace need not come to its end as expected. If it does, the launch goes on from there; if
// not, what has run is dropped, and only time was lost. So programs, results and errors are what they are without.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/ref.h"
#include "exec/plan.h"
#include "trace/tape.h"

namespace lazyt::trace {

// Where a trace that follows the tape has met what the plan's first steps read. Ascending; the last step has none.
std::vector<Gate> gates_of(const Tape& tape, const exec::Plan& plan);

using MetInputs = std::vector<std::pair<uint32_t, exec::Binding>>;  // by input of the program

class Early : public base::RefCounted {
 public:
  // inputs: of the program, scalars included.
  Early(base::Ref<Variant> variant, size_t inputs) : variant(std::move(variant)), inputs_(inputs) {}
  const base::Ref<Variant> variant;

  // What the recorder has met since the last call, and how many steps may run with it. True: hand run() to the executor;
  // false: what was handed to it before does this, too. [recorder]
  bool allow(MetInputs met, uint32_t steps);
  // No more steps will be allowed. [recorder]
  void close() { closed_ = true; }
  // Nobody wants it any more. [any thread]
  void drop() { dropped_ = true; }

  // Runs what may run, and looks for more for a while; others_wait: for the executor. [executor]
  void run(const std::function<bool()>& others_wait = [] { return false; });
  void lose();  // run was given up, and may still be at it. [any thread]
  // What has run of the plan; null if nothing, or nothing that can be used. [executor, behind run]
  exec::Begun* begun(const exec::Plan& plan);
  std::chrono::nanoseconds spent() const { return spent_; }  // by what has run. [executor, behind run]

 private:
  std::atomic<bool> dropped_{false}, closed_{false}, lost_{false};
  std::mutex mutex_;
  MetInputs met_;
  std::atomic<uint32_t> steps_{0};  // that may run; written under the lock
  bool handed_over_ = false;
  const size_t inputs_;
  std::unique_ptr<exec::Begun> begun_;  // executor only
  std::chrono::nanoseconds spent_{0};   // executor only
};

}  // namespace lazyt::trace
