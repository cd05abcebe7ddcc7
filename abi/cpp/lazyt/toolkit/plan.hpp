// plan.hpp - from a program to steps over one block of memory.
//
//   Plan      what an executable keeps: where every run of bytes lies while the program runs
//   Builder   walks a program's units (fusion.hpp), lets the backend write steps for each, and places what they compute
//
//   fuse (order)  ->  lower each unit: views become layouts, groups one kernel, the rest what the backend has for it
//         ->  outputs lie where the host wants them, donated ones made safe  ->  arena planned
//
// A backend derives its Builder from this one, says how a node, a group, a copy and a fill become steps of its own, and
// tells note_step what each reads and writes.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_PLAN_HPP_
#define LAZYT_TOOLKIT_PLAN_HPP_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lazyt/plugin.hpp"
#include "lazyt/toolkit/arena.hpp"
#include "lazyt/toolkit/fusion.hpp"
#include "lazyt/toolkit/layout.hpp"
#include "lazyt/toolkit/order.hpp"
#include "lazyt/toolkit/recompute.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

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
// Whether the number is known, and is this.
inline bool is_number(const Number& n, double value) {
  return n.constant && (n.integral ? static_cast<double>(n.i) : n.d) == value;
}

// Many short texts, end to end: for messages, which are seldom.
class Texts {
 public:
  // REQUIRES: not finished.
  void push_back(std::string_view text) {
    lines_->all += text;
    lines_->ends.push_back(static_cast<uint32_t>(lines_->all.size()));
  }
  size_t size() const { return lines_->ends.size(); }
  std::string operator[](size_t i) const {
    const uint32_t begin = i ? lines_->ends[i - 1] : 0;
    return lines_->all.substr(begin, lines_->ends[i] - begin);
  }
  // From now on in little memory: in that of others that say the same, if they were finished not long ago. Programs that differ in
  // shapes alone (and their pieces) are compiled one after the other, and kept together.
  void finish() {
    static std::mutex mutex;
    static auto& finished = *new std::array<std::weak_ptr<Lines>, 64>;  // by hash
    auto& last = finished[std::hash<std::string>()(lines_->all) % finished.size()];
    const std::lock_guard lock(mutex);
    if (auto same = last.lock(); same && same->all == lines_->all && same->ends == lines_->ends) {
      lines_ = std::move(same);
      return;
    }
    lines_->all.shrink_to_fit();
    lines_->ends.shrink_to_fit();
    last = lines_;
  }

 private:
  struct Lines {
    std::string all;
    std::vector<uint32_t> ends;
  };
  std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
};

// Immutable once built.
struct Plan {
  struct Input {
    uint64_t size_bytes = 0;
    bool host_scalar = false;
  };
  struct Output {
    uint64_t size_bytes = 0;
    uint32_t donor = LAZYT_NONE;  // the input on whose bytes it may lie
  };
  struct Piece {
    // kBeside: the output, or a piece of the arena in runs where the output lies on its donor.
    enum Kind : uint8_t { kInput, kOutput, kConstant, kKept, kArena, kBeside } kind;
    uint32_t index;   // of the input, output
    uint64_t offset;  // in the constants, in what is kept, or in the arena
  };

  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<uint32_t> step_nodes;  // the node that an error in a step names
  Texts nodes;                       // what errors call them
  std::vector<Piece> storages;       // inputs, then outputs, then constants, then pieces of the arena
  std::vector<std::byte> constants;  // the backend moves them to where its steps read them
  uint64_t kept_bytes = 0;           // that steps keep from one run to the next
  uint64_t arena_bytes = 0;
};

