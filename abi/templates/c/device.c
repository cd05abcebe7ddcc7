/* device.c - one device: the CPU. */
#include "plugin.h"

#include <string.h>

static lazyt_status_t *count(uint32_t *out_count) {
  *out_count = 1;
  return NULL;
}

static lazyt_status_t *check_index(uint32_t index) {
  return index == 0 ? NULL : acme_error(LAZYT_CODE_INVALID_ARGUMENT, "acme has one device, number 0");
}

static lazyt_status_t *describe(uint32_t index, lazyt_device_info_t *out_info) {
  static const lazyt_string_t name = LAZYT_STR("acme on the CPU"), vendor = LAZYT_STR("acme");
  lazyt_status_t *status = check_index(index);
  if (status) return status;
  out_info->name = name;
  out_info->vendor = vendor;
  out_info->flags = LAZYT_DEVICE_HOST_VISIBLE; /* leave it out if the CPU cannot reach your memory */
  out_info->total_bytes = 0;
  out_info->alignment = ACME_ALIGNMENT;
  out_info->dlpack_type = out_info->dlpack_id = 0;
  return NULL;
}

static lazyt_status_t *open(uint32_t index, lazyt_device_t **out_device) {
  lazyt_status_t *status = check_index(index);
  if (status) return status;
  lazyt_device_t *device = acme_host->alloc(sizeof *device, ACME_ALIGNMENT);
  if (!device) return acme_out_of_memory("device.open");
  memset(device, 0, sizeof *device);
  *out_device = device;
  return NULL;
}

static void close(lazyt_device_t *device) {
  if (device) acme_host->free(device->details);
  acme_host->free(device);
}

void acme_count(lazyt_device_t *device, int64_t bytes) {
  uint64_t now = atomic_fetch_add(&device->bytes, (uint64_t)bytes) + (uint64_t)bytes;
  uint64_t peak = atomic_load(&device->peak);
  while (bytes > 0 && now > peak && !atomic_compare_exchange_weak(&device->peak, &peak, now)) {
  }
}

static lazyt_status_t *memory_stats(lazyt_device_t *device, lazyt_memory_stats_t *out_stats) {
  out_stats->bytes_in_use = out_stats->bytes_reserved = atomic_load(&device->bytes);
  out_stats->peak_bytes_in_use = atomic_load(&device->peak);
  out_stats->derived_bytes = 0;
  return NULL;
}

const lazyt_plugin_device_t acme_device_table = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .count = count,
    .describe = describe,
    .open = open,
    .close = close,
    .memory_stats = memory_stats,
};
