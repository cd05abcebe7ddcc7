// A helper process that tries a plugin, so that one which dies or never returns takes nobody along.
#pragma once

#include "loader/loader.h"

namespace lazyt::tools {

// Tries the candidate in a child of this process; fills step, reason and detail, kCrashed and kHung included.
void probe_in_helper(loader::Candidate& candidate, double limit_seconds);

}  // namespace lazyt::tools
