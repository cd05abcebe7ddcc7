// Executable: a program as a list of steps over one arena; Builder: what the lowerings of operators write it with
// (lazyt/toolkit/plan.hpp).
//
// A step is a kernel, whose source is made for this program and compiled by NVRTC with all others that are not known yet,
// or a call of a library. Nothing is looked up or compiled when a program runs.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "device.h"
#include "kernels/epilogue.h"
#include "lazyt/toolkit/plan.hpp"

namespace lazyt::cuda {

using plugin::ProgramView;
using toolkit::Plan;
using toolkit::Dims;
using toolkit::Layout;
using toolkit::Number;
using toolkit::StorageId;
using toolkit::Tensor;

// One 64-bit parameter of a kernel, filled at each run.
struct Word {
  enum Kind : uint8_t { kAddress, kFloat, kInt, kBits, kFaults } kind;
  StorageId storage = 0;  // of an address
  uint64_t bits = 0;      // byte offset of an address; the word itself of kBits
  Number number;          // of kFloat (as the bits of a double) and kInt

  // Of the tensor's first element.
  static Word address(const Tensor& t) {
    return {kAddress, t.storage, static_cast<uint64_t>(t.layout.offset) * t.element(), {}};
  }
  static Word f64(const Number& n) { return {kFloat, 0, 0, n}; }
  static Word i64(const Number& n) { return {kInt, 0, 0, n}; }
  static Word integer(int64_t n) { return {kBits, 0, static_cast<uint64_t>(n), {}}; }
};

// What a kernel may find wrong with its input while it runs. It then says so by lazyt_fault(faults, site, value), goes on
// without touching memory that it should not, and the run's event ends with `code`: before, the value if shown, after.
// faults: the word of kind kFaults, the address of two zeroed 64-bit words of this run (site, value); site: 1 + the index
// in Executable::faults.
struct Fault {
  lazyt_code_t code = LAZYT_CODE_OUT_OF_RANGE;
  std::string before, after;
  bool shown = true;
  std::string node = {};
};

// Text of one kernel, LAZYT_KERNEL(name, words, threads) {...}, complete but for the prelude (codegen/prelude.cuh). Equal
// texts are one kernel: the name is made from the text.
struct KernelSource {
  std::string name;
  std::string text;
};

// `text` between #define and #undef of each of `defines` ("N", "AT(i)").
std::string enclosed(std::string_view text, const std::vector<std::pair<std::string, std::string>>& defines);
// The same for a `text` that defines the kernel KERNEL. base: begins the name.
KernelSource specialise(std::string_view base, std::string_view text,
                        const std::vector<std::pair<std::string, std::string>>& defines);

// The type in a kernel's text that an element has in memory: "float", "lazyt_f16". Throws UNIMPLEMENTED for what kernels
// do not take. See codegen/prelude.cuh.
std::string memory_type(lazyt_dtype_t dtype);
// The type that it is computed in: "float" for f32, f16 and bf16, "double", "long long" for i64, ...
std::string register_type(lazyt_dtype_t dtype);

// Elements of `from` in the rows that `at` names, which nobody has gathered: both have the dims of what they would make, of
// stride 0 where the other counts. Without `at` the row is first + step * the coordinate that `along` has a 1 for.
struct Lookup {
  Tensor from;
  std::optional<Tensor> at;
  Dims along;
  Number first;
  int64_t step = 1;
  int64_t size = 0, stride = 0;  // of the rows
  std::array<Word, 2> fault;
};

struct Run;  // execute.h: addresses and numbers of one run, and its stream

class Step {
 public:
  enum class Kind : uint8_t { kKernel, kCopy, kLibrary };

  explicit Step(Kind of) : kind(of) {}
  virtual ~Step() = default;
  const Kind kind;  // of KernelStep, CopyStep, LibraryStep
  // For reports and tests: "kernel softmax_4f2a", "cublasLt f32 128x64x32".
  virtual std::string describe() const = 0;
};

struct KernelStep final : Step {
  KernelStep() : Step(Kind::kKernel) {}

  KernelSource source;
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  uint32_t shared_bytes = 0;  // dynamic
  std::vector<Word> words;
  CUfunction function = nullptr;  // after compile
  // Where several such steps may be one launch: the kernel's body over `w`, its words, and `block` of `blocks`, and what
  // stands before the kernel.
  std::string body, before;

