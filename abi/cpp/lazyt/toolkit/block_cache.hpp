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
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// Source has `Address take(uint64_t bytes)`, which answers Address{} when there is no more, and `void give(Address,
// uint64_t bytes)`, which does not throw. With `static constexpr uint64_t kSpare` in it, no more lies unused, when a new block
// is taken, than that or half of what is in use: a cache that grows with each step (keys and values of a text) would else
// keep blocks of every size it ever had. With `static constexpr bool is_middle(uint64_t bytes)` in it, blocks of sizes for which it
// holds are counted apart: taking a new one gives back others, those first whose size is not asked for any more, so that in all no
// more are had than were in use at once lately. A step that repeats finds all of its blocks; sizes that grow leave none behind.
// With `Address resize(Address, uint64_t from, uint64_t to)` in it, such another becomes the new one where it answers a block, which
// may lie elsewhere; where it answers Address{}, the block is as it was. It does not throw. One of the size below does so first, before
// a fresh one is taken: what a size grew from lies unused as soon as it is read.
// With `static constexpr bool kLowestFirst = true` in it, of the unused blocks of a size the one with the lowest address is taken,
// not the one given back last: a step that repeats finds each of its blocks where it was, in whatever order they were given back.
// Thread-safe where Source is.
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
    Address block = take_unused(size);
    if (block == Address{}) block = source_.take(bytes);
    if (block == Address{}) {
      trim();
      block = source_.take(bytes);
    }
    if (block == Address{}) {
      if (is_middle(bytes)) middle_in_use_.fetch_sub(bytes, std::memory_order_relaxed);
      return block;
    }
    const uint64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return block;
  }

  // bytes: as take left them.
  void give(Address block, uint64_t bytes) noexcept {
    in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    if (is_middle(bytes)) middle_in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    try {
      put(class_of(bytes).index, block);
    } catch (...) {
      source_.give(block, bytes);
    }
  }

  // What lies unused goes back to the source.
  void trim() noexcept {
    std::lock_guard lock(mutex_);
    give_back([](uint64_t) { return true; });
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
  static constexpr bool is_middle(uint64_t bytes) {
    if constexpr (requires { Source::is_middle(bytes); }) return Source::is_middle(bytes);
    return false;
  }
  static constexpr bool is_lowest_first() {
    if constexpr (requires { Source::kLowestFirst; }) return Source::kLowestFirst;
    return false;
  }
  // A block that lies unused, or Address{}, and room for a new one was made.
  Address take_unused(SizeClass size) {
    std::lock_guard lock(mutex_);
    const bool middle = is_middle(size.bytes);
    if (middle) note_middle(size);
    if (!free_[size.index].empty()) return pop(size.index);
    if (middle) return replace_middle(size);
    if constexpr (requires { Source::kSpare; })
      if (cached() - middle_cached_ > std::max(Source::kSpare, in_use() / 2)) give_back([](uint64_t bytes) { return !is_middle(bytes); });
    return Address{};
  }

  // What follows: REQUIRES: mutex_ held.

  void put(uint32_t index, Address block) {
    const uint64_t bytes = bytes_of(index);
    auto& unused = free_[index];
    unused.push_back(block);
    if constexpr (is_lowest_first()) std::push_heap(unused.begin(), unused.end(), std::greater<Address>());
    cached_.fetch_add(bytes, std::memory_order_relaxed);
    if (is_middle(bytes)) middle_cached_ += bytes;
  }
  // A block of a class that has one unused.
  Address pop(uint32_t index) noexcept {
    const uint64_t bytes = bytes_of(index);
    auto& unused = free_[index];
    if constexpr (is_lowest_first()) std::pop_heap(unused.begin(), unused.end(), std::greater<Address>());
    const Address block = unused.back();
    unused.pop_back();
    cached_.fetch_sub(bytes, std::memory_order_relaxed);
    if (is_middle(bytes)) middle_cached_ -= bytes;
    return block;
  }
  template <class F>
  void give_back(F which) noexcept {
    for (uint32_t i = 0; i < free_.size(); ++i)
      while (!free_[i].empty() && which(bytes_of(i))) source_.give(pop(i), bytes_of(i));
  }
  // A middle block is asked for.
  void note_middle(SizeClass size) noexcept {
    constexpr uint64_t kLately = 4096;  // takings that a peak is remembered for, and up to twice as many
    const uint64_t now = middle_in_use_.fetch_add(size.bytes, std::memory_order_relaxed) + size.bytes;
    asked_[size.index] = ++takings_;
    if (takings_ % kLately == 0) middle_peak_[0] = std::exchange(middle_peak_[1], 0);
    middle_peak_[1] = std::max(middle_peak_[1], now);
  }
  // What a block that lies apart became, or Address{}: it is as it was, because Source cannot.
  Address resize(Address block, uint64_t from, uint64_t to) noexcept {
    if constexpr (requires { source_.resize(block, from, to); }) return source_.resize(block, from, to);
    return Address{};
  }
  // A block of the class below that lies unused, made the one that is wanted: what grows was in use a moment ago, and the CPU's cache
  // still holds it. Address{}: none is there, or it cannot be.
  Address grow_middle(SizeClass size) noexcept {
    const uint32_t below = size.index ? size.index - 1 : 0;
    if (!is_middle(bytes_of(below)) || free_[below].empty()) return Address{};
    const Address block = pop(below), grown = resize(block, bytes_of(below), size.bytes);
    if (grown == Address{}) put(below, block);  // where it was, so there is room
    return grown;
  }
  // One of the class below, or what lies unused beyond the peak, becomes the block that is wanted; the rest of that goes back. Address{}:
  // none became it.
  Address replace_middle(SizeClass size) noexcept {
    const uint64_t most = std::max(middle_peak_[0], middle_peak_[1]);
    Address resized = grow_middle(size);
    while (middle_cached_ && middle_in_use_.load(std::memory_order_relaxed) + middle_cached_ > most) {
      uint32_t oldest = static_cast<uint32_t>(free_.size());
      for (uint32_t i = 0; i < free_.size(); ++i)
        if (!free_[i].empty() && is_middle(bytes_of(i)) && (oldest == free_.size() || asked_[i] < asked_[oldest])) oldest = i;
      const Address block = pop(oldest);
      if (resized == Address{} && (resized = resize(block, bytes_of(oldest), size.bytes)) != Address{}) continue;
      source_.give(block, bytes_of(oldest));
    }
    return resized;
  }
  static uint64_t bytes_of(uint32_t index) { return uint64_t{8 + index % 8} << (index / 8 + kLeast - 3); }

  Source source_;
  std::mutex mutex_;
  static constexpr size_t kClasses = 8 * (64 - kLeast);
  std::array<std::vector<Address>, kClasses> free_;  // by size class
  std::array<uint64_t, kClasses> asked_{};            // the taking that asked last
  uint64_t takings_ = 0, middle_cached_ = 0;          // of middle blocks
  uint64_t middle_peak_[2] = {};                      // before the last kLately takings began anew, and since
  std::atomic<uint64_t> in_use_{0}, peak_{0}, cached_{0}, middle_in_use_{0};
};

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_BLOCK_CACHE_HPP_
