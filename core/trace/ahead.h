// Ahead: programs of sizes that grow from step to step, compiled before they are recorded.
//
// A text that is generated token by token makes each step's tensors larger by one, so each step is another
// program. Where three tapes in a row differ only in sizes, by the same amounts from the first to the second
// as from there to the third, a fourth is written as they go on. It becomes a program while the third is run,
// by the thread that waits for that one's values, and is compiled while the host records what it stands for,
// a segment at a time: launches that come meanwhile go first.
// What was written so is a guess: it is run only for a recorded tape that is equal to it, word by word. A
// wrong guess has cost a compilation, nothing else. The recorder expects the guess next and follows it, but asks for
// what the results of each operator with other sizes are, as of one that no tape has (Recorder::append). Once it is
// compiled, what of it has been met may begin (early.h).
//
// A backend is handed no program that eager would refuse: tapes go on only where all operators whose sizes
// change are of those whose results' sizes are copies, sums or products of their operands', and the sizes
// of what follows fit each other (ir/shapes.h).
#pragma once

#include <atomic>
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

// What may follow a tape, written and made a program by whoever needs it first. [any thread] A call waits if another thread
// is at the same.
class Draft {
 public:
  // line: tapes of the same size, newest first. variant: of the newest.
  Draft(std::vector<base::Ref<Tape>> line, base::Ref<Variant> variant)
      : line_(std::move(line)), variant_(std::move(variant)) {}
  // Null if nothing follows. What follows has a variant with the newest tape's outputs, which has no plan yet.
  const Growth* growth();
  // Null if nothing follows, or nothing that can be prepared.
  Prepared* prepared();
  // Of what follows, as it was made. REQUIRES: growth()
  const base::Ref<Variant>& variant() const { return next_variant_; }

 private:
  std::vector<base::Ref<Tape>> line_;
  const base::Ref<Variant> variant_;
  base::Ref<Variant> next_variant_;
  std::once_flag once_, prepared_once_;
  std::optional<Growth> growth_;
  std::optional<Prepared> prepared_;
};

class Ahead {
 public:
  struct Guess {
    base::Ref<Tape> tape;
    base::Ref<Variant> variant;  // with its plan
    bool cached = false;         // the plan was there before
  };

  // A program is about to be run for the first time. Null if there is no line of tapes that it may be part
  // of. Who is about to wait for it may get what follows meanwhile. REQUIRES: calls of this function are in the order of the
  // launches, one at a time.
  std::shared_ptr<Draft> begin(base::Ref<Tape> tape, base::Ref<Variant> variant);

  // The rest is for the executor's thread, or the one that has its turn.

  // Of a device; an error that nobody sees if it is lost.
  struct Compile {
    std::function<base::Result<Compilation>(Prepared)> begin;
    std::function<bool()> lost;
  };
  // Begins to compile the draft. Errors are left to the launch that wants the program: perhaps none does.
  void begin(Draft& draft, Compile compile);
  // Compiles what has begun, until others wait, which are looked for between segments. Returns whether something is left.
  bool go_on(const std::function<bool()>& others_wait = [] { return false; });
  bool has_begun() const { return begun_count_ > 0; }  // [any thread]
  // The guess that came true, which is one no more: of the variant itself, or of an equal tape and the same outputs. If it has only
  // begun, it is finished.
  std::optional<Guess> take(const Tape& tape, const Variant& variant);
  // As take(), of the variant only, of what is compiled.
  std::optional<Guess> take(const Variant& variant);
  // REQUIRES: no other call.
  void clear();

 private:
  struct Begun {
    Guess guess;
    Compilation compilation;
    std::function<bool()> lost;
  };
  template <class Is>
  std::optional<Guess> take_if(Is&& is);

  std::deque<base::Ref<Tape>> recent_;  // newest first; begin's
  std::deque<Begun> begun_;             // oldest first; the executor's
  std::atomic<size_t> begun_count_{0};
  std::deque<Guess> guesses_;           // newest first; the executor's
};

}  // namespace lazyt::trace
