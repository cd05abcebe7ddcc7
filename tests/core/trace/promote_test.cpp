#include "trace/promote.h"

#include <gtest/gtest.h>

namespace lazyt::trace {
namespace {

base::DType of(std::initializer_list<PromoteOperand> operands) {
  return promote(std::span<const PromoteOperand>(operands.begin(), operands.size()), LAZYT_DTYPE_FLOAT32);
}
constexpr Rank T = Rank::kTensor, S = Rank::kScalarTensor, N = Rank::kNumber;

TEST(Promote, TensorsOfTwoWidthsMeetInTheWider) {
  EXPECT_EQ(of({{LAZYT_DTYPE_FLOAT32, T}, {LAZYT_DTYPE_FLOAT64, T}}), LAZYT_DTYPE_FLOAT64);
  EXPECT_EQ(of({{LAZYT_DTYPE_UINT8, T}, {LAZYT_DTYPE_INT8, T}}), LAZYT_DTYPE_INT16);
  EXPECT_EQ(of({{LAZYT_DTYPE_FLOAT16, T}, {LAZYT_DTYPE_BFLOAT16, T}}), LAZYT_DTYPE_FLOAT32);
  EXPECT_EQ(of({{LAZYT_DTYPE_COMPLEX64, T}, {LAZYT_DTYPE_FLOAT64, T}}), LAZYT_DTYPE_COMPLEX128);
}

TEST(Promote, ANumberDoesNotWidenATensor) {
  EXPECT_EQ(of({{LAZYT_DTYPE_FLOAT16, T}, {LAZYT_DTYPE_FLOAT64, N}}), LAZYT_DTYPE_FLOAT16);
  EXPECT_EQ(of({{LAZYT_DTYPE_INT8, T}, {LAZYT_DTYPE_INT64, N}}), LAZYT_DTYPE_INT8);
}

TEST(Promote, ANumberOfAHigherKindDecides) {
  EXPECT_EQ(of({{LAZYT_DTYPE_INT64, T}, {LAZYT_DTYPE_FLOAT64, N}}), LAZYT_DTYPE_FLOAT32);
  EXPECT_EQ(of({{LAZYT_DTYPE_BOOL, T}, {LAZYT_DTYPE_INT64, N}}), LAZYT_DTYPE_INT64);
}

TEST(Promote, ARankZeroTensorSpeaksOnlyByKind) {
  EXPECT_EQ(of({{LAZYT_DTYPE_FLOAT32, T}, {LAZYT_DTYPE_FLOAT64, S}}), LAZYT_DTYPE_FLOAT32);
  EXPECT_EQ(of({{LAZYT_DTYPE_INT32, T}, {LAZYT_DTYPE_FLOAT64, S}}), LAZYT_DTYPE_FLOAT64);
}

}  // namespace
}  // namespace lazyt::trace
