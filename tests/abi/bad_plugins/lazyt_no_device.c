/* Loads, and has no device. */
#include "good.h"

static lazyt_plugin_device_t device;
static lazyt_status_t *none(uint32_t *out_count) {
  *out_count = 0;
  return NULL;
}
static lazyt_status_t *why(lazyt_plugin_info_t *out_info) {
  static const lazyt_string_t name = LAZYT_STR("no_device");
  static const lazyt_string_t text = LAZYT_STR("no card in any slot");
  lazyt_status_t *status = info(out_info);
  out_info->name = name;
  out_info->why_none = text;
  out_info->score = 1000000;
  return status;
}
BAD_TABLE(device = null_device_table; device.count = none; bad.device = &device; bad.info = why)