// The scalar's value as the C++ type of its dtype (f16 and bf16 as float), given to f.
template <class F>
auto with_scalar(const lazyt_scalar_t& s, lazyt_dtype_t dtype, F&& f) {
  auto read = [&]<class T>(T value) {
    std::memcpy(&value, s.bytes, sizeof value);
    return value;
  };
  switch (dtype) {
    case LAZYT_DTYPE_BOOL: case LAZYT_DTYPE_UINT8: return f(read(uint8_t{}));
    case LAZYT_DTYPE_INT8: return f(read(int8_t{}));
    case LAZYT_DTYPE_INT16: return f(read(int16_t{}));
    case LAZYT_DTYPE_INT32: return f(read(int32_t{}));
    case LAZYT_DTYPE_INT64: return f(read(int64_t{}));
    case LAZYT_DTYPE_FLOAT32: return f(read(float{}));
    case LAZYT_DTYPE_FLOAT64: return f(read(double{}));
    case LAZYT_DTYPE_BFLOAT16: return f(std::bit_cast<float>(static_cast<uint32_t>(read(uint16_t{})) << 16));
    case LAZYT_DTYPE_FLOAT16: {
      const uint32_t h = read(uint16_t{}), sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
      if (exponent == 31) return f(std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13)));
      if (exponent) return f(std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13)));
      const float tiny = static_cast<float>(mantissa) * 0x1p-24f;
      return f(sign ? -tiny : tiny);
    }
    default: throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "a host scalar has dtype " + std::to_string(dtype));
  }
}

// What a number is in this run. inputs: lazyt_execute_args_t's.
template <class T>
T number_in(const Number& n, const lazyt_execute_input_t* inputs, uint64_t stride) {
  if (n.constant) return n.integral ? static_cast<T>(n.i) : static_cast<T>(n.d);
  const auto* input = reinterpret_cast<const lazyt_execute_input_t*>(reinterpret_cast<const char*>(inputs) + n.input * stride);
  return with_scalar(input->scalar, n.dtype, [](auto v) { return static_cast<T>(v); });
}

inline bool same_strides(const Dims& dims, const Dims& a, const Dims& b) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] > 1 && a[i] != b[i]) return false;
  return true;
}

class Builder {
 public:
  // who: the plugin, for errors. alignment: of arena pieces and constants, a power of two. Both program and plan outlive
  // the builder.
  Builder(Plan& plan, const plugin::ProgramView& view, std::string who, uint64_t alignment)
      : program(view), plan_(plan), who_(std::move(who)), alignment_(alignment), values_(view.values().begin(), view.values().end()) {
    if (program.has_symbols()) throw error(LAZYT_CODE_UNIMPLEMENTED, "programs with symbolic dims are not taken");
    tensors_.resize(values_.size());
    uses_.assign(values_.size(), 0);
    output_of_.assign(values_.size(), LAZYT_NONE);
    donors_.resize(program.outputs().size());
  }
  virtual ~Builder() = default;
  Builder(const Builder&) = delete;

  void run() {
    begin();
    auto units = fuse(program, [&](uint32_t i) { return role_of(program.nodes()[i]); }, fusion_limits());
    if (runs_early()) units = ordered(program, std::move(units));
    recompute(program, units);
    for (const Unit& unit : units) count_again(unit);
    for (const Unit& unit : units) lower(unit);
    finish_outputs();
    place();
  }

  const plugin::ProgramView& program;

