/* Uses a symbol that only the host could have (LIB-2). */
#include "good.h"

lazyt_status_t *lazyt_private_of_the_host(void);
BAD_TABLE(bad.init = lazyt_private_of_the_host)
