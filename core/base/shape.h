// Meta: dtype, dims and strides of a tensor, and what can be said of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lazyt/dtype.h"

namespace lazyt::base {

using DType = lazyt_dtype_t;
using Dims = std::vector<int64_t>;

// Of a tensor in a program (program.h). PyTorch has no bound.
inline constexpr size_t kMaxRank = 64;

// Strides of row-major order, in elements; a dim of 0 counts as 1, as in PyTorch.
Dims contiguous_strides(const Dims& dims);
bool are_contiguous_strides(const Dims& strides, const Dims& dims);  // whether they are just these
int64_t numel(const Dims& dims);
// A tensor can have this shape: no dim is negative, and its elements, a dim of 0 taken as 1, are so few that the bytes
// of any dtype can be counted.
inline constexpr int64_t kMostElements = int64_t{1} << 58;
bool is_countable(const Dims& dims);

struct Meta {
  DType dtype = LAZYT_DTYPE_INVALID;
  Dims dims;
  Dims strides;  // always filled, rank entries, in elements

  static Meta contiguous(DType dtype, Dims dims);
  int64_t numel() const { return base::numel(dims); }
  bool is_contiguous() const;
  // Each element at an address of its own, with no holes, in some order of dims.
  bool is_dense() const;
  // Bytes from the first element to the end of the last, 0 for empty tensors.
  uint64_t span_bytes() const;
  friend bool operator==(const Meta&, const Meta&) = default;
};

// "f32[2,3]", with strides "f32[2,3]{1,2}" if not contiguous. Names: b1 u8 i8 u16 i16 u32 i32 u64 i64
// f16 bf16 f32 f64 c32 c64 c128 f8e4m3fn f8e5m2 f8e4m3fnuz f8e5m2fnuz f8e8m0fnu f4e2m1fnx2 i4x2 u4x2.
std::string to_string(const Meta& meta);
const char* dtype_name(DType dtype);     // "?" if not known
DType dtype_from_name(std::string_view); // LAZYT_DTYPE_INVALID if not known

}  // namespace lazyt::base