  // ---- operands
  const lazyt_value_t& value(uint32_t v) const { return values_[v]; }
  Dims dims(uint32_t v) const {
    auto d = program.dims(value(v));
    return {d.begin(), d.end()};
  }
  // Row-major where the value has none of its own.
  Dims strides(uint32_t v) const { return value(v).strides == LAZYT_NONE ? row_major(program.dims(value(v))) : Dims(program.strides(value(v))); }
  lazyt_dtype_t dtype(uint32_t v) const { return value(v).dtype; }
  // Where a value's bytes lie. REQUIRES: its producer was lowered; not a host scalar.
  const Tensor& tensor(uint32_t v) const {
    if (tensors_[v].dtype == LAZYT_DTYPE_INVALID)
      throw error(LAZYT_CODE_INTERNAL, "value " + std::to_string(v) + " is used before it is made, or is no tensor");
    return tensors_[v];
  }
  // The same values row-major without gaps: the value itself, or a copy.
  Tensor dense(uint32_t v) { return dense(tensor(v)); }
  Tensor dense(const Tensor& t) { return t.layout.is_dense() ? t : laid_out(t, t.dtype, row_major(t.dims())); }
  // The same values with these dtype and strides (dense in some order of dims): the value itself, or a copy. Copies are
  // shared by all who ask for the same.
  Tensor laid_out(const Tensor& t, lazyt_dtype_t dtype, const Dims& strides) {
    if (t.dtype == dtype && same_strides(t.dims(), t.strides(), strides)) return t;
    for (const auto& [from, to] : copies_)
      if (from.storage == t.storage && from.layout.offset == t.layout.offset && from.layout.dims == t.layout.dims &&
          from.layout.strides == t.layout.strides && from.dtype == t.dtype && to.dtype == dtype &&
          same_strides(t.dims(), to.strides(), strides))
        return to;
    Tensor out = scratch(dtype, t.dims(), strides, static_cast<uint64_t>(t.count()) * lazyt_dtype_size(dtype));
    copy(t, out);
    copies_.emplace_back(t, out);
    return out;
  }
  // dst = src, converting the dtype, broadcasting src's dims.
  virtual void copy(const Tensor& src, const Tensor& dst) = 0;
  // All elements of dst.
  virtual void fill(const Tensor& dst, Number number) = 0;
  // The steps that f() adds write different elements of what they both write, in any order; it must not call this again.
  template <class F>
  void write_beside(F&& f) {
    beside_ = ++besides_;
    f();
    beside_ = 0;
  }

  // ---- arguments of a node
  static bool is_none(const lazyt_arg_t& a) { return a.kind == LAZYT_ARG_NONE; }
  static uint32_t value_of(const lazyt_arg_t& a) { return static_cast<uint32_t>(a.payload); }
  static int64_t int_of(const lazyt_arg_t& a) { return static_cast<int64_t>(a.payload); }
  static bool bool_of(const lazyt_arg_t& a) { return a.payload != 0; }
  static double double_of(const lazyt_arg_t& a) {
    return a.kind == LAZYT_ARG_DOUBLE ? std::bit_cast<double>(a.payload) : static_cast<double>(int_of(a));
  }
  Number number_of(const lazyt_arg_t& a) const {
    switch (a.kind) {
      case LAZYT_ARG_INT: case LAZYT_ARG_BOOL: return {true, true, 0, int_of(a), 0, LAZYT_DTYPE_INT64};
      case LAZYT_ARG_DOUBLE: return {true, false, double_of(a), 0, 0, LAZYT_DTYPE_FLOAT64};
      case LAZYT_ARG_VALUE:
        for (const auto& [v, input] : scalars_)
          if (v == value_of(a)) return {false, false, 0, 0, input, dtype(v)};
        [[fallthrough]];
      default: throw error(LAZYT_CODE_INTERNAL, "an argument is no number");
    }
  }
  Dims ints_of(const lazyt_arg_t& a) const {
    if (a.kind == LAZYT_ARG_INT) return {int_of(a)};
    if (a.kind == LAZYT_ARG_NONE) return {};
    auto run = program.ints(a);
    return {run.begin(), run.end()};
  }

