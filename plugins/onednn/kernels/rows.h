// Inner loops of softmax and normalisations over runs of floating elements. One source (rows.cpp),
// compiled for each instruction set; chosen in step with the vector machine's table.
//
// T is how elements lie in memory, C = Compute<T> how they are computed. A ROW is n elements side by side. COLUMNS
// are `width` lines side by side, whose elements are `stride` apart: in[i * stride + j], i < n, j < width.
// Optional operands (weights) are null.
#pragma once

#include <cstdint>

#include "floats.h"
#include "isa.h"

namespace lazyt::onednn {

// The most columns that a kernel takes at once.
inline constexpr int kColumns = 64;

template <class T>
struct RowKernels {
  using C = Compute<T>;

  void (*softmax)(T* out, const T* in, int64_t n);
  void (*log_softmax)(T* out, const T* in, int64_t n);
  void (*softmax_backward)(T* grad_in, const T* grad, const T* out, int64_t n);
  void (*log_softmax_backward)(T* grad_in, const T* grad, const T* out, int64_t n);
  double (*logsumexp)(const T* in, int64_t n);

  // Of `rows` rows one behind the other, n <= most_short; the gradients' n <= most_together.
  int64_t most_short, most_together;
  void (*softmax_short)(T* out, const T* in, int64_t rows, int64_t n);
  void (*log_softmax_short)(T* out, const T* in, int64_t rows, int64_t n);
  void (*softmax_backward_short)(T* grad_in, const T* grad, const T* out, int64_t rows, int64_t n);
  void (*log_softmax_backward_short)(T* grad_in, const T* grad, const T* out, int64_t rows, int64_t n);
  void (*logsumexp_short)(T* out, const T* in, int64_t rows, int64_t n);  // a number a row
  // Layer norm, or RMS norm where not centred; means, rstds: a number a row, or null.
  void (*norm_short)(T* out, C* means, C* rstds, const T* in, int64_t rows, int64_t n, bool centred, double eps, const C* weight, const C* bias);
  // Their gradients; means is null where not centred, grad_in, grad_weight and grad_bias (added to) where nobody wants them.
  void (*norm_backward_short)(T* grad_in, C* grad_weight, C* grad_bias, const T* grad, const T* in, int64_t rows, int64_t n, const C* means,
                              const C* rstds, const C* weight);

  void (*softmax_columns)(T* out, const T* in, int64_t n, int64_t out_stride, int64_t in_stride, int width);
  void (*log_softmax_columns)(T* out, const T* in, int64_t n, int64_t out_stride, int64_t in_stride, int width);
  void (*softmax_backward_columns)(T* grad_in, const T* grad, const T* out, int64_t n, int64_t grad_in_stride,
                                   int64_t grad_stride, int64_t out_stride, int width);
  void (*log_softmax_backward_columns)(T* grad_in, const T* grad, const T* out, int64_t n, int64_t grad_in_stride,
                                       int64_t grad_stride, int64_t out_stride, int width);

  double (*sum)(const T* in, int64_t n);
  // sums[0] = sum of x - shift, sums[1] = sum of (x - shift)^2.
  void (*deviations)(double* sums, const T* in, int64_t n, C shift);
  // sums[j] += x, over n rows of `width` columns (any number); sums[j] += x - shift[j], squares[j] += (x - shift[j])^2.
  void (*column_sums)(C* sums, const T* in, int64_t n, int64_t stride, int64_t width);
  void (*column_deviations)(C* sums, C* squares, const T* in, const C* shift, int64_t n, int64_t stride, int64_t width);

  // out = (x - mean) * rstd * weight + bias
  void (*normalize)(T* out, const T* in, int64_t n, C mean, C rstd, const C* weight, const C* bias);
  // out = (x - mean) * scale + bias; over n rows of `width` columns, with these numbers for each column.
  void (*affine)(T* out, const T* in, int64_t n, C mean, C scale, C bias);
  void (*affine_columns)(T* out, const T* in, const C* mean, const C* scale, const C* bias, int64_t n, int64_t stride,
                         int64_t width);

  // sums[0] = sum of g * w, sums[1] = sum of g * w * (x - mean).
  void (*backward_sums)(double* sums, const T* grad, const T* in, int64_t n, C mean, const C* weight);
  // grad_in = a * g * w + b * (x - mean) + c
  void (*backward)(T* grad_in, const T* grad, const T* in, int64_t n, C mean, const C* weight, C a, C b, C c);
  // grad_weight += g * (x - mean) * rstd, grad_bias += g (element by element).
  void (*backward_weights)(C* grad_weight, C* grad_bias, const T* grad, const T* in, int64_t n, C mean, C rstd);
  // sums_g[j] += g, sums_gx[j] += g * (x - mean[j]), over n rows.
  void (*column_backward_sums)(C* sums_g, C* sums_gx, const T* grad, const T* in, const C* mean, int64_t n,
                               int64_t stride, int64_t width);
  // grad_in = a[j] * g + b[j] * (x - mean[j]) + c[j], over n rows.
  void (*backward_columns)(T* grad_in, const T* grad, const T* in, const C* mean, const C* a, const C* b, const C* c,
                           int64_t n, int64_t stride, int64_t width);

  // y[i] = sum over j < k of a[i * stride + j] * x[j], i < m: a matrix that comes from memory.
  void (*dots)(const T* a, int64_t stride, const T* x, int64_t m, int64_t k, C* y);
  // The same of 2 vectors or more, x_stride apart, and their results y_stride apart; each as dots adds it up row by row.
  void (*dots_of_several)(const T* a, int64_t stride, const T* x, int64_t x_stride, int vectors, int64_t m, int64_t k, C* y, int64_t y_stride);

  // C-typed copies of n elements, and back.
  void (*load)(C* out, const T* in, int64_t n);
  void (*store)(T* out, const C* in, int64_t n);
  // out += in, and out += in * factor.
  void (*add)(T* out, const T* in, int64_t n);
  void (*add_scaled)(C* out, const T* in, int64_t n, C factor);
};

struct Rows {
  RowKernels<float> f32;
  RowKernels<double> f64;
  RowKernels<BFloat16> bf16;
  RowKernels<Half> f16;

  template <class T>
  const RowKernels<T>& of() const;
};
template <>
inline const RowKernels<float>& Rows::of<float>() const { return f32; }
template <>
inline const RowKernels<double>& Rows::of<double>() const { return f64; }
template <>
inline const RowKernels<BFloat16>& Rows::of<BFloat16>() const { return bf16; }
template <>
inline const RowKernels<Half>& Rows::of<Half>() const { return f16; }

// The sum of squares about the mean, from the two sums about a mean that was rounded, to which what is left is added (Chan,
// Golub and LeVeque, Algorithms for computing the sample variance, 1983: two passes, corrected). Where all elements are one
// number, the mean is that number.
template <class C>
double centre(C& mean, double sum, double squares, double count) {
  const double left = sum / count, about_mean = squares - left * sum;
  mean = static_cast<C>(static_cast<double>(mean) + left);
  return about_mean < 0 ? 0 : about_mean;
}

const Rows& rows_portable();
#ifdef __x86_64__
const Rows& rows_avx2();
const Rows& rows_avx512();
#endif

inline const Rows& rows() {
#ifdef __x86_64__
  return of_this_cpu<Rows>(rows_portable, rows_avx2, rows_avx512);
#else
  return rows_portable();
#endif
}

}  // namespace lazyt::onednn
