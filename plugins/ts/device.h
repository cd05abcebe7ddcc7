// Device: the CPU, or with option `cuda` (LAZYT_TS_CUDA=1) one of PyTorch's CUDA devices.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>

#include "lazyt/plugin.hpp"

namespace lazyt::ts {

// Bytes that buffers and executables of one device hold.
class MemoryCounter {
 public:
  void add(int64_t bytes) {
    int64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  uint64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
};

struct Device {
  c10::Device device;
  uint64_t total_bytes;  // 0 = not known
  MemoryCounter memory;

  bool host_visible() const { return device.is_cpu(); }
};

// Why there is no device; empty if there is one. Static.
std::string_view why_no_device();

extern const lazyt_plugin_device_t kDeviceTable;

}  // namespace lazyt::ts

template <>
struct lazyt::plugin::Handle<lazyt_device_t> {
  using type = lazyt::ts::Device;
};
