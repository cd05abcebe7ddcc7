// Policy: which of the plugins that can be found may be used at all. Opens no library.
//
//   LAZYT_PLUGIN_SELECT       globs: only these names, of those that are found by searching
//   LAZYT_PLUGIN_DISABLE      globs: not these names, however they are found
//   LAZYT_PLUGIN_ALLOW        a file of SHA-256 sums, one a line: only these libraries
//   LAZYT_REQUIRE_CONFORMANCE core or full: only with such a verdict in the manifest, made for this very library
//   quarantine                libraries that crashed or hung under `lazyt doctor`, by their content
#pragma once

#include <string>

#include "loader/loader.h"

namespace lazyt::loader {

// False, with step, reason and detail filled, if the candidate may not be used.
bool check_policy(Candidate& candidate, bool by_search);

// Remembers why a library must not be loaded into a process that is worth something; `lazyt doctor` calls it.
void put_into_quarantine(const Candidate& candidate);
void take_out_of_quarantine(const Candidate& candidate);

}  // namespace lazyt::loader
