#include "exec/data.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "../fake_plugin.h"

namespace lazyt::exec {
namespace {

using base::make_ref;
using base::Meta;
using base::Ref;
using loader::Buffer;
using loader::Event;
using testing::FakePlugin;

const Meta kMeta = Meta::contiguous(LAZYT_DTYPE_FLOAT32, {2});

class DataTest : public ::testing::Test {
 protected:
  Ref<Buffer> buffer(float a, float b) {
    const float values[] = {a, b};
    return Buffer::from_host(plugin.device, values, sizeof values).value();
  }
  Ref<Data> empty() { return make_ref<Data>(kMeta, 8); }
  FakePlugin plugin;
};

TEST_F(DataTest, ReadersOnOtherThreadsSeeWhatIsFilledLater) {
  auto data = empty();
  EXPECT_FALSE(data->filled());
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; i++)
    readers.emplace_back([data] {
      float values[2];
      ASSERT_TRUE(data->read(values).ok());
      EXPECT_EQ(values[1], 2);
    });
  data->fulfil(buffer(1, 2), nullptr);
  for (auto& reader : readers) reader.join();
}

TEST_F(DataTest, WaitWaitsForTheEvent) {
  auto data = empty();
  lazyt_event_t* raw = testing::make_event();
  data->fulfil(buffer(1, 2), make_ref<Event>(plugin.device, raw));
  std::atomic<bool> signalled = false;
  std::thread waiter([&] {
    EXPECT_TRUE(data->wait().ok());
    EXPECT_TRUE(signalled);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  signalled = true;
  testing::signal_event(raw, nullptr);
  waiter.join();
  EXPECT_FALSE(data->event()) << "a finished event is kept";
}

TEST_F(DataTest, AnErrorOfTheEventNamesWhereItComesFrom) {
  auto data = empty();
  lazyt_event_t* raw = testing::make_event();
  auto origin =
      std::make_shared<const base::Note>(base::Note{"step 3: train.py:12", "step 1 of 2 (aten::mm)"});
  data->fulfil({buffer(1, 2), make_ref<Event>(plugin.device, raw), false, origin});
  testing::signal_event(raw, testing::fake_error(LAZYT_CODE_INTERNAL, "burnt"));
  for (int i = 0; i < 2; i++) {
    const auto status = data->wait();
    EXPECT_EQ(status.code(), LAZYT_CODE_INTERNAL);
    EXPECT_NE(status.to_string().find("aten::mm"), std::string::npos) << status.to_string();
  }
}

TEST_F(DataTest, PoisonReachesEveryReader) {
  auto data = empty();
  std::thread reader([data] {
    float values[2];
    EXPECT_EQ(data->read(values).code(), LAZYT_CODE_UNAVAILABLE);
  });
  data->poison(base::unavailable("the device is lost"));
  reader.join();
  EXPECT_EQ(data->wait().message(), "the device is lost");
}

TEST_F(DataTest, WhatAFailedLaunchWasToWriteIsAsBeforeOnceItsErrorWasTold) {
  const auto before = make_ref<Data>(kMeta, 8, buffer(1, 2));
  const auto failure = make_ref<Failure>();
  auto written = empty(), made = empty(), later = empty();
  written->poison(base::internal("out of luck"), failure, before);
  made->poison(base::internal("out of luck"), failure);
  later->poison(base::internal("out of luck"), written->failure(), written);  // by a launch that read what was poisoned
  for (const auto& data : {written, made, later}) EXPECT_EQ(data->wait().message(), "out of luck");
  failure->told = true;
  for (const auto& data : {written, later}) {
    float values[2] = {};
    ASSERT_TRUE(data->read(values).ok());
    EXPECT_EQ(values[0], 1);
    EXPECT_FALSE(data->may_donate(data->state()));  // before has the same bytes
  }
  EXPECT_EQ(made->wait().message(), "out of luck");
  EXPECT_FALSE(made->failure());  // it was told: what fails by it from now on is another failure
}

TEST_F(DataTest, TheFirstFillingWins) {
  auto data = empty();
  data->fulfil(buffer(1, 2), nullptr);
  data->poison(base::internal("late"));
  EXPECT_TRUE(data->wait().ok());
}

TEST_F(DataTest, ReadsOutsideTheBytesAreRefused) {
  auto data = make_ref<Data>(kMeta, 8, buffer(1, 2));
  float value = 0;
  EXPECT_TRUE(data->read(4, &value, 4).ok());
  EXPECT_EQ(value, 2);
  EXPECT_EQ(data->read(5, &value, 4).code(), LAZYT_CODE_OUT_OF_RANGE);
  EXPECT_EQ(data->read(UINT64_MAX, &value, 4).code(), LAZYT_CODE_OUT_OF_RANGE);
}

TEST_F(DataTest, StableIdsAreUniqueAndNeverZero) {
  auto a = empty(), b = empty();
  EXPECT_NE(a->stable_id, 0u);
  EXPECT_NE(a->stable_id, b->stable_id);
}

TEST_F(DataTest, AnAliasKeepsItsSourceFromDonation) {
  auto source = make_ref<Data>(kMeta, 8, buffer(1, 2));
  EXPECT_TRUE(source->may_donate(source->state()));
  {
    auto alias = empty();
    alias->alias(source);
    auto second = empty();
    second->alias(alias);
    EXPECT_FALSE(alias->may_donate(alias->state()));
    EXPECT_FALSE(second->may_donate(second->state()));
    EXPECT_FALSE(source->may_donate(source->state()));
    float values[2];
    EXPECT_TRUE(second->read(values).ok());
    EXPECT_EQ(values[0], 1);
  }
  EXPECT_TRUE(source->may_donate(source->state()));
  auto other = source;
  EXPECT_FALSE(source->may_donate(source->state()));
}

TEST_F(DataTest, AnAliasChainDoesNotGrow) {
  auto data = make_ref<Data>(kMeta, 8, buffer(1, 2));
  for (int i = 0; i < 200'000; i++) {  // its destruction would overflow the stack
    auto next = empty();
    next->alias(data);
    data = next;
  }
  EXPECT_TRUE(data->wait().ok());
}

TEST_F(DataTest, ReadersAreForgottenWhenDone) {
  auto data = make_ref<Data>(kMeta, 8, buffer(1, 2));
  lazyt_event_t* first = testing::make_event();
  data->add_reader(make_ref<Event>(plugin.device, first));
  EXPECT_EQ(data->readers().size(), 1u);
  testing::signal_event(first, nullptr);
  lazyt_event_t* second = testing::make_event();
  data->add_reader(make_ref<Event>(plugin.device, second));
  EXPECT_EQ(data->readers().size(), 1u);
  testing::signal_event(second, nullptr);
}

}  // namespace
}  // namespace lazyt::exec
