#include "compile.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/pointwise.h"
#include "lazyt/toolkit/arena.hpp"
#include "ops.h"

namespace lazyt::onednn {
namespace {

using plugin::Error;
using plugin::from_c;
using plugin::guard;
using plugin::to_handle;
using Piece = Executable::Piece;

constexpr uint64_t align_up(uint64_t n) { return (n + kAlignment - 1) & ~(kAlignment - 1); }

bool same_strides(const Dims& dims, const Dims& a, const Dims& b) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] > 1 && a[i] != b[i]) return false;
  return true;
}

lazyt_status_t* compile(lazyt_device_t* device, const lazyt_compile_args_t* args, lazyt_executable_t** out_executable) {
  return guard([&] {
    auto executable = std::make_unique<Executable>(from_c(device));
    Builder(*executable, ProgramView(args->program)).run();
    *out_executable = to_handle<lazyt_executable_t>(executable.release());
  });
}

lazyt_status_t* output_meta(lazyt_executable_t* handle, uint64_t index, lazyt_output_meta_t* out_meta) {
  return guard([&] {
    const Executable& executable = from_c(handle);
    plugin::require(index < executable.outputs.size(), "output_meta: no such output");
    out_meta->size_bytes = executable.outputs[index].size_bytes;
    out_meta->alignment = 0;
    out_meta->memory_space = 0;
    out_meta->opaque = 0;
  });
}

lazyt_status_t* memory(lazyt_executable_t* handle, lazyt_executable_memory_t* out_memory) {
  return guard([&] {
    const Executable& executable = from_c(handle);
    out_memory->code_bytes = executable.constants.bytes() + executable.kept.bytes();
    out_memory->scratch_bytes = executable.arena_bytes;
  });
}

lazyt_status_t* load(lazyt_device_t*, const void*, uint64_t, lazyt_executable_t**) {
  return plugin::make_status(LAZYT_CODE_UNIMPLEMENTED, "onednn stores no compiled programs");
}

lazyt_status_t* identity(lazyt_device_t*, lazyt_string_t* out_identity) {
  *out_identity = plugin::to_c("onednn 0.1.0");
  return nullptr;
}

void release(lazyt_executable_t* executable) { delete plugin::from_c_or_null(executable); }

}  // namespace

Builder::Builder(Executable& executable, const ProgramView& view)
    : program(view), exe_(executable), values_(view.values().begin(), view.values().end()) {
  plugin::require(!program.has_symbols(), "onednn: programs with symbolic dims are not taken");
  tensors_.resize(values_.size());
  uses_.assign(values_.size(), 0);
  output_of_.assign(values_.size(), LAZYT_NONE);
  donors_.resize(program.outputs().size());
}

StorageId Builder::add_storage(Piece piece, uint64_t bytes) {
  exe_.storages.push_back(piece);
  bytes_.push_back(bytes);
  lives_.emplace_back();
  return static_cast<StorageId>(exe_.storages.size() - 1);
}

