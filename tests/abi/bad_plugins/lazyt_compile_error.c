/* compile always fails. */
#include "good.h"

static lazyt_plugin_executable_t executable;
static lazyt_status_t *fail(lazyt_device_t *device, const lazyt_compile_args_t *args, lazyt_executable_t **out_executable) {
  (void)device;
  (void)args;
  (void)out_executable;
  return null_error(LAZYT_CODE_INTERNAL, "the code generator has a bug");
}
BAD_TABLE(executable = null_executable_table; executable.compile = fail; bad.executable = &executable)
