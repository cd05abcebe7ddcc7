// What is to go wrong: LAZYT_FAULT_AT, a list of FUNCTION:CALL:ACTION with ',' between.
//
//   FUNCTION  table.function of the ABI ("buffer.alloc"), or executable.work: what execute has started
//   CALL      number of the call of that function, from 1; %N = each N-th
//   ACTION    fail[:CODE] (INTERNAL), delay:MILLISECONDS, hang (for ever), crash (SIGSEGV)
#pragma once

#include <cstdint>

#include "lazyt/lazyt.h"

namespace fault {

enum Function : uint32_t {
#define FAULT_FUNCTION(table, name, fails) k_##table##_##name,
#include "functions.h"
#undef FAULT_FUNCTION
  kFunctions
};

// Reads the option; INVALID_ARGUMENT names what is wrong with it. Calls are counted over the whole process.
lazyt_status_t* configure();

// Counts a call of the function ("fault.<table>.<name>" in the host's metrics), and does what is asked for at
// it. Returns the error (given) that the function shall fail with, or NULL.
lazyt_status_t* strike(Function function);

}  // namespace fault
