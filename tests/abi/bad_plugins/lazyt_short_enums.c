/* Compiled with -fshort-enums (meson.build): the handshake tells. */
#include "good.h"

BAD_TABLE((void)0)
