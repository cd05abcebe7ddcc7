#include "amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "lazyt/plugin.hpp"
#include "vm.h"

#define AMX __attribute__((target("amx-tile,amx-bf16")))
// GCC 12's intrinsics do not say that they touch memory.
#define FENCE asm volatile("" ::: "memory")

namespace lazyt::onednn {
namespace {

bool asks() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTile = 1u << 24, kBfloat16 = 1u << 22;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTile) == 0 || (d & kBfloat16) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of Linux' arch_prctl
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Tiles 0 to 3 are of the result, 4 and 5 of a, 6 and 7 of b; each 16 rows of 64 bytes.
struct alignas(64) Config {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// kM x kN tiles of the result.
template <int kM, int kN>
AMX void block(int64_t k, const BFloat16* a, int64_t lda, const uint32_t* b, int64_t ldb, float* out,
               int64_t ldo, bool accumulate) {
  float *o1 = out + 16 * ldo, *p0 = out + 16, *p1 = o1 + 16;
  const int64_t out_bytes = ldo * 4, a_bytes = lda * 2, b_bytes = ldb * 4;
  if (accumulate) {
    _tile_loadd(0, out, out_bytes);
    if constexpr (kN == 2) _tile_loadd(1, p0, out_bytes);
    if constexpr (kM == 2) _tile_loadd(2, o1, out_bytes);
    if constexpr (kM == 2 && kN == 2) _tile_loadd(3, p1, out_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < k; p += Tiles::kDepth) {
    const uint32_t* right = b + p / 2 * ldb;
    _tile_loadd(4, a + p, a_bytes);
    _tile_loadd(6, right, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kN == 2) {
      _tile_loadd(7, right + 16, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kM == 2) {
      _tile_loadd(5, a + 16 * lda + p, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kM == 2 && kN == 2) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, out_bytes);
  if constexpr (kN == 2) _tile_stored(1, p0, out_bytes);
  if constexpr (kM == 2) _tile_stored(2, o1, out_bytes);
  if constexpr (kM == 2 && kN == 2) _tile_stored(3, p1, out_bytes);
}
template <int kM>
void blocks(int64_t n, int64_t k, const BFloat16* a, int64_t lda, const uint32_t* b, int64_t ldb, float* out,
            int64_t ldo, bool accumulate) {
  int64_t j = 0;
  for (; j + 32 <= n; j += 32) block<kM, 2>(k, a, lda, b + j, ldb, out + j, ldo, accumulate);
  if (j < n) block<kM, 1>(k, a, lda, b + j, ldb, out + j, ldo, accumulate);
}

// The six largest of the nine products of parts, small ones first. Loads lie between the products that do not need them.
AMX void split_block(int64_t blocks, const SplitBlock* left, const SplitBlock* right, float* out) {
#define LAZYT_LOAD(tile, operand, number, half) _tile_loadd(tile, operand->part[number][half], 64)
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (; blocks > 0; --blocks, ++left, ++right) {
    LAZYT_LOAD(4, left, 0, 0);
    LAZYT_LOAD(6, right, 2, 0);
    _tile_dpbf16ps(0, 4, 6);
    LAZYT_LOAD(5, left, 0, 1);
    _tile_dpbf16ps(2, 5, 6);
    LAZYT_LOAD(7, right, 2, 1);
    _tile_dpbf16ps(1, 4, 7);
    LAZYT_LOAD(6, right, 1, 0);
    _tile_dpbf16ps(3, 5, 7);

    _tile_dpbf16ps(0, 4, 6);
    LAZYT_LOAD(7, right, 1, 1);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    LAZYT_LOAD(4, left, 1, 0);
    _tile_dpbf16ps(3, 5, 7);
    LAZYT_LOAD(5, left, 1, 1);

    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    LAZYT_LOAD(6, right, 0, 0);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    LAZYT_LOAD(7, right, 0, 1);

    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    LAZYT_LOAD(4, left, 2, 0);
    _tile_dpbf16ps(3, 5, 7);
    LAZYT_LOAD(5, left, 2, 1);

    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    LAZYT_LOAD(4, left, 0, 0);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    LAZYT_LOAD(5, left, 0, 1);

    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
#undef LAZYT_LOAD
  _tile_stored(0, out, 128);
  _tile_stored(1, out + 16, 128);
  _tile_stored(2, out + 16 * 32, 128);
  _tile_stored(3, out + 16 * 32 + 16, 128);
}

AMX void set_up(const Config& config) {
  FENCE;
  _tile_loadconfig(&config);
}
AMX void let_go() { _tile_release(); }

}  // namespace

bool Tiles::available() {
  static const bool lent = asks();
  return lent && std::string_view(vm::table().name) == "avx512" && plugin::option("onednn", "isa").empty();
}

Tiles::Tiles() { set_up({}); }
Tiles::~Tiles() { let_go(); }

void Tiles::gemm(int64_t m, int64_t n, int64_t k, const BFloat16* a, int64_t lda, const uint32_t* b,
                 int64_t ldb, float* out, int64_t ldo, bool accumulate) const {
  FENCE;
  int64_t i = 0;
  for (; i + 32 <= m; i += 32) blocks<2>(n, k, a + i * lda, lda, b, ldb, out + i * ldo, ldo, accumulate);
  if (i < m) blocks<1>(n, k, a + i * lda, lda, b, ldb, out + i * ldo, ldo, accumulate);
  FENCE;
}

void Tiles::multiply(int64_t blocks, const SplitBlock* left, const SplitBlock* right, float* out) const {
  FENCE;
  split_block(blocks, left, right, out);
  FENCE;
}

}  // namespace lazyt::onednn

#else

namespace lazyt::onednn {
bool Tiles::available() { return false; }
Tiles::Tiles() = default;
Tiles::~Tiles() = default;
void Tiles::gemm(int64_t, int64_t, int64_t, const BFloat16*, int64_t, const uint32_t*, int64_t, float*,
                 int64_t, bool) const {}
void Tiles::multiply(int64_t, const SplitBlock*, const SplitBlock*, float*) const {}
}  // namespace lazyt::onednn

#endif
