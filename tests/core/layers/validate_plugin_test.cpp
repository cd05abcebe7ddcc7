// The plugin's duties: a sound plugin with one function replaced, and the rule that the layer names.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "subject.h"

namespace lazyt::layers {
namespace {

using lazyt::testing::Subject;

constexpr const char* kAdd =
    "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2\n}\n";

// The subject's own tables, for functions that do something beside. One at a time.
lazyt_plugin_device_t sound_device;
lazyt_plugin_buffer_t sound_buffer;
lazyt_plugin_event_t sound_event;
lazyt_plugin_capability_t sound_capability;
lazyt_plugin_executable_t sound_executable;
const lazyt_host_t* host;

class ValidatePlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    sound_device = s.device_table;
    sound_buffer = s.buffer_table;
    sound_event = s.event_table;
    sound_capability = s.capability_table;
    sound_executable = s.executable_table;
    host = s.host;
  }
  const lazyt_plugin_t& start() { return *(t = &s.start()); }
  void TearDown() override {
    if (t) s.stop();
    s.expect_found(Side::kPlugin, {});
  }
  void broke(const std::string& rule) { s.expect_found(Side::kPlugin, {rule}); }
  lazyt_code_t code(lazyt_status_t* status) { return loader::take_status(status).code(); }
  // Compiles and runs kAdd.
  lazyt_code_t run() {
    lazyt_executable_t* add = s.compile(kAdd);
    lazyt_buffer_t *a = s.upload({1, 2, 3, 4}), *out = s.alloc(16);
    lazyt_event_t* event = nullptr;
    lazyt_code_t result = code(s.execute(add, {Subject::in(a), Subject::in(a)}, {out}, &event));
    if (event) {
      s.wait(event);
      t->event->release(event);
    }
    t->buffer->release(a);
    t->buffer->release(out);
    t->executable->release(add);
    return result;
  }
  lazyt_event_t* event_of_a_read() {
    lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
    lazyt_event_t* event = nullptr;
    s.ok(t->buffer->to_host(a, 0, bytes, 16, {nullptr, 0}, &event));
    s.wait(event);
    t->buffer->release(a);
    return event;
  }

  Subject s;
  const lazyt_plugin_t* t = nullptr;
  char bytes[16];
};

lazyt_status_t* error(lazyt_code_t code, std::string_view message = "told to fail") {
  return host->status->create(code, {message.data(), message.size()});
}

TEST_F(ValidatePlugin, WritesBehindAStruct) {
  s.device_table.memory_stats = [](lazyt_device_t*, lazyt_memory_stats_t* out) -> lazyt_status_t* {
    out[0].bytes_in_use = 0;
    reinterpret_cast<uint64_t*>(out + 1)[0] = 1;
    return nullptr;
  };
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  s.ok(start().device->memory_stats(s.device, &stats));
  broke("C-1");
}

TEST_F(ValidatePlugin, TextThatIsNoText) {
  s.plugin.info = [](lazyt_plugin_info_t* out) -> lazyt_status_t* {
    out->name = LAZYT_STR("reference");
    out->vendor = LAZYT_STR("\xff\xfe");
    return nullptr;
  };
  start();
  broke("C-4");
}

TEST_F(ValidatePlugin, SuccessWithoutAResult) {
  s.buffer_table.alloc = [](lazyt_device_t*, const lazyt_buffer_desc_t*,
                            lazyt_buffer_t**) -> lazyt_status_t* { return nullptr; };
  start();
  lazyt_buffer_desc_t desc{sizeof desc, nullptr, 16, 0, 0, 0};
  lazyt_buffer_t* out = nullptr;
  EXPECT_EQ(code(t->buffer->alloc(s.device, &desc, &out)), LAZYT_CODE_INTERNAL);
  EXPECT_EQ(out, nullptr);
  broke("C-5");
}

TEST_F(ValidatePlugin, ExceptionsStayInside) {
  s.device_table.memory_stats = [](lazyt_device_t*, lazyt_memory_stats_t*) -> lazyt_status_t* {
    throw std::runtime_error("lost");
  };
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  EXPECT_EQ(code(start().device->memory_stats(s.device, &stats)), LAZYT_CODE_INTERNAL);
  broke("C-7");
}

