/* execute.c - runs nothing, at once. */
#include "compile.h"

static lazyt_status_t *execute(lazyt_executable_t *executable, const lazyt_execute_args_t *args,
                               lazyt_event_t **out_event) {
  if (args->input_count != executable->input_count || args->output_count != executable->output_count)
    return null_error(LAZYT_CODE_INVALID_ARGUMENT, "the program has another number of inputs or outputs");
  for (uint64_t i = 0; i < args->output_count; i++)
    if (args->outputs[i]->size < executable->output_bytes[i])
      return null_error(LAZYT_CODE_INVALID_ARGUMENT, "an output's buffer is smaller than its output_meta says");
  return null_finish(null_first_error(args->waits), out_event);
}

const lazyt_plugin_executable_t null_executable_table = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .compile = null_compile,
    .output_meta = null_output_meta,
    .memory = null_memory,
    .execute = execute,
    .release = null_executable_release,
};