  // ---- results
  // A place for result value v of the node being lowered, and v is that from now on. Row-major, or, where v is an
  // output of the program, as the output lies (then v's strides may be any).
  Tensor make(uint32_t v) { return make(v, output_of_[v] != LAZYT_NONE ? strides(v) : row_major(dims(v))); }
  // The same for a kernel that only writes these strides (dense in some order of dims); what an output wants else
  // is copied at the end.
  Tensor make(uint32_t v, const Dims& strides) {
    const Dims d = dims(v);
    if (const uint32_t o = output_of_[v]; o != LAZYT_NONE && same_strides(d, strides, this->strides(v))) {
      tensors_[v] = {output_storages_[o], dtype(v), {0, d, strides}};
    } else {
      tensors_[v] = scratch(dtype(v), d, strides, static_cast<uint64_t>(count_of(d)) * lazyt_dtype_size(dtype(v)));
    }
    return tensors_[v];
  }
  Tensor make_dense(uint32_t v) { return make(v, row_major(dims(v))); }
  // Value v lies here: a view of an operand, or a scratch tensor.
  void set(uint32_t v, Tensor t) { tensors_[v] = std::move(t); }
  // Arena memory, row-major.
  Tensor scratch(lazyt_dtype_t dtype, const Dims& dims) {
    return scratch(dtype, dims, row_major(dims), static_cast<uint64_t>(count_of(dims)) * lazyt_dtype_size(dtype));
  }
  Tensor scratch(lazyt_dtype_t dtype, const Dims& dims, const Dims& strides, uint64_t bytes) {
    return {add_storage({Plan::Piece::kArena, 0, 0}, bytes), dtype, {0, dims, strides}};
  }
  // Bytes kept with the executable; copied.
  Tensor constant(lazyt_dtype_t dtype, const Dims& dims, const void* data) {
    const uint64_t bytes = static_cast<uint64_t>(count_of(dims)) * lazyt_dtype_size(dtype);
    const uint64_t offset = align_up(plan_.constants.size());
    plan_.constants.resize(offset + bytes);
    if (bytes) std::memcpy(plan_.constants.data() + offset, data, bytes);
    return {add_storage({Plan::Piece::kConstant, 0, offset}, bytes), dtype, Layout::dense(dims)};
  }
  // Bytes that stay from one run to the next; what they are before the first is not said.
  Tensor kept(lazyt_dtype_t dtype, const Dims& dims) {
    const uint64_t bytes = static_cast<uint64_t>(count_of(dims)) * lazyt_dtype_size(dtype), offset = plan_.kept_bytes;
    plan_.kept_bytes = align_up(offset + bytes);
    return {add_storage({Plan::Piece::kKept, 0, offset}, bytes), dtype, Layout::dense(dims)};
  }
  // The program's input that t's bytes are, if nothing the program writes may lie on them; else LAZYT_NONE. Such an
  // input often is the same in every run: weights at inference.
  uint32_t steady_input(const Tensor& t) const {
    const Plan::Piece& piece = plan_.storages[t.storage];
    if (piece.kind != Plan::Piece::kInput || std::find(donors_.begin(), donors_.end(), piece.index) != donors_.end())
      return LAZYT_NONE;
    return piece.index;
  }
  // Host scalars are no tensors: see number_of.
  bool is_scalar(uint32_t v) const { return value(v).flags & LAZYT_VALUE_HOST_SCALAR; }
  bool is_used(uint32_t v) const { return uses_[v] > 0; }
  // By nodes and outputs of the program.
  uint32_t uses(uint32_t v) const { return uses_[v]; }
  // Strides for a pointwise result: as an output lies, else as `like` does if that is dense, else row-major.
  Dims result_strides(uint32_t v, const Dims& like) const {
    if (output_of_[v] != LAZYT_NONE) return strides(v);
    const Dims d = dims(v);
    // Dense in some order of its dims.
    if (like.size() == d.size() && same_strides(d, like, strides_in_order(d, memory_order(d, like)))) return like;
    return row_major(d);
  }
  // Whether the storage is an output that may lie on an input's bytes.
  bool may_be_donated(StorageId s) const {
    return plan_.storages[s].kind == Plan::Piece::kOutput && donors_[plan_.storages[s].index] != LAZYT_NONE;
  }
  uint64_t bytes_of(StorageId s) const { return bytes_[s]; }

