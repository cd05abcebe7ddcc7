// Patience: for what another thread is about to do. To sleep until then and be woken takes 20 to 50 us.
#pragma once

#include <chrono>
#include <thread>

namespace lazyt::base {

// Looks until done() or the limit has passed; whoever else wants the processor gets it meanwhile. False: it has passed.
template <class Done>
bool look_for(std::chrono::nanoseconds limit, const Done& done) {
  for (const auto end = std::chrono::steady_clock::now() + limit; !done(); std::this_thread::yield())
    if (std::chrono::steady_clock::now() >= end) return false;
  return true;
}

}  // namespace lazyt::base
