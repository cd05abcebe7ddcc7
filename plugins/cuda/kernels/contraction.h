// Sums of products, c[z, m, n] = sum over k of left(z, m, k) * right(z, k, n), whose operands and result are
// described by text: matrix products, and convolutions without a copy of their input (implicit GEMM).
#pragma once

#include "walk.h"

namespace lazyt::cuda {

struct Contraction {
  std::string name;
  lazyt_dtype_t dtype;  // of the result, and in which operands are read
  int64_t batch = 1, m = 0, n = 0, k = 0;
  // Texts that size the kernel: literals, or words that let shapes share a kernel.
  std::string text_m, text_n, text_k;
  // struct Left { void begin(const Args& a, long long z, long long m); C at(long long k) const; }, struct
  // Right, the same with n, struct Store { static void put(const Args& a, long long z, long long m, long long
  // n, A v); } with C the type of elements in registers, A of sums. Methods are __device__.
  std::string left, right, store;
  std::string common;  // before all of them
  // Whether neighbours in memory are neighbours along k (else along m, n): who loads what.
  bool left_along_k = true, right_along_k = false;
  Defines defines;
  std::vector<Word> words;
  std::vector<StorageId> reads;
  std::vector<StorageId> writes, reads_in_place;
};

// Sums in f32 (f16, bf16), in the dtype, or in int for narrower integers; in an order that only the sizes
// decide.
void add_contraction(Builder& b, Contraction c);

}  // namespace lazyt::cuda
