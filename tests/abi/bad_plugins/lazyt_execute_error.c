/* execute always fails at the call. */
#include "good.h"

static lazyt_plugin_executable_t executable;
static lazyt_status_t *fail(lazyt_executable_t *e, const lazyt_execute_args_t *args, lazyt_event_t **out_event) {
  (void)e;
  (void)args;
  (void)out_event;
  return null_error(LAZYT_CODE_RESOURCE_EXHAUSTED, "no scratch memory");
}
BAD_TABLE(executable = null_executable_table; executable.execute = fail; bad.executable = &executable)
