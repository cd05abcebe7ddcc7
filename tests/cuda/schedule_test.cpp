// Which steps share a launch, and in what order places run.
#include "../../plugins/cuda/codegen/schedule.h"

#include <gtest/gtest.h>

namespace lazyt::cuda {
namespace {

using Places = std::vector<std::vector<uint32_t>>;

Schedule::Step step(std::string kind, std::vector<uint32_t> depends_on, uint32_t most = 8) {
  return {.kind = std::move(kind), .most = most, .depends_on = std::move(depends_on)};
}

Places settled(const std::vector<Schedule::Step>& steps, std::function<bool(uint32_t, uint32_t)> may_join = [](uint32_t, uint32_t) { return true; }) {
  Schedule schedule(std::move(may_join));
  for (const auto& s : steps) schedule.add(s);
  schedule.settle();
  return schedule.places();
}

TEST(Schedule, StepsOfOneKindThatDependOnNoneOfEachOtherShareAPlace) {
  EXPECT_EQ(settled({step("a", {}), step("a", {}), step("b", {}), step("a", {})}), (Places{{0, 1, 3}, {2}}));
}

TEST(Schedule, StepsWithoutAKindRunAloneInTheirOrder) {
  EXPECT_EQ(settled({step("", {}), step("", {}), step("", {})}), (Places{{0}, {1}, {2}}));
}

TEST(Schedule, AStepComesBehindAllThatItDependsOn) {
  EXPECT_EQ(settled({step("a", {}), step("a", {0}), step("a", {1})}), (Places{{0}, {1}, {2}}));
}

// Two chains told one after the other run side by side.
TEST(Schedule, ChainsShareTheirPlaces) {
  EXPECT_EQ(settled({step("a", {}), step("b", {0}), step("a", {1}), step("a", {}), step("b", {3}), step("a", {4})}),
            (Places{{0, 3}, {1, 4}, {2, 5}}));
}

// c follows each step of a chain, and nobody but the end reads it.
TEST(Schedule, WhatIsReadLateWaitsForOthersOfItsKind) {
  EXPECT_EQ(settled({step("a", {}), step("c", {0}), step("a", {0}), step("c", {2}), step("a", {2}), step("c", {4}), step("d", {1, 3, 5})}),
            (Places{{0}, {2}, {4}, {5, 3, 1}, {6}}));
}

TEST(Schedule, AReaderIsNotOvertaken) {
  // 3 reads 1, so 1 cannot wait for 4.
  EXPECT_EQ(settled({step("a", {}), step("c", {0}), step("a", {0}), step("", {1}), step("c", {2, 3})}), (Places{{0}, {1}, {2}, {3}, {4}}));
}

TEST(Schedule, APlaceHasNoMoreThanItsMost) {
  EXPECT_EQ(settled({step("a", {}, 2), step("a", {}, 2), step("a", {}, 2)}), (Places{{0, 1}, {2}}));
}

TEST(Schedule, WhatMayNotBeTogetherIsNot) {
  EXPECT_EQ(settled({step("a", {}), step("a", {}), step("a", {})}, [](uint32_t x, uint32_t y) { return x + y != 1; }), (Places{{0, 2}, {1}}));
}

TEST(Schedule, LargeResultsDoNotHurryAndLargeOperandsDoNotWait) {
  auto large = step("a", {1});
  large.may_hurry = large.may_wait = false;
  // The second place of a would do for step 4, but its result would be there long before.
  EXPECT_EQ(settled({step("a", {}), step("b", {0}), step("a", {1}), step("a", {2}), large}), (Places{{0}, {1}, {2}, {3, 4}}));
  auto waits = step("c", {0});
  waits.may_wait = false;
  EXPECT_EQ(settled({step("a", {}), waits, step("a", {0}), step("c", {2})}), (Places{{0}, {1}, {2}, {3}}));
}

}  // namespace
}  // namespace lazyt::cuda
