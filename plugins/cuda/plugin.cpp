// The entry point and the plugin's table.
#include "lazyt/plugin.hpp"

#include <string>
#include <utility>
#include <vector>

#include "buffer.h"
#include "compile.h"
#include "custom.h"
#include "driver.h"
#include "lazyt/ext/draft/attributes.h"
#include "ops.h"

namespace lazyt::cuda {
namespace {

using plugin::to_c;

uint64_t handshake(uint64_t seed, lazyt_handshake_t* out) {
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}

// A machine without a GPU is no failure: info says why there is no device.
lazyt_status_t* init() {
  return plugin::guard([] { libraries(); });
}

void shutdown() { forget_custom_kernels(); }

lazyt_status_t* info(lazyt_plugin_info_t* out_info) {
  return plugin::guard([&] {
    out_info->name = to_c("cuda");
    out_info->version = to_c("0.1.0");
    out_info->description = to_c("CUDA driver, NVRTC, cuBLASLt and cuDNN: NVIDIA GPUs");
    out_info->vendor = to_c("lazyt");
    out_info->why_none = to_c(libraries().why_none);
    out_info->score = 100;
  });
}

// Which libraries, which version, where; or why not.
lazyt_status_t* attribute(uint32_t index, lazyt_string_t* out_name, lazyt_string_t* out_value) {
  static const auto& all = *new std::vector<std::pair<std::string, std::string>>([] {
    const Libraries& l = libraries();
    std::vector<std::pair<std::string, std::string>> out;
    for (const Library* library : {&l.driver, &l.nvrtc, &l.cublaslt, &l.cudnn})
      if (!library->title.empty()) out.emplace_back(library == &l.driver ? "driver" : library->title, library->state());
    return out;
  }());
  return plugin::guard([&] {
    if (index >= all.size()) throw plugin::Error(LAZYT_CODE_OUT_OF_RANGE, "cuda: there is no such attribute");
    *out_name = to_c(all[index].first);
    *out_value = to_c(all[index].second);
  });
}

constexpr lazyt_attributes_t kAttributes = {.struct_size = sizeof(lazyt_attributes_t), .next = nullptr, .get = attribute};

const void* get_extension(lazyt_string_t id) {
  if (plugin::view(id) == LAZYT_CUSTOM_KERNEL_ID) return &kCustomKernelTable;
  return plugin::view(id) == LAZYT_ATTRIBUTES_ID ? &kAttributes : nullptr;
}

}  // namespace
}  // namespace lazyt::cuda

lazyt_status_t* lazyt_plugin_entry_v1(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin) {
  using namespace lazyt::cuda;
  static const lazyt_plugin_t table = {
      .struct_size = sizeof(lazyt_plugin_t),
      .next = nullptr,
      .abi_major = LAZYT_ABI_MAJOR,
      .abi_minor = LAZYT_ABI_MINOR,
      .abi_draft = LAZYT_ABI_DRAFT,
      .min_host_minor = 0,
      .handshake = handshake,
      .init = init,
      .shutdown = shutdown,
      .info = info,
      .get_extension = get_extension,
      .device = &kDeviceTable,
      .buffer = &kBufferTable,
      .event = &Work::table(),
      .capability = &kCapabilityTable,
      .executable = &kExecutableTable,
  };
  if (lazyt_status_t* refused = lazyt::plugin::adopt_host(host)) return refused;
  *out_plugin = &table;
  return nullptr;
}
