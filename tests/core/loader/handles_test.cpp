// Handles: what a plugin does wrong becomes an error that names it, and never the end of the process.
#include "loader/handles.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>

#include "loader/loader.h"

namespace lazyt::loader {
namespace {

base::Ref<ir::Program> relu_program() {
  ir::Graph graph;
  const ir::Meta meta = ir::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {2, 3});
  ir::ValueId x = graph.add_input(meta);
  ir::ValueId y = graph.add_op("aten::relu", "", {ir::Arg::of_value(x)}, meta);
  graph.outputs.push_back({y});
  return ir::Program::from_graph(graph);
}

// What is loaded meanwhile has no layers.
struct WithoutLayers {
  const std::string before = std::getenv("LAZYT_LAYERS") ? std::getenv("LAZYT_LAYERS") : "";
  WithoutLayers() { unsetenv("LAZYT_LAYERS"); }
  ~WithoutLayers() { setenv("LAZYT_LAYERS", before.c_str(), 1); }
};

// Calls the plugin's `function`, which lets out what `thrown` throws.
base::Status call_that_throws(const Subject& subject, void (*thrown)()) {
  int out = 0;
  return call(subject, "executable.compile", out, [thrown](int&) -> lazyt_status_t* {
    thrown();
    return nullptr;
  });
}

TEST(Call, AnExceptionThatComesOutIsTheFaultOfThePluginWhichIsNamed) {
  for (const bool synchronous : {false, true}) {
    const auto subject = base::make_ref<Subject>("wild", synchronous);
    const base::Status status = call_that_throws(*subject, [] { throw std::runtime_error("what it says"); });
    EXPECT_EQ(status.code(), LAZYT_CODE_INTERNAL);
    for (const char* part : {"'wild'", "C-7", "executable.compile", "what it says", "guard"})
      EXPECT_NE(status.to_string().find(part), std::string::npos) << part << " in: " << status.to_string();
    EXPECT_EQ(call_that_throws(*subject, [] { throw 7; }).code(), LAZYT_CODE_INTERNAL);
    EXPECT_EQ(call_that_throws(*subject, [] { throw std::bad_alloc(); }).code(), LAZYT_CODE_RESOURCE_EXHAUSTED);
    EXPECT_TRUE(call_that_throws(*subject, [] {}).ok());
  }
}

TEST(Call, AReleaseThatThrowsEndsNothing) {
  const auto subject = base::make_ref<Subject>("wild");
  int handle = 0;
  give_back<int>(*subject, *subject, "buffer.release", &handle, [](int* h) {
    ++*h;
    throw std::runtime_error("no");
  });
  settle();
  EXPECT_EQ(handle, 1);
}

class HandlesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("LAZYT_BAD_PLUGINS")) GTEST_SKIP() << "LAZYT_BAD_PLUGINS does not name the build tree";
  }
  // Null when it cannot be opened; then the test has failed.
  static base::Ref<Device> open(const std::string& name) {
    auto plugin =
        load(name == "null" ? name : std::string(std::getenv("LAZYT_BAD_PLUGINS")) + "/lazyt_" + name + ".so");
    EXPECT_TRUE(plugin.ok()) << plugin.status().to_string();
    if (!plugin.ok()) return nullptr;
    auto device = Device::open(plugin.value(), 0);
    EXPECT_TRUE(device.ok()) << device.status().to_string();
    return device.ok() ? device.value() : nullptr;
  }
  static base::Result<base::Ref<Event>> run(const base::Ref<Device>& device) {
    LAZYT_ASSIGN_OR_RETURN(auto executable, Executable::compile(device, *relu_program(), 0));
    LAZYT_ASSIGN_OR_RETURN(auto in, Buffer::alloc(device, 24));
    LAZYT_ASSIGN_OR_RETURN(auto out, Buffer::alloc(device, executable->output_metas().at(0).size_bytes));
    const ExecuteInput input{.buffer = in.get()};
    const Buffer* outputs[] = {out.get()};
    return executable->execute({&input, 1}, outputs, {});
  }
};

TEST_F(HandlesTest, NullRunsAProgram) {
  auto device = open("null");
  ASSERT_TRUE(device);
  EXPECT_TRUE(device->host_visible());
  auto executable = Executable::compile(device, *relu_program(), 0);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  ASSERT_EQ(executable.value()->output_metas().size(), 1u);
  EXPECT_EQ(executable.value()->output_metas()[0].size_bytes, 24u);
  auto event = run(device);
  ASSERT_TRUE(event.ok()) << event.status().to_string();
  EXPECT_TRUE(event.value()->ready());
  EXPECT_TRUE(event.value()->wait(std::chrono::nanoseconds(0)).ok());
}

