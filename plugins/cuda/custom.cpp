#include "custom.h"

#include "lazyt/toolkit/custom.hpp"

namespace lazyt::cuda {
namespace {

using plugin::Error;

struct Kernel {
  std::string name, source, entry;
  std::array<uint32_t, 3> grid, block;
};

toolkit::CustomKernels<Kernel>& kernels() {
  static auto& all = *new toolkit::CustomKernels<Kernel>;
  return all;
}

bool is_identifier(std::string_view text) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && letter(text[0]) && std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// Three sizes, each from 1 on; all 0: `otherwise`.
std::array<uint32_t, 3> sizes(const uint32_t (&given)[3], std::array<uint32_t, 3> otherwise, const std::string& name) {
  const std::array<uint32_t, 3> out = {given[0], given[1], given[2]};
  if (out == std::array<uint32_t, 3>{}) return otherwise;
  if (std::ranges::count(out, 0u)) throw Error(LAZYT_CODE_INVALID_ARGUMENT, "the kernel '" + name + "': a size of its grid or block is 0");
  return out;
}

lazyt_status_t* add(const lazyt_kernel_desc_t* desc) {
  return plugin::guard([&] {
    const std::string name = toolkit::CustomKernels<Kernel>::name_of(*desc);
    if (desc->kind != LAZYT_KERNEL_CUDA_C)
      throw Error(LAZYT_CODE_UNIMPLEMENTED, "cuda takes kernels that are CUDA C, not kind " + std::to_string(desc->kind) + " ('" + name + "')");
    Kernel kernel{name, std::string(plugin::view(desc->source)), std::string(plugin::view(desc->entry)), {}, {256, 1, 1}};
    if (kernel.source.empty() || !is_identifier(kernel.entry))
      throw Error(LAZYT_CODE_INVALID_ARGUMENT, "the kernel '" + name + "' has no source, or no name of its function ('" + kernel.entry + "')");
    if (LAZYT_HAS_FIELD(desc, lazyt_kernel_desc_t, block)) {
      kernel.grid = sizes(desc->grid, kernel.grid, name);
      kernel.block = sizes(desc->block, kernel.block, name);
    }
    if (uint64_t{kernel.block[0]} * kernel.block[1] * kernel.block[2] > 1024)
      throw Error(LAZYT_CODE_INVALID_ARGUMENT, "the kernel '" + name + "': more than 1024 threads in a block");
    kernels().set(name, std::move(kernel));
  });
}

lazyt_status_t* remove(lazyt_string_t name) {
  return plugin::guard([&] { kernels().remove(name); });
}

bool is_real(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_FLOAT64 || dtype == LAZYT_DTYPE_FLOAT32 || dtype == LAZYT_DTYPE_FLOAT16 || dtype == LAZYT_DTYPE_BFLOAT16;
}

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  for (const lazyt_arg_t& a : program.args(node))
    switch (a.kind) {
      case LAZYT_ARG_VALUE: case LAZYT_ARG_DOUBLE: case LAZYT_ARG_INT: case LAZYT_ARG_BOOL: case LAZYT_ARG_DTYPE: case LAZYT_ARG_NONE: break;
      default: return toolkit::refuse_argument("kernels of users take tensors and numbers, no lists, texts or complex numbers");
    }
  return {};
}

// The call of the user's function, and the macros that tell sizes; words as it reads them.
struct Call {
  std::string arguments;
  std::vector<std::pair<std::string, std::string>> defines;
  std::vector<Word> words;
  std::vector<StorageId> reads, writes;

  void argument(const std::string& text) { arguments += (arguments.empty() ? "" : ", ") + text; }
  std::string word(const Word& w) {
    words.push_back(w);
    return "a.w[" + std::to_string(words.size() - 1) + "]";
  }
  void tensor(const Tensor& t, const char* what, size_t i, bool result) {
    const std::string type = memory_type(t.dtype), name = what + std::to_string(i);
    argument((result ? "(" : "(const ") + type + "*)" + word(Word::address(t)));
    for (size_t d = 0; d < t.dims().size(); ++d) defines.emplace_back(name + "_DIM" + std::to_string(d), std::to_string(t.dims()[d]) + "LL");
    defines.emplace_back(name + "_SIZE", std::to_string(t.count()) + "LL");
    (result ? writes : reads).push_back(t.storage);
  }
};

void lower(Builder& b, const lazyt_node_t& node) {
  const ProgramView& program = b.program;
  const auto kernel = kernels().of(program, node);
  Call call;
  const auto args = program.args(node);
  for (size_t i = 0; i < args.size(); ++i) {
    const lazyt_arg_t& a = args[i];
    if (a.kind == LAZYT_ARG_NONE) {
      call.argument("0");
    } else if (a.kind == LAZYT_ARG_VALUE && !b.is_scalar(Builder::value_of(a))) {
      call.tensor(b.dense(Builder::value_of(a)), "ARG", i, false);
    } else {
      const Number n = b.number_of(a);
      const bool integral = a.kind != LAZYT_ARG_VALUE ? a.kind != LAZYT_ARG_DOUBLE : !is_real(n.dtype);
      call.argument(integral ? "(long long)" + call.word(Word::i64(n)) : "lazyt_f64(" + call.word(Word::f64(n)) + ")");
    }
  }
  int64_t elements = 0;
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Tensor out = b.make_dense(node.results + i);
    if (i == 0) elements = out.count();
    call.tensor(out, "OUT", i, true);
  }
  const uint32_t threads = kernel->block[0] * kernel->block[1] * kernel->block[2];
  std::array<uint32_t, 3> grid = kernel->grid;
  if (grid[0] == 0) grid = {static_cast<uint32_t>((elements + threads - 1) / threads), 1, 1};
  call.defines.emplace_back("WORDS", std::to_string(std::max<size_t>(call.words.size(), 1)));
  call.defines.emplace_back("THREADS", std::to_string(threads));
  // In a namespace of its own, by a name that is the kernel's: programs share translation units.
  const std::string text = "#define LAZYT_JOIN2(a, b) a##b\n#define LAZYT_JOIN(a, b) LAZYT_JOIN2(a, b)\n"
      "namespace LAZYT_JOIN(KERNEL, _user) {\n" + kernel->source + "\n}\n"
      "LAZYT_KERNEL(KERNEL, WORDS, THREADS) { LAZYT_JOIN(KERNEL, _user)::" + kernel->entry + "(" + call.arguments + "); }\n"
      "#undef LAZYT_JOIN\n#undef LAZYT_JOIN2\n";
  b.add_kernel(specialise("custom_" + kernel->entry, text, call.defines), grid, kernel->block, 0, call.words, call.reads, call.writes);
}

}  // namespace

const Operator* find_custom(const std::string& full_name) {
  static const Operator taken{toolkit::Role::kOpaque, accept, lower};
  return kernels().find(full_name) ? &taken : nullptr;
}

void forget_custom_kernels() { kernels().clear(); }

const lazyt_custom_kernel_t kCustomKernelTable = {
    .struct_size = sizeof(lazyt_custom_kernel_t),
    .next = nullptr,
    .add = add,
    .remove = remove,
};

}  // namespace lazyt::cuda
