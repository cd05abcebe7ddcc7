// lazyt/plugin.hpp: what plugin authors in C++ build on.
#include "lazyt/plugin.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "loader/handles.h"

namespace lazyt::plugin {
namespace {
struct Bytes {
  int value = 3;
};
}  // namespace

template <>
struct Handle<lazyt_buffer_t> {
  using type = Bytes;
};

namespace {

class Wrapper : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(adopt_host(loader::host_table()), nullptr); }

  static base::Status status_of(lazyt_status_t* status) { return loader::take_status(status); }
  static int code_of(lazyt_status_t* status) { return static_cast<int>(status_of(status).code()); }
};

using WrapperEvent = Wrapper;

TEST_F(Wrapper, TurnsExceptionsIntoStatuses) {
  EXPECT_EQ(guard([] {}), nullptr);
  EXPECT_EQ(code_of(guard([] { throw std::bad_alloc(); })), LAZYT_CODE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(code_of(guard([] { throw std::runtime_error("x"); })), LAZYT_CODE_INTERNAL);
  EXPECT_EQ(code_of(guard([] { throw 7; })), LAZYT_CODE_INTERNAL);
  auto status = status_of(guard([] { throw Error(LAZYT_CODE_NOT_FOUND, "no file").note("load", "weights"); }));
  EXPECT_EQ(static_cast<int>(status.code()), LAZYT_CODE_NOT_FOUND);
  EXPECT_NE(status.to_string().find("no file"), std::string::npos);
  EXPECT_NE(status.to_string().find("weights"), std::string::npos);
}

TEST_F(Wrapper, CarriesStatusesThroughCheck) {
  check(nullptr);
  auto status = status_of(guard([] { check(make_status(LAZYT_CODE_UNAVAILABLE, "gone")); }));
  EXPECT_EQ(static_cast<int>(status.code()), LAZYT_CODE_UNAVAILABLE);
}

TEST_F(Wrapper, NotesWhereAnExceptionOfAnyTypePassedThrough) {
  auto through = [](auto thrown) {
    return status_of(guard([&] {
      try {
        throw thrown;
      } catch (...) {
        throw current_error().note("node 3", "while it ran");
      }
    }));
  };
  EXPECT_EQ(static_cast<int>(through(std::bad_alloc()).code()), LAZYT_CODE_RESOURCE_EXHAUSTED);
  EXPECT_NE(through(std::bad_alloc()).to_string().find("node 3"), std::string::npos);
  EXPECT_EQ(static_cast<int>(through(std::out_of_range("row 7")).code()), LAZYT_CODE_INTERNAL);
  EXPECT_NE(through(std::out_of_range("row 7")).to_string().find("row 7"), std::string::npos);
  EXPECT_NE(through(7).to_string().find("while it ran"), std::string::npos);
  auto status = through(Error(LAZYT_CODE_ABORTED, "stopped").note("driver", "queue 1"));
  EXPECT_EQ(static_cast<int>(status.code()), LAZYT_CODE_ABORTED);
  EXPECT_NE(status.to_string().find("queue 1"), std::string::npos);
  EXPECT_NE(status.to_string().find("node 3"), std::string::npos);
}

TEST_F(Wrapper, CastsHandlesAndRefusesNull) {
  Bytes bytes;
  EXPECT_EQ(from_c(to_handle<lazyt_buffer_t>(&bytes)).value, 3);
  EXPECT_EQ(code_of(guard([] { from_c<lazyt_buffer_t>(nullptr); })), LAZYT_CODE_INVALID_ARGUMENT);
}

TEST_F(WrapperEvent, IsReadyAtOnce) {
  Event* event = Event::make_ready(make_status(LAZYT_CODE_ABORTED, "stopped"));
  EXPECT_TRUE(event->ready());
  EXPECT_EQ(code_of(event->wait(0)), LAZYT_CODE_ABORTED);
  EXPECT_EQ(code_of(event->wait(LAZYT_WAIT_FOREVER)), LAZYT_CODE_ABORTED);  // EVT-1
  int calls = 0;
  auto count = [](void* user_data, lazyt_status_t* status) {
    ++*static_cast<int*>(user_data);
    EXPECT_NE(status, nullptr);
  };
  event->on_ready(count, &calls);
  event->on_ready(count, &calls);
  EXPECT_EQ(calls, 2);  // EVT-4
  event->release();
}

TEST_F(WrapperEvent, TimesOutWhilePending) {
  Event* event = Event::make_pending();
  EXPECT_EQ(code_of(event->wait(0)), LAZYT_CODE_DEADLINE_EXCEEDED);  // EVT-3
  EXPECT_EQ(code_of(event->wait(1000000)), LAZYT_CODE_DEADLINE_EXCEEDED);
  event->complete(make_status(LAZYT_CODE_INTERNAL, "first"));
  event->complete();  // does not count
  EXPECT_EQ(code_of(event->wait(0)), LAZYT_CODE_INTERNAL);
  event->release();
}

TEST_F(WrapperEvent, IsCompletedByAThread) {
  for (int turn = 0; turn < 200; ++turn) {
    Event* event = Event::make_pending();
    event->retain();  // the thread's
    std::atomic<int> calls = 0;
    auto count = [](void* user_data, lazyt_status_t*) { ++*static_cast<std::atomic<int>*>(user_data); };
    event->on_ready(count, &calls);
    std::thread worker([event] {
      event->complete();
      event->release();
    });
    event->on_ready(count, &calls);
    EXPECT_EQ(event->wait(LAZYT_WAIT_FOREVER), nullptr);
    event->release();  // EVT-5: the thread may still be inside complete
    worker.join();
    EXPECT_EQ(calls, 2);
  }
}

}  // namespace
}  // namespace lazyt::plugin
