// The vector machine that runs fused pointwise code: one instruction is one loop over a block of elements
// that lies in the first-level cache.
//
// The same source (vm_ops.cpp) is compiled for AVX-512, AVX2 and plain x86-64 (or any other CPU); which is
// used is decided once, at run time.
#pragma once

#include <cstdint>

#include "lazyt/dtype.h"

namespace lazyt::onednn::vm {

// Elements of a block. A register takes kBlock * 8 bytes at most.
inline constexpr int kBlock = 512;

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

// How a total is kept while it grows.
union Total {
  double d;
  int64_t i;
};

struct ReduceFunctions {
  void (*row)(Total& total, const void* in, int n);       // n <= kBlock elements join one total
  void (*columns)(Total* totals, const void* in, int n);  // each its own
  void (*combine)(Total& a, const Total& b);
  Total start;
  bool floating;  // of totals
};

// n <= kBlock elements. Unused operands are null; out may be an operand.
using Function = void (*)(void* out, const void* a, const void* b, const void* c, int n);
// Between memory and registers.
using Convert = void (*)(void* out, const void* in, int n);

struct Table {
  const char* name;
  Function functions[static_cast<int>(Op::kCount)]
                    [static_cast<int>(Type::kCount)];  // by operand type; null = none
  Convert casts[static_cast<int>(Type::kCount)]
               [static_cast<int>(Type::kCount)];         // [from][to], PyTorch's rules
  Convert load_f16, store_f16, load_bf16, store_bf16;    // f32 registers
  Convert round_f16, round_bf16;                         // f32 to f32
  ReduceFunctions totals[static_cast<int>(Type::kCount)][static_cast<int>(ReduceKind::kCount)];
  void (*add_columns_f32)(float* sums, const float* in, int n);  // sums[i] += in[i]
  // n words from counter `first` of the stream: words 4 * j .. 4 * j + 3 belong to counter + j. n % 4 == 0.
  void (*philox)(uint64_t seed, uint64_t counter, uint32_t* words, int n);
  // n normal numbers from n words, by pairs (PRG-7). n <= kBlock; for an odd n there is a word more.
  void (*normal_f32)(float* out, const uint32_t* words, int n, float mean, float std);
};

// For this CPU. LAZYT_ONEDNN_ISA=avx512|avx2|portable asks for another that it can run.
const Table& table();

}  // namespace lazyt::onednn::vm
