#include "text.h"

#include <algorithm>

namespace lazyt::cuda {

std::string offsets(const std::string& index, const Dims& dims, const Strides& operands) {
  std::vector<Dims> strides;
  for (const auto& [name, s] : operands) strides.push_back(s);
  std::vector<size_t> order(dims.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  const toolkit::Loops loops = toolkit::collapse(dims, strides, order);
  std::string text;
  std::vector<std::string> sums(operands.size());
  int64_t inner = 1;
  for (size_t d = loops.dims.size(); d-- > 0;) {
    const std::string size = std::to_string(loops.dims[d]);
    std::string at = inner == 1 ? "(I)(" + index + ")" : "(I)(" + index + ") / " + std::to_string(inner);
    if (d > 0) at = "(" + at + ") % " + size;
    inner *= std::max<int64_t>(loops.dims[d], 1);
    for (size_t k = 0; k < operands.size(); ++k) {
      const int64_t stride = loops.strides[k][d];
      if (stride == 0 || loops.dims[d] <= 1) continue;
      sums[k] += (sums[k].empty() ? "" : " + ") + ("(" + at + ") * (I)" + std::to_string(stride));
    }
  }
  for (size_t k = 0; k < operands.size(); ++k) text += "[[maybe_unused]] I " + operands[k].first + " = " + (sums[k].empty() ? "0" : sums[k]) + "; ";
  return text;
}

std::string index_type(std::initializer_list<int64_t> most) {
  return std::all_of(most.begin(), most.end(), [](int64_t n) { return n < (int64_t{1} << 30); }) ? "int" : "long long";
}

int64_t span_of(const Layout& layout) {
  int64_t span = 0;
  for (size_t d = 0; d < layout.rank(); ++d) span += std::max<int64_t>(layout.dims[d] - 1, 0) * std::abs(layout.strides[d]);
  return span;
}

std::string bits_type(uint64_t bytes) {
  return bytes == 1 ? "unsigned char" : bytes == 2 ? "unsigned short" : bytes == 4 ? "unsigned int" : "unsigned long long";
}

const std::string_view kEachText = R"(
#ifndef LAZYT_EACH_TEXT
#define LAZYT_EACH_TEXT
#define LAZYT_EACH(i, n) for (I i = (I)(blockIdx.x * (long long)blockDim.x + threadIdx.x); i < (I)(n); i += (I)(gridDim.x * (long long)blockDim.x))
__device__ __forceinline__ long long lazyt_find(long long index, long long size, bool wraps, unsigned long long faults, unsigned long long site) {
  const long long at = wraps && index < 0 ? index + size : index;
  if (at >= 0 && at < size) return at;
  lazyt_fault(faults, site, index);
  return -1;
}
#endif
)";

std::string each_text(std::string_view text) {
  std::string out(kEachText);
  out += text;
  return out;
}

}  // namespace lazyt::cuda
