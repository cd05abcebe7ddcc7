// FusedKernel: a group of pointwise nodes, and reductions that read them, as the text of one CUDA kernel.
//
// The kernel walks a nest of loops (lazyt/toolkit/walk.hpp). Each thread has an element's operands in registers before it
// stores a result. Without reductions a thread takes elements of the whole walk; gapless operands come in packs of 16
// bytes, and the count is a parameter, so that one text serves all sizes. With reductions
//
//   rows     (nothing is kept inside the reduced loops)  1 to 256 threads a row, next to each other
//   columns  (something is)                              threads side by side, each adding down its column
//
// and where that is too few threads for a GPU, the reduced loops are cut and the last block of a row adds up the parts.
// Totals are f64 of floats and i64 of integers, added in an order that the sizes alone decide: the same bits in every run.
// What is computed from totals belongs to the same kernel.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "../compile.h"
#include "lazyt/toolkit/registers.hpp"
#include "lazyt/toolkit/walk.hpp"

namespace lazyt::cuda {

using toolkit::kNoReg;
using toolkit::Op;
using toolkit::ReduceKind;
using toolkit::Reg;
using toolkit::Type;

// Writes one kernel: values first, then build(). What the toolkit wants of a Kernel (pointwise.hpp, groups.hpp).
class FusedKernel {
 public:
  static constexpr size_t kMaxReductions = 8;

  // dims: what it walks. reduced: of a kernel with reductions, which dims they reduce; else empty.
  FusedKernel(const Dims& dims, const std::vector<bool>& reduced) : dims_(dims), reduced_(reduced) {}

  // ---- instructions, in order of execution
  Type type(Reg r) const { return types_[r]; }
  Reg load(const Tensor& t);
  Reg look_up(const Lookup& lookup);
  Reg number(const Number& n, Type type);  // a parameter
  Reg constant(double d, Type type);       // part of the text
  Reg op(Op op, Reg a, Reg b = kNoReg, Reg c = kNoReg);
  Reg cast(Reg a, Type to);
  Reg round_to(Reg a, lazyt_dtype_t dtype);
  Reg index(size_t dim);
  Reg uniform(const Number& seed, const Number& offset);

  // ---- of totals: instructions that have one of these for an operand run once for each kept element
  Reg total(Reg r, ReduceKind kind);  // f64 of floats, else i64
  Reg load_kept(const Tensor& t);     // t: as store_kept's

  // ---- results
  void store(Reg r, const Tensor& t) { stores_.push_back({t, r}); }
  // t: the kept dims of the walk (as many dims as the walk, the reduced ones of stride 0).
  void store_kept(Reg r, const Tensor& t) { kept_stores_.push_back({t, r}); }
  // The total scaled by 1 / divisor, then its root taken if asked.
  void reduce(Reg r, ReduceKind kind, const Tensor& t, double divisor = 1, bool root = false);

  // Strides over the walk's dims of the first load that has an element for each; empty if none has.
  Dims widest(const Dims& dims) const;
  bool empty() const { return stores_.empty() && kept_stores_.empty(); }
  // Adds the steps to b. The second is for kernels that store before they have read all.
  void build(Builder& b, const std::vector<StorageId>& may_alias_inputs);

  // ---- as a part of another kernel's text
  // A register that the text around declares, the first of all: r0.
  Reg given(Type type) { return add_register(type, Often::kEach); }
  static std::string type_name(Type type);
  // What is done with the element that lies at `i` (a long long) of a gapless tensor with these strides over the walk: text
  // over r0 and `w`, whose words it adds to. No reductions.
  std::string element(const Dims& strides, std::vector<Word>& words, std::vector<StorageId>& reads,
                      std::vector<StorageId>& writes, std::vector<StorageId>& reads_in_place) const;

 private:
  friend class KernelText;
  struct Load {
    Tensor tensor;
    Reg reg;
  };
  struct Read {
    Lookup lookup;
    Reg reg;
  };
  struct Store {
    Tensor tensor;
    Reg reg;
  };
  struct Parameter {
    Number number;
    Reg reg;
  };
  struct Index {
    size_t dim;
    Reg reg;
  };
  struct Reduction {
    Reg of, reg;
    ReduceKind kind;
  };
  struct Random {
    Number seed, offset;
    Reg reg;
  };
  // One line of the body: register = text.
  struct Line {
    Reg reg;
    std::string text;
  };

  // How often a register is computed: once a thread, for each element, for each kept element.
  enum class Often : uint8_t { kOnce, kEach, kKept };
  Reg add_register(Type type, Often often) {
    types_.push_back(type);
    often_.push_back(often);
    return static_cast<Reg>(types_.size() - 1);
  }
  Reg add_line(Type type, std::string text, std::initializer_list<Reg> operands) {
    Often often = Often::kOnce;
    for (Reg r : operands)
      if (r != kNoReg) often = std::max(often, often_[r]);
    const Reg r = add_register(type, often);
    lines_[static_cast<size_t>(often)].push_back({r, std::move(text)});
    return r;
  }

  Dims dims_;
  std::vector<bool> reduced_;
  std::vector<Type> types_;  // of registers
  std::vector<Often> often_;
  std::vector<Line> lines_[3];  // by Often
  std::vector<Line> constants_;
  std::vector<Load> loads_, kept_loads_;
  std::vector<Read> lookups_;
  std::vector<Parameter> numbers_;
  std::vector<Index> indices_;
  std::vector<Random> randoms_;
  std::vector<Store> stores_, kept_stores_;
  std::vector<Reduction> reductions_;
};

}  // namespace lazyt::cuda
