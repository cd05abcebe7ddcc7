// plugin.cpp - the entry point, and who this plugin is.
#include "plugin.h"

namespace {

using namespace acme_backend;

const lazyt_plugin_t table = {
    .struct_size = sizeof(lazyt_plugin_t),
    .abi_major = LAZYT_ABI_MAJOR,
    .abi_minor = LAZYT_ABI_MINOR,
    .abi_draft = LAZYT_ABI_DRAFT,
    .handshake = [](uint64_t seed, lazyt_handshake_t* out) -> uint64_t {
      lazyt_handshake_fill(out);
      return seed ^ LAZYT_HANDSHAKE_MASK;
    },
    .init = []() -> lazyt_status_t* { return nullptr; },  // open the driver here, not when loaded (LIB-3)
    .shutdown = [] {},
    .info = [](lazyt_plugin_info_t* out) -> lazyt_status_t* {
      out->name = to_c("acme");
      out->version = to_c("0.1.0");
      out->description = to_c("acme: runs programs on the CPU");
      out->vendor = to_c("acme");
      out->why_none = {};
      out->score = -1;  // below 0: taken only by those who name it; raise it when acme is fast
      return nullptr;
    },
    .device = &device_table,
    .buffer = &buffer_table,
    .event = &Event::table(),
    .capability = &capability_table,
    .executable = &executable_table,
};

}  // namespace

lazyt_status_t* lazyt_plugin_entry_v1(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin) {
  if (lazyt_status_t* refused = lazyt::plugin::adopt_host(host)) return refused;
  *out_plugin = &table;
  return nullptr;
}
