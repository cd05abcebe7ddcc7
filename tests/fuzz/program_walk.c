/* Reads everything that the accessors of lazyt/program.h reach, as a plugin does: it trusts the block. */
#include "program_walk.h"

#include <lazyt/program.h>

static uint64_t sum;
static void add_text(lazyt_string_t s) {
  for (size_t i = 0; i < s.size; i++) sum += (unsigned char)s.data[i];
}
static void add_ints(const lazyt_program_t* p, uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) sum += (uint64_t)*lazyt_ints(p, first + i);
}

static const char* walk_arg(const lazyt_program_t* p, uint64_t index, uint64_t node, int in_list) {
  const lazyt_arg_t* a = lazyt_arg(p, index);
  sum += a->kind + a->count;
  switch (a->kind) {
    case LAZYT_ARG_VALUE: {
      const lazyt_value_t* v = lazyt_value(p, a->payload);
      if (v->producer != LAZYT_NONE && v->producer >= node) return "a node reads a value of a later node";
      break;
    }
    case LAZYT_ARG_BOOL:
      if (a->payload > 1) return "a bool is neither 0 nor 1";
      break;
    case LAZYT_ARG_COMPLEX:
      add_ints(p, a->payload, 2);
      break;
    case LAZYT_ARG_STRING: {
      lazyt_text_t t = {(uint32_t)a->payload, a->count};
      add_text(lazyt_text(p, t));
      break;
    }
    case LAZYT_ARG_DTYPE:
      if (a->payload == 0 || a->payload >= LAZYT_DTYPE_COUNT) return "a dtype is not known";
      sum += lazyt_dtype_size((lazyt_dtype_t)a->payload);
      break;
    case LAZYT_ARG_LIST:
      if (in_list) return "a list is in a list";
      for (uint32_t i = 0; i < a->count; i++) {
        const char* wrong = walk_arg(p, a->payload + i, node, 1);
        if (wrong) return wrong;
      }
      break;
    case LAZYT_ARG_INTS:
    case LAZYT_ARG_DOUBLES:
    case LAZYT_ARG_BOOLS:
      add_ints(p, a->payload, a->count);
      break;
    default:
      sum += a->payload;
  }
  return 0;
}

const char* walk_program(const lazyt_program_t* p) {
  for (uint64_t i = 0; i < p->values.count; i++) {
    const lazyt_value_t* v = lazyt_value(p, i);
    if (v->dtype <= 0 || v->dtype >= LAZYT_DTYPE_COUNT) return "a value's dtype is not known";
    add_ints(p, v->dims, v->rank);
    if (v->strides != LAZYT_NONE) add_ints(p, v->strides, v->rank);
    if (lazyt_value_numel(p, v) < 0) return "a value has fewer than no elements";
    if (v->producer != LAZYT_NONE) {
      const lazyt_node_t* n = lazyt_node(p, v->producer);
      if (i < n->results || i >= (uint64_t)n->results + n->result_count)
        return "a producer does not make its value";
    }
  }
  for (uint64_t i = 0; i < p->nodes.count; i++) {
    const lazyt_node_t* n = lazyt_node(p, i);
    add_text(lazyt_text(p, n->name));
    add_text(lazyt_text(p, n->overload));
    for (uint32_t a = 0; a < n->arg_count; a++) {
      const char* wrong = walk_arg(p, (uint64_t)n->args + a, i, 0);
      if (wrong) return wrong;
    }
    for (uint32_t r = 0; r < n->result_count; r++)
      if (lazyt_value(p, (uint64_t)n->results + r)->producer != i) return "a result has another producer";
    if (n->note != LAZYT_NONE) {
      const lazyt_note_t* note = lazyt_note(p, n->note);
      add_text(lazyt_text(p, note->file));
      add_text(lazyt_text(p, note->module));
    }
  }
  for (uint64_t i = 0; i < p->inputs.count; i++)
    if (lazyt_value(p, lazyt_input(p, i)->value)->producer != LAZYT_NONE) return "an input is a result";
  for (uint64_t i = 0; i < p->outputs.count; i++) {
    const lazyt_output_t* out = lazyt_output(p, i);
    sum += lazyt_value(p, out->value)->rank;
    if (out->donor != LAZYT_NONE) sum += lazyt_value(p, lazyt_input(p, out->donor)->value)->rank;
  }
  for (uint64_t i = 0; i < p->constants.count; i++) {
    const lazyt_constant_t* c = lazyt_constant(p, i);
    const unsigned char* bytes = (const unsigned char*)lazyt_record(p, &p->data, 0) + c->offset;
    for (uint64_t k = 0; k < c->size; k++) sum += bytes[k];
    sum += lazyt_value(p, c->value)->rank;
  }
  return 0;
}
