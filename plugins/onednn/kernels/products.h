// Inner loops of products, attention, resampling and transposes over blocks that a cache holds. One source (products.cpp),
// compiled for each instruction set; chosen in step with the vector machine's table.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isa.h"

namespace lazyt::onednn {

// Whole numbers as wide as a C.
template <class C>
using OffsetOf = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;

// Columns of a PANEL: k rows of so many elements one after the other, padded to it, which gemm reads from its beginning to its end.
template <class C>
inline constexpr int64_t kPanel = 128 / sizeof(C);

// out[m x n] (+)= alpha * a[m x k] * panel[k x n], n <= kPanel<C>; a and out row-major with leading dims. Integers wrap around.
template <class C>
using TileGemm = void (*)(int64_t m, int64_t n, int64_t k, C alpha, const C* a, int64_t lda, const C* panel, C* out, int64_t ldo,
                          bool accumulate);

// Rows of a strip of a packed product (packed_gemm.h), at most: with two vectors of columns each, their sums fill 16 registers.
inline constexpr int kStrip = 6;

// out[rows x columns] (+)= alpha * a b, rows <= kStrip, columns as wide as two vectors. Element (i, p) of a lies at a[p * rows + i],
// row p of b at b + p * b_step.
struct Strip {
  int columns;
  void (*multiply)(int rows, int64_t k, float alpha, const float* a, const float* b, int64_t b_step, float* out, int64_t ldo, bool accumulate);
  // out[p * rows + i] = in[i * in_row + p], p < k; writes up to kStripSlack elements more.
  void (*pack)(float* out, const float* in, int64_t in_row, int rows, int64_t k);
  // out[p * rows + i] = in[p * in_column + i], p < k > 0.
  void (*pack_turned)(float* out, const float* in, int64_t in_column, int rows, int64_t k);
};
inline constexpr int kStripSlack = 16;

// Pieces of attention, in f32 or f64.
template <class C>
struct TileKernels {
  TileGemm<C> gemm, gemm_turned;  // turned: element (i, p) of a lies at a[p * lda + i]
  // One row of online softmax: x[i] = exp(x[i] - max'), max' = max(max, max of x); returns the factor exp(max - max')
  // by which what was summed before shrinks. sum = sum * factor + sum of x.
  C (*online_softmax)(C* x, int64_t n, C* max, C* sum);
  // x[i] = exp(x[i] - shift)
  void (*exp_minus)(C* x, int64_t n, C shift);
  // x *= factor
  void (*scale)(C* x, int64_t n, C factor);
  C (*dot)(const C* a, const C* b, int64_t n);
  // d[i] = p[i] * (d[i] - delta) * factor
  void (*softmax_grad)(C* d, const C* p, int64_t n, C delta, C factor);
};

// y[i] = the sum over k < 4 of plane[offset[k][i]] * share[k][i], where inside[k][i] is 1, not 0; each of the four arrays `step` elements
// behind the one before. By instructions that gather.
template <class C>
using GatherFour = void (*)(C* y, const OffsetOf<C>* offset, const OffsetOf<C>* inside, const C* share, int64_t step, const C* plane, int64_t n);

// out[j][i] = in[i][j], i < rows, j < columns
template <class T>
using Transpose = void (*)(T* out, int64_t out_row, const T* in, int64_t in_row, int64_t rows, int64_t columns);

struct Products {
  TileKernels<float> tile_f32;
  TileKernels<double> tile_f64;
  TileGemm<uint64_t> gemm_u64;
  TileGemm<uint32_t> gemm_u32;
  TileGemm<uint16_t> gemm_u16;
  TileGemm<uint8_t> gemm_u8;
  TileGemm<uint32_t> gemm_pairs;  // each element two int16, whose products are added up in int32
  Strip strip;
  GatherFour<float> gather_four_f32;
  GatherFour<double> gather_four_f64;
  Transpose<uint32_t> transpose_u32;
  Transpose<uint64_t> transpose_u64;

  template <class C>
  const TileKernels<C>& tile() const;
  template <class C>
  GatherFour<C> gather_four() const {
    if constexpr (std::is_same_v<C, float>) return gather_four_f32;
    else return gather_four_f64;
  }
};
template <>
inline const TileKernels<float>& Products::tile<float>() const { return tile_f32; }
template <>
inline const TileKernels<double>& Products::tile<double>() const { return tile_f64; }

const Products& products_portable();
#ifdef __x86_64__
const Products& products_avx2();
const Products& products_avx512();
#endif

inline const Products& products() {
#ifdef __x86_64__
  return of_this_cpu<Products>(products_portable, products_avx2, products_avx512);
#else
  return products_portable();
#endif
}

// Of elements of 4 or 8 bytes.
template <class T>
void transpose(T* out, int64_t out_row, const T* in, int64_t in_row, int64_t rows, int64_t columns) {
  if constexpr (sizeof(T) == 4)
    products().transpose_u32(reinterpret_cast<uint32_t*>(out), out_row, reinterpret_cast<const uint32_t*>(in), in_row, rows, columns);
  else
    products().transpose_u64(reinterpret_cast<uint64_t*>(out), out_row, reinterpret_cast<const uint64_t*>(in), in_row, rows, columns);
}

}  // namespace lazyt::onednn
