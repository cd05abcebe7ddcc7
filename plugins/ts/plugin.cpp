// The entry point and the plugin's table.
#include "lazyt/plugin.hpp"

#include "buffer.h"
#include "compile.h"
#include "device.h"
#include "errors.h"
#include "ops.h"

namespace lazyt::ts {
namespace {

using plugin::to_c;

uint64_t handshake(uint64_t seed, lazyt_handshake_t* out) {
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}

lazyt_status_t* init() { return guard(register_jit_operators); }

void shutdown() { plugin::host().status->release(guard(deregister_jit_operators)); }

lazyt_status_t* info(lazyt_plugin_info_t* out_info) {
  return guard([&] {
    out_info->name = to_c("ts");
    out_info->version = to_c("0.1.0");
    out_info->description = to_c("TorchScript: PyTorch's own kernels, the reference");
    out_info->vendor = to_c("lazyt");
    out_info->why_none = to_c(why_no_device());
    out_info->score = 10;
  });
}

const void* get_extension(lazyt_string_t) { return nullptr; }

}  // namespace
}  // namespace lazyt::ts

lazyt_status_t* lazyt_plugin_entry_v1(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin) {
  using namespace lazyt::ts;
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
      .event = &lazyt::plugin::Event::table(),
      .capability = &kCapabilityTable,
      .executable = &kExecutableTable,
  };
  if (lazyt_status_t* refused = lazyt::plugin::adopt_host(host)) return refused;
  *out_plugin = &table;
  return nullptr;
}
