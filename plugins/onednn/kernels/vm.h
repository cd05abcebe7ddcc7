// The vector machine that runs fused pointwise code: one instruction is one loop over a block of elements
// that lies in the first-level cache.
//
// The same source (vm_ops.cpp) is compiled for AVX-512, AVX2 and plain x86-64 (or any other CPU); which is
// used is decided once, at run time.
#pragma once

#include <cstdint>

#include "lazyt/toolkit/registers.hpp"

namespace lazyt::onednn::vm {

// Elements of a block. A register takes kBlock * 8 bytes at most.
inline constexpr int kBlock = 512;

using toolkit::is_float;
using toolkit::Op;
using toolkit::ReduceKind;
using toolkit::size_of;
using toolkit::Type;
using toolkit::type_of;

// How a total is kept while it grows.
union Total {
  double d;
  int64_t i;
};

struct ReduceFunctions {
  void (*row)(Total& total, const void* in, int n);       // n elements join one
  void (*rows)(Total* totals, const void* in, int count, int n);  // of `count` rows one behind the other, as row joins each
  void (*columns)(Total* totals, const void* in, int n);  // each its own
  void (*combine)(Total* a, const Total* b, int64_t n);   // each its own
  Total start;
  bool floating;  // of totals
};

// n <= kBlock elements. Unused operands are null; out may be an operand.
using Function = void (*)(void* out, const void* a, const void* b, const void* c, int n);
// Between memory and registers.
using Convert = void (*)(void* out, const void* in, int n);
// Columns of f32 are added up in f32 for so many rows; then in f64, or, of so many rows in all, in f32.
inline constexpr int64_t kRowsInF32 = 32, kMostInF32 = 256;
// out[i] = the sum, or the extreme, of in[i + r * row], r < rows <= kMostInF32; in elements.
using Columns = void (*)(float* out, const void* in, int64_t row, int64_t rows, int n);

struct Table {
  const char* name;
  Function functions[static_cast<int>(Op::kCount)]
                    [static_cast<int>(Type::kCount)];  // by operand type; null = none
  Convert casts[static_cast<int>(Type::kCount)]
               [static_cast<int>(Type::kCount)];         // [from][to], PyTorch's rules
  Convert load_f16, store_f16, load_bf16, store_bf16;    // f32 registers
  Convert round_f16, round_bf16;                         // f32 to f32
  Convert gelu_of_half;                                  // f32 to what is rounded to halves next
  ReduceFunctions totals[static_cast<int>(Type::kCount)][static_cast<int>(ReduceKind::kCount)];
  // Of rows of halves as they lie in memory; row is null where there is none.
  ReduceFunctions totals_bf16[static_cast<int>(ReduceKind::kCount)], totals_f16[static_cast<int>(ReduceKind::kCount)];
  void (*add_columns)(float* sums, const void* in, int n);  // sums[i] += in[i]
  // Of columns as they lie in memory; null where there is none.
  Columns columns_f32[static_cast<int>(ReduceKind::kCount)], columns_bf16[static_cast<int>(ReduceKind::kCount)], columns_f16[static_cast<int>(ReduceKind::kCount)];
  void (*stream)(void* out, const void* in, size_t bytes);  // copies past the caches
  void (*iota)(int64_t* out, uint64_t first, uint64_t step, int n);  // out[i] = first + i * step
  void (*ramp)(double* out, int64_t at, int64_t stride, double first, double step, int n);  // out[i] = first + (at + i * stride) * step
  // n words from counter `first` of the stream: words 4 * j .. 4 * j + 3 belong to counter + j. n % 4 == 0.
  void (*philox)(uint64_t seed, uint64_t counter, uint32_t* words, int n);
  // n normal numbers from n words, by pairs (PRG-7). n <= kBlock; for an odd n there is a word more.
  void (*normal_f32)(float* out, const uint32_t* words, int n, float mean, float std);
};

// For this CPU. LAZYT_ONEDNN_ISA=avx512|avx2|portable asks for another that it can run; then no kernel uses tiles (amx.h),
// and oneDNN is limited, too (limit_dnnl).
const Table& table();

}  // namespace lazyt::onednn::vm
