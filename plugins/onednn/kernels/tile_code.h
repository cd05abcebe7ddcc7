// From a fused kernel's instructions to code of the register machine (tile.h).
#pragma once

#include <optional>
#include <vector>

#include "tile.h"
#include "vm.h"

namespace lazyt::onednn::tile {

inline constexpr uint16_t kNone = UINT16_MAX;

// What the code is made from: the vector machine's view of a kernel.
struct Source {
  enum class Kind : uint8_t { kOp, kCast, kRoundBf16, kRoundF16, kGeluOfHalf, kWherePositive, kLerp };  // the last: a > 0 ? b : c; from b to c by a
  struct Instruction {
    Kind kind;
    vm::Op op;
    uint16_t out, a, b, c;
  };
  struct Register {
    vm::Type type;
    bool made_outside;  // a load, a number: in memory before the code runs
    bool running;       // of those: an element for each index, not one for all
    bool kept;          // wanted in memory after the code ran: a result
    Form half = kAnyForm;  // kBf16, kF16: how an f32 register lies in memory
    bool streamed = false;  // past the caches, where it is kept: no instruction reads it back
    std::optional<double> number = {};  // that it is, known when the program is compiled
  };
  std::vector<Instruction> code;
  std::vector<Register> registers;
  bool from_memory = false;  // operands are so much that other kernels may have driven them out of the second-level cache
};

struct Code {
  vm::Type type = vm::Type::kF32;  // which machine runs it
  struct Operand {
    bool scratch;  // a tile of the code's own, number `index`; else the memory of register `index`
    uint16_t index;
    bool running;
    bool written;
    Form half = kAnyForm;
  };
  // An instruction that stores past the caches, and what stores through them in its place.
  struct Stream {
    size_t instruction;
    Function through;
  };
  std::vector<Instruction> code;
  std::vector<Operand> operands;
  std::vector<Stream> streams;
  uint16_t scratch_tiles = 0;
};

// Nothing when some instruction or type has no form here.
std::optional<Code> compile(const Source& source);

}  // namespace lazyt::onednn::tile
