// device.cpp - one device: the CPU.
#include "plugin.h"

namespace acme_backend {
namespace {

void check_index(uint32_t index) { require(index == 0, "acme has one device, number 0"); }

}  // namespace

void Device::count(int64_t change) {
  const uint64_t now = bytes += static_cast<uint64_t>(change);
  for (uint64_t old = peak; now > old && change > 0 && !peak.compare_exchange_weak(old, now);) {
  }
}

const lazyt_plugin_device_t device_table = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .count = [](uint32_t* out) -> lazyt_status_t* {
      *out = 1;
      return nullptr;
    },
    .describe = [](uint32_t index, lazyt_device_info_t* out) {
      return guard([&] {
        check_index(index);
        out->name = to_c("acme on the CPU");
        out->vendor = to_c("acme");
        out->flags = LAZYT_DEVICE_HOST_VISIBLE;  // leave it out if the CPU cannot reach your memory
        out->total_bytes = 0;
        out->alignment = kAlignment;
        out->dlpack_type = out->dlpack_id = 0;
      });
    },
    .open = [](uint32_t index, lazyt_device_t** out) {
      return guard([&] {
        check_index(index);
        *out = to_handle<lazyt_device_t>(new Device);
      });
    },
    .close = [](lazyt_device_t* device) { delete from_c_or_null(device); },
    .memory_stats = [](lazyt_device_t* handle, lazyt_memory_stats_t* out) {
      return guard([&] {
        const Device& device = from_c(handle);
        out->bytes_in_use = out->bytes_reserved = device.bytes;
        out->peak_bytes_in_use = device.peak;
        out->derived_bytes = 0;
      });
    },
};

}  // namespace acme_backend
