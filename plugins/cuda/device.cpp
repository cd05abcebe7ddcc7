#include "device.h"

namespace lazyt::cuda {
namespace {

// Nothing can be opened before there are kernels to run.
lazyt_status_t* not_yet() { return plugin::make_status(LAZYT_CODE_UNAVAILABLE, "cuda: devices are not offered yet"); }

lazyt_status_t* count(uint32_t* out_count) {
  *out_count = 0;
  return nullptr;
}
lazyt_status_t* describe(uint32_t, lazyt_device_info_t*) {
  return plugin::make_status(LAZYT_CODE_INVALID_ARGUMENT, "cuda: device index is out of range");
}
lazyt_status_t* open(uint32_t, lazyt_device_t**) {
  return plugin::make_status(LAZYT_CODE_INVALID_ARGUMENT, "cuda: device index is out of range");
}
void close(lazyt_device_t*) {}
lazyt_status_t* memory_stats(lazyt_device_t*, lazyt_memory_stats_t*) { return not_yet(); }

}  // namespace

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

}  // namespace lazyt::cuda
