/* device.c - one device, whose memory is the host's. */
#include "plugin.h"

static lazyt_status_t *device_count(uint32_t *out_count) {
  *out_count = 1;
  return NULL;
}

static lazyt_status_t *check_index(uint32_t index) {
  return index == 0 ? NULL : null_error(LAZYT_CODE_INVALID_ARGUMENT, "null has one device, number 0");
}

static lazyt_status_t *device_describe(uint32_t index, lazyt_device_info_t *out_info) {
  static const lazyt_string_t name = LAZYT_STR("null device");
  static const lazyt_string_t vendor = LAZYT_STR("lazyt");
  lazyt_status_t *status = check_index(index);
  if (status) return status;
  out_info->name = name;
  out_info->vendor = vendor;
  out_info->flags = LAZYT_DEVICE_HOST_VISIBLE | LAZYT_DEVICE_SYMBOLIC_DIMS | LAZYT_DEVICE_SYNCHRONOUS;
  out_info->total_bytes = 0;
  out_info->alignment = NULL_ALIGNMENT;
  out_info->dlpack_type = 0;
  out_info->dlpack_id = 0;
  return NULL;
}

static lazyt_status_t *device_open(uint32_t index, lazyt_device_t **out_device) {
  lazyt_status_t *status = check_index(index);
  if (status) return status;
  lazyt_device_t *device = null_services->alloc(sizeof *device, sizeof(void *));
  if (!device) return null_out_of_memory("device.open");
  atomic_init(&device->bytes, 0);
  atomic_init(&device->peak, 0);
  *out_device = device;
  return NULL;
}

static void device_close(lazyt_device_t *device) { null_services->free(device); }

static lazyt_status_t *device_memory_stats(lazyt_device_t *device, lazyt_memory_stats_t *out_stats) {
  out_stats->bytes_in_use = out_stats->bytes_reserved = atomic_load(&device->bytes);
  out_stats->peak_bytes_in_use = atomic_load(&device->peak);
  out_stats->derived_bytes = 0;
  return NULL;
}

const lazyt_plugin_device_t null_device_table = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .memory_stats = device_memory_stats,
};
