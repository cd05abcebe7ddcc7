/* Recurses in init until the stack is used up: only a helper process can tell (`lazyt doctor`). */
#include "good.h"

static int deeper(volatile int *n) {
  volatile char frame[4096];
  frame[0] = (char)*n;
  ++*n;
  return *n < 0 ? frame[0] : deeper(n) + frame[0];
}

static lazyt_status_t *dive(void) {
  volatile int n = 0;
  return deeper(&n) ? NULL : null_error(LAZYT_CODE_INTERNAL, "the stack has no end");
}
BAD_TABLE(bad.init = dive)
