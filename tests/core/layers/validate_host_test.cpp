// The host's duties: each misuse is refused, and named by its rule.
#include <gtest/gtest.h>

#include <thread>

#include "subject.h"

namespace lazyt::layers {
namespace {

constexpr const char* kAdd =
    "program(%0: f32[4] donate, %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2 <- "
    "%0\n}\n";
// Without a donor.
constexpr const char* kMul =
    "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::mul.Tensor(%0, %1) : f32[4]\n return %2\n}\n";

class ValidateHost : public ::testing::Test {
 protected:
  void SetUp() override { t = &s.start(); }
  void TearDown() override {
    for (lazyt_buffer_t* b : buffers) t->buffer->release(b);
    s.stop();
    s.expect_found(Side::kHost, {});
  }
  // Whether the rule, and nothing else, was found broken by the host.
  void broke(const std::string& rule) { s.expect_found(Side::kHost, {rule}); }
  void refused(lazyt_status_t* status, const std::string& rule) {
    s.refused(status, rule);
    broke(rule);
  }
  lazyt_buffer_t* buffer(uint64_t size = 16, lazyt_device_t* on = nullptr) {
    buffers.push_back(s.alloc(size, on));
    return buffers.back();
  }
  lazyt_buffer_t* filled() {
    buffers.push_back(s.upload({1, 2, 3, 4}));
    return buffers.back();
  }
  lazyt_buffer_t* shared(lazyt_sharing_t mode) {
    static float bytes[4] = {1, 2, 3, 4};
    lazyt_host_bytes_t from{sizeof from, nullptr, bytes, sizeof bytes, mode, 0, [](void*) {}, nullptr};
    lazyt_buffer_t* out = nullptr;
    s.ok(t->buffer->from_host(s.device, &from, &out));
    buffers.push_back(out);
    return out;
  }

