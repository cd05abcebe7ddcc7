// view.dtype stands in no opset, so nobody has looked at its calls before.
#include "lazyt/toolkit/moves.hpp"

#include "program_text.h"

namespace lazyt::toolkit {
namespace {

bool takes(const std::string& x, const std::string& arguments, const std::string& y) {
  const ProgramText text("program(%0: " + x + ") {\n  %1 = aten::view.dtype(" + arguments + ") : " + y + "\n  return %1\n}\n");
  const plugin::ProgramView program = text.view();
  return moves::accept_bitcast(program, program.nodes()[0]).reason == LAZYT_REASON_NONE;
}

TEST(Bitcast, AViewOfTheSameBytesIsTaken) {
  EXPECT_TRUE(takes("f32[2,3]", "%0, dtype(i32)", "i32[2,3]"));
  EXPECT_TRUE(takes("f32[2,3]", "%0, dtype(i16)", "i16[2,6]"));
  EXPECT_TRUE(takes("f32[2,4]", "%0, dtype(f64)", "f64[2,2]"));
}

TEST(Bitcast, OtherBytesAndOtherArgumentsAreRefused) {
  EXPECT_FALSE(takes("f32[2,3]", "%0, dtype(i16)", "i16[2,7]"));
  EXPECT_FALSE(takes("f32[2,3]", "%0, dtype(i32)", "i32[3,2]"));
  EXPECT_FALSE(takes("f32[2,3]", "%0, dtype(i32)", "i32[6]"));
  EXPECT_FALSE(takes("f32[2,3]", "%0", "i32[2,3]"));
  EXPECT_FALSE(takes("f32[2,3]", "none, dtype(i32)", "i32[2,3]"));
}

Tensor part(const Dims& dims, const Dims& strides) { return {0, LAZYT_DTYPE_FLOAT32, {0, dims, strides}}; }
const Tensor kChannelsLast = part({2, 3, 4, 5}, {60, 1, 15, 3}), kRowMajor = part({2, 3, 4, 5}, {60, 20, 5, 1});

TEST(Cat, PartsThatLieChannelsLastStaySo) {
  EXPECT_EQ(moves::strides_of_cat(std::vector{kChannelsLast, kChannelsLast}, {2, 6, 4, 5}, 1), (Dims{120, 1, 30, 6}));
}

TEST(Cat, MostElementsDecide) {
  const Tensor more = part({2, 4, 4, 5}, {80, 20, 5, 1});
  EXPECT_EQ(moves::strides_of_cat(std::vector{kChannelsLast, more}, {2, 7, 4, 5}, 1), (Dims{140, 20, 5, 1}));
  EXPECT_EQ(moves::strides_of_cat(std::vector{kChannelsLast, kRowMajor}, {2, 6, 4, 5}, 1), (Dims{120, 20, 5, 1}));
}

TEST(Cat, PartsOfOneElementAlongTheDimTellNoOrder) {
  const Tensor row = part({1, 5}, {0, 1});
  EXPECT_EQ(moves::strides_of_cat(std::vector{row, row}, {2, 5}, 0), (Dims{5, 1}));
}

TEST(Cat, NoPartsAreRowMajor) { EXPECT_EQ(moves::strides_of_cat({}, {0}, 0), (Dims{1})); }

}  // namespace
}  // namespace lazyt::toolkit
