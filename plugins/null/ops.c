/* ops.c - which nodes are taken: all, but those of LAZYT_NULL_REFUSE ("aten::x,aten::y"). */
#include <string.h>

#include "plugin.h"

static int listed(lazyt_string_t list, lazyt_string_t name) {
  const char *at = list.data;
  const char *end = at + list.size;
  while (at < end) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    const char *stop = comma ? comma : end;
    if ((uint64_t)(stop - at) == name.size && memcmp(at, name.data, name.size) == 0) return 1;
    at = stop + 1;
  }
  return 0;
}

static lazyt_status_t *query(lazyt_device_t *device, const lazyt_program_t *program, lazyt_answer_t *answers,
                             uint64_t count, uint64_t stride) {
  static const lazyt_string_t plugin = LAZYT_STR("null");
  static const lazyt_string_t option = LAZYT_STR("refuse");
  static const lazyt_string_t detail = LAZYT_STR("LAZYT_NULL_REFUSE names the operator");
  lazyt_string_t refused = {NULL, 0};
  lazyt_status_t *status = null_services->option(plugin, option, &refused);
  if (status) return status;
  (void)device;
  for (uint64_t i = 0; i < count; i++) {
    /* Elements may be longer than this header's struct (C-3). */
    lazyt_answer_t *answer = (lazyt_answer_t *)((char *)answers + i * stride);
    if (refused.size && listed(refused, lazyt_text(program, lazyt_node(program, i)->name))) {
      answer->kind = LAZYT_ANSWER_REFUSE;
      answer->reason = LAZYT_REASON_DISABLED;
      answer->detail = detail;
    } else {
      answer->kind = LAZYT_ANSWER_TAKE;
    }
  }
  return NULL;
}

const lazyt_plugin_capability_t null_capability_table = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .query = query,
};
