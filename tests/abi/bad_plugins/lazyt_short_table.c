/* One of the tables ends too early. */
#include "good.h"

static lazyt_plugin_buffer_t buffer;
BAD_TABLE(buffer = null_buffer_table; buffer.struct_size = offsetof(lazyt_plugin_buffer_t, release); bad.buffer = &buffer)
