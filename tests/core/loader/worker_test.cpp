#include "loader/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace lazyt::loader {
namespace {

using namespace std::chrono_literals;

TEST(Worker, RunsTasksInOrderOfSubmission) {
  std::vector<int> order;
  Worker worker;
  for (int i = 0; i < 100; i++) worker.submit([&order, i] { order.push_back(i); });
  worker.drain();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; i++) EXPECT_EQ(order[i], i);
}

TEST(Worker, SubmitBlocksWhileTheQueueIsFull) {
  Worker worker(2);
  std::promise<void> gate;
  auto open = gate.get_future().share();
  worker.submit([open] { open.wait(); });
  worker.submit([] {});
  std::atomic<bool> submitted = false;
  std::thread third([&] {
    worker.submit([] {});
    submitted = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(submitted);
  gate.set_value();
  third.join();
  EXPECT_TRUE(submitted);
}

TEST(Worker, WhoFoundNoRoomGoesOnOnceHalfIsDone) {
  Worker worker(4);
  std::vector<std::promise<void>> gates(4);
  std::atomic<size_t> done = 0;
  for (auto& gate : gates) {
    auto open = gate.get_future().share();
    worker.submit([&done, open] { open.wait(), done++; });
  }
  std::atomic<bool> submitted = false;
  std::thread opener([&] {
    std::this_thread::sleep_for(200ms);  // by then the submit below waits
    gates[0].set_value();
    while (done < 1) std::this_thread::yield();
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(submitted);
    for (size_t k : {1, 2, 3}) gates[k].set_value();
  });
  worker.submit([] {});
  submitted = true;
  EXPECT_GE(done, 2u);
  opener.join();
  worker.drain();
  EXPECT_EQ(done, 4u);
}

TEST(Worker, ATaskMaySubmitToAFullQueue) {
  std::atomic<int> ran = 0;
  {
    Worker worker(1);
    worker.submit([&] {
      for (int i = 0; i < 5; i++) worker.submit([&] { ran++; });
      worker.drain();  // cannot wait for itself
    });
  }
  EXPECT_EQ(ran, 5);
}

TEST(Worker, AnIdleWorkersTurnMayBeTaken) {
  Worker worker;
  worker.submit([] {});
  worker.drain();
  std::atomic<bool> ran = false;
  {
    auto turn = worker.try_turn();
    ASSERT_TRUE(turn);
    worker.submit([&] { ran = true; });
    worker.drain();  // cannot wait for itself
    EXPECT_FALSE(worker.try_turn());
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(ran);
  }
  worker.drain();
  EXPECT_TRUE(ran);
}

TEST(Worker, ABusyWorkersTurnIsNotGiven) {
  Worker worker;
  std::promise<void> gate;
  auto open = gate.get_future().share();
  worker.submit([open] { open.wait(); });
  EXPECT_FALSE(worker.try_turn());
  gate.set_value();
  worker.drain();
  EXPECT_TRUE(worker.try_turn());
}

TEST(Worker, AWaiterRunsWhatTheThreadHasNotBegun) {
  Worker worker;
  std::vector<int> order;
  int here = 0;
  for (int i = 0; i < 2000; i++) {
    worker.submit([&, i] {
      order.push_back(i);
      here += Worker::has_turn();
    }, nullptr, true);
    worker.help();
  }
  worker.drain();
  ASSERT_EQ(order.size(), 2000u);
  for (int i = 0; i < 2000; i++) EXPECT_EQ(order[i], i);
  EXPECT_GT(here, 0);
}

TEST(Worker, AWaiterRunsNothingThatIsTheThreads) {
  Worker worker;
  std::promise<void> gate;
  auto open = gate.get_future().share();
  std::atomic<int> here = 0;
  worker.submit([&here, open] { open.wait(), here += Worker::has_turn(); });
  for (bool anywhere : {true, false, true}) worker.submit([&here, anywhere] { here += !anywhere && Worker::has_turn(); }, nullptr, anywhere);
  worker.help();  // the thread is at work: what comes next waits for it
  gate.set_value();
  worker.help();
  worker.drain();
  EXPECT_EQ(here, 0);
}

TEST(Worker, OthersWaitForATurn) {
  Worker worker(1);
  std::atomic<bool> drained = false;
  std::vector<std::thread> others;
  {
    auto turn = worker.try_turn();
    ASSERT_TRUE(turn);
    others.emplace_back([&] {
      worker.drain();
      drained = true;
    });
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(drained);
  }
  others[0].join();
  EXPECT_TRUE(drained);
}

TEST(Worker, DestructorWaitsForATurn) {
  auto worker = std::make_unique<Worker>();
  std::atomic<bool> ended = false;
  std::thread destroyer;
  {
    auto turn = worker->try_turn();
    ASSERT_TRUE(turn);
    destroyer = std::thread([&] {
      worker = nullptr;
      ended = true;
    });
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(ended);
  }
  destroyer.join();
  EXPECT_TRUE(ended);
}

TEST(Worker, TurnsAndTasksOfManyThreadsNeverOverlap) {
  Worker worker;
  std::atomic<int> inside = 0, overlaps = 0, turns = 0;
  auto work = [&] {
    overlaps += inside++ != 0;
    inside--;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; i++) {
        if (auto turn = worker.try_turn()) {
          work();
          turns++;
        } else {
          worker.submit(work);
        }
        if (i % 100 == 0) worker.drain();
      }
    });
  for (auto& thread : threads) thread.join();
  worker.drain();
  EXPECT_EQ(overlaps, 0);
  EXPECT_GT(turns, 0);
}

