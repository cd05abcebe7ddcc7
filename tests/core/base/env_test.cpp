#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace lazyt::base {
namespace {

class Env : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"LAZYT_QUEUE", "LAZYT_REPLAY", "LAZYT_FALLBACK"}) ::unsetenv(name);
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
};

TEST_F(Env, UnsetAndEmptyAreTheSame) {
  EXPECT_EQ(env("LAZYT_QUEUE"), std::nullopt);
  set("LAZYT_QUEUE", "");
  EXPECT_EQ(env("LAZYT_QUEUE"), std::nullopt);
  EXPECT_EQ(env_int("LAZYT_QUEUE", 4, 1, 100).value(), 4);
}

TEST_F(Env, ReadsIntegersInRange) {
  set("LAZYT_QUEUE", "12");
  EXPECT_EQ(env_int("LAZYT_QUEUE", 4, 1, 100).value(), 12);
  for (const char* wrong : {"0", "101", "-3", "12x", " 12", "1e3", "99999999999999999999"}) {
    set("LAZYT_QUEUE", wrong);
    Status s = env_int("LAZYT_QUEUE", 4, 1, 100).status();
    EXPECT_EQ(s.code(), LAZYT_CODE_INVALID_ARGUMENT) << wrong;
    EXPECT_NE(s.message().find("LAZYT_QUEUE"), std::string_view::npos) << "the message names the variable";
    EXPECT_NE(s.message().find(wrong), std::string_view::npos) << "and the value";
  }
}

TEST_F(Env, ReadsSwitches) {
  for (const char* yes : {"1", "true", "on", "yes"}) {
    set("LAZYT_REPLAY", yes);
    EXPECT_TRUE(env_bool("LAZYT_REPLAY", false).value());
  }
  for (const char* no : {"0", "false", "off", "no"}) {
    set("LAZYT_REPLAY", no);
    EXPECT_FALSE(env_bool("LAZYT_REPLAY", true).value());
  }
  set("LAZYT_REPLAY", "maybe");
  EXPECT_FALSE(env_bool("LAZYT_REPLAY", true).ok());
}

TEST_F(Env, ReadsOneOfTheDeclaredWords) {
  EXPECT_EQ(env_choice("LAZYT_FALLBACK", "allow").value(), "allow");
  for (const char* word : {"allow", "warn", "deny"}) {
    set("LAZYT_FALLBACK", word);
    EXPECT_EQ(env_choice("LAZYT_FALLBACK", "allow").value(), word);
  }
  for (const char* wrong : {"Deny", "den", "allow|warn"}) {
    set("LAZYT_FALLBACK", wrong);
    EXPECT_EQ(env_choice("LAZYT_FALLBACK", "allow").status().code(), LAZYT_CODE_INVALID_ARGUMENT) << wrong;
  }
}

TEST_F(Env, DeclaresEveryOptionOnceWithHelp) {
  std::set<std::string> names;
  for (const EnvOption& o : env_options()) {
    EXPECT_TRUE(std::string(o.name).starts_with("LAZYT_"));
    EXPECT_TRUE(names.insert(o.name).second) << o.name;
    EXPECT_TRUE(std::string(o.help).ends_with('.')) << o.name;
  }
}

}  // namespace
}  // namespace lazyt::base
