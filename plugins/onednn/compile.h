// Executable: a program as a list of steps over one arena; Builder: what the lowerings of operators write it with
// (lazyt/toolkit/plan.hpp).
//
// Nothing is looked up or allocated when a program runs, but the arena.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device.h"
#include "lazyt/toolkit/plan.hpp"

namespace lazyt::onednn {

using plugin::ProgramView;
using toolkit::Dims;
using toolkit::Layout;
using toolkit::Number;
using toolkit::StorageId;
using toolkit::Tensor;

// The first element of a tensor: what a step needs of one whose layout is in its code already.
struct Place {
  StorageId storage = 0;
  int64_t offset = 0;  // bytes

  Place() = default;
  explicit Place(const Tensor& t)
      : storage(t.storage), offset(t.layout.offset * static_cast<int64_t>(t.element())) {}
};

// What a step sees when the program runs.
struct Frame {
  std::byte* const* storages;
  const lazyt_execute_input_t* inputs;
  uint64_t input_stride;
  int threads;  // that may work on the step

  template <class T>
  T* at(const Tensor& t) const {
    return reinterpret_cast<T*>(storages[t.storage]) + t.layout.offset;
  }
  template <class T>
  T* at(const Place& p) const {
    return reinterpret_cast<T*>(storages[p.storage] + p.offset);
  }
  const lazyt_execute_input_t& input(uint32_t i) const {
    return *reinterpret_cast<const lazyt_execute_input_t*>(reinterpret_cast<const char*>(inputs) + i * input_stride);
  }
  double as_double(const Number& n) const { return toolkit::number_in<double>(n, inputs, input_stride); }
  int64_t as_int(const Number& n) const { return toolkit::number_in<int64_t>(n, inputs, input_stride); }
};

// One kernel with its operands. Immutable while it runs; keeps the Tensors it reads and writes, or their Places.
class Step {
 public:
  virtual ~Step() = default;
  virtual void run(const Frame& frame) const = 0;
  // For reports and tests: "pointwise", "matmul brgemm:avx512_core".
  virtual std::string describe() const = 0;
};

// What a run of a program has beside its arena.
struct Run {
  uint64_t number;                                // unique in the process; from 1
  std::vector<std::shared_ptr<const void>> held;  // what its addresses are good for; let go when it ends
  uint64_t let_go = 0;                            // bytes of inputs that lie in another form from now on
};

// What a program makes of an input and keeps from one run to the next, beside the input's bytes or instead of
// them.
class Kept {
 public:
  virtual ~Kept() = default;
  // Before the first step of a run: where it lies, made anew if the input has other bytes (EXE-7). is_read:
  // whether a step reads the input's own bytes, which else may be let go. Throws RESOURCE_EXHAUSTED.
  virtual std::byte* get(const lazyt_execute_input_t& input, bool is_read, Run& run) const = 0;
  // Of the program's own: not what stands for an input's bytes.
  virtual uint64_t bytes() const = 0;
};

// Shorthand for steps that are one function. Name: const char* of static storage, or std::string.
template <class Name, class F>
class FunctionStep final : public Step {
 public:
  FunctionStep(Name name, F f) : name_(std::move(name)), f_(std::move(f)) {}
  void run(const Frame& frame) const override { f_(frame); }
  std::string describe() const override { return name_; }

 private:
  Name name_;
  F f_;
};

struct Executable : toolkit::Plan {
  explicit Executable(Device& d) : device(d) {}
  Executable(const Executable&) = delete;

  Device& device;
  std::vector<std::unique_ptr<Step>> steps;
  Memory constant_memory;
  struct KeptPiece {
    std::unique_ptr<Kept> kept;
    uint32_t input;
    StorageId storage;
  };
  std::vector<KeptPiece> kept;
  std::vector<bool> reads_bytes;  // by input: whether any step reads its bytes
};

class Primitive;  // of oneDNN (kernels/dnnl.cpp), with the memory objects that a run sets
class WeightedPrimitive;

class Builder final : public toolkit::Builder {
 public:
  Builder(Executable& executable, const ProgramView& program)
      : toolkit::Builder(executable, program, "onednn", kAlignment), exe_(executable) {
    exe_.reads_bytes.assign(program.inputs().size(), false);
  }

