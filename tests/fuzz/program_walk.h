#pragma once

#include <lazyt/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is wrong with the program, or NULL. Reads only what the block says that there is. */
const char* walk_program(const lazyt_program_t* program);

#ifdef __cplusplus
}
#endif
