/* The null plugin's entry under another name: what the fault plugin wraps unless told otherwise. */
#include "../abi/bad_plugins/good.h"
