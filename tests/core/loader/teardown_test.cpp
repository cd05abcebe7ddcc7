// Plugins come and go: rounds of load, compile, run, unload leave nothing behind, and what was made may be let go in
// any order, by several threads, or not at all. What a plugin must bear of it are LIB-6, LIB-10 and LIB-11.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "ir/text.h"
#include "loader/loader.h"

namespace lazyt::loader {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnHeap = false;  // a sanitizer's allocator keeps what is freed; its leak check looks instead
#else
constexpr bool kOwnHeap = true;
#endif

struct Footprint {
  size_t heap = 0, files = 0, libraries = 0;
};

Footprint footprint() {
  auto entries = [](const char* folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  };
  Footprint f{kOwnHeap ? mallinfo2().uordblks : 0, entries("/proc/self/fd"), 0};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) f.libraries += line.find(".so") != std::string::npos;
  return f;
}

std::string path_of(const std::string& name) {
  for (const Candidate& c : list().candidates)
    if (c.name == name) return c.path;
  return "";
}

bool mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(path) != std::string::npos) return true;
  return false;
}

// All that one run of a program is made of.
struct Session {
  base::Ref<Plugin> plugin;
  base::Ref<Device> device;
  base::Ref<Executable> executable;
  base::Ref<Buffer> in, out;
  base::Ref<Event> event;

  explicit Session(const std::string& name) {
    plugin = load(name).value();
    device = Device::open(plugin, 0).value();
    auto program = ir::Program::from_graph(ir::parse("program(%0: f32[4]) {\n %1 = aten::relu(%0) : f32[4]\n return %1\n}\n").value());
    executable = Executable::compile(device, *program, 0).value();
    const float values[4] = {-1, 2, -3, 4};
    in = Buffer::from_host(device, values, sizeof values).value();
    out = Buffer::alloc(device, executable->output_metas().at(0).size_bytes).value();
    const ExecuteInput input{.buffer = in.get()};
    const Buffer* outputs[] = {out.get()};
    event = executable->execute({&input, 1}, outputs, {}).value();
  }
  void check(bool computes) {
    EXPECT_TRUE(event->wait().ok());
    float back[4] = {};
    EXPECT_TRUE(out->to_host(0, back, sizeof back).ok());
    if (computes) {
      EXPECT_EQ((std::array{back[0], back[1], back[2], back[3]}), (std::array{0.f, 2.f, 0.f, 4.f}));
    }
  }
};

class Teardown : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = path_of(GetParam());
    if (path_.empty()) GTEST_SKIP() << GetParam() << " was not built";
  }
  // ts because libtorch cannot be unloaded (-z nodelete); onednn while threads live that have run its thread_local
  // objects, whose destructors are in the library.
  bool stays_mapped() const { return std::strcmp(GetParam(), "null") != 0; }
  // The last reference may be a worker's, which lets go of it a moment after it has answered.
  void expect_unloaded() const {
    settle();
    const auto begin = std::chrono::steady_clock::now();
    while (!stays_mapped() && mapped(path_) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(mapped(path_), stays_mapped());
  }
  bool computes() const { return std::strcmp(GetParam(), "null") != 0; }
  std::string path_;
};

TEST_P(Teardown, AHundredRoundsOfLoadCompileRunUnloadAreFlat) {
  auto rounds = [&](int count) {
    for (int i = 0; i < count; i++) {
      Session run(GetParam());
      run.check(computes());
    }
    expect_unloaded();
    return footprint();
  };
  Footprint before = rounds(25);  // what is made once in a process, and once on each worker
  size_t least = SIZE_MAX;        // growth of the heap in 25 rounds; threads come and go, what leaks shows each time
  for (int part = 0; part < 4; part++) {
    const Footprint after = rounds(25);
    EXPECT_EQ(after.files, before.files);
    EXPECT_EQ(after.libraries, before.libraries);
    least = std::min(least, after.heap > before.heap ? after.heap - before.heap : 0);
    before = after;
  }
  EXPECT_LT(least, 25 * 16u);
}

TEST_P(Teardown, HandlesMayGoInAnyOrder) {
  std::array<int, 6> order{0, 1, 2, 3, 4, 5};
  int orders = 0;
  do {
    Session run(GetParam());
    if (orders % 2 == 0) run.check(computes());  // else the work may still be running
    for (int which : order) switch (which) {
        case 0: run.plugin = nullptr; break;
        case 1: run.device = nullptr; break;
        case 2: run.executable = nullptr; break;
        case 3: run.in = nullptr; break;
        case 4: run.out = nullptr; break;
        // Buffers stay until their work is done (BUF-3): exec/in_flight.h does that for programs.
        case 5: (void)run.event->wait(), run.event = nullptr; break;
      }
    orders++;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(orders, 720);
  expect_unloaded();
}

TEST_P(Teardown, ThreadsMayLetGoOfTheSameRun) {
  for (int round = 0; round < 20; round++) {
    auto run = std::make_unique<Session>(GetParam());
    run->check(computes());
    std::vector<std::thread> threads;
    threads.emplace_back([e = std::move(run->event), b = std::move(run->in)]() mutable { e = nullptr, b = nullptr; });
    threads.emplace_back([x = std::move(run->executable), b = std::move(run->out)]() mutable { x = nullptr, b = nullptr; });
    threads.emplace_back([d = std::move(run->device), p = std::move(run->plugin)]() mutable { p = nullptr, d = nullptr; });
    for (std::thread& t : threads) t.join();
  }
  expect_unloaded();
}

TEST_P(Teardown, TheProcessMayEndWithAllOpen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto* run = new Session(GetParam());
        run->check(computes());
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

INSTANTIATE_TEST_SUITE_P(Plugins, Teardown, testing::Values("null", "onednn", "ts"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lazyt::loader