TEST_F(ValidatePlugin, AnswersOutsideTheList) {
  s.capability_table.query = [](lazyt_device_t*, const lazyt_program_t*, lazyt_answer_t* a, uint64_t,
                                uint64_t) -> lazyt_status_t* {
    a->kind = LAZYT_ANSWER_ONLY_IF;
    a->condition = 77;
    return nullptr;
  };
  start();
  s.ok(s.query(s.block(kAdd)));
  broke("C-10");
}

TEST_F(ValidatePlugin, AlignmentOfServicesAllocIsAPowerOfTwo) {
  start();
  EXPECT_EQ(host->services->alloc(16, 24), nullptr);
  broke("C-11");
}

TEST_F(ValidatePlugin, MemoryReturnsToWhereItCameFrom) {
  start();
  int own = 0;
  host->services->free(&own);
  broke("C-12");
  void* p = host->services->alloc(16, 16);
  host->services->free(p);
  host->services->free(p);
  broke("C-12");
}

TEST_F(ValidatePlugin, NamesAreLowerCase) {
  s.plugin.info = [](lazyt_plugin_info_t* out) -> lazyt_status_t* {
    return out->name = LAZYT_STR("Big Name"), nullptr;
  };
  start();
  broke("LIB-8");
}

TEST_F(ValidatePlugin, TheHostIsNotCalledAfterShutdown) {
  start();
  s.stop();
  t = nullptr;
  s.expect_found(Side::kPlugin, {});
  host->services->free(host->services->alloc(8, 8));
  broke("LIB-9");
}

TEST_F(ValidatePlugin, FailureWritesNoResult) {
  s.event_table.ready = [](lazyt_event_t* e, uint32_t* out) -> lazyt_status_t* {
    sound_event.ready(e, out);
    return error(LAZYT_CODE_INTERNAL);
  };
  start();
  lazyt_event_t* event = nullptr;
  lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
  s.ok(t->buffer->to_host(a, 0, bytes, 16, {nullptr, 0}, &event));
  uint32_t ready = 0;
  EXPECT_EQ(code(t->event->ready(event, &ready)), LAZYT_CODE_INTERNAL);
  broke("STA-1");
  s.event_table.ready = sound_event.ready;
  t->event->release(event);
  t->buffer->release(a);
}

TEST_F(ValidatePlugin, MessagesSaySomething) {
  s.device_table.memory_stats = [](lazyt_device_t*, lazyt_memory_stats_t*) -> lazyt_status_t* {
    return error(LAZYT_CODE_INTERNAL, "");
  };
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  EXPECT_EQ(code(start().device->memory_stats(s.device, &stats)), LAZYT_CODE_INTERNAL);
  broke("STA-2");
}

TEST_F(ValidatePlugin, StatusesAreReturnedOnce) {
  static lazyt_status_t* kept;
  s.device_table.memory_stats = [](lazyt_device_t*, lazyt_memory_stats_t*) -> lazyt_status_t* {
    return kept = error(LAZYT_CODE_INTERNAL);
  };
  start();
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  lazyt_status_t* mine = t->device->memory_stats(s.device, &stats);
  s.expect_found(Side::kPlugin, {});
  host->status->release(kept);  // the plugin gave it away
  broke("STA-4");
  EXPECT_EQ(host->status->code(kept), LAZYT_CODE_UNKNOWN);
  broke("STA-4");
  EXPECT_EQ(code(mine), LAZYT_CODE_INTERNAL);
}

TEST_F(ValidatePlugin, StatusesThatItDoesNotHoldAreNotPassedOn) {
  s.device_table.memory_stats = [](lazyt_device_t*, lazyt_memory_stats_t*) -> lazyt_status_t* {
    return reinterpret_cast<lazyt_status_t*>(uintptr_t{0x40});
  };
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  EXPECT_EQ(code(start().device->memory_stats(s.device, &stats)), LAZYT_CODE_INTERNAL);
  broke("STA-4");
}

TEST_F(ValidatePlugin, IndicesBeyondTheDevicesAreRefused) {
  s.device_table.describe = [](uint32_t, lazyt_device_info_t* out) -> lazyt_status_t* {
    return sound_device.describe(0, out);
  };
  start();
  lazyt_device_info_t info{};
  info.struct_size = sizeof info;
  s.ok(t->device->describe(5, &info));
  broke("DEV-2");
}

