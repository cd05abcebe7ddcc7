// Device: one NVIDIA GPU as a host has opened it: its memory, and three streams.
//
//   compute   kernels, copies on the device and between devices
//   upload    from_host: beside running kernels; a buffer knows the mark behind which it is filled
//   download  to_host
//
// All streams are of our own and do not order with the legacy default stream. Executes of one device run one after the
// other, on `compute`.
#pragma once

#include "memory.h"
#include "staging.h"
#include "stream.h"

namespace lazyt::cuda {

class Scratch;  // execute.h

struct Device {
  // Throws.
  explicit Device(uint32_t index);
  Device(const Device&) = delete;

  const ContextRef context;
  const MemoryRef memory;
  const int capability;  // 90 = sm_90
  const int multiprocessors;
  // Pinned memory outlives the streams' work.
  Staging upload_staging, download_staging, fault_staging;
  // Held from taking staging memory to submitting the copy.
  std::mutex upload_order, download_order;
  Stream upload, download, compute;
  Stream capture;  // nothing runs on it: calls of libraries are captured there
  // Of all live executables, which own it.
  std::mutex scratch_mutex;
  std::weak_ptr<Scratch> scratch;

 private:
  explicit Device(ContextRef made);
};

extern const lazyt_plugin_device_t kDeviceTable;

}  // namespace lazyt::cuda

template <>
struct lazyt::plugin::Handle<lazyt_device_t> {
  using type = lazyt::cuda::Device;
};
