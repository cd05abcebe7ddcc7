// What follows three tapes in a row, and when nothing does.
#include "trace/ahead.h"

#include <gtest/gtest.h>

#include <thread>

#include "../fake_plugin.h"
#include "recorder_fixture.h"

namespace lazyt::trace {
namespace {

class AheadTest : public RecorderTest {
 protected:
  AheadTest() {
    for (Op* op : {&add, &mul, &pool, &slice}) op->recorded = add.recorded, op->functional_name = op->name;
    add.functional_name = "aten::maximum", mul.functional_overload = "Tensor";  // of two arguments
    pool.args = slice.args = {{"self", ArgType::kTensor}, {"size", ArgType::kInt}};
    pool.functional_name = "aten::max_pool1d", slice.functional_name = "aten::tril";
  }
  // A step over n elements: max(a, b) * b.
  base::Ref<Tape> step(int64_t n, Op* last = nullptr) {
    Storage a = input(n), b = input(n), x, y;
    record(add, {&a, &b}, &x);
    record(last ? *last : mul, {&x, &b}, &y);
    Launch launch = flush();
    for (Storage* s : {&a, &b, &x, &y}) recorder.forget(*s);
    return launch.tape;
  }
  // An operator of n elements with an integer.
  base::Ref<Tape> step_with_integer(Op& op, int64_t n, int64_t integer, int64_t result) {
    Storage a = input(n), x;
    Call call;
    call.clear(&op);
    call.operands.push_back(&a);
    call.signature.append({tagged(kTensor, 1, LAZYT_DTYPE_FLOAT32), 0, static_cast<uint64_t>(n), 1,
                           tagged(kInt), static_cast<uint64_t>(integer)});
    {
      std::lock_guard lock(recorder.mutex());
      Words metas;
      put_meta(metas, base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {result}));
      if (!recorder.replay(call)) recorder.append(call, metas, 1, nullptr);
      x.size_bytes = 4 * result;
      recorder.bind(x, recorder.first_result());
    }
    Launch launch = flush();
    for (Storage* s : {&a, &x}) recorder.forget(*s);
    return launch.tape;
  }

