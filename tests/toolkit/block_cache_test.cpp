#include "lazyt/toolkit/block_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
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
struct WithMiddle : Counting {
  static constexpr uint64_t kSpare = 64 << 10;
  static constexpr bool is_middle(uint64_t n) { return n >= 4096 && n < 256 << 10; }
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

struct Ordered : Counting {
  static constexpr bool kLowestFirst = true;
};

TEST(BlockCache, AStepThatRepeatsFindsItsBlocksWhereTheyWereInWhateverOrderTheyCameBack) {
  uint64_t bytes = 0, size = 1000;
  BlockCache<Ordered> cache(Ordered{{&bytes}});
  std::vector<void*> first(8);
  for (void*& block : first) block = cache.take(size);
  for (size_t i : {3, 0, 7, 1, 6, 2, 5, 4}) cache.give(first[i], size);
  std::sort(first.begin(), first.end());
  for (int step = 0; step < 3; ++step) {
    for (void* expected : first) EXPECT_EQ(cache.take(size), expected);
    for (size_t i : {5, 2, 0, 4, 7, 1, 3, 6}) cache.give(first[i], size);
  }
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

// A step that takes blocks of these sizes, and gives them back at its end. Bytes that the source gave for it.
template <class Cache>
uint64_t step(Cache& cache, const std::vector<uint64_t>& sizes, const uint64_t& bytes) {
  const uint64_t before = bytes;
  std::vector<std::pair<void*, uint64_t>> blocks;
  for (uint64_t size : sizes) {
    void* block = cache.take(size);
    blocks.emplace_back(block, size);
  }
  const uint64_t most = bytes;
  for (auto [block, size] : blocks) cache.give(block, size);
  return most - std::min(before, most);
}

TEST(BlockCache, AStepThatRepeatsFindsAllOfItsMiddleBlocks) {
  uint64_t bytes = 0;
  {
    BlockCache<WithMiddle> cache(WithMiddle{{&bytes}});
    const std::vector<uint64_t> sizes(100, 128 << 10);  // far more than kSpare
    EXPECT_EQ(step(cache, sizes, bytes), 100u * (128 << 10));
    for (int i = 0; i < 200; ++i) EXPECT_EQ(step(cache, sizes, bytes), 0u);
    EXPECT_EQ(cache.cached(), bytes);
  }
  EXPECT_EQ(bytes, 0u);
}

TEST(BlockCache, MiddleSizesThatGrowLeaveNoMoreThanWasInUse) {
  uint64_t bytes = 0, most = 0;
  {
    BlockCache<WithMiddle> cache(WithMiddle{{&bytes}});
    for (uint64_t size = 8 << 10; size <= 240 << 10; size += 1024) {
      step(cache, {size, size, size, size}, bytes);
      most = std::max(most, bytes);
    }
    EXPECT_LE(most, 4u * (240 << 10));
    EXPECT_EQ(cache.cached(), bytes);
  }
  EXPECT_EQ(bytes, 0u);
}

// Blocks of 32 KiB and more become others.
struct Resizing : WithMiddle {
  int* resized;
  void* resize(void* block, uint64_t from, uint64_t to) {
    if (from < 32 << 10 || to < 32 << 10) return nullptr;
    ++*resized, *bytes += to - from;
    return std::realloc(block, to);
  }
};

TEST(BlockCache, AMiddleBlockThatWouldGoBackBecomesTheNextSize) {
  uint64_t bytes = 0;
  int resized = 0;
  {
    BlockCache<Resizing> cache(Resizing{{{&bytes}}, &resized});
    const auto one = [&](uint64_t size) { return step(cache, {size}, bytes); };
    EXPECT_EQ(one(64 << 10), 64u << 10);
    one(72 << 10), one(80 << 10);  // larger than ever: the smaller ones make room
    EXPECT_EQ(resized, 2);
    EXPECT_EQ(bytes, 80u << 10);
    one(40 << 10);  // smaller: there is room for it beside the one that was
    EXPECT_EQ(cache.cached(), bytes);
    one(16 << 10), one(8 << 10);  // which the source does not make of larger ones
    EXPECT_EQ(cache.cached(), bytes);
    EXPECT_LE(bytes, 80u << 10);
  }
  EXPECT_EQ(bytes, 0u);
}

TEST(BlockCache, AMiddleBlockOfTheSizeBelowGrowsBeforeAFreshOneIsTaken) {
  uint64_t bytes = 0;
  int resized = 0;
  {
    BlockCache<Resizing> cache(Resizing{{{&bytes}}, &resized});
    step(cache, std::vector<uint64_t>(4, 240 << 10), bytes);
    cache.trim();  // room for all that follows
    EXPECT_EQ(step(cache, {64 << 10, 64 << 10}, bytes), 128u << 10);
    EXPECT_EQ(step(cache, {72 << 10, 72 << 10}, bytes), 16u << 10);
    EXPECT_EQ(resized, 2);
    EXPECT_EQ(step(cache, {96 << 10}, bytes), 96u << 10);  // two sizes above it
    EXPECT_EQ(step(cache, {16 << 10}, bytes), 16u << 10);
    EXPECT_EQ(step(cache, {18 << 10}, bytes), 18u << 10);  // which the source does not make of it, so both are there
    EXPECT_EQ(step(cache, {16 << 10, 18 << 10}, bytes), 0u);
    EXPECT_EQ(cache.cached(), bytes);
  }
  EXPECT_EQ(bytes, 0u);
}

TEST(BlockCache, AStepOfSizesBesideEachOtherFindsAllOfThemAfterAFewRuns) {
  uint64_t bytes = 0;
  int resized = 0;
  {
    BlockCache<Resizing> cache(Resizing{{{&bytes}}, &resized});
    step(cache, std::vector<uint64_t>(8, 240 << 10), bytes);
    cache.trim();  // room for all of them
    const std::vector<uint64_t> sizes = {64 << 10, 72 << 10, 80 << 10, 88 << 10, 96 << 10};
    auto run = [&] {
      uint64_t taken = 0;
      for (uint64_t size : sizes) taken += step(cache, {size}, bytes);
      return taken;
    };
    for (size_t i = 0; i < sizes.size(); ++i) run();
    const int before = resized;
    for (int i = 0; i < 10; ++i) EXPECT_EQ(run(), 0u);
    EXPECT_EQ(resized, before);
  }
  EXPECT_EQ(bytes, 0u);
}

TEST(BlockCache, APeakOfMiddleBlocksIsForgotten) {
  uint64_t bytes = 0;
  {
    BlockCache<WithMiddle> cache(WithMiddle{{&bytes}});
    step(cache, std::vector<uint64_t>(100, 128 << 10), bytes);
    for (int i = 0; i < 10000; ++i) step(cache, {uint64_t{8} << 10}, bytes);
    EXPECT_EQ(bytes, 99u * (128 << 10) + (8 << 10));  // in all no more than there were; nothing new is wanted, so nothing else goes back
    step(cache, {uint64_t{16} << 10}, bytes);
    EXPECT_LE(bytes, 24u << 10);
  }
  EXPECT_EQ(bytes, 0u);
}

TEST(BlockCache, OtherBlocksStayWhereMiddleOnesGoBackAndTheOtherWayRound) {
  uint64_t bytes = 0;
  {
    BlockCache<WithMiddle> cache(WithMiddle{{&bytes}});
    step(cache, {uint64_t{2} << 10}, bytes);                       // small
    step(cache, {uint64_t{8} << 10, uint64_t{8} << 10}, bytes);    // middle
    step(cache, {uint64_t{512} << 10}, bytes);                     // large: more than kSpare
    EXPECT_EQ(bytes, uint64_t{(2 + 16 + 512) << 10});
    step(cache, {uint64_t{12} << 10}, bytes);  // instead of the middle ones
    EXPECT_EQ(bytes, uint64_t{(2 + 12 + 512) << 10});
    step(cache, {uint64_t{1} << 20}, bytes);  // instead of the large and the small one
    EXPECT_EQ(bytes, uint64_t{(12 + 1024) << 10});
    cache.trim();
    EXPECT_EQ(bytes, 0u);
    EXPECT_EQ(cache.cached(), 0u);
  }
}

TEST(BlockCache, ASourceThatHasNoMoreIsAskedAgainOnceAllWentBack) {
  struct Limited {
    uint64_t left = 100 << 10;
    void* take(uint64_t n) { return n > left ? nullptr : (left -= n, std::malloc(n)); }
    void give(void* block, uint64_t n) { left += n, std::free(block); }
    static constexpr bool is_middle(uint64_t n) { return n >= 4096; }
  };
  BlockCache<Limited> cache;
  uint64_t half = 64 << 10, whole = 96 << 10, beyond = 128 << 10;
  cache.give(cache.take(half), half);
  void* block = cache.take(whole);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(cache.take(beyond), nullptr);
  cache.give(block, whole);
  EXPECT_EQ(cache.in_use(), 0u);
  EXPECT_EQ(cache.take(whole), block);
  cache.give(block, whole);
}

}  // namespace
}  // namespace lazyt::toolkit
