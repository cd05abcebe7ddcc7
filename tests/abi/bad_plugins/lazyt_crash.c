/* Dies in init: only a helper process can tell (`lazyt doctor`). */
#include <stdlib.h>

#include "good.h"

static lazyt_status_t *die(void) { abort(); }
BAD_TABLE(bad.init = die)
