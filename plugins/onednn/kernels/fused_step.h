// FusedStep: what a FusedKernel becomes, and how it runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "../compile.h"
#include "tile_code.h"
#include "vm.h"

namespace lazyt::onednn {

using vm::ReduceFunctions;
using vm::ReduceKind;
using vm::Total;

// Pieces in which a long reduction is added up: fixed, so that results do not depend on the thread count.
inline constexpr int64_t kPiece = 65536;

// Threads for so many elements: a second one is worth its waking from some on.
inline int threads_for(const Frame& frame, int64_t elements) {
  constexpr int64_t kGrain = 32768;
  return static_cast<int>(std::min<int64_t>(frame.threads, std::max<int64_t>(1, elements / kGrain)));
}

inline bool is_half(lazyt_dtype_t d) { return d == LAZYT_DTYPE_FLOAT16 || d == LAZYT_DTYPE_BFLOAT16; }
inline vm::Convert loader(lazyt_dtype_t d) {
  return d == LAZYT_DTYPE_FLOAT16 ? vm::table().load_f16 : vm::table().load_bf16;
}
inline vm::Convert storer(lazyt_dtype_t d) {
  return d == LAZYT_DTYPE_FLOAT16 ? vm::table().store_f16 : vm::table().store_bf16;
}

class FusedStep final : public Step {
 public:
  static constexpr size_t kMaxSlots = 128;  // registers in memory: each load has one
  struct Load {
    Place place;
    Dims strides;         // by loop
    vm::Convert convert;  // from f16, bf16
    int size;             // of an element in memory
    uint16_t slot;
    bool linear;          // lies as the loops run
    bool single;          // one element for all
    bool direct;          // linear and needs no conversion: the register is the memory
    bool in_row = false;  // runs along the innermost loop alone, where blocks keep to one row
    bool one_a_row = false;  // the same along the innermost loop, where blocks keep to one row: a number of the register machine
    bool repeats = false;  // one row of the innermost loop, over and over, brought into the slot
  };
  // Whether strides by loop lead through one row of the innermost loop, over and over.
  static bool repeats_row(const Dims& strides) {
    return std::all_of(strides.begin(), strides.end() - 1, [](int64_t s) { return s == 0; });
  }
  struct Store {
    Place place;
    Dims strides;
    vm::Convert convert;
    int size;
    uint16_t slot;
    bool linear;
    bool direct;
  };
  struct Reduction {
    Place place;
    Dims strides;  // by loop; 0 for reduced loops
    ReduceFunctions f;
    double divisor;
    lazyt_dtype_t dtype;  // of the result
    int element;          // bytes of a register element
    uint16_t slot;
    bool root;
    bool in_f32;  // columns are added in f32 for some rows, then in f64
  };
  // Rows of columns are added up in fixed portions, each a piece of work.
  struct Portions {
    int64_t rows, count;
    Portions(int64_t length, int64_t inner)
        : rows(std::max<int64_t>(1, kPiece / std::min<int64_t>(inner, vm::kBlock))), count(std::max<int64_t>(1, (length + rows - 1) / rows)) {}
  };
  struct Instruction {
    vm::Function function;
    vm::Convert convert;
    uint16_t out, a, b, c;
    uint8_t divisor = 0;  // of a division of integers: bytes of an element of b, none of which may be zero
  };
  struct NumberFill {
    Number number;
    vm::Type type;
    uint16_t slot;
  };
  struct IndexFill {
    Dims strides;  // of the index by loop
    uint16_t slot;
    Number first, step;  // of what is filled in: first + index * step
    bool is_float;       // f64, else i64
  };
  struct RandomFill {
    Number seed, offset;
    uint16_t slot;
  };