 protected:
  // What a step reads and writes decides how long the storages live.
  struct Access {
    std::vector<StorageId> reads;
    std::vector<StorageId> writes;
    // That the step also only reads, each element before it writes the same element (same dims, strides and offset) of
    // every storage it writes.
    std::vector<StorageId> reads_in_place;
    // The step copies what it reads in place to what it writes, and does nothing where they are the same bytes: a write to a part of
    // a tensor whose content before nobody reads is no more than that. As reuses_operands() for all steps.
    bool moves = false;
    // Not 0: steps of the same number write different elements of what they both write, in any order (write_beside).
    uint32_t beside = 0;
  };

  // ---- what a backend says
  // Throws for a node that it does not take.
  virtual Role role_of(const lazyt_node_t& node) = 0;
  virtual FusionLimits fusion_limits() const { return {}; }
  // Whether groups run as soon as what they read is there (order.hpp). Not for a backend that lowers a node only with one behind it, or
  // that orders its steps itself (merge).
  virtual bool runs_early() const { return false; }
  virtual void lower_node(const lazyt_node_t& node) = 0;  // role kOpaque
  virtual void lower_group(const Unit& unit) = 0;         // role kPointwise, kReduction
  // A step that copies bytes where the two are not the same memory (a donor that gave its bytes).
  virtual void copy_beside(const Tensor& from, const Tensor& to) = 0;
  // When all steps but copies to donors are there: the backend may run several that depend on none of each other as one,
  // and change their order. Answers the position of each step, from 0 without gaps: steps of one position run together.
  // The backend's list of steps, and plan().step_nodes, are then by position.
  virtual std::vector<uint32_t> merge(const std::vector<Access>& accesses) {
    std::vector<uint32_t> positions(accesses.size());
    for (uint32_t i = 0; i < positions.size(); ++i) positions[i] = i;
    return positions;
  }

  // Whether reads_in_place may be taken at its word for pieces of the arena as well: a step then never sees what it has
  // written there as the operand.
  virtual bool reuses_operands() const { return false; }

  Plan& plan() const { return plan_; }
  // The backend has added a step to its list, made from the node being lowered.
  void note_step(Access access) {
    access.beside = beside_;
    plan_.step_nodes.push_back(node_);
    accesses_.push_back(std::move(access));
  }
  // Whether a step that reads `in` may write `out` on the same bytes. others: what else it writes; storages of other sizes
  // cannot be given the same donor.
  bool may_lie_on(const Tensor& in, const Tensor& out, const std::vector<StorageId>& others) const {
    return in.dtype == out.dtype && in.layout.offset == out.layout.offset && in.dims() == out.dims() &&
           same_strides(in.dims(), in.strides(), out.strides()) &&
           std::none_of(others.begin(), others.end(), [&](StorageId s) { return bytes_[s] == bytes_[out.storage]; });
  }
  // The node being lowered, as in Plan::nodes.
  uint32_t current_node() const { return node_; }
  plugin::Error error(lazyt_code_t code, const std::string& what) const { return {code, who_ + ": " + what}; }

 private:
  uint64_t align_up(uint64_t n) const { return (n + alignment_ - 1) & ~(alignment_ - 1); }

  StorageId add_storage(Plan::Piece piece, uint64_t bytes) {
    plan_.storages.push_back(piece);
    bytes_.push_back(bytes);
    return static_cast<StorageId>(plan_.storages.size() - 1);
  }

