// Storage: the lazy state of one PyTorch storage. All lazy state of the device lives here.
//
// A storage is flat, untyped bytes. Its current value is one of
//   pending   slot `slot` of the recorder's current trace (linked into the recorder's live list)
//   data      bytes on the device, or on their way
//   neither   never written
// `epoch == recorder->epoch` says that `slot` names the value in that recorder's current trace: pending, or data
// that the trace already takes as an input. Other traces that know the data keep their slot for it themselves.
#pragma once

#include <cstdint>

#include "base/ref.h"
#include "base/spin_lock.h"
#include "exec/data.h"

namespace lazyt::trace {

class Recorder;

inline constexpr uint32_t kMaxDevices = 32;  // of the process, lazyt:0 to lazyt:31

// Guards the state of all storages and recorders.
extern base::SpinLock recording_lock;

struct Storage {
  uint64_t size_bytes = 0;
  Recorder* recorder = nullptr;  // the last that met it; while pending, the one in whose trace
  uint64_t epoch = 0;
  uint32_t slot = 0;
  bool pending = false;
  bool shared = false;  // other recorders may have kept a slot for it
  uint8_t device = 0;   // index of the device it lies on
  Storage* previous = nullptr;  // live list of the recorder, while pending
  Storage* next = nullptr;
  base::Ref<exec::Data> data;
  void* address = nullptr;  // what data_ptr says; never read
};

}  // namespace lazyt::trace
