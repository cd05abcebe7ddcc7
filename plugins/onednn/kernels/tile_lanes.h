// What functions of the register machine (tile.h) are written in: the lanes of a tile in registers, and how a function goes on
// to the next. Of each instruction set's own, as vm_math.h.
#pragma once

#include <cstring>
#include <type_traits>

#include "tile.h"
#if LAZYT_TILE_F64
#include "double_math.h"
#include "vector_math.h"
#else
#include "vm_math.h"
#endif
#define LAZYT_TILE_F32 (!LAZYT_TILE_F64 && !LAZYT_TILE_INTEGERS)

namespace lazyt::onednn::tile {
namespace {

namespace math = vm::math;
#if LAZYT_TILE_F64
using Scalar = double;
using V = math::VD;
using VI = math::VL;
constexpr int kWidth = vm::kVectorBytes / 8;
#elif LAZYT_TILE_INTEGERS
using Scalar = std::conditional_t<LAZYT_TILE_INTEGERS == 64, int64_t, int32_t>;
using V = std::conditional_t<LAZYT_TILE_INTEGERS == 64, math::VL, math::VI>;
using VI = V;
using VU = std::make_unsigned_t<Scalar> __attribute__((vector_size(vm::kVectorBytes)));
constexpr int kWidth = vm::kVectorBytes / sizeof(Scalar);
#else
using Scalar = float;
using math::kWidth;
using math::V;
using math::VI;
#endif
constexpr int kTile = 8 * kWidth;

using Next = void (*)(const Bound* ip, int64_t i, int64_t n, V v0, V v1, V v2, V v3, V v4, V v5, V v6, V v7);

#define ARGUMENTS const Bound *ip, int64_t i, int64_t n, V v0, V v1, V v2, V v3, V v4, V v5, V v6, V v7
#define NEXT return reinterpret_cast<Next>(ip[1].function)(ip + 1, i, n, v0, v1, v2, v3, v4, v5, v6, v7)
// Memory is walked upwards, which is what CPUs foresee: the compiler would begin at the end.
#define IN_ORDER asm volatile("" ::: "memory")
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

template <Op op>
V apply(V x);

template <Op op>
void run_unary(ARGUMENTS) {
#define STEP(k) v##k = apply<op>(v##k);
  EACH(STEP)
#undef STEP
  NEXT;
}

}  // namespace
}  // namespace lazyt::onednn::tile