  // The code for the register machine, if it has a form there.
  bool tiled_ = false;
  tile::Code tile_;
  struct TileOperand {
    uint16_t slot = 0;    // of a register
    uint8_t size = 4;     // of one that runs: bytes of an element
    bool direct = false;  // a register that is the memory of a tensor
    bool in_row = false;  // a load that is in_row
  };
  std::vector<TileOperand> tile_operands_;  // beside tile_.operands
  bool numbers_by_tile_ = false;      // only tiled code reads numbers: a tile of each is enough
  // Elements brought in at a time, at most. Where nothing is brought into registers, kLongBlock or a larger power of two.
  int64_t block_ = vm::kBlock;
  static constexpr int64_t kLongBlock = 16 * vm::kBlock;
  bool fills_ = false;    // nothing but numbers, or single elements, to store, each where the loops run
  int64_t reduced_at_once_ = vm::kBlock;  // elements of a row
  // A reduction's blocks keep to one row, which lies in memory: its load is in_row. Rows are this long, at least.
  bool own_rows_ = false;
  static constexpr int64_t kOwnRow = 128;
  // Elements after which a load that is in_row begins anew, where blocks run past the end of rows: a power of two, which the register
  // machine's masks can say. Else 0.
  int64_t period_ = 0;
  bool streams_ = false;  // results go past the caches, where none lies over an operand
  bool by_rows_ = false;  // no block goes past the end of the innermost loop
  std::vector<Instruction> code_;  // empty where tiled
  std::vector<Instruction> once_;  // on numbers alone
  size_t instructions_ = 0;
  std::vector<Load> loads_;
  std::vector<Store> stores_;
  std::vector<Reduction> reductions_;
  std::vector<NumberFill> numbers_;
  std::vector<IndexFill> indices_;
  std::vector<RandomFill> randoms_;
  Dims loops_;
  int64_t count_ = 0;
  uint16_t slots_ = 0;
  vm::Columns columns_ = nullptr;  // of nothing but the sum, or extremes, of a load's columns
  // Of a kernel with reductions: loops [0, first_) are kept, [first_, last_) reduced, [last_, end) kept.
  size_t first_ = 0, last_ = 0;
  StorageId partials_ = 0;  // of all reductions: totals of pieces and threads

  std::string describe() const override;
  void run(const Frame& frame) const override;

 private:
  // Where loads stand at the first element of a row: of the innermost loop, with the others at one place.
  struct Rows {
    int64_t at = -1;  // that element
    int64_t index[16];
    int64_t offset[kMaxSlots];  // of each load, in elements
    void seek(const FusedStep& step, int64_t to);
  };
  // Registers of one thread for one run.
  struct Block {
    explicit Block(std::atomic<bool>& z) : by_zero(z) {}
    bool streams = false;
    std::atomic<bool>& by_zero;  // of the run: whether an integer was divided by zero
    std::byte* memory[kMaxSlots];
    void* slot[kMaxSlots];
    Rows rows;
    // Of a load that repeats: what its slot holds, where in the row it begins and how many elements.
    struct {
      int64_t first;
      int count;
    } repeated[kMaxSlots];
  };

  std::byte* scratch() const;
  // Whether a result lies over an operand, whose lines are in the cache when it is written.
  bool stores_over_loads(const Frame& frame) const;
  void begin(const Frame& frame, Block& b, int64_t longest) const;
  void block(const Frame& frame, Block& b, int64_t at, int n) const;
  void run_tiles(Block& b, int n) const;
  // Whether the register machine writes where it reads. n: elements of what runs.
  bool is_in_place(const tile::Operand* operands, int n) const;
  static void perform(const Instruction& i, Block& b, int n);
  void run_pointwise(const Frame& frame, std::atomic<bool>& by_zero) const;
  void run_fills(const Frame& frame, std::atomic<bool>& by_zero) const;
  void finish(const Reduction& r, Total total, std::byte* out) const;
  // Where the kept loops [first, last) at linear index k put a result, in elements.
  int64_t place(const Reduction& r, size_t first, size_t last, int64_t k) const;
  int64_t product(size_t first, size_t last) const;
  void run_reductions(const Frame& frame, std::atomic<bool>& by_zero) const;
  // Totals of the elements [at, at + n) of one row, added to `totals`.
  void row(const Frame& frame, Block& b, int64_t at, int64_t n, Total* totals) const;
  void rows(const Frame& frame, std::atomic<bool>& by_zero, int64_t outer, int64_t length) const;
  void columns(const Frame& frame, std::atomic<bool>& by_zero, int64_t outer, int64_t length, int64_t inner) const;
  void columns_as_they_lie(const Frame& frame, int64_t outer, int64_t length, int64_t inner) const;
  // Of portion p of the kept index o, reduction k: totals of `inner` columns.
  Total* partial(const Frame& frame, const Portions& portions, int64_t inner, int64_t o, int64_t p, size_t k) const;
  void put_portions(const Frame& frame, const Portions& portions, int64_t outer, int64_t inner) const;
  void put(const Frame& frame, const Reduction& r, int64_t offset, Total total) const;
  // The same for n results, `stride` elements apart; T: Total or float.
  template <class T>
  void put(const Frame& frame, const Reduction& r, int64_t offset, int64_t stride, const T* totals, int64_t n) const;
};

// One of two kernels, by a condition on numbers.
class ChoiceStep final : public Step {
 public:
  std::unique_ptr<FusedStep> if_true, if_false;
  // How the condition is computed, in slots of its own.
  std::vector<FusedStep::NumberFill> numbers;
  std::vector<FusedStep::Instruction> code;
  uint16_t slots = 0, condition = 0;

  std::string describe() const override;
  void run(const Frame& frame) const override;
};

}  // namespace lazyt::onednn
