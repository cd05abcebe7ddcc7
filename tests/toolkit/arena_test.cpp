#include "lazyt/toolkit/arena.hpp"

#include <gtest/gtest.h>

#include <random>

namespace lazyt::toolkit {
namespace {

TEST(Arena, ValuesThatNeverMeetShareBytes) {
  const Interval values[] = {{0, 1, 100}, {2, 3, 100}, {4, 5, 100}};
  const Arena arena = plan_arena(values);
  EXPECT_EQ(arena.bytes, 128u);
}

TEST(Arena, AReaderAndItsResultDoNotShare) {
  const Interval values[] = {{0, 1, 64}, {1, 2, 64}};
  EXPECT_EQ(plan_arena(values).bytes, 128u);
}

TEST(Arena, ASmallValueFillsTheGapBetweenLargeOnes) {
  const Interval values[] = {{0, 9, 128}, {0, 3, 256}, {0, 9, 64}, {5, 9, 192}};
  EXPECT_EQ(plan_arena(values).bytes, 448u);
}

TEST(Arena, NothingTakesNothing) { EXPECT_EQ(plan_arena({}).bytes, 0u); }

TEST(Arena, NoTwoLiveValuesOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> values(random() % 60);
    uint64_t total = 0;
    for (auto& v : values) {
      v.first = random() % 40;
      v.last = v.first + random() % 10;
      v.bytes = random() % 1000;
      total += (v.bytes + 63) / 64 * 64;
    }
    const Arena arena = plan_arena(values);
    EXPECT_LE(arena.bytes, total);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(arena.offsets[i] % 64, 0u);
      EXPECT_LE(arena.offsets[i] + values[i].bytes, arena.bytes);
      for (size_t j = 0; j < i; ++j) {
        if (values[i].last < values[j].first || values[j].last < values[i].first) continue;
        const bool apart = arena.offsets[i] + values[i].bytes <= arena.offsets[j] ||
                           arena.offsets[j] + values[j].bytes <= arena.offsets[i];
        EXPECT_TRUE(apart || !values[i].bytes || !values[j].bytes);
      }
    }
  }
}

}  // namespace
}  // namespace lazyt::toolkit
