/* execute starts, and its event carries an error (EVT-2). */
#include "good.h"

static lazyt_plugin_executable_t executable;
static lazyt_status_t *poison(lazyt_executable_t *e, const lazyt_execute_args_t *args, lazyt_event_t **out_event) {
  (void)e;
  (void)args;
  return null_finish(null_error(LAZYT_CODE_UNAVAILABLE, "the device fell off the bus"), out_event);
}
BAD_TABLE(executable = null_executable_table; executable.execute = poison; bad.executable = &executable)