  Op pool{.name = "aten::max_pool1d"}, slice{.name = "aten::tril"};
};

TEST_F(AheadTest, SizesThatGrowByAsMuchGoOn) {
  auto next = following(*step(4), *step(6), *step(8));
  ASSERT_TRUE(next);
  EXPECT_TRUE(same_program(*next, *step(10)));
  EXPECT_FALSE(same_program(*next, *step(12)));
}

TEST_F(AheadTest, SizesThatShrinkGoOnButNotToNothing) {
  auto next = following(*step(12), *step(9), *step(6));
  ASSERT_TRUE(next);
  EXPECT_TRUE(same_program(*next, *step(3)));
  EXPECT_FALSE(following(*step(9), *step(6), *step(3)));
}

TEST_F(AheadTest, WhatDoesNotChangeDoesNotGoOn) { EXPECT_FALSE(following(*step(4), *step(4), *step(4))); }

TEST_F(AheadTest, UnevenStepsDoNotGoOn) {
  EXPECT_FALSE(following(*step(4), *step(5), *step(7)));
  EXPECT_FALSE(following(*step(4), *step(4), *step(5)));
  EXPECT_FALSE(following(*step(5), *step(4), *step(5)));
}

TEST_F(AheadTest, OtherOperatorsDoNotGoOn) { EXPECT_FALSE(following(*step(4), *step(5, &add), *step(6))); }

// ceil(n / 4), say: the same three times, and another the fourth time.
TEST_F(AheadTest, WhereAResultsSizeIsNoSumOrProductNothingGoesOn) {
  EXPECT_FALSE(following(*step_with_integer(pool, 5, 4, 2), *step_with_integer(pool, 6, 4, 2),
                         *step_with_integer(pool, 7, 4, 2)));
  auto next = following(*step_with_integer(slice, 5, 4, 5), *step_with_integer(slice, 6, 4, 6),
                        *step_with_integer(slice, 7, 4, 7));
  ASSERT_TRUE(next);
  EXPECT_TRUE(same_program(*next, *step_with_integer(slice, 8, 4, 8)));
}

TEST_F(AheadTest, IntegersDoNotGoOn) {
  EXPECT_FALSE(following(*step_with_integer(slice, 5, 1, 5), *step_with_integer(slice, 6, 2, 6),
                         *step_with_integer(slice, 7, 3, 7)));
  EXPECT_FALSE(following(*step_with_integer(slice, 5, 1, 5), *step_with_integer(slice, 5, 2, 5),
                         *step_with_integer(slice, 5, 3, 5)));
}

class ExpectTest : public AheadTest {
 protected:
  struct Step {
    bool grown, same;  // replayed
    base::Ref<Tape> tape;
  };
  // An operator over n elements, and one over three.
  Step mixed(int64_t n) {
    Storage a = input(n), c = input(3), x, y;
    Step step{};
    step.grown = record(add, {&a, &a}, &x);
    step.same = record(mul, {&c, &c}, &y);
    step.tape = flush().tape;
    for (Storage* s : {&a, &c, &x, &y}) recorder.forget(*s);
    return step;
  }
  void expect(const base::Ref<Tape>& before, const base::Ref<Tape>& tape, const base::Ref<Tape>& next) {
    std::lock_guard lock(recorder.mutex());
    recorder.expect({before, tape, next});
  }
  // What follows steps of 4, 6 and 8, expected.
  base::Ref<Tape> guess_after_8() {
    const auto a = mixed(4).tape, b = mixed(6).tape, c = mixed(8).tape;
    auto guess = following(*a, *b, *c);
    expect(b, c, guess);
    return guess;
  }
};

TEST_F(ExpectTest, AGuessIsFollowedAndAskedForWhatHasOtherSizes) {
  const auto guess = guess_after_8();
  const Step step = mixed(10);
  EXPECT_EQ(step.tape, guess);
  EXPECT_FALSE(step.grown) << "its results are not known";
  EXPECT_TRUE(step.same);
}

TEST_F(ExpectTest, WhatDoesNotGrowIsSharedByAllTapes) {
  const auto first = mixed(4).tape, second = mixed(6).tape, third = mixed(8).tape;
  const auto guess = following(*first, *second, *third);
  for (const auto& tape : {second, third, guess}) {
    EXPECT_EQ(tape->tokens[1].token, first->tokens[1].token);
    EXPECT_FALSE(tape->tokens[0].token == first->tokens[0].token);
    EXPECT_FALSE(tape->tokens[1].prefix_hash == first->tokens[1].prefix_hash);
    EXPECT_EQ(tape->slots[2], first->slots[2]);
    EXPECT_NE(tape->slots[0], first->slots[0]);
  }
}

TEST_F(ExpectTest, AGuessThatCameTrueIsATapeAsAnyOther) {
  const auto guess = guess_after_8();
  EXPECT_TRUE(guess->guessed);
  mixed(10), mixed(4);
  EXPECT_FALSE(guess->guessed);
  const Step again = mixed(10);
  EXPECT_EQ(again.tape, guess);
  EXPECT_TRUE(again.grown && again.same);
}

TEST_F(ExpectTest, AnotherSizeLeavesTheGuess) {
  const auto guess = guess_after_8();
  const auto before = recorder.tape_count();
  const Step step = mixed(11);
  EXPECT_NE(step.tape, guess);
  EXPECT_EQ(step.tape->slots[0]->meta.dims[0], 11);
  EXPECT_EQ(recorder.tape_count(), before + 1) << "the guess is none";
  EXPECT_TRUE(mixed(11).grown);
}

TEST_F(ExpectTest, OtherResultsLeaveTheGuess) {
  const auto a = step_with_integer(slice, 5, 1, 5), b = step_with_integer(slice, 6, 1, 6), c = step_with_integer(slice, 7, 1, 7);
  const auto guess = following(*a, *b, *c);
  expect(b, c, guess);
  const auto tape = step_with_integer(slice, 8, 1, 9);
  EXPECT_NE(tape, guess);
  EXPECT_EQ(guess->slots[1]->meta.dims[0], 8);
  EXPECT_EQ(tape->slots[1]->meta.dims[0], 9);
}

TEST_F(ExpectTest, ATraceThatEndsWithinAGuessIsATapeOfItsOwn) {
  const auto guess = guess_after_8();
  Storage a = input(10), x;
  EXPECT_FALSE(record(add, {&a, &a}, &x));
  const auto tape = flush().tape;
  EXPECT_NE(tape, guess);
  EXPECT_EQ(tape->tokens.size(), 1u);
  EXPECT_FALSE(tape->guessed || tape->is_guess(0));
  for (Storage* s : {&a, &x}) recorder.forget(*s);
}

TEST_F(ExpectTest, WhatIsKnownIsExpectedInsteadOfItsGuess) {
  const auto known = mixed(10).tape;
  const auto guess = guess_after_8();
  const Step step = mixed(10);
  EXPECT_EQ(step.tape, known);
  EXPECT_TRUE(step.grown);
}

TEST_F(ExpectTest, OfAStepOfTwoTracesBothAreExpected) {
  const auto one = [&](int64_t n) { return mixed(n).tape; };
  const auto other = [&](int64_t n) { return step_with_integer(slice, n, 1, n); };
  const auto a4 = one(4), b5 = other(5), a6 = one(6), b6 = other(6), a8 = one(8);
  const auto a10 = following(*a4, *a6, *a8);
  expect(a6, a8, a10);
  const auto b7 = other(7), b8 = following(*b5, *b6, *b7);
  expect(b6, b7, b8);
  EXPECT_EQ(one(10), a10);
  const auto a12 = following(*a6, *a8, *a10);
  expect(a8, a10, a12);
  EXPECT_EQ(other(8), b8);
  expect(b7, b8, following(*b6, *b7, *b8));
  EXPECT_EQ(one(12), a12);
}

TEST_F(ExpectTest, WhatGrowsIsExpectedBehindWhatDoesNot) {
  const auto one = [&](int64_t n) { return mixed(n).tape; };
  const auto same = [&] { return step_with_integer(slice, 3, 1, 3); };
  const auto a4 = one(4), same4 = same(), a6 = one(6), same6 = same(), a8 = one(8), a10 = following(*a4, *a6, *a8);
  EXPECT_EQ(same4, same6);
  expect(a6, a8, a10);
  EXPECT_EQ(same(), same4);
  EXPECT_EQ(one(10), a10);
}

TEST_F(ExpectTest, WhatGrowsIsExpectedBehindWhatIsNewEachTime) {
  const auto one = [&](int64_t n) { return mixed(n).tape; };
  const auto other = [&](int64_t n) { return step_with_integer(pool, n, n, 3); };
  const auto a4 = one(4);
  other(1);
  const auto a6 = one(6);
  other(3);
  const auto a8 = one(8), a10 = following(*a4, *a6, *a8);
  expect(a6, a8, a10);
  other(4);
  EXPECT_EQ(one(10), a10);
}

TEST_F(ExpectTest, ATraceThatHasBegunExpectsNothing) {
  const auto a = mixed(4).tape, b = mixed(6).tape, c = mixed(8).tape;
  const auto guess = following(*a, *b, *c);
  Storage x = input(10), y;
  record(add, {&x, &x}, &y);
  expect(b, c, guess);
  flush();
  expect(b, c, guess);
  EXPECT_NE(recorder.expected(), guess.get()) << "another trace came behind it";
  for (Storage* s : {&x, &y}) recorder.forget(*s);
}

TEST_F(ExpectTest, WhatWritesToGrowingStoragesIsFollowed) {
  add_in_place.functional_name = "aten::maximum";
  const auto step = [&](int64_t n) {
    Storage a = input(n), b = input(n);
    record(add_in_place, {&a, &b}, nullptr);
    Launch launch = flush();
    for (Storage* s : {&a, &b}) recorder.forget(*s);
    return launch.tape;
  };
  const auto a = step(4), b = step(6), c = step(8), guess = following(*a, *b, *c);
  ASSERT_TRUE(guess);
  expect(b, c, guess);
  EXPECT_EQ(step(10), guess);
}

TEST_F(ExpectTest, StoragesThatBecomeSomethingElseLeaveTheGuess) {
  add_in_place.functional_name = "aten::maximum";
  // Bytes that nobody wrote, of which each step writes six: with six they are all, and show what was written.
  const auto step = [&](int64_t n) {
    Storage bytes, b = input(2);
    bytes.size_bytes = 4 * n;
    Call call;
    call.clear(&add_in_place);
    call.operands = {&bytes, &b};
    call.writes = {0};
    call.signature.append({tagged(kTensor, 2, LAZYT_DTYPE_FLOAT32), 0, 3, 2, 2, 1, tagged(kTensor, 1, LAZYT_DTYPE_FLOAT32), 0, 2, 1});
    {
      std::lock_guard lock(recorder.mutex());
      Words metas;
      put_meta(metas, base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {3, 2}));
      if (!recorder.replay(call)) {
        EXPECT_TRUE(recorder.append(call, metas, 0, nullptr));
      }
    }
    Launch launch = flush();
    for (Storage* s : {&bytes, &b}) recorder.forget(*s);
    return launch.tape;
  };
  const auto a = step(9), b = step(8), c = step(7), guess = following(*a, *b, *c);
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess->slots.back()->meta.dims.size(), 1u);
  expect(b, c, guess);
  const auto tape = step(6);
  EXPECT_NE(tape, guess);
  EXPECT_EQ(tape->slots.back()->meta.dims.size(), 2u);
}

