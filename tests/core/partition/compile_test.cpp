#include "partition/compile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../compile_whole.h"
#include "../fake_host_runner.h"
#include "../fake_plugin.h"
#include "ir/text.h"
#include "passes/decomposition.h"

namespace lazyt::partition {
namespace {

using testing::FakeHostRunner;
using testing::FakePlugin;

ir::Graph parse(const std::string& text) { return std::move(ir::parse(text)).value(); }

const char* const kChain = R"(program(%0: f32[2]) {
  %1 = aten::neg(%0) : f32[2]
  %2 = aten::lgamma(%1) : f32[2]
  %3 = aten::mul.Tensor(%2, %1) : f32[2]
  return %3
})";

TEST(Compile, MakesAStepOfEachSegment) {
  FakePlugin plugin;
  plugin->refused = {"aten::lgamma"};
  FakeHostRunner runner;
  std::vector<Refusal> refusals;
  auto plan = compile(parse(kChain), plugin.device, 0, &runner, &refusals);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(plan.value()->steps.size(), 3u);
  EXPECT_TRUE(plan.value()->steps[0].executable);
  EXPECT_FALSE(plan.value()->steps[1].executable);
  EXPECT_TRUE(plan.value()->steps[2].executable);
  EXPECT_EQ(plugin->compiles, 2);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].op, "aten::lgamma");
}

TEST(Compile, PlansShareTheSegmentsThatAreEqual) {
  FakePlugin plugin;
  plugin->refused = {"aten::lgamma"};
  FakeHostRunner runner;
  cache::Executables executables;
  const auto compiled = [&](const std::string& text) {
    auto plan = compile(parse(text), plugin.device, 0, &runner, nullptr, nullptr, {0, &executables});
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return std::move(plan).value();
  };
  const auto a = compiled(kChain), b = compiled(R"(program(%0: f32[2]) {
  %1 = aten::neg(%0) : f32[2]
  %2 = aten::lgamma(%1) : f32[2]
  %3 = aten::add.Tensor(%2, %1, 1) : f32[2]
  return %3
})");
  EXPECT_EQ(a->steps[0].executable, b->steps[0].executable);
  EXPECT_NE(a->steps[2].executable, b->steps[2].executable);
  EXPECT_EQ(plugin->compiles, 3);
  // What is one segment is kept as a plan.
  compiled("program(%0: f32[2]) {\n %1 = aten::neg(%0) : f32[2]\n return %1\n}");
  EXPECT_EQ(plugin->compiles, 4);
  EXPECT_EQ(executables.size(), 3u);
}

TEST(Compile, ADeviceStepsPlanKeepsNoMemoryForWhatItDoesNotNeed) {
  FakePlugin plugin;
  auto plan = compile(parse(R"(program(%0: f32[2]) {
  %1 = aten::neg(%0) : f32[2]
  %2 = aten::mul.Tensor(%1, %0) : f32[2]
  return %2
})"),
                      plugin.device, 0, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan.value()->steps.at(0).graph, nullptr);
  EXPECT_EQ(plan.value()->steps[0].operators->find(" (aten::neg, aten::mul)"), 0u);
}

TEST(Compile, AnEmptyProgramsOutputsAreItsInputs) {
  FakePlugin plugin;
  auto plan = compile(parse("program(%0: f32[2]) {\n return %0\n}"), plugin.device, 0, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan.value()->steps.empty());
  ASSERT_EQ(plan.value()->outputs.size(), 1u);
  EXPECT_EQ(plan.value()->outputs[0].step, exec::Source::kProgram);
  EXPECT_EQ(plugin->compiles, 0);
}

TEST(Compile, RefusedOperatorsWithoutARunnerAreNamed) {
  FakePlugin plugin;
  plugin->refused = {"aten::lgamma"};
  std::vector<Refusal> refusals;
  const auto plan = compile(parse(kChain), plugin.device, 0, nullptr, &refusals);
  EXPECT_EQ(plan.status().code(), LAZYT_CODE_FAILED_PRECONDITION);
  EXPECT_NE(plan.status().message().find("aten::lgamma"), std::string::npos);
  EXPECT_EQ(refusals.size(), 1u);
}

TEST(Compile, RefusedOperatorsAreMadeOfWhatIsTaken) {
  FakePlugin plugin;
  plugin->refused = {"aten::_foreach_add", "aten::square"};
  std::vector<Refusal> refusals;
  const auto plan = compile(parse(R"(program(%0: f32[2] donate, %1: f32[2]) {
  %2, %3 = aten::_foreach_add.List([%0, %1], [%1, %1], 1) : f32[2], f32[2]
  %4 = aten::square(%3) : f32[2]
  return %2 <- %0, %4
})"), plugin.device, 0, nullptr, &refusals, &passes::decompose_and_mark);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_TRUE(refusals.empty());
  ASSERT_EQ(plan.value()->steps.size(), 1u);
  const exec::Step& step = plan.value()->steps[0];
  EXPECT_TRUE(step.operators->starts_with(" (aten::add, aten::add, aten::mul)")) << *step.operators;
  EXPECT_EQ(step.donors.at(0), 0u);
}

TEST(Compile, StepsThatSayTheSameShareIt) {
  FakePlugin plugin;
  const auto operators = [&](const char* text) { return compile(parse(text), plugin.device, 0, nullptr, nullptr, nullptr).value()->steps.at(0).operators; };
  const auto of_two = operators("program(%0: f32[2]) {\n  %1 = aten::neg(%0) : f32[2]\n  return %1\n}");
  EXPECT_EQ(operators("program(%0: f32[3]) {\n  %1 = aten::neg(%0) : f32[3]\n  return %1\n}"), of_two);
  EXPECT_NE(*operators("program(%0: f32[2]) {\n  %1 = aten::abs(%0) : f32[2]\n  return %1\n}"), *of_two);
}

TEST(Compile, ANodeOfWhichAPieceIsRefusedStaysWhole) {
  FakePlugin plugin;
  plugin->refused = {"aten::_foreach_add", "aten::square", "aten::mul"};
  FakeHostRunner runner;
  std::vector<Refusal> refusals;
  const auto plan = compile(parse(R"(program(%0: f32[2]) {
  %1 = aten::_foreach_add.List([%0], [%0], 1) : f32[2]
  %2 = aten::square(%1) : f32[2]
  return %2
})"), plugin.device, 0, &runner, &refusals, &passes::decompose_and_mark);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].op, "aten::square");
}

TEST(Compile, AnErrorNamesTheSegmentsOperators) {
  FakePlugin plugin;
  plugin->fail_compile = true;
  const auto plan = compile(parse("program(%0: f32[2]) {\n %1 = aten::neg(%0) : f32[2]\n return %1\n}"),
                            plugin.device, 0, nullptr);
  EXPECT_EQ(plan.status().code(), LAZYT_CODE_INTERNAL);
  EXPECT_NE(plan.status().to_string().find("aten::neg"), std::string::npos) << plan.status().to_string();
  EXPECT_EQ(plugin->executables, 0);
}

}  // namespace
}  // namespace lazyt::partition
