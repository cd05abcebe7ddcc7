// What follows three tapes in a row, and when nothing does.
#include "trace/ahead.h"

#include <gtest/gtest.h>

#include <thread>

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

class GuessTest : public AheadTest {
 protected:
  // As a session does for a program that is run for the first time.
  void run(base::Ref<Tape> tape) {
    auto variant = base::make_ref<Variant>();
    variant->outputs = outputs;
    auto draft = ahead.begin(std::move(tape), variant);
    if (waits) ahead.help();
    if (draft) ahead.finish(*draft, compile);
  }

  const std::vector<uint32_t> outputs{3};
  int compiled = 0;
  bool waits = true;
  Ahead::Compile compile = [this](Prepared prepared) -> base::Result<Compiled> {
    compiled++;
    EXPECT_EQ(prepared.graph.nodes.size(), 2u);
    Compiled result;
    result.plan = base::make_ref<exec::Plan>();
    result.rewrites = std::move(prepared.rewrites);
    return result;
  };
  Ahead ahead;
};

TEST_F(GuessTest, WhatCameTrueIsTakenOnce) {
  run(step(4)), run(step(5));
  EXPECT_EQ(compiled, 0) << "two in a row may be chance";
  run(step(6));
  ASSERT_EQ(compiled, 1);
  EXPECT_FALSE(ahead.take(*step(8), outputs));
  EXPECT_FALSE(ahead.take(*step(7), std::vector<uint32_t>{2, 3}));
  EXPECT_TRUE(ahead.take(*step(7), outputs));
  EXPECT_FALSE(ahead.take(*step(7), outputs));
}

TEST_F(GuessTest, WhoeverComesFirstPrepares) {
  for (bool helped : {true, false}) {
    waits = helped;
    const int64_t n = helped ? 4 : 14;
    run(step(n)), run(step(n + 1)), run(step(n + 2));
    EXPECT_TRUE(ahead.take(*step(n + 3), outputs));
  }
  auto variant = base::make_ref<Variant>();
  variant->outputs = outputs;
  for (int64_t n : {24, 25, 26}) {
    auto draft = ahead.begin(step(n), variant);
    std::thread other([&] { ahead.help(); });
    if (draft) ahead.finish(*draft, compile);
    other.join();
  }
  EXPECT_TRUE(ahead.take(*step(27), outputs));
}

TEST_F(GuessTest, ATapeThatIsQueuedTwiceIsOneOfItsLine) {
  for (int64_t n : {4, 5, 6}) {
    base::Ref<Tape> tape = step(n);
    run(tape), run(tape);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_TRUE(ahead.take(*step(7), outputs));
}

TEST_F(GuessTest, ProgramsThatTakeTurnsEachGoOn) {
  for (int64_t n = 4; n < 10; n++)
    for (Op* last : {&mul, &add}) {
      EXPECT_EQ(ahead.take(*step(n, last), outputs).has_value(), n > 6) << n;
      run(step(n, last));
    }
  EXPECT_EQ(compiled, 2 * 4);
}

TEST_F(GuessTest, WhatFailsToCompileIsNoGuess) {
  compile = [](Prepared) -> base::Result<Compiled> { return base::internal("no"); };
  run(step(4)), run(step(5)), run(step(6));
  EXPECT_FALSE(ahead.take(*step(7), outputs));
  compile = [](Prepared) -> base::Result<Compiled> { throw std::bad_alloc(); };
  run(step(7)), run(step(8));
  EXPECT_FALSE(ahead.take(*step(9), outputs));
}

}  // namespace
}  // namespace lazyt::trace