TEST_F(AheadTest, RangesByOnesGoOnAndOthersDoNot) {
  Op range{.name = "aten::arange"};
  range.recorded = add.recorded, range.functional_name = range.name, range.functional_overload = "start_step";
  range.args = {{"start", ArgType::kScalar}, {"end", ArgType::kScalar}, {"step", ArgType::kScalar}};
  const auto step = [&](uint64_t count, uint64_t by) {
    Storage x;
    Call call;
    call.clear(&range);
    call.signature.append({tagged(kInt), 3, tagged(kInt), count, tagged(kInt), by});
    {
      std::lock_guard lock(recorder.mutex());
      Words metas;
      put_meta(metas, base::Meta::contiguous(LAZYT_DTYPE_INT64, {static_cast<int64_t>((count + by - 1) / by)}));
      if (!recorder.replay(call)) recorder.append(call, metas, 1, nullptr);
      x.size_bytes = 8 * ((count + by - 1) / by);
      recorder.bind(x, recorder.first_result());
    }
    Launch launch = flush();
    recorder.forget(x);
    return launch.tape;
  };
  const auto next = following(*step(5, 1), *step(6, 1), *step(7, 1));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->slots[0]->meta.dims[0], 8);
  EXPECT_FALSE(following(*step(10, 10), *step(21, 10), *step(32, 10)));
  EXPECT_FALSE(following(*step(10, 1), *step(20, 2), *step(30, 3)));
}

