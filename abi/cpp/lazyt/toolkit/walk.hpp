// walk.hpp - the loops in which a fused kernel walks its elements.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_WALK_HPP_
#define LAZYT_TOOLKIT_WALK_HPP_

#include <utility>
#include <vector>

#include "lazyt/toolkit/plan.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// Strides over the walk's dims of a tensor that broadcasts to them.
inline Dims broadcast_strides(const Tensor& t, const Dims& dims) {
  Dims out(dims.size(), 0);
  const size_t skip = dims.size() - t.layout.rank();
  for (size_t i = 0; i < t.layout.rank(); ++i)
    if (t.layout.dims[i] != 1 || dims[skip + i] == 1) out[skip + i] = t.layout.strides[i];
  return out;
}

// Of a walk with reductions, loops [0, first) are kept, [first, last) reduced, [last, end) kept.
struct Walk {
  Loops loops;  // strides as given to plan_walk
  size_t first = 0, last = 0;

  int64_t count(size_t from, size_t to) const {
    int64_t n = 1;
    for (size_t i = from; i < to; ++i) n *= loops.dims[i];
    return n;
  }
  int64_t outer() const { return count(0, first); }
  int64_t length() const { return count(first, last); }
  int64_t inner() const { return count(last, loops.dims.size()); }
};

// reduced: of each dim, or empty for a walk without reductions. strides: [operand][dim]. like: strides whose memory
// order is walked, as far as reductions let it. Kept loops join no reduced ones.
inline Walk plan_walk(const Dims& dims, const std::vector<bool>& reduced, std::vector<Dims> strides, const Dims& like) {
  std::vector<size_t> order = memory_order(dims, like);
  const bool reduces = !reduced.empty();
  if (reduces) {
    // Kept dims, reduced dims, and the kept dims after the last reduced one in memory.
    size_t last_reduced = dims.size();
    for (size_t i = 0; i < order.size(); ++i)
      if (reduced[order[i]] && dims[order[i]] != 1) last_reduced = i;
    std::vector<size_t> front, middle, back;
    for (size_t i = 0; i < order.size(); ++i) {
      const bool after = last_reduced != dims.size() && i > last_reduced;
      (reduced[order[i]] ? middle : after ? back : front).push_back(order[i]);
    }
    order = std::move(front);
    order.insert(order.end(), middle.begin(), middle.end());
    order.insert(order.end(), back.begin(), back.end());
    Dims kept = row_major(dims);
    for (size_t d = 0; d < dims.size(); ++d)
      if (reduced[d]) kept[d] = 0;
    strides.push_back(std::move(kept));
  }
  Walk walk{collapse(dims, strides, order), 0, 0};
  if (!reduces) return walk;
  const Dims kept = std::move(walk.loops.strides.back());
  walk.loops.strides.pop_back();
  auto is_reduced = [&](size_t i) { return kept[i] == 0 && walk.loops.dims[i] != 1; };
  while (walk.first < kept.size() && !is_reduced(walk.first)) ++walk.first;
  walk.last = walk.first;
  while (walk.last < kept.size() && is_reduced(walk.last)) ++walk.last;
  return walk;
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_WALK_HPP_
