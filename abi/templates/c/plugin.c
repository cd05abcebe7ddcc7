/* plugin.c - the entry point, and who this plugin is. */
#include "plugin.h"

#include <string.h>

const lazyt_host_status_t *acme_status;
const lazyt_host_services_t *acme_host;

lazyt_status_t *acme_error(lazyt_code_t code, const char *message) {
  return acme_status->create(code, lazyt_string(message, strlen(message)));
}

lazyt_status_t *acme_out_of_memory(const char *where) {
  lazyt_status_t *status = acme_error(LAZYT_CODE_RESOURCE_EXHAUSTED, "acme: memory is exhausted");
  acme_status->annotate(status, lazyt_string("acme", strlen("acme")), lazyt_string(where, strlen(where)));
  return status;
}

static uint64_t handshake(uint64_t seed, lazyt_handshake_t *out) {
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}

static lazyt_status_t *init(void) { return NULL; } /* open the driver here, not when loaded (LIB-3) */
static void shutdown(void) {}

static lazyt_status_t *info(lazyt_plugin_info_t *out_info) {
  static const lazyt_string_t name = LAZYT_STR("acme"), version = LAZYT_STR("0.1.0");
  static const lazyt_string_t description = LAZYT_STR("acme: runs programs on the CPU"), vendor = LAZYT_STR("acme");
  out_info->name = name;
  out_info->version = version;
  out_info->description = description;
  out_info->vendor = vendor;
  out_info->why_none = lazyt_string(NULL, 0);
  out_info->score = -1; /* below 0: taken only by those who name it; raise it when acme is fast */
  return NULL;
}

static const lazyt_plugin_t table = {
    .struct_size = sizeof(lazyt_plugin_t),
    .abi_major = LAZYT_ABI_MAJOR,
    .abi_minor = LAZYT_ABI_MINOR,
    .abi_draft = LAZYT_ABI_DRAFT,
    .handshake = handshake,
    .init = init,
    .shutdown = shutdown,
    .info = info,
    .device = &acme_device_table,
    .buffer = &acme_buffer_table,
    .event = &acme_event_table,
    .capability = &acme_capability_table,
    .executable = &acme_executable_table,
};

lazyt_status_t *lazyt_plugin_entry_v1(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin) {
  acme_status = host->status;
  acme_host = host->services;
  *out_plugin = &table;
  return NULL;
}
