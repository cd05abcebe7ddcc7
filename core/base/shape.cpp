#include "base/shape.h"

#include <algorithm>
#include <numeric>

namespace lazyt::base {

Dims contiguous_strides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(dims[i], 1);
  }
  return strides;
}

bool are_contiguous_strides(const Dims& strides, const Dims& dims) {
  if (strides.size() != dims.size()) return false;
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0; step *= std::max<int64_t>(dims[i], 1))
    if (strides[i] != step) return false;
  return true;
}

int64_t numel(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

bool is_countable(const Dims& dims) {
  int64_t elements = 1;
  for (int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(elements, std::max<int64_t>(d, 1), &elements) || elements > kMostElements) return false;
  return true;
}

Meta Meta::contiguous(DType dtype, Dims dims) {
  Dims strides = contiguous_strides(dims);
  return {dtype, std::move(dims), std::move(strides)};
}

bool Meta::is_contiguous() const {
  int64_t step = 1;
  if (numel() == 0) return true;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= dims[i];
  }
  return true;
}

bool Meta::is_dense() const {
  if (numel() <= 1) return true;
  std::vector<size_t> order;
  for (size_t i = 0; i < dims.size(); i++)
    if (dims[i] != 1) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t step = 1;
  for (size_t i : order) {
    if (strides[i] != step) return false;
    step *= dims[i];
  }
  return true;
}

uint64_t Meta::span_bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); i++) {
    if (dims[i] == 0) return 0;
    last += (dims[i] - 1) * strides[i];
  }
  return static_cast<uint64_t>(last + 1) * lazyt_dtype_size(dtype);
}

namespace {
constexpr const char* kNames[LAZYT_DTYPE_COUNT] = {
    "?",   "b1",  "u8",   "i8",       "u16",    "i16",        "u32",        "i32",       "u64",
    "i64", "f16", "bf16", "f32",      "f64",    "c32",        "c64",        "c128",      "f8e4m3fn",
    "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fnx2", "i4x2", "u4x2"};
}  // namespace

const char* dtype_name(DType dtype) { return dtype > 0 && dtype < LAZYT_DTYPE_COUNT ? kNames[dtype] : "?"; }

DType dtype_from_name(std::string_view name) {
  for (DType d = 1; d < LAZYT_DTYPE_COUNT; d++)
    if (name == kNames[d]) return d;
  return LAZYT_DTYPE_INVALID;
}

namespace {
std::string join(const Dims& dims) {
  std::string out;
  for (int64_t d : dims) out += (out.empty() ? "" : ",") + std::to_string(d);
  return out;
}
}  // namespace

std::string to_string(const Meta& meta) {
  std::string out = std::string(dtype_name(meta.dtype)) + "[" + join(meta.dims) + "]";
  if (meta.strides != contiguous_strides(meta.dims)) out += "{" + join(meta.strides) + "}";
  return out;
}

}  // namespace lazyt::base
