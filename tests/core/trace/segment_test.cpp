// Segments: what one caller records whole is followed at once, and only where call by call it would be the same.
#include "trace/segment.h"

#include <gtest/gtest.h>

#include "recorder_fixture.h"

namespace lazyt::trace {
namespace {

class SegmentTest : public RecorderTest {
 protected:
  Place place() {
    std::lock_guard lock(recorder.mutex());
    return recorder.place();
  }
  std::optional<Segment> since(const Place& from, std::vector<Storage*> operands) {
    std::lock_guard lock(recorder.mutex());
    return recorder.segment_since(from, operands);
  }
  std::optional<Segment> since(const Place& from, std::vector<Storage*> operands, std::vector<Storage*> written) {
    std::lock_guard lock(recorder.mutex());
    return recorder.segment_since(from, operands, written);
  }
  bool follow(const Segment& s, std::vector<Storage*> operands) {
    std::lock_guard lock(recorder.mutex());
    return recorder.follow(s, operands);
  }
  void forget(std::initializer_list<Storage*> storages) {
    std::lock_guard lock(recorder.mutex());
    for (Storage* s : storages) recorder.forget(*s);
  }

  // y = (a + b) * number * b: the graph. Returns y's slot.
  uint32_t graph(Storage& a, Storage& b, double number = 2) {
    Storage x, z, y;
    record(add, {&a, &b}, &x);
    record(mul, {&x}, &z, number, true);
    record(mul, {&z, &b}, &y);
    const uint32_t slot = y.slot;
    forget({&x, &z, &y});
    return slot;
  }
  // A step whose graph stands between two other calls, once known; the segment of the second time.
  Segment known(Storage& a, Storage& b) {
    std::optional<Segment> segment;
    for (int i = 0; i < 2; i++) {
      Storage before, after;
      record(mul, {&a, &a}, &before);
      const Place from = place();
      graph(a, b);
      segment = since(from, {&a, &b});
      record(add, {&before, &b}, &after);
      flush();
      forget({&before, &after});
    }
    EXPECT_TRUE(segment);
    return *segment;
  }
};

TEST_F(SegmentTest, AKnownSegmentIsFollowedAtOnceAndTheTapeGoesOnBehindIt) {
  Storage a = input(), b = input(), c = input(), d = input(), before, after, y;
  const Segment segment = known(a, b);
  EXPECT_EQ(segment.inputs, 1u);  // b; a was met before
  record(mul, {&c, &c}, &before);
  ASSERT_TRUE(follow(segment, {&c, &d}));
  {
    std::lock_guard lock(recorder.mutex());
    recorder.bind(y, segment.end.slots - 1);
  }
  EXPECT_TRUE(record(add, {&before, &d}, &after));
  Launch launch = flush();
  EXPECT_EQ(launch.tape.get(), segment.tape.get());
  ASSERT_EQ(launch.inputs.size(), 3u);
  EXPECT_EQ(launch.inputs[0].data.get(), c.data.get());
  EXPECT_EQ(launch.inputs[1].data.get(), d.data.get());
  double number;
  std::memcpy(&number, launch.inputs[2].scalar.bytes, 8);
  EXPECT_EQ(number, 2);
  EXPECT_TRUE(y.data);
}

TEST_F(SegmentTest, WhatIsRecordedForTheFirstTimeIsNoSegmentYet) {
  Storage a = input(), b = input();
  const Place from = place();
  graph(a, b);
  EXPECT_FALSE(since(from, {&a, &b}));
  flush();
}

TEST_F(SegmentTest, NothingRecordedOrACutWithinIsNoSegment) {
  Storage a = input(), b = input();
  known(a, b);
  const Place start = place();
  EXPECT_FALSE(since(start, {&a, &b}));
  Storage x;
  record(mul, {&a, &a}, &x);
  const Place from = place();
  flush();
  record(mul, {&a, &a}, &x);
  EXPECT_FALSE(since(from, {&a, &b}));
  flush();
}

// What follow() refuses it leaves as it was: the calls are then recorded one by one.
TEST_F(SegmentTest, OperandsInOtherRolesAreNotFollowed) {
  Storage a = input(), b = input(), before, after;
  const Segment segment = known(a, b);
  record(mul, {&a, &a}, &before);
  Storage wrong = input(), longer = input(8), unwritten;
  unwritten.size_bytes = 16;
  EXPECT_FALSE(follow(segment, {&b, &a}));       // a was to have a slot already, b none
  EXPECT_FALSE(follow(segment, {&wrong, &b}));
  EXPECT_FALSE(follow(segment, {&a, &a}));       // two were to be two
  EXPECT_FALSE(follow(segment, {&a, &before}));  // pending
  EXPECT_FALSE(follow(segment, {&a, &longer}));
  EXPECT_FALSE(follow(segment, {&a, &unwritten}));
  EXPECT_FALSE(follow(segment, {&a}));
  const Place from = place();
  EXPECT_EQ(from.tokens, 1u);
  graph(a, b);
  EXPECT_TRUE(since(from, {&a, &b}));
  record(add, {&before, &b}, &after);
  EXPECT_EQ(flush().tape.get(), segment.tape.get());
}

TEST_F(SegmentTest, DataOfAnotherGeometryIsNotFollowed) {
  Storage a = input(), b = input(), c = input(), before;
  const Segment segment = known(a, b);
  c.data = base::make_ref<exec::Data>(base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {2, 2}), 16, base::Ref<loader::Buffer>());
  record(mul, {&a, &a}, &before);
  EXPECT_FALSE(follow(segment, {&a, &c}));
  flush();
}

TEST_F(SegmentTest, AnotherPlaceIsNotFollowed) {
  Storage a = input(), b = input(), x, y;
  const Segment segment = known(a, b);
  EXPECT_FALSE(follow(segment, {&a, &b}));  // the tape begins with another call
  record(mul, {&a, &a}, &x);
  record(mul, {&a, &a}, &y);
  EXPECT_FALSE(follow(segment, {&a, &b}));
  flush();
}

TEST_F(SegmentTest, ATapeOfTheSamePrefixIsTakenUp) {
  Storage a = input(), b = input(), x, y;
  const Segment segment = known(a, b);
  record(mul, {&a, &a}, &x);
  record(mul, {&a, &x}, &y);
  flush();
  for (int i = 0; i < 2; i++) {  // the shorter one is expected now
    record(mul, {&a, &a}, &x);
    flush();
  }
  EXPECT_TRUE(record(mul, {&a, &a}, &x));
  EXPECT_TRUE(follow(segment, {&a, &b}));
  flush();
}

TEST_F(SegmentTest, AForgottenTapeIsNotFollowed) {
  Storage a = input(), b = input(), x;
  const Segment segment = known(a, b);
  {
    std::lock_guard lock(recorder.mutex());
    recorder.clear_tapes();
  }
  EXPECT_TRUE(segment.tape->forgotten);
  record(mul, {&a, &a}, &x);
  EXPECT_FALSE(follow(segment, {&a, &b}));
  flush();
}

TEST_F(SegmentTest, ATraceThatHasLeftItsTapeFollowsNone) {
  Storage a = input(), b = input(), x, y;
  const Segment segment = known(a, b);
  record(add, {&a, &a}, &x);
  EXPECT_FALSE(follow(segment, {&a, &b}));
  flush();
}

TEST_F(SegmentTest, WhatIsTakenBesideTheOperandsIsNoSegment) {
  Storage a = input(), b = input();
  for (int i = 0; i < 2; i++) {
    const Place from = place();
    graph(a, b);
    EXPECT_FALSE(since(from, {&a})) << "b may be another one";
    flush();
  }
}

TEST_F(SegmentTest, AnOperandThatIsNotReadMayBeAnyOther) {
  Storage a = input(), b = input(), other = input(), third = input(8);
  std::optional<Segment> segment;
  for (int i = 0; i < 2; i++) {
    const Place from = place();
    graph(a, b);
    segment = since(from, {&a, &b, &other});
    flush();
  }
  ASSERT_TRUE(segment);
  EXPECT_EQ(segment->operands[2], Segment::kUnread);
  EXPECT_TRUE(follow(*segment, {&a, &b, &third}));
  flush();
}

TEST_F(SegmentTest, WritesOfOperandsAndRandomNumbersAreNoSegments) {
  Storage a = input(), b = input();
  Op random = add;
  random.random = true;
  for (Op* op : {&add_in_place, &random})
    for (int i = 0; i < 2; i++) {
      Storage x;
      const Place from = place();
      record(*op, {&a, &b}, op == &random ? &x : nullptr);
      EXPECT_FALSE(since(from, {&a, &b}));
      flush();
    }
}

TEST_F(SegmentTest, WritesOfWhatItMadeAreOfTheSegment) {
  Storage a = input(), b = input();
  std::optional<Segment> segment;
  for (int i = 0; i < 2; i++) {
    Storage x;
    const Place from = place();
    record(add, {&a, &b}, &x);
    record(add_in_place, {&x, &b}, nullptr);
    segment = since(from, {&a, &b});
    flush();
    forget({&x});
  }
  ASSERT_TRUE(segment);
  EXPECT_TRUE(segment->makes(segment->end.slots - 1));
  EXPECT_TRUE(follow(*segment, {&a, &b}));
  flush();
}

TEST_F(SegmentTest, OperandsThatAreToBeWrittenAreAndMayBeOthers) {
  Storage a = input(), sum = input();
  std::optional<Segment> segment;
  for (int i = 0; i < 2; i++) {
    const Place from = place();
    record(add_in_place, {&sum, &a}, nullptr);
    segment = since(from, {&a}, {&sum});
    flush();
  }
  ASSERT_TRUE(segment);
  ASSERT_EQ(segment->written.size(), 1u);
  Storage b = input(), other = input();
  ASSERT_TRUE(follow(*segment, {&b, &other}));
  {
    std::lock_guard lock(recorder.mutex());
    recorder.bind(other, segment->written[0]);
  }
  Launch launch = flush();
  EXPECT_EQ(launch.tape.get(), segment->tape.get());
  EXPECT_EQ(other.data.get(), launch.outputs.at(0).get());
}

TEST_F(SegmentTest, AnOperandThatWasNotWrittenIsNoneThatIs) {
  Storage a = input(), sum = input(), x;
  for (int i = 0; i < 2; i++) {
    const Place from = place();
    record(add, {&sum, &a}, &x);
    EXPECT_FALSE(since(from, {&a}, {&sum}));
    flush();
  }
}

// Of a trace of two calls, as a caller sees it whose records depend on more than the words.
class BeforeTest : public SegmentTest {
 protected:
  void calls(double number, std::vector<uint64_t> nodes_at = {7, 8}) {
    nodes = nodes_at[0];
    record(mul, {&a}, &x, number, true);
    nodes = nodes_at[1];
    record(add, {&x, &a}, &y);
  }
  std::optional<Before> before() {
    const Place here = place();
    std::lock_guard lock(recorder.mutex());
    return recorder.before(here);
  }
  bool came_as(const Before& b) {
    std::lock_guard lock(recorder.mutex());
    return recorder.came_as(b);
  }
  void SetUp() override {
    calls(2);
    flush();
    calls(2);
    known = before();
    ASSERT_TRUE(known);
    flush();
  }
  Storage a = input(), x, y;
  std::optional<Before> known;
};

TEST_F(BeforeTest, NumbersAndNodesAreThoseThatTheyWere) {
  calls(2, {107, 108});
  EXPECT_TRUE(came_as(*known));
  flush();
  calls(3);
  EXPECT_FALSE(came_as(*known));
  flush();
  calls(2, {7, 9});
  EXPECT_FALSE(came_as(*known));
  flush();
}

TEST_F(BeforeTest, WhatHooksHaveKeptIsNotKnown) {
  calls(2, {7 | kHooked, 8 | kHooked});
  EXPECT_FALSE(came_as(*known));
  EXPECT_FALSE(before());
  flush();
}

TEST_F(BeforeTest, ReplacedBytesOfTheTraceAreNotKnownAndOthersAreNothing) {
  Storage other = input();
  const auto replace = [&](Storage& s) {
    std::lock_guard lock(recorder.mutex());
    recorder.set_data(s, data(4));
  };
  calls(2);
  replace(other);
  EXPECT_TRUE(came_as(*known));
  replace(a);
  EXPECT_FALSE(came_as(*known));
  flush();
  calls(2);
  EXPECT_TRUE(came_as(*known));
  flush();
}

TEST_F(BeforeTest, NodesOfThisTraceBeginBehindTheLast) {
  EXPECT_EQ(recorder.first_node(), 8u);
  calls(2, {20, 21 | kHooked});
  EXPECT_EQ(recorder.first_call(), 20u);
  flush();
  EXPECT_EQ(recorder.first_node(), 21u);
}

TEST_F(BeforeTest, WhatWasWrittenSinceANodeMayHaveKeptItIsNotRead) {
  const auto reads = [&](std::vector<uint64_t> nodes_at, bool write) {
    bool keeps = false;
    for (int i = 0; i < 2; i++) {
      nodes = nodes_at[0];
      record(add, {&a, &a}, &x);
      nodes = nodes_at[1];
      record(mul, {&x, &a}, &y);
      if (write) {
        nodes = nodes_at[2];
        record(add_in_place, {&x, &a}, nullptr);
      }
      nodes = nodes_at[3];
      Storage z;
      const Place from = place();
      record(mul, {&x, &x}, &z);
      const auto segment = since(from, {});
      std::lock_guard lock(recorder.mutex());
      keeps = segment && recorder.reads_what_nodes_keep(*segment);
      recorder.forget(z);
      recorder.flush(FlushReason::kMarkStep);
    }
    return keeps;
  };
  EXPECT_TRUE(reads({1, 2, 2, 2}, false));
  EXPECT_FALSE(reads({1, 2, 2, 2}, true));  // y's node may have kept x
  EXPECT_TRUE(reads({1, 1, 1, 2}, true));   // nobody can have
  EXPECT_TRUE(reads({1, 2, 3, 3}, true));   // the write is a node's
}

TEST_F(SegmentTest, WhatAnotherThreadsTraceHoldsIsNotFollowed) {
  Storage a = input(), b = input(), x, y;
  const Segment segment = known(a, b);
  Recorder other;
  record_on(other, add, {&b, &b}, &y);  // b as an input there
  record(mul, {&a, &a}, &x);
  EXPECT_FALSE(follow(segment, {&a, &b}));
  flush(other);
  flush();
  EXPECT_FALSE(other.follow(segment, std::vector<Storage*>{&a, &b}));  // a recorder's tapes are its own
  forget({&a, &b});
}

}  // namespace
}  // namespace lazyt::trace
