// One cell of the table: a child process that runs steps on the fault plugin, from recorded calls to values read
// back, and says in one word group what became of the fault.
#pragma once

#include <string>

namespace fault {

// function: "buffer.alloc"; call: at which the fault strikes; action: as in LAZYT_FAULT_AT. Returns the exit status.
// Prints the outcome to stdout: the words of sdk_docs/failures.md, or "WRONG: ..." with what was not as documented.
int run_cell(const std::string& function, int call, const std::string& action);

}  // namespace fault
