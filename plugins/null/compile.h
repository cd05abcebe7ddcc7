/* compile.h - an executable: the sizes of its outputs are all that is kept of a program. */
#ifndef LAZYT_PLUGINS_NULL_COMPILE_H_
#define LAZYT_PLUGINS_NULL_COMPILE_H_

#include "plugin.h"

struct lazyt_executable_s {
  uint64_t input_count;
  uint64_t output_count;
  uint64_t output_bytes[];
};

lazyt_status_t *null_compile(lazyt_device_t *device, const lazyt_compile_args_t *args,
                             lazyt_executable_t **out_executable);
lazyt_status_t *null_output_meta(lazyt_executable_t *executable, uint64_t index, lazyt_output_meta_t *out_meta);
lazyt_status_t *null_memory(lazyt_executable_t *executable, lazyt_executable_memory_t *out_memory);
void null_executable_release(lazyt_executable_t *executable);

#endif /* LAZYT_PLUGINS_NULL_COMPILE_H_ */