  Device& device() const { return exe_.device; }
  // Steps that differ only in where their operands lie share one of these: it is some KB, and an unrolled loop has hundreds.
  std::vector<std::shared_ptr<Primitive>> primitives;
  std::vector<std::shared_ptr<WeightedPrimitive>> weighted;
  void copy(const Tensor& src, const Tensor& dst) override;
  void fill(const Tensor& dst, Number number) override;

  // reads_in_place: storages that the step also only reads, each element before it writes the same element (same dims,
  // strides and offset) of every storage it writes.
  // moves: as in toolkit::Builder::Access.
  void add(std::unique_ptr<Step> step, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
           const std::vector<StorageId>& reads_in_place = {}, bool moves = false) {
    for (const auto* list : {&reads, &reads_in_place})
      for (StorageId s : *list)
        if (s < exe_.reads_bytes.size()) exe_.reads_bytes[s] = true;  // inputs are the first storages
    exe_.steps.push_back(std::move(step));
    note_step({reads, writes, reads_in_place, moves});
  }
  // input: one that nothing writes (steady_input).
  Tensor add_kept(std::unique_ptr<Kept> what, uint32_t input) {
    Tensor t = kept(LAZYT_DTYPE_UINT8, {0});  // no bytes of the plan's
    t.layout = Layout::dense(Dims{static_cast<int64_t>(what->bytes())});
    exe_.kept.push_back({std::move(what), input, t.storage});
    return t;
  }
  // name, here and below: stays where it is. Plans are kept by the dozen: what f keeps of a tensor is its Place, if that will do.
  template <class F>
  void add(const char* name, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes, F f) {
    add(std::make_unique<FunctionStep<const char*, F>>(name, std::move(f)), reads, writes);
  }
  template <class F>
  void add(std::string name, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes, F f) {
    add(std::make_unique<FunctionStep<std::string, F>>(std::move(name), std::move(f)), reads, writes);
  }
  // For a kernel that is done with an element, and with all elements of its row or channel, before it writes the same
  // element: `like` lists operands whose bytes `out` may take, if they lie as it does.
  template <class F>
  void add(const char* name, const std::vector<StorageId>& reads, const Tensor& out, const std::vector<Tensor>& like,
           std::vector<StorageId> writes, F f) {
    std::vector<StorageId> beside = reads, in_place;
    for (const Tensor& t : like) (may_lie_on(t, out, writes) ? in_place : beside).push_back(t.storage);
    writes.push_back(out.storage);
    add(std::make_unique<FunctionStep<const char*, F>>(name, std::move(f)), beside, writes, in_place);
  }
  // A copy to where elements lie alike, if f does nothing for the same bytes.
  template <class F>
  void add_move(const char* name, StorageId from, StorageId to, F f) {
    add(std::make_unique<FunctionStep<const char*, F>>(name, std::move(f)), {}, {to}, {from}, true);
  }
  using toolkit::Builder::may_lie_on;

 private:
  toolkit::Role role_of(const lazyt_node_t& node) override;
  // A kernel has 128 slots; some hold what is between the instructions of a node, and what is computed again.
  bool runs_early() const override { return true; }
  toolkit::FusionLimits fusion_limits() const override { return {.values = 96, .waiting = 12}; }
  void lower_node(const lazyt_node_t& node) override;
  void lower_group(const toolkit::Unit& unit) override;
  void copy_beside(const Tensor& from, const Tensor& to) override;

  Executable& exe_;
};

extern const lazyt_plugin_executable_t kExecutableTable;

lazyt_status_t* execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args, lazyt_event_t** out_event);

}  // namespace lazyt::onednn

template <>
struct lazyt::plugin::Handle<lazyt_executable_t> {
  using type = lazyt::onednn::Executable;
};
