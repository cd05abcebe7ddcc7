/* plugin.h - what the files of this plugin share.
 *
 * The null backend takes every program and computes nothing: it measures what the host itself
 * costs, and it is the smallest complete plugin, to read or to copy. */
#ifndef LAZYT_PLUGINS_NULL_PLUGIN_H_
#define LAZYT_PLUGINS_NULL_PLUGIN_H_

#include <stdatomic.h>

#include "lazyt/lazyt.h"

/* The host's tables, set by entry. */
extern const lazyt_host_status_t *null_status;
extern const lazyt_host_services_t *null_services;

extern const lazyt_plugin_device_t null_device_table;
extern const lazyt_plugin_buffer_t null_buffer_table;
extern const lazyt_plugin_event_t null_event_table;
extern const lazyt_plugin_capability_t null_capability_table;
extern const lazyt_plugin_executable_t null_executable_table;

struct lazyt_device_s {
  atomic_uint_least64_t bytes;
  atomic_uint_least64_t peak;
};

struct lazyt_buffer_s {
  lazyt_device_t *device;
  uint64_t size;
  unsigned char *data;
};

/* An event that is ready at once: all work is done when the call returns. */
lazyt_event_t *null_ready_event(lazyt_status_t *status /* given, NULL = OK */);
/* For operations with an optional event (BUF-7). */
lazyt_status_t *null_finish(lazyt_status_t *status /* given */, lazyt_event_t **out_event);
/* The first error that the events carry (given), or NULL. */
lazyt_status_t *null_first_error(lazyt_events_t waits);

lazyt_status_t *null_error(lazyt_code_t code, const char *message);
lazyt_status_t *null_out_of_memory(const char *where);

#define NULL_ALIGNMENT 64

#endif /* LAZYT_PLUGINS_NULL_PLUGIN_H_ */
