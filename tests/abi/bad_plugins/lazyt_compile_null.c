/* compile says success and gives nothing. */
#include "good.h"

static lazyt_plugin_executable_t executable;
static lazyt_status_t *nothing(lazyt_device_t *device, const lazyt_compile_args_t *args, lazyt_executable_t **out_executable) {
  (void)device;
  (void)args;
  (void)out_executable;
  return NULL;
}
BAD_TABLE(executable = null_executable_table; executable.compile = nothing; bad.executable = &executable)
