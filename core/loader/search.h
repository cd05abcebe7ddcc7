// Search: which candidates there are, in the order of loader.h. Opens no library.
#pragma once

#include <string>
#include <vector>

#include "loader/loader.h"

namespace lazyt::loader {

// All candidates of folders; those that can be tried have reason kFound. A name that an earlier
// candidate has is kDuplicateName.
std::vector<Candidate> search();

// The candidate that a path names: a library or a manifest. `found_by` goes into the report; a path
// from the environment must be absolute.
Candidate candidate_at(const std::string& path, const std::string& found_by, bool from_environment);

// Fills reason and detail if the file is missing, or it or its folder writable by everyone. True if it may be used.
bool check_file(const std::string& path, Candidate& candidate);

// Whether the process has more rights than its user (AT_SECURE): then no path of theirs counts.
bool elevated_privileges();

}  // namespace lazyt::loader
