#include "lazyt/toolkit/fusion.hpp"

#include "program_text.h"
#include "roles.h"

namespace lazyt::toolkit {
namespace {

// Each unit as its nodes' numbers.
std::vector<std::vector<uint32_t>> units(const std::string& body, FusionLimits limits = {}) {
  ProgramText text(body);
  const auto program = text.view();
  std::vector<std::vector<uint32_t>> out;
  for (const Unit& u : fuse(program, [&](uint32_t i) { return role_of(program, i); }, limits)) out.push_back(u.nodes);
  return out;
}

using Units = std::vector<std::vector<uint32_t>>;

TEST(Fuse, AChainIsOneUnit) {
  EXPECT_EQ(units("program(%0: f32[8]) {\n"
                  "  %1 = aten::neg(%0) : f32[8]\n"
                  "  %2 = aten::exp(%1) : f32[8]\n"
                  "  %3 = aten::mul.Tensor(%2, %1) : f32[8]\n"
                  "  return %3\n}\n"),
            (Units{{0, 1, 2}}));
}

TEST(Fuse, BranchesThatMeetBecomeOneUnit) {
  EXPECT_EQ(units("program(%0: f32[8], %1: f32[8]) {\n"
                  "  %2 = aten::neg(%0) : f32[8]\n"
                  "  %3 = aten::exp(%1) : f32[8]\n"
                  "  %4 = aten::mul.Tensor(%2, %3) : f32[8]\n"
                  "  return %4\n}\n"),
            (Units{{0, 1, 2}}));
}

TEST(Fuse, AMatmulClosesTheUnitThatItReads) {
  EXPECT_EQ(units("program(%0: f32[4,4]) {\n"
                  "  %1 = aten::neg(%0) : f32[4,4]\n"
                  "  %2 = aten::mm(%1, %0) : f32[4,4]\n"
                  "  %3 = aten::exp(%2) : f32[4,4]\n"
                  "  %4 = aten::mul.Tensor(%3, %1) : f32[4,4]\n"
                  "  return %4\n}\n"),
            (Units{{0}, {1}, {2, 3}}));
}

TEST(Fuse, AReductionEndsAUnitAndItsReadersBeginAnother) {
  EXPECT_EQ(units("program(%0: f32[4,4]) {\n"
                  "  %1 = aten::neg(%0) : f32[4,4]\n"
                  "  %2 = aten::sum(%1, none) : f32[]\n"
                  "  %3 = aten::div.Tensor(%1, %2) : f32[4,4]\n"
                  "  return %3\n}\n"),
            (Units{{0, 1}, {2}}));
}

TEST(Fuse, ABroadcastOperandIsMadeFirst) {
  EXPECT_EQ(units("program(%0: f32[4], %1: f32[3,4]) {\n"
                  "  %2 = aten::exp(%0) : f32[4]\n"
                  "  %3 = aten::neg(%1) : f32[3,4]\n"
                  "  %4 = aten::mul.Tensor(%3, %2) : f32[3,4]\n"
                  "  return %4\n}\n"),
            (Units{{0}, {1, 2}}));
}

TEST(Fuse, AUnitHasNoMoreNodesThanAllowed) {
  EXPECT_EQ(units("program(%0: f32[8]) {\n"
                  "  %1 = aten::neg(%0) : f32[8]\n"
                  "  %2 = aten::exp(%1) : f32[8]\n"
                  "  %3 = aten::neg(%2) : f32[8]\n"
                  "  return %3\n}\n",
                  {.nodes = 2}),
            (Units{{0, 1}, {2}}));
}

TEST(Fuse, AUnitHasNoMoreValuesThanAllowed) {
  // Two operands and a result; an operand, a number and a result; two operands more, of which one is known.
  const std::string body = "program(%0: f32[8], %1: f32[8], %2: f32[8]) {\n"
                           "  %3 = aten::mul.Tensor(%0, %1) : f32[8]\n"
                           "  %4 = aten::mul.Scalar(%3, 2.5) : f32[8]\n"
                           "  %5 = aten::mul.Tensor(%4, %0) : f32[8]\n"
                           "  %6 = aten::mul.Tensor(%5, %2) : f32[8]\n"
                           "  return %6\n}\n";
  EXPECT_EQ(units(body), (Units{{0, 1, 2, 3}}));
  EXPECT_EQ(units(body, {.values = 9}), (Units{{0, 1, 2, 3}}));
  EXPECT_EQ(units(body, {.values = 8}), (Units{{0, 1, 2}, {3}}));
  EXPECT_EQ(units(body, {.values = 6}), (Units{{0, 1}, {2, 3}}));
  EXPECT_EQ(units(body, {.values = 3}), (Units{{0}, {1}, {2}, {3}}));
}

TEST(Fuse, UnitsOfTooManyValuesAreNotMerged) {
  const std::string body = "program(%0: f32[8], %1: f32[8]) {\n"
                           "  %2 = aten::neg(%0) : f32[8]\n"
                           "  %3 = aten::neg(%1) : f32[8]\n"
                           "  %4 = aten::mul.Tensor(%2, %3) : f32[8]\n"
                           "  return %4\n}\n";
  EXPECT_EQ(units(body, {.values = 7}), (Units{{0, 1, 2}}));
  EXPECT_EQ(units(body, {.values = 3}), (Units{{1}, {0}, {2}}));
}

std::string sum_of_products(const std::string& type) {
  return "program(%0: " + type + ") {\n" +                    //
         "  %1 = aten::mm(%0, %0) : " + type + "\n" +          //
         "  %2 = aten::mm(%1, %0) : " + type + "\n" +          //
         "  %3 = aten::mul.Tensor(%1, %2) : " + type + "\n" +  //
         "  %4 = aten::mm(%2, %0) : " + type + "\n" +          //
         "  %5 = aten::mul.Tensor(%3, %4) : " + type + "\n" +  //
         "  return %5\n}\n";
}

TEST(Fuse, AUnitForWhichManyBytesWaitRunsBeforeMoreAreMade) {
  const std::string large = sum_of_products("f32[256,256]");
  EXPECT_EQ(units(large), (Units{{0}, {1}, {3}, {2, 4}}));
  EXPECT_EQ(units(large, {.waiting = 2}), (Units{{0}, {1}, {3}, {2}, {4}}));
  EXPECT_EQ(units(large, {.waiting = 3}), (Units{{0}, {1}, {3}, {2, 4}}));
  EXPECT_EQ(units(sum_of_products("f32[4,4]"), {.waiting = 2}), (Units{{0}, {1}, {3}, {2, 4}}));
}

// A and B grow side by side; B reads A's value through a matmul, so they must not merge afterwards.
TEST(Fuse, AUnitNeverWaitsForItself) {
  EXPECT_EQ(units("program(%0: f32[4,4]) {\n"
                  "  %1 = aten::neg(%0) : f32[4,4]\n"
                  "  %2 = aten::mm(%1, %0) : f32[4,4]\n"
                  "  %3 = aten::exp(%1) : f32[4,4]\n"
                  "  %4 = aten::mul.Tensor(%3, %2) : f32[4,4]\n"
                  "  return %4\n}\n"),
            (Units{{0}, {1}, {2, 3}}));
}

TEST(Fuse, IndependentChainsStayApart) {
  EXPECT_EQ(units("program(%0: f32[8], %1: f32[8]) {\n"
                  "  %2 = aten::neg(%0) : f32[8]\n"
                  "  %3 = aten::neg(%1) : f32[8]\n"
                  "  %4 = aten::exp(%2) : f32[8]\n"
                  "  %5 = aten::exp(%3) : f32[8]\n"
                  "  return %4, %5\n}\n"),
            (Units{{0, 2}, {1, 3}}));
}

}  // namespace
}  // namespace lazyt::toolkit