class GuessTest : public AheadTest {
 protected:
  static base::Ref<Variant> variant_of(std::vector<uint32_t> outputs) {
    auto variant = base::make_ref<Variant>();
    variant->outputs = std::move(outputs);
    return variant;
  }
  // As a session does for a program that is run for the first time.
  std::shared_ptr<Draft> run(base::Ref<Tape> tape) {
    auto draft = ahead.begin(std::move(tape), variant_of(outputs));
    if (!draft) return nullptr;
    if (waits) draft->prepared();
    ahead.begin(*draft, {compile, [this] { return lost; }});
    if (finishes) ahead.go_on();
    return draft;
  }
  bool take(const Tape& tape, std::vector<uint32_t> of = outputs) { return ahead.take(tape, *variant_of(std::move(of))).has_value(); }

  static inline const std::vector<uint32_t> outputs{3};
  int compiled = 0;
  bool waits = true, finishes = true, lost = false;
  ~GuessTest() { recorder.clear_tapes(); }  // with their plans, before the plugin goes
  testing::FakePlugin plugin{true, true};
  cache::ProgramCache programs;
  std::function<base::Result<Compilation>(Prepared)> compile = [this](Prepared prepared) {
    compiled++;
    EXPECT_EQ(prepared.graph.nodes.size(), 2u);
    return Compilation::begin(std::move(prepared), plugin.device, programs, nullptr);
  };
  Ahead ahead;
};

TEST_F(GuessTest, WhatCameTrueIsTakenOnce) {
  run(step(4)), run(step(5));
  EXPECT_EQ(compiled, 0) << "two in a row may be chance";
  run(step(6));
  ASSERT_EQ(compiled, 1);
  EXPECT_FALSE(take(*step(8)));
  EXPECT_FALSE(take(*step(7), {2, 3}));
  EXPECT_TRUE(take(*step(7)));
  EXPECT_FALSE(take(*step(7)));
}

TEST_F(GuessTest, WhoeverComesFirstPrepares) {
  for (bool helped : {true, false}) {
    waits = helped;
    const int64_t n = helped ? 4 : 14;
    run(step(n)), run(step(n + 1)), run(step(n + 2));
    EXPECT_TRUE(take(*step(n + 3)));
  }
  for (int64_t n : {24, 25, 26}) {
    auto draft = ahead.begin(step(n), variant_of(outputs));
    if (!draft) continue;
    std::thread other([&] { draft->prepared(); });
    ahead.begin(*draft, {compile, [] { return false; }});
    ahead.go_on();
    other.join();
  }
  EXPECT_TRUE(take(*step(27)));
}

