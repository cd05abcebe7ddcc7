// Matrix products of our own: for the dtypes that oneDNN has none for, and for one row or column, where memory is
// the limit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lazyt/dtype.h"

namespace lazyt::onednn {

// Pieces of so many elements that n has, the last perhaps smaller.
inline int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

// A batch of matrices; strides in elements, any sign.
struct Matrix {
  const void* data;
  int64_t batch_stride, row_stride, column_stride;
};

// c = alpha * (a x b) + beta * addend; c has dense rows of n elements, one after the other. beta 0: addend is not read.
// REQUIRES: elements of a row of a, and of b, lie side by side (column_stride 1), or, where gemm() reads them turned,
// those of a column (row_stride 1)
struct Gemm {
  int64_t batch, m, n, k;
  Matrix a, b, addend;
  void* c;
  double alpha = 1, beta = 0;          // of floats
  int64_t int_alpha = 1, int_beta = 0;  // of integers
};

// Whether gemm() takes the dtype: f64, i64, i32, i16, i8, u8.
bool has_gemm(lazyt_dtype_t dtype);

// Whether gemm() reads a, and b, whose columns lie side by side.
bool reads_turned_left(lazyt_dtype_t dtype);
bool reads_turned_right(lazyt_dtype_t dtype);

// Bytes that gemm() with so many threads, or fewer, wants aligned to 64; of g only the sizes count. May be 0.
size_t gemm_scratch(lazyt_dtype_t dtype, const Gemm& g, int threads);

// Results do not depend on the number of threads.
void gemm(lazyt_dtype_t dtype, const Gemm& g, int threads, std::byte* scratch);

// c = beta * addend, of a block of f32 whose first elements these are.
void begin_block(const Gemm& g, float beta, const float* addend, float* c, int64_t rows, int64_t width);

// gemm() of int32 that hold two int16 each, whose products are added up in int32, wrapping around; alpha is 1, there is no addend.
void gemm_pairs(const Gemm& g, int threads);

// y[i] = sum_j a[i, j] x[j] + bias[i]; halves in f32 arithmetic, integers wrap around. a: f32, bf16, f16 or what has_gemm() takes
// (as x, y and bias), one of its strides 1. bias may be null. y is written with stride 1; x has stride 1.
struct Gemv {
  int64_t m, k;
  const void *a, *x, *bias;
  int64_t row_stride, column_stride, bias_stride;
  void* y;
};
void gemv(lazyt_dtype_t dtype, const Gemv& g, int threads);

// The same of 2 to kMaxVectors vectors of f32 that lie so many elements apart, as do their results and biases; column_stride is 1.
constexpr int64_t kMaxVectors = 16;
struct Vectors {
  int count = 1;
  int64_t x_stride = 0, y_stride = 0, bias_stride = 0;
};
void gemvs(const Gemv& g, const Vectors& vectors, int threads);

}  // namespace lazyt::onednn