TEST_F(ValidatePlugin, EachOpenGivesAHandle) {
  static lazyt_device_t* one;
  one = nullptr;
  s.device_table.open = [](uint32_t, lazyt_device_t** out) -> lazyt_status_t* {
    if (!one) host->status->release(sound_device.open(0, &one));
    return *out = one, nullptr;
  };
  start();
  s.open();
  broke("DEV-3");
}

TEST_F(ValidatePlugin, StatisticsFitTogether) {
  s.device_table.memory_stats = [](lazyt_device_t*, lazyt_memory_stats_t* out) -> lazyt_status_t* {
    out->bytes_in_use = 2;
    out->peak_bytes_in_use = 1;
    return nullptr;
  };
  lazyt_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  s.ok(start().device->memory_stats(s.device, &stats));
  broke("DEV-4");
}

TEST_F(ValidatePlugin, DevicesHaveANameAndAnAlignment) {
  s.device_table.describe = [](uint32_t, lazyt_device_info_t* out) -> lazyt_status_t* {
    out->alignment = 48;
    return nullptr;
  };
  start();
  lazyt_device_info_t info{};
  info.struct_size = sizeof info;
  s.ok(t->device->describe(0, &info));
  broke("DEV-6");
}

TEST_F(ValidatePlugin, AnEventIsGivenWhereOneIsAskedFor) {
  s.buffer_table.to_host = [](lazyt_buffer_t* b, uint64_t offset, void* dst, uint64_t size,
                              lazyt_events_t waits, lazyt_event_t**) -> lazyt_status_t* {
    return sound_buffer.to_host(b, offset, dst, size, waits, nullptr);
  };
  start();
  lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
  lazyt_event_t* event = nullptr;
  EXPECT_EQ(code(t->buffer->to_host(a, 0, bytes, 16, {nullptr, 0}, &event)), LAZYT_CODE_INTERNAL);
  EXPECT_EQ(event, nullptr);
  broke("BUF-7");
  t->buffer->release(a);
}

TEST_F(ValidatePlugin, BuffersKeepTheirSize) {
  s.buffer_table.size = [](lazyt_buffer_t*, uint64_t* out) -> lazyt_status_t* { return *out = 3, nullptr; };
  start();
  lazyt_buffer_t* a = s.alloc(16);
  uint64_t size = 0;
  s.ok(t->buffer->size(a, &size));
  broke("BUF-10");
  t->buffer->release(a);
}

TEST_F(ValidatePlugin, HostPointerAndToHostShowTheSame) {
  s.buffer_table.to_host = [](lazyt_buffer_t*, uint64_t, void* dst, uint64_t, lazyt_events_t,
                              lazyt_event_t**) -> lazyt_status_t* {
    return *static_cast<char*>(dst) = 77, nullptr;
  };
  start();
  lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
  s.ok(t->buffer->to_host(a, 0, bytes, 16, {nullptr, 0}, nullptr));
  broke("BUF-11");
  t->buffer->release(a);
}

TEST_F(ValidatePlugin, AlignmentIsKept) {
  s.buffer_table.host_pointer = [](lazyt_buffer_t* b, void** out) -> lazyt_status_t* {
    host->status->release(sound_buffer.host_pointer(b, out));
    *out = static_cast<char*>(*out) + 8;
    return nullptr;
  };
  start();
  lazyt_buffer_desc_t desc{sizeof desc, nullptr, 64, 256, 0, 0};
  lazyt_buffer_t* a = nullptr;
  s.ok(t->buffer->alloc(s.device, &desc, &a));
  void* pointer = nullptr;
  s.ok(t->buffer->host_pointer(a, &pointer));
  broke("BUF-12");
  t->buffer->release(a);
}

TEST_F(ValidatePlugin, WaitsEndAtTheirLimit) {
  s.event_table.wait = [](lazyt_event_t* e, uint64_t) -> lazyt_status_t* {
    std::this_thread::sleep_for(std::chrono::milliseconds(3100));
    return sound_event.wait(e, LAZYT_WAIT_FOREVER);
  };
  start();
  lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
  lazyt_event_t* event = nullptr;
  s.ok(t->buffer->to_host(a, 0, bytes, 16, {nullptr, 0}, &event));
  s.ok(t->event->wait(event, 0));
  broke("EVT-3");
  t->event->release(event);
  t->buffer->release(a);
}

