#include "exec/plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../compile_whole.h"
#include "../fake_host_runner.h"
#include "../fake_plugin.h"
#include "base/counters.h"
#include "exec/in_flight.h"
#include "ir/text.h"

namespace lazyt::exec {
namespace {

using base::make_ref;
using base::Meta;
using base::Ref;
using loader::Buffer;
using Floats = std::vector<float>;

const Meta kMeta = Meta::contiguous(LAZYT_DTYPE_FLOAT32, {2});

const char* const kSum = R"(program(%0: f32[2], %1: f32[2]) {
  %2 = aten::add.Tensor(%0, %1, 1) : f32[2]
  return %2 <- %0
})";
const char* const kIsland = R"(program(%0: f32[2]) {
  %1 = aten::neg(%0) : f32[2]
  %2 = aten::lgamma(%1) : f32[2]
  %3 = aten::mul.Tensor(%2, %1) : f32[2]
  return %3
})";

class PlanTest : public ::testing::Test {
 protected:
  explicit PlanTest(bool host_visible = true, bool synchronous = false) : plugin(host_visible, synchronous) { plugin->refused = {"aten::lgamma"}; }

  Ref<Plan> plan(const std::string& text, uint64_t piece_bytes = 0) {
    auto graph = ir::parse(text);
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    for (uint32_t n = 0; n < graph.value().nodes.size(); n++)
      graph.value().nodes[n].source =
          std::make_shared<ir::SourceLine>(ir::SourceLine{"model.py", "", 10 + n});
    auto plan = partition::compile(graph.value(), plugin.device, 0, &runner, nullptr, nullptr, {piece_bytes});
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    plan.value()->name = "step 3: train.py:12";
    return plan.value();
  }
  Ref<Data> data(float a, float b) {
    const float values[] = {a, b};
    return make_ref<Data>(kMeta, 8, Buffer::from_host(plugin.device, values, sizeof values).value());
  }
  static Ref<Data> empty() { return make_ref<Data>(kMeta, 8); }
  static Binding bind(Ref<Data> data) { return {std::move(data), {}}; }
  template <class... D>
  static std::vector<Binding> bind_all(D... data) {
    std::vector<Binding> bindings;
    (bindings.push_back(bind(std::move(data))), ...);
    return bindings;
  }
  static Floats read(const Ref<Data>& data) {
    Floats values(2);
    const auto status = data->read(values.data());
    EXPECT_TRUE(status.ok()) << status.to_string();
    return values;
  }
  static Ref<Data> launch(const Ref<Plan>& plan, std::vector<Binding> inputs) {
    const Ref<Data> outputs[] = {empty()};
    plan->launch(std::move(inputs), outputs);
    EXPECT_TRUE(outputs[0]->filled());
    return outputs[0];
  }
  static bool mentions(const base::Status& status, const std::string& text) {
    return status.to_string().find(text) != std::string::npos;
  }

  testing::FakePlugin plugin;
  testing::FakeHostRunner runner;
};

class LatePlanTest : public PlanTest {
 protected:
  LatePlanTest() { plugin->late = true; }
};

class HiddenPlanTest : public PlanTest {
 protected:
  HiddenPlanTest() : PlanTest(false) {}
};

TEST_F(PlanTest, ComputesItsOutputs) {
  EXPECT_EQ(read(launch(plan(kSum), bind_all(data(1, 2), data(10, 20)))), (Floats{11, 22}));
}

TEST_F(PlanTest, HostScalarsTravelWithTheLaunch) {
  const auto p = plan(R"(program(%0: f32[2], %1: host weak f64) {
    %2 = aten::mul.Tensor(%0, %1) : f32[2]
    return %2
  })");
  for (const double factor : {3.0, 5.0}) {
    auto bindings = bind_all(data(1, 2), Ref<Data>());
    std::memcpy(bindings[1].scalar.bytes, &factor, sizeof factor);
    EXPECT_EQ(read(launch(p, std::move(bindings)))[1], 2 * factor);
  }
}

TEST_F(PlanTest, AnInputMayBeAnOutputTwice) {
  const auto p = plan("program(%0: f32[2]) {\n %1 = aten::neg(%0) : f32[2]\n return %0, %1, %1, %0\n}");
  const Ref<Data> outputs[] = {empty(), empty(), empty(), empty()};
  p->launch(bind_all(data(1, 2)), outputs);
  EXPECT_EQ(read(outputs[0]), (Floats{1, 2}));
  EXPECT_EQ(read(outputs[1]), (Floats{-1, -2}));
  EXPECT_EQ(read(outputs[2]), (Floats{-1, -2}));
  EXPECT_EQ(read(outputs[3]), (Floats{1, 2}));
}

