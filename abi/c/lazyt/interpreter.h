/* interpreter.h - a whole plugin around a table of operators, for C. Header-only; include it in one source.
 *
 *   static const lazyt_operator_t operators[] = {{"aten::relu", "", float32, relu}};
 *   static const lazyt_interpreter_t acme = {.name = "acme", ..., .operators = operators, .operator_count = 1};
 *   LAZYT_INTERPRETER(acme)
 *
 * It answers for everything that is no operator: one device whose memory is the host's, buffers, events, which nodes
 * are taken, programs that are kept and run one node after the other, and the entry point. All work is done when its
 * call returns, so that events are born ready. Values lie dense and row-major while a program runs, in memory of the run;
 * buffers change only at its end, so that whatever fails has consumed nothing (EXE-6).
 *
 * A vendor begins here and replaces what the hardware does better: the tables are functions of this file, and a plugin
 * with a table of its own takes the others from here.
 *
 * SPDX-License-Identifier: BSL-1.0
 */
#ifndef LAZYT_INTERPRETER_H_
#define LAZYT_INTERPRETER_H_

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lazyt/lazyt.h"

#define LAZYT_INTERPRETER_ALIGNMENT 64
#define LAZYT_MAX_RANK 64

/* --- what a vendor writes ------------------------------------------------------------------ */

/* May this node be computed? */
typedef struct lazyt_question_t {
  const lazyt_program_t *program;
  const lazyt_node_t *node;
  lazyt_reason_t reason; /* of the refusal */
} lazyt_question_t;

/* One node of a program that runs. */
typedef struct lazyt_call_t {
  const lazyt_executable_t *executable;
  const lazyt_program_t *program;
  const lazyt_node_t *node;
  char *memory;
} lazyt_call_t;

typedef struct lazyt_operator_t {
  const char *name, *overload;
  /* NULL = taken; else why not, static, with question->reason set (lazyt_refuse). */
  const char *(*refuse)(lazyt_question_t *question);
  /* NULL = done; a status (given) fails the run (EXE-2). */
  lazyt_status_t *(*run)(const lazyt_call_t *call);
} lazyt_operator_t;

typedef struct lazyt_interpreter_t {
  const char *name, *version, *description, *vendor, *device;
  int32_t score;                          /* below 0: taken only by those who name it */
  lazyt_status_t *(*init)(void);          /* may be NULL; opens the driver (LIB-3) */
  void (*shutdown)(void);                 /* may be NULL */
  const lazyt_operator_t *operators;
  uint64_t operator_count;
} lazyt_interpreter_t;

/* A value of a running program: f32 unless its operator let another dtype in. */
typedef struct lazyt_tensor_t {
  float *data;
  const int64_t *dims;
  uint32_t rank;
  int64_t count;
} lazyt_tensor_t;

static const lazyt_interpreter_t *lazyt_interpreter; /* set by LAZYT_INTERPRETER */
static const lazyt_host_status_t *lazyt_host_status;
static const lazyt_host_services_t *lazyt_host_services;

/* --- errors -------------------------------------------------------------------------------- */

/* [region status] */
static inline lazyt_status_t *lazyt_error(lazyt_code_t code, const char *message) {
  char text[256];
  const int n = snprintf(text, sizeof text, "%s: %s", lazyt_interpreter->name, message);
  return lazyt_host_status->create(code, lazyt_string(text, n < (int)sizeof text ? (uint64_t)n : sizeof text - 1));
}
static inline lazyt_status_t *lazyt_out_of_memory(const char *where) { /* STA-5 */
  lazyt_status_t *status = lazyt_error(LAZYT_CODE_RESOURCE_EXHAUSTED, "memory is exhausted");
  lazyt_host_status->annotate(status, lazyt_string(lazyt_interpreter->name, strlen(lazyt_interpreter->name)),
                              lazyt_string(where, strlen(where)));
  return status;
}
/* [end] */

static inline const char *lazyt_refuse(lazyt_question_t *question, lazyt_reason_t reason, const char *why) {
  question->reason = reason;
  return why;
}

/* --- where elements lie -------------------------------------------------------------------- */

/* Writes the strides of dense row-major order. */
static inline void lazyt_dense(const int64_t *dims, uint32_t rank, int64_t *out_strides) {
  int64_t step = 1;
  for (uint32_t i = rank; i-- > 0; step *= dims[i]) out_strides[i] = step;
}

