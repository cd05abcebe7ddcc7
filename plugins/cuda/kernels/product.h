// A product of matrices, and the library that may compute it.
#pragma once

#include <optional>

#include "walk.h"

namespace lazyt::cuda {

inline constexpr Number kOne{true, true, 0, 1, 0, LAZYT_DTYPE_INT64};
inline constexpr Number kZero{true, true, 0, 0, 0, LAZYT_DTYPE_INT64};

// c[batch, m, n] = alpha * a[batch, m, k] b[batch, k, n] + beta * addend
struct Product {
  Tensor a, b, c;                // rank 3, of one dtype; c is row-major
  std::optional<Tensor> addend;  // of c's dims; strides 0 where it is broadcast
  Number alpha = kOne, beta = kZero;
};

inline bool is_number(const Number& n, double value) {
  return n.constant && (n.integral ? static_cast<double>(n.i) : n.d) == value;
}
inline int64_t size(const Tensor& t, size_t dim) { return t.dims()[dim]; }
inline int64_t stride(const Tensor& t, size_t dim) { return t.strides()[dim]; }
// A stride that says nothing because its dim has one element counts as `otherwise`.
inline int64_t stride_or(const Tensor& t, size_t dim, int64_t otherwise) {
  return size(t, dim) == 1 ? otherwise : stride(t, dim);
}

// Adds the steps that compute the product by cuBLASLt; false, and none added, where it was not found or does
// not take it. REQUIRES: no dim is 0
bool add_library_product(Builder& b, const Product& p);

}  // namespace lazyt::cuda