TEST_F(PlanTest, AConstantMayBeAnOutput) {
  const auto p = plan("program() {\n const %0: f32[2] = hex(0000803f00000040)\n return %0\n}");
  EXPECT_EQ(read(launch(p, {})), (Floats{1, 2}));
  EXPECT_EQ(runner.runs, 0);
}

TEST_F(PlanTest, EmptyTensorsWork) {
  const auto p = plan(
      "program(%0: f32[0]) {\n %1 = aten::lgamma(%0) : f32[0]\n %2 = aten::neg(%1) : f32[0]\n return %2\n}");
  const auto meta = Meta::contiguous(LAZYT_DTYPE_FLOAT32, {0});
  const Ref<Data> outputs[] = {make_ref<Data>(meta, 0)};
  p->launch(bind_all(make_ref<Data>(meta, 0, Buffer::alloc(plugin.device, 0).value())), outputs);
  EXPECT_TRUE(outputs[0]->read(nullptr).ok());
}

TEST_F(PlanTest, InputsCarryTheirStableIds) {
  const auto a = data(1, 2), b = data(10, 20);
  launch(plan(kSum), bind_all(a, b));
  EXPECT_EQ(plugin->stable_ids, (std::vector<uint64_t>{a->stable_id, b->stable_id}));
}

// ---- donation

TEST_F(PlanTest, TheLastReferenceIsDonated) {
  auto a = data(1, 2);
  const auto* buffer = a->buffer().get();
  const auto out = launch(plan(kSum), bind_all(std::move(a), data(10, 20)));
  EXPECT_EQ(plugin->donations, 1);
  EXPECT_EQ(out->buffer().get(), buffer);
  EXPECT_EQ(read(out), (Floats{11, 22}));
}

TEST_F(PlanTest, WhatSomebodyElseHoldsIsNotDonated) {
  const auto a = data(1, 2);
  EXPECT_EQ(read(launch(plan(kSum), bind_all(a, data(10, 20)))), (Floats{11, 22}));
  EXPECT_EQ(plugin->donations, 0);
  EXPECT_EQ(read(a), (Floats{1, 2}));
}

TEST_F(PlanTest, WhatIsBoundTwiceIsNotDonated) {
  auto a = data(1, 2);
  auto bindings = bind_all(a, a);
  a = nullptr;
  EXPECT_EQ(read(launch(plan(kSum), std::move(bindings))), (Floats{2, 4}));
  EXPECT_EQ(plugin->donations, 0);
}

TEST_F(PlanTest, WhatALaterStepReadsIsNotDonated) {
  const auto p = plan(R"(program(%0: f32[2]) {
    %1 = aten::neg(%0) : f32[2]
    %2 = aten::lgamma(%1) : f32[2]
    %3 = aten::add.Tensor(%2, %0, 1) : f32[2]
    return %1 <- %0, %3
  })");
  const Ref<Data> outputs[] = {empty(), empty()};
  p->launch(bind_all(data(-1, -2)), outputs);
  EXPECT_EQ(plugin->donations, 0);
  EXPECT_EQ(read(outputs[0]), (Floats{1, 2}));
  EXPECT_EQ(read(outputs[1]), (Floats{-1, -2}));
}

TEST_F(PlanTest, WhatAPassedThroughOutputSharesIsNotDonated) {
  auto a = data(1, 2);
  auto alias = launch(plan("program(%0: f32[2]) {\n return %0\n}"), bind_all(a));
  launch(plan(kSum), bind_all(std::move(a), data(10, 20)));
  EXPECT_EQ(plugin->donations, 0);
  EXPECT_EQ(read(alias), (Floats{1, 2}));
}

TEST_F(LatePlanTest, DonationWaitsForEarlierReaders) {
  const auto negate = plan("program(%0: f32[2]) {\n %1 = aten::neg(%0) : f32[2]\n return %1\n}");
  const auto sum = plan(kSum);
  for (int round = 0; round < 20; round++) {
    plugin->gate_open = false;
    plugin->donations = 0;
    auto a = data(1, 2);
    const auto negated = launch(negate, bind_all(a));
    const auto summed = launch(sum, bind_all(std::move(a), data(10, 20)));
    EXPECT_EQ(plugin->donations, 1);
    plugin.finish();
    EXPECT_EQ(read(negated), (Floats{-1, -2}));
    EXPECT_EQ(read(summed), (Floats{11, 22}));
  }
}