  lazyt::testing::Subject s;
  const lazyt_plugin_t* t = nullptr;
  std::vector<lazyt_buffer_t*> buffers;
};
using lazyt::testing::Subject;

TEST_F(ValidateHost, ASoundRunIsSilent) {
  lazyt_executable_t* add = s.compile(kAdd);
  lazyt_buffer_t *a = filled(), *b = filled(), *out = buffer();
  lazyt_event_t* event = nullptr;
  for (int i = 0; i < 3; i++) {
    s.ok(s.execute(add, {Subject::in(a), Subject::in(b)}, {out}, &event));
    s.wait(event);
    t->event->release(event);
  }
  s.ok(s.execute(add, {Subject::in(a, true), Subject::in(b)}, {a}, &event));
  lazyt_event_t* second = nullptr;
  s.ok(s.execute(add, {Subject::in(a), Subject::in(b)}, {out}, &second, {event}));
  s.wait(second);
  t->event->release(event);
  t->event->release(second);
  float got[4];
  s.ok(t->buffer->to_host(out, 0, got, 16, {nullptr, 0}, nullptr));
  EXPECT_EQ(got[3], 12);
  t->executable->release(add);
}

TEST_F(ValidateHost, StructsSayTheirSize) {
  lazyt_buffer_desc_t desc{8, nullptr, 16, 0, 0, 0};
  lazyt_buffer_t* out = nullptr;
  refused(t->buffer->alloc(s.device, &desc, &out), "C-1");
  refused(t->buffer->alloc(s.device, nullptr, &out), "C-1");
  EXPECT_EQ(out, nullptr);
}

TEST_F(ValidateHost, AnswersHaveTheProgramsCountAndAWideStride) {
  const lazyt_program_t* p = s.block(kAdd);
  lazyt_answer_t answers[2] = {};
  answers[0].struct_size = answers[1].struct_size = sizeof answers[0];
  refused(t->capability->query(s.device, p, answers, 2, sizeof(lazyt_answer_t)), "C-3");
  refused(t->capability->query(s.device, p, answers, 1, 8), "C-3");
}

TEST_F(ValidateHost, InputsHaveAWideStride) {
  lazyt_executable_t* mul = s.compile(kMul);
  lazyt_execute_input_t inputs[2] = {Subject::in(filled()), Subject::in(filled())};
  lazyt_buffer_t* out = buffer();
  lazyt_execute_args_t args{};
  args.struct_size = sizeof args;
  args.inputs = inputs;
  args.input_count = 2;
  args.input_stride = 8;
  args.outputs = &out;
  args.output_count = 1;
  lazyt_event_t* event = nullptr;
  refused(t->executable->execute(mul, &args, &event), "C-3");
  t->executable->release(mul);
}

TEST_F(ValidateHost, PaddingIsZeroAndEnumsAreOfTheList) {
  lazyt_buffer_desc_t desc{sizeof desc, nullptr, 16, 0, 0, 7};
  lazyt_buffer_t* out = nullptr;
  refused(t->buffer->alloc(s.device, &desc, &out), "C-10");
  float bytes[4] = {};
  lazyt_host_bytes_t from{sizeof from, nullptr, bytes, 16, 9, 0, [](void*) {}, nullptr};
  refused(t->buffer->from_host(s.device, &from, &out), "C-10");
}

TEST_F(ValidateHost, DeviceFunctionsRunOneAtATime) {
  // A query that is held up inside the plugin, and another call meanwhile.
  static std::atomic<bool> inside, go;
  inside = go = false;
  Subject other("mutant_10");  // sound but for its symbols; one library has one host
  other.capability_table.query = [](lazyt_device_t*, const lazyt_program_t*, lazyt_answer_t* a, uint64_t,
                                    uint64_t) -> lazyt_status_t* {
    inside = true;
    while (!go) std::this_thread::yield();
    a->kind = LAZYT_ANSWER_TAKE;
    return nullptr;
  };
  const lazyt_plugin_t& o = other.start();
  const lazyt_program_t* program = other.block(kAdd);
  std::thread held([&] { other.ok(other.query(program)); });
  while (!inside) std::this_thread::yield();
  lazyt_answer_t answer{};
  answer.struct_size = sizeof answer;
  other.refused(o.capability->query(other.device, program, &answer, 1, sizeof answer), "C-9");
  go = true;
  held.join();
  other.expect_found(Side::kHost, {"C-9"});
  other.stop();
}

TEST_F(ValidateHost, HandlesAreNotUsedAfterTheirRelease) {
  lazyt_buffer_t* b = s.alloc(16);
  t->buffer->release(b);
  uint64_t size = 0;
  refused(t->buffer->size(b, &size), "C-13");
  t->buffer->release(b);
  broke("C-13");
  lazyt_executable_t* mul = s.compile(kMul);
  t->executable->release(mul);
  t->executable->release(mul);
  broke("C-13");
  lazyt_device_t* second = s.open();
  t->device->close(second);
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  refused(t->device->memory_stats(second, &stats), "C-13");
}

TEST_F(ValidateHost, EventsAreReleasedAsOftenAsTheyWereGiven) {
  lazyt_event_t* event = nullptr;
  char byte[16];
  s.ok(t->buffer->to_host(filled(), 0, byte, 16, {nullptr, 0}, &event));
  t->event->retain(event);
  t->event->release(event);
  t->event->release(event);
  s.expect_found(Side::kHost, {});
  t->event->release(event);
  broke("C-13");
  uint32_t ready = 0;
  refused(t->event->ready(event, &ready), "C-13");
}

TEST_F(ValidateHost, HandlesOfAnotherPluginAreRefused) {
  Subject other("mutant_1");
  const lazyt_plugin_t& o = other.start();
  lazyt_buffer_t* mine = filled();
  char bytes[16];
  other.refused(o.buffer->to_host(mine, 0, bytes, 16, {nullptr, 0}, nullptr), "C-13");
  other.expect_found(Side::kHost, {"C-13"});
  other.stop();
}

TEST_F(ValidateHost, NothingIsCalledOutsideInitAndShutdown) {
  Subject other("mutant_10");  // sound but for its symbols; one library has one host
  const lazyt_plugin_t& o = other.start();
  other.stop();
  other.expect_found(Side::kHost, {});
  uint32_t count = 0;
  other.refused(o.device->count(&count), "LIB-9");
  lazyt_device_t* device = nullptr;
  other.refused(o.device->open(0, &device), "LIB-9");
  other.expect_found(Side::kHost, {"LIB-9"});
  o.shutdown();
  other.expect_found(Side::kHost, {"LIB-6"});
}

TEST_F(ValidateHost, InitDoesNotComeTwice) { refused(t->init(), "LIB-6"); }

TEST_F(ValidateHost, ShutdownComesAfterTheDevicesAreClosed) {
  t->shutdown();
  broke("LIB-9");
}

TEST_F(ValidateHost, DevicesCloseWhenAllIsReleased) {
  lazyt_device_t* second = s.open();
  lazyt_buffer_t* left = s.alloc(16, second);
  t->device->close(second);
  broke("DEV-7");
  t->buffer->release(left);
  t->device->close(second);
}

TEST_F(ValidateHost, BuffersStayUntilTheirWorkIsDone) {
  // Work is done when the test says so.
  static std::atomic<uint32_t> done;
  static lazyt_plugin_event_t sound;
  static const lazyt_host_t* host;
  done = 0;
  Subject other("mutant_10");  // sound but for its symbols; one library has one host
  sound = other.event_table;
  host = other.host;
  other.event_table.ready = [](lazyt_event_t*, uint32_t* out) -> lazyt_status_t* {
    return *out = done, nullptr;
  };
  other.event_table.wait = [](lazyt_event_t* e, uint64_t timeout) -> lazyt_status_t* {
    return done ? sound.wait(e, timeout)
                : host->status->create(LAZYT_CODE_DEADLINE_EXCEEDED, loader::to_abi("not yet"));
  };
  const lazyt_plugin_t& o = other.start();
  lazyt_buffer_t* b = other.upload({1, 2, 3, 4});
  lazyt_event_t* event = nullptr;
  char bytes[16];
  other.ok(o.buffer->to_host(b, 0, bytes, 16, {nullptr, 0}, &event));
  o.buffer->release(b);
  other.expect_found(Side::kHost, {"BUF-3"});
  done = 1;
  o.event->release(event);
  other.stop();
  other.expect_found(Side::kHost, {});
}

TEST_F(ValidateHost, SharedBytesHaveADone) {
  float bytes[4] = {};
  lazyt_host_bytes_t from{sizeof from, nullptr, bytes, 16, LAZYT_SHARING_UNTIL_DONE, 0, nullptr, nullptr};
  lazyt_buffer_t* out = nullptr;
  refused(t->buffer->from_host(s.device, &from, &out), "BUF-8");
}

TEST_F(ValidateHost, BytesThatAreCopiedExist) {
  lazyt_host_bytes_t from{sizeof from, nullptr, nullptr, 16, LAZYT_SHARING_COPY, 0, nullptr, nullptr};
  lazyt_buffer_t* out = nullptr;
  refused(t->buffer->from_host(s.device, &from, &out), "BUF-4");
}

TEST_F(ValidateHost, ReadOnlyBytesAreNotWritten) {
  lazyt_buffer_t *read_only = shared(LAZYT_SHARING_ALIAS), *writable = shared(LAZYT_SHARING_ALIAS_MUTABLE);
  refused(t->buffer->copy(filled(), 0, read_only, 0, 16, {nullptr, 0}, nullptr), "BUF-13");
  s.ok(t->buffer->copy(filled(), 0, writable, 0, 16, {nullptr, 0}, nullptr));
  lazyt_executable_t* add = s.compile(kAdd);
  lazyt_event_t* event = nullptr;
  refused(s.execute(add, {Subject::in(read_only, true), Subject::in(filled())}, {read_only}, &event),
          "BUF-13");
  t->executable->release(add);
}

TEST_F(ValidateHost, ACallbackIsNeeded) {
  lazyt_event_t* event = nullptr;
  char bytes[16];
  s.ok(t->buffer->to_host(filled(), 0, bytes, 16, {nullptr, 0}, &event));
  refused(t->event->on_ready(event, nullptr, nullptr), "EVT-4");
  t->event->release(event);
}

TEST_F(ValidateHost, OnlyDonorsAreDonated) {
  lazyt_executable_t *add = s.compile(kAdd), *mul = s.compile(kMul);
  lazyt_buffer_t *a = filled(), *b = filled(), *out = buffer();
  lazyt_event_t* event = nullptr;
  // To no output; of an input that the program keeps; of one whose output has another buffer.
  refused(s.execute(mul, {Subject::in(a, true), Subject::in(b)}, {a}, &event), "EXE-5");
  refused(s.execute(add, {Subject::in(a), Subject::in(b, true)}, {b}, &event), "EXE-5");
  refused(s.execute(add, {Subject::in(a, true), Subject::in(b)}, {out}, &event), "EXE-5");
  t->executable->release(add);
  t->executable->release(mul);
}

TEST_F(ValidateHost, StableIdsNameBytes) {
  lazyt_executable_t* mul = s.compile(kMul);
  lazyt_buffer_t *a = filled(), *b = filled(), *out = buffer();
  auto keyed = [&](lazyt_buffer_t* buffer, uint64_t version) {
    lazyt_execute_input_t in = Subject::in(buffer);
    in.stable_id = 7;
    in.content_version = version;
    return in;
  };
  lazyt_event_t* event = nullptr;
  s.ok(s.execute(mul, {keyed(a, 1), Subject::in(b)}, {out}, &event));
  s.wait(event);
  t->event->release(event);
  s.ok(t->buffer->copy(out, 0, a, 0, 16, {nullptr, 0}, nullptr));
  refused(s.execute(mul, {keyed(a, 1), Subject::in(b)}, {out}, &event), "EXE-7");
  s.ok(s.execute(mul, {keyed(a, 2), Subject::in(b)}, {out}, &event));
  s.wait(event);
  t->event->release(event);
  t->executable->release(mul);
}

TEST_F(ValidateHost, OutputsDoNotShareBytes) {
  lazyt_executable_t* two = s.compile(
      "program(%0: f32[4]) {\n %1 = aten::relu(%0) : f32[4]\n %2 = aten::mul.Tensor(%0, %0) : f32[4]\n"
      " return %1, %2\n}\n");
  lazyt_buffer_t *a = filled(), *out = buffer();
  lazyt_event_t* event = nullptr;
  refused(s.execute(two, {Subject::in(a)}, {out, out}, &event), "EXE-8");
  refused(s.execute(two, {Subject::in(a)}, {out, a}, &event), "EXE-8");
  t->executable->release(two);
}

TEST_F(ValidateHost, BuffersOfExecuteAreOnItsDeviceAndLargeEnough) {
  lazyt_executable_t* mul = s.compile(kMul);
  lazyt_device_t* second = s.open();
  lazyt_buffer_t *a = filled(), *small = buffer(8), *out = buffer(), *there = s.alloc(16, second);
  lazyt_event_t* event = nullptr;
  refused(s.execute(mul, {Subject::in(a), Subject::in(there)}, {out}, &event), "EXE-16");
  refused(s.execute(mul, {Subject::in(a), Subject::in(a)}, {there}, &event), "EXE-16");
  refused(s.execute(mul, {Subject::in(a), Subject::in(small)}, {out}, &event), "EXE-16");
  t->buffer->release(there);
  t->device->close(second);
  t->executable->release(mul);
}

TEST_F(ValidateHost, TensorsHaveBuffersAndHostScalarsNone) {
  lazyt_executable_t* mul = s.compile(kMul);
  lazyt_event_t* event = nullptr;
  refused(s.execute(mul, {Subject::in(filled()), Subject::in(nullptr)}, {buffer()}, &event), "PRG-6");
  t->executable->release(mul);
}

TEST_F(ValidateHost, ProgramsAreVerified) {
  auto refused_program = [&](const std::string& text, const std::string& rule) {
    lazyt_compile_args_t args{sizeof args, nullptr, s.block(text), 0};
    lazyt_executable_t* out = nullptr;
    refused(t->executable->compile(s.device, &args, &out), rule);
  };
  refused_program("program(%0: f32[4]) {\n %1 = aten::relu_(%0) : f32[4]\n return %1\n}\n", "PRG-1");
  refused_program(
      "program(%0: f32[4]) {\n %1 = aten::sum.dim_IntList(%0, ints[-1], false, none) : f32[]\n"
      " return %1\n}\n",
      "PRG-5");
  refused_program("program(%0: f32[4]) {\n %1 = aten::relu(%0) : f32[4]\n return %1 <- %0\n}\n", "PRG-8");
  refused_program("program(%0: f32[4]) {\n %1 = aten::relu(%0) : f32[400]\n return %1\n}\n", "PRG-10");
}

}  // namespace
}  // namespace lazyt::layers
