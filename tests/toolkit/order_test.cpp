#include "lazyt/toolkit/order.hpp"

#include "program_text.h"
#include "roles.h"

namespace lazyt::toolkit {
namespace {

using Units = std::vector<std::vector<uint32_t>>;

// Each unit as its nodes' numbers, as fuse() has them and as they run.
struct Orders {
  Units fused, run;
};
Orders orders(const std::string& body) {
  ProgramText text(body);
  const auto program = text.view();
  const auto fused = fuse(program, [&](uint32_t i) { return role_of(program, i); });
  Orders out;
  for (const Unit& u : fused) out.fused.push_back(u.nodes);
  for (const Unit& u : ordered(program, fused)) out.run.push_back(u.nodes);
  return out;
}

TEST(Order, ASumRunsBehindWhatItReads) {
  const Orders o = orders("program(%0: f32[4,4]) {\n"
                          "  %1 = aten::mm(%0, %0) : f32[4,4]\n"
                          "  %2 = aten::sum(%1, none) : f32[]\n"
                          "  %3 = aten::mm(%1, %0) : f32[4,4]\n"
                          "  %4 = aten::mm(%3, %0) : f32[4,4]\n"
                          "  return %2, %4\n}\n");
  EXPECT_EQ(o.fused, (Units{{0}, {2}, {3}, {1}}));
  EXPECT_EQ(o.run, (Units{{0}, {1}, {2}, {3}}));
}

TEST(Order, AndWhoeverWaitsForItRunsBehindIt) {
  const Orders o = orders("program(%0: f32[4,4]) {\n"
                          "  %1 = aten::mm(%0, %0) : f32[4,4]\n"
                          "  %2 = aten::sum(%1, none) : f32[]\n"
                          "  %3 = aten::mm(%1, %0) : f32[4,4]\n"
                          "  %4 = aten::neg(%2) : f32[]\n"
                          "  return %4, %3\n}\n");
  EXPECT_EQ(o.fused, (Units{{0}, {2}, {1}, {3}}));
  EXPECT_EQ(o.run, (Units{{0}, {1}, {3}, {2}}));
}

TEST(Order, WhatTakesMuchMemoryUntilItIsReadStays) {
  const Orders o = orders("program(%0: f32[4,4]) {\n"
                          "  %1 = aten::mm(%0, %0) : f32[4,4]\n"
                          "  %2 = aten::neg(%1) : f32[4,4]\n"
                          "  %3 = aten::mm(%0, %1) : f32[4,4]\n"
                          "  %4 = aten::mm(%3, %2) : f32[4,4]\n"
                          "  return %4\n}\n");
  EXPECT_EQ(o.run, o.fused);
  EXPECT_EQ(o.run, (Units{{0}, {2}, {1}, {3}}));
}

TEST(Order, WhatReadsNothingThatIsMadeStays) {
  const Orders o = orders("program(%0: f32[4,4]) {\n"
                          "  %1 = aten::neg(%0) : f32[4,4]\n"
                          "  %2 = aten::mm(%0, %0) : f32[4,4]\n"
                          "  return %1, %2\n}\n");
  EXPECT_EQ(o.run, (Units{{1}, {0}}));
}

// A step of an optimizer: %1 is given for its result.
TEST(Order, AnOutputIsMadeEarly) {
  const Orders o = orders("program(%0: f32[4,4], %1: f32[4,4] donate) {\n"
                          "  %2 = aten::mm(%0, %1) : f32[4,4]\n"
                          "  %3 = aten::mm(%0, %0) : f32[4,4]\n"
                          "  %4 = aten::add.Tensor(%1, %2, 1) : f32[4,4]\n"
                          "  return %4 <- %1, %3\n}\n");
  EXPECT_EQ(o.fused, (Units{{0}, {1}, {2}}));
  EXPECT_EQ(o.run, (Units{{0}, {2}, {1}}));
}

TEST(Order, ButBehindAllThatReadItsDonor) {
  const Orders o = orders("program(%0: f32[4,4], %1: f32[4,4] donate) {\n"
                          "  %2 = aten::mm(%0, %1) : f32[4,4]\n"
                          "  %3 = aten::t(%1) : f32[4,4]\n"
                          "  %4 = aten::mm(%0, %3) : f32[4,4]\n"
                          "  %5 = aten::mm(%0, %0) : f32[4,4]\n"
                          "  %6 = aten::add.Tensor(%1, %2, 1) : f32[4,4]\n"
                          "  return %6 <- %1, %4, %5\n}\n");
  EXPECT_EQ(o.run, (Units{{0}, {1}, {2}, {4}, {3}}));
}

TEST(Order, AndNotAtAllIfItsDonorIsReadLater) {
  const Orders o = orders("program(%0: f32[4,4], %1: f32[4,4] donate) {\n"
                          "  %2 = aten::mm(%0, %1) : f32[4,4]\n"
                          "  %3 = aten::mm(%0, %0) : f32[4,4]\n"
                          "  %4 = aten::add.Tensor(%1, %2, 1) : f32[4,4]\n"
                          "  %5 = aten::sum(%4, none) : f32[]\n"
                          "  %6 = aten::mm(%3, %1) : f32[4,4]\n"
                          "  %7 = aten::sum(%1, none) : f32[]\n"
                          "  return %4 <- %1, %5, %6, %7\n}\n");
  EXPECT_EQ(o.run, o.fused);
}

}  // namespace
}  // namespace lazyt::toolkit