// ---- host islands

TEST_F(PlanTest, AnIslandRunsInTheMiddle) {
  base::counter("aten::lgamma").reset();
  base::counter("FallbackBytes").reset();
  const auto out = read(launch(plan(kIsland), bind_all(data(-3, -4))));
  EXPECT_FLOAT_EQ(out[0], std::lgamma(3.f) * 3);
  EXPECT_FLOAT_EQ(out[1], std::lgamma(4.f) * 4);
  EXPECT_EQ(base::counter("aten::lgamma").value(), 1);
  EXPECT_EQ(base::counter("FallbackBytes").value(), 16);
}

TEST_F(PlanTest, AnIslandReadsHostVisibleBuffersInPlace) {
  const auto a = data(3, 4);
  launch(plan("program(%0: f32[2]) {\n %1 = aten::lgamma(%0) : f32[2]\n return %1\n}"), bind_all(a));
  EXPECT_EQ(runner.addresses, std::vector<void*>{a->buffer()->host_pointer().value()});
}

TEST_F(HiddenPlanTest, AnIslandGetsCopiesOfHiddenBuffers) {
  const auto out = read(launch(plan(kIsland), bind_all(data(-3, -4))));
  EXPECT_FLOAT_EQ(out[1], std::lgamma(4.f) * 4);
  EXPECT_EQ(runner.runs, 1);
}

TEST_F(PlanTest, AnIslandGetsCopiesOfOpaqueBuffers) {
  plugin->opaque = true;
  const auto out = launch(plan(kIsland), bind_all(data(-3, -4)));
  EXPECT_TRUE(out->opaque());
  EXPECT_FLOAT_EQ(read(out)[1], std::lgamma(4.f) * 4);
}

TEST_F(PlanTest, AnIslandGetsHostScalars) {
  const auto p = plan(R"(program(%0: f32[2], %1: host weak f64) {
    %2 = aten::lgamma(%0) : f32[2]
    %3 = aten::add.Tensor(%2, %1, 1) : f32[2]
    return %3
  })");
  plugin->refused.insert("aten::add");
  const auto all_host = plan(R"(program(%0: f32[2], %1: host weak f64) {
    %2 = aten::lgamma(%0) : f32[2]
    %3 = aten::add.Tensor(%2, %1, 1) : f32[2]
    return %3
  })");
  for (const auto& each : {p, all_host}) {
    auto bindings = bind_all(data(3, 4), Ref<Data>());
    const double two = 2;
    std::memcpy(bindings[1].scalar.bytes, &two, sizeof two);
    EXPECT_FLOAT_EQ(read(launch(each, std::move(bindings)))[0], std::lgamma(3.f) + 2);
  }
}

TEST_F(LatePlanTest, AnIslandWaitsForItsInputs) {
  const auto p = plan(kIsland);
  loader::Worker executor;
  const Ref<Data> outputs[] = {empty()};
  executor.submit([&] { p->launch(bind_all(data(-3, -4)), outputs); });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(outputs[0]->filled());
  plugin.open_gate();
  executor.drain();
  EXPECT_FLOAT_EQ(read(outputs[0])[1], std::lgamma(4.f) * 4);
}

// ---- errors

TEST_F(PlanTest, AFailedExecutePoisonsItsOutputsOnly) {
  const auto p = plan(kSum);
  const auto good = launch(p, bind_all(data(1, 2), data(3, 4)));
  plugin->fail_execute = LAZYT_CODE_INTERNAL;
  const auto bad = launch(p, bind_all(data(1, 2), data(3, 4)));
  plugin->fail_execute = LAZYT_CODE_OK;
  const auto next = launch(p, bind_all(data(1, 2), data(3, 4)));
  EXPECT_EQ(read(good), (Floats{4, 6}));
  EXPECT_EQ(bad->wait().code(), LAZYT_CODE_INTERNAL);
  EXPECT_TRUE(mentions(bad->wait(), "step 3: train.py:12")) << bad->wait().to_string();
  EXPECT_TRUE(mentions(bad->wait(), "aten::add")) << bad->wait().to_string();
  EXPECT_EQ(read(next), (Floats{4, 6}));
}

