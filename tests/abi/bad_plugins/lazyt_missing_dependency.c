/* Linked with a library that is not there at run time (meson.build). */
#include "good.h"

int lazyt_gone(void);
static lazyt_status_t *call(void) { return lazyt_gone() ? NULL : NULL; }
BAD_TABLE(bad.init = call)