  std::string describe() const override { return "kernel " + source.name; }
};

// Bytes from one place to another, where the two are not the same memory.
struct CopyStep final : Step {
  CopyStep() : Step(Kind::kCopy) {}

  Tensor from, to;
  uint64_t bytes = 0;

  std::string describe() const override { return "copy"; }
};

// A call of a library, on the run's stream; must be capturable into a graph.
class LibraryStep : public Step {
 public:
  LibraryStep() : Step(Kind::kLibrary) {}
  // Whether it depends on more of a run than where its storages lie.
  virtual bool reads_numbers() const { return true; }
  std::vector<StorageId> storages;  // all that it reads and writes
  virtual void run(const Run& run) const = 0;
};

// Null if it is another.
template <class T>
const T* as(const Step& step) {
  constexpr Step::Kind kind = std::is_same_v<T, KernelStep> ? Step::Kind::kKernel : std::is_same_v<T, CopyStep> ? Step::Kind::kCopy : Step::Kind::kLibrary;
  return step.kind == kind ? static_cast<const T*>(&step) : nullptr;
}

class Scratch;  // execute.h
class Graphs;   // graph.h

struct Executable : toolkit::Plan {
  explicit Executable(Device& d) : device(d) {}
  Executable(const Executable&) = delete;
  ~Executable();  // execute.cpp

  Device& device;
  lazyt_compile_flags_t flags = 0;
  std::vector<std::unique_ptr<Step>> steps;
  // Shared with runs that are still under way.
  std::shared_ptr<std::vector<Fault>> faults = std::make_shared<std::vector<Fault>>();

  // ---- of execute.cpp; prepare() makes the first three
  Block constant_memory, kept, fault_memory;
  std::shared_ptr<Scratch> scratch;
  std::shared_ptr<Graphs> graphs;
  uint64_t runs = 0;
};

class Builder final : public toolkit::Builder {
 public:
  Builder(Executable& executable, const ProgramView& program)
      : toolkit::Builder(executable, program, "cuda", kAlignment), exe_(executable),
        epilogues_(program, static_cast<bool>(libraries().cublaslt), static_cast<bool>(libraries().cudnn)) {}

  Device& device() const { return exe_.device; }
  // Of the matrix product or convolution being lowered, or null.
  Epilogue* epilogue() { return epilogues_.of(program.nodes()[current_node()]); }
  // The sum whose place was given away before its product came, which has not computed it.
  void add_sum(const Epilogue& epilogue);
  // What stands behind a convolution, where its library did not compute it.
  void add_chain(const Epilogue& epilogue);
  // The chain of a product of our own, as text over `v`, the element of the product, `i`, where it lies in it, and `a.w`, to
  // whose words it adds; stores what is read elsewhere. REQUIRES: the product is gapless, and row-major where the chain has
  // other dims.
  std::string chain_text(Epilogue& epilogue, const Tensor& product, std::vector<Word>& words, std::vector<StorageId>& reads,
                         std::vector<StorageId>& writes, std::vector<StorageId>& reads_in_place);
  // The same of the node being lowered, if it has a chain; else `v` is stored (as a T, at word number `word`).
  std::string store_text(const Tensor& product, size_t word, std::vector<Word>& words, std::vector<StorageId>& reads,
                         std::vector<StorageId>& writes, std::vector<StorageId>& reads_in_place);
  // The chain of a norm behind `first`, an element of its result, in the norm's own kernel; stores the result
  // too if it is read elsewhere.
  void emit_chain(Epilogue& epilogue, FusedKernel& kernel, toolkit::Reg first, const Tensor& result);
  // The norm's operand 0 out of the nodes that make it, as an element of `kernel`. Stores what is read
  // elsewhere, and the operand if is_read_again, as `like` lies.
  toolkit::Reg emit_before(const Epilogue& epilogue, FusedKernel& kernel, bool is_read_again,
                           const Dims& like);
  // The registers of the nodes' operands that only kernels of their readers look up.
  void give_operands(FusedKernel& kernel, const std::vector<uint32_t>& nodes, std::vector<toolkit::Reg>& registers) const;
  // A place for result v of the node being lowered for a kernel that writes as `strides` say, or with any others: in a
  // later concatenation, if that alone reads it.
  Tensor make_part(uint32_t v, const Dims& strides);
  lazyt_compile_flags_t flags() const { return exe_.flags; }
  // Whether the storage is memory that the plugin places, not a buffer of the host.
  bool is_own(StorageId s) const {
    const auto kind = exe_.storages[s].kind;
    return kind == toolkit::Plan::Piece::kArena || kind == toolkit::Plan::Piece::kConstant || kind == toolkit::Plan::Piece::kKept;
  }
  // 32-bit counters for lazyt_is_last: 0 before the first run, and left at 0 by each.
  Tensor counters(int64_t count) {
    const std::vector<uint32_t> zeros(static_cast<size_t>(count));
    return constant(LAZYT_DTYPE_INT32, {count}, zeros.data());
  }
  void copy(const Tensor& src, const Tensor& dst) override;
  void fill(const Tensor& dst, Number number) override;

