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
  operators().find(program, node)->lower(*this, node);
}
void Builder::lower_part(const lazyt_node_t& node, Epilogue& e) {
  if (e.kind == Epilogue::Kind::kWindow || e.kind == Epilogue::Kind::kChain ||
      e.kind == Epilogue::Kind::kNorm || e.kind == Epilogue::Kind::kLoss)
    return;  // with its convolution, product, norm or loss
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
template <class Make>
void Builder::emit_nodes(Epilogue& e, FusedKernel& kernel, toolkit::Reg first, const Tensor& result,
                         Make&& make) {
  std::vector<toolkit::Reg> registers(program.values().size(), toolkit::kNoReg);
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
  FusedKernel kernel(walked, {});
  const toolkit::Type type = toolkit::type_of(product.dtype);
  const toolkit::Reg first = kernel.given(type);
  emit_nodes(e, kernel, first,
             {product.storage, product.dtype, {product.layout.offset, walked, toolkit::row_major(walked)}},
             [&](uint32_t v) { return make_dense(v); });
  return "const unsigned long long* w = a.w;\nconst " + FusedKernel::type_name(type) + " r0 = (" + FusedKernel::type_name(type) + ")v;\n" +
         kernel.element(words, reads, writes, reads_in_place);
}
void Builder::lower_group(const toolkit::Unit& unit) { toolkit::lower_group<FusedKernel>(*this, unit); }

void Builder::copy(const Tensor& src, const Tensor& dst) {
  if (add_transpose(*this, src, dst)) return;
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
