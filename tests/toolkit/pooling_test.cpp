// Pools: all of PyTorch's are known, and calls that do not fit are refused.
#include "lazyt/toolkit/pooling.hpp"

#include "program_text.h"

namespace lazyt::toolkit::taps {
namespace {

// more: the operands behind the first, which are %1 and so on. results: types of the results.
bool takes(const std::string& call, const std::string& x, std::vector<std::string> more, const std::vector<std::string>& results) {
  std::string operands = "%0: " + x, made, types;
  size_t next = 1;
  for (const std::string& type : more) operands += ", %" + std::to_string(next++) + ": " + type;
  for (const std::string& type : results) {
    made += (made.empty() ? "%" : ", %") + std::to_string(next++);
    types += (types.empty() ? "" : ", ") + type;
  }
  const ProgramText text("program(" + operands + ") {\n  " + made + " = aten::" + call + " : " + types + "\n  return " + made + "\n}\n");
  const plugin::ProgramView program = text.view();
  return accept_pooling(program, program.nodes()[0]).reason == LAZYT_REASON_NONE;
}

TEST(Pooling, GradientsOfVolumesAreKnown) {
  EXPECT_EQ(poolings().size(), 18u);
  for (const char* name : {"aten::max_pool3d_with_indices_backward", "aten::avg_pool3d_backward", "aten::_adaptive_avg_pool3d_backward",
                           "aten::adaptive_max_pool3d_backward", "aten::adaptive_max_pool2d_backward"})
    EXPECT_TRUE(poolings().contains(name)) << name;
}

TEST(Pooling, CallsThatDoNotFitAreRefused) {
  const std::string x = "f32[2,4,4,4]", y = "f32[2,2,2,2]", at = "i64[2,2,2,2]";
  const auto max = [](const char* kernel, const char* padding) {
    return std::string("max_pool3d_with_indices_backward(%0, %1, ints[") + kernel + "], ints[], ints[" + padding + "], ints[1], false, %2)";
  };
  EXPECT_TRUE(takes(max("2", "0"), y, {x, at}, {x}));
  EXPECT_TRUE(takes(max("2, 2, 2", "0, 0, 0"), y, {x, at}, {x}));
  EXPECT_FALSE(takes(max("2, 2", "0"), y, {x, at}, {x}));
  EXPECT_FALSE(takes(max("0", "0"), y, {x, at}, {x}));
  EXPECT_FALSE(takes(max("4000000000", "0"), y, {x, at}, {x}));
  EXPECT_FALSE(takes(max("2", "-1"), y, {x, at}, {x}));
  EXPECT_FALSE(takes(max("2", "0"), y, {x, "i64[2,2,2,1]"}, {x}));
  EXPECT_FALSE(takes(max("2", "0"), y, {x, "i32[2,2,2,2]"}, {x}));
  EXPECT_FALSE(takes(max("2", "0"), "f64[2,2,2,2]", {x, at}, {x}));
  EXPECT_FALSE(takes(max("2", "0"), y, {x, at}, {"f32[2,4,4,5]"}));
  EXPECT_FALSE(takes(max("2", "0"), "f32[3,2,2,2]", {x, at}, {x}));
  EXPECT_FALSE(takes("max_pool3d_with_indices_backward(%0, %1, ints[2], ints[2], ints[0], ints[1], false)", y, {x}, {x}));
  EXPECT_TRUE(takes("avg_pool3d_backward(%0, %1, ints[2], ints[2], ints[0], false, true, none)", y, {x}, {x}));
  EXPECT_FALSE(takes("avg_pool3d_backward(%0, %1, ints[2], ints[2], ints[0], false, true)", y, {x}, {x}));
  EXPECT_TRUE(takes("_adaptive_avg_pool3d_backward(%0, %1)", y, {x}, {x}));
  EXPECT_FALSE(takes("_adaptive_avg_pool3d_backward(%0, %1)", "f32[2,0,2,2]", {x}, {x}));
  EXPECT_FALSE(takes("_adaptive_avg_pool3d_backward(%0, %1)", "f32[2,2,2]", {"f32[4,4,4]"}, {"f32[4,4,4]"}));
  EXPECT_TRUE(takes("adaptive_max_pool3d(%0, ints[2, 2, 2])", x, {}, {y, at}));
  EXPECT_FALSE(takes("adaptive_max_pool3d(%0, ints[2, 2, 2])", x, {}, {y}));
  EXPECT_FALSE(takes("adaptive_max_pool3d(%0, ints[2, 2, 2])", "i64[2,4,4,4]", {}, {at, at}));
  EXPECT_TRUE(takes("adaptive_max_pool2d_backward(%0, %1, %2)", "f32[2,2,2]", {"f32[2,4,4]", "i64[2,2,2]"}, {"f32[2,4,4]"}));
}

}  // namespace
}  // namespace lazyt::toolkit::taps