  // The words (faults, site) of a kernel that says by them what is wrong.
  std::array<Word, 2> fault(Fault fault) {
    fault.node = exe_.nodes[current_node()];
    exe_.faults->push_back(std::move(fault));
    return {Word{Word::kFaults, 0, 0, {}}, Word::integer(static_cast<int64_t>(exe_.faults->size()))};
  }

  // reads_in_place: storages that the step also only reads, each element before it writes the same element (same dims,
  // strides and offset) of every storage it writes, and that no other thread reads.
  void add(std::unique_ptr<Step> step, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
           const std::vector<StorageId>& reads_in_place = {}) {
    if (step->kind == Step::Kind::kLibrary) {
      auto& storages = static_cast<LibraryStep&>(*step).storages;
      for (const auto* some : {&reads, &writes, &reads_in_place}) storages.insert(storages.end(), some->begin(), some->end());
    }
    exe_.steps.push_back(std::move(step));
    note_step({reads, writes, reads_in_place});
  }
  void add_kernel(std::unique_ptr<KernelStep> step, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
                  const std::vector<StorageId>& reads_in_place = {}) {
    if (step->grid[0] && step->grid[1] && step->grid[2]) add(std::move(step), reads, writes, reads_in_place);
  }
  // A kernel of one element per thread and more, blocks of `threads`: grid.x covers `count` (at least one block).
  void add_kernel(KernelSource source, int64_t count, uint32_t threads, std::vector<Word> words,
                  const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
                  const std::vector<StorageId>& reads_in_place = {});
  // The same with the grid said: for a block per row and its kind. No step if a dim of it is 0.
  void add_kernel(KernelSource source, std::array<uint32_t, 3> grid, std::array<uint32_t, 3> block, uint32_t shared_bytes,
                  std::vector<Word> words, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
                  const std::vector<StorageId>& reads_in_place = {});

 private:
  toolkit::Role role_of(const lazyt_node_t& node) override;
  void lower_node(const lazyt_node_t& node) override;
  void lower_group(const toolkit::Unit& unit) override;
  void copy_beside(const Tensor& from, const Tensor& to) override;
  std::vector<uint32_t> merge(const std::vector<Access>& accesses) override;  // codegen/batch.cpp
  StorageId donor_of(StorageId s) const;
  bool may_join(const Access& a, const Access& b) const;
  // A thread has its operands in registers before it stores a result.
  bool reuses_operands() const override { return true; }

  // Behind `first`, of which `result` is the place over the kernel's dims. make(v): a place for a result of
  // the chain.
  template <class Make>
  void emit_nodes(Epilogue& epilogue, FusedKernel& kernel, toolkit::Reg first, const Tensor& result,
                  Make&& make);
  // Where some elements lie in the place that make_part gave away.
  void lower_cat(const lazyt_node_t& node, const Tensor& place);
  // An embedding that its reader looks up, and one's gradient by a range.
  void defer(const lazyt_node_t& node, const Epilogue& epilogue);
  void lower_rows(const lazyt_node_t& node, const Epilogue& epilogue);
  // An activation or a sum that its product may have computed already.
  void lower_part(const lazyt_node_t& node, Epilogue& epilogue);

  Executable& exe_;
  Epilogues epilogues_;
  std::map<uint32_t, Lookup> lookups_;  // by value
  std::map<uint32_t, Tensor> cats_;     // by node: concatenations whose place was given away
};

extern const lazyt_plugin_executable_t kExecutableTable;

lazyt_status_t* execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args, lazyt_event_t** out_event);

}  // namespace lazyt::cuda

template <>
struct lazyt::plugin::Handle<lazyt_executable_t> {
  using type = lazyt::cuda::Executable;
};
