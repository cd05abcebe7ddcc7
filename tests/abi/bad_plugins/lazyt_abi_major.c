/* Built with the next major, whose table says so. */
#include "good.h"

BAD_TABLE(bad.abi_major = LAZYT_ABI_MAJOR + 1)
