// Storage: the lazy state of one PyTorch storage. All lazy state of the device lives here.
//
// A storage is flat, untyped bytes. Its current value is one of
//   pending   slot `slot` of the recorder's current trace (linked into the recorder's live list)
//   data      bytes on the device, or on their way
//   neither   never written
// `epoch == recorder's epoch` says that `slot` names the value in the current trace: pending, or data
// that the trace already takes as an input. Guarded by the recorder's mutex.
#pragma once

#include <cstdint>

#include "base/ref.h"
#include "exec/data.h"

namespace lazyt::trace {

struct Storage {
  uint64_t size_bytes = 0;
  uint64_t epoch = 0;
  uint32_t slot = 0;
  bool pending = false;
  Storage* previous = nullptr;  // live list of the recorder, while pending
  Storage* next = nullptr;
  base::Ref<exec::Data> data;
  void* address = nullptr;  // what data_ptr says; never read
};

}  // namespace lazyt::trace
