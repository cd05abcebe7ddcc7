#include "compile.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "codegen/cache.h"
#include "codegen/kernel.h"
#include "execute.h"
#include "kernels/transpose.h"
#include "lazyt/toolkit/groups.hpp"
#include "lazyt/toolkit/indexing.hpp"
#include "lazyt/toolkit/moves.hpp"
#include "ops.h"

namespace lazyt::cuda {

using plugin::Error;

namespace {

using plugin::from_c;
using plugin::guard;
using plugin::to_handle;

// With LAZYT_CUDA_DUMP, beside the kernels' texts: the steps of each program, one a line, with the node of each.
void dump_steps(const Executable& executable) {
  const std::string folder(plugin::option("cuda", "dump"));
  if (folder.empty()) return;
  static std::atomic<int> programs{0};
  std::ofstream out(folder + "/program_" + std::to_string(getpid()) + "_" + std::to_string(programs.fetch_add(1)) + ".txt");
  for (size_t i = 0; i < executable.steps.size(); ++i)
    out << executable.steps[i]->describe() << "\t"
        << (executable.step_nodes[i] < executable.nodes.size() ? executable.nodes[executable.step_nodes[i]] : "") << "\n";
}

lazyt_status_t* compile(lazyt_device_t* handle, const lazyt_compile_args_t* args, lazyt_executable_t** out_executable) {
  return guard([&] {
    Device& device = from_c(handle);
    device.context->require_alive();
    auto executable = std::make_unique<Executable>(device);
    executable->flags = args->flags;
    Builder(*executable, ProgramView(args->program)).run();
    std::vector<KernelStep*> kernels;
    for (const auto& step : executable->steps)
      if (auto* kernel = dynamic_cast<KernelStep*>(step.get())) kernels.push_back(kernel);
    dump_steps(*executable);
    load_kernels(kernels, *device.context, device.capability);
    prepare(*executable);
    *out_executable = to_handle<lazyt_executable_t>(executable.release());
  });
}

lazyt_status_t* output_meta(lazyt_executable_t* handle, uint64_t index, lazyt_output_meta_t* out_meta) {
  return guard([&] {
    const Executable& executable = from_c(handle);
    plugin::require(index < executable.outputs.size(), "cuda: output_meta: no such output");
    out_meta->size_bytes = executable.outputs[index].size_bytes;
    out_meta->alignment = kAlignment;
    out_meta->memory_space = 0;
    out_meta->opaque = 0;
  });
}

lazyt_status_t* memory(lazyt_executable_t* handle, lazyt_executable_memory_t* out_memory) {
  return guard([&] {
    const Executable& executable = from_c(handle);
    out_memory->code_bytes = executable.constant_memory.bytes() + executable.kept.bytes();
    out_memory->scratch_bytes = executable.arena_bytes;
    out_memory->flags = 0;  // graphs are recorded for the addresses of a run
  });
}

// Kernels are kept on disk (codegen/cache.h), programs are not.
lazyt_status_t* load(lazyt_device_t*, const void*, uint64_t, lazyt_executable_t**) {
  return plugin::make_status(LAZYT_CODE_UNIMPLEMENTED, "cuda stores no compiled programs");
}

lazyt_status_t* identity(lazyt_device_t*, lazyt_string_t* out_identity) {
  *out_identity = plugin::to_c("cuda 0.1.0");
  return nullptr;
}

void release(lazyt_executable_t* executable) { delete plugin::from_c_or_null(executable); }

}  // namespace

void Builder::add_kernel(KernelSource source, int64_t count, uint32_t threads, std::vector<Word> words,
                         const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
                         const std::vector<StorageId>& reads_in_place) {
  // Kernels walk on by the grid's size where one block for every `threads` elements would be too many.
  constexpr int64_t kMostBlocks = INT32_MAX;
  const int64_t blocks = std::clamp<int64_t>((count + threads - 1) / threads, 1, kMostBlocks);
  add_kernel(std::move(source), {static_cast<uint32_t>(blocks), 1, 1}, {threads, 1, 1}, 0, std::move(words), reads, writes,
             reads_in_place);
}

void Builder::add_kernel(KernelSource source, std::array<uint32_t, 3> grid, std::array<uint32_t, 3> block,
                         uint32_t shared_bytes, std::vector<Word> words, const std::vector<StorageId>& reads,
                         const std::vector<StorageId>& writes, const std::vector<StorageId>& reads_in_place) {
  auto step = std::make_unique<KernelStep>();
  step->source = std::move(source);
  step->grid = grid;
  step->block = block;
  step->shared_bytes = shared_bytes;
  step->words = std::move(words);
  add_kernel(std::move(step), reads, writes, reads_in_place);
}

toolkit::Role Builder::role_of(const lazyt_node_t& node) {
  const toolkit::Role role = operators().role_of(program, node);
  return epilogues_.around(node) ? toolkit::Role::kOpaque : role;
}
void Builder::lower_node(const lazyt_node_t& node) {
  if (Epilogue* e = epilogues_.around(node)) return lower_part(node, *e);
  if (const auto place = cats_.find(current_node()); place != cats_.end()) return lower_cat(node, place->second);
  if (Epilogue* e = epilogue(); e && e->kind == Epilogue::Kind::kLookup)
    return node.op == LAZYT_OP_EMBEDDING ? defer(node, *e) : lower_rows(node, *e);
  operators().find(program, node)->lower(*this, node);
}
void Builder::lower_part(const lazyt_node_t& node, Epilogue& e) {
  if (e.kind == Epilogue::Kind::kWindow || e.kind == Epilogue::Kind::kChain ||
      e.kind == Epilogue::Kind::kNorm || e.kind == Epilogue::Kind::kLoss || e.kind == Epilogue::Kind::kLookup)
    return;  // with its convolution, product, norm, loss or lookup
  const uint32_t i = current_node();
  const bool sums = i == e.sum;
  if (sums ? e.summed : e.activated) return;
  if (sums && !e.lowered) {  // the product comes later, its readers later still
    e.sum_place = make_dense(node.results);
    return;
  }
  const Dims walked = dims(sums ? value_of(program.args(node)[0]) : node.results);
  lower_group({sums ? toolkit::Role::kReduction : toolkit::Role::kPointwise, {i}, walked});
}
void Builder::add_sum(const Epilogue& e) {
  const lazyt_node_t& node = program.nodes()[e.sum];
  lower_group({toolkit::Role::kReduction, {e.sum}, dims(value_of(program.args(node)[0]))});
  if (const Tensor made = tensor(node.results); made.storage != e.sum_place->storage) copy(made, *e.sum_place);
}
void Builder::add_chain(const Epilogue& e) {
  lower_group({toolkit::Role::kPointwise, e.chain, dims(program.nodes()[e.chain[0]].results)});
}
Tensor Builder::make_part(uint32_t v, const Dims& strides) {
  const Epilogue* const e = epilogue();
  const auto make_alone = [&] { return make(v, result_strides(v, strides)); };
  if (!e || !e->cats.contains(v)) return make_alone();
  const Epilogue::Part& part = e->cats.at(v);
  // Each element of the result is one of what the concatenation reads: where a step along each dim leads.
  const Dims own = dims(v);
  std::optional<Layout> shown = Layout{0, own, strides};
  for (uint32_t view : part.views)
    if (shown) shown = toolkit::view_of(program, program.nodes()[view], 0, *shown);
  if (!shown || shown->offset != 0 || shown->count() != toolkit::count_of(own)) return make_alone();
  const lazyt_node_t& cat = program.nodes()[part.cat];
  const auto args = program.args(cat);
  const auto dim = static_cast<size_t>(int_of(args[1]));
  const Tensor whole = cats_.contains(part.cat) ? cats_.at(part.cat) : make(cat.results);
  int64_t at = 0;
  for (size_t k = 0; k < part.element; ++k) at += dims(value_of(program.elements(args[0])[k]))[dim];
  const auto order = toolkit::memory_order(shown->dims, shown->strides);
  Layout placed{whole.layout.offset + at * whole.strides()[dim], own, Dims(own.size(), 0)};
  Dims reach(shown->rank(), 0);
  for (size_t d = 0; d < own.size(); ++d) {
    if (own[d] == 1) continue;
    int64_t rest = strides[d];
    for (size_t k : order) {
      if (shown->dims[k] == 1) continue;
      const int64_t steps = shown->strides[k] > 0 ? rest / shown->strides[k] : 0;
      rest -= steps * shown->strides[k];
      placed.strides[d] += steps * whole.strides()[k];
      reach[k] += (own[d] - 1) * steps;
    }
    if (rest != 0) return make_alone();
  }
  for (size_t k = 0; k < reach.size(); ++k)
    if (reach[k] != shown->dims[k] - 1) return make_alone();
  cats_.emplace(part.cat, whole);
  set(v, {whole.storage, whole.dtype, placed});
  return tensor(v);
}
void Builder::lower_cat(const lazyt_node_t& node, const Tensor& place) {
  const auto args = program.args(node);
  const auto dim = static_cast<size_t>(int_of(args[1]));
  int64_t at = 0;
  write_beside([&] {
    for (const lazyt_arg_t& element : program.elements(args[0])) {
      const Tensor& part = tensor(value_of(element));
      if (part.layout.rank() != place.layout.rank()) continue;  // PyTorch's empty tensors of one dim
      if (part.count() && part.storage != place.storage) copy(part, toolkit::moves::window(place, dim, at, part.dims()[dim]));
      at += part.dims()[dim];
    }
  });
}
void Builder::defer(const lazyt_node_t& node, const Epilogue& e) {
  const auto args = program.args(node);
  const Tensor weight = tensor(value_of(args[0]));
  const Dims all = dims(node.results), rows(all.begin(), all.end() - 1);
  Lookup lookup;
  lookup.from = weight;
  lookup.from.layout.dims = all;
  lookup.from.layout.strides.assign(all.size(), 0);
  lookup.from.layout.strides.back() = weight.strides()[1];
  lookup.size = weight.dims()[0], lookup.stride = weight.strides()[0];
  if (e.range == LAZYT_NONE) {
    const Tensor index = tensor(value_of(args[1]));
    lookup.at = index.dtype == LAZYT_DTYPE_INT64 ? index : toolkit::dense_as(*this, index, LAZYT_DTYPE_INT64);
    lookup.at->layout.dims = all;
    lookup.at->layout.strides.push_back(0);
  } else {
    const lazyt_node_t& range = program.nodes()[e.range];
    const auto numbers = program.args(range);
    lookup.first = {true, true, 0, 0, 0, LAZYT_DTYPE_INT64};
    if (range.op != LAZYT_OP_ARANGE) lookup.first = number_of(numbers[0]);
    if (range.op == LAZYT_OP_ARANGE_START_STEP) lookup.step = int_of(numbers[2]);
    lookup.along.assign(all.size(), 0);
    for (size_t d = 0; d < rows.size(); ++d) lookup.along[d] = rows[d] != 1;
  }
  const auto bad = toolkit::indexing::bad_index(toolkit::indexing::Message::kSelf, 0, lookup.size);
  lookup.fault = fault({LAZYT_CODE_OUT_OF_RANGE, bad.before, bad.after, bad.shown, {}});
  lookups_.emplace(node.results, std::move(lookup));
}
void Builder::lower_rows(const lazyt_node_t& node, const Epilogue& e) {
  const auto args = program.args(node);
  const lazyt_node_t& range = program.nodes()[e.range];
  const int64_t first = range.op == LAZYT_OP_ARANGE ? 0 : int_of(program.args(range)[0]), rows = toolkit::count_of(dims(range.results));
  const Dims all = dims(node.results);
  const Tensor grad = dense(value_of(args[0]));
  if (rows == all[0]) return set(node.results, {grad.storage, grad.dtype, {grad.layout.offset, all, toolkit::row_major(all)}});
  const Tensor out = make_dense(node.results);
  auto part = [&](const Tensor& t, int64_t from, int64_t count) {
    return Tensor{t.storage, t.dtype, {t.layout.offset + from * all[1], {count, all[1]}, {all[1], 1}}};
  };
  write_beside([&] {
    copy(part(grad, 0, rows), part(out, first, rows));
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, first}, {first + rows, all[0]}})
      if (from < to) fill(part(out, from, to - from), {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
  });
}
void Builder::give_operands(FusedKernel& kernel, const std::vector<uint32_t>& nodes,
                            std::vector<toolkit::Reg>& registers) const {
  for (uint32_t i : nodes)
    toolkit::detail::for_each_operand(program, program.nodes()[i], [&](uint32_t v) {
      if (const auto found = lookups_.find(v); found != lookups_.end() && registers[v] == toolkit::kNoReg)
        registers[v] = kernel.look_up(found->second);
    });
}
template <class Make>
void Builder::emit_nodes(Epilogue& e, FusedKernel& kernel, toolkit::Reg first, const Tensor& result,
                         Make&& make) {
  std::vector<toolkit::Reg> registers(program.values().size(), toolkit::kNoReg);
  give_operands(kernel, e.chain, registers);
  for (uint32_t other : e.joined) {
    const uint32_t v = program.nodes()[other].results;
    registers[v] = kernel.round_to(epilogues_.at(other).element(kernel), dtype(v));
  }
  auto hold = [&](size_t k, toolkit::Reg r, const Tensor& place) {
    if (e.kept_values[k]) kernel.store(r, place);
    for (const auto& [operand, of] : e.shown)
      if (of == k) registers[operand] = r;
  };
  hold(0, kernel.round_to(first, result.dtype), result);
  for (size_t k = 0; k < e.chain.size(); ++k) {
    const lazyt_node_t& node = program.nodes()[e.chain[k]];
    toolkit::Reg out[4];
    toolkit::PointwiseRules<FusedKernel>::emit({program, node, kernel, this, &registers}, out);
    for (uint32_t r = 1; r < node.result_count; ++r) {
      const uint32_t v = node.results + r;
      if (!is_used(v)) continue;
      if (out[r] == toolkit::kNoReg) fill(make_dense(v), {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
      else kernel.store(kernel.round_to(out[r], dtype(v)), make(v));
    }
    hold(k + 1, kernel.round_to(out[0], dtype(node.results)), make(node.results));
  }
  e.activated = true;
}
void Builder::emit_chain(Epilogue& e, FusedKernel& kernel, toolkit::Reg first, const Tensor& result) {
  emit_nodes(e, kernel, first, result,
             [&](uint32_t v) { return make(v, result_strides(v, result.strides())); });
}
toolkit::Reg Builder::emit_before(const Epilogue& e, FusedKernel& kernel, bool is_read_again,
                                  const Dims& like) {
  std::vector<toolkit::Reg> registers(program.values().size(), toolkit::kNoReg);
  give_operands(kernel, e.before, registers);
  std::vector<uint32_t> inside(program.values().size(), 0);
  for (uint32_t i : e.before)
    toolkit::detail::for_each_operand(program, program.nodes()[i], [&](uint32_t v) { inside[v]++; });
  const uint32_t operand = program.nodes()[e.before.back()].results;
  inside[operand] += !is_read_again;
  for (uint32_t i : e.before) {
    const lazyt_node_t& node = program.nodes()[i];
    toolkit::Reg out[4];
    toolkit::PointwiseRules<FusedKernel>::emit({program, node, kernel, this, &registers}, out);
    const uint32_t v = node.results;
    registers[v] = kernel.round_to(out[0], dtype(v));
    if (uses(v) > inside[v]) kernel.store(registers[v], make(v, result_strides(v, like)));
  }
  return registers[operand];
}
std::string Builder::chain_text(Epilogue& e, const Tensor& product, std::vector<Word>& words,
                                std::vector<StorageId>& reads, std::vector<StorageId>& writes,
                                std::vector<StorageId>& reads_in_place) {
  const Dims walked = dims(program.nodes()[e.chain[0]].results);
  const Dims order = walked == product.dims() ? product.strides() : toolkit::row_major(walked);
  FusedKernel kernel(walked, {});
  const toolkit::Type type = toolkit::type_of(product.dtype);
  const toolkit::Reg first = kernel.given(type);
  emit_nodes(e, kernel, first,
             {product.storage, product.dtype, {product.layout.offset, walked, order}},
             [&](uint32_t v) { return make(v, result_strides(v, order)); });
  return "const unsigned long long* w = a.w;\nconst " + FusedKernel::type_name(type) + " r0 = (" + FusedKernel::type_name(type) + ")v;\n" +
         kernel.element(order, words, reads, writes, reads_in_place);
}
std::string Builder::store_text(const Tensor& product, size_t word, std::vector<Word>& words, std::vector<StorageId>& reads,
                                std::vector<StorageId>& writes, std::vector<StorageId>& reads_in_place) {
  if (Epilogue* const e = epilogue(); e && e->kind == Epilogue::Kind::kChain)
    return "{\n" + chain_text(*e, product, words, reads, writes, reads_in_place) + "}\n";
  writes.push_back(product.storage);
  return "lazyt_store((T*)a.w[" + std::to_string(word) + "], i, v);\n";
}
void Builder::lower_group(const toolkit::Unit& unit) { toolkit::lower_group<FusedKernel>(*this, unit); }

void Builder::copy(const Tensor& src, const Tensor& dst) {
  if (add_transpose(*this, src, dst)) return;
  if (src.dtype == dst.dtype && !toolkit::is_real(src.dtype) && toolkit::is_movable(src.dtype)) {  // complex numbers, as bits
    Tensor from = src, to = dst;
    from.dtype = to.dtype = src.element() == 8 ? LAZYT_DTYPE_INT64 : src.element() == 4 ? LAZYT_DTYPE_INT32 : src.element() == 2 ? LAZYT_DTYPE_INT16 : LAZYT_DTYPE_UINT8;
    return copy(from, to);
  }
  FusedKernel kernel(dst.dims(), {});
  kernel.store(kernel.cast(kernel.load(src), toolkit::type_of(dst.dtype)), dst);
  kernel.build(*this, {});
}

void Builder::fill(const Tensor& dst, Number number) {
  FusedKernel kernel(dst.dims(), {});
  kernel.store(kernel.number(number, toolkit::type_of(dst.dtype)), dst);
  kernel.build(*this, {});
}

void Builder::copy_beside(const Tensor& from, const Tensor& to) {
  auto step = std::make_unique<CopyStep>();
  step->from = from;
  step->to = to;
  step->bytes = bytes_of(to.storage);
  add(std::move(step), {from.storage}, {to.storage});
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

}  // namespace lazyt::cuda