/* Where element i, counted in row-major order of dims, lies. */
static inline int64_t lazyt_offset(const int64_t *dims, const int64_t *strides, uint32_t rank, int64_t i) {
  int64_t offset = 0;
  for (uint32_t d = rank; d-- > 0; i /= dims[d]) offset += i % dims[d] * strides[d];
  return offset;
}

/* Writes strides that read t as if it had the dims of o: 0 where it is repeated (PRG-4). */
static inline void lazyt_broadcast(lazyt_tensor_t t, lazyt_tensor_t o, int64_t *out_strides) {
  int64_t dense[LAZYT_MAX_RANK];
  lazyt_dense(t.dims, t.rank, dense);
  for (uint32_t i = 0; i < o.rank; i++) {
    const int64_t d = (int64_t)i - (int64_t)(o.rank - t.rank);
    out_strides[i] = d < 0 || t.dims[d] == 1 ? 0 : dense[d];
  }
}

/* --- the objects --------------------------------------------------------------------------- */

struct lazyt_device_s {
  atomic_uint_least64_t bytes, peak; /* DEV-4 */
  char *details;                     /* of the last query's refusals */
};

struct lazyt_buffer_s {
  lazyt_device_t *device;
  uint64_t size;
  char *data;
};

struct lazyt_event_s {
  atomic_uint references;
  lazyt_status_t *outcome; /* NULL = OK */
};

/* A program that was taken: a copy of its block, and where each value lies in the memory of a run. */
struct lazyt_executable_s {
  lazyt_device_t *device;
  const lazyt_program_t *program;
  uint64_t *places; /* bytes, for each value */
  uint64_t scratch; /* bytes of a run */
  uint64_t held;    /* bytes of all this */
};

/* What lies in the place of a host scalar. */
typedef struct lazyt_number_t {
  double as_double;
  float as_float;
} lazyt_number_t;

/* Memory that memory_stats tells of. */
static inline void lazyt_count(lazyt_device_t *device, int64_t bytes) {
  uint64_t now = atomic_fetch_add(&device->bytes, (uint64_t)bytes) + (uint64_t)bytes;
  uint64_t peak = atomic_load(&device->peak);
  while (bytes > 0 && now > peak && !atomic_compare_exchange_weak(&device->peak, &peak, now)) {
  }
}

/* --- reading a node ------------------------------------------------------------------------ */

static inline const lazyt_arg_t *lazyt_node_arg(const lazyt_program_t *p, const lazyt_node_t *node, uint32_t i) {
  return lazyt_arg(p, node->args + i);
}

static inline lazyt_tensor_t lazyt_tensor(const lazyt_call_t *c, uint64_t index) {
  const lazyt_value_t *v = lazyt_value(c->program, index);
  char *at = c->memory + c->executable->places[index];
  if (v->flags & LAZYT_VALUE_HOST_SCALAR) at = (char *)&((lazyt_number_t *)(void *)at)->as_float;
  lazyt_tensor_t t = {(float *)(void *)at, lazyt_ints(c->program, v->dims), v->rank, lazyt_value_numel(c->program, v)};
  return t;
}
/* The tensor that argument i is; element k of the list that it is; result i. */
static inline lazyt_tensor_t lazyt_in(const lazyt_call_t *c, uint32_t i) {
  return lazyt_tensor(c, lazyt_node_arg(c->program, c->node, i)->payload);
}
static inline lazyt_tensor_t lazyt_item(const lazyt_call_t *c, uint32_t i, uint32_t k) {
  return lazyt_tensor(c, lazyt_arg(c->program, lazyt_node_arg(c->program, c->node, i)->payload + k)->payload);
}
static inline lazyt_tensor_t lazyt_out(const lazyt_call_t *c, uint32_t i) { return lazyt_tensor(c, c->node->results + i); }

/* [region number] */
/* A number: written into the program, or a host scalar, whose bytes come with each execute (PRG-6). */
static inline double lazyt_number(const lazyt_call_t *c, uint32_t i) {
  const lazyt_arg_t *a = lazyt_node_arg(c->program, c->node, i);
  if (a->kind == LAZYT_ARG_VALUE)
    return ((lazyt_number_t *)(void *)(c->memory + c->executable->places[a->payload]))->as_double;
  if (a->kind != LAZYT_ARG_DOUBLE) return (double)(int64_t)a->payload;
  double bits;
  memcpy(&bits, &a->payload, sizeof bits);
  return bits;
}
/* [end] */

/* --- which nodes are taken ----------------------------------------------------------------- */

static inline int lazyt_reads_number(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_FLOAT64 || dtype == LAZYT_DTYPE_FLOAT32 || dtype == LAZYT_DTYPE_INT64 ||
         dtype == LAZYT_DTYPE_BOOL;
}

