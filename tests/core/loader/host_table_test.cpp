// What plugins get from the host's tables.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "base/counters.h"
#include "loader/handles.h"
#include "loader/parallel.h"

namespace lazyt::loader {
namespace {

const lazyt_host_status_t& statuses() { return *host_table()->status; }
const lazyt_host_services_t& services() { return *host_table()->services; }

TEST(HostStatus, KeepsMessageAndNotesThroughBothWorlds) {
  lazyt_status_t* s = to_abi(base::invalid_argument("bad rank").with_note("core", "first"));
  const lazyt_string_t message = statuses().message(s);
  for (int i = 0; i < 100; i++) statuses().annotate(s, to_abi("plugin"), to_abi("second"));
  EXPECT_EQ(to_string(message), "bad rank") << "strings handed out stay valid while notes are added";
  EXPECT_EQ(statuses().code(s), LAZYT_CODE_INVALID_ARGUMENT);
  ASSERT_EQ(statuses().note_count(s), 101u);
  lazyt_string_t where, detail;
  statuses().note(s, 1, &where, &detail);
  EXPECT_EQ(to_string(where), "plugin");
  EXPECT_EQ(to_string(detail), "second");
  base::Status back = take_status(s);
  EXPECT_EQ(back.code(), LAZYT_CODE_INVALID_ARGUMENT);
  EXPECT_EQ(back.notes().size(), 101u);
  EXPECT_EQ(back.notes()[0].detail, "first");
}

TEST(HostStatus, OkIsNull) {
  EXPECT_EQ(to_abi(base::Status()), nullptr);
  EXPECT_TRUE(take_status(nullptr).ok());
  statuses().release(nullptr);
}

TEST(HostStatus, AnErrorThatSaysOkOrNothingIsStillAnError) {
  lazyt_status_t* s = statuses().create(LAZYT_CODE_OK, {nullptr, 0});
  base::Status status = take_status(s);
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(status.message().empty());
}

TEST(HostStatus, IsCountedByReference) {
  lazyt_status_t* s = statuses().create(LAZYT_CODE_INTERNAL, to_abi("x"));
  EXPECT_EQ(statuses().retain(s), s);
  statuses().release(s);
  EXPECT_EQ(statuses().code(s), LAZYT_CODE_INTERNAL);
  statuses().release(s);
}

TEST(HostServices, AllocIsAlignedAndCounted) {
  const int64_t before = base::counter("HostBytesOfPlugins").value();
  void* p = services().alloc(1000, 4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 4096, 0u);
  EXPECT_GE(base::counter("HostBytesOfPlugins").value(), before + 1000);
  services().free(p);
  EXPECT_EQ(base::counter("HostBytesOfPlugins").value(), before);
  services().free(nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers end the process instead
  EXPECT_EQ(services().alloc(UINT64_MAX / 2, 64), nullptr);
#endif
}

TEST(HostServices, OptionsComeFromTheEnvironment) {
  setenv("LAZYT_MY_CARD_CACHE_SIZE", "12", 1);
  lazyt_string_t value{};
  EXPECT_EQ(services().option(to_abi("my-card"), to_abi("cache_size"), &value), nullptr);
  EXPECT_EQ(to_string(value), "12");
  setenv("LAZYT_MY_CARD_CACHE_SIZE", "13", 1);
  lazyt_string_t later{};
  (void)services().option(to_abi("my-card"), to_abi("cache_size"), &later);
  EXPECT_EQ(to_string(value), "12") << "what was handed out is static";
  EXPECT_EQ(to_string(later), "13");
  (void)services().option(to_abi("my-card"), to_abi("other"), &value);
  EXPECT_EQ(value.data, nullptr);
  EXPECT_EQ(value.size, 0u);
}

TEST(HostServices, SpansAndCountsReachTheMetrics) {
  const int64_t spans = base::metric("TestSpan").count, counted = base::counter("TestCount").value();
  services().trace_end(services().trace_begin(to_abi("TestSpan")));
  services().trace_end(0);
  EXPECT_EQ(base::metric("TestSpan").count, spans + 1);
  services().count(to_abi("TestCount"), 5);
  EXPECT_EQ(base::counter("TestCount").value(), counted + 5);
}

std::vector<int> squares(uint64_t n) {
  struct Work {
    std::vector<int> out;
  } work{std::vector<int>(n)};
  services().parallel_for(
      n, [](void* w, uint64_t i) { static_cast<Work*>(w)->out[i] += static_cast<int>(i * i); }, &work);
  return work.out;
}

TEST(ParallelFor, RunsEachIndexOnce) {
  for (uint64_t n : {0, 1, 2, 7, 1000})
    for (int round = 0; round < 20; round++) {
      std::vector<int> out = squares(n);
      for (uint64_t i = 0; i < n; i++) ASSERT_EQ(out[i], static_cast<int>(i * i));
    }
}

TEST(ParallelFor, MayBeNestedAndCalledByManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<uint64_t> total{0};
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; round++)
        parallel_for(
            8,
            [](void* outer, uint64_t) {
              parallel_for(8, [](void* inner, uint64_t) { ++*static_cast<std::atomic<uint64_t>*>(inner); }, outer);
            },
            &total);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(total, 4u * 50 * 64);
}

TEST(ParallelFor, WorksInAForkedChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not allow threads in a forked child";
#endif
  (void)squares(100);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(squares(100)[99] == 99 * 99 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// What LAZYT_THREADS says stands above what the program asks for.
TEST(HostServices, ThreadsAreAsManyAsTheProgramAsksFor) {
  if (std::getenv("LAZYT_THREADS")) GTEST_SKIP() << "LAZYT_THREADS is set";
  const uint32_t before = services().thread_count();
  set_thread_count(1);
  EXPECT_EQ(services().thread_count(), 1u);
  std::set<std::thread::id> workers;
  std::mutex mutex;
  std::pair<std::set<std::thread::id>&, std::mutex&> shared{workers, mutex};
  services().parallel_for(
      64,
      [](void* user_data, uint64_t) {
        auto& [ids, lock] = *static_cast<std::pair<std::set<std::thread::id>&, std::mutex&>*>(user_data);
        std::lock_guard guard(lock);
        ids.insert(std::this_thread::get_id());
      },
      &shared);
  EXPECT_EQ(workers.size(), 1u);
  set_thread_count(0);
  EXPECT_EQ(services().thread_count(), before);
}

}  // namespace
}  // namespace lazyt::loader
