// Layers: named by the environment, in order, and out of the way when none is.
#include "layers/stack.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "loader/loader.h"
#include "subject.h"

namespace lazyt::layers {
namespace {

TEST(Stack, NothingNamedIsNoStack) {
  auto stack = Stack::make("");
  ASSERT_TRUE(stack.ok());
  EXPECT_EQ(stack.value(), nullptr);
}

TEST(Stack, AnUnknownLayerIsAnErrorThatListsThoseThatExist) {
  const base::Status status = Stack::make("validate,trcae").status();
  EXPECT_EQ(status.code(), LAZYT_CODE_INVALID_ARGUMENT);
  EXPECT_NE(status.message().find("there is no layer 'trcae'; known: validate"), std::string::npos)
      << status.to_string();
}

TEST(Stack, AnUnknownOptionIsAnErrorThatListsThoseThatExist) {
  const base::Status status = Stack::make("validate:loud").status();
  EXPECT_EQ(status.code(), LAZYT_CODE_INVALID_ARGUMENT);
  EXPECT_NE(status.message().find("has no option 'loud'; it has: abort"), std::string::npos)
      << status.to_string();
}

TEST(Stack, TheLoaderRefusesAWrongNameBeforeItLoadsAnything) {
  const std::string before = std::getenv("LAZYT_LAYERS") ? std::getenv("LAZYT_LAYERS") : "";
  setenv("LAZYT_LAYERS", "nonsense", 1);
  loader::Report report;
  auto plugin = loader::load("null", &report);
  setenv("LAZYT_LAYERS", before.c_str(), 1);
  ASSERT_FALSE(plugin.ok());
  EXPECT_NE(plugin.status().message().find("nonsense"), std::string::npos);
  EXPECT_TRUE(report.candidates.empty());
}

TEST(Stack, WithoutLayersTheHostCallsThePluginsOwnTable) {
  const std::string before = std::getenv("LAZYT_LAYERS") ? std::getenv("LAZYT_LAYERS") : "";
  const std::string path = std::string(std::getenv("LAZYT_MUTANTS")) + "/lazyt_reference.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* layers : {"", "validate"}) {
    setenv("LAZYT_LAYERS", layers, 1);
    auto plugin = loader::load(path);
    ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
    Dl_info owner{};
    ASSERT_NE(dladdr(reinterpret_cast<void*>(plugin.value()->table->executable->execute), &owner), 0);
    const bool own = std::string(owner.dli_fname).find("lazyt_reference") != std::string::npos;
    EXPECT_EQ(own, *layers == 0) << owner.dli_fname;
  }
  setenv("LAZYT_LAYERS", before.c_str(), 1);
  dlclose(library);
}

TEST(Stack, LayersStandOnEachOther) {
  // Two of them: a mistake of the host ends at the first, so the second sees none.
  auto stack = Stack::make("validate,validate").value();
  const std::string path = std::string(std::getenv("LAZYT_MUTANTS")) + "/lazyt_reference.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto entry = reinterpret_cast<lazyt_plugin_entry_v1_t>(dlsym(library, LAZYT_PLUGIN_ENTRY_NAME));
  const lazyt_plugin_t* table = nullptr;
  ASSERT_EQ(entry(stack->host_over(loader::host_table()), &table), nullptr);
  const lazyt_plugin_t* plugin = stack->plugin_over(table);
  int violations = 0;
  on_violation([&](const Violation&) { violations++; });
  EXPECT_EQ(plugin->init(), nullptr);
  EXPECT_FALSE(loader::take_status(plugin->init()).ok());
  EXPECT_EQ(violations, 1);
  lazyt_device_info_t info{};
  info.struct_size = sizeof info;
  EXPECT_FALSE(loader::take_status(plugin->device->describe(9, &info)).ok());  // its status crosses both
  plugin->shutdown();
  EXPECT_EQ(violations, 1);
  on_violation({});
  dlclose(library);
}

TEST(Stack, ThereIsRoomForManyPluginsAndItComesBack) {
  for (int round = 0; round < 3; round++) {
    std::vector<std::unique_ptr<Stack>> stacks;
    for (int i = 0; i < 16; i++) {
      auto stack = Stack::make("validate");
      ASSERT_TRUE(stack.ok()) << stack.status().to_string();
      stacks.push_back(std::move(stack).value());
    }
    EXPECT_EQ(Stack::make("validate").status().code(), LAZYT_CODE_RESOURCE_EXHAUSTED);
  }
}

TEST(StackDeathTest, AbortEndsTheProcessWithTheViolation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        setenv("LAZYT_LAYERS", "validate:abort", 1);
        auto plugin = loader::load(std::string(std::getenv("LAZYT_MUTANTS")) + "/lazyt_reference.so");
        plugin.value()->table->device->close(reinterpret_cast<lazyt_device_t*>(0x40));
      },
      "the host broke C-13 in device.close of plugin 'reference'");
}

}  // namespace
}  // namespace lazyt::layers
