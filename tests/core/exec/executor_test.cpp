#include "exec/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace lazyt::exec {
namespace {

using namespace std::chrono_literals;

TEST(Executor, RunsTasksInOrderOfSubmission) {
  std::vector<int> order;
  Executor executor;
  for (int i = 0; i < 100; i++) executor.submit([&order, i] { order.push_back(i); });
  executor.drain();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; i++) EXPECT_EQ(order[i], i);
}

TEST(Executor, SubmitBlocksWhileTheQueueIsFull) {
  Executor executor(2);
  std::promise<void> gate;
  auto open = gate.get_future().share();
  executor.submit([open] { open.wait(); });
  executor.submit([] {});
  std::atomic<bool> submitted = false;
  std::thread third([&] {
    executor.submit([] {});
    submitted = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(submitted);
  gate.set_value();
  third.join();
  EXPECT_TRUE(submitted);
}

TEST(Executor, ATaskMaySubmitToAFullQueue) {
  std::atomic<int> ran = 0;
  {
    Executor executor(1);
    executor.submit([&] {
      for (int i = 0; i < 5; i++) executor.submit([&] { ran++; });
      executor.drain();  // cannot wait for itself
    });
  }
  EXPECT_EQ(ran, 5);
}

TEST(Executor, DestructorRunsWhatWasSubmitted) {
  std::atomic<int> ran = 0;
  {
    Executor executor(8);
    for (int i = 0; i < 8; i++)
      executor.submit([&] {
        std::this_thread::sleep_for(1ms);
        ran++;
      });
  }
  EXPECT_EQ(ran, 8);
}

TEST(Executor, DrainWaitsUntilTasksAreDestroyed) {
  Executor executor;
  auto held = std::make_shared<int>(1);
  std::weak_ptr<int> watch = held;
  executor.submit([held = std::move(held)] {});
  executor.drain();
  EXPECT_TRUE(watch.expired());
}

TEST(Executor, DrainDoesNotWaitForTasksSubmittedLater) {
  std::atomic<bool> stop = false;
  std::function<void()> again;
  Executor executor;
  again = [&] {
    if (!stop) executor.submit(again);
  };
  executor.submit(again);
  executor.drain();  // returns although the queue never empties
  stop = true;
}

TEST(Executor, CountsTheTimeSpentInTasks) {
  Executor executor;
  executor.submit([] { std::this_thread::sleep_for(5ms); });
  executor.drain();
  const uint64_t busy = executor.busy_ns();
  EXPECT_GE(busy, 4'000'000u);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(executor.busy_ns(), busy);
}

TEST(Executor, SeveralThreadsMaySubmit) {
  std::atomic<int> ran = 0;
  Executor executor(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; i++) executor.submit([&] { ran++; });
    });
  for (auto& thread : threads) thread.join();
  executor.drain();
  EXPECT_EQ(ran, 200);
}

}  // namespace
}  // namespace lazyt::exec
