// Executable: a program as a list of steps over one arena; Builder: what the lowerings of operators write it with.
//
//   fuse (toolkit)  ->  lower each unit: views become layouts, groups become one kernel, the rest is looked up in
//   the table of ops.h  ->  donated outputs made safe  ->  arena planned
//
// Nothing is looked up or allocated when a program runs, but the arena.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device.h"
#include "lazyt/toolkit/fusion.hpp"
#include "lazyt/toolkit/layout.hpp"

namespace lazyt::onednn {

using plugin::ProgramView;
using toolkit::Dims;
using toolkit::Layout;

// A run of bytes while a program runs: an input's or output's buffer, a piece of the arena, a constant.
using StorageId = uint32_t;

// A tensor over a storage. Layout counts elements.
struct Tensor {
  StorageId storage = 0;
  lazyt_dtype_t dtype = LAZYT_DTYPE_INVALID;
  Layout layout;

  const Dims& dims() const { return layout.dims; }
  const Dims& strides() const { return layout.strides; }
  int64_t count() const { return layout.count(); }
  uint64_t element() const { return lazyt_dtype_size(dtype); }
};

// A number that an operator takes: known when compiled, or a host scalar that comes with each run.
struct Number {
  bool constant = true;
  bool integral = false;  // of a constant: whether `i` holds it
  double d = 0;
  int64_t i = 0;
  uint32_t input = 0;  // of a host scalar: the program's input
  lazyt_dtype_t dtype = LAZYT_DTYPE_FLOAT64;
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
  const lazyt_execute_input_t& input(uint32_t i) const {
    return *reinterpret_cast<const lazyt_execute_input_t*>(reinterpret_cast<const char*>(inputs) + i * input_stride);
  }
  double as_double(const Number& n) const;
  int64_t as_int(const Number& n) const;
};

// One kernel with its operands. Immutable while it runs; keeps the Tensors it reads and writes.
class Step {
 public:
  virtual ~Step() = default;
  virtual void run(const Frame& frame) const = 0;
  // For reports and tests: "pointwise", "matmul brgemm:avx512_core".
  virtual std::string describe() const = 0;
};

// Shorthand for steps that are one function.
template <class F>
class FunctionStep final : public Step {
 public:
  FunctionStep(std::string name, F f) : name_(std::move(name)), f_(std::move(f)) {}
  void run(const Frame& frame) const override { f_(frame); }
  std::string describe() const override { return name_; }

 private:
  std::string name_;
  F f_;
};

struct InputSpec {
  uint64_t size_bytes = 0;
  bool host_scalar = false;
};
struct OutputSpec {
  uint64_t size_bytes = 0;
  uint32_t donor = LAZYT_NONE;  // the input on whose bytes it may lie
};

struct Executable {
  explicit Executable(Device& d) : device(d) {}
  Executable(const Executable&) = delete;

  Device& device;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<uint32_t> step_nodes;  // the node that an error in a step names
  std::vector<std::string> nodes;    // what errors call them
  // Storages: inputs, then outputs, then constants, then pieces of the arena.
  struct Piece {
    // kBeside: the output, or a piece of the arena in runs where the output lies on its donor.
    enum Kind : uint8_t { kInput, kOutput, kConstant, kKept, kArena, kBeside } kind;
    uint32_t index;   // of the input, output
    uint64_t offset;  // in `constants`, in `kept` or in the arena
  };
  std::vector<Piece> storages;
  Memory constants;
  Memory kept;  // what steps keep from one run to the next
  uint64_t kept_bytes = 0, arena_bytes = 0;
};

class Builder {
 public:
  Builder(Executable& executable, const ProgramView& program);
  void run();

  const ProgramView& program;
  Device& device() const { return exe_.device; }

  // ---- operands
  const lazyt_value_t& value(uint32_t v) const { return values_[v]; }
  Dims dims(uint32_t v) const {
    auto d = program.dims(value(v));
    return {d.begin(), d.end()};
  }
  lazyt_dtype_t dtype(uint32_t v) const { return value(v).dtype; }
  // Where a value's bytes lie. REQUIRES: its producer was lowered; not a host scalar.
  const Tensor& tensor(uint32_t v) const;
  // The same values row-major without gaps: the value itself, or a copy.
  Tensor dense(uint32_t v) { return dense(tensor(v)); }
  Tensor dense(const Tensor& t);
  // The same values with these dtype and strides (dense in some order of dims): the value itself, or a copy. Copies are
  // shared by all who ask for the same.
  Tensor laid_out(const Tensor& t, lazyt_dtype_t dtype, const Dims& strides);
  // dst = src, converting the dtype, broadcasting src's dims.
  void copy(const Tensor& src, const Tensor& dst);
  // All elements of dst.
  void fill(const Tensor& dst, Number number);

  // ---- arguments of a node
  static bool is_none(const lazyt_arg_t& a) { return a.kind == LAZYT_ARG_NONE; }
  static uint32_t value_of(const lazyt_arg_t& a) { return static_cast<uint32_t>(a.payload); }
  static int64_t int_of(const lazyt_arg_t& a) { return static_cast<int64_t>(a.payload); }
  static bool bool_of(const lazyt_arg_t& a) { return a.payload != 0; }
  static double double_of(const lazyt_arg_t& a);
  Number number_of(const lazyt_arg_t& a) const;
  Dims ints_of(const lazyt_arg_t& a) const;