TEST_F(ValidatePlugin, WaitsWithoutLimitWait) {
  s.event_table.wait = [](lazyt_event_t*, uint64_t) -> lazyt_status_t* {
    return error(LAZYT_CODE_DEADLINE_EXCEEDED);
  };
  s.event_table.ready = [](lazyt_event_t*, uint32_t* out) -> lazyt_status_t* { return *out = 0, nullptr; };
  start();
  lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
  lazyt_event_t* event = nullptr;
  s.ok(t->buffer->to_host(a, 0, bytes, 16, {nullptr, 0}, &event));
  EXPECT_EQ(code(t->event->wait(event, LAZYT_WAIT_FOREVER)), LAZYT_CODE_DEADLINE_EXCEEDED);
  broke("EVT-3");
  s.event_table = sound_event;
  t->event->release(event);
  t->buffer->release(a);
}

TEST_F(ValidatePlugin, AnEventTellsOneOutcome) {
  static int calls;
  calls = 0;
  s.event_table.wait = [](lazyt_event_t* e, uint64_t timeout) -> lazyt_status_t* {
    if (++calls == 4) return error(LAZYT_CODE_INTERNAL, "another story");
    return sound_event.wait(e, timeout);
  };
  start();
  lazyt_event_t* event = event_of_a_read();
  for (int i = 0; i < 4; i++) (void)code(t->event->wait(event, 0));
  broke("EVT-6");
  t->event->release(event);
}

TEST_F(ValidatePlugin, RefusalsSayWhy) {
  s.capability_table.query = [](lazyt_device_t*, const lazyt_program_t*, lazyt_answer_t*, uint64_t,
                                uint64_t) -> lazyt_status_t* { return nullptr; };
  start();
  s.ok(s.query(s.block(kAdd)));
  broke("CAP-3");
}

TEST_F(ValidatePlugin, UnknownOperatorsAreRefusedNodes) {
  s.capability_table.query = [](lazyt_device_t*, const lazyt_program_t*, lazyt_answer_t*, uint64_t,
                                uint64_t) -> lazyt_status_t* { return error(LAZYT_CODE_UNIMPLEMENTED); };
  start();
  EXPECT_EQ(code(s.query(s.block(kAdd))), LAZYT_CODE_UNIMPLEMENTED);
  broke("CAP-5");
}

TEST_F(ValidatePlugin, WhatIsTakenCompiles) {
  s.executable_table.compile = [](lazyt_device_t*, const lazyt_compile_args_t*,
                                  lazyt_executable_t**) -> lazyt_status_t* {
    return error(LAZYT_CODE_UNIMPLEMENTED);
  };
  start();
  const lazyt_program_t* p = s.block(kAdd);
  s.ok(s.query(p));
  lazyt_compile_args_t args{sizeof args, nullptr, p, 0};
  lazyt_executable_t* out = nullptr;
  EXPECT_EQ(code(t->executable->compile(s.device, &args, &out)), LAZYT_CODE_UNIMPLEMENTED);
  broke("CAP-2");
}

TEST_F(ValidatePlugin, TheProgramIsReadOnly) {
  s.executable_table.compile = [](lazyt_device_t* d, const lazyt_compile_args_t* args,
                                  lazyt_executable_t** out) -> lazyt_status_t* {
    lazyt_status_t* status = sound_executable.compile(d, args, out);
    const_cast<lazyt_program_t*>(args->program)->flags ^= 4;
    return status;
  };
  start();
  t->executable->release(s.compile(kAdd));
  broke("EXE-1");
}

TEST_F(ValidatePlugin, ExecuteGivesAnEvent) {
  s.executable_table.execute = [](lazyt_executable_t*, const lazyt_execute_args_t*,
                                  lazyt_event_t**) -> lazyt_status_t* { return nullptr; };
  start();
  EXPECT_EQ(run(), LAZYT_CODE_INTERNAL);
  broke("EXE-2");
}

TEST_F(ValidatePlugin, WorkOfASynchronousDeviceIsDone) {
  s.device_table.describe = [](uint32_t index, lazyt_device_info_t* out) -> lazyt_status_t* {
    lazyt_status_t* status = sound_device.describe(index, out);
    if (!status) out->flags |= LAZYT_DEVICE_SYNCHRONOUS;
    return status;
  };
  s.event_table.ready = [](lazyt_event_t* event, uint32_t* out) -> lazyt_status_t* {
    static std::atomic<bool> asked = false;
    if (asked.exchange(true)) return sound_event.ready(event, out);
    return *out = 0, nullptr;
  };
  start();
  run();
  broke("DEV-8");
}

