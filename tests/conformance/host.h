// The host that plugins meet in this suite: it works as the real one and watches what they do with it.
//
// Memory of services.alloc lies between guard zones that are looked at when it is freed; statuses are
// counted; the k-th allocation can be made to fail. What is found is kept as findings, each with the
// rule it breaks, until the case that caused them takes them. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lazyt/lazyt.h"

namespace lazyt::conformance {

struct Finding {
  const char* rule;
  std::string did, expected, got;
};

const lazyt_host_t* host();

// Findings since the last call. Looks at the guard zones of live memory too.
std::vector<Finding> take_findings();

int64_t live_bytes();     // of services.alloc
int64_t live_statuses();  // references

// From now on the allocation number `skip` (from 0) and all later ones fail; negative: none does.
void fail_allocations(int64_t skip);
// Whether one was asked for and refused since then.
bool allocation_failed();

// A value for services.option, before the environment's; empty takes it back.
void set_option(const std::string& name, const std::string& value);

}  // namespace lazyt::conformance
