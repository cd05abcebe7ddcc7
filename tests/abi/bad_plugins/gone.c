/* The library that lazyt_missing_dependency.c does not find. */
__attribute__((visibility("default"))) int lazyt_gone(void);
int lazyt_gone(void) { return 1; }
