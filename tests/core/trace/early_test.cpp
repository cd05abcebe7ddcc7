// What of a known program may begin while the rest is recorded: when the recorder says so, with what, and when it takes it back.
#include "trace/early.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "../compile_whole.h"
#include "../fake_plugin.h"
#include "ir/text.h"
#include "recorder_fixture.h"

namespace lazyt::trace {
namespace {

// A step of eight additions, each of another input; its program has a piece for each two.
class EarlyTest : public RecorderTest {
 protected:
  static constexpr int kCalls = 16;

  EarlyTest() {
    for (Storage& s : weights) s = input(2);
    first = input(2);
  }
  ~EarlyTest() {
    std::lock_guard lock(recorder.mutex());
    for (Storage& s : results) recorder.forget(s);
  }

  // Records the calls from `begin` to `end`; what was made before the last is let go.
  void call(int begin, int end, Op* other = nullptr) {
    for (int i = begin; i < end; i++) {
      record(other ? *other : add, {i == 0 ? &first : &results[i - 1], &weights[i]}, &results[i]);
      std::lock_guard lock(recorder.mutex());
      if (i > 0) recorder.forget(results[i - 1]);
    }
  }
  Launch wait() {
    std::lock_guard lock(recorder.mutex());
    return recorder.flush(FlushReason::kValueNeeded);
  }
  base::Ref<Early> begin(bool has_room = true) {
    std::lock_guard lock(recorder.mutex());
    return recorder.begin(has_room);
  }
  // A known step that was waited for, with gates behind 4 and 8 calls.
  base::Ref<Variant> known() {
    call(0, kCalls);
    const Launch launch = wait();
    launch.variant->gates = {{4, 1, 5, 0}, {8, 2, 9, 0}};
    launch.variant->gates_known = true;
    return launch.variant;
  }

  Storage first, weights[kCalls], results[kCalls];
};

TEST_F(EarlyTest, AtAGateWhatIsKnownMayBegin) {
  const auto variant = known();
  call(0, 3);
  EXPECT_EQ(recorder.next_gate(), 4u);
  EXPECT_FALSE(begin());
  call(3, 4);
  const auto early = begin();
  ASSERT_TRUE(early);
  EXPECT_EQ(early->variant.get(), variant.get());
  EXPECT_EQ(recorder.next_gate(), 8u);
  call(4, 8);
  EXPECT_FALSE(begin());  // who has the first goes on with it
  EXPECT_EQ(recorder.next_gate(), SIZE_MAX);
  call(8, kCalls);
  const Launch launch = wait();
  EXPECT_EQ(launch.early.get(), early.get());
  EXPECT_TRUE(launch.dropped.empty());
  EXPECT_EQ(launch.inputs.size(), 17u);
}

TEST_F(EarlyTest, GatesThatWerePassedAreMadeUpFor) {
  known();
  call(0, 4);
  EXPECT_FALSE(begin(false));  // no room
  call(4, 10);
  EXPECT_TRUE(begin());
  EXPECT_FALSE(begin());
}

TEST_F(EarlyTest, TheExecutorIsWokenAheadOfTheFirst) {
  const auto variant = known();
  variant->gates.insert(variant->gates.begin(), Gate{2, 0, 0, 0});
  for (int i = 0; i < 4; i++) {  // to go another way then has cost nothing
    call(0, 2);
    const auto early = begin();
    ASSERT_TRUE(early);
    early->run();  // finds nothing to do, and is handed over anew
    call(2, 3, &mul);
    call(3, kCalls);
    EXPECT_FALSE(wait().early);
    for (int as_known = 0; as_known < 2; as_known++) call(0, kCalls), wait();
  }
  EXPECT_EQ(variant->wasted, 0);
  call(0, 2);
  const auto early = begin();
  ASSERT_TRUE(early);
  early->run();
  call(2, 4);
  EXPECT_EQ(begin().get(), early.get());
  call(4, kCalls);
  EXPECT_EQ(wait().early.get(), early.get());
}

TEST_F(EarlyTest, WhoLooksForMoreMakesRoomForOthers) {
  int asked = 0;
  const auto woken = base::make_ref<Early>(known(), 17);
  EXPECT_TRUE(woken->allow({}, 0));
  woken->run([&] { return ++asked == 3; });
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, 3);  // fewer if the time was over before
  EXPECT_TRUE(woken->allow({}, 0));  // to be handed over anew
}

TEST_F(EarlyTest, WhatWasNotWaitedForIsNotBegun) {
  const auto variant = known();
  call(0, kCalls);
  flush();  // mark_step
  call(0, kCalls);
  EXPECT_EQ(recorder.next_gate(), SIZE_MAX);
  wait();
  call(0, 1);
  EXPECT_EQ(recorder.next_gate(), 4u);
}

TEST_F(EarlyTest, ADeviationDropsWhatHasBegun) {
  const auto variant = known();
  for (int i = 0; i < 3; i++) {
    for (int as_known = 0; as_known < 2; as_known++) call(0, kCalls), wait();
    call(0, 4);
    const auto early = begin();
    EXPECT_EQ(static_cast<bool>(early), i < 2);  // twice in vain is enough
    call(4, 5, &mul);
    EXPECT_EQ(recorder.next_gate(), SIZE_MAX);
    call(5, kCalls);
    const Launch launch = wait();
    EXPECT_FALSE(launch.early);
    EXPECT_EQ(launch.dropped.size(), early ? 1u : 0u);
  }
  EXPECT_EQ(variant->wasted, 2);
}

TEST_F(EarlyTest, AShorterStepDropsWhatHasBegun) {
  known();
  call(0, 6);
  EXPECT_TRUE(begin());
  const Launch launch = wait();
  EXPECT_FALSE(launch.early);
  EXPECT_EQ(launch.dropped.size(), 1u);
  EXPECT_EQ(launch.inputs.size(), 7u);
}

TEST_F(EarlyTest, OtherResultsDropWhatHasBegun) {
  const auto variant = known();
  for (int i = 0; i < kCalls; i++) {
    record(add, {i == 0 ? &first : &results[i - 1], &weights[i]}, &results[i]);  // all are kept
    if (i == 8) {
      EXPECT_TRUE(begin());
    }
  }
  const Launch launch = wait();
  EXPECT_NE(launch.variant.get(), variant.get());
  EXPECT_FALSE(launch.early);
  EXPECT_EQ(launch.dropped.size(), 1u);
}

// ---- what the executor does with it

class RunEarlyTest : public EarlyTest {
 protected:
  // %16 is the first, the weights are 0 to 15 but for their order: as the tape's inputs.
  static std::string program() {
    std::string text = "program(";
    for (int i = 0; i <= kCalls; i++) text += (i ? ", %" : "%") + std::to_string(i) + ": f32[2]";
    text += ") {\n";
    for (int i = 0; i < kCalls; i++)
      text += "%" + std::to_string(kCalls + 1 + i) + " = aten::add.Tensor(%" + std::to_string(i == 0 ? 0 : kCalls + i) + ", %" +
              std::to_string(i + 1) + ", 1) : f32[2]\n";
    return text + "return %" + std::to_string(2 * kCalls) + "\n}";
  }

