#include "base/shape.h"

#include <gtest/gtest.h>

namespace lazyt::base {
namespace {

Meta f32(Dims dims, Dims strides) { return {LAZYT_DTYPE_FLOAT32, std::move(dims), std::move(strides)}; }

TEST(Meta, FillsStridesInRowMajorOrder) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Dims{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Dims{});
}

TEST(Meta, CountsElements) {
  EXPECT_EQ(numel({2, 3}), 6);
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({5, 0}), 0);
}

TEST(Meta, IsContiguousWhateverTheStridesOfDimsOfOne) {
  EXPECT_TRUE(f32({2, 1, 3}, {3, 77, 1}).is_contiguous());
  EXPECT_TRUE(f32({0, 3}, {5, 9}).is_contiguous());
  EXPECT_FALSE(f32({2, 3}, {1, 2}).is_contiguous());
}

TEST(Meta, IsDenseInAnyOrderOfDims) {
  EXPECT_TRUE(f32({2, 3}, {1, 2}).is_dense());
  EXPECT_TRUE(f32({2, 3, 4, 5}, {60, 1, 15, 3}).is_dense()) << "channels last";
  EXPECT_FALSE(f32({2, 3}, {4, 1}).is_dense()) << "a hole";
  EXPECT_FALSE(f32({2, 3}, {0, 1}).is_dense()) << "expanded";
}

TEST(Meta, SpansFromItsFirstToItsLastElement) {
  EXPECT_EQ(f32({2, 3}, {3, 1}).span_bytes(), 24u);
  EXPECT_EQ(f32({2, 3}, {4, 1}).span_bytes(), 28u);
  EXPECT_EQ(f32({2, 3}, {0, 0}).span_bytes(), 4u);
  EXPECT_EQ(f32({2, 0}, {1, 1}).span_bytes(), 0u);
  EXPECT_EQ(f32({}, {}).span_bytes(), 4u);
}

TEST(Meta, PrintsStridesOnlyWhereTheySaySomething) {
  EXPECT_EQ(to_string(Meta::contiguous(LAZYT_DTYPE_FLOAT32, {2, 3})), "f32[2,3]");
  EXPECT_EQ(to_string(f32({2, 3}, {1, 2})), "f32[2,3]{1,2}");
  EXPECT_EQ(to_string(Meta::contiguous(LAZYT_DTYPE_BOOL, {})), "b1[]");
}

TEST(DType, NamesReadBack) {
  for (DType d = 1; d < LAZYT_DTYPE_COUNT; d++) {
    EXPECT_EQ(dtype_from_name(dtype_name(d)), d);
    EXPECT_GT(lazyt_dtype_size(d), 0u) << dtype_name(d);
  }
  EXPECT_EQ(dtype_from_name("?"), LAZYT_DTYPE_INVALID);
  EXPECT_STREQ(dtype_name(99), "?");
  EXPECT_STREQ(dtype_name(-1), "?");
}

}  // namespace
}  // namespace lazyt::base
