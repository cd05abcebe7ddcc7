// block_cache.hpp - freed blocks of memory by size class, handed out again.
//
//   BlockCache   take and give; what is in use, the most that ever was, what lies unused
//
// For memory that is dear to take from the system. There is no ordering by streams: give back what nothing works on.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_BLOCK_CACHE_HPP_
#define LAZYT_TOOLKIT_BLOCK_CACHE_HPP_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// Source has `Address take(uint64_t bytes)`, which answers Address{} when there is no more, and `void give(Address,
// uint64_t bytes)`, which does not throw. With `static constexpr uint64_t kSpare` in it, no more lies unused, when a new block
// is taken, than that or half of what is in use: a cache that grows with each step (keys and values of a text) would else
// keep blocks of every size it ever had. With `static constexpr bool keeps(uint64_t bytes)` in it, blocks of sizes for which it
// holds go back at once: the source has a cache of its own, which joins neighbours. Thread-safe where Source is.
template <class Source>
class BlockCache {
 public:
  using Address = decltype(std::declval<Source&>().take(0));

  template <class... Args>
  explicit BlockCache(Args&&... args) : source_(std::forward<Args>(args)...) {}
  ~BlockCache() { trim(); }
  BlockCache(const BlockCache&) = delete;

  Source& source() { return source_; }

  // Address{} when the source has no more. `bytes` is rounded up to what was really taken.
  Address take(uint64_t& bytes) {
    const SizeClass size = class_of(bytes);
    bytes = size.bytes;
    Address block{};
    const bool kept_there = source_keeps(bytes);
    if (!kept_there) {
      std::lock_guard lock(mutex_);
      auto& list = free_[size.index];
      if (!list.empty()) {
        block = list.back();
        list.pop_back();
        cached_.fetch_sub(bytes, std::memory_order_relaxed);
      }
    }
    if (block == Address{} && !kept_there) give_back_some();
    if (block == Address{}) block = source_.take(bytes);
    if (block == Address{}) {
      trim();
      block = source_.take(bytes);
    }
    if (block == Address{}) return block;
    const uint64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return block;
  }

  // bytes: as take left them.
  void give(Address block, uint64_t bytes) noexcept {
    in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    if (source_keeps(bytes)) return source_.give(block, bytes);
    std::lock_guard lock(mutex_);
    try {
      free_[class_of(bytes).index].push_back(block);
      cached_.fetch_add(bytes, std::memory_order_relaxed);
    } catch (...) {
      source_.give(block, bytes);
    }
  }

  // What lies unused goes back to the source.
  void trim() noexcept {
    std::lock_guard lock(mutex_);
    give_back();
  }

  uint64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  uint64_t cached() const { return cached_.load(std::memory_order_relaxed); }

 private:
  // Eight classes in every power of two from 512 bytes on: at most an eighth is wasted.
  struct SizeClass {
    uint32_t index;
    uint64_t bytes;
  };
  static constexpr int kLeast = 9;
  static SizeClass class_of(uint64_t bytes) {
    bytes = std::clamp<uint64_t>(bytes, uint64_t{1} << kLeast, uint64_t{1} << 62);
    const int exponent = 63 - std::countl_zero(bytes);
    const uint64_t step = uint64_t{1} << (exponent - 3);
    const uint64_t rounded = (bytes + step - 1) & ~(step - 1);
    const int e = 63 - std::countl_zero(rounded);
    return {static_cast<uint32_t>(e - kLeast) * 8 + static_cast<uint32_t>((rounded >> (e - 3)) & 7), rounded};
  }
  static constexpr bool source_keeps(uint64_t bytes) {
    if constexpr (requires { Source::keeps(bytes); }) return Source::keeps(bytes);
    return false;
  }
  void give_back_some() noexcept {
    if constexpr (requires { Source::kSpare; }) {
      const uint64_t spare = std::max(Source::kSpare, in_use() / 2);
      std::lock_guard lock(mutex_);
      if (cached() > spare) give_back();
    }
  }
  // REQUIRES: mutex_ held.
  void give_back() noexcept {
    uint64_t given = 0;
    for (uint32_t i = 0; i < free_.size(); ++i) {
      for (Address block : free_[i]) source_.give(block, bytes_of(i));
      given += free_[i].size() * bytes_of(i);
      free_[i].clear();
    }
    cached_.fetch_sub(given, std::memory_order_relaxed);
  }
  static uint64_t bytes_of(uint32_t index) { return uint64_t{8 + index % 8} << (index / 8 + kLeast - 3); }

  Source source_;
  std::mutex mutex_;
  std::array<std::vector<Address>, 8 * (64 - kLeast)> free_;  // by size class
  std::atomic<uint64_t> in_use_{0}, peak_{0}, cached_{0};
};

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_BLOCK_CACHE_HPP_
