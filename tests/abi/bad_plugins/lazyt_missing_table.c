/* A whole table is NULL. */
#include "good.h"

BAD_TABLE(bad.capability = NULL)
