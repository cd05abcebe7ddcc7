// From init to shutdown, and objects that go in any order.
#include <filesystem>

#include "suite.h"

namespace lazyt::conformance {
namespace {

using Lifecycle = Case;
using Restart = DevicelessCase;

constexpr const char* kAdd =
    "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2\n}\n";

size_t open_files() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) n++;
  return n;
}

LAZYT_CASE(Restart, InitWorksAgainAfterShutdown, "LIB-6") {
  for (int round = 0; round < 3; round++) {
    plugin().shutdown();
    MUST(ok("LIB-6", fmt::format("init after shutdown, round {}", round), plugin().init()));
    uint32_t count = 0;
    MUST(ok("LIB-6", "device.count after it", plugin().device->count(&count)));
    if (count == 0) continue;
    lazyt_device_t* handle = nullptr;
    MUST(ok("LIB-6", "device.open after it", plugin().device->open(0, &handle)));
    DevicePtr device(handle);
    BufferPtr buffer = upload(floats({1, 2}), handle);
    MUST(buffer);
    same_bytes("LIB-6", "from_host and to_host after it", floats({1, 2}), download(buffer, 8));
  }
}

LAZYT_CASE(Restart, ShutdownGivesMemoryBack, "LIB-6") {
  plugin().shutdown();
  MUST(ok("LIB-6", "init", plugin().init()));
  const int64_t before = live_bytes();
  for (int round = 0; round < 5; round++) {
    plugin().shutdown();
    MUST(ok("LIB-6", "init", plugin().init()));
  }
  keeps("LIB-6", live_bytes() == before, "five pairs of shutdown and init",
        fmt::format("{} bytes of services.alloc", before), fmt::format("{}", live_bytes()));
}

LAZYT_CASE(Lifecycle, RoundsDoNotPileUp, "DEV-4", "STA-4") {
  const int rounds = options().full ? 200 : 25;
  int64_t bytes = 0, statuses = 0;
  size_t files = 0;
  for (int round = 0; round < rounds; round++) {
    if (round == 5) {  // what is made once is made by now
      bytes = live_bytes();
      statuses = live_statuses();
      files = open_files();
    }
    DevicePtr device = open(0);
    MUST(device);
    Compiled add = compile(kAdd, 0, device.get());
    BufferPtr a = upload(floats({1, 2, 3, 4}), device.get()), b = alloc(64, device.get());
    MUST(a && b);
    if (!add) return;
    std::vector<BufferPtr> out = outputs(add, device.get());
    MUST(out.size() == 1);
    EventPtr event = execute("DEV-4", add, {in(a), in(a)}, out);
    MUST(event && wait("DEV-4", "execute", event));
  }
  const std::string did = fmt::format("opened, compiled, ran and closed {} times", rounds);
  keeps("DEV-4", live_bytes() <= bytes, did,
        fmt::format("{} bytes of services.alloc, as after five rounds", bytes),
        fmt::format("{}", live_bytes()));
  keeps("STA-4", live_statuses() <= statuses, did, fmt::format("{} statuses", statuses),
        fmt::format("{}", live_statuses()));
  keeps("DEV-4", open_files() <= files, did, fmt::format("{} open files", files),
        fmt::format("{}", open_files()));
}

LAZYT_CASE(Lifecycle, NullIsReleased, "C-12") {
  plugin().buffer->release(nullptr);
  plugin().event->release(nullptr);
  plugin().executable->release(nullptr);
  plugin().device->close(nullptr);
  keeps("C-12", true, "released NULL", "", "");
}

LAZYT_CASE(Lifecycle, BuffersOutliveExecutableAndEvent, "BUF-14") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4})), b = upload(floats({10, 20, 30, 40}));
  MUST(a && b);
  std::vector<BufferPtr> out = outputs(add);
  MUST(out.size() == 1);
  EventPtr event = execute("BUF-14", add, {in(a), in(b)}, out);
  MUST(event && wait("BUF-14", "execute", event));
  event.reset();
  add.handle.reset();
  a.reset();
  b.reset();
  same_bytes("BUF-14", "released event, executable and inputs, then read the output",
             floats({11, 22, 33, 44}), download(out[0], 16));
}

LAZYT_CASE(Lifecycle, ExecutableIsReleasedBeforeItsWorkIsDone, "EXE-13") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4})), b = upload(floats({10, 20, 30, 40}));
  MUST(a && b);
  std::vector<BufferPtr> out = outputs(add);
  MUST(out.size() == 1);
  EventPtr event = execute("EXE-13", add, {in(a), in(b)}, out);
  MUST(event);
  add.handle.reset();
  MUST(wait("EXE-13", "execute, then release of the executable", event));
  same_bytes("EXE-13", "released the executable at once, waited, read the output", floats({11, 22, 33, 44}),
             download(out[0], 16));
}

LAZYT_CASE(Lifecycle, EventsOutliveBuffers, "BUF-14", "EVT-1") {
  Compiled add = compile(kAdd);
  MUST(add);
  EventPtr event;
  {
    BufferPtr a = upload(floats({1, 2, 3, 4}));
    MUST(a);
    std::vector<BufferPtr> out = outputs(add);
    MUST(out.size() == 1);
    event = execute("EVT-1", add, {in(a), in(a)}, out);
    MUST(event && wait("EVT-1", "execute", event));
  }
  add.handle.reset();
  ok("EVT-1", "wait again after the release of buffers and executable", plugin().event->wait(event.get(), 0));
}

}  // namespace
}  // namespace lazyt::conformance
