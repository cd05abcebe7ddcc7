#include "device.h"

namespace lazyt::cuda {
namespace {

using plugin::from_c;
using plugin::guard;
using plugin::to_c;

constexpr uint64_t kUploadBytes = uint64_t{32} << 20;
constexpr uint64_t kDownloadBytes = uint64_t{16} << 20;
constexpr uint64_t kFaultBytes = 64 << 10;  // a thousand runs
constexpr int32_t kDLCUDA = 2;

void require_index(uint32_t index) {
  if (index < static_cast<uint32_t>(libraries().device_count)) return;
  throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "cuda: there is no device " + std::to_string(index) + ", but " +
                                                       std::to_string(libraries().device_count) + " in all");
}

// What describe tells; asked of the driver once, without a context (DEV-1).
struct Description {
  std::string name;
  uint64_t bytes = 0;
};

const Description& description(uint32_t index) {
  static const auto& all = *[] {
    auto* out = new std::vector<Description>;
    for (int i = 0; i < libraries().device_count; ++i) {
      CUdevice device = 0;
      char name[256] = {};
      size_t bytes = 0;
      int major = 0, minor = 0;
      check(cu().cuDeviceGet(&device, i), "cuDeviceGet");
      check(cu().cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
      check(cu().cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem");
      check(cu().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
      check(cu().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute");
      out->push_back({std::string(name) + ", sm_" + std::to_string(major * 10 + minor), bytes});
    }
    return out;
  }();
  return all[index];
}

lazyt_status_t* count(uint32_t* out_count) {
  *out_count = static_cast<uint32_t>(libraries().device_count);
  return nullptr;
}

lazyt_status_t* describe(uint32_t index, lazyt_device_info_t* out_info) {
  return guard([&] {
    require_index(index);
    const Description& d = description(index);
    out_info->name = to_c(d.name);
    out_info->vendor = to_c("NVIDIA");
    out_info->flags = 0;
    out_info->total_bytes = d.bytes;
    out_info->alignment = kAlignment;
    out_info->dlpack_type = kDLCUDA;
    out_info->dlpack_id = static_cast<int32_t>(index);
  });
}

lazyt_status_t* open(uint32_t index, lazyt_device_t** out_device) {
  return guard([&] {
    require_index(index);
    *out_device = plugin::to_handle<lazyt_device_t>(new Device(index));
  });
}

void close(lazyt_device_t* device) { delete plugin::from_c_or_null(device); }

lazyt_status_t* memory_stats(lazyt_device_t* device, lazyt_memory_stats_t* out_stats) {
  return guard([&] {
    Memory& memory = *from_c(device).memory;
    out_stats->bytes_in_use = memory.in_use();
    out_stats->peak_bytes_in_use = memory.peak();
    out_stats->bytes_reserved = memory.reserved();
    out_stats->derived_bytes = 0;
  });
}

lazyt_status_t* trim(lazyt_device_t* device) {
  return guard([&] { from_c(device).memory->trim(); });
}

ContextRef make_context(uint32_t index) { return std::make_shared<Context>(static_cast<int>(index)); }

}  // namespace

Device::Device(uint32_t index) : Device(make_context(index)) {}

Device::Device(ContextRef made)
    : context(std::move(made)),
      memory(std::make_shared<Memory>(context)),
      capability(context->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                 context->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)),
      multiprocessors(context->attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)),
      upload_staging(context, kUploadBytes),
      download_staging(context, kDownloadBytes),
      fault_staging(context, kFaultBytes),
      upload(context),
      download(context),
      compute(context),
      capture(context) {}

const lazyt_plugin_device_t kDeviceTable = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .next = nullptr,
    .count = count,
    .describe = describe,
    .open = open,
    .close = close,
    .memory_stats = memory_stats,
    .trim = trim,
};

}  // namespace lazyt::cuda
