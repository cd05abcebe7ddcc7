/* Exports something, but no entry. */
__attribute__((visibility("default"))) int lazyt_something_else(void) { return 0; }
