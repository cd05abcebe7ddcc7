// The register machine for f32 code, and one each for code of f64, int32 and int64: eight vector registers
// hold a tile of elements and are handed from instruction to instruction; each instruction ends in a jump to
// the next. What is used twice lies in eight of 16 registers more, where the CPU has them, or in a slot in the
// first-level cache. Instructions read one running value and up to two operands.
//
// Compiled for each instruction set like the vector machine (vm.h), of which it runs a part.
#pragma once

#include <cstdint>

#include "lazyt/toolkit/registers.hpp"

namespace lazyt::onednn::tile {

inline constexpr int kMaxTile = 128;  // elements of the largest tile (f32, AVX-512)
inline constexpr int kMaxTileBytes = 512;

enum class Op : uint8_t {
  kEnd,      // back over A instructions to the first, for the next tile
  kLoad,     // acc = A
  kLoadU8,   // acc = A, of bytes 0 and 1
  kStore,    // A = acc
  kStoreU8,  // A = acc, as bytes
  kStream,   // A = acc, past the caches (streams.h)
  kFetch,    // asks for A some tiles ahead
  kAdd,
  kSub,
  kSubFrom,
  kMul,
  kDiv,
  kDivInto,
  kMax,
  kMin,
  kCopysign,
  kCopysignOf,
  kBitAnd,
  kBitOr,
  kBitXor,  // acc op A; kSubFrom: A - acc; kDivInto: A / acc; kCopysignOf: A with acc's sign
  kFma,     // acc * A + B
  kFmaAdd,  // A * B + acc
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,      // acc op A, 1 or 0
  kSelect,  // acc != 0 ? A : B
  kWherePositive,  // A > 0 ? B : acc
  kLerp,    // from A to B by acc, as PyTorch's vectors: A + acc * (B - A), from half the way on B + (acc - 1) * (B - A)
  kSquare,
  kNeg,
  kAbs,
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
  kTanh,
  kSigmoid,
  kErf,
  kGeluOfHalf,
  kSign,
  kNot,  // of 1 or 0
  kBitNot,
  kIsNan,
  kToBool,  // acc != 0
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kRoundBf16,
  kRoundF16,  // to what the dtype can hold
  kCount
};
inline constexpr Op kFirstMath = Op::kExp, kLastMath = Op::kGeluOfHalf;

// Of an instruction; which arguments it takes is the machine's own matter.
using Function = void (*)();

// An array that runs with the index (mask -1), or one tile for all (mask 0): a slot, a broadcast number.
struct Operand {
  void* base;
  int64_t mask;
};

struct Instruction {
  Function function;
  uint16_t a, b;
};

// An instruction with its operands, as it runs: it reads nothing else. Of kEnd, a's mask counts the instructions before it.
struct Bound {
  Function function;
  Operand a, b;
};

// What an operand is, as far as code for it differs. kStore and kStream round to halves.
enum Form : uint8_t {
  kAnyForm,  // memory, or a tile
  kNumber,   // one number, as often as a tile has elements
  kRunning,  // memory, fetched ahead: where a tile has little else to wait for
  kBf16,     // memory of halves, fetched ahead
  kF16,
  kI8,  // memory of integers: of kLoad and kStore only, which convert
  kU8,
  kI32,
  kBank,  // the first of two more tiles in registers, where the machine has them
  kBank2,  // the second, which operators from kFirstMath to kLastMath overwrite
  kKeep,   // memory, to be in the first from here on
  kKeep2,
  kForms
};

// Of two operands: A's kind + kKinds * B's.
enum Kind : uint8_t { kKindAny, kKindNumber, kKindBf16, kKindF16, kKinds };
static_assert(kForms <= kKinds * kKinds);

struct Machine {
  int tile;  // elements
  Function functions[static_cast<int>(Op::kCount)][kKinds * kKinds];  // by form or kinds; none: it has no such instruction
  // Runs the code (ended by kEnd) for tiles at 0, tile, 2 * tile, ... below n. n is a multiple of the tile.
  void (*run)(const Bound* code, int64_t n);
};

// Of registers of kF32, kF64, kI32 or kI64, in step with vm::table().
const Machine& machine(toolkit::Type type);

}  // namespace lazyt::onednn::tile
