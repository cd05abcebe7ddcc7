/* compile.c - which nodes are taken, and what is kept of a program made of them. */
#include "plugin.h"

#include <stdio.h>
#include <string.h>

/* --- capability --------------------------------------------------------------------------- */

static const char *refusal(const lazyt_program_t *p, const lazyt_node_t *node, lazyt_reason_t *out_reason) {
  const acme_op *op = acme_find(p, node);
  if (!op) {
    *out_reason = LAZYT_REASON_UNKNOWN_OPERATOR;
    return "acme does not have this operator";
  }
  return op->refuse(p, node, out_reason);
}

/* [region query] */
static lazyt_status_t *query(lazyt_device_t *device, const lazyt_program_t *p, lazyt_answer_t *answers, uint64_t count,
                             uint64_t stride) {
  /* "name.overload: why", of each refusal: kept until the next query. */
  uint64_t size = 0;
  for (uint64_t i = 0; i < count; i++) size += lazyt_node(p, i)->name.size + lazyt_node(p, i)->overload.size + 96;
  char *text = acme_host->alloc(size + 1, 1);
  if (!text) return acme_out_of_memory("capability.query");
  acme_host->free(device->details);
  device->details = text;
  for (uint64_t i = 0; i < count; i++) {
    lazyt_answer_t *answer = (lazyt_answer_t *)((char *)answers + i * stride); /* C-3 */
    const lazyt_node_t *node = lazyt_node(p, i);
    const char *why = refusal(p, node, &answer->reason);
    answer->kind = why ? LAZYT_ANSWER_REFUSE : LAZYT_ANSWER_TAKE;
    if (!why) continue;
    lazyt_string_t name = lazyt_text(p, node->name), overload = lazyt_text(p, node->overload);
    int n = snprintf(text, name.size + overload.size + 96, "%.*s%s%.*s: %s", (int)name.size, name.data,
                     overload.size ? "." : "", (int)overload.size, overload.data, why);
    answer->detail = lazyt_string(text, (uint64_t)n);
    text += n + 1;
  }
  return NULL;
}
/* [end] */

const lazyt_plugin_capability_t acme_capability_table = {.struct_size = sizeof(lazyt_plugin_capability_t), .query = query};

/* --- where elements lie ------------------------------------------------------------------- */

void acme_dense(const int64_t *dims, uint32_t rank, int64_t *out_strides) {
  int64_t step = 1;
  for (uint32_t i = rank; i-- > 0; step *= dims[i]) out_strides[i] = step;
}

int64_t acme_offset(const int64_t *dims, const int64_t *strides, uint32_t rank, int64_t i) {
  int64_t offset = 0;
  for (uint32_t d = rank; d-- > 0; i /= dims[d]) offset += i % dims[d] * strides[d];
  return offset;
}

uint64_t acme_span(const lazyt_program_t *p, const lazyt_value_t *value) {
  uint64_t elements = (uint64_t)lazyt_value_numel(p, value);
  if (elements && value->strides != LAZYT_NONE) {
    elements = 1;
    for (uint32_t i = 0; i < value->rank; i++)
      elements += (uint64_t)((lazyt_ints(p, value->dims)[i] - 1) * lazyt_ints(p, value->strides)[i]);
  }
  return elements * lazyt_dtype_size(value->dtype);
}

/* --- compile ------------------------------------------------------------------------------ */

lazyt_status_t *acme_compile(lazyt_device_t *device, const lazyt_compile_args_t *args, lazyt_executable_t **out) {
  const lazyt_program_t *p = args->program;
  for (uint64_t i = 0; i < p->nodes.count; i++) {
    lazyt_reason_t reason;
    if (refusal(p, lazyt_node(p, i), &reason))
      return acme_error(LAZYT_CODE_UNIMPLEMENTED, "acme: the program has a node that capability.query refuses");
  }
  for (uint64_t i = 0; i < p->constants.count; i++)
    if (lazyt_constant(p, i)->file.size)
      return acme_error(LAZYT_CODE_UNIMPLEMENTED, "acme: constants in files are not read");
  for (uint64_t i = 0; i < p->values.count; i++)
    if (lazyt_value(p, i)->rank > ACME_MAX_RANK)
      return acme_error(LAZYT_CODE_UNIMPLEMENTED, "acme: more than 64 dims");
  const uint64_t held = sizeof(lazyt_executable_t) + p->values.count * sizeof(uint64_t) + p->total_size;
  lazyt_executable_t *e = acme_host->alloc(sizeof *e, ACME_ALIGNMENT);
  uint64_t *places = acme_host->alloc(p->values.count * sizeof *places, ACME_ALIGNMENT);
  void *block = acme_host->alloc(p->total_size, ACME_ALIGNMENT);
  if (!e || !places || !block) {
    acme_host->free(e);
    acme_host->free(places);
    acme_host->free(block);
    return acme_out_of_memory("executable.compile");
  }
  memcpy(block, p, p->total_size); /* the host's block is ours during the call only (EXE-1) */
  *e = (lazyt_executable_t){.device = device, .program = block, .places = places, .held = held};
  for (uint64_t i = 0; i < p->values.count; i++) {
    const lazyt_value_t *value = lazyt_value(p, i);
    places[i] = e->scratch;
    e->scratch += (uint64_t)lazyt_value_numel(p, value) * lazyt_dtype_size(value->dtype) + sizeof(acme_scalar);
    e->scratch += ACME_ALIGNMENT - 1 - (e->scratch + ACME_ALIGNMENT - 1) % ACME_ALIGNMENT;
  }
  acme_count(device, (int64_t)held);
  *out = e;
  return NULL;
}

lazyt_status_t *acme_output_meta(lazyt_executable_t *e, uint64_t index, lazyt_output_meta_t *out) {
  if (index >= e->program->outputs.count) return acme_error(LAZYT_CODE_INVALID_ARGUMENT, "acme: no such output");
  out->size_bytes = acme_span(e->program, lazyt_value(e->program, lazyt_output(e->program, index)->value));
  out->alignment = ACME_ALIGNMENT;
  out->memory_space = out->opaque = 0;
  return NULL;
}

lazyt_status_t *acme_memory(lazyt_executable_t *e, lazyt_executable_memory_t *out) {
  out->code_bytes = e->held;
  out->scratch_bytes = e->scratch;
  return NULL;
}

void acme_release(lazyt_executable_t *e) {
  if (!e) return;
  acme_count(e->device, -(int64_t)e->held);
  acme_host->free((void *)e->program);
  acme_host->free(e->places);
  acme_host->free(e);
}
