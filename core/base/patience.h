// Patience: for what another thread is about to do. To sleep until then and be woken takes 20 to 50 us.
#pragma once

#include <chrono>
#include <thread>

namespace lazyt::base {

// Looks until done() or the limit has passed; whoever else wants the processor gets it meanwhile.
template <class Done>
void look_for(std::chrono::nanoseconds limit, const Done& done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

}  // namespace lazyt::base
