// Images of other sizes: taps lie in the operand, and calls that do not fit are refused.
#include "lazyt/toolkit/resizing.hpp"

#include <numeric>

#include "program_text.h"

namespace lazyt::toolkit::taps {
namespace {

TEST(Resizing, EveryTapLiesInTheOperandAndWeightsAddUpToOne) {
  for (int64_t inputs : {1, 2, 3, 7, 40})
    for (int64_t outputs : {1, 2, 3, 6, 7, 14, 80, 81})
      for (std::optional<double> scale : {std::optional<double>(), {0.3}, {2.01}, {1e-9}, {1e9}, {-1.0}, {0.0}})
        for (bool corners : {false, true})
          for (const Taps& t :
               {nearest<float>(false, Index::kShort, scale, inputs, outputs), nearest<float>(true, Index::kShort, scale, inputs, outputs),
                nearest<double>(false, Index::kPrecise, scale, inputs, outputs), nearest<float>(true, Index::kPrecise, scale, inputs, outputs),
                linear<float>(corners, scale, inputs, outputs), cubic<double>(corners, scale, inputs, outputs),
                wide<double>(Filter::kTriangle, corners, scale, inputs, outputs), wide<double>(Filter::kKeys, corners, scale, inputs, outputs),
                wide<double>(Filter::kLanczos, corners, scale, inputs, outputs)}) {
            ASSERT_EQ(t.outputs(), outputs);
            for (int32_t i : t.index) ASSERT_TRUE(i >= 0 && i < inputs) << i << " of " << inputs;
            for (int64_t o = 0; o < outputs; ++o) {
              if (t.begin[o] == t.begin[o + 1]) continue;  // a scale that leads outside
              const double sum = std::accumulate(t.weight.begin() + t.begin[o], t.weight.begin() + t.begin[o + 1], 0.0);
              ASSERT_NEAR(sum, 1, 1e-6);
            }
          }
}

TEST(Resizing, TheGradientOfAllTapsIsTheirTranspose) {
  const Taps t = cubic<double>(false, std::nullopt, 5, 9), back = t.transposed();
  double forth[9][5] = {}, over[5][9] = {};
  for (int64_t o = 0; o < 9; ++o)
    for (int32_t k = t.begin[o]; k < t.begin[o + 1]; ++k) forth[o][t.index[k]] += t.weight[k];
  for (int64_t i = 0; i < 5; ++i)
    for (int32_t k = back.begin[i]; k < back.begin[i + 1]; ++k) over[i][back.index[k]] += back.weight[k];
  for (int64_t o = 0; o < 9; ++o)
    for (int64_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(forth[o][i], over[i][o]);
}

bool takes(const std::string& call, const std::string& x, const std::string& y, const std::string& more = "") {
  const std::string made = more.empty() ? "%1" : "%2";
  const ProgramText text("program(%0: " + x + more + ") {\n  " + made + " = aten::" + call + " : " + y + "\n  return " + made + "\n}\n");
  const plugin::ProgramView program = text.view();
  return accept_resizing(program, program.nodes()[0]).reason == LAZYT_REASON_NONE;
}

TEST(Resizing, BordersThatDoNotFitAreRefused) {
  EXPECT_TRUE(takes("reflection_pad3d(%0, ints[1, 1, 1, 1, 1, 1])", "f32[1,2,3,4,5]", "f32[1,2,5,6,7]"));
  EXPECT_FALSE(takes("reflection_pad3d(%0, ints[1, 1, 1, 1])", "f32[1,2,3,4,5]", "f32[1,2,5,6,7]"));
  EXPECT_FALSE(takes("reflection_pad3d(%0, ints[1, 1, 1, 1, 3, 1])", "f32[1,2,3,4,5]", "f32[1,2,7,6,7]"));  // as wide as the image
  EXPECT_TRUE(takes("replication_pad3d(%0, ints[1, 1, 1, 1, 3, 1])", "f32[1,2,3,4,5]", "f32[1,2,7,6,7]"));
  EXPECT_FALSE(takes("replication_pad3d(%0, ints[1, 1, 1, 1, 3, 1])", "f32[1,2,3,4,5]", "f32[1,2,7,6,9]"));
  EXPECT_FALSE(takes("replication_pad1d(%0, ints[1, 1])", "f32[2,0]", "f32[2,2]"));
  EXPECT_FALSE(takes("replication_pad1d(%0, ints[1, 1])", "f32[5]", "f32[7]"));
  EXPECT_TRUE(takes("reflection_pad1d_backward(%0, %1, ints[1, 1])", "f32[2,7]", "f32[2,5]", ", %1: f32[2,5]"));
  EXPECT_FALSE(takes("reflection_pad1d_backward(%0, ints[1, 1])", "f32[2,7]", "f32[2,5]"));
}

TEST(Resizing, SizesThatDoNotFitAreRefused) {
  EXPECT_TRUE(takes("upsample_bicubic2d(%0, ints[8, 8], false, none, none)", "f32[1,2,4,4]", "f32[1,2,8,8]"));
  EXPECT_FALSE(takes("upsample_bicubic2d(%0, ints[8, 8], false, none)", "f32[1,2,4,4]", "f32[1,2,8,8]"));
  EXPECT_FALSE(takes("upsample_bicubic2d(%0, ints[8, 8], none, none, none)", "f32[1,2,4,4]", "f32[1,2,8,8]"));
  EXPECT_FALSE(takes("upsample_bicubic2d(%0, ints[8, 8], false, none, none)", "f32[1,3,4,4]", "f32[1,2,8,8]"));
  EXPECT_FALSE(takes("upsample_bicubic2d(%0, ints[8, 8], false, none, none)", "f32[1,2,0,4]", "f32[1,2,8,8]"));
  EXPECT_FALSE(takes("upsample_bicubic2d(%0, ints[8, 8], false, none, none)", "f32[4,4]", "f32[8,8]"));
  EXPECT_FALSE(takes("upsample_linear1d(%0, ints[8], false, 1e-12)", "f32[1,2,4]", "f32[1,2,8]"));
  EXPECT_TRUE(takes("upsample_trilinear3d_backward(%0, ints[2, 4, 4], ints[1, 1, 2, 2, 2], false, none, none, none)", "f32[1,1,2,4,4]", "f32[1,1,2,2,2]"));
  EXPECT_FALSE(takes("_upsample_lanczos2d_aa(%0, ints[8, 8], false, none, none)", "bf16[1,2,4,4]", "bf16[1,2,8,8]"));
  EXPECT_TRUE(takes("upsample_nearest1d(%0, ints[8], none)", "u8[1,2,4]", "u8[1,2,8]"));
  EXPECT_FALSE(takes("upsample_linear1d(%0, ints[8], false, none)", "u8[1,2,4]", "u8[1,2,8]"));
}

}  // namespace
}  // namespace lazyt::toolkit::taps
