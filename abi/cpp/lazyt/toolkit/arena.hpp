// arena.hpp - one block of memory for all that a program computes on the way.
//
// Every value lives from the step that writes it to the last step that reads it. Values whose lives do not
// meet may lie on the same bytes. Placing is by size, largest first, each into the smallest gap that holds it
// ("greedy by size": Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_ARENA_HPP_
#define LAZYT_TOOLKIT_ARENA_HPP_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

struct Interval {
  uint32_t first;  // step that writes it
  uint32_t last;   // last step that uses it, >= first
  uint64_t bytes;
};

struct Arena {
  std::vector<uint64_t> offsets;  // of each interval, multiples of the alignment
  uint64_t bytes = 0;
};

// alignment: a power of two.
inline Arena plan_arena(std::span<const Interval> intervals, uint64_t alignment = 64) {
  Arena arena;
  arena.offsets.resize(intervals.size());
  std::vector<uint32_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return intervals[a].bytes > intervals[b].bytes; });

  auto aligned = [&](uint64_t bytes) { return (bytes + alignment - 1) & ~(alignment - 1); };
  std::vector<uint32_t> placed;  // by offset
  for (uint32_t i : order) {
    const Interval& wanted = intervals[i];
    uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, end = 0;
    for (uint32_t j : placed) {
      const Interval& other = intervals[j];
      if (other.last < wanted.first || wanted.last < other.first) continue;
      const uint64_t start = arena.offsets[j];
      if (start > end && start - end >= wanted.bytes && start - end < best_gap) {
        best = end;
        best_gap = start - end;
      }
      end = std::max(end, aligned(start + other.bytes));
    }
    if (best == UINT64_MAX) best = end;
    arena.offsets[i] = best;
    arena.bytes = std::max(arena.bytes, aligned(best + wanted.bytes));
    auto at = std::upper_bound(placed.begin(), placed.end(), best,
                               [&](uint64_t offset, uint32_t j) { return offset < arena.offsets[j]; });
    placed.insert(at, i);
  }
  return arena;
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_ARENA_HPP_
