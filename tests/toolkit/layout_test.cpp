#include "lazyt/toolkit/layout.hpp"

#include "program_text.h"

namespace lazyt::toolkit {
namespace {

// The one node of a program over %0: f32[4,6] as `call`, giving `result`.
std::optional<Layout> view(const std::string& call, const std::string& result, Layout from = Layout::dense(Dims{4, 6})) {
  ProgramText text("program(%0: f32[4,6]) {\n  %1 = " + call + " : f32" + result + "\n  return %1\n}\n");
  const auto program = text.view();
  const auto& node = program.nodes()[0];
  EXPECT_TRUE(is_view(program, node));
  return view_of(program, node, 0, from);
}

TEST(ViewOf, PermuteSwapsStrides) {
  auto v = view("aten::permute(%0, ints[1,0])", "[6,4]");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->dims, (Dims{6, 4}));
  EXPECT_EQ(v->strides, (Dims{1, 6}));
}

TEST(ViewOf, SliceMovesTheOffsetAndStretchesTheStride) {
  auto v = view("aten::slice.Tensor(%0, 1, 1, 6, 2)", "[4,3]");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->offset, 1);
  EXPECT_EQ(v->strides, (Dims{6, 2}));
}

TEST(ViewOf, ExpandGivesNewDimsStrideZero) {
  auto v = view("aten::expand(%0, ints[3,4,6], false)", "[3,4,6]");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->strides, (Dims{0, 6, 1}));
}

TEST(ViewOf, FlipBeginsAtTheEndAndWalksBack) {
  auto v = view("aten::flip(%0, ints[1])", "[4,6]");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->offset, 5);
  EXPECT_EQ(v->strides, (Dims{6, -1}));
}

TEST(ViewOf, FlipOfATensorWithoutDimsIsThatTensor) {
  ProgramText text("program(%0: f32[]) {\n  %1 = aten::flip(%0, ints[0]) : f32[]\n  return %1\n}\n");
  const auto program = text.view();
  const auto v = view_of(program, program.nodes()[0], 0, Layout::dense(Dims{}));
  ASSERT_TRUE(v);
  EXPECT_TRUE(v->dims.empty());
  EXPECT_EQ(v->offset, 0);
}

TEST(ViewOf, DiagonalAboveTheMiddleBeginsInTheFirstRow) {
  auto v = view("aten::diagonal(%0, 2, 0, 1)", "[4]");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->offset, 2);
  EXPECT_EQ(v->strides, (Dims{7}));
}

TEST(ViewOf, SelectDropsTheDim) {
  auto v = view("aten::select.int(%0, 0, 2)", "[6]");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->offset, 12);
  EXPECT_EQ(v->dims, (Dims{6}));
}

TEST(ViewOf, ReshapeOfAPermutedTensorNeedsACopy) {
  EXPECT_FALSE(view("aten::reshape(%0, ints[24])", "[24]", {0, {4, 6}, {1, 4}}));
  EXPECT_TRUE(view("aten::reshape(%0, ints[24])", "[24]"));
}

TEST(ViewOf, AsStridedCountsInRowMajorOrder) {
  EXPECT_FALSE(view("aten::as_strided(%0, ints[2,2], ints[1,3], 1)", "[2,2]", {0, {4, 6}, {1, 4}}));
  auto v = view("aten::as_strided(%0, ints[2,2], ints[1,3], 1)", "[2,2]");
  ASSERT_TRUE(v);
  EXPECT_EQ(v->offset, 1);
  EXPECT_EQ(v->strides, (Dims{1, 3}));
}

TEST(Reshaped, CutsARunOfDimsAnew) {
  const Layout l{0, {2, 3, 4}, {100, 4, 1}};
  auto v = l.reshaped(Dims{2, 2, 6});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->strides, (Dims{100, 6, 1}));
  EXPECT_FALSE(l.reshaped(Dims{6, 4}));
}

TEST(Reshaped, KeepsBroadcastDims) {
  const Layout l{0, {5, 4}, {0, 1}};
  auto v = l.reshaped(Dims{5, 2, 2});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->strides, (Dims{0, 2, 1}));
}

TEST(Reshaped, DimsOfSizeOneComeAndGo) {
  const Layout l{7, {1, 3, 1, 4}, {99, 8, 55, 2}};
  auto v = l.reshaped(Dims{3, 4, 1, 1});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->offset, 7);
  EXPECT_EQ(v->strides[0], 8);
  EXPECT_EQ(v->strides[1], 2);
}

TEST(Collapse, JoinsWhatLiesTogetherInEveryOperand) {
  const std::vector<Dims> strides = {{12, 4, 1}, {12, 4, 1}};
  const std::vector<size_t> order = {0, 1, 2};
  auto loops = collapse(Dims{2, 3, 4}, strides, order);
  EXPECT_EQ(loops.dims, (Dims{24}));
}

TEST(Collapse, ABroadcastOperandKeepsItsLoop) {
  const std::vector<Dims> strides = {{12, 4, 1}, {0, 4, 1}};
  const std::vector<size_t> order = {0, 1, 2};
  auto loops = collapse(Dims{2, 3, 4}, strides, order);
  EXPECT_EQ(loops.dims, (Dims{2, 12}));
  EXPECT_EQ(loops.strides[1], (Dims{0, 1}));
}

TEST(Collapse, AScalarIsOneLoopOfOne) {
  const std::vector<Dims> strides = {{}};
  auto loops = collapse(Dims{}, strides, std::vector<size_t>{});
  EXPECT_EQ(loops.dims, (Dims{1}));
}

TEST(MemoryOrder, ChannelsLastWalksChannelsInnermost) {
  EXPECT_EQ(memory_order(Dims{2, 3, 4, 5}, Dims{60, 1, 15, 3}), (std::vector<size_t>{0, 2, 3, 1}));
  EXPECT_EQ(strides_in_order(Dims{2, 3, 4, 5}, std::vector<size_t>{0, 2, 3, 1}), (Dims{60, 1, 15, 3}));
}

TEST(MemoryOrder, NothingHasTheStridesOfOne) {
  EXPECT_EQ(strides_in_order(Dims{2, 0, 3}, std::vector<size_t>{0, 1, 2}), (Dims{3, 3, 1}));
}

}  // namespace
}  // namespace lazyt::toolkit
