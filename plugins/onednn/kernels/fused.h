// FusedKernel: a group of pointwise nodes, and reductions that read them, as one pass over memory.
//
// The kernel walks a nest of loops (its operands' dims, reordered and joined) as one linear index, a block of
// vm::kBlock elements at a time. For each block it brings operands into registers (or points at them, where
// they lie as the block runs), executes its instructions, and stores or accumulates results.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "../compile.h"
#include "tile_code.h"
#include "vm.h"

namespace lazyt::onednn {

using vm::ReduceKind;
using toolkit::kNoReg;
using toolkit::Reg;

class FusedStep;

// Writes one kernel: values first, then build().
class FusedKernel {
 public:
  // Their totals are kept on the stack.
  static constexpr size_t kMaxReductions = 16;

  // dims: what it walks. reduced: of a kernel with reductions, which dims they reduce; else empty.
  FusedKernel(const Dims& dims, const std::vector<bool>& reduced) : dims_(dims), reduced_(reduced) {}

  // ---- instructions, in order of execution
  vm::Type type(Reg r) const { return registers_[r].type; }
  // Elements of a tensor whose dims broadcast to the kernel's.
  Reg load(const Tensor& t);
  Reg number(const Number& n, vm::Type type);
  Reg constant(double d, vm::Type type) { return number({true, false, d, 0, 0, LAZYT_DTYPE_FLOAT64}, type); }
  Reg op(vm::Op op, Reg a, Reg b = kNoReg, Reg c = kNoReg);
  Reg cast(Reg a, vm::Type to);
  // As the dtype would hold it: rounds an f32 register to f16 or bf16.
  Reg round_to(Reg a, lazyt_dtype_t dtype);
  // The index along a dim, i64.
  Reg index(size_t dim);
  // PRG-7: a number in [0, 1) for each element, f32; element i of the row-major order. Keeps the loops in
  // that order.
  Reg uniform(const Number& seed, const Number& offset);

  // ---- results
  void store(Reg r, const Tensor& t);
  // t: the kept dims of the walk (as many dims as the walk, the reduced ones of stride 0). The total is
  // scaled by 1 / divisor, then its root taken if asked; in f64 for floats, i64 for integers.
  void reduce(Reg r, ReduceKind kind, const Tensor& t, double divisor = 1, bool root = false);

  // Strides over the walk's dims of the first load that has an element for each; empty if none has.
  Dims widest(const Dims& dims) const;
  bool empty() const { return stores_.empty() && reductions_.empty(); }
  // Adds the step to b. may_alias_inputs: stored to storages that may lie on an input's bytes.
  void build(Builder& b, const std::vector<StorageId>& may_alias_inputs);

 private:
  friend class FusedStep;
  enum class Source : uint8_t { kNone, kLoad, kNumber, kIndex, kUniform, kOnce };
  struct Register {
    vm::Type type;
    Source source = Source::kNone;
    uint32_t source_index = 0;
  };
  struct Instruction {
    vm::Function function;
    vm::Convert convert;  // instead of function
    Reg out, a, b, c;
    tile::Source::Kind kind;
    vm::Op op;
  };
  struct Load {
    Tensor tensor;
    Reg reg;
  };
  struct NumberSource {
    Number number;
    Reg reg;
  };
  struct Store {
    Tensor tensor;
    Reg reg;
  };
  struct Reduction {
    Tensor tensor;
    Reg reg;
    ReduceKind kind;
    double divisor;
    bool root;
  };
  struct Index {
    size_t dim;
    Reg reg;
    Number first, step;  // the register, i64 or f64, holds first + the index along the dim * step
  };
  struct Random {
    Number seed, offset;
    Reg reg;
  };
  // Signs of halves that lie side by side, two at a time as bits of an integer, if that is all that the kernel is about.
  std::optional<FusedKernel> as_bits() const;
  // Totals of a few elements each, as instructions: to begin and end a total takes longer than to add those up.
  std::optional<FusedKernel> as_few() const;
  std::optional<double> constant_of(Reg r) const;  // a number that is known when the program is compiled
  bool is_number(Reg r, double value) const;
  // A choice between two kernels by a number: what is not taken is not computed.
  struct Choice {
    std::vector<FusedKernel> kernels;  // where it is true, where it is false
    Reg condition;
  };
  struct Made {
    std::unique_ptr<FusedStep> step;
    std::vector<StorageId> reads, writes, in_place;
  };
  Made make(Builder& b, const std::vector<StorageId>& may_alias_inputs);
  void compute_numbers_once();
  std::optional<Choice> as_choice() const;
  Index& new_index(vm::Type type, size_t dim);
  // a * b or a + b, if that is an index like any other; else kNoReg.
  Reg index_of(vm::Op op, Reg a, Reg b);
  // x, if r is x / 2 * (1 + erf(x / sqrt 2)), as the toolkit's rule of gelu writes it; else kNoReg.
  Reg operand_of_gelu(Reg r) const;
  void round_where_stored();  // not before, where nothing else reads what is rounded
  void drop_unread();  // instructions, loads and indices that nothing reads
  Reg add_register(vm::Type type, Source source = Source::kNone, uint32_t index = 0) {
    registers_.push_back({type, source, index});
    return static_cast<Reg>(registers_.size() - 1);
  }

  Dims dims_;
  std::vector<bool> reduced_;
  std::vector<Register> registers_;
  std::vector<Instruction> code_;
  std::vector<Instruction> once_;  // on numbers alone, before code_
  std::vector<Load> loads_;
  std::vector<NumberSource> numbers_;
  std::vector<Index> indices_;
  std::vector<Random> randoms_;
  std::vector<Store> stores_;
  std::vector<Reduction> reductions_;
};

}  // namespace lazyt::onednn
