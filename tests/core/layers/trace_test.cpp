// The layer `trace`: a line for each call, with what crossed.
#include "layers/trace.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "loader/loader.h"
#include "subject.h"

namespace lazyt::layers {
namespace {

// Runs a small program through the reference plugin and returns the lines that were written.
class TraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) / ("trace_" + std::to_string(::getpid()));
    std::filesystem::remove(path_);
    setenv("LAZYT_TRACE", path_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LAZYT_TRACE");
    std::filesystem::remove(path_);
  }
  std::vector<std::string> lines() {
    std::ifstream in(path_);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  std::vector<Value> objects() {
    std::vector<Value> out;
    for (const std::string& line : lines()) out.push_back(Value::parse(line));
    return out;
  }
  void run(const std::string& layers) {
    const std::string before = std::getenv("LAZYT_LAYERS") ? std::getenv("LAZYT_LAYERS") : "";
    setenv("LAZYT_LAYERS", layers.c_str(), 1);
    auto plugin = loader::load(std::string(std::getenv("LAZYT_MUTANTS")) + "/lazyt_reference.so");
    setenv("LAZYT_LAYERS", before.c_str(), 1);
    ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
    use(plugin.value());
    plugin = base::unavailable("");
    loader::settle();  // libraries are ended on workers
  }
  static void use(const base::Ref<loader::Plugin>& plugin) {
    auto device = loader::Device::open(plugin, 0).value();
    const float values[2] = {1, 2};
    auto buffer = loader::Buffer::from_host(device, values, sizeof values).value();
    float back[2] = {};
    ASSERT_TRUE(buffer->to_host(0, back, sizeof back).ok());
    EXPECT_FALSE(buffer->to_host(4, back, sizeof back).ok());  // beyond its end
  }
  std::filesystem::path path_;
};

TEST_F(TraceTest, EachCallIsALineWithArgumentsResultThreadAndTime) {
  run("trace:json");
  std::vector<std::string> calls;
  std::string allocated;
  uint64_t reads = 0;
  for (const Value& line : objects()) {
    for (const char* key : {"t", "thread", "plugin", "to", "depth", "call", "args", "result", "out", "us"})
      EXPECT_TRUE(line.contains(key)) << key << " in " << line;
    EXPECT_GE(line["us"].get<double>(), 0);
    EXPECT_GT(line["thread"].get<int>(), 0);
    const std::string call = line["call"];
    if (line["to"] == "plugin" && line["depth"] == 0) calls.push_back(call);
    if (call == "buffer.from_host") {
      EXPECT_EQ(line["args"][1]["size"], 8);
      EXPECT_EQ(line["result"], "OK");
      allocated = line["out"][0];
      EXPECT_EQ(allocated.rfind("buffer:0x", 0), 0u) << allocated;
      EXPECT_EQ(line["plugin"], "reference");
    }
    if (call == "buffer.to_host" && reads++ == 0) {
      EXPECT_EQ(line["args"][0], allocated);
      EXPECT_EQ(line["args"][1], 0);
      EXPECT_EQ(line["args"][3], 8);
      EXPECT_EQ(line["result"], "OK");
    } else if (call == "buffer.to_host") {
      EXPECT_EQ(line["result"]["code"], "OUT_OF_RANGE");
      EXPECT_NE(line["result"]["message"], "");
      EXPECT_TRUE(line["out"].empty());  // nothing is handed out by what failed
    }
  }
  EXPECT_EQ(reads, 2u);
  EXPECT_EQ(calls.front(), "plugin.init");
  EXPECT_EQ(calls.back(), "plugin.shutdown");
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "buffer.release"), 1);
}

TEST_F(TraceTest, CallsToTheHostStandUnderTheCallTheyBelongTo) {
  run("trace:json");
  bool made = false;
  for (const Value& line : objects()) {
    if (line["call"] != "status.create") continue;
    made = true;
    EXPECT_EQ(line["to"], "host");
    EXPECT_EQ(line["depth"], 1);
    EXPECT_EQ(line["result"].get<std::string>().rfind("status:0x", 0), 0u);  // a value, not the outcome of the call
  }
  EXPECT_TRUE(made);
}

TEST_F(TraceTest, EnterWritesALineBeforeEachCall) {
  run("trace:json:enter");
  std::vector<std::string> open;
  for (const Value& line : objects()) {
    if (line.contains("enter")) {
      EXPECT_EQ(line["depth"], open.size());
      open.push_back(line["enter"]);
    } else {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(line["call"], open.back());
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST_F(TraceTest, TextSaysTheSameForPeople) {
  run("trace");
  bool failed = false;
  for (const std::string& line : lines())
    failed |= line.find("reference: buffer.to_host(buffer:0x") != line.npos && line.find("= {code: OUT_OF_RANGE, message: ") != line.npos;
  EXPECT_TRUE(failed);
}

TEST_F(TraceTest, AFileThatCannotBeWrittenIsAnErrorWhenThePluginStarts) {
  setenv("LAZYT_TRACE", "/proc/no/such", 1);
  const std::string before = std::getenv("LAZYT_LAYERS") ? std::getenv("LAZYT_LAYERS") : "";
  setenv("LAZYT_LAYERS", "trace", 1);
  auto plugin = loader::load(std::string(std::getenv("LAZYT_MUTANTS")) + "/lazyt_reference.so");
  setenv("LAZYT_LAYERS", before.c_str(), 1);
  ASSERT_FALSE(plugin.ok());
  EXPECT_NE(plugin.status().message().find("LAZYT_TRACE"), std::string::npos) << plugin.status().to_string();
}

}  // namespace
}  // namespace lazyt::layers
