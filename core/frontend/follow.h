// What captured graphs and backwards share, which follow a segment of a known tape (trace/segment.h): what must not be there, the words of
// an operand, and the tensors of what the segment has made.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "frontend/thread_state.h"
#include "trace/recorder.h"
#include "trace/segment.h"
#include "trace/storage.h"
#include "trace/words.h"

namespace lazyt::frontend {

// Modes and transforms see each call.
bool is_watched();
// The state of a tensor of the device whose calls nobody watches; else null.
trace::Storage* state_if_plain(const at::Tensor& t);
// The geometry of a tensor whose dtype a program can have, as in a call's signature.
void put_tensor(trace::WordBuffer& words, const at::Tensor& t);

// Follows the segment where the user's settings are those that it was recorded by; see Recorder::follow. Holds the recorder's mutex.
bool follow_segment(const Lane& lane, const trace::Segment& segment, std::span<trace::Storage* const> operands);

// The storages that results of a segment lie in.
class Bases {
 public:
  struct Place {
    size_t of;   // which base
    bool whole;  // the tensor is the base; else a view of it
  };
  // Where the segment has left t. None: it has not made it, or may not make it alike. Holds the recorder's mutex.
  std::optional<Place> add(const at::Tensor& t, const trace::Segment& segment);
  // New tensors, bound to what the recorder has followed. Holds its mutex.
  std::vector<at::Tensor> make(trace::Recorder& recorder) const;

 private:
  struct Base {
    uint32_t slot;
    bool taken = false;  // two tensors over one storage stay two
  };
  std::vector<Base> bases_;
};

}  // namespace lazyt::frontend
