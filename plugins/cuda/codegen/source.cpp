// Texts of kernels (compile.h): what is made of one text for each dtype and shape.
#include "../compile.h"

namespace lazyt::cuda {

using plugin::Error;

namespace {

// The lines before and after a text.
std::pair<std::string, std::string> around(const std::vector<std::pair<std::string, std::string>>& defines) {
  std::string before, after;
  for (const auto& [name, value] : defines) {
    before += "#define " + name + " " + value + "\n";
    after += "#undef " + name.substr(0, name.find('(')) + "\n";
  }
  return {std::move(before), std::move(after)};
}

}  // namespace

std::string enclosed(std::string_view text, const std::vector<std::pair<std::string, std::string>>& defines) {
  const auto [before, after] = around(defines);
  std::string out = before;
  out += text;
  return out + "\n" + after;
}

KernelSource specialise(std::string_view base, std::string_view text,
                        const std::vector<std::pair<std::string, std::string>>& defines) {
  const auto [before, after] = around(defines);
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
    case LAZYT_DTYPE_BOOL:
      return "lazyt_bool";
    case LAZYT_DTYPE_UINT8:
      return "unsigned char";
    case LAZYT_DTYPE_INT8:
      return "signed char";
    case LAZYT_DTYPE_INT16:
      return "short";
    case LAZYT_DTYPE_INT32:
      return "int";
    case LAZYT_DTYPE_INT64:
      return "long long";
    case LAZYT_DTYPE_FLOAT16:
      return "lazyt_f16";
    case LAZYT_DTYPE_BFLOAT16:
      return "lazyt_bf16";
    case LAZYT_DTYPE_FLOAT32:
      return "float";
    case LAZYT_DTYPE_FLOAT64:
      return "double";
    default:
      throw Error(LAZYT_CODE_UNIMPLEMENTED, "cuda: dtype " + std::to_string(dtype) + " is not taken");
  }
}

std::string register_type(lazyt_dtype_t dtype) {
  const bool half = dtype == LAZYT_DTYPE_FLOAT16 || dtype == LAZYT_DTYPE_BFLOAT16;
  if (dtype == LAZYT_DTYPE_BOOL) return "bool";
  return half ? "float" : memory_type(dtype);
}

}  // namespace lazyt::cuda
