// The recorder on its own: calls are written by hand, nothing is executed.
#include "trace/recorder.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <thread>

#include "recorder_fixture.h"

namespace lazyt::trace {
namespace {

class RecorderBothWays : public RecorderTest, public ::testing::WithParamInterface<bool> {
 protected:
  RecorderBothWays() { in_steps = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(, RecorderBothWays, ::testing::Bool(), [](const auto& in_steps) { return in_steps.param ? "InSteps" : "AtOnce"; });

TEST_F(RecorderTest, ACallThatIsNotTheExpectedOneHasMetNothing) {
  Storage a = input(), b = input(), c = input(8), x, y, z;
  record(add, {&a, &b}, &x);
  record(mul, {&c, &x}, &y);
  flush();
  EXPECT_TRUE(record(add, {&a, &b}, &z));
  const Token* token = recorder.next_token();
  ASSERT_TRUE(token);
  const uint64_t *role = token->role_words(), *const end = token->meta_words();
  EXPECT_TRUE(recorder.meet(c, &role, end));
  EXPECT_FALSE(recorder.meet(b, &role, end)) << "the second operand is the first one's result";
  recorder.unmeet();
  EXPECT_FALSE(record(mul, {&b, &z}, nullptr));
  const Launch launch = flush();
  EXPECT_EQ(launch.inputs.size(), 2u);
  EXPECT_EQ(launch.tape->slots.size(), 3u);
}

TEST_F(RecorderTest, AnOperandOfAnotherShapeOrAnotherTraceIsNotWhatWasMet) {
  Storage a = input(), longer = input(8), x, y;
  record(add, {&a, &a}, &x);
  record(mul, {&x, &a}, &y);
  record(add, {&longer, &longer}, nullptr);
  flush();
  record(add, {&a, &a}, &x);
  record(mul, {&x, &a}, &y);
  const Token* token = recorder.next_token();
  ASSERT_TRUE(token);
  Recorder other;
  Storage shorter = input(), elsewhere = input(8), pending = input(8);
  record_on(other, add, {&elsewhere, &elsewhere}, nullptr);
  record_on(other, add, {&elsewhere, &elsewhere}, &pending);
  for (Storage* s : {&shorter, &elsewhere, &pending, &a}) {
    const uint64_t* role = token->role_words();
    EXPECT_FALSE(recorder.meet(*s, &role, token->meta_words()));
  }
  const uint64_t *role = token->role_words(), *const end = token->meta_words();
  EXPECT_TRUE(recorder.meet(longer, &role, end) && recorder.meet(longer, &role, end));
  EXPECT_FALSE(recorder.meet(longer, &role, end)) << "no third operand is expected";
  recorder.unmeet();
  flush(other), flush();
}

TEST_P(RecorderBothWays, TheSecondTimeAStepIsReplayed) {
  Storage a = input(), b = input();
  Launch first, second;
  {
    Storage x, y;
    EXPECT_FALSE(record(add, {&a, &b}, &x));
    EXPECT_FALSE(record(mul, {&x, &b}, &y));
    first = flush();
    recorder.forget(x), recorder.forget(y);
  }
  {
    Storage x, y;
    EXPECT_TRUE(record(add, {&a, &b}, &x));
    EXPECT_TRUE(record(mul, {&x, &b}, &y));
    second = flush();
    recorder.forget(x), recorder.forget(y);
  }
  EXPECT_EQ(first.tape.get(), second.tape.get());
  EXPECT_EQ(first.variant.get(), second.variant.get());
  EXPECT_EQ(second.inputs.size(), 2u);
  EXPECT_EQ(recorder.tape_count(), 1u);
}

TEST_P(RecorderBothWays, OtherTensorsInTheSameRolesAreTheSameStep) {
  for (int i = 0; i < 3; i++) {
    Storage a = input(), b = input(), x;
    EXPECT_EQ(record(add, {&a, &b}, &x), i > 0);
    flush();
  }
}

TEST_P(RecorderBothWays, OneTensorInTwoRolesIsAnotherStep) {
  Storage a = input(), b = input(), x, y;
  record(add, {&a, &b}, &x);
  flush();
  EXPECT_FALSE(record(add, {&a, &a}, &y));
  EXPECT_EQ(flush().inputs.size(), 1u);
}

TEST_P(RecorderBothWays, AChangedNumberIsReplayed) {
  Storage a = input(), x, y;
  record(mul, {&a}, &x, 1.0, true);
  flush();
  EXPECT_TRUE(record(mul, {&a}, &y, 0.0, true));
  Launch launch = flush();
  ASSERT_EQ(launch.inputs.size(), 2u);
  EXPECT_FALSE(launch.inputs[1].data);
  double number;
  std::memcpy(&number, launch.inputs[1].scalar.bytes, 8);
  EXPECT_EQ(number, 0.0);
}

TEST_P(RecorderBothWays, ADeviationKeepsThePrefix) {
  Storage a = input(), b = input(), x, y, z, w;
  record(add, {&a, &b}, &x);
  record(add, {&x, &b}, &y);
  Launch first = flush();
  EXPECT_TRUE(record(add, {&a, &b}, &z));
  EXPECT_FALSE(record(mul, {&z, &b}, &w));
  Launch second = flush();
  EXPECT_NE(first.tape.get(), second.tape.get());
  EXPECT_EQ(second.tape->tokens.size(), 2u);
  EXPECT_EQ(second.tape->token(0).op, &add);
  EXPECT_EQ(second.tape->token(1).op, &mul);
  EXPECT_EQ(second.inputs.size(), 2u);
}

// The tape of a step is the same, word by word, whether its calls were followed or not.
void expect_same_tape(const Tape& a, const Tape& b) {
  ASSERT_EQ(a.slots.size(), b.slots.size());
  for (size_t i = 0; i < a.slots.size(); i++) EXPECT_EQ(*a.slots[i], *b.slots[i]) << i;
  EXPECT_EQ(a.inputs, b.inputs);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  EXPECT_TRUE(a.begins_as(b, a.tokens.size()));
  for (size_t i = 0; i < a.tokens.size(); i++) EXPECT_EQ(a.tokens[i].prefix_hash, b.tokens[i].prefix_hash) << i;
}

TEST_P(RecorderBothWays, BehindADeviationWhatIsTheSameIsFollowed) {
  Storage a = input(), b = input();
  Recorder plain;
  plain.set_replay(false);
  auto step = [&](Recorder& recorder, Op& middle, double number) {
    Storage c = input(8), d = input(), x, y, z, w, v;
    std::vector<bool> followed;
    auto record = [&](Op& op, std::vector<Storage*> operands, Storage* result, bool with_number = false) {
      followed.push_back(*record_on(recorder, op, operands, result, number, with_number));
    };
    record(add, {&a, &b}, &x);
    record(middle, {&x, &b}, &y);
    record(mul, {&y, &b}, &z, true);
    record(mul, {&c, &c}, &w);           // an input met for the first time
    record(add_in_place, {&d, &z}, nullptr);
    record(add, {&d, &z}, &v);
    Launch launch = flush(recorder);
    for (Storage* s : {&c, &d, &x, &y, &z, &w, &v}) recorder.forget(*s);
    return std::pair(std::move(launch), followed);
  };
  step(recorder, add, 1);
  auto [launch, followed] = step(recorder, mul, 2);
  EXPECT_EQ(followed, std::vector<bool>({true, false, true, true, true, true}));
  for (Storage* s : {&a, &b}) recorder.forget(*s);
  expect_same_tape(*launch.tape, *step(plain, mul, 2).first.tape);
  ASSERT_EQ(launch.tape->scalars.size(), 1u);
  EXPECT_EQ(launch.inputs.size(), 5u);  // four tensors and the number
}

TEST_P(RecorderBothWays, BehindACallMoreNothingIsTheSame) {
  Storage a = input(), b = input(), x, y, z, v, w;
  record(add, {&a, &b}, &x);
  record(mul, {&x, &b}, &y);
  flush();
  EXPECT_TRUE(record(add, {&a, &b}, &z));
  EXPECT_FALSE(record(add, {&z, &b}, &v));
  EXPECT_FALSE(record(mul, {&z, &b}, &w)) << "its result has another slot";
  EXPECT_EQ(flush().tape->tokens.back().first_result, 4u);
}

TEST_P(RecorderBothWays, SeveralTapesWithOneBeginningAreTold) {
  Storage a = input(), b = input();
  for (int round = 0; round < 3; round++)
    for (Op* last : {&add, &mul}) {
      Storage x, y;
      EXPECT_EQ(record(add, {&a, &b}, &x), round > 0 || last == &mul);
      EXPECT_EQ(record(*last, {&x, &b}, &y), round > 0);
      flush();
      recorder.forget(x), recorder.forget(y);
    }
  EXPECT_EQ(recorder.tape_count(), 2u);
}

TEST_P(RecorderBothWays, AnEarlierEndIsAnotherTape) {
  Storage a = input(), b = input(), x, y, z;
  record(add, {&a, &b}, &x);
  record(add, {&x, &b}, &y);
  Launch longer = flush();
  record(add, {&a, &b}, &z);
  Launch shorter = flush();
  EXPECT_EQ(shorter.tape->tokens.size(), 1u);
  EXPECT_EQ(longer.tape->tokens.size(), 2u);
}

TEST_P(RecorderBothWays, WhatIsDeadAtTheEndIsNoOutput) {
  Storage a = input(), y;
  {
    Storage x;
    record(add, {&a, &a}, &x);
    record(add, {&x, &x}, &y);
    std::lock_guard lock(recorder.mutex());
    recorder.forget(x);
  }
  EXPECT_EQ(flush().outputs.size(), 1u);
}

TEST_P(RecorderBothWays, OutputsAreAllThatWereEverLive) {
  Storage a = input();
  auto step = [&](bool keep) {
    Storage x, y;
    record(add, {&a, &a}, &x);
    record(add, {&x, &x}, &y);
    if (!keep) recorder.forget(x);
    Launch launch = flush();
    recorder.forget(x), recorder.forget(y);
    return launch;
  };
  EXPECT_EQ(step(false).outputs.size(), 1u);
  Launch both = step(true);
  EXPECT_EQ(both.outputs.size(), 2u);
  Launch again = step(false);
  EXPECT_EQ(again.outputs.size(), 2u);
  EXPECT_EQ(again.variant.get(), both.variant.get());
}

TEST_P(RecorderBothWays, AWrittenInputBecomesAnOutputAndLetsItsOldBytesGo) {
  Storage a = input(), b = input();
  auto before = a.data;
  record(add_in_place, {&a, &b}, nullptr);
  EXPECT_TRUE(a.pending);
  Launch launch = flush();
  ASSERT_EQ(launch.outputs.size(), 1u);
  EXPECT_EQ(a.data.get(), launch.outputs[0].get());
  EXPECT_EQ(launch.inputs[0].data.get(), before.get());
  before = nullptr;
  EXPECT_TRUE(launch.inputs[0].data->unique());
}

TEST_P(RecorderBothWays, BytesFromOutsideAreANewInput) {
  Storage a = input(), b = input(), x, y;
  record(add, {&a, &b}, &x);
  {
    std::lock_guard lock(recorder.mutex());
    recorder.set_data(a, data(4));
  }
  record(add, {&a, &b}, &y);
  EXPECT_EQ(flush().inputs.size(), 3u);
}

TEST_P(RecorderBothWays, AnUnwrittenStorageTakesTheGeometryOfItsFirstWholeWrite) {
  Storage a;
  a.size_bytes = 16;
  Storage b = input();
  record(add_in_place, {&a, &b}, nullptr);
  Launch launch = flush();
  EXPECT_EQ(launch.outputs[0]->meta, base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {4}));
}

TEST_P(RecorderBothWays, EachSettingHasTapesOfItsOwn) {
  Storage x = input(), result;
  auto step = [&](lazyt_compile_flags_t flags) {
    if (recorder.flags() != flags) {
      std::lock_guard lock(recorder.mutex());
      recorder.set_flags(flags);
    }
    const bool replayed = record(add, {&x, &x}, &result);
    std::lock_guard lock(recorder.mutex());
    return std::pair(replayed, recorder.flush(FlushReason::kMarkStep).tape);
  };
  const auto plain = step(0).second;
  const auto [replayed, deterministic] = step(LAZYT_COMPILE_DETERMINISTIC);
  EXPECT_FALSE(replayed);
  EXPECT_EQ(plain->flags, 0u);
  EXPECT_EQ(deterministic->flags, LAZYT_COMPILE_DETERMINISTIC);
  EXPECT_EQ(step(0), std::pair(true, plain));
  EXPECT_EQ(step(LAZYT_COMPILE_DETERMINISTIC), std::pair(true, deterministic));
  EXPECT_EQ(recorder.tape_count(), 2u);
  std::lock_guard lock(recorder.mutex());
  recorder.clear_tapes();
  EXPECT_EQ(recorder.tape_count(), 0u);
}

// Steps that differ in their size alone.
class ManyStepsTest : public RecorderTest {
 protected:
  // Whether the step was known at its first call.
  bool step(int64_t size, int calls = 1) {
    Storage a = input(size), x;
    const bool replayed = record(add, {&a, &a}, &x);
    for (int i = 1; i < calls; i++) record(add, {&a, &a}, &x);
    flush();
    recorder.forget(x);
    return replayed;
  }
};

TEST_F(ManyStepsTest, TheLastThousandAreKnown) {
  for (int64_t size = 1; size <= 1034; size++) EXPECT_FALSE(step(size));
  EXPECT_EQ(recorder.tape_count(), 1024u);
  EXPECT_TRUE(step(11));
  EXPECT_FALSE(step(10));
}

TEST_F(ManyStepsTest, AsManyAreKnownAsProgramsMayBeKept) {
  recorder.set_max_tapes(40);
  for (int64_t size = 1; size <= 50; size++) EXPECT_FALSE(step(size));
  EXPECT_EQ(recorder.tape_count(), 40u);
  EXPECT_TRUE(step(11));
  EXPECT_FALSE(step(10));
}

TEST_F(ManyStepsTest, OfLongOnesFewerAreKnown) {
  constexpr int kCalls = 20000;
  for (int64_t size = 1; size <= 70; size++) EXPECT_FALSE(step(size, kCalls));
  EXPECT_GT(recorder.tape_count(), 40u);
  EXPECT_LT(recorder.tape_count(), 70u);
  EXPECT_TRUE(step(40, kCalls));
  EXPECT_FALSE(step(1, kCalls));
}

TEST_P(RecorderBothWays, WithoutReplayEveryStepIsRecordedAndNoTapeIsKept) {
  recorder.set_replay(false);
  Storage a = input(), b = input();
  for (int i = 0; i < 3; i++) {
    Storage x;
    EXPECT_FALSE(record(add, {&a, &b}, &x));
    flush();
    recorder.forget(x);
  }
  EXPECT_EQ(recorder.tape_count(), 0u);
}

// A call over four elements of the storage from `offset` on, written.
class MovingPlaceTest : public RecorderTest {
 protected:
  bool write_at(Storage& s, uint64_t offset) { return call_at(add_in_place, s, offset); }
  bool read_at(Storage& s, uint64_t offset) { return call_at(mul, s, offset); }
  bool call_at(Op& op, Storage& s, uint64_t offset) {
    Call call;
    call.clear(&op);
    if (op.writes()) call.writes = {0};
    call.operands = {&s};
    call.signature.append({tagged(kTensor, 1, LAZYT_DTYPE_FLOAT32), offset, 4, 1});
    Words metas;
    put_meta(metas, base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {4}));
    std::lock_guard lock(recorder.mutex());
    if (recorder.replay(call)) return true;
    recorder.append(call, metas, 0, nullptr);
    return false;
  }
  static uint64_t place(const Launch& launch, size_t input) {
    uint64_t offset;
    std::memcpy(&offset, launch.inputs[input].scalar.bytes, 8);
    return offset;
  }
};

TEST_F(MovingPlaceTest, APlaceThatMovesBecomesAHostScalar) {
  Storage s = input(32);
  for (uint64_t i = 0; i < 5; i++) {
    EXPECT_EQ(write_at(s, 4 * i), i > 1);
    Launch launch = flush();
    ASSERT_EQ(launch.inputs.size(), i == 0 ? 1u : 2u);
    if (i > 0) {
      EXPECT_EQ(place(launch, 1), 4 * i);
    }
  }
  EXPECT_EQ(recorder.tape_count(), 2u);
}

TEST_F(MovingPlaceTest, SeveralThatMoveInOneStepKeepTheirOrder) {
  Storage s = input(32), t = input(32);
  for (uint64_t i = 0; i < 4; i++) {
    write_at(s, i), write_at(t, 8 + i), write_at(s, 16 + i);
    Launch launch = flush();
    if (i == 0) continue;
    ASSERT_EQ(launch.inputs.size(), 5u);
    EXPECT_EQ(place(launch, 2), i);
    EXPECT_EQ(place(launch, 3), 8 + i);
    EXPECT_EQ(place(launch, 4), 16 + i);
  }
  EXPECT_EQ(recorder.tape_count(), 2u);
}

TEST_F(MovingPlaceTest, ATapeThatMovesAPlaceAndOneThatTakesAPartOfItAreTold) {
  Storage a = input(), s = input(32), x, y;
  for (uint64_t i = 0; i < 2; i++) record(add, {&a, &a}, &x), read_at(s, 4 * i), flush();  // a part
  for (uint64_t i = 0; i < 2; i++) record(add, {&s, &s}, &y), read_at(s, 4 * i), flush();  // a place in all of it
  record(add, {&a, &a}, &x), record(add, {&x, &a}, &y), flush();
  EXPECT_TRUE(record(add, {&a, &a}, &x));
  EXPECT_TRUE(read_at(s, 12));
  Launch part = flush();
  ASSERT_EQ(part.inputs.size(), 2u);
  EXPECT_TRUE(part.inputs[1].part);
  EXPECT_EQ(part.inputs[1].offset, 48u);
  EXPECT_TRUE(record(add, {&s, &s}, &y));
  EXPECT_TRUE(read_at(s, 20));
  EXPECT_EQ(place(flush(), 1), 20u);
}

TEST_F(MovingPlaceTest, BehindAnotherDeviationPlacesStayConstants) {
  Storage s = input(32), x, y;
  record(add, {&s, &s}, &x);
  for (uint64_t i = 0; i < 3; i++) write_at(s, 4 * i);
  flush();
  record(mul, {&s, &s}, &y);
  for (uint64_t i = 1; i < 4; i++) write_at(s, 4 * i);
  EXPECT_EQ(flush().inputs.size(), 1u);
}

// Two threads, each with a recorder.

TEST_P(RecorderBothWays, TracesThatShareInputsFollowTheirOwnTapesHoweverTheirCallsInterleave) {
  Recorder other;
  Storage a = input(), b = input();
  for (int round = 0; round < 4; round++) {
    Storage x, y, z, u, v, w;
    const bool late = round % 2;  // the other one's calls come first or last
    auto theirs = [&] {
      EXPECT_EQ(record_on(other, mul, {&b, &a}, &u), round > 0);
      EXPECT_EQ(record_on(other, mul, {&a, &u}, &v), round > 0);
    };
    EXPECT_EQ(record(add, {&a, &b}, &x), round > 0);
    if (!late) theirs();
    EXPECT_EQ(record(add, {&b, &x}, &y), round > 0);
    if (late) theirs();
    EXPECT_EQ(record(add, {&a, &y}, &z), round > 0);
    EXPECT_EQ(record_on(other, mul, {&b, &v}, &w), round > 0);
    EXPECT_EQ(flush().inputs.size(), 2u);
    EXPECT_EQ(flush(other).inputs.size(), 2u);
    for (Storage* s : {&x, &y, &z, &u, &v, &w}) Recorder::forget(*s);
  }
  EXPECT_EQ(recorder.tape_count(), 1u);
  EXPECT_EQ(other.tape_count(), 1u);
}

TEST_P(RecorderBothWays, WhatIsPendingInAnotherTraceIsMetAfterThatIsCut) {
  Recorder other;
  Storage a = input(), x, y;
  record(add, {&a, &a}, &x);
  EXPECT_EQ(record_on(other, mul, {&a, &x}, &y), std::nullopt);
  EXPECT_EQ(other.blocked_by(), &recorder);
  EXPECT_TRUE(other.empty());
  flush();
  EXPECT_EQ(record_on(other, mul, {&a, &x}, &y), false);
  EXPECT_EQ(other.blocked_by(), nullptr);
  Launch launch = flush(other);
  ASSERT_EQ(launch.inputs.size(), 2u);
  EXPECT_EQ(launch.inputs[1].data.get(), x.data.get());
}

TEST_P(RecorderBothWays, AnInputThatAnotherThreadWritesIsANewInputFromThenOn) {
  Recorder other;
  Storage a = input(), b = input(), x, y, z;
  auto before = a.data;
  record(add, {&a, &b}, &x);
  EXPECT_TRUE(record_on(other, add_in_place, {&a, &b}, nullptr).has_value());
  flush(other);
  record(add, {&a, &b}, &y);
  record(add, {&a, &b}, &z);
  Launch launch = flush();
  ASSERT_EQ(launch.inputs.size(), 3u);
  EXPECT_EQ(launch.inputs[0].data.get(), before.get());
  EXPECT_EQ(launch.inputs[2].data.get(), a.data.get());
}

TEST_P(RecorderBothWays, AFreedStorageThatIsUsedAgainIsNotTakenForTheOldOne) {
  Recorder other;
  Storage a = input(), x, y, z;
  record(add, {&a, &a}, &x);
  record_on(other, mul, {&a, &a}, &y);
  Recorder::forget(a);  // and taken up by a new tensor
  a.data = data(4);
  record(add, {&a, &x}, &z);
  EXPECT_EQ(flush().inputs.size(), 2u);
}

TEST_P(RecorderBothWays, ACallThatCannotBeRecordedYetLeavesTheSlotsThatOthersKeep) {
  Recorder other;
  Storage a = input(), b = input(), x, y, z;
  record(add, {&a, &b}, &x);
  EXPECT_EQ(record_on(other, mul, {&a, &x}, &y), std::nullopt);  // had taken note of a
  record(add, {&a, &b}, &z);
  EXPECT_EQ(flush().inputs.size(), 2u);
}

TEST_P(RecorderBothWays, ThreadsThatShareAModelRecordAtOnce) {
  constexpr int kThreads = 4, kSteps = 200;
  Storage model[2] = {input(), input()};
  std::deque<Recorder> recorders(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> replayed{0}, inputs{0};
  for (Recorder& mine : recorders)
    threads.emplace_back([&] {
      for (int step = 0; step < kSteps; step++) {
        Storage x, y, z;
        bool known = record_on(mine, add, {&model[0], &model[1]}, &x).value();
        std::this_thread::yield();
        known = record_on(mine, mul, {&model[1], &x}, &y).value() && known;
        known = record_on(mine, add, {&model[0], &y}, &z).value() && known;
        replayed += known;
        inputs += static_cast<int>(flush(mine).inputs.size());
        std::lock_guard lock(recording_lock);
        for (Storage* s : {&x, &y, &z}) Recorder::forget(*s);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(replayed, kThreads * (kSteps - 1));
  EXPECT_EQ(inputs, kThreads * kSteps * 2);
}

}  // namespace
}  // namespace lazyt::trace
