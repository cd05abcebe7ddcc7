/* init fails, with a note. */
#include "good.h"

static lazyt_status_t *fail(void) {
  lazyt_status_t *status = null_error(LAZYT_CODE_UNAVAILABLE, "the driver is too old");
  null_status->annotate(status, lazyt_string("driver", 6), lazyt_string("found 1.2, need 1.3", 19));
  return status;
}
BAD_TABLE(bad.init = fail)