// An event that is ready at once.
lazyt_status_t* take_anything(lazyt_executable_t*, const lazyt_execute_args_t* args, lazyt_event_t** out) {
  return sound_buffer.to_host(args->inputs[0].buffer, 0, nullptr, 0, {nullptr, 0}, out);
}

TEST_F(ValidatePlugin, OutputsThatAreTooSmallAreRefused) {
  s.executable_table.execute = take_anything;
  start();
  lazyt_executable_t* add = s.compile(kAdd);
  lazyt_buffer_t *a = s.upload({1, 2, 3, 4}), *small = s.alloc(8);
  lazyt_event_t* event = nullptr;
  s.ok(s.execute(add, {Subject::in(a), Subject::in(a)}, {small}, &event));
  s.wait(event);
  broke("EXE-10");
  t->event->release(event);
  s.ok(s.execute(add, {Subject::in(a)}, {small}, &event));
  s.wait(event);
  broke("EXE-10");
  t->event->release(event);
  t->buffer->release(a);
  t->buffer->release(small);
  t->executable->release(add);
}

TEST_F(ValidatePlugin, ErrorsOfWaitsPoison) {
  start();
  lazyt_executable_t* add = s.compile(kAdd);
  lazyt_buffer_t *a = s.upload({1, 2, 3, 4}), *small = s.alloc(4), *out = s.alloc(16);
  lazyt_event_t *failed = nullptr, *event = nullptr;
  s.ok(s.execute(add, {Subject::in(a), Subject::in(a)}, {small}, &failed));
  EXPECT_NE(code(t->event->wait(failed, LAZYT_WAIT_FOREVER)), LAZYT_CODE_OK);
  s.expect_found(Side::kPlugin, {});
  s.executable_table.execute = take_anything;
  s.ok(s.execute(add, {Subject::in(a), Subject::in(a)}, {out}, &event, {failed}));
  s.wait(event);
  broke("EXE-11");
  for (lazyt_event_t* e : {failed, event}) t->event->release(e);
  for (lazyt_buffer_t* b : {a, small, out}) t->buffer->release(b);
  t->executable->release(add);
}

TEST_F(ValidatePlugin, MetasCoverTheOutputs) {
  s.executable_table.output_meta = [](lazyt_executable_t* x, uint64_t index,
                                      lazyt_output_meta_t* out) -> lazyt_status_t* {
    lazyt_status_t* status = sound_executable.output_meta(x, 0, out);
    if (index == 0) out->size_bytes = 8;
    return status;
  };
  start();
  lazyt_executable_t* add = s.compile(kAdd);
  broke("EXE-14");
  lazyt_output_meta_t meta{};
  meta.struct_size = sizeof meta;
  s.ok(t->executable->output_meta(add, 3, &meta));
  broke("EXE-14");
  t->executable->release(add);
}

// One thread settles work that is done and looks at its inputs, another gives such an input back.
TEST_F(ValidatePlugin, ABufferIsNotReleasedWhileTheLayerReadsIt) {
  static std::atomic<bool> holds, reads, released, gone;
  holds = reads = released = gone = false;
  s.buffer_table.host_pointer = [](lazyt_buffer_t* b, void** out) -> lazyt_status_t* {
    if (holds) {
      reads = true;
      for (int ms = 0; ms < 100 && !released; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      gone = released.load();
    }
    return gone ? error(LAZYT_CODE_INTERNAL, "released") : sound_buffer.host_pointer(b, out);
  };
  s.buffer_table.release = [](lazyt_buffer_t* b) {
    released = true;
    sound_buffer.release(b);
  };
  start();
  lazyt_executable_t* add = s.compile(kAdd);
  lazyt_buffer_t *a = s.upload({1, 2, 3, 4}), *out = s.alloc(16);
  lazyt_event_t* event = nullptr;
  s.ok(s.execute(add, {Subject::in(a), Subject::in(a)}, {out}, &event));
  holds = true;
  std::thread settles([&] { s.wait(event); });
  while (!reads) std::this_thread::yield();
  t->buffer->release(a);
  settles.join();
  holds = false;
  EXPECT_FALSE(gone);
  EXPECT_TRUE(released);
  t->event->release(event);
  t->buffer->release(out);
  t->executable->release(add);
}

}  // namespace
}  // namespace lazyt::layers
