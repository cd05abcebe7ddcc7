/* Never returns from init. */
#include "good.h"

static lazyt_status_t *spin(void) {
  volatile int forever = 1;
  while (forever) {
  }
  return NULL;
}
BAD_TABLE(bad.init = spin)