  // Inputs, outputs, constants and uses.
  void begin() {
    plan_.inputs.reserve(program.inputs().size());
    plan_.outputs.reserve(program.outputs().size());
    for (uint32_t i = 0; i < program.inputs().size(); ++i) {
      const uint32_t v = program.inputs()[i].value;
      const bool scalar = is_scalar(v);
      plan_.inputs.push_back({scalar ? 0 : program.span_bytes(value(v)), scalar});
      const StorageId s = add_storage({Plan::Piece::kInput, i, 0}, plan_.inputs.back().size_bytes);
      tensors_[v] = {s, scalar ? LAZYT_DTYPE_INVALID : dtype(v), {0, dims(v), strides(v)}};
      if (scalar) scalars_.emplace_back(v, i);
    }
    for (uint32_t i = 0; i < program.outputs().size(); ++i) {
      const lazyt_output_t& output = program.outputs()[i];
      plan_.outputs.push_back({program.span_bytes(value(output.value)), output.donor});
      output_storages_.push_back(add_storage({Plan::Piece::kOutput, i, 0}, plan_.outputs.back().size_bytes));
      donors_[i] = output.donor;
      if (output_of_[output.value] == LAZYT_NONE && tensors_[output.value].dtype == LAZYT_DTYPE_INVALID)
        output_of_[output.value] = i;
      uses_[output.value]++;
    }
    for (const lazyt_constant_t& c : program.constants()) {
      if (c.file.size) throw error(LAZYT_CODE_UNIMPLEMENTED, "a constant lies in a file of its own");
      const auto* data = reinterpret_cast<const std::byte*>(program.block()) + program.block()->data.offset + c.offset;
      tensors_[c.value] = constant(dtype(c.value), dims(c.value), data);
      tensors_[c.value].layout.strides = strides(c.value);
    }
    for (uint32_t i = 0; i < program.nodes().size(); ++i) {
      plan_.nodes.push_back(program.describe(i));
      detail::for_each_operand(program, program.nodes()[i], [&](uint32_t v) { uses_[v]++; });
    }
    plan_.nodes.finish();
    for (uint32_t i = static_cast<uint32_t>(program.nodes().size()); i-- > 0;) find_home(program.nodes()[i]);
  }

  // A unit reads the operands of what it computes again in place of the results.
  void count_again(const Unit& unit) {
    if (unit.again.empty()) return;
    std::vector<uint32_t> own;
    for (uint32_t i : unit.again) {
      const lazyt_node_t& node = program.nodes()[i];
      for (uint32_t r = 0; r < node.result_count; ++r) own.push_back(node.results + r);
      detail::for_each_operand(program, node, [&](uint32_t v) { uses_[v]++; });
    }
    auto stop_reading = [&](uint32_t v) { uses_[v] -= std::find(own.begin(), own.end(), v) != own.end(); };
    for (const auto* nodes : {&unit.again, &unit.nodes})
      for (uint32_t i : *nodes) detail::for_each_operand(program, program.nodes()[i], stop_reading);
  }

  // What an output shows whole and row-major, under other dims, is made where that output lies. By nodes, last first.
  void find_home(const lazyt_node_t& node) {
    const uint32_t shown = node.results, o = output_of_[shown];
    if (node.result_count != 1 || o == LAZYT_NONE || role_of(node) != Role::kView) return;
    const uint32_t whole = value_of(program.args(node)[0]);
    if (output_of_[whole] != LAZYT_NONE || tensors_[whole].dtype != LAZYT_DTYPE_INVALID || is_scalar(whole)) return;
    const Dims d = dims(shown);
    if (!same_strides(dims(whole), strides(whole), row_major(dims(whole)))) return;  // make() takes an output's own strides
    const auto layout = view_of(program, node, 0, Layout::dense(dims(whole)));
    if (!layout || layout->offset != 0 || !layout->is_dense() || count_of(d) != count_of(dims(whole))) return;
    if (dtype(shown) == dtype(whole) && same_strides(d, strides(shown), row_major(d))) output_of_[whole] = o;
  }

  void lower(const Unit& unit) {
    node_ = unit.nodes.front();
    const lazyt_node_t& node = program.nodes()[node_];
    switch (unit.role) {
      case Role::kView: return lower_view(node);
      case Role::kPointwise: case Role::kReduction: return lower_group(unit);
      case Role::kOpaque: return lower_node(node);
    }
  }