void Builder::run() {
  for (uint32_t i = 0; i < program.inputs().size(); ++i) {
    const uint32_t v = program.inputs()[i].value;
    const bool scalar = value(v).flags & LAZYT_VALUE_HOST_SCALAR;
    exe_.inputs.push_back({scalar ? 0 : program.span_bytes(value(v)), scalar});
    const StorageId s = add_storage({Piece::kInput, i, 0}, exe_.inputs.back().size_bytes);
    tensors_[v] = {s, scalar ? LAZYT_DTYPE_INVALID : dtype(v), {0, dims(v), program.strides(value(v))}};
    if (scalar) scalars_.emplace_back(v, i);
  }
  for (uint32_t i = 0; i < program.outputs().size(); ++i) {
    const lazyt_output_t& output = program.outputs()[i];
    exe_.outputs.push_back({program.span_bytes(value(output.value)), output.donor});
    output_storages_.push_back(add_storage({Piece::kOutput, i, 0}, exe_.outputs.back().size_bytes));
    donors_[i] = output.donor;
    if (output_of_[output.value] == LAZYT_NONE && tensors_[output.value].dtype == LAZYT_DTYPE_INVALID)
      output_of_[output.value] = i;
    uses_[output.value]++;
  }
  for (const lazyt_constant_t& c : program.constants()) {
    if (c.file.size) throw Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: a constant lies in a file of its own");
    const auto* data = reinterpret_cast<const std::byte*>(program.block()) + program.block()->data.offset + c.offset;
    tensors_[c.value] = constant(dtype(c.value), dims(c.value), data);
    tensors_[c.value].layout.strides = program.strides(value(c.value));
  }
  for (uint32_t i = 0; i < program.nodes().size(); ++i) {
    exe_.nodes.push_back(program.describe(i));
    toolkit::detail::for_each_operand(program, program.nodes()[i], [&](uint32_t v) { uses_[v]++; });
  }
  const auto units = toolkit::fuse(program, [&](uint32_t i) {
    const lazyt_node_t& node = program.nodes()[i];
    const Operator* op = find_operator(program, node);
    if (!op) throw Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: " + exe_.nodes[i] + ": the operator is not taken");
    if (Refusal r = op->accept(program, node); r.reason != LAZYT_REASON_NONE)
      throw Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: " + exe_.nodes[i] + ": " + r.detail);
    return op->role;
  });
  for (const toolkit::Unit& unit : units) lower(unit);
  finish_outputs();
  plan();
}

void Builder::lower(const toolkit::Unit& unit) {
  node_ = unit.nodes.front();
  const lazyt_node_t& node = program.nodes()[node_];
  switch (unit.role) {
    case toolkit::Role::kView: return lower_view(node);
    case toolkit::Role::kPointwise: case toolkit::Role::kReduction: return lower_group(*this, unit);
    case toolkit::Role::kOpaque: return find_operator(program, node)->lower(*this, node);
  }
}

void Builder::lower_view(const lazyt_node_t& node) {
  Tensor from = tensor(value_of(program.args(node)[0]));
  for (uint32_t r = 0; r < node.result_count; ++r) {
    auto layout = toolkit::view_of(program, node, r, from.layout);
    if (!layout) {
      from = dense(from);
      layout = toolkit::view_of(program, node, r, from.layout);
    }
    if (!layout) throw Error(LAZYT_CODE_INTERNAL, "onednn: " + program.describe(node_) + " is no view of its operand");
    set(node.results + r, {from.storage, from.dtype, std::move(*layout)});
  }
}

const Tensor& Builder::tensor(uint32_t v) const {
  if (tensors_[v].dtype == LAZYT_DTYPE_INVALID)
    throw Error(LAZYT_CODE_INTERNAL, "onednn: value " + std::to_string(v) + " is used before it is made, or is no tensor");
  return tensors_[v];
}

Tensor Builder::dense(const Tensor& t) {
  return t.layout.is_dense() ? t : laid_out(t, t.dtype, toolkit::row_major(t.dims()));
}

