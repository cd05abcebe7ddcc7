/* A slot that is required is NULL. */
#include "good.h"

static lazyt_plugin_buffer_t buffer;
BAD_TABLE(buffer = null_buffer_table; buffer.to_host = NULL; bad.buffer = &buffer)
