// The host that plugins meet in this suite, behind the validate layer: it works as the real one, counts statuses and
// memory, and the k-th allocation can be made to fail. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "lazyt/lazyt.h"

namespace lazyt::conformance {

const lazyt_host_t* host();

int64_t live_bytes();     // of services.alloc
int64_t live_statuses();  // references

// From now on the allocation number `skip` (from 0) and all later ones fail; negative: none does.
void fail_allocations(int64_t skip);
// Whether one was asked for and refused since then.
bool allocation_failed();

// A value for services.option, before the environment's; empty takes it back.
void set_option(const std::string& name, const std::string& value);

}  // namespace lazyt::conformance
