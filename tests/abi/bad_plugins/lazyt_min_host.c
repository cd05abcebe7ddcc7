/* Needs a later minor of the host. */
#include "good.h"

BAD_TABLE(bad.min_host_minor = LAZYT_ABI_MINOR + 1)
