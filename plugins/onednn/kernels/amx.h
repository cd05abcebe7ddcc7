// Products of bf16 by a CPU's tiles (Intel AMX), added up in f32.
#pragma once

#include <cstdint>

#include "floats.h"

namespace lazyt::onednn {

// The calling thread's tiles, set up for the lifetime.
class Tiles {
 public:
  // What sizes are multiples of.
  static constexpr int64_t kRows = 16, kColumns = 16, kDepth = 32;

  // Whether the CPU has them, the system lends them, and kernels for AVX-512 are chosen.
  static bool available();

  Tiles();
  ~Tiles();
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  // out[m x n] (+)= a[m x k] * b[k x n], row-major with leading dims. b lies by pairs of rows: word j of pair
  // p holds elements (2p, j) and (2p + 1, j), the first in the lower half.
  void gemm(int64_t m, int64_t n, int64_t k, const BFloat16* a, int64_t lda, const uint32_t* b, int64_t ldb,
            float* out, int64_t ldo, bool accumulate) const;
};

}  // namespace lazyt::onednn
