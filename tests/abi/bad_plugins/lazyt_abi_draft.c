/* Built with another draft of the headers. */
#include "good.h"

BAD_TABLE(bad.abi_draft = LAZYT_ABI_DRAFT + 7)
