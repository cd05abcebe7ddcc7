/* host.h - what the host offers to a plugin.
 *
 * The table is handed to the entry function and is static while the plugin is loaded. All of it
 * is [any]; none of it may be called after shutdown returned.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_HOST_H_
#define LAZYT_HOST_H_

#include "lazyt/status.h"

typedef int32_t lazyt_log_level_t;
#define LAZYT_LOG_TRACE ((lazyt_log_level_t)0)
#define LAZYT_LOG_DEBUG ((lazyt_log_level_t)1)
#define LAZYT_LOG_INFO ((lazyt_log_level_t)2)
#define LAZYT_LOG_WARNING ((lazyt_log_level_t)3)
#define LAZYT_LOG_ERROR ((lazyt_log_level_t)4)

/* Runs part `index` of a parallel-for. */
typedef void (*lazyt_parallel_body_t)(void *user_data, uint64_t index);

typedef struct lazyt_host_services_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  void (*log)(lazyt_log_level_t level, lazyt_string_t message);
  /* Host memory that the host counts (and, in tests, refuses); NULL when exhausted. free takes
   * what alloc gave, or NULL. alignment: a power of two. */
  void *(*alloc)(uint64_t size, uint64_t alignment);
  void (*free)(void *pointer);
  /* Threads the user allows for compute on the calling thread; at least 1. */
  uint32_t (*thread_count)(void);
  /* Runs body for index 0..count-1, concurrently where it pays, and returns when all are done. */
  void (*parallel_for)(uint64_t count, lazyt_parallel_body_t body, void *user_data);
  /* Marks a span of time in the host's profile; ends with the token it gave. */
  uint64_t (*trace_begin)(lazyt_string_t name);
  void (*trace_end)(uint64_t token);
  /* Adds to a named counter of the host's metrics. */
  void (*count)(lazyt_string_t name, int64_t delta);
  /* 1 when the work that the calling thread does for the host was cancelled. */
  uint32_t (*cancelled)(void);
  /* The value of option `name` for this plugin ("LAZYT_<PLUGIN>_<NAME>" in the environment, or set
   * by the host). Static. OK with size 0 and data NULL when not set. */
  lazyt_status_t *(*option)(lazyt_string_t plugin, lazyt_string_t name, lazyt_string_t *out_value);
  /* Optional. Bytes that outlive the process, by key; NOT_FOUND on a miss. out_data is given:
   * release with free. */
  lazyt_status_t *(*cache_get)(lazyt_string_t key, void **out_data, uint64_t *out_size);
  lazyt_status_t *(*cache_put)(lazyt_string_t key, const void *data, uint64_t size);
} lazyt_host_services_t;

typedef struct lazyt_host_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  uint32_t abi_major; /* of the host's headers */
  uint32_t abi_minor;
  uint32_t abi_draft;
  uint32_t reserved;
  lazyt_string_t version;               /* static; the host's own, for messages */
  const lazyt_host_status_t *status;    /* static */
  const lazyt_host_services_t *services; /* static */
  /* Optional tables by id; NULL when the host lacks it. Static. */
  const void *(*get_extension)(lazyt_string_t id);
} lazyt_host_t;

#endif /* LAZYT_HOST_H_ */
