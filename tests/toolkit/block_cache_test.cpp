#include "lazyt/toolkit/block_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace lazyt::toolkit {
namespace {

// Counts what the source has given and not got back.
struct Counting {
  uint64_t* bytes;
  void* take(uint64_t n) { return *bytes += n, std::malloc(n); }
  void give(void* block, uint64_t n) { *bytes -= n, std::free(block); }
};
struct Sparing : Counting {
  static constexpr uint64_t kSpare = 4096;
};
struct KeepingSome : Counting {
  static constexpr uint64_t kSpare = 64 << 10;
  static constexpr bool keeps(uint64_t n) { return n >= 4096 && n < 8 << 10; }
};

TEST(BlockCache, AFreedBlockIsHandedOutAgain) {
  uint64_t bytes = 0;
  BlockCache<Counting> cache(Counting{&bytes});
  uint64_t size = 1000;
  void* block = cache.take(size);
  cache.give(block, size);
  EXPECT_EQ(cache.cached(), size);
  uint64_t again = 990;
  EXPECT_EQ(cache.take(again), block);
  EXPECT_EQ(cache.in_use(), bytes);
  cache.give(block, again);
}

template <class Source>
uint64_t most_of_growing_sizes(uint64_t& bytes) {
  BlockCache<Source> cache(Source{{&bytes}});
  uint64_t most = 0;
  for (uint64_t size = 1024; size <= 64 * 1024; size += 1024) {
    uint64_t taken = size;
    void* block = cache.take(taken);
    most = std::max(most, bytes);
    cache.give(block, taken);
  }
  return most;
}

TEST(BlockCache, OfASourceThatSparesNoMoreLiesUnusedThanThat) {
  uint64_t bytes = 0;
  EXPECT_LE(most_of_growing_sizes<Sparing>(bytes), Sparing::kSpare + 2 * 64 * 1024);
  EXPECT_EQ(bytes, 0u);
  struct Hoarding : Counting {};
  EXPECT_GT(most_of_growing_sizes<Hoarding>(bytes), 8u * 64 * 1024);
  EXPECT_EQ(bytes, 0u);
}

TEST(BlockCache, WhatTheSourceKeepsGoesBackAtOnceAndOthersStay) {
  uint64_t bytes = 0;
  {
    BlockCache<KeepingSome> cache(KeepingSome{{&bytes}});
    auto use = [&](uint64_t size) {
      void* block = cache.take(size);
      EXPECT_EQ(cache.in_use(), size);
      cache.give(block, size);
      EXPECT_EQ(cache.in_use(), 0u);
    };
    use(32 << 10);
    EXPECT_EQ(cache.cached(), 32u << 10);
    for (int i = 0; i < 16; ++i) use(6 << 10);
    EXPECT_EQ(cache.cached(), 32u << 10);
    use(1 << 10);
    EXPECT_EQ(cache.cached(), 33u << 10);
    use(48 << 10);
    use(6 << 10);  // more than kSpare lies unused, but nothing new is taken for the cache
    EXPECT_EQ(cache.cached(), 81u << 10);
    EXPECT_EQ(bytes, cache.cached());
  }
  EXPECT_EQ(bytes, 0u);
}

}  // namespace
}  // namespace lazyt::toolkit
