#include "base/status.h"

#include <gtest/gtest.h>

#include <array>

namespace lazyt::base {
namespace {

Status fails() { return invalid_argument("no such thing"); }
Status passes_on() {
  LAZYT_RETURN_IF_ERROR(Status());
  LAZYT_RETURN_IF_ERROR(fails());
  return internal("not reached");
}
Result<int> half(int n) {
  if (n % 2) return invalid_argument("odd");
  return n / 2;
}
Result<int> quarter(int n) {
  LAZYT_ASSIGN_OR_RETURN(int h, half(n));
  LAZYT_ASSIGN_OR_RETURN(int q, half(h));
  return q;
}

TEST(Status, IsOkByDefaultAndCostsAPointer) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().to_string(), "OK");
  EXPECT_EQ(Status().message(), "");
  EXPECT_LE(sizeof(Status), 2 * sizeof(void*));
}

TEST(Status, WithCodeOkIsOk) { EXPECT_TRUE(Status(LAZYT_CODE_OK, "ignored").ok()); }

TEST(Status, CollectsNotesOnTheWayUpWithoutChangingItsCopies) {
  Status first = data_loss("bad byte");
  Status second = first.with_note("load", "a.lzp").with_note("step", "3");
  EXPECT_TRUE(first.notes().empty());
  EXPECT_EQ(second.notes().size(), 2u);
  EXPECT_EQ(second.to_string(), "[DATA_LOSS] bad byte\n  load: a.lzp\n  step: 3");
  EXPECT_TRUE(Status().with_note("a", "b").ok());
}

TEST(Status, IsReturnedByTheMacro) { EXPECT_EQ(passes_on().message(), "no such thing"); }

TEST(Status, HasANameForEveryCode) {
  EXPECT_EQ(code_name(LAZYT_CODE_UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_EQ(code_name(LAZYT_CODE_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(code_name(17), "CODE_17");
  EXPECT_EQ(code_name(-1), "CODE_-1");
}

TEST(Result, HoldsAValueOrTheReason) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_FALSE(quarter(1).ok());
}

}  // namespace
}  // namespace lazyt::base
