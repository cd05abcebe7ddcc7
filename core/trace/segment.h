// Segment: a stretch of a known tape that one caller records whole, a captured graph or a backward, and so follows at once.
//
// The caller vouches that what it records depends on nothing but the geometry of its operands and on its numbers, both as
// they were. The rest is checked as replay() checks it: each operand has the slot that it had, and data met first the meta.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ref.h"
#include "trace/tape.h"

namespace lazyt::trace {

class Recorder;

// How far a trace has come.
struct Place {
  uint64_t epoch = 0;
  size_t tokens = 0, scalars = 0;
  uint32_t slots = 0;
};

// What a trace brought that is no word of its tape, so that it may be another the next time.
struct Before {
  std::vector<uint64_t> nodes;          // of autograd's graph at each call, counted from the first call
  std::vector<lazyt_scalar_t> scalars;
  std::vector<bool> drawn;              // which of these are seeds and offsets, others each time
};

struct Segment {
  static constexpr uint32_t kUnread = UINT32_MAX;

  base::Ref<Tape> tape;
  const Recorder* recorder = nullptr;
  Place begin, end;
  std::vector<uint32_t> operands;       // the slot of each; kUnread: not read by the segment, nor before it in the trace
  std::vector<uint32_t> written;        // slots of the last operands behind it, which it writes; to be bound by who follows it
  std::vector<lazyt_scalar_t> scalars;  // that it brings
  uint32_t inputs = 0;                  // of the trace, met first within it
  bool multiplies = false;              // an operator whose precision the user's settings decide

  // Whether slots of results: those of its operators.
  bool makes(uint32_t slot) const;
};

}  // namespace lazyt::trace
