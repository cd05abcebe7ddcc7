/* The entry itself refuses. */
#include "good.h"

lazyt_status_t *lazyt_plugin_entry_v1(const lazyt_host_t *host, const lazyt_plugin_t **out_plugin) {
  (void)out_plugin;
  null_status = host->status;
  return null_error(LAZYT_CODE_FAILED_PRECONDITION, "the license file is missing");
}
