#include "lazyt/toolkit/dims.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

namespace lazyt::toolkit {
namespace {

Dims counted(size_t n) {
  Dims d(n);
  std::iota(d.begin(), d.end(), 0);
  return d;
}

// 3 lies inside the object, 4 fills it, 5 and 40 lie outside.
class DimsOfRank : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DimsOfRank, testing::Values(0, 3, 4, 5, 40));

TEST_P(DimsOfRank, CopiesAreEqualAndTheirOwn) {
  const Dims a = counted(GetParam());
  Dims b = a, c;
  c = a;
  EXPECT_EQ(a, b);
  EXPECT_EQ(a, c);
  b.push_back(9);
  EXPECT_NE(a, b);
  EXPECT_EQ(b.size(), a.size() + 1);
  c = b;
  EXPECT_EQ(c, b);
}

TEST_P(DimsOfRank, WhatIsMovedFromIsEmptyAndOfUse) {
  Dims a = counted(GetParam());
  Dims b = std::move(a);
  EXPECT_EQ(b, counted(GetParam()));
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move)
  a.push_back(1);
  a = std::move(b);
  EXPECT_EQ(a, counted(GetParam()));
}

TEST_P(DimsOfRank, IsAVectorWhereOneIsWanted) {
  const std::vector<int64_t> v = counted(GetParam());
  EXPECT_EQ(Dims(v), counted(GetParam()));
}

TEST(Dims, InsertsAndErasesAsAVector) {
  Dims d{0, 1, 2, 3, 4};
  std::vector<int64_t> v{0, 1, 2, 3, 4};
  auto same = [&] { return std::vector<int64_t>(d) == v; };
  d.insert(d.begin() + 2, 7), v.insert(v.begin() + 2, 7);
  EXPECT_TRUE(same());
  d.insert(d.end(), 3, 8), v.insert(v.end(), 3, 8);  // past what lies inside
  EXPECT_TRUE(same());
  const int64_t more[] = {5, 6};
  d.insert(d.begin(), more, more + 2), v.insert(v.begin(), more, more + 2);
  EXPECT_TRUE(same());
  d.erase(d.begin() + 1), v.erase(v.begin() + 1);
  EXPECT_TRUE(same());
  d.erase(d.begin() + 2, d.begin() + 5), v.erase(v.begin() + 2, v.begin() + 5);
  EXPECT_TRUE(same());
  d.resize(12, 1), v.resize(12, 1);
  EXPECT_TRUE(same());
  d.assign(2, 3), v.assign(2, 3);
  EXPECT_TRUE(same());
}

}  // namespace
}  // namespace lazyt::toolkit