Tensor Builder::laid_out(const Tensor& t, lazyt_dtype_t dtype, const Dims& strides) {
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

void Builder::copy(const Tensor& src, const Tensor& dst) { lower_copy(*this, src, dst); }
void Builder::fill(const Tensor& dst, Number number) { lower_fill(*this, dst, number); }

double Builder::double_of(const lazyt_arg_t& a) {
  return a.kind == LAZYT_ARG_DOUBLE ? std::bit_cast<double>(a.payload) : static_cast<double>(int_of(a));
}

Number Builder::number_of(const lazyt_arg_t& a) const {
  switch (a.kind) {
    case LAZYT_ARG_INT: case LAZYT_ARG_BOOL: return {true, true, 0, int_of(a), 0, LAZYT_DTYPE_INT64};
    case LAZYT_ARG_DOUBLE: return {true, false, double_of(a), 0, 0, LAZYT_DTYPE_FLOAT64};
    case LAZYT_ARG_VALUE:
      for (const auto& [v, input] : scalars_)
        if (v == value_of(a)) return {false, false, 0, 0, input, dtype(v)};
      [[fallthrough]];
    default: throw Error(LAZYT_CODE_INTERNAL, "onednn: an argument is no number");
  }
}

bool Builder::is_scalar(uint32_t v) const { return value(v).flags & LAZYT_VALUE_HOST_SCALAR; }

Dims Builder::ints_of(const lazyt_arg_t& a) const {
  if (a.kind == LAZYT_ARG_INT) return {int_of(a)};
  if (a.kind == LAZYT_ARG_NONE) return {};
  auto run = program.ints(a);
  return {run.begin(), run.end()};
}

Tensor Builder::make(uint32_t v) {
  return make(v, output_of_[v] != LAZYT_NONE ? program.strides(value(v)) : toolkit::row_major(dims(v)));
}

Tensor Builder::make(uint32_t v, const Dims& strides) {
  const Dims d = dims(v);
  if (const uint32_t o = output_of_[v]; o != LAZYT_NONE && same_strides(d, strides, program.strides(value(v)))) {
    tensors_[v] = {output_storages_[o], dtype(v), {0, d, strides}};
  } else {
    tensors_[v] = scratch(dtype(v), d, strides, static_cast<uint64_t>(toolkit::count_of(d)) * lazyt_dtype_size(dtype(v)));
  }
  return tensors_[v];
}

Dims Builder::result_strides(uint32_t v, const Dims& like) const {
  if (output_of_[v] != LAZYT_NONE) return program.strides(value(v));
  const Dims d = dims(v);
  // Dense in some order of its dims: sorted by stride, each is the product of those before.
  if (like.size() == d.size()) {
    const auto order = toolkit::memory_order(d, like);
    int64_t step = 1;
    bool dense = true;
    for (size_t i = order.size(); i-- > 0 && dense;) {
      if (d[order[i]] == 1) continue;
      dense = like[order[i]] == step;
      step *= d[order[i]];
    }
    if (dense) return like;
  }
  return toolkit::row_major(d);
}

bool Builder::may_be_donated(StorageId s) const {
  return exe_.storages[s].kind == Piece::kOutput && donors_[exe_.storages[s].index] != LAZYT_NONE;
}

void Builder::set(uint32_t v, Tensor t) { tensors_[v] = std::move(t); }

Tensor Builder::scratch(lazyt_dtype_t dtype, const Dims& dims) {
  return scratch(dtype, dims, toolkit::row_major(dims), static_cast<uint64_t>(toolkit::count_of(dims)) * lazyt_dtype_size(dtype));
}

Tensor Builder::scratch(lazyt_dtype_t dtype, const Dims& dims, const Dims& strides, uint64_t bytes) {
  return {add_storage({Piece::kArena, 0, 0}, bytes), dtype, {0, dims, strides}};
}

Tensor Builder::constant(lazyt_dtype_t dtype, const Dims& dims, const void* data) {
  const uint64_t bytes = static_cast<uint64_t>(toolkit::count_of(dims)) * lazyt_dtype_size(dtype);
  const uint64_t offset = align_up(constant_bytes_.size());
  constant_bytes_.resize(offset + bytes);
  if (bytes) std::memcpy(constant_bytes_.data() + offset, data, bytes);
  return {add_storage({Piece::kConstant, 0, offset}, bytes), dtype, Layout::dense(dims)};
}

Tensor Builder::kept(lazyt_dtype_t dtype, const Dims& dims) {
  const uint64_t bytes = static_cast<uint64_t>(toolkit::count_of(dims)) * lazyt_dtype_size(dtype), offset = exe_.kept_bytes;
  exe_.kept_bytes = align_up(offset + bytes);
  return {add_storage({Piece::kKept, 0, offset}, bytes), dtype, Layout::dense(dims)};
}

uint32_t Builder::steady_input(const Tensor& t) const {
  const Piece& piece = exe_.storages[t.storage];
  if (piece.kind != Piece::kInput || std::find(donors_.begin(), donors_.end(), piece.index) != donors_.end()) return LAZYT_NONE;
  return piece.index;
}

void Builder::add(std::unique_ptr<Step> step, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
                  const std::vector<StorageId>& reads_in_place) {
  const auto at = static_cast<uint32_t>(exe_.steps.size());
  exe_.steps.push_back(std::move(step));
  exe_.step_nodes.push_back(node_);
  for (StorageId s : reads) lives_[s].read(2 * at + 1);
  for (StorageId s : reads_in_place) lives_[s].read(2 * at);
  for (StorageId s : writes) lives_[s].write(2 * at + 1);
}

// Every output lies where the host wants it. An output that may lie on its donor's bytes must not be written while a
// later step still reads the donor; such a one is computed beside and copied at the end.
void Builder::finish_outputs() {
  for (uint32_t i = 0; i < output_storages_.size(); ++i) {
    const uint32_t v = program.outputs()[i].value;
    const Tensor target{output_storages_[i], dtype(v), {0, dims(v), program.strides(value(v))}};
    if (is_scalar(v)) {
      fill(target, {false, false, 0, 0, tensors_[v].storage, dtype(v)});
    } else if (const Tensor& t = tensor(v); t.storage != target.storage) {
      copy(t, target);
    }
  }
  const size_t count = output_storages_.size();
  std::vector<std::pair<Tensor, Tensor>> late;
  for (uint32_t i = 0; i < count; ++i) {
    if (donors_[i] == LAZYT_NONE) continue;
    const StorageId output = output_storages_[i];  // inputs are the first storages: donor i is storage i
    if (!lives_[output].written() || lives_[donors_[i]].last_read <= lives_[output].first_write - 1) continue;
    const uint32_t v = program.outputs()[i].value;
    const Tensor beside{output, dtype(v), {0, dims(v), program.strides(value(v))}};
    exe_.storages[output] = {Piece::kBeside, i, 0};
    Tensor target = beside;
    target.storage = add_storage({Piece::kOutput, i, 0}, bytes_[output]);
    late.emplace_back(beside, target);
  }
  for (const auto& [from, to] : late)
    add("copy to a donor", {from.storage}, {to.storage}, [from, to, bytes = bytes_[to.storage]](const Frame& frame) {
      const std::byte* src = frame.at<std::byte>(from);
      std::byte* dst = frame.at<std::byte>(to);
      if (src != dst) std::memcpy(dst, src, bytes);
    });
}

// Storages of other sizes cannot be given the same donor.
bool Builder::may_lie_on(const Tensor& in, const Tensor& out, const std::vector<StorageId>& others) const {
  return in.dtype == out.dtype && in.layout.offset == out.layout.offset && in.dims() == out.dims() &&
         same_strides(in.dims(), in.strides(), out.strides()) &&
         std::none_of(others.begin(), others.end(), [&](StorageId s) { return bytes_[s] == bytes_[out.storage]; });
}

void Builder::plan() {
  std::vector<toolkit::Interval> intervals;
  std::vector<StorageId> ids;
  for (StorageId s = 0; s < exe_.storages.size(); ++s) {
    if ((exe_.storages[s].kind != Piece::kArena && exe_.storages[s].kind != Piece::kBeside) || !lives_[s].written()) continue;
    intervals.push_back({lives_[s].first_write / 2, std::max(lives_[s].last_write, lives_[s].last_read) / 2, bytes_[s]});
    ids.push_back(s);
  }
  const toolkit::Arena arena = toolkit::plan_arena(intervals, kAlignment);
  for (size_t i = 0; i < ids.size(); ++i) exe_.storages[ids[i]].offset = arena.offsets[i];
  exe_.arena_bytes = arena.bytes;
  exe_.constants = Memory(exe_.device, constant_bytes_.size());
  exe_.kept = Memory(exe_.device, exe_.kept_bytes);
  if (!constant_bytes_.empty()) std::memcpy(exe_.constants.data(), constant_bytes_.data(), constant_bytes_.size());
}

const lazyt_plugin_executable_t kExecutableTable = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .next = nullptr,
    .compile = compile,
    .output_meta = output_meta,
    .memory = memory,
    .execute = execute,
    .serialize = nullptr,
    .load = load,
    .identity = identity,
    .release = release,
};

}  // namespace lazyt::onednn
