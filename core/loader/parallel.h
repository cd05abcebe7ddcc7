// The host's threads for compute, lent to plugins through lazyt_host_services_t.
#pragma once

#include <cstdint>

#include "lazyt/host.h"

namespace lazyt::loader {

// LAZYT_THREADS; if that is not set, what set_thread_count was last told; else the CPUs this process may run on. 1 on a
// thread that is itself a worker.
uint32_t thread_count();

// The CPUs this process may run on, when it was first asked. [any thread]
uint32_t cpu_count();

// What the program asks for (torch.set_num_threads); 0 = nothing. [any thread]
void set_thread_count(uint32_t count);

// Runs body(user_data, i) for every i below count and returns when all are done; the caller works
// too. Runs in order on the caller alone when nested, or while another thread uses the workers.
// The workers start at first use, live for the process, and are started anew in a forked child.
void parallel_for(uint64_t count, lazyt_parallel_body_t body, void* user_data);

}  // namespace lazyt::loader