  // ---- results
  // A place for result value v of the node being lowered, and v is that from now on. Row-major, or, where v is an
  // output of the program, as the output lies (then v's strides may be any).
  Tensor make(uint32_t v);
  // The same for a kernel that only writes these strides (dense in some order of dims); what an output wants else
  // is copied at the end.
  Tensor make(uint32_t v, const Dims& strides);
  Tensor make_dense(uint32_t v) { return make(v, toolkit::row_major(dims(v))); }
  // Value v lies here: a view of an operand, or a scratch tensor.
  void set(uint32_t v, Tensor t);
  // Arena memory, row-major.
  Tensor scratch(lazyt_dtype_t dtype, const Dims& dims);
  Tensor scratch(lazyt_dtype_t dtype, const Dims& dims, const Dims& strides, uint64_t bytes);
  // Bytes kept with the executable; copied.
  Tensor constant(lazyt_dtype_t dtype, const Dims& dims, const void* data);
  // Bytes that stay from one run to the next; what they are before the first is not said.
  Tensor kept(lazyt_dtype_t dtype, const Dims& dims);
  // The program's input that t's bytes are, if nothing the program writes may lie on them; else LAZYT_NONE. Such an
  // input often is the same in every run: weights at inference.
  uint32_t steady_input(const Tensor& t) const;
  // Host scalars are no tensors: see number_of.
  bool is_scalar(uint32_t v) const;
  bool is_used(uint32_t v) const { return uses_[v] > 0; }
  // By nodes and outputs of the program.
  uint32_t uses(uint32_t v) const { return uses_[v]; }
  // Strides for a pointwise result: as an output lies, else as `like` does if that is dense, else row-major.
  Dims result_strides(uint32_t v, const Dims& like) const;
  // Whether the storage is an output that may lie on an input's bytes.
  bool may_be_donated(StorageId s) const;

  // ---- steps
  // What it reads and writes decides how long the storages live. reads_in_place: storages that the step also only
  // reads, each element before it writes the same element (same dims, strides and offset) of every storage it writes.
  void add(std::unique_ptr<Step> step, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
           const std::vector<StorageId>& reads_in_place = {});
  template <class F>
  void add(std::string name, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes, F f) {
    add(std::make_unique<FunctionStep<F>>(std::move(name), std::move(f)), reads, writes);
  }
  // For a kernel that is done with an element, and with all elements of its row or channel, before it writes the same
  // element: `like` lists operands whose bytes `out` may take, if they lie as it does.
  template <class F>
  void add(std::string name, const std::vector<StorageId>& reads, const Tensor& out, const std::vector<Tensor>& like,
           std::vector<StorageId> writes, F f) {
    std::vector<StorageId> beside = reads, in_place;
    for (const Tensor& t : like) (may_lie_on(t, out, writes) ? in_place : beside).push_back(t.storage);
    writes.push_back(out.storage);
    add(std::make_unique<FunctionStep<F>>(std::move(name), std::move(f)), beside, writes, in_place);
  }

 private:
  // Times: twice the step, plus one for what may come after a write of the same step.
  struct Life {
    uint32_t first_write = UINT32_MAX, last_write = 0, last_read = 0;
    bool written() const { return first_write != UINT32_MAX; }
    void read(uint32_t time) { last_read = std::max(last_read, time); }
    void write(uint32_t time) {
      first_write = std::min(first_write, time);
      last_write = std::max(last_write, time);
    }
  };

  bool may_lie_on(const Tensor& in, const Tensor& out, const std::vector<StorageId>& others) const;
  void lower(const toolkit::Unit& unit);
  void lower_view(const lazyt_node_t& node);
  StorageId add_storage(Executable::Piece piece, uint64_t bytes);
  void finish_outputs();
  void plan();

  Executable& exe_;
  std::vector<lazyt_value_t> values_;
  std::vector<Tensor> tensors_;    // of values; dtype INVALID = not lowered
  std::vector<uint32_t> uses_;     // of values by nodes and outputs
  std::vector<uint32_t> output_of_;  // first program output that is this value, or LAZYT_NONE
  std::vector<uint64_t> bytes_;    // of storages
  std::vector<Life> lives_;        // of storages
  std::vector<std::byte> constant_bytes_;
  std::vector<StorageId> output_storages_;
  std::vector<uint32_t> donors_;   // of outputs: an input, or LAZYT_NONE
  std::vector<std::pair<uint32_t, uint32_t>> scalars_;  // value, program input
  uint32_t node_ = 0;              // being lowered
  std::vector<std::pair<Tensor, Tensor>> copies_;  // made by laid_out
};

extern const lazyt_plugin_executable_t kExecutableTable;

lazyt_status_t* execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args, lazyt_event_t** out_event);

}  // namespace lazyt::onednn

template <>
struct lazyt::plugin::Handle<lazyt_executable_t> {
  using type = lazyt::onednn::Executable;
};