TEST_F(PlanTest, AnErrorOfTheEventPoisonsAndNamesTheOperator) {
  plugin->fail_event = LAZYT_CODE_DATA_LOSS;
  const auto bad = launch(plan(kSum), bind_all(data(1, 2), data(3, 4)));
  EXPECT_EQ(bad->wait().code(), LAZYT_CODE_DATA_LOSS);
  EXPECT_TRUE(mentions(bad->wait(), "aten::add"));
}

TEST_F(LatePlanTest, ALateErrorReachesWhatDependsOnIt) {
  const auto p = plan(kSum);
  plugin->fail_event = LAZYT_CODE_DATA_LOSS;
  const auto bad = launch(p, bind_all(data(1, 2), data(3, 4)));
  plugin->fail_event = LAZYT_CODE_OK;
  const auto dependent = launch(p, bind_all(bad, data(3, 4)));
  const auto other = launch(p, bind_all(data(1, 2), data(3, 4)));
  plugin.finish();
  EXPECT_EQ(bad->wait().code(), LAZYT_CODE_DATA_LOSS);
  EXPECT_TRUE(mentions(bad->wait(), "aten::add")) << bad->wait().to_string();
  EXPECT_EQ(dependent->wait().code(), LAZYT_CODE_DATA_LOSS);
  EXPECT_EQ(read(other), (Floats{4, 6}));
  // By now the error is known before the launch.
  const int executes = plugin->executes;
  const auto later = launch(p, bind_all(bad, data(3, 4)));
  EXPECT_TRUE(mentions(later->wait(), "input 0 has this error")) << later->wait().to_string();
  EXPECT_EQ(plugin->executes, executes);
}

TEST_F(PlanTest, APoisonedInputPoisonsAllOutputs) {
  auto poisoned = empty();
  poisoned->poison(base::internal("spoilt"));
  const auto p = plan(
      "program(%0: f32[2], %1: f32[2]) {\n %2 = aten::neg(%0) : f32[2]\n %3 = aten::neg(%1) : f32[2]\n "
      "return %2, %3\n}");
  const Ref<Data> outputs[] = {empty(), empty()};
  p->launch(bind_all(poisoned, data(1, 2)), outputs);
  for (const auto& out : outputs) {
    EXPECT_EQ(out->wait().message(), "spoilt");
    EXPECT_TRUE(mentions(out->wait(), "step 3: train.py:12"));
  }
  EXPECT_EQ(plugin->executes, 0);
}

TEST_F(PlanTest, AFailedIslandNamesItsOperatorAndLine) {
  runner.error = base::invalid_argument("no lgamma today");
  const auto out = launch(plan(kIsland), bind_all(data(-3, -4)));
  EXPECT_EQ(out->wait().message(), "no lgamma today");
  EXPECT_TRUE(mentions(out->wait(), "aten::lgamma")) << out->wait().to_string();
  EXPECT_TRUE(mentions(out->wait(), "model.py:11")) << out->wait().to_string();
}

TEST_F(PlanTest, AnExceptionOfARunnerIsAnError) {
  runner.throws = true;
  const auto out = launch(plan(kIsland), bind_all(data(-3, -4)));
  EXPECT_TRUE(mentions(out->wait(), "the runner threw"));
}

TEST_F(PlanTest, OutOfMemorySaysHowMuchWasAsked) {
  const auto p = plan(kSum);
  const auto a = data(1, 2), b = data(3, 4);
  plugin->memory_limit = 20;
  const int64_t before = plugin.live_buffers();
  const auto out = launch(p, bind_all(a, b));
  EXPECT_EQ(out->wait().code(), LAZYT_CODE_RESOURCE_EXHAUSTED);
  EXPECT_TRUE(mentions(out->wait(), "needs 8 bytes; 16 bytes in use")) << out->wait().to_string();
  EXPECT_EQ(plugin.live_buffers(), before);
  plugin->memory_limit = UINT64_MAX;
  EXPECT_EQ(read(launch(p, bind_all(a, b))), (Floats{4, 6}));
}

