// Memory that a kernel reads from its beginning to its end, asked for ahead.
#pragma once

#include <cstddef>

namespace lazyt::onednn {

// All ones where the CPU's own prefetching ends with a page (Intel's), else 0: there asking ahead only costs (Zen 5 reads 4 MB
// of its third-level cache in 40 us, with any distance in 50 to 58), and asking for what is read next costs nothing.
extern const size_t prefetch_mask;
// The same of matrices that are read once: all ones on Zen 3, too, which reads 13 MB of them at 11 GB/s by itself, asked at 26.
extern const size_t prefetch_matrix_mask;

// A line that is read `ahead` bytes behind p, or p's own where nothing is asked for ahead. (A branch costs a loop more, and GCC
// takes prefetching for a write to any array: what a loop adds up in one lives in memory then.)
[[gnu::always_inline]] inline void prefetch(const void* p, size_t ahead, size_t mask = prefetch_mask) {
  __builtin_prefetch(static_cast<const std::byte*>(p) + (ahead & mask));
}

// All lines of some KiB that are read next.
[[gnu::always_inline]] inline void prefetch_block(const void* p, size_t bytes) {
  if (!prefetch_mask) return;
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::byte*>(p) + i, 0, 2);
}

// All lines of a row that no CPU foresees.
[[gnu::always_inline]] inline void prefetch_row(const void* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::byte*>(p) + i);
}

}  // namespace lazyt::onednn
