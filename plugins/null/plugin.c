/* plugin.c - the entry point and the plugin's table. */
#include "plugin.h"

#include <string.h>

const lazyt_host_status_t *null_status;
const lazyt_host_services_t *null_services;

lazyt_status_t *null_error(lazyt_code_t code, const char *message) {
  return null_status->create(code, lazyt_string(message, strlen(message)));
}

lazyt_status_t *null_out_of_memory(const char *where) {
  lazyt_status_t *status = null_error(LAZYT_CODE_RESOURCE_EXHAUSTED, "host memory is exhausted");
  null_status->annotate(status, lazyt_string("lazyt_null", 10), lazyt_string(where, strlen(where)));
  return status;
}

static uint64_t handshake(uint64_t seed, lazyt_handshake_t *out) {
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}

static lazyt_status_t *init(void) { return NULL; }
static void shutdown(void) {}

static lazyt_status_t *info(lazyt_plugin_info_t *out_info) {
  static const lazyt_string_t name = LAZYT_STR("null");
  static const lazyt_string_t version = LAZYT_STR("0.1.0");
  static const lazyt_string_t description = LAZYT_STR("computes nothing: measures what the host costs");
  static const lazyt_string_t vendor = LAZYT_STR("lazyt");
  out_info->name = name;
  out_info->version = version;
  out_info->description = description;
  out_info->vendor = vendor;
  out_info->why_none = lazyt_string(NULL, 0);
  out_info->score = -100; /* never chosen unless it is named */
  return NULL;
}

static const lazyt_plugin_t table = {
    .struct_size = sizeof(lazyt_plugin_t),
    .abi_major = LAZYT_ABI_MAJOR,
    .abi_minor = LAZYT_ABI_MINOR,
    .abi_draft = LAZYT_ABI_DRAFT,
    .min_host_minor = 0,
    .handshake = handshake,
    .init = init,
    .shutdown = shutdown,
    .info = info,
    .device = &null_device_table,
    .buffer = &null_buffer_table,
    .event = &null_event_table,
    .capability = &null_capability_table,
    .executable = &null_executable_table,
};

lazyt_status_t *lazyt_plugin_entry_v1(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin) {
  null_status = host->status;
  null_services = host->services;
  *out_plugin = &table;
  return NULL;
}
