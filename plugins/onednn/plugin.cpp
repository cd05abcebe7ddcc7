// The entry point and the plugin's table.
#include "lazyt/plugin.hpp"

#include "buffer.h"
#include "compile.h"
#include "device.h"
#include "kernels/custom.h"
#include "kernels/dnnl.h"
#include "kernels/streams.h"
#include "kernels/vm.h"
#include "ops.h"

namespace lazyt::onednn {
namespace {

using plugin::to_c;

uint64_t handshake(uint64_t seed, lazyt_handshake_t* out) {
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}

// A wrong LAZYT_ONEDNN_ISA or _STREAM is told here, once, and not operator by operator.
lazyt_status_t* init() {
  return plugin::guard([] {
    vm::table();
    past_caches(0);
    limit_dnnl();
  });
}

void shutdown() { forget_custom_kernels(); }

lazyt_status_t* info(lazyt_plugin_info_t* out_info) {
  return plugin::guard([&] {
    out_info->name = to_c("onednn");
    out_info->version = to_c("0.1.0");
    out_info->description = to_c("oneDNN and fused kernels: the CPU");
    out_info->vendor = to_c("lazyt");
    out_info->why_none = to_c("");
    out_info->score = 50;
  });
}

const void* get_extension(lazyt_string_t id) {
  return plugin::view(id) == LAZYT_CUSTOM_KERNEL_ID ? &kCustomKernelTable : nullptr;  // LIB-7
}

}  // namespace
}  // namespace lazyt::onednn

lazyt_status_t* lazyt_plugin_entry_v1(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin) {
  using namespace lazyt::onednn;
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
