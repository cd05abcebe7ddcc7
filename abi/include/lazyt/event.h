/* event.h - when work of the plugin is done, and whether it failed.
 *
 * Work is ordered by events alone. An event is made by the plugin, is not ready at first or
 * ready at once, and becomes ready exactly once, with OK or with an error. It stays so.
 *
 * Rules
 *  EVT-1  Once ready, an event stays ready, with the same status.
 *  EVT-2  An event that carries an error is ready: wait returns, on_ready calls back.
 *  EVT-3  wait with timeout_ns 0 does not block; it fails with DEADLINE_EXCEEDED if not ready.
 *  EVT-4  Each on_ready callback runs exactly once, also when the event was ready before the
 *         call (then possibly inside it), on any thread; it must not block.
 *  EVT-5  Releasing an event neither waits for nor cancels the work.
 *  EVT-6  wait, on_ready and every reference to the event tell the same status.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_EVENT_H_
#define LAZYT_EVENT_H_

#include "lazyt/status.h"

typedef struct lazyt_event_s lazyt_event_t;

/* For wait: no limit. */
#define LAZYT_WAIT_FOREVER UINT64_MAX

/* Called once when the event is ready. status is borrowed, NULL if OK. */
typedef void (*lazyt_event_callback_t)(void *user_data, lazyt_status_t *status);

/* Implemented by the plugin. All [any]. */
typedef struct lazyt_plugin_event_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  /* out_ready: 1 if ready (also with an error), else 0. */
  lazyt_status_t *(*ready)(lazyt_event_t *event, uint32_t *out_ready);
  /* Blocks until ready or for timeout_ns; LAZYT_WAIT_FOREVER waits without limit. Returns the
   * event's own status (given: a fresh reference), or DEADLINE_EXCEEDED. */
  lazyt_status_t *(*wait)(lazyt_event_t *event, uint64_t timeout_ns);
  /* user_data is kept until callback ran. */
  lazyt_status_t *(*on_ready)(lazyt_event_t *event, lazyt_event_callback_t callback, void *user_data);
  void (*retain)(lazyt_event_t *event);
  /* NULL is allowed. */
  void (*release)(lazyt_event_t *event);
} lazyt_plugin_event_t;

#endif /* LAZYT_EVENT_H_ */
