#include "cache/executables.h"

#include <gtest/gtest.h>

#include <vector>

#include "../fake_plugin.h"
#include "programs.h"

namespace lazyt::cache {
namespace {

using base::Ref;
using loader::Executable;

class ExecutablesTest : public ::testing::Test {
 protected:
  // As a plan of this one program asks for it.
  Ref<Executable> get(int64_t size, lazyt_compile_flags_t flags = 0, uint32_t line = 0) {
    Executables::Turns turns;
    return get(size, turns, flags, line);
  }
  Ref<Executable> get(int64_t size, Executables::Turns& turns, lazyt_compile_flags_t flags = 0, uint32_t line = 0) {
    auto executable = executables.get(plugin.device, *program(size, line), flags, turns);
    EXPECT_TRUE(executable.ok()) << executable.status().to_string();
    return std::move(executable).value();
  }

  testing::FakePlugin plugin;
  Executables executables;
};

TEST_F(ExecutablesTest, AProgramIsCompiledOnce) {
  const auto first = get(2);
  EXPECT_EQ(get(2), first);
  EXPECT_EQ(get(2, 0, 12), first) << "source lines do not matter";
  EXPECT_EQ(plugin->compiles, 1);
}

TEST_F(ExecutablesTest, AnotherProgramOrOtherFlagsAreAnother) {
  const auto first = get(2);
  EXPECT_NE(get(3), first);
  EXPECT_NE(get(2, LAZYT_COMPILE_TF32), first);
  EXPECT_EQ(plugin->compiles, 3);
}

TEST_F(ExecutablesTest, TwoOfAKindInAPlanAreTwoAndTheNextPlanHasThemInTurn) {
  Executables::Turns a, b;
  const auto first = get(2, a), second = get(2, a);
  EXPECT_NE(first, second);
  EXPECT_EQ(get(2, b), first);
  EXPECT_EQ(get(2, b), second);
  EXPECT_EQ(plugin->compiles, 2);
}

TEST_F(ExecutablesTest, TwoOfAKindInAPlanAreOneIfItKeepsNothing) {
  plugin->executable_flags = LAZYT_EXECUTABLE_KEEPS_NOTHING;
  Executables::Turns turns;
  const auto first = get(2, turns);
  EXPECT_EQ(get(2, turns), first);
  EXPECT_NE(get(3, turns), first);
  EXPECT_EQ(plugin->compiles, 2);
}

TEST_F(ExecutablesTest, WhatNoPlanHasGoesAndWhatOneHasStays) {
  const auto kept = get(1);
  for (int64_t size = 2; size < 1000; size++) get(size);
  EXPECT_LT(executables.size(), 200u);
  EXPECT_EQ(plugin->executables, static_cast<int64_t>(executables.size()));
  const int compiles = plugin->compiles;
  EXPECT_EQ(get(1), kept);
  EXPECT_EQ(plugin->compiles, compiles);
}

TEST_F(ExecutablesTest, AllThatPlansHaveStay) {
  std::vector<Ref<Executable>> held;
  for (int64_t size = 1; size < 1000; size++) held.push_back(get(size));
  for (int64_t size = 1; size < 1000; size++) EXPECT_EQ(get(size), held[size - 1]);
  EXPECT_EQ(executables.size(), held.size());
}

TEST_F(ExecutablesTest, WhatFailedToCompileIsTriedAgain) {
  plugin->fail_compile = true;
  Executables::Turns turns;
  EXPECT_FALSE(executables.get(plugin.device, *program(2), 0, turns).ok());
  EXPECT_EQ(executables.size(), 0u);
  plugin->fail_compile = false;
  EXPECT_TRUE(get(2));
}

TEST_F(ExecutablesTest, AfterClearNothingIsKept) {
  get(2);
  EXPECT_EQ(plugin->executables, 1);
  executables.clear();
  EXPECT_EQ(plugin->executables, 0);
}

}  // namespace
}  // namespace lazyt::cache