static inline int lazyt_has_dtype(const lazyt_program_t *p, uint64_t value, lazyt_dtype_t dtype) {
  const lazyt_value_t *v = lazyt_value(p, value);
  return v->dtype == dtype || ((v->flags & LAZYT_VALUE_HOST_SCALAR) && lazyt_reads_number(v->dtype));
}

/* All tensors are f32, except argument `i64` (-1: none). A host scalar of another dtype is converted (PRG-4). */
static inline int lazyt_is_float32(const lazyt_question_t *q, int i64) {
  const lazyt_program_t *p = q->program;
  for (uint32_t i = 0; i < q->node->arg_count; i++) {
    const lazyt_arg_t *a = lazyt_node_arg(p, q->node, i), *element = a->kind == LAZYT_ARG_LIST ? lazyt_arg(p, a->payload) : a;
    const lazyt_dtype_t wanted = (int)i == i64 ? LAZYT_DTYPE_INT64 : LAZYT_DTYPE_FLOAT32;
    for (uint32_t k = 0; k < (a->kind == LAZYT_ARG_LIST ? a->count : 1); k++, element++)
      if (element->kind == LAZYT_ARG_VALUE && !lazyt_has_dtype(p, element->payload, wanted)) return 0;
  }
  for (uint32_t i = 0; i < q->node->result_count; i++)
    if (!lazyt_has_dtype(p, q->node->results + i, LAZYT_DTYPE_FLOAT32)) return 0;
  return 1;
}

/* The integer that argument i is; -1 where it is none. The rank of the tensor that it is. */
static inline int64_t lazyt_integer(const lazyt_question_t *q, uint32_t i) {
  const lazyt_arg_t *a = lazyt_node_arg(q->program, q->node, i);
  return a->kind == LAZYT_ARG_INT ? (int64_t)a->payload : -1;
}
static inline int64_t lazyt_rank(const lazyt_question_t *q, uint32_t i) {
  return lazyt_value(q->program, lazyt_node_arg(q->program, q->node, i)->payload)->rank;
}

static inline int lazyt_same_dims(const lazyt_question_t *q, uint32_t i, uint32_t k) {
  const lazyt_value_t *a = lazyt_value(q->program, lazyt_node_arg(q->program, q->node, i)->payload);
  const lazyt_value_t *b = lazyt_value(q->program, lazyt_node_arg(q->program, q->node, k)->payload);
  return a->rank == b->rank && memcmp(lazyt_ints(q->program, a->dims), lazyt_ints(q->program, b->dims), a->rank * sizeof(int64_t)) == 0;
}

static inline const lazyt_operator_t *lazyt_find(const lazyt_program_t *p, const lazyt_node_t *node) {
  const lazyt_string_t name = lazyt_text(p, node->name), overload = lazyt_text(p, node->overload);
  for (uint64_t i = 0; i < lazyt_interpreter->operator_count; i++) {
    const lazyt_operator_t *op = &lazyt_interpreter->operators[i];
    if (name.size == strlen(op->name) && memcmp(name.data, op->name, name.size) == 0 &&
        overload.size == strlen(op->overload) && memcmp(overload.data, op->overload, overload.size) == 0)
      return op;
  }
  return NULL;
}

static inline const char *lazyt_refusal(lazyt_question_t *q) {
  const lazyt_operator_t *op = lazyt_find(q->program, q->node);
  return op ? op->refuse(q) : lazyt_refuse(q, LAZYT_REASON_UNKNOWN_OPERATOR, "does not have this operator");
}

/* [region query] */
static inline lazyt_status_t *lazyt_interpreter_query(lazyt_device_t *device, const lazyt_program_t *p,
                                                      lazyt_answer_t *answers, uint64_t count, uint64_t stride) {
  /* "name.overload: acme why", of each refusal: kept until the next query. */
  const uint64_t more = strlen(lazyt_interpreter->name) + 128;
  uint64_t size = 1;
  for (uint64_t i = 0; i < count; i++) size += lazyt_node(p, i)->name.size + lazyt_node(p, i)->overload.size + more;
  char *text = (char *)lazyt_host_services->alloc(size, 1);
  if (!text) return lazyt_out_of_memory("capability.query");
  lazyt_host_services->free(device->details);
  device->details = text;
  for (uint64_t i = 0; i < count; i++) {
    lazyt_answer_t *answer = (lazyt_answer_t *)(void *)((char *)answers + i * stride); /* C-3 */
    lazyt_question_t q = {p, lazyt_node(p, i), LAZYT_REASON_NONE};
    const char *why = lazyt_refusal(&q);
    answer->kind = why ? LAZYT_ANSWER_REFUSE : LAZYT_ANSWER_TAKE;
    answer->reason = q.reason;
    if (!why) continue;
    const lazyt_string_t name = lazyt_text(p, q.node->name), overload = lazyt_text(p, q.node->overload);
    const uint64_t room = name.size + overload.size + more;
    const int n = snprintf(text, room, "%.*s%s%.*s: %s %s", (int)name.size, name.data, overload.size ? "." : "",
                           (int)overload.size, overload.data, lazyt_interpreter->name, why);
    answer->detail = lazyt_string(text, (uint64_t)n < room ? (uint64_t)n : room - 1);
    text += answer->detail.size + 1;
  }
  return NULL;
}
/* [end] */