  RunEarlyTest() : plugin(true, true) {
    auto graph = ir::parse(program());
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    plan = partition::compile(graph.value(), plugin.device, 0, nullptr, nullptr, nullptr, {32}).value();
    auto fill = [this](Storage& s, float value) {
      const float values[] = {value, -value};
      s.data = base::make_ref<exec::Data>(base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {2}), 8,
                                          loader::Buffer::from_host(plugin.device, values, sizeof values).value());
    };
    fill(first, 1000);
    for (int i = 0; i < kCalls; i++) fill(weights[i], static_cast<float>(i + 1));
  }
  ~RunEarlyTest() {  // before the plugin goes
    std::lock_guard lock(recorder.mutex());
    recorder.set_data(first, nullptr);
    for (Storage& s : weights) recorder.set_data(s, nullptr);
    for (Storage& s : results) recorder.set_data(s, nullptr);
    recorder.clear_tapes();  // with their plans
  }

  base::Ref<Variant> compiled() {
    call(0, kCalls);
    Launch launch = wait();
    launch.variant->plan = plan;
    launch.variant->gates = gates_of(*launch.tape, *plan);
    launch.variant->gates_known = true;
    return launch.variant;
  }
  void run(Launch& launch) {
    plan->launch(std::move(launch.inputs), launch.outputs, 0, {}, launch.early ? launch.early->begun(*plan) : nullptr);
    float values[2] = {};
    EXPECT_TRUE(launch.outputs[0]->read(values).ok());
    EXPECT_EQ(values[0], 1000 + 136);
    EXPECT_EQ(values[1], -1000 - 136);
  }

  testing::FakePlugin plugin;
  base::Ref<exec::Plan> plan;
};

TEST_F(RunEarlyTest, GatesStandWhereAStepsInputsAreMet) {
  const auto variant = compiled();
  ASSERT_GE(plan->steps.size(), 4u);
  ASSERT_GE(variant->gates.size(), 3u);
  EXPECT_EQ(variant->gates[0].steps, 0u);  // to be awake for the next
  EXPECT_EQ(variant->gates[1].steps, 1u);
  for (const Gate& g : std::span(variant->gates).subspan(1)) {
    EXPECT_EQ(g.inputs, g.tokens + 1);  // the first, and one for each call
    EXPECT_LE(g.tokens + 8, static_cast<uint32_t>(kCalls));
  }
}

TEST_F(RunEarlyTest, TheLaunchGoesOnBehindIt) {
  const auto variant = compiled();
  const uint32_t steps = variant->gates.back().steps;
  const Gate first = variant->gates[1];
  call(0, static_cast<int>(first.tokens));
  const auto early = begin();
  ASSERT_TRUE(early);
  early->run();
  EXPECT_EQ(plugin->executes, static_cast<int>(first.steps));
  call(static_cast<int>(first.tokens), 8);
  if (const auto again = begin()) again->run();  // it had come to its end: it is handed over anew
  EXPECT_EQ(plugin->executes, static_cast<int>(steps));
  call(8, kCalls);
  Launch launch = wait();
  run(launch);
  EXPECT_EQ(plugin->executes, static_cast<int>(plan->steps.size()));
}

TEST_F(RunEarlyTest, WhatWasDroppedOrLostIsRunFromTheBeginning) {
  const auto variant = compiled();
  for (const bool lost : {false, true}) {
    call(0, 8);
    const auto early = begin();
    ASSERT_TRUE(early);
    early->run();
    lost ? early->lose() : early->drop();
    call(8, kCalls);
    Launch launch = wait();
    if (!lost) launch.early = nullptr;
    plugin->executes = 0;
    run(launch);
    EXPECT_EQ(plugin->executes, static_cast<int>(plan->steps.size()));
  }
}

}  // namespace
}  // namespace lazyt::trace
