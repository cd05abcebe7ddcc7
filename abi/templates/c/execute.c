/* execute.c - runs a program: inputs in, one operator after the other, outputs out. */
#include "plugin.h"

#include <string.h>

/* Copies a value's elements between its buffer, where strides spread them, and dense memory. */
static void move(const lazyt_program_t *p, const lazyt_value_t *value, char *spread, char *dense, int to_dense) {
  const int64_t count = lazyt_value_numel(p, value), *dims = lazyt_ints(p, value->dims);
  const size_t size = lazyt_dtype_size(value->dtype);
  int64_t row_major[ACME_MAX_RANK];
  acme_dense(dims, value->rank, row_major);
  const int64_t *strides = value->strides == LAZYT_NONE ? row_major : lazyt_ints(p, value->strides);
  if (memcmp(strides, row_major, value->rank * sizeof *strides) == 0) {
    memcpy(to_dense ? dense : spread, to_dense ? spread : dense, (size_t)count * size);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    char *far = spread + (size_t)acme_offset(dims, strides, value->rank, i) * size, *near = dense + (size_t)i * size;
    memcpy(to_dense ? near : far, to_dense ? far : near, size);
  }
}

int acme_reads_scalar(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_FLOAT64 || dtype == LAZYT_DTYPE_FLOAT32 || dtype == LAZYT_DTYPE_INT64 ||
         dtype == LAZYT_DTYPE_BOOL;
}

static acme_scalar read_scalar(lazyt_scalar_t scalar, lazyt_dtype_t dtype) {
  double as_double = 0;
  float as_float = 0;
  int64_t as_int = 0;
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT64: memcpy(&as_double, scalar.bytes, sizeof as_double); break;
    case LAZYT_DTYPE_FLOAT32: memcpy(&as_float, scalar.bytes, sizeof as_float); as_double = (double)as_float; break;
    case LAZYT_DTYPE_INT64: memcpy(&as_int, scalar.bytes, sizeof as_int); as_double = (double)as_int; break;
    default: as_double = scalar.bytes[0]; /* BOOL: no other is taken */
  }
  return (acme_scalar){as_double, (float)as_double};
}

static lazyt_status_t *load(const lazyt_executable_t *e, const lazyt_execute_args_t *args, char *memory) {
  const lazyt_program_t *p = e->program;
  for (uint64_t i = 0; i < p->constants.count; i++) {
    const lazyt_constant_t *c = lazyt_constant(p, i);
    move(p, lazyt_value(p, c->value), (char *)p + p->data.offset + c->offset, memory + e->places[c->value], 1);
  }
  for (uint64_t i = 0; i < args->input_count; i++) {
    const lazyt_execute_input_t *in =
        (const lazyt_execute_input_t *)((const char *)args->inputs + i * args->input_stride); /* C-3 */
    const uint32_t index = lazyt_input(p, i)->value;
    const lazyt_value_t *value = lazyt_value(p, index);
    if (value->flags & LAZYT_VALUE_HOST_SCALAR) {
      *(acme_scalar *)(memory + e->places[index]) = read_scalar(in->scalar, value->dtype); /* PRG-6 */
    } else {
      if (in->buffer->size < acme_span(p, value))
        return acme_error(LAZYT_CODE_INVALID_ARGUMENT, "acme: an input's buffer is too small");
      move(p, value, in->buffer->data, memory + e->places[index], 1);
    }
  }
  return NULL;
}

/* [region run] */
static lazyt_status_t *run(const lazyt_executable_t *e, const lazyt_execute_args_t *args, char *memory) {
  const lazyt_program_t *p = e->program;
  lazyt_status_t *status = load(e, args, memory);
  for (uint64_t i = 0; !status && i < p->nodes.count; i++) {
    const lazyt_node_t *node = lazyt_node(p, i);
    const acme_call call = {e, node, memory};
    status = acme_find(p, node)->run(&call);
  }
  if (status) return status;
  /* Buffers change only here: whatever failed before this line has consumed nothing (EXE-6). */
  for (uint64_t i = 0; i < args->output_count; i++) {
    const uint32_t index = lazyt_output(p, i)->value;
    move(p, lazyt_value(p, index), args->outputs[i]->data, memory + e->places[index], 0);
  }
  return NULL;
}
/* [end] */

lazyt_status_t *acme_execute(lazyt_executable_t *e, const lazyt_execute_args_t *args, lazyt_event_t **out_event) {
  const lazyt_program_t *p = e->program;
  if (args->input_count != p->inputs.count || args->output_count != p->outputs.count)
    return acme_error(LAZYT_CODE_INVALID_ARGUMENT, "acme: the program has another number of inputs or outputs");
  for (uint64_t i = 0; i < args->output_count; i++)
    if (args->outputs[i]->size < acme_span(p, lazyt_value(p, lazyt_output(p, i)->value)))
      return acme_error(LAZYT_CODE_INVALID_ARGUMENT, "acme: an output's buffer is too small"); /* EXE-10 */
  lazyt_status_t *status = acme_first_error(args->waits); /* EXE-11 */
  if (status) return acme_done(status, out_event);
  char *memory = acme_host->alloc(e->scratch, ACME_ALIGNMENT);
  if (!memory) return acme_out_of_memory("executable.execute");
  status = run(e, args, memory);
  acme_host->free(memory);
  return acme_done(status, out_event);
}

const lazyt_plugin_executable_t acme_executable_table = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .compile = acme_compile,
    .output_meta = acme_output_meta,
    .memory = acme_memory,
    .execute = acme_execute,
    .release = acme_release,
};
