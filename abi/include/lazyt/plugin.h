/* plugin.h - the entry point, the handshake, and the table that a plugin hands out.
 *
 *            entry            init                        shutdown
 *   loaded ---------> known ---------> running (devices) ----------> known --> unloaded
 *
 * Rules
 *  LIB-1  The library exports lazyt_plugin_entry_v1 and nothing else.
 *  LIB-2  It resolves with immediate binding and needs no symbol of the host.
 *  LIB-3  Loading it and calling entry does not touch a device, start a thread or print.
 *  LIB-4  The handshake answers with what the plugin's compiler sees; the host refuses a
 *         difference by name before it calls anything else.
 *  LIB-5  Required tables and slots (all that do not say Optional) are not NULL.
 *  LIB-6  init and shutdown come in pairs; init after shutdown works again.
 *  LIB-7  get_extension answers NULL for an id it does not know.
 *  LIB-8  info names the plugin in [a-z0-9_], as its manifest does.
 *  LIB-9  The host calls devices between init and shutdown only, and closes all before shutdown. The
 *         plugin calls nothing of the host after shutdown returned, until init.
 *  LIB-10 After shutdown the library can be unloaded: no thread of it is left, and nothing in the
 *         process (exit handlers, callbacks of other libraries) still points into it.
 *  LIB-11 The process may end, or fork, at any time and with everything open; what the library left
 *         to run at exit neither blocks nor fails. In a forked child the host calls nothing of the
 *         plugin, so that a child can only exit or start another program.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_PLUGIN_H_
#define LAZYT_PLUGIN_H_

#include "lazyt/buffer.h"
#include "lazyt/capability.h"
#include "lazyt/device.h"
#include "lazyt/event.h"
#include "lazyt/executable.h"
#include "lazyt/host.h"

/* What a compiler made of these headers. Filled by lazyt_handshake_fill. */
typedef struct lazyt_handshake_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  uint32_t byte_order; /* 0x01020304 as stored */
  uint8_t size_pointer, size_enum, align_u64, align_double;
  uint16_t size_string, size_value, size_node, size_arg;
  uint16_t size_program, size_execute_input, size_execute_args, size_answer;
  uint16_t size_host, size_services, size_status, size_plugin;
  uint16_t size_buffer_table, size_event_table, size_device_table, size_executable_table;
} lazyt_handshake_t;

typedef struct lazyt_plugin_info_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  lazyt_string_t name;        /* static; lower case, as in LAZYT_BACKEND */
  lazyt_string_t version;     /* static; the plugin's own */
  lazyt_string_t description; /* static; one line */
  lazyt_string_t vendor;      /* static */
  lazyt_string_t why_none;    /* static; why there is no device, empty if there is one */
  int32_t score;              /* preference when the user names no backend; higher wins */
  uint32_t reserved;
} lazyt_plugin_info_t;

typedef struct lazyt_plugin_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  uint32_t abi_major; /* built with */
  uint32_t abi_minor;
  uint32_t abi_draft;
  uint32_t min_host_minor; /* needs at least */
  /* Fills out with lazyt_handshake_fill; returns seed ^ LAZYT_HANDSHAKE_MASK. [any] */
  uint64_t (*handshake)(uint64_t seed, lazyt_handshake_t *out);
  lazyt_status_t *(*init)(void);     /* [init] */
  void (*shutdown)(void);            /* [init] after every device was closed */
  lazyt_status_t *(*info)(lazyt_plugin_info_t *out_info); /* [any] after init */
  /* Optional: tables by id, "lazyt.<name>/<rev>" or reverse DNS. Static. [any] */
  const void *(*get_extension)(lazyt_string_t id);
  const lazyt_plugin_device_t *device;         /* static */
  const lazyt_plugin_buffer_t *buffer;         /* static */
  const lazyt_plugin_event_t *event;           /* static */
  const lazyt_plugin_capability_t *capability; /* static */
  const lazyt_plugin_executable_t *executable; /* static */
} lazyt_plugin_t;

#define LAZYT_HANDSHAKE_MASK UINT64_C(0x6c617a7974313031)

static inline void lazyt_handshake_fill(lazyt_handshake_t *out) {
  typedef enum { LAZYT_HANDSHAKE_A_ = 1 } probe_enum;
  struct probe_u64 { char c; uint64_t v; };
  struct probe_double { char c; double v; };
  out->byte_order = UINT32_C(0x01020304);
  out->size_pointer = (uint8_t)sizeof(void *);
  out->size_enum = (uint8_t)sizeof(probe_enum);
  out->align_u64 = (uint8_t)offsetof(struct probe_u64, v);
  out->align_double = (uint8_t)offsetof(struct probe_double, v);
  out->size_string = (uint16_t)sizeof(lazyt_string_t);
  out->size_value = (uint16_t)sizeof(lazyt_value_t);
  out->size_node = (uint16_t)sizeof(lazyt_node_t);
  out->size_arg = (uint16_t)sizeof(lazyt_arg_t);
  out->size_program = (uint16_t)sizeof(lazyt_program_t);
  out->size_execute_input = (uint16_t)sizeof(lazyt_execute_input_t);
  out->size_execute_args = (uint16_t)sizeof(lazyt_execute_args_t);
  out->size_answer = (uint16_t)sizeof(lazyt_answer_t);
  out->size_host = (uint16_t)sizeof(lazyt_host_t);
  out->size_services = (uint16_t)sizeof(lazyt_host_services_t);
  out->size_status = (uint16_t)sizeof(lazyt_host_status_t);
  out->size_plugin = (uint16_t)sizeof(lazyt_plugin_t);
  out->size_buffer_table = (uint16_t)sizeof(lazyt_plugin_buffer_t);
  out->size_event_table = (uint16_t)sizeof(lazyt_plugin_event_t);
  out->size_device_table = (uint16_t)sizeof(lazyt_plugin_device_t);
  out->size_executable_table = (uint16_t)sizeof(lazyt_plugin_executable_t);
}

/* The one exported symbol. Hands out the plugin's table, static. host is static. A plugin that
 * cannot work with this host (its abi_major, abi_minor or abi_draft) says so in the status.
 * Called once per load, before anything else, possibly in a helper process. [init] */
LAZYT_EXPORT lazyt_status_t *lazyt_plugin_entry_v1(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin);

#define LAZYT_PLUGIN_ENTRY_NAME "lazyt_plugin_entry_v1"
typedef lazyt_status_t *(*lazyt_plugin_entry_v1_t)(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin);

#endif /* LAZYT_PLUGIN_H_ */