TEST(Worker, AThreadThatStaysAwakeLeavesTurnsTakesWhatComesAndEnds) {
  std::atomic<int> ran = 0;
  {
    Worker worker;
    worker.submit([&] { worker.stay_awake(1h), ran++; });
    worker.drain();
    {
      Worker::Turn turn = worker.try_turn();
      EXPECT_TRUE(turn);
      worker.submit([&] { ran++; });
    }
    worker.drain();
    EXPECT_EQ(ran, 2);
    worker.submit([&] { worker.stay_awake(1h); });
    worker.drain();
  }
}

TEST(Worker, DestructorRunsWhatWasSubmitted) {
  std::atomic<int> ran = 0;
  {
    Worker worker(8);
    for (int i = 0; i < 8; i++)
      worker.submit([&] {
        std::this_thread::sleep_for(1ms);
        ran++;
      });
  }
  EXPECT_EQ(ran, 8);
}

TEST(Worker, DrainWaitsUntilTasksAreDestroyed) {
  Worker worker;
  auto held = std::make_shared<int>(1);
  std::weak_ptr<int> watch = held;
  worker.submit([held = std::move(held)] {});
  worker.drain();
  EXPECT_TRUE(watch.expired());
}

TEST(Worker, DrainDoesNotWaitForTasksSubmittedLater) {
  Worker worker;
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) worker.submit([] {});
  });
  for (int i = 0; i < 100; i++) worker.drain();  // returns although the queue never empties
  stop = true;
  other.join();
}

TEST(Worker, DrainWaitsForWhatItsTasksSubmit) {
  Worker worker;
  for (int round = 0; round < 50; round++) {
    std::atomic<int> left = 5;
    std::function<void()> again = [&] {
      std::this_thread::sleep_for(50us);
      if (--left > 0) worker.submit(again);
    };
    worker.submit(again);
    worker.drain();
    ASSERT_EQ(left, 0);
  }
}

TEST(Worker, CountsTheTimeSpentInTasks) {
  Worker worker;
  worker.submit([] { std::this_thread::sleep_for(5ms); });
  worker.drain();
  const uint64_t busy = worker.busy_ns();
  EXPECT_GE(busy, 4'000'000u);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(worker.busy_ns(), busy);
}

TEST(Worker, SeveralThreadsMaySubmit) {
  std::atomic<int> ran = 0;
  Worker worker(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; i++) worker.submit([&] { ran++; });
    });
  for (auto& thread : threads) thread.join();
  worker.drain();
  EXPECT_EQ(ran, 200);
}

}  // namespace
}  // namespace lazyt::loader
