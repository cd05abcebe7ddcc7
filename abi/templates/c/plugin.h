/* plugin.h - what the files of acme share. Rules such as (BUF-5) stand in lazyt's headers. */
#ifndef ACME_PLUGIN_H_
#define ACME_PLUGIN_H_

#include <stdatomic.h>

#include "lazyt/lazyt.h"

#define ACME_ALIGNMENT 64

/* The host's tables, set by the entry. */
extern const lazyt_host_status_t *acme_status;
extern const lazyt_host_services_t *acme_host;

extern const lazyt_plugin_device_t acme_device_table;
extern const lazyt_plugin_buffer_t acme_buffer_table;
extern const lazyt_plugin_event_t acme_event_table;
extern const lazyt_plugin_capability_t acme_capability_table;
extern const lazyt_plugin_executable_t acme_executable_table;

struct lazyt_device_s {
  atomic_uint_least64_t bytes, peak; /* DEV-4 */
  char *details;                     /* of the last query's refusals */
};

struct lazyt_buffer_s {
  lazyt_device_t *device;
  uint64_t size;
  char *data;
};

/* A program that was taken: a copy of its block, and where each value lies in the memory of a run. */
struct lazyt_executable_s {
  lazyt_device_t *device;
  const lazyt_program_t *program;
  uint64_t *places; /* bytes, for each value */
  uint64_t scratch; /* bytes of a run */
  uint64_t held;    /* bytes of all this */
};

/* [region status] */
lazyt_status_t *acme_error(lazyt_code_t code, const char *message);
lazyt_status_t *acme_out_of_memory(const char *where); /* STA-5 */
/* [end] */
/* Memory that memory_stats tells of. */
void acme_count(lazyt_device_t *device, int64_t bytes);

/* The event of work that is done, with its outcome (given). Without out_event the outcome is the result (BUF-7). */
lazyt_status_t *acme_done(lazyt_status_t *outcome, lazyt_event_t **out_event);
/* The first error that the events carry (given), or NULL. */
lazyt_status_t *acme_first_error(lazyt_events_t waits);

lazyt_status_t *acme_compile(lazyt_device_t *device, const lazyt_compile_args_t *args, lazyt_executable_t **out);
lazyt_status_t *acme_output_meta(lazyt_executable_t *executable, uint64_t index, lazyt_output_meta_t *out);
lazyt_status_t *acme_memory(lazyt_executable_t *executable, lazyt_executable_memory_t *out);
lazyt_status_t *acme_execute(lazyt_executable_t *executable, const lazyt_execute_args_t *args, lazyt_event_t **out);
void acme_release(lazyt_executable_t *executable);

/* Bytes from the first to past the last element, as the value's strides spread them (PRG-2). */
uint64_t acme_span(const lazyt_program_t *program, const lazyt_value_t *value);
/* Where element i, counted in row-major order of dims, lies. */
int64_t acme_offset(const int64_t *dims, const int64_t *strides, uint32_t rank, int64_t i);
/* Writes the strides of dense row-major order. */
void acme_dense(const int64_t *dims, uint32_t rank, int64_t *out_strides);

#define ACME_MAX_RANK 64

/* One node of a program that runs. Values lie dense and row-major in memory. */
typedef struct acme_call {
  const lazyt_executable_t *executable;
  const lazyt_node_t *node;
  char *memory;
} acme_call;

/* What lies in the place of a host scalar. */
typedef struct acme_scalar {
  double as_double;
  float as_float;
} acme_scalar;

int acme_reads_scalar(lazyt_dtype_t dtype);

typedef struct acme_op {
  const char *name, *overload;
  /* Why this node cannot be taken, static, and its reason code; NULL = it can. */
  const char *(*refuse)(const lazyt_program_t *program, const lazyt_node_t *node, lazyt_reason_t *out_reason);
  lazyt_status_t *(*run)(const acme_call *call);
} acme_op;

/* NULL for an operator that acme does not have. */
const acme_op *acme_find(const lazyt_program_t *program, const lazyt_node_t *node);

#endif /* ACME_PLUGIN_H_ */
