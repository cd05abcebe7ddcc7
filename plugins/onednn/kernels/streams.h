// Stores past the caches: a line that is written whole is not read from memory first. Of a pass over more than the caches hold a
// copy takes 0.6 of the time (Ice Lake, 16 MB and more); of less, who reads the result next would find it in memory only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clones.h"

namespace lazyt::onednn {

// Whether a pass that reads and writes so many bytes leaves too little of them in the caches to be worth their place: more than half
// of the third level's size, which the CPU shares with others. LAZYT_ONEDNN_STREAM=on|off says always or never.
bool past_caches(uint64_t bytes);

// What this thread has streamed is seen by who is told that it has ended. Teams (team.h) and programs end with it.
LAZYT_INLINE void end_of_streams() {
#ifdef __x86_64__
  __builtin_ia32_sfence();
#endif
}

// Copies bytes past the caches. They do not overlap.
void stream_bytes(void* to, const void* from, size_t n);

}  // namespace lazyt::onednn