TEST_F(GuessTest, ATapeThatIsQueuedTwiceIsOneOfItsLine) {
  for (int64_t n : {4, 5, 6}) {
    base::Ref<Tape> tape = step(n);
    run(tape), run(tape);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_TRUE(take(*step(7)));
}

TEST_F(GuessTest, ProgramsThatTakeTurnsEachGoOn) {
  for (int64_t n = 4; n < 10; n++)
    for (Op* last : {&mul, &add}) {
      EXPECT_EQ(take(*step(n, last)), n > 6) << n;
      run(step(n, last));
    }
  EXPECT_EQ(compiled, 2 * 4);
}

TEST_F(GuessTest, WhatFailsToCompileIsNoGuess) {
  const auto works = compile;
  compile = [](Prepared) -> base::Result<Compilation> { return base::internal("no"); };
  run(step(4)), run(step(5)), run(step(6));
  EXPECT_FALSE(take(*step(7)));
  compile = [](Prepared) -> base::Result<Compilation> { throw std::bad_alloc(); };
  run(step(7)), run(step(8));
  EXPECT_FALSE(take(*step(9)));
  compile = works;
  run(step(9));
  EXPECT_TRUE(take(*step(10)));
}

TEST_F(GuessTest, WhatHasBegunIsFinishedForWhoTakesIt) {
  finishes = false;
  run(step(4)), run(step(5)), run(step(6));
  EXPECT_FALSE(take(*step(8)));
  EXPECT_TRUE(ahead.has_begun()) << "another waits for nothing";
  EXPECT_TRUE(take(*step(7)));
  EXPECT_FALSE(ahead.has_begun());
}

TEST_F(GuessTest, WhatAStepBeforeKeptAliveIsNoResultOfWhatFollows) {
  std::shared_ptr<Draft> draft;
  for (int64_t n : {4, 5, 6}) draft = ahead.begin(step(n), variant_of({2, 3}));  // both results
  {
    std::lock_guard lock(recorder.mutex());
    recorder.expect(*draft->growth());
  }
  Storage a = input(7), b = input(7), x, y;
  record(add, {&a, &b}, &x);
  record(mul, {&x, &b}, &y);
  recorder.forget(x);
  const Launch launch = flush();
  for (Storage* s : {&a, &b, &y}) recorder.forget(*s);
  EXPECT_EQ(launch.tape, draft->growth()->next);
  EXPECT_EQ(launch.variant->outputs, std::vector<uint32_t>{3});
  EXPECT_EQ(launch.outputs.size(), 1u);
}

TEST_F(GuessTest, OfALostDeviceNothingIsKnownAndNothingIsLeft) {
  finishes = false;
  for (int64_t n = 4; n < 8; n++) run(step(n));
  lost = true;
  for (int calls = 0; ahead.has_begun(); calls++) {
    ASSERT_LT(calls, 2);
    EXPECT_FALSE(ahead.go_on()) << "this thread may be the executor's no more";
  }
  EXPECT_FALSE(take(*step(7)) || take(*step(8)));
}

TEST_F(GuessTest, OthersThatWaitComeBetweenSegments) {
  struct Runner final : exec::HostRunner {
    base::Status run(const ir::Graph&, std::span<const exec::HostTensor>, std::span<const exec::HostTensor>) override { return {}; }
  } runner;
  testing::fake().refused = {"aten::maximum"};
  compile = [&](Prepared prepared) { return Compilation::begin(std::move(prepared), plugin.device, programs, &runner); };
  finishes = false;
  run(step(4)), run(step(5)), run(step(6));
  EXPECT_TRUE(ahead.go_on([] { return true; })) << "one of two";
  EXPECT_TRUE(ahead.has_begun());
  EXPECT_FALSE(ahead.go_on([] { return true; }));
  EXPECT_FALSE(ahead.has_begun());
  EXPECT_FALSE(take(*step(7))) << "what the host runs is no guess";
}

TEST_F(GuessTest, APlanAndItsGatesAreKnownToTheVariantThatIsExpected) {
  run(step(4)), run(step(5));
  const auto draft = run(step(6));
  const Variant& variant = *draft->variant();
  EXPECT_EQ(draft->growth()->next->variant.get(), &variant);
  EXPECT_EQ(variant.outputs, outputs);
  EXPECT_EQ(variant.metas[0]->dims, base::Dims{7});
  EXPECT_TRUE(variant.plan && variant.gates_known);
  EXPECT_TRUE(ahead.take(variant));
  EXPECT_FALSE(ahead.take(variant));
}

}  // namespace
}  // namespace lazyt::trace