TEST_F(PlanTest, WithoutMemoryNothingIsLost) {
  const auto p = plan(kSum);
  const uint32_t rewrites[] = {0};
  for (const bool fails_in_execute : {false, true}) {
    const Ref<Data> outputs[] = {empty()};
    auto inputs = bind_all(data(1, 2), data(3, 4));
    const auto held = fails_in_execute ? nullptr : inputs[0].data;  // not donated: the output wants memory of its own
    if (fails_in_execute) plugin->fail_execute = LAZYT_CODE_RESOURCE_EXHAUSTED;
    else plugin->memory_limit = 20;
    p->launch(std::move(inputs), outputs, 0, rewrites);
    plugin->fail_execute = LAZYT_CODE_OK, plugin->memory_limit = UINT64_MAX;
    EXPECT_EQ(outputs[0]->wait().code(), LAZYT_CODE_RESOURCE_EXHAUSTED);
    ASSERT_TRUE(outputs[0]->failure());
    outputs[0]->failure()->told = true;
    EXPECT_EQ(read(outputs[0]), (Floats{1, 2}));
  }
}

TEST_F(PlanTest, WhatAFailedExecuteMayHaveOverwrittenIsLost) {
  const Ref<Data> outputs[] = {empty()};
  const uint32_t rewrites[] = {0};
  plugin->fail_execute = LAZYT_CODE_INTERNAL;
  plan(kSum)->launch(bind_all(data(1, 2), data(3, 4)), outputs, 0, rewrites);
  ASSERT_TRUE(outputs[0]->failure());
  outputs[0]->failure()->told = true;
  EXPECT_EQ(outputs[0]->wait().code(), LAZYT_CODE_INTERNAL);
}

TEST_F(PlanTest, LaunchesThatReadWhatFailedLeaveWhatItLeft) {
  const auto p = plan(kSum);
  const uint32_t rewrites[] = {0};
  Ref<Data> value = data(1, 2), first;
  plugin->fail_execute = LAZYT_CODE_RESOURCE_EXHAUSTED;
  for (int i = 0; i < 3; i++) {
    const Ref<Data> outputs[] = {empty()};
    p->launch(bind_all(value, data(3, 4)), outputs, 0, rewrites);
    value = outputs[0];
    if (!first) first = value;
    plugin->fail_execute = LAZYT_CODE_OK;
  }
  EXPECT_EQ(value->wait().code(), LAZYT_CODE_RESOURCE_EXHAUSTED);
  first->failure()->told = true;
  EXPECT_EQ(read(value), (Floats{1, 2}));
}

TEST_F(PlanTest, AnInputOfAnotherDeviceIsMovedThere) {
  const auto other = plugin.open(1);
  const float values[] = {1, 2};
  auto foreign = make_ref<Data>(kMeta, 8, Buffer::from_host(other, values, 8).value());
  const auto out = launch(plan(kSum), bind_all(std::move(foreign), data(3, 4)));
  ASSERT_TRUE(out->wait().ok()) << out->wait().to_string();
  float sum[2];
  ASSERT_TRUE(out->read(sum).ok());
  EXPECT_EQ(sum[0], 4);
  EXPECT_EQ(sum[1], 6);
}

TEST_F(PlanTest, AWrongNumberOfOutputsIsAnError) {
  const Ref<Data> outputs[] = {empty(), empty()};
  plan(kSum)->launch(bind_all(data(1, 2), data(3, 4)), outputs);
  for (const auto& out : outputs) EXPECT_EQ(out->wait().code(), LAZYT_CODE_INTERNAL);
}

// ---- memory

TEST_F(PlanTest, IntermediatesAreReleased) {
  const auto p = plan(kIsland);
  const auto out = launch(p, bind_all(data(-3, -4)));
  EXPECT_EQ(plugin.live_buffers(), 1);
}

TEST_F(LatePlanTest, BuffersLiveUntilTheWorkThatUsesThemIsDone) {
  const auto p = plan(kSum);
  launch(p, bind_all(data(1, 2), data(3, 4)));  // its output and inputs are dropped at once
  EXPECT_EQ(plugin.live_buffers(), 2);          // one is donated
  plugin.finish();
  EXPECT_EQ(plugin.live_buffers(), 0);
}

TEST_F(LatePlanTest, APlanMayGoWhileItsWorkRuns) {
  auto p = plan(kSum);
  const auto out = launch(p, bind_all(data(1, 2), data(3, 4)));
  p = nullptr;
  EXPECT_EQ(plugin->executables, 1);
  plugin.finish();
  EXPECT_EQ(plugin->executables, 0);
  EXPECT_EQ(read(out), (Floats{4, 6}));
}