  void lower_view(const lazyt_node_t& node) {
    Tensor from = tensor(value_of(program.args(node)[0]));
    for (uint32_t r = 0; r < node.result_count; ++r) {
      auto layout = view_of(program, node, r, from.layout);
      if (!layout) {
        from = dense(from);
        layout = view_of(program, node, r, from.layout);
      }
      if (!layout) throw error(LAZYT_CODE_INTERNAL, program.describe(node_) + " is no view of its operand");
      set(node.results + r, {from.storage, from.dtype, std::move(*layout)});
    }
  }

  // Every output lies where the host wants it. An output that may lie on its donor's bytes must not be written while a
  // step still reads the donor; such a one is computed beside and copied at the end.
  void finish_outputs() {
    for (uint32_t i = 0; i < output_storages_.size(); ++i) {
      const uint32_t v = program.outputs()[i].value;
      const Tensor target{output_storages_[i], dtype(v), {0, dims(v), strides(v)}};
      if (is_scalar(v)) {
        fill(target, {false, false, 0, 0, tensors_[v].storage, dtype(v)});
      } else if (const Tensor& t = tensor(v); t.storage != target.storage) {
        copy(t, target);
      }
    }
    positions_ = merge(accesses_);
    uint32_t next = positions_.empty() ? 0 : *std::max_element(positions_.begin(), positions_.end()) + 1;
    const size_t count = output_storages_.size();
    std::vector<uint32_t> writer(plan_.storages.size(), UINT32_MAX);  // the first step that writes a storage
    for (uint32_t i = 0; i < accesses_.size(); ++i)
      for (StorageId s : accesses_[i].writes)
        if (writer[s] == UINT32_MAX || positions_[i] < positions_[writer[s]]) writer[s] = i;
    std::vector<bool> unsafe(count, false);
    // Inputs are the first storages: donor i is storage i.
    std::vector<std::vector<uint32_t>> given(plan_.inputs.size());
    for (uint32_t i = 0; i < count; ++i)
      if (donors_[i] != LAZYT_NONE) given[donors_[i]].push_back(i);
    auto check_read = [&](StorageId s, uint32_t step, bool in_place) {
      if (s >= given.size()) return;
      for (uint32_t o : given[s]) {
        const uint32_t w = writer[output_storages_[o]];
        if (w == UINT32_MAX || positions_[step] < positions_[w] || (in_place && step == w)) continue;
        unsafe[o] = true;
      }
    };
    for (uint32_t i = 0; i < accesses_.size(); ++i) {
      for (StorageId s : accesses_[i].reads) check_read(s, i, false);
      for (StorageId s : accesses_[i].reads_in_place) check_read(s, i, true);
    }
    for (uint32_t i = 0; i < count; ++i) {
      if (!unsafe[i]) continue;
      const StorageId output = output_storages_[i];
      const uint32_t v = program.outputs()[i].value;
      const Tensor beside{output, dtype(v), {0, dims(v), strides(v)}};
      plan_.storages[output] = {Plan::Piece::kBeside, i, 0};
      Tensor target = beside;
      target.storage = add_storage({Plan::Piece::kOutput, i, 0}, bytes_[output]);
      copy_beside(beside, target);
    }
    while (positions_.size() < accesses_.size()) positions_.push_back(next++);
  }

  struct Life {
    uint32_t first = UINT32_MAX, last = 0;
    void join(const Life& other) {
      first = std::min(first, other.first);
      last = std::max(last, other.last);
    }
  };

