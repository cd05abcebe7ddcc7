/* attributes.h - extension "lazyt.attributes/1": what a plugin tells people of itself beyond info.
 *
 * Which libraries it found and where, versions, what is switched off and why: lines for `lazyt info` and for bug
 * reports. Nothing is decided by them.
 *
 * A draft: it may change with the draft number. SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_EXT_ATTRIBUTES_H_
#define LAZYT_EXT_ATTRIBUTES_H_

#include "lazyt/status.h"

#define LAZYT_ATTRIBUTES_ID "lazyt.attributes/1"

/* Implemented by the plugin. [any] after init. */
typedef struct lazyt_attributes_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  /* Attribute `index`: "NVRTC", "13.0 (/usr/lib/libnvrtc.so.13)"; both static. OUT_OF_RANGE behind the last. */
  lazyt_status_t *(*get)(uint32_t index, lazyt_string_t *out_name, lazyt_string_t *out_value);
} lazyt_attributes_t;

#endif /* LAZYT_EXT_ATTRIBUTES_H_ */
