#include "cache/program_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "programs.h"

namespace lazyt::cache {
namespace {

using base::Ref;

ProgramCache::Key key(int64_t size, lazyt_compile_flags_t flags = 0, uint32_t line = 0) {
  return ProgramCache::key(*program(size, line), flags);
}
Ref<exec::Plan> plan() { return base::make_ref<exec::Plan>(); }

TEST(ProgramCache, AnEqualProgramHits) {
  ProgramCache cache;
  const auto p = plan();
  EXPECT_FALSE(cache.find(key(2)));
  cache.insert(key(2), p);
  EXPECT_EQ(cache.find(key(2)), p);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ProgramCache, AnotherProgramOrOtherFlagsMiss) {
  ProgramCache cache;
  cache.insert(key(2), plan());
  EXPECT_FALSE(cache.find(key(3)));
  EXPECT_FALSE(cache.find(key(2, LAZYT_COMPILE_TF32)));
}

TEST(ProgramCache, SourceLinesDoNotMatter) {
  ProgramCache cache;
  const auto p = plan();
  cache.insert(key(2, 0, 10), p);
  EXPECT_EQ(cache.find(key(2, 0, 20)), p);
}

TEST(ProgramCache, ForgetsWhatWasUsedLongestAgo) {
  ProgramCache cache(2);
  cache.insert(key(1), plan());
  cache.insert(key(2), plan());
  EXPECT_TRUE(cache.find(key(1)));
  cache.insert(key(3), plan());
  EXPECT_TRUE(cache.find(key(1)));
  EXPECT_FALSE(cache.find(key(2)));
  EXPECT_TRUE(cache.find(key(3)));
  EXPECT_EQ(cache.size(), 2u);
}

TEST(ProgramCache, InsertReplacesThePlanOfAnEqualProgram) {
  ProgramCache cache;
  const auto second = plan();
  cache.insert(key(2), plan());
  cache.insert(key(2), second);
  EXPECT_EQ(cache.find(key(2)), second);
}

TEST(ProgramCache, ClearForgetsEverything) {
  ProgramCache cache;
  const auto p = plan();
  cache.insert(key(2), p);
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_FALSE(cache.find(key(2)));
  EXPECT_TRUE(p->unique());
}

TEST(ProgramCache, SeveralThreadsMayUseIt) {
  ProgramCache cache(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; i++) {
        const auto k = key(1 + i % 8);
        if (!cache.find(k)) cache.insert(k, plan());
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(cache.size(), 4u);
}

}  // namespace
}  // namespace lazyt::cache
