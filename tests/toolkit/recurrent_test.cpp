// What the cells of recurrent layers take. They stand in no opset, so nobody has looked at their calls before.
#include "lazyt/toolkit/recurrent.hpp"

#include "program_text.h"

namespace lazyt::toolkit {
namespace {

bool takes_backward(const std::string& results, const std::string& arguments, const std::string& types) {
  const ProgramText text("program(%0: f32[2,12], %1: f32[2,3]) {\n  " + results + " = aten::_thnn_fused_lstm_cell_backward_impl(" + arguments +
                         ") : " + types + "\n  return %2\n}\n");
  const plugin::ProgramView program = text.view();
  return recurrent::accept_lstm_backward(program, program.nodes()[0]).reason == LAZYT_REASON_NONE;
}

TEST(Recurrent, ACallWithOtherArgumentsOrResultsIsRefused) {
  EXPECT_TRUE(takes_backward("%2, %3, %4", "%1, none, %1, %1, %0, false", "f32[2,12], f32[2,3], f32[0]"));
  EXPECT_FALSE(takes_backward("%2, %3", "%1, none, %1, %1, %0, false", "f32[2,12], f32[2,3]"));
  EXPECT_FALSE(takes_backward("%2, %3, %4", "%1, none, %1, %1, %0", "f32[2,12], f32[2,3], f32[0]"));
}

TEST(Recurrent, ABackwardCallWithoutAGradientIsRefused) {
  EXPECT_FALSE(takes_backward("%2, %3, %4", "none, none, %1, %1, %0, false", "f32[2,12], f32[2,3], f32[0]"));
}

TEST(Recurrent, ACallWhoseShapesDoNotFitIsRefused) {
  EXPECT_TRUE(takes_backward("%2, %3, %4", "%1, %1, %1, %1, %0, true", "f32[2,12], f32[2,3], f32[12]"));
  EXPECT_FALSE(takes_backward("%2, %3, %4", "%1, none, %1, %1, %1, false", "f32[2,12], f32[2,3], f32[0]"));  // workspace
  EXPECT_FALSE(takes_backward("%2, %3, %4", "%1, none, %1, %0, %0, false", "f32[2,12], f32[2,3], f32[0]"));
  EXPECT_FALSE(takes_backward("%2, %3, %4", "%1, none, none, %1, %0, false", "f32[2,12], f32[2,3], f32[0]"));
  EXPECT_FALSE(takes_backward("%2, %3, %4", "%1, none, %1, %1, %0, none", "f32[2,12], f32[2,3], f32[0]"));
  EXPECT_FALSE(takes_backward("%2, %3, %4", "%1, none, %1, %1, %0, false", "f32[2,9], f32[2,3], f32[0]"));
  EXPECT_FALSE(takes_backward("%2, %3, %4", "%1, none, %1, %1, %0, false", "f32[2,12], f32[2,3], f32[3]"));
}

}  // namespace
}  // namespace lazyt::toolkit