/* --- the device ---------------------------------------------------------------------------- */

static inline lazyt_status_t *lazyt_interpreter_device_count(uint32_t *out_count) { return *out_count = 1, (lazyt_status_t *)NULL; }

static inline lazyt_status_t *lazyt_interpreter_check_index(uint32_t index) {
  return index == 0 ? NULL : lazyt_error(LAZYT_CODE_INVALID_ARGUMENT, "there is one device, number 0");
}

static inline lazyt_status_t *lazyt_interpreter_describe(uint32_t index, lazyt_device_info_t *out_info) {
  lazyt_status_t *status = lazyt_interpreter_check_index(index);
  if (status) return status;
  out_info->name = lazyt_string(lazyt_interpreter->device, strlen(lazyt_interpreter->device));
  out_info->vendor = lazyt_string(lazyt_interpreter->vendor, strlen(lazyt_interpreter->vendor));
  out_info->flags = LAZYT_DEVICE_HOST_VISIBLE;
  out_info->total_bytes = 0;
  out_info->alignment = LAZYT_INTERPRETER_ALIGNMENT;
  out_info->dlpack_type = out_info->dlpack_id = 0;
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_open(uint32_t index, lazyt_device_t **out_device) {
  lazyt_status_t *status = lazyt_interpreter_check_index(index);
  if (status) return status;
  lazyt_device_t *device = (lazyt_device_t *)lazyt_host_services->alloc(sizeof *device, LAZYT_INTERPRETER_ALIGNMENT);
  if (!device) return lazyt_out_of_memory("device.open");
  memset(device, 0, sizeof *device);
  *out_device = device;
  return NULL;
}

static inline void lazyt_interpreter_close(lazyt_device_t *device) {
  if (device) lazyt_host_services->free(device->details);
  lazyt_host_services->free(device);
}

static inline lazyt_status_t *lazyt_interpreter_memory_stats(lazyt_device_t *device, lazyt_memory_stats_t *out_stats) {
  out_stats->bytes_in_use = out_stats->bytes_reserved = atomic_load(&device->bytes);
  out_stats->peak_bytes_in_use = atomic_load(&device->peak);
  out_stats->derived_bytes = 0;
  return NULL;
}

/* --- events -------------------------------------------------------------------------------- */

static lazyt_event_t lazyt_went_well; /* shared by all work that went well, never freed */

static inline void lazyt_interpreter_retain_event(lazyt_event_t *event) {
  if (event != &lazyt_went_well) atomic_fetch_add(&event->references, 1);
}

static inline void lazyt_interpreter_release_event(lazyt_event_t *event) {
  if (!event || event == &lazyt_went_well || atomic_fetch_sub(&event->references, 1) != 1) return;
  lazyt_host_status->release(event->outcome);
  lazyt_host_services->free(event);
}

/* The event of work that is done, with its outcome (given). Without out_event the outcome is the result (BUF-7). */
static inline lazyt_status_t *lazyt_done(lazyt_status_t *outcome, lazyt_event_t **out_event) {
  if (!out_event) return outcome;
  lazyt_event_t *event = &lazyt_went_well;
  if (outcome) {
    event = (lazyt_event_t *)lazyt_host_services->alloc(sizeof *event, sizeof(void *));
    if (!event) return outcome; /* no memory for an event that carries the error: it comes at once */
    atomic_init(&event->references, 1);
    event->outcome = outcome;
  }
  *out_event = event;
  return NULL;
}

/* The first error that the events carry (given), or NULL. */
static inline lazyt_status_t *lazyt_first_error(lazyt_events_t waits) {
  for (uint64_t i = 0; i < waits.count; i++)
    if (waits.events[i]->outcome) return lazyt_host_status->retain(waits.events[i]->outcome);
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_ready(lazyt_event_t *event, uint32_t *out_ready) {
  (void)event;
  *out_ready = 1;
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_wait(lazyt_event_t *event, uint64_t timeout_ns) {
  (void)timeout_ns;
  return event->outcome ? lazyt_host_status->retain(event->outcome) : NULL;
}

static inline lazyt_status_t *lazyt_interpreter_on_ready(lazyt_event_t *event, lazyt_event_callback_t callback,
                                                         void *user_data) {
  callback(user_data, event->outcome);
  return NULL;
}

/* --- buffers ------------------------------------------------------------------------------- */

static inline lazyt_status_t *lazyt_interpreter_make(lazyt_device_t *device, uint64_t size, uint64_t alignment,
                                                     lazyt_buffer_t **out_buffer) {
  const uint64_t least = LAZYT_INTERPRETER_ALIGNMENT;
  lazyt_buffer_t *buffer = (lazyt_buffer_t *)lazyt_host_services->alloc(sizeof *buffer, sizeof(void *));
  char *data = (char *)lazyt_host_services->alloc(size, alignment > least ? alignment : least);
  if (!buffer || !data) {
    lazyt_host_services->free(buffer);
    lazyt_host_services->free(data);
    return lazyt_out_of_memory("buffer");
  }
  buffer->device = device;
  buffer->size = size;
  buffer->data = data;
  lazyt_count(device, (int64_t)size);
  *out_buffer = buffer;
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_alloc(lazyt_device_t *device, const lazyt_buffer_desc_t *desc,
                                                      lazyt_buffer_t **out_buffer) {
  if (desc->memory_space != 0) return lazyt_error(LAZYT_CODE_INVALID_ARGUMENT, "there is memory space 0 only");
  return lazyt_interpreter_make(device, desc->size_bytes, desc->alignment, out_buffer);
}

static inline lazyt_status_t *lazyt_interpreter_from_host(lazyt_device_t *device, const lazyt_host_bytes_t *bytes,
                                                          lazyt_buffer_t **out_buffer) {
  lazyt_status_t *status = lazyt_interpreter_make(device, bytes->size_bytes, 0, out_buffer);
  if (status) return status;
  if (bytes->size_bytes) memcpy((*out_buffer)->data, bytes->data, bytes->size_bytes);
  if (bytes->done) bytes->done(bytes->done_user_data); /* every sharing mode is a copy here (BUF-8) */
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_check_range(const lazyt_buffer_t *buffer, uint64_t offset, uint64_t size) {
  if (offset <= buffer->size && size <= buffer->size - offset) return NULL;
  return lazyt_error(LAZYT_CODE_OUT_OF_RANGE, "offset and size leave the buffer"); /* BUF-5 */
}

static inline lazyt_status_t *lazyt_interpreter_to_host(lazyt_buffer_t *buffer, uint64_t offset, void *dst, uint64_t size,
                                                        lazyt_events_t waits, lazyt_event_t **out_event) {
  lazyt_status_t *status = lazyt_interpreter_check_range(buffer, offset, size);
  if (status) return status;
  status = lazyt_first_error(waits); /* BUF-6 */
  if (!status && size) memcpy(dst, buffer->data + offset, size);
  return lazyt_done(status, out_event);
}

static inline lazyt_status_t *lazyt_interpreter_copy(lazyt_buffer_t *src, uint64_t src_offset, lazyt_buffer_t *dst,
                                                     uint64_t dst_offset, uint64_t size, lazyt_events_t waits,
                                                     lazyt_event_t **out_event) {
  lazyt_status_t *status = lazyt_interpreter_check_range(src, src_offset, size);
  if (!status) status = lazyt_interpreter_check_range(dst, dst_offset, size);
  if (status) return status;
  status = lazyt_first_error(waits);
  if (!status && size) memmove(dst->data + dst_offset, src->data + src_offset, size);
  return lazyt_done(status, out_event);
}

static inline lazyt_status_t *lazyt_interpreter_size(lazyt_buffer_t *buffer, uint64_t *out_bytes) {
  *out_bytes = buffer->size;
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_host_pointer(lazyt_buffer_t *buffer, void **out_pointer) {
  *out_pointer = buffer->data;
  return NULL;
}

static inline void lazyt_interpreter_release_buffer(lazyt_buffer_t *buffer) {
  if (!buffer) return;
  lazyt_count(buffer->device, -(int64_t)buffer->size);
  lazyt_host_services->free(buffer->data);
  lazyt_host_services->free(buffer);
}

/* --- programs ------------------------------------------------------------------------------ */

/* Bytes from the first to past the last element, as the value's strides spread them (PRG-2). */
static inline uint64_t lazyt_span(const lazyt_program_t *p, const lazyt_value_t *value) {
  uint64_t elements = (uint64_t)lazyt_value_numel(p, value);
  if (elements && value->strides != LAZYT_NONE) {
    elements = 1;
    for (uint32_t i = 0; i < value->rank; i++)
      elements += (uint64_t)((lazyt_ints(p, value->dims)[i] - 1) * lazyt_ints(p, value->strides)[i]);
  }
  return elements * lazyt_dtype_size(value->dtype);
}

static inline void lazyt_interpreter_release_executable(lazyt_executable_t *e) {
  if (!e) return;
  lazyt_count(e->device, -(int64_t)e->held);
  lazyt_host_services->free((void *)e->program);
  lazyt_host_services->free(e->places);
  lazyt_host_services->free(e);
}

static inline lazyt_status_t *lazyt_interpreter_compile(lazyt_device_t *device, const lazyt_compile_args_t *args,
                                                        lazyt_executable_t **out) {
  const lazyt_program_t *p = args->program;
  for (uint64_t i = 0; i < p->nodes.count; i++) {
    lazyt_question_t q = {p, lazyt_node(p, i), LAZYT_REASON_NONE};
    if (lazyt_refusal(&q))
      return lazyt_error(LAZYT_CODE_UNIMPLEMENTED, "the program has a node that capability.query refuses");
  }
  for (uint64_t i = 0; i < p->constants.count; i++)
    if (lazyt_constant(p, i)->file.size)
      return lazyt_error(LAZYT_CODE_UNIMPLEMENTED, "constants in files are not read");
  for (uint64_t i = 0; i < p->values.count; i++)
    if (lazyt_value(p, i)->rank > LAZYT_MAX_RANK) return lazyt_error(LAZYT_CODE_UNIMPLEMENTED, "more than 64 dims");
  const uint64_t alignment = LAZYT_INTERPRETER_ALIGNMENT;
  lazyt_executable_t *e = (lazyt_executable_t *)lazyt_host_services->alloc(sizeof *e, alignment);
  uint64_t *places = (uint64_t *)lazyt_host_services->alloc(p->values.count * sizeof *places, alignment);
  void *block = lazyt_host_services->alloc(p->total_size, alignment);
  if (!e || !places || !block) {
    lazyt_host_services->free(e);
    lazyt_host_services->free(places);
    lazyt_host_services->free(block);
    return lazyt_out_of_memory("executable.compile");
  }
  memcpy(block, p, p->total_size); /* the host's block is ours during the call only (EXE-1) */
  e->device = device;
  e->program = (const lazyt_program_t *)block;
  e->places = places;
  e->scratch = 0;
  e->held = sizeof *e + p->values.count * sizeof *places + p->total_size;
  for (uint64_t i = 0; i < p->values.count; i++) {
    const lazyt_value_t *value = lazyt_value(p, i);
    const uint64_t bytes = (uint64_t)lazyt_value_numel(p, value) * lazyt_dtype_size(value->dtype) + sizeof(lazyt_number_t);
    places[i] = e->scratch;
    e->scratch += (bytes + alignment - 1) / alignment * alignment;
  }
  lazyt_count(device, (int64_t)e->held);
  *out = e;
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_output_meta(lazyt_executable_t *e, uint64_t index, lazyt_output_meta_t *out) {
  if (index >= e->program->outputs.count) return lazyt_error(LAZYT_CODE_INVALID_ARGUMENT, "there is no such output");
  out->size_bytes = lazyt_span(e->program, lazyt_value(e->program, lazyt_output(e->program, index)->value));
  out->alignment = LAZYT_INTERPRETER_ALIGNMENT;
  out->memory_space = out->opaque = 0;
  return NULL;
}

static inline lazyt_status_t *lazyt_interpreter_memory(lazyt_executable_t *e, lazyt_executable_memory_t *out) {
  out->code_bytes = e->held;
  out->scratch_bytes = e->scratch;
  out->flags = LAZYT_EXECUTABLE_KEEPS_NOTHING;
  return NULL;
}

/* Copies a value's elements between its buffer, where strides spread them, and dense memory. */
static inline void lazyt_interpreter_move(const lazyt_program_t *p, const lazyt_value_t *value, char *spread, char *dense,
                                          int to_dense) {
  const int64_t count = lazyt_value_numel(p, value), *dims = lazyt_ints(p, value->dims);
  const size_t size = lazyt_dtype_size(value->dtype);
  int64_t row_major[LAZYT_MAX_RANK];
  lazyt_dense(dims, value->rank, row_major);
  const int64_t *strides = value->strides == LAZYT_NONE ? row_major : lazyt_ints(p, value->strides);
  if (memcmp(strides, row_major, value->rank * sizeof *strides) == 0) {
    memcpy(to_dense ? dense : spread, to_dense ? spread : dense, (size_t)count * size);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    char *far = spread + (size_t)lazyt_offset(dims, strides, value->rank, i) * size, *near = dense + (size_t)i * size;
    memcpy(to_dense ? near : far, to_dense ? far : near, size);
  }
}

static inline lazyt_number_t lazyt_read_number(lazyt_scalar_t scalar, lazyt_dtype_t dtype) {
  double as_double = 0;
  float as_float = 0;
  int64_t as_int = 0;
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT64: memcpy(&as_double, scalar.bytes, sizeof as_double); break;
    case LAZYT_DTYPE_FLOAT32: memcpy(&as_float, scalar.bytes, sizeof as_float); as_double = (double)as_float; break;
    case LAZYT_DTYPE_INT64: memcpy(&as_int, scalar.bytes, sizeof as_int); as_double = (double)as_int; break;
    default: as_double = scalar.bytes[0]; /* BOOL: no other is taken */
  }
  const lazyt_number_t number = {as_double, (float)as_double};
  return number;
}

static inline lazyt_status_t *lazyt_interpreter_load(const lazyt_executable_t *e, const lazyt_execute_args_t *args,
                                                     char *memory) {
  const lazyt_program_t *p = e->program;
  for (uint64_t i = 0; i < p->constants.count; i++) {
    const lazyt_constant_t *c = lazyt_constant(p, i);
    lazyt_interpreter_move(p, lazyt_value(p, c->value), (char *)(uintptr_t)p + p->data.offset + c->offset,
                           memory + e->places[c->value], 1);
  }
  for (uint64_t i = 0; i < args->input_count; i++) {
    const lazyt_execute_input_t *in =
        (const lazyt_execute_input_t *)(const void *)((const char *)args->inputs + i * args->input_stride); /* C-3 */
    const uint32_t index = lazyt_input(p, i)->value;
    const lazyt_value_t *value = lazyt_value(p, index);
    if (value->flags & LAZYT_VALUE_HOST_SCALAR) {
      *(lazyt_number_t *)(void *)(memory + e->places[index]) = lazyt_read_number(in->scalar, value->dtype); /* PRG-6 */
    } else {
      if (in->buffer->size < lazyt_span(p, value))
        return lazyt_error(LAZYT_CODE_INVALID_ARGUMENT, "an input's buffer is too small");
      lazyt_interpreter_move(p, value, in->buffer->data, memory + e->places[index], 1);
    }
  }
  return NULL;
}

/* [region run] */
static inline lazyt_status_t *lazyt_interpreter_run(const lazyt_executable_t *e, const lazyt_execute_args_t *args,
                                                    char *memory) {
  const lazyt_program_t *p = e->program;
  lazyt_status_t *status = lazyt_interpreter_load(e, args, memory);
  for (uint64_t i = 0; !status && i < p->nodes.count; i++) {
    const lazyt_call_t call = {e, p, lazyt_node(p, i), memory};
    status = lazyt_find(p, call.node)->run(&call);
  }
  if (status) return status;
  /* Buffers change only here: whatever failed before this line has consumed nothing (EXE-6). */
  for (uint64_t i = 0; i < args->output_count; i++) {
    const uint32_t index = lazyt_output(p, i)->value;
    lazyt_interpreter_move(p, lazyt_value(p, index), args->outputs[i]->data, memory + e->places[index], 0);
  }
  return NULL;
}
/* [end] */

static inline lazyt_status_t *lazyt_interpreter_execute(lazyt_executable_t *e, const lazyt_execute_args_t *args,
                                                        lazyt_event_t **out_event) {
  const lazyt_program_t *p = e->program;
  if (args->input_count != p->inputs.count || args->output_count != p->outputs.count)
    return lazyt_error(LAZYT_CODE_INVALID_ARGUMENT, "the program has another number of inputs or outputs");
  for (uint64_t i = 0; i < args->output_count; i++)
    if (args->outputs[i]->size < lazyt_span(p, lazyt_value(p, lazyt_output(p, i)->value)))
      return lazyt_error(LAZYT_CODE_INVALID_ARGUMENT, "an output's buffer is too small"); /* EXE-10 */
  lazyt_status_t *status = lazyt_first_error(args->waits); /* EXE-11 */
  if (status) return lazyt_done(status, out_event);
  char *memory = (char *)lazyt_host_services->alloc(e->scratch, LAZYT_INTERPRETER_ALIGNMENT);
  if (!memory) return lazyt_out_of_memory("executable.execute");
  status = lazyt_interpreter_run(e, args, memory);
  lazyt_host_services->free(memory);
  return lazyt_done(status, out_event);
}

/* --- the plugin ---------------------------------------------------------------------------- */

static inline uint64_t lazyt_interpreter_handshake(uint64_t seed, lazyt_handshake_t *out) {
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}

static inline lazyt_status_t *lazyt_interpreter_init(void) {
  return lazyt_interpreter->init ? lazyt_interpreter->init() : NULL;
}

static inline void lazyt_interpreter_shutdown(void) {
  if (lazyt_interpreter->shutdown) lazyt_interpreter->shutdown();
}

static inline lazyt_status_t *lazyt_interpreter_info(lazyt_plugin_info_t *out_info) {
  const lazyt_interpreter_t *of = lazyt_interpreter;
  out_info->name = lazyt_string(of->name, strlen(of->name));
  out_info->version = lazyt_string(of->version, strlen(of->version));
  out_info->description = lazyt_string(of->description, strlen(of->description));
  out_info->vendor = lazyt_string(of->vendor, strlen(of->vendor));
  out_info->why_none = lazyt_string(NULL, 0);
  out_info->score = of->score;
  return NULL;
}

static const lazyt_plugin_device_t lazyt_interpreter_devices = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .count = lazyt_interpreter_device_count,
    .describe = lazyt_interpreter_describe,
    .open = lazyt_interpreter_open,
    .close = lazyt_interpreter_close,
    .memory_stats = lazyt_interpreter_memory_stats,
};
static const lazyt_plugin_buffer_t lazyt_interpreter_buffers = {
    .struct_size = sizeof(lazyt_plugin_buffer_t),
    .alloc = lazyt_interpreter_alloc,
    .from_host = lazyt_interpreter_from_host,
    .to_host = lazyt_interpreter_to_host,
    .copy = lazyt_interpreter_copy,
    .size = lazyt_interpreter_size,
    .host_pointer = lazyt_interpreter_host_pointer,
    .release = lazyt_interpreter_release_buffer,
};
static const lazyt_plugin_event_t lazyt_interpreter_events = {
    .struct_size = sizeof(lazyt_plugin_event_t),
    .ready = lazyt_interpreter_ready,
    .wait = lazyt_interpreter_wait,
    .on_ready = lazyt_interpreter_on_ready,
    .retain = lazyt_interpreter_retain_event,
    .release = lazyt_interpreter_release_event,
};
static const lazyt_plugin_capability_t lazyt_interpreter_capability = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .query = lazyt_interpreter_query,
};
static const lazyt_plugin_executable_t lazyt_interpreter_executables = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .compile = lazyt_interpreter_compile,
    .output_meta = lazyt_interpreter_output_meta,
    .memory = lazyt_interpreter_memory,
    .execute = lazyt_interpreter_execute,
    .release = lazyt_interpreter_release_executable,
};
static const lazyt_plugin_t lazyt_interpreter_plugin = {
    .struct_size = sizeof(lazyt_plugin_t),
    .abi_major = LAZYT_ABI_MAJOR,
    .abi_minor = LAZYT_ABI_MINOR,
    .abi_draft = LAZYT_ABI_DRAFT,
    .handshake = lazyt_interpreter_handshake,
    .init = lazyt_interpreter_init,
    .shutdown = lazyt_interpreter_shutdown,
    .info = lazyt_interpreter_info,
    .device = &lazyt_interpreter_devices,
    .buffer = &lazyt_interpreter_buffers,
    .event = &lazyt_interpreter_events,
    .capability = &lazyt_interpreter_capability,
    .executable = &lazyt_interpreter_executables,
};

/* The entry point of a plugin that `interpreter` (a lazyt_interpreter_t) describes. */
#define LAZYT_INTERPRETER(interpreter)                                                                 \
  lazyt_status_t *lazyt_plugin_entry_v1(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin) { \
    lazyt_interpreter = &(interpreter);                                                                \
    lazyt_host_status = host->status;                                                                  \
    lazyt_host_services = host->services;                                                              \
    *out_plugin = &lazyt_interpreter_plugin;                                                           \
    return NULL;                                                                                       \
  }

#endif /* LAZYT_INTERPRETER_H_ */