TEST_F(LatePlanTest, FinishWaitsForOneDevicesWork) {
  const auto out = launch(plan(kSum), bind_all(data(1, 2), data(3, 4)));
  plugin.open_gate();
  InFlight::get().finish(plugin.device.get());
  EXPECT_TRUE(out->event()->ready());
}

TEST_F(LatePlanTest, AStepsWorkOverlapsWithReadersOnOtherThreads) {
  const auto p = plan(kSum);
  loader::Worker executor;
  std::vector<Ref<Data>> outputs;
  for (int i = 0; i < 50; i++) outputs.push_back(empty());
  std::thread reader([outputs] {
    for (size_t i = 0; i < outputs.size(); i++) EXPECT_EQ(read(outputs[i])[0], 1 + static_cast<float>(i + 1));
  });
  plugin.open_gate();
  Ref<Data> last = data(1, 1);
  for (auto& out : outputs) {
    executor.submit([p, out, inputs = bind_all(std::move(last), data(1, 1))]() mutable {
      p->launch(std::move(inputs), {&out, 1});
    });
    last = out;
  }
  executor.drain();
  reader.join();
}

// ---- what has begun

// Of three steps, the last of which reads the first input once more.
const char* const kSteps = R"(program(%0: f32[2], %1: f32[2], %2: f32[2], %3: f32[2], %4: host weak f64) {
  %5 = aten::add.Tensor(%0, %1, 1) : f32[2]
  %6 = aten::mul.Tensor(%5, %2) : f32[2]
  %7 = aten::mul.Tensor(%6, %4) : f32[2]
  %8 = aten::add.Tensor(%7, %3, 1) : f32[2]
  %9 = aten::add.Tensor(%8, %0, 1) : f32[2]
  return %9
})";

class BegunPlanTest : public PlanTest {
 protected:
  BegunPlanTest() : PlanTest(true, true) { EXPECT_EQ(p->steps.size(), 3u); }

  std::vector<Binding> bindings(const Ref<Data>& first, Ref<Data> last) {
    auto all = bind_all(first, data(10, 20), data(2, 3), std::move(last), Ref<Data>());
    std::memcpy(all[4].scalar.bytes, &factor, sizeof factor);
    return all;
  }
  // What the step at `steps` reads first, beside what is bound for the steps before it.
  static void bind(Begun& begun, const std::vector<Binding>& all, uint32_t steps) {
    for (uint32_t i : steps == 1 ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{2, 4}) begun.bind(i, all[i]);
  }

  const double factor = 5;
  const Ref<Plan> p = plan(kSteps, 8);
  const Floats expected{(1 + 10) * 2 * 5 + 100 + 1, (2 + 20) * 3 * 5 + 200 + 2};
};

TEST_F(BegunPlanTest, ALaunchGoesOnFromWhereItIs) {
  for (uint32_t steps : {0u, 1u, 2u}) {
    const auto all = bindings(data(1, 2), data(100, 200));
    Begun begun(p, all.size());
    const int before = plugin->executes;
    for (uint32_t s = 1; s <= steps; s++) bind(begun, all, s), begun.advance(s);
    EXPECT_EQ(plugin->executes - before, static_cast<int>(steps));
    EXPECT_FALSE(begun.failed());
    const Ref<Data> outputs[] = {empty()};
    p->launch(all, outputs, 0, {}, &begun);
    EXPECT_EQ(read(outputs[0]), expected);
    EXPECT_EQ(plugin->executes - before, 3);
  }
}

TEST_F(BegunPlanTest, SeveralStepsMayBeginAtOnce) {
  const auto all = bindings(data(1, 2), data(100, 200));
  Begun begun(p, all.size());
  bind(begun, all, 1), bind(begun, all, 2);
  begun.advance(2);
  begun.advance(1);  // has run
  const Ref<Data> outputs[] = {empty()};
  p->launch(all, outputs, 0, {}, &begun);
  EXPECT_EQ(read(outputs[0]), expected);
  EXPECT_EQ(plugin->executes, 3);
}

TEST_F(BegunPlanTest, WhatIsDroppedLeavesNothing) {
  const auto all = bindings(data(1, 2), data(100, 200));
  const int64_t buffers = plugin->buffers;
  {
    Begun begun(p, all.size());
    bind(begun, all, 1), bind(begun, all, 2);
    begun.advance(2);
    EXPECT_GT(plugin->buffers, buffers);
  }
  loader::settle();
  EXPECT_EQ(plugin->buffers, buffers);
  EXPECT_EQ(plugin->donations, 0);
  EXPECT_EQ(read(all[0].data), (Floats{1, 2}));
  EXPECT_EQ(read(launch(p, all)), expected);
}

