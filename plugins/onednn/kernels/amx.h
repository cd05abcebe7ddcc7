// Products of bf16 by a CPU's tiles (Intel AMX), added up in f32.
#pragma once

#include <cstdint>

#include "floats.h"

namespace lazyt::onednn {

// 32 lines of 32 f32 as sums of three bf16, the largest first (amx_gemm.h), each part as two tiles. Elements i and
// 16 + i of a line lie side by side: in row (line mod 16) of a left operand's tile (line / 16), as pair i; of a right
// operand's in row i, as pair (line mod 16).
struct SplitBlock {
  alignas(64) uint16_t part[3][2][16][32];
};

// The calling thread's tiles, set up for the lifetime.
class Tiles {
 public:
  // What sizes are multiples of.
  static constexpr int64_t kRows = 16, kColumns = 16, kDepth = 32;
  static constexpr int kSide = 32;  // of a SplitBlock

  // Whether the CPU has them, the system lends them, and LAZYT_ONEDNN_ISA asks for no older instructions.
  static bool available();

  Tiles();
  ~Tiles();
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  // out[m x n] (+)= a[m x k] * b[k x n], row-major with leading dims. b lies by pairs of rows: word j of pair
  // p holds elements (2p, j) and (2p + 1, j), the first in the lower half.
  void gemm(int64_t m, int64_t n, int64_t k, const BFloat16* a, int64_t lda, const uint32_t* b, int64_t ldb,
            float* out, int64_t ldo, bool accumulate) const;

  // out[32 x 32] = the sum of so many products of blocks of f32, each but for less than 2^-26 of it. out is aligned to 64.
  void multiply(int64_t blocks, const SplitBlock* left, const SplitBlock* right, float* out) const;
};

}  // namespace lazyt::onednn
