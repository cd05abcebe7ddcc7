/* The plugin's own table ends too early. */
#include "good.h"

BAD_TABLE(bad.struct_size = offsetof(lazyt_plugin_t, executable))