TEST_F(BegunPlanTest, AnErrorIsLeftToTheLaunch) {
  const auto all = bindings(data(1, 2), data(100, 200));
  Begun begun(p, all.size());
  bind(begun, all, 1);
  plugin->fail_execute = LAZYT_CODE_INTERNAL;
  begun.advance(1);
  EXPECT_TRUE(begun.failed());
  const int executes = plugin->executes;
  bind(begun, all, 2);
  begun.advance(2);
  EXPECT_EQ(plugin->executes, executes);
  EXPECT_EQ(launch(p, all)->wait().code(), LAZYT_CODE_INTERNAL);
  plugin->fail_execute = LAZYT_CODE_OK;
  EXPECT_EQ(read(launch(p, all)), expected);
}

TEST_F(BegunPlanTest, AnErrorBehindItIsTheLaunchs) {
  const auto all = bindings(data(1, 2), data(100, 200));
  Begun begun(p, all.size());
  bind(begun, all, 1);
  begun.advance(1);
  plugin->fail_execute = LAZYT_CODE_INTERNAL;
  const Ref<Data> outputs[] = {empty()};
  p->launch(all, outputs, 7, {}, &begun);
  EXPECT_TRUE(mentions(outputs[0]->wait(), "launch 7")) << outputs[0]->wait().to_string();
  EXPECT_TRUE(mentions(outputs[0]->wait(), "step 2 of 3"));
}

TEST_F(BegunPlanTest, APoisonedInputFailsTheLaunch) {
  auto poisoned = empty();
  poisoned->poison(base::internal("spoilt"));
  for (const bool first : {true, false}) {
    const auto all = first ? bindings(poisoned, data(1, 2)) : bindings(data(1, 2), poisoned);
    Begun begun(p, all.size());
    bind(begun, all, 1);
    begun.advance(1);
    EXPECT_EQ(begun.failed(), first);
    const Ref<Data> outputs[] = {empty()};
    p->launch(all, outputs, 0, {}, first ? nullptr : &begun);
    EXPECT_EQ(outputs[0]->wait().message(), "spoilt");
  }
}

TEST_F(BegunPlanTest, OnlyTheLaunchDonates) {
  const auto q = plan(R"(program(%0: f32[2], %1: f32[2], %2: f32[2]) {
    %3 = aten::add.Tensor(%0, %1, 1) : f32[2]
    %4 = aten::add.Tensor(%2, %3, 1) : f32[2]
    %5 = aten::add.Tensor(%4, %0, 1) : f32[2]
    return %5 <- %0
  })", 8);
  ASSERT_EQ(q->steps.size(), 2u);
  for (const bool held : {true, false}) {
    Ref<Data> first = data(1, 2);
    auto all = bind_all(first, data(10, 20), data(100, 200));
    Begun begun(q, all.size());
    begun.bind(0, all[0]), begun.bind(1, all[1]);
    begun.advance(1);
    if (!held) first = nullptr;
    plugin->donations = 0;
    const Ref<Data> outputs[] = {empty()};
    q->launch(std::move(all), outputs, 0, {}, &begun);
    EXPECT_EQ(read(outputs[0]), (Floats{112, 224}));
    EXPECT_EQ(plugin->donations, held ? 0 : 1);
    if (held) {
      EXPECT_EQ(read(first), (Floats{1, 2}));
    }
  }
}

TEST_F(BegunPlanTest, APartIsCopiedOnce) {
  const float values[] = {0, 0, 1, 2};
  const auto large = make_ref<Data>(Meta::contiguous(LAZYT_DTYPE_FLOAT32, {4}), 16, Buffer::from_host(plugin.device, values, sizeof values).value());
  auto all = bindings(data(0, 0), data(100, 200));
  all[0] = {.data = large, .part = true, .offset = 8, .size = 8};
  Begun begun(p, all.size());
  bind(begun, all, 1), bind(begun, all, 2);
  begun.advance(2);
  const Ref<Data> outputs[] = {empty()};
  p->launch(std::move(all), outputs, 0, {}, &begun);
  EXPECT_EQ(read(outputs[0]), expected);
}

}  // namespace
}  // namespace lazyt::exec
