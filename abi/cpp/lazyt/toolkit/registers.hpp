// registers.hpp - the language that fused kernels are written in: instructions over typed registers.
//
// A kernel of the toolkit's rules (pointwise.hpp, reductions.hpp) is a list of instructions, each of which makes one
// register from up to three. A backend turns them into what it runs: calls of vector functions, source text, LLVM.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_REGISTERS_HPP_
#define LAZYT_TOOLKIT_REGISTERS_HPP_

#include <cstdint>

#include "lazyt/dtype.h"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

// A register of a kernel, by number.
using Reg = uint16_t;
inline constexpr Reg kNoReg = UINT16_MAX;

// How a register holds its elements. f16 and bf16 values are computed as f32.
enum class Type : uint8_t { kBool, kU8, kI8, kI16, kI32, kI64, kF32, kF64, kCount };

// Bytes of an element in a register.
inline constexpr int size_of(Type t) {
  constexpr int sizes[] = {1, 1, 1, 2, 4, 8, 4, 8};
  return sizes[static_cast<int>(t)];
}
inline constexpr bool is_float(Type t) { return t >= Type::kF32; }

// kCount for a dtype that no register holds.
inline constexpr Type type_of(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_BOOL:
      return Type::kBool;
    case LAZYT_DTYPE_UINT8:
      return Type::kU8;
    case LAZYT_DTYPE_INT8:
      return Type::kI8;
    case LAZYT_DTYPE_INT16:
      return Type::kI16;
    case LAZYT_DTYPE_INT32:
      return Type::kI32;
    case LAZYT_DTYPE_INT64:
      return Type::kI64;
    case LAZYT_DTYPE_FLOAT16:
    case LAZYT_DTYPE_BFLOAT16:
    case LAZYT_DTYPE_FLOAT32:
      return Type::kF32;
    case LAZYT_DTYPE_FLOAT64:
      return Type::kF64;
    default:
      return Type::kCount;
  }
}

enum class Op : uint8_t {
  // Two operands of one type.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kDivTrunc,
  kDivFloor,
  kFmod,
  kRemainder,
  kMax,
  kMin,
  kFmax,
  kFmin,
  kPow,
  kAtan2,
  kHypot,
  kCopysign,
  kAnd,
  kOr,
  kXor,
  kShl,
  kShr,
  // Two operands of one type, a bool result.
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  // One operand.
  kMove,
  kAbs,
  kNeg,
  kSign,
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kSigmoid,
  kErf,
  kErfc,
  kErfinv,
  kLgamma,
  kDigamma,
  kNot,
  // One operand, a bool result.
  kIsNan,
  kIsInf,
  // (bool, T, T): the first where true.
  kWhere,
  // a * b + c, one rounding where the CPU has it.
  kFma,
  kCount
};

enum class ReduceKind : uint8_t { kSum, kSquares, kProd, kMax, kMin, kAny, kAll, kCount };

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_REGISTERS_HPP_
