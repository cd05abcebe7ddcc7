#include "device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "errors.h"

namespace lazyt::ts {
namespace {

using plugin::from_c;
using plugin::to_c;

bool wants_cuda() { return plugin::is_on(plugin::option("ts", "cuda")); }

uint32_t device_count() {
  if (!wants_cuda()) return 1;
  return at::globalContext().hasCUDA() ? static_cast<uint32_t>(at::detail::getCUDAHooks().deviceCount()) : 0;
}

void require_index(uint32_t index) { plugin::require(index < device_count(), "ts: device index is out of range"); }

uint64_t physical_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

const std::string& cpu_name() {
  static const auto& name = *new std::string([] {
    std::ifstream info("/proc/cpuinfo");
    std::string line, model = "CPU";
    while (std::getline(info, line)) {
      if (!line.starts_with("model name")) continue;
      if (auto colon = line.find(": "); colon != std::string::npos) model = line.substr(colon + 2);
      break;
    }
    return model + ", " + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " threads";
  }());
  return name;
}

lazyt_status_t* count(uint32_t* out_count) {
  return guard([&] { *out_count = device_count(); });
}

lazyt_status_t* describe(uint32_t index, lazyt_device_info_t* out_info) {
  return guard([&] {
    require_index(index);
    const bool cuda = wants_cuda();
    out_info->name = cuda ? to_c("CUDA device of PyTorch") : to_c(cpu_name());
    out_info->vendor = to_c("PyTorch");
    out_info->flags = cuda ? 0 : LAZYT_DEVICE_HOST_VISIBLE;
    out_info->total_bytes = cuda ? 0 : physical_bytes();
    out_info->alignment = 64;
    out_info->dlpack_type = cuda ? 2 : 1;  // kDLCUDA, kDLCPU
    out_info->dlpack_id = static_cast<int32_t>(cuda ? index : 0);
  });
}

lazyt_status_t* open(uint32_t index, lazyt_device_t** out_device) {
  return guard([&] {
    require_index(index);
    const bool cuda = wants_cuda();
    if (cuda) at::globalContext().lazyInitDevice(at::kCUDA);
    c10::Device device = cuda ? c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)) : c10::Device(at::kCPU);
    auto* made = new Device{device, cuda ? 0 : physical_bytes(), {}};
    *out_device = plugin::to_handle<lazyt_device_t>(made);
  });
}

void close(lazyt_device_t* device) { delete plugin::from_c_or_null(device); }

lazyt_status_t* memory_stats(lazyt_device_t* device, lazyt_memory_stats_t* out_stats) {
  return guard([&] {
    const MemoryCounter& memory = from_c(device).memory;
    out_stats->bytes_in_use = memory.in_use();
    out_stats->peak_bytes_in_use = memory.peak();
    out_stats->bytes_reserved = memory.in_use();
    out_stats->derived_bytes = 0;
  });
}

}  // namespace

std::string_view why_no_device() {
  return device_count() ? "" : "option cuda is set, but PyTorch sees no CUDA device";
}

const lazyt_plugin_device_t kDeviceTable = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .next = nullptr,
    .count = count,
    .describe = describe,
    .open = open,
    .close = close,
    .memory_stats = memory_stats,
    .trim = nullptr,
};

}  // namespace lazyt::ts
