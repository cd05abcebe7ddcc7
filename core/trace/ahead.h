// Ahead: programs of sizes that grow from step to step, compiled before they are recorded.
//
// A text that is generated token by token makes each step's tensors larger by one, so each step is another
// program. Where three tapes in a row differ only in sizes, by the same amounts from the first to the second
// as from there to the third, a fourth is written as they go on. It becomes a program while the third is run,
// by the thread that waits for that one's values, and is compiled while the host records what it stands for.
// What was written so is a guess: it is run only for a recorded tape that is equal to it, word by word. A
// wrong guess has cost a compilation, nothing else. The recorder expects the guess next and follows it, but asks for
// what the results of each operator with other sizes are, as of one that no tape has (Recorder::append).
//
// A backend is handed no program that eager would refuse: tapes go on only where all operators whose sizes
// change are of those whose results' sizes are copies, sums or products of their operands', and the sizes
// of what follows fit each other (ir/shapes.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ref.h"
#include "exec/plan.h"
#include "trace/compile.h"
#include "trace/tape.h"

namespace lazyt::trace {

// The tape that follows if what changed from a to b and from b to c goes on so; null if it does not, or
// nothing changed. It is `guessed`, for a recorder to expect, and has no variant.
base::Ref<Tape> following(const Tape& a, const Tape& b, const Tape& c);

// Whether both are lowered to the same program.
bool same_program(const Tape& a, const Tape& b);

// What may follow a tape, written and made a program by whoever needs it first.
class Draft {
 public:
  // line: tapes of the same size, newest first. variant: of the newest.
  Draft(std::vector<base::Ref<Tape>> line, base::Ref<Variant> variant)
      : line_(std::move(line)), variant_(std::move(variant)) {}
  struct Result {
    base::Ref<Tape> before;  // what the newest has grown from
    base::Ref<Tape> tape;
    Prepared prepared;
  };
  // Null if nothing follows, or nothing that can be prepared. Waits if another thread is at it. [any thread]
  Result* get();
  const std::vector<uint32_t>& outputs() const { return variant_->outputs; }

 private:
  std::vector<base::Ref<Tape>> line_;
  base::Ref<Variant> variant_;
  std::once_flag once_;
  std::optional<Result> result_;
};

class Ahead {
 public:
  struct Guess {
    base::Ref<Tape> tape;
    std::vector<uint32_t> outputs;   // slots, ascending
    std::vector<uint32_t> rewrites;  // as Variant's
    base::Ref<exec::Plan> plan;
    bool cached = false;  // the plan was there before
  };

  // A program is about to be run for the first time. Null if there is no line of tapes that it may be part
  // of. Who is about to wait for it may get() what follows meanwhile. REQUIRES: calls of this function are in the order of the
  // launches, one at a time.
  std::shared_ptr<Draft> begin(base::Ref<Tape> tape, base::Ref<Variant> variant);

  // The rest is for the executor's thread, or the one that has its turn.

  // Errors are left to the launch that wants the program: perhaps none does.
  using Compile = std::function<base::Result<Compiled>(Prepared)>;
  void finish(Draft& draft, const Compile& compile);
  // The guess that came true, which is one no more.
  std::optional<Guess> take(const Tape& tape, std::span<const uint32_t> outputs);
  // REQUIRES: no other call.
  void clear();

 private:
  std::deque<base::Ref<Tape>> recent_;  // newest first; begin's
  std::deque<Guess> guesses_;           // newest first; the executor's
};

}  // namespace lazyt::trace