TEST_F(HandlesTest, BuffersHoldTheHostsBytes) {
  auto device = open("null");
  ASSERT_TRUE(device);
  const char text[] = "sixteen bytes...";
  auto buffer = Buffer::from_host(device, text, 16);
  ASSERT_TRUE(buffer.ok());
  char back[8] = {};
  ASSERT_TRUE(buffer.value()->to_host(8, back, 8).ok());
  EXPECT_EQ(std::memcmp(back, "bytes...", 8), 0);
  auto pointer = buffer.value()->host_pointer();
  ASSERT_TRUE(pointer.ok());
  EXPECT_EQ(std::memcmp(pointer.value(), text, 16), 0);
  EXPECT_GE(device->memory_stats().value().bytes_in_use, 16u);
  base::Status outside = buffer.value()->to_host(12, back, 8);
  EXPECT_EQ(outside.code(), LAZYT_CODE_OUT_OF_RANGE) << outside.to_string();
}

TEST_F(HandlesTest, ABufferKeepsItsLibrary) {
  base::Ref<Buffer> buffer;
  {
    auto device = open("null");
    ASSERT_TRUE(device);
    buffer = Buffer::alloc(device, 8).value();
  }
  char bytes[8] = {1};
  EXPECT_TRUE(buffer->to_host(0, bytes, 8).ok());
  EXPECT_EQ(bytes[0], 0);
}

TEST_F(HandlesTest, ADeviceNumberThatIsNotThereIsAnError) {
  auto plugin = load("null");
  ASSERT_TRUE(plugin.ok());
  auto device = Device::open(plugin.value(), 7);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), LAZYT_CODE_INVALID_ARGUMENT);
}

TEST_F(HandlesTest, CompileErrorsNameThePluginAndTheFunction) {
  auto device = open("compile_error");
  ASSERT_TRUE(device);
  auto event = run(device);
  ASSERT_FALSE(event.ok());
  EXPECT_EQ(event.status().message(), "the code generator has a bug");
  EXPECT_NE(event.status().to_string().find("executable.compile"), std::string::npos) << event.status().to_string();
}

TEST_F(HandlesTest, SuccessWithoutAResultIsThePluginsMistake) {
  WithoutLayers the_handles_alone;  // the validate layer says it first
  auto device = open("compile_null");
  ASSERT_TRUE(device);
  auto event = run(device);
  ASSERT_FALSE(event.ok());
  EXPECT_EQ(event.status().code(), LAZYT_CODE_INTERNAL);
  const std::string text = event.status().to_string();
  EXPECT_NE(text.find("plugin 'null' broke the contract of executable.compile"), std::string::npos) << text;
  EXPECT_NE(text.find("lazyt_compile_null.so"), std::string::npos) << text;
}

TEST_F(HandlesTest, ExecuteErrorsComeFromTheCall) {
  auto device = open("execute_error");
  ASSERT_TRUE(device);
  auto event = run(device);
  ASSERT_FALSE(event.ok());
  EXPECT_EQ(event.status().code(), LAZYT_CODE_RESOURCE_EXHAUSTED);
}

TEST_F(HandlesTest, AnErrorOfAnEventIsReadyAndStays) {
  auto device = open("event_error");
  ASSERT_TRUE(device);
  auto event = run(device);
  ASSERT_TRUE(event.ok()) << event.status().to_string();
  EXPECT_TRUE(event.value()->ready());
  for (int i = 0; i < 2; i++) {
    base::Status status = event.value()->wait();
    EXPECT_EQ(status.code(), LAZYT_CODE_UNAVAILABLE);
    EXPECT_EQ(status.message(), "the device fell off the bus");
  }
}

TEST_F(HandlesTest, AFailedEventOfAnotherPluginStopsTheLaunch) {
  auto failing = open("event_error"), device = open("null");
  ASSERT_TRUE(failing && device);
  auto failed = run(failing);
  ASSERT_TRUE(failed.ok());
  auto executable = Executable::compile(device, *relu_program(), 0).value();
  auto in = Buffer::alloc(device, 24).value(), out = Buffer::alloc(device, 24).value();
  const ExecuteInput input{.buffer = in.get()};
  const Buffer* outputs[] = {out.get()};
  const base::Ref<Event> waits[] = {failed.value()};
  auto next = executable->execute({&input, 1}, outputs, waits);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.status().message(), "the device fell off the bus");
}

TEST_F(HandlesTest, AnswersCarryReasonAndDetail) {
  auto device = open("null");
  ASSERT_TRUE(device);
  auto answers = query_capability(*device, *relu_program());
  ASSERT_TRUE(answers.ok());
  ASSERT_EQ(answers.value().size(), 1u);
  EXPECT_EQ(answers.value()[0].kind, LAZYT_ANSWER_TAKE);
  setenv("LAZYT_NULL_REFUSE", "aten::add,aten::relu", 1);
  answers = query_capability(*device, *relu_program());
  unsetenv("LAZYT_NULL_REFUSE");
  ASSERT_TRUE(answers.ok());
  EXPECT_EQ(answers.value()[0].kind, LAZYT_ANSWER_REFUSE);
  EXPECT_EQ(answers.value()[0].reason, LAZYT_REASON_DISABLED);
  EXPECT_FALSE(answers.value()[0].detail.empty());
}

}  // namespace
}  // namespace lazyt::loader
