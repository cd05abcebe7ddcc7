/* Built with the next major: the entry has another name. */
__attribute__((visibility("default"))) void *lazyt_plugin_entry_v2(const void *host, const void **out_plugin) {
  (void)host;
  (void)out_plugin;
  return 0;
}
