/* compile.c - a program becomes the sizes of its outputs. */
#include "compile.h"

/* The largest value that a dim can take, for the size of a buffer that fits every run. */
static int64_t dim_bound(const lazyt_program_t *program, int64_t dim) {
  if (dim >= 0) return dim;
  const lazyt_expr_t *e = (const lazyt_expr_t *)lazyt_record(program, &program->exprs, (uint64_t)(-1 - dim));
  if (e->kind == LAZYT_EXPR_CONST) return e->a;
  if (e->kind == LAZYT_EXPR_SYMBOL)
    return ((const lazyt_symbol_t *)lazyt_record(program, &program->symbols, (uint64_t)e->a))->max;
  return -1;
}

/* Bytes from the first to the last element by the strides of an output (PRG-2). */
static lazyt_status_t *span_bytes(const lazyt_program_t *program, const lazyt_value_t *value, uint64_t *out_bytes) {
  const int64_t *dims = lazyt_ints(program, value->dims);
  int64_t dense = 1; /* stride of the row-major order, from the last dim */
  int64_t last = 0;
  for (uint32_t i = value->rank; i-- > 0;) {
    const int64_t dim = dim_bound(program, dims[i]);
    if (dim < 0) return null_error(LAZYT_CODE_UNIMPLEMENTED, "null takes dims that are numbers or plain symbols");
    if (dim == 0) {
      *out_bytes = 0;
      return NULL;
    }
    last += (dim - 1) * (value->strides == LAZYT_NONE ? dense : lazyt_ints(program, value->strides)[i]);
    dense *= dim;
  }
  *out_bytes = (uint64_t)(last + 1) * lazyt_dtype_size(value->dtype);
  return NULL;
}

lazyt_status_t *null_compile(lazyt_device_t *device, const lazyt_compile_args_t *args,
                             lazyt_executable_t **out_executable) {
  const lazyt_program_t *program = args->program;
  const uint64_t count = program->outputs.count;
  lazyt_executable_t *executable =
      null_services->alloc(sizeof *executable + count * sizeof executable->output_bytes[0], sizeof(uint64_t));
  if (!executable) return null_out_of_memory("executable.compile");
  (void)device;
  executable->input_count = program->inputs.count;
  executable->output_count = count;
  for (uint64_t i = 0; i < count; i++) {
    const lazyt_value_t *value = lazyt_value(program, lazyt_output(program, i)->value);
    lazyt_status_t *status = span_bytes(program, value, &executable->output_bytes[i]);
    if (status) {
      null_services->free(executable);
      return status;
    }
  }
  *out_executable = executable;
  return NULL;
}

lazyt_status_t *null_output_meta(lazyt_executable_t *executable, uint64_t index, lazyt_output_meta_t *out_meta) {
  if (index >= executable->output_count) return null_error(LAZYT_CODE_INVALID_ARGUMENT, "no such output");
  out_meta->size_bytes = executable->output_bytes[index];
  out_meta->alignment = NULL_ALIGNMENT;
  out_meta->memory_space = 0;
  out_meta->opaque = 0;
  return NULL;
}

lazyt_status_t *null_memory(lazyt_executable_t *executable, lazyt_executable_memory_t *out_memory) {
  out_memory->code_bytes = sizeof *executable + executable->output_count * sizeof executable->output_bytes[0];
  out_memory->scratch_bytes = 0;
  out_memory->flags = LAZYT_EXECUTABLE_KEEPS_NOTHING;
  return NULL;
}

void null_executable_release(lazyt_executable_t *executable) { null_services->free(executable); }
