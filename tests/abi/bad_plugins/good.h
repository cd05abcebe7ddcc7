/* good.h - a plugin that works, to plant one fault in: null's plugin.c with its entry renamed.
 * Each file beside this one is a library with exactly one fault. */
#include "lazyt/lazyt.h"

#define lazyt_plugin_entry_v1 good_entry
lazyt_status_t *good_entry(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin);
#include "plugin.c"
#undef lazyt_plugin_entry_v1

/* The entry of a library that differs from the good one by what `change` does to a copy of its table. */
#define BAD_TABLE(change)                                                                              \
  lazyt_status_t *lazyt_plugin_entry_v1(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin) { \
    static lazyt_plugin_t bad;                                                                         \
    lazyt_status_t *status = good_entry(host, out_plugin);                                             \
    bad = **out_plugin;                                                                                \
    change;                                                                                            \
    *out_plugin = &bad;                                                                                \
    return status;                                                                                     \
  }
