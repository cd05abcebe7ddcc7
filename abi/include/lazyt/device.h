/* device.h - what the plugin can run on.
 *
 * Devices are numbered from 0. count may be 0: the plugin then loads, and says in `why_none`
 * (plugin.h, info) why it has none. A device is opened before anything is made on it, and
 * closed after all of that was released.
 *
 * Rules
 *  DEV-1  count and describe work before any open, and do not initialise the device.
 *  DEV-2  An index that is not below count is INVALID_ARGUMENT.
 *  DEV-3  Two opens of one index give two handles; both work.
 *  DEV-4  bytes_in_use is what live buffers and executables hold: it falls back when they are
 *         released. It is not above the peak, and derived_bytes is not above it.
 *  DEV-5  trim changes no result.
 *  DEV-6  A device has a name; its alignment is 0 or a power of two.
 *  DEV-7  The host closes a device when all that was made on it is released.
 *  DEV-8  Work of a synchronous device is done when the call that starts it returns: an event that such a
 *         call gives is ready.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_DEVICE_H_
#define LAZYT_DEVICE_H_

#include "lazyt/status.h"

typedef struct lazyt_device_s lazyt_device_t;

typedef uint64_t lazyt_device_flags_t;
/* Buffers of this device can be read and written by the CPU at buffer.host_pointer. */
#define LAZYT_DEVICE_HOST_VISIBLE ((lazyt_device_flags_t)1u)
/* execute may be handed value dims that are expressions over symbols (program.h). */
#define LAZYT_DEVICE_SYMBOLIC_DIMS ((lazyt_device_flags_t)2u)
/* Work is done by the calling thread (and threads of the plugin) before the call returns, and no call waits for
 * hardware, another process or a lock that one of those may keep. The host then calls this device on the thread
 * that needs the result, where a call costs no hand-over to another thread; such a call is not given up at the
 * host's deadline. */
#define LAZYT_DEVICE_SYNCHRONOUS ((lazyt_device_flags_t)4u)

typedef struct lazyt_device_info_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  lazyt_string_t name;   /* static; "AMD EPYC, 2 threads" */
  lazyt_string_t vendor; /* static */
  lazyt_device_flags_t flags;
  uint64_t total_bytes; /* 0 = not known */
  uint64_t alignment;   /* of buffers, a power of two */
  int32_t dlpack_type;  /* DLDeviceType of its memory, 0 = none */
  int32_t dlpack_id;
} lazyt_device_info_t;

typedef struct lazyt_memory_stats_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  uint64_t bytes_in_use;      /* held by live buffers and executables */
  uint64_t peak_bytes_in_use; /* since open */
  uint64_t bytes_reserved;    /* taken from the system, in use or not */
  uint64_t derived_bytes;     /* part of bytes_in_use that trim may free: prepacked weights, caches */
} lazyt_memory_stats_t;

/* Implemented by the plugin. */
typedef struct lazyt_plugin_device_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  lazyt_status_t *(*count)(uint32_t *out_count);                               /* [any] */
  lazyt_status_t *(*describe)(uint32_t index, lazyt_device_info_t *out_info);  /* [any] */
  lazyt_status_t *(*open)(uint32_t index, lazyt_device_t **out_device);        /* [any] out: given */
  void (*close)(lazyt_device_t *device);                                       /* [device] NULL allowed */
  lazyt_status_t *(*memory_stats)(lazyt_device_t *device, lazyt_memory_stats_t *out_stats); /* [any] */
  /* Frees derived forms and cached memory. Optional: NULL = nothing to free. [device] */
  lazyt_status_t *(*trim)(lazyt_device_t *device);
} lazyt_plugin_device_t;

#endif /* LAZYT_DEVICE_H_ */
