// The f32 machine's elementary functions, compiled once for each instruction set. They compute in the registers of the second bank
// (tile_ops.cpp): with what that leaves, exp takes a quarter longer.
#include "tile_lanes.h"

namespace lazyt::onednn::tile {
namespace {

template <Op op>
V apply(V x) {
  if constexpr (op == Op::kExp) return math::exp<V>(x);
  if constexpr (op == Op::kExp2) return math::exp2<V>(x);
  if constexpr (op == Op::kExpm1) return math::expm1<V>(x);
  if constexpr (op == Op::kLog) return math::log<V>(x);
  if constexpr (op == Op::kLog2) return math::log2<V>(x);
  if constexpr (op == Op::kLog10) return math::log10<V>(x);
  if constexpr (op == Op::kLog1p) return math::log1p<V>(x);
  if constexpr (op == Op::kTanh) return math::tanh<V>(x);
  if constexpr (op == Op::kSigmoid) return math::sigmoid<V>(x);
  if constexpr (op == Op::kErf) return math::erf<V>(x);
  if constexpr (op == Op::kGeluOfHalf) return math::gelu_of_half<V>(x);
}

template <Op... ops>
void set(Machine& m) {
  static_assert(((ops >= kFirstMath && ops <= kLastMath) && ...));
  ((m.functions[static_cast<int>(ops)][kAnyForm] = reinterpret_cast<Function>(Next{run_unary<ops>})), ...);
}

}  // namespace

void LAZYT_TILE_MATH(Machine& m);
void LAZYT_TILE_MATH(Machine& m) {
  set<Op::kExp, Op::kExp2, Op::kExpm1, Op::kLog, Op::kLog2, Op::kLog10, Op::kLog1p, Op::kTanh, Op::kSigmoid, Op::kErf, Op::kGeluOfHalf>(m);
}

}  // namespace lazyt::onednn::tile
