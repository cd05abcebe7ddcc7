#include "cache/program_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/counters.h"

namespace lazyt::cache {
namespace {

using base::Ref;

Ref<ir::Program> program(int64_t size, uint32_t line = 0) {
  ir::Graph graph;
  const auto meta = ir::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {size});
  const auto in = graph.add_input(meta);
  std::shared_ptr<const ir::SourceLine> source;
  if (line != 0) source = std::make_shared<ir::SourceLine>(ir::SourceLine{"model.py", "", line});
  graph.outputs.push_back({graph.add_op("aten::neg", "", {ir::Arg::of_value(in)}, meta, source)});
  return ir::Program::from_graph(graph);
}
Ref<exec::Plan> plan() { return base::make_ref<exec::Plan>(); }

TEST(ProgramCache, AnEqualProgramHits) {
  ProgramCache cache;
  const auto p = plan();
  EXPECT_FALSE(cache.find(*program(2), 0));
  cache.insert(program(2), 0, p);
  EXPECT_EQ(cache.find(*program(2), 0), p);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ProgramCache, AnotherProgramOrOtherFlagsMiss) {
  ProgramCache cache;
  cache.insert(program(2), 0, plan());
  EXPECT_FALSE(cache.find(*program(3), 0));
  EXPECT_FALSE(cache.find(*program(2), LAZYT_COMPILE_TF32));
}

TEST(ProgramCache, SourceLinesDoNotMatter) {
  ProgramCache cache;
  const auto p = plan();
  cache.insert(program(2, 10), 0, p);
  EXPECT_EQ(cache.find(*program(2, 20), 0), p);
}

TEST(ProgramCache, ForgetsWhatWasUsedLongestAgo) {
  ProgramCache cache(2);
  cache.insert(program(1), 0, plan());
  cache.insert(program(2), 0, plan());
  EXPECT_TRUE(cache.find(*program(1), 0));
  cache.insert(program(3), 0, plan());
  EXPECT_TRUE(cache.find(*program(1), 0));
  EXPECT_FALSE(cache.find(*program(2), 0));
  EXPECT_TRUE(cache.find(*program(3), 0));
  EXPECT_EQ(cache.size(), 2u);
}

TEST(ProgramCache, InsertReplacesThePlanOfAnEqualProgram) {
  ProgramCache cache;
  const auto second = plan();
  cache.insert(program(2), 0, plan());
  cache.insert(program(2), 0, second);
  EXPECT_EQ(cache.find(*program(2), 0), second);
}

TEST(ProgramCache, CollidingProgramsAreCountedAndKeptApart) {
  ProgramCache cache;
  cache.use_constant_hash_for_test();
  auto& collisions = base::counter("HashCollision");
  collisions.reset();
  const auto a = plan(), b = plan();
  cache.insert(program(1), 0, a);
  EXPECT_EQ(cache.find(*program(1), 0), a);
  EXPECT_EQ(collisions.value(), 0);
  EXPECT_FALSE(cache.find(*program(2), 0)) << "also after a proven hit";
  EXPECT_EQ(collisions.value(), 1);
  cache.insert(program(2), 0, b);
  EXPECT_EQ(cache.find(*program(1), 0), a);
  EXPECT_EQ(cache.find(*program(2), 0), b);
  EXPECT_EQ(collisions.value(), 1);
}

TEST(ProgramCache, ClearForgetsEverything) {
  ProgramCache cache;
  const auto p = plan();
  cache.insert(program(2), 0, p);
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_FALSE(cache.find(*program(2), 0));
  EXPECT_TRUE(p->unique());
}

TEST(ProgramCache, SeveralThreadsMayUseIt) {
  ProgramCache cache(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; i++) {
        const auto p = program(1 + i % 8);
        if (!cache.find(*p, 0)) cache.insert(p, 0, plan());
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(cache.size(), 4u);
}

}  // namespace
}  // namespace lazyt::cache
