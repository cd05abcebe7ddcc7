#include "compile.h"

#include <algorithm>

#include "codegen/kernel.h"
#include "lazyt/toolkit/groups.hpp"
#include "ops.h"

namespace lazyt::cuda {

using plugin::Error;

KernelSource specialise(std::string_view base, std::string_view text,
                        const std::vector<std::pair<std::string, std::string>>& defines) {
  std::string before, after;
  for (const auto& [name, value] : defines) {
    before += "#define " + name + " " + value + "\n";
    after += "#undef " + name.substr(0, name.find('(')) + "\n";
  }
  // FNV-1a, 64 bits: www.isthe.com/chongo/tech/comp/fnv. The text itself is compared where it matters.
  uint64_t hash = 0xcbf29ce484222325u;
  for (std::string_view part : {std::string_view(before), text})
    for (char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::string name(base);
  name += '_';
  for (int shift = 60; shift >= 0; shift -= 4) name += "0123456789abcdef"[(hash >> shift) & 15];
  std::string whole = before + "#define KERNEL " + name + "\n";
  whole += text;
  whole += "\n#undef KERNEL\n" + after;
  return {std::move(name), std::move(whole)};
}

std::string memory_type(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_BOOL: return "lazyt_bool";
    case LAZYT_DTYPE_UINT8: return "unsigned char";
    case LAZYT_DTYPE_INT8: return "signed char";
    case LAZYT_DTYPE_INT16: return "short";
    case LAZYT_DTYPE_INT32: return "int";
    case LAZYT_DTYPE_INT64: return "long long";
    case LAZYT_DTYPE_FLOAT16: return "lazyt_f16";
    case LAZYT_DTYPE_BFLOAT16: return "lazyt_bf16";
    case LAZYT_DTYPE_FLOAT32: return "float";
    case LAZYT_DTYPE_FLOAT64: return "double";
    default: throw Error(LAZYT_CODE_UNIMPLEMENTED, "cuda: dtype " + std::to_string(dtype) + " is not taken");
  }
}

std::string register_type(lazyt_dtype_t dtype) {
  const bool half = dtype == LAZYT_DTYPE_FLOAT16 || dtype == LAZYT_DTYPE_BFLOAT16;
  if (dtype == LAZYT_DTYPE_BOOL) return "bool";
  return half ? "float" : memory_type(dtype);
}

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
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return;
  auto step = std::make_unique<KernelStep>();
  step->source = std::move(source);
  step->grid = grid;
  step->block = block;
  step->shared_bytes = shared_bytes;
  step->words = std::move(words);
  add(std::move(step), reads, writes, reads_in_place);
}

toolkit::Role Builder::role_of(const lazyt_node_t& node) { return operators().role_of(program, node); }
void Builder::lower_node(const lazyt_node_t& node) { operators().find(program, node)->lower(*this, node); }
void Builder::lower_group(const toolkit::Unit& unit) { toolkit::lower_group<FusedKernel>(*this, unit); }

void Builder::copy(const Tensor& src, const Tensor& dst) {
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

}  // namespace lazyt::cuda
