// The mutants of the conformance suite whose defect is to be seen at the calls: a host that does nothing
// wrong finds each, by its rule. The others (2, 10, 11, 12, 14) are the suite's alone: sdk_docs/layers.md
// says why.
#include <gtest/gtest.h>

#include <functional>

#include "subject.h"

namespace lazyt::layers {
namespace {

using lazyt::testing::Subject;

struct Mutant {
  int number;
  const char* rule;
  std::function<void(Subject&, const lazyt_plugin_t&)> run;
};

constexpr const char* kAdd =
    "program(%0: f32[4] donate, %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2 <- "
    "%0\n}\n";

// An event of work that failed: an output's buffer is too small.
lazyt_event_t* failed_event(Subject& s, const lazyt_plugin_t& t) {
  lazyt_executable_t* add = s.compile(kAdd);
  lazyt_buffer_t *a = s.upload({1, 2, 3, 4}), *small = s.alloc(4);
  lazyt_event_t* event = nullptr;
  s.ok(s.execute(add, {Subject::in(a), Subject::in(a)}, {small}, &event));
  loader::take_status(t.event->wait(event, LAZYT_WAIT_FOREVER));
  t.executable->release(add);
  t.buffer->release(a);
  t.buffer->release(small);
  return event;
}

void ready_event(Subject& s, const lazyt_plugin_t& t, const std::function<void(lazyt_event_t*)>& use) {
  lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
  char bytes[16];
  lazyt_event_t* event = nullptr;
  s.ok(t.buffer->to_host(a, 0, bytes, 16, {nullptr, 0}, &event));
  use(event);
  t.event->release(event);
  t.buffer->release(a);
}

// Runs a program on a and b; or, with a donated, where its work finds no memory.
void run(Subject& s, const lazyt_plugin_t& t, const std::string& program, bool short_memory = false) {
  lazyt_executable_t* x = s.compile(program);
  lazyt_buffer_t *a = s.upload({1, 2, 3, 4}), *b = s.upload({1, 2, 3, 4}), *out = s.alloc(16);
  lazyt_event_t* event = nullptr;
  if (short_memory) Subject::set_memory_elsewhere(Subject::Memory::kShort);
  s.ok(s.execute(x, {Subject::in(a, short_memory), Subject::in(b)}, {short_memory ? a : out}, &event));
  loader::take_status(t.event->wait(event, LAZYT_WAIT_FOREVER));
  Subject::set_memory_elsewhere(Subject::Memory::kPlenty);
  t.event->release(event);
  for (lazyt_buffer_t* buffer : {a, b, out}) t.buffer->release(buffer);
  t.executable->release(x);
}

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = {
      {1, "EVT-4",
       [](Subject& s, const lazyt_plugin_t& t) {
         lazyt_executable_t* relu =
             s.compile("program(%0: f32[4]) {\n %1 = aten::relu(%0) : f32[4]\n return %1\n}\n");
         lazyt_buffer_t *a = s.upload({1, 2, 3, 4}), *out = s.alloc(16);
         lazyt_event_t* event = nullptr;
         Subject::set_memory_elsewhere(Subject::Memory::kHeld);  // its work is not done before on_ready
         s.ok(s.execute(relu, {Subject::in(a)}, {out}, &event));
         s.ok(t.event->on_ready(event, [](void*, lazyt_status_t*) {}, nullptr));
         Subject::set_memory_elsewhere(Subject::Memory::kPlenty);
         s.wait(event);
         t.event->release(event);
         t.buffer->release(a);
         t.buffer->release(out);
         t.executable->release(relu);
       }},
      {3, "BUF-4", [](Subject& s, const lazyt_plugin_t& t) { t.buffer->release(s.upload({1, 2, 3, 4})); }},
      {4, "BUF-9", [](Subject& s, const lazyt_plugin_t& t) { run(s, t, kAdd); }},
      {5, "EXE-6", [](Subject& s, const lazyt_plugin_t& t) { run(s, t, kAdd, true); }},
      {6, "CAP-1",
       [](Subject& s, const lazyt_plugin_t&) {
         const lazyt_program_t* p = s.block(
             "program(%0: i64[4]) {\n %1 = aten::mul.Tensor(%0, %0) : i64[4]\n"
             " %2 = aten::mul.Tensor(%1, %1) : i64[4]\n return %2\n}\n");
         s.ok(s.query(p));
         s.ok(s.query(p));
       }},
      {7, "EVT-4",
       [](Subject& s, const lazyt_plugin_t& t) {
         ready_event(s, t, [&](lazyt_event_t* event) {
           s.ok(t.event->on_ready(event, [](void*, lazyt_status_t*) {}, nullptr));
         });
       }},
      {8, "STA-1",
       [](Subject&, const lazyt_plugin_t& t) {
         lazyt_device_info_t info{};
         info.struct_size = sizeof info;
         (void)loader::take_status(t.device->describe(1, &info));
       }},
      {9, "BUF-5",
       [](Subject& s, const lazyt_plugin_t& t) {
         lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
         char bytes[16];
         (void)loader::take_status(t.buffer->to_host(a, 8, bytes, 16, {nullptr, 0}, nullptr));
         t.buffer->release(a);
       }},
      {13, "EXE-4",
       [](Subject& s, const lazyt_plugin_t& t) {
         run(s, t,
             "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::relu(%0) : f32[4]\n %3 = aten::relu(%2) : "
             "f32[4]\n"
             " %4 = aten::relu(%3) : f32[4]\n %5 = aten::relu(%4) : f32[4]\n return %5\n}\n");
       }},
      {15, "BUF-6",
       [](Subject& s, const lazyt_plugin_t& t) {
         lazyt_event_t* failed = failed_event(s, t);
         lazyt_buffer_t* a = s.upload({1, 2, 3, 4});
         char bytes[16];
         (void)loader::take_status(t.buffer->to_host(a, 0, bytes, 16, {&failed, 1}, nullptr));
         t.event->release(failed);
         t.buffer->release(a);
       }},
      {16, "STA-4", [](Subject& s, const lazyt_plugin_t& t) { t.event->release(failed_event(s, t)); }},
      {17, "BUF-8",
       [](Subject& s, const lazyt_plugin_t& t) {
         float bytes[4] = {};
         lazyt_host_bytes_t from{sizeof from,         nullptr, bytes,        16,
                                 LAZYT_SHARING_ALIAS, 0,       [](void*) {}, nullptr};
         lazyt_buffer_t* a = nullptr;
         s.ok(t.buffer->from_host(s.device, &from, &a));
         t.buffer->release(a);
       }},
      {18, "C-3",
       [](Subject& s, const lazyt_plugin_t&) {
         s.ok(
             s.query(s.block("program(%0: f32[4]) {\n %1 = aten::relu(%0) : f32[4]\n"
                             " %2 = aten::relu(%1) : f32[4]\n return %2\n}\n")));
       }},
      {19, "EVT-1",
       [](Subject& s, const lazyt_plugin_t& t) {
         ready_event(s, t, [&](lazyt_event_t* event) {
           uint32_t ready = 0;
           for (int i = 0; i < 25; i++) s.ok(t.event->ready(event, &ready));
         });
       }},
  };
  return all;
}

class ValidateMutants : public ::testing::TestWithParam<Mutant> {};

TEST_P(ValidateMutants, IsNamedByItsRule) {
  const Mutant& m = GetParam();
#ifdef __SANITIZE_ADDRESS__
  if (m.number == 16) GTEST_SKIP() << "its planted defect is a leak: LeakSanitizer reports it, too";
#endif
  Subject s("mutant_" + std::to_string(m.number));
  const lazyt_plugin_t& t = s.start();
  m.run(s, t);
  s.stop();
  std::string all;
  bool named = false;
  for (const Violation& v : s.found) {
    all += "\n  " + v.to_string();
    named |= v.rule == m.rule && v.side == Side::kPlugin;
    EXPECT_EQ(static_cast<int>(v.side), static_cast<int>(Side::kPlugin)) << v.to_string();
  }
  EXPECT_TRUE(named) << "found:" << all;
  s.found.clear();
}

// What the mutants are made of, without a defect.
TEST_P(ValidateMutants, TheSoundPluginIsSilent) {
  Subject s;
  const lazyt_plugin_t& t = s.start();
  GetParam().run(s, t);
  s.stop();
  s.expect_found(Side::kPlugin, {});
}

INSTANTIATE_TEST_SUITE_P(All, ValidateMutants, ::testing::ValuesIn(mutants()),
                         [](const auto& info) { return "Number" + std::to_string(info.param.number); });

}  // namespace
}  // namespace lazyt::layers