  // A result may take the bytes of an operand that dies as it is made, where the step allows it: heirs[s] is the storage
  // on whose bytes s lies, s itself if on its own.
  std::vector<StorageId> find_heirs(const std::vector<Life>& lives) const {
    std::vector<StorageId> lies_on(plan_.storages.size());
    for (StorageId s = 0; s < lies_on.size(); ++s) lies_on[s] = s;
    const auto takes = [&](const Access& access) { return access.moves || reuses_operands(); };
    if (std::none_of(accesses_.begin(), accesses_.end(), takes)) return lies_on;
    std::vector<uint32_t> uses_at_death(plan_.storages.size(), 0);
    for (size_t i = 0; i < accesses_.size(); ++i)
      for (const auto* list : {&accesses_[i].reads, &accesses_[i].reads_in_place, &accesses_[i].writes})
        for (StorageId s : *list) uses_at_death[s] += positions_[i] == lives[s].last;
    std::vector<bool> given(plan_.storages.size(), false);
    for (size_t i = 0; i < accesses_.size(); ++i) {
      if (!takes(accesses_[i])) continue;
      for (StorageId to : accesses_[i].writes) {
        if (plan_.storages[to].kind != Plan::Piece::kArena || lives[to].first != positions_[i] || lies_on[to] != to) continue;
        for (StorageId from : accesses_[i].reads_in_place) {
          if (plan_.storages[from].kind != Plan::Piece::kArena || given[from] || bytes_[from] != bytes_[to]) continue;
          if (lives[from].last != positions_[i] || uses_at_death[from] != 1) continue;
          given[from] = true;
          lies_on[to] = lies_on[from];
          break;
        }
      }
    }
    return lies_on;
  }

  void place() {
    std::vector<Life> lives(plan_.storages.size());
    for (size_t i = 0; i < accesses_.size(); ++i) {
      for (StorageId s : accesses_[i].reads) lives[s].last = std::max(lives[s].last, positions_[i]);
      for (StorageId s : accesses_[i].reads_in_place) lives[s].last = std::max(lives[s].last, positions_[i]);
      for (StorageId s : accesses_[i].writes) lives[s].join({positions_[i], positions_[i]});
    }
    const std::vector<StorageId> lies_on = find_heirs(lives);
    std::vector<Life> whole = lives;  // of the bytes
    for (StorageId s = 0; s < lies_on.size(); ++s) whole[lies_on[s]].join(lives[s]);
    std::vector<Interval> intervals;
    std::vector<StorageId> ids;
    for (StorageId s = 0; s < plan_.storages.size(); ++s) {
      const Plan::Piece& piece = plan_.storages[s];
      if ((piece.kind != Plan::Piece::kArena && piece.kind != Plan::Piece::kBeside) || lives[s].first == UINT32_MAX) continue;
      if (lies_on[s] != s) continue;
      intervals.push_back({whole[s].first, whole[s].last, bytes_[s]});
      ids.push_back(s);
    }
    const Arena arena = plan_arena(intervals, alignment_);
    for (size_t i = 0; i < ids.size(); ++i) plan_.storages[ids[i]].offset = arena.offsets[i];
    for (StorageId s = 0; s < lies_on.size(); ++s)
      if (lies_on[s] != s) plan_.storages[s].offset = plan_.storages[lies_on[s]].offset;
    plan_.arena_bytes = arena.bytes;
    plan_.step_nodes.shrink_to_fit();  // it lives long, and there are many
    plan_.storages.shrink_to_fit();
  }

  Plan& plan_;
  const std::string who_;
  const uint64_t alignment_;
  std::vector<lazyt_value_t> values_;
  std::vector<Tensor> tensors_;      // of values; dtype INVALID = not lowered
  std::vector<uint32_t> uses_;       // of values by nodes and outputs
  std::vector<uint32_t> output_of_;  // first program output that is this value, or shows its bytes; or LAZYT_NONE
  std::vector<uint64_t> bytes_;      // of storages
  std::vector<Access> accesses_;     // of steps
  std::vector<uint32_t> positions_;  // of steps, after merging
  std::vector<StorageId> output_storages_;
  std::vector<uint32_t> donors_;                        // of outputs: an input, or LAZYT_NONE
  std::vector<std::pair<uint32_t, uint32_t>> scalars_;  // value, program input
  uint32_t node_ = 0;                                   // being lowered
  uint32_t beside_ = 0, besides_ = 0;                   // write_beside: the number now, and how many there were
  std::vector<std::pair<Tensor, Tensor>> copies_;       // made by laid_out
};

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_PLAN_HPP_
