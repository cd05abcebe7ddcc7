// Stores past the caches: a line that is written whole is not read from memory first. Of a pass over more than the caches hold a
// copy takes 0.6 of the time (Ice Lake, 16 MB and more); of less, who reads the result next would find it in memory only.
#pragma once

#include <cstddef>
#include <cstdint>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "clones.h"

namespace lazyt::onednn {

// Whether a pass that reads and writes so many bytes leaves too little of them in the caches to be worth their place: more than half
// of the third level's size, which the CPU shares with others. LAZYT_ONEDNN_STREAM=on|off says always or never.
bool past_caches(uint64_t bytes);

// What this thread has streamed is seen by who is told, by any means, that it has ended.
LAZYT_INLINE void end_of_streams() {
#ifdef __x86_64__
  _mm_sfence();
#endif
}

constexpr size_t kLine = 64;

// Copies bytes; a thread calls end_of_streams() behind its last.
void stream_bytes(void* __restrict to, const void* __restrict from, size_t n);

}  // namespace lazyt::onednn
