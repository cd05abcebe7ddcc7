// Floating dtypes as C++ types. The two 16-bit ones are stored as they are and computed as float.
#pragma once

#include <bit>
#include <cstdint>

#include "clones.h"
#include "lazyt/plugin.hpp"

namespace lazyt::onednn {

struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  LAZYT_INLINE Bf16(float x) {  // nearest even
    const uint32_t b = std::bit_cast<uint32_t>(x);
    bits = x != x ? UINT16_C(0x7fc0) : static_cast<uint16_t>((b + 0x7fff + ((b >> 16) & 1)) >> 16);
  }
  LAZYT_INLINE operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct Half {
  uint16_t bits;
  Half() = default;
  LAZYT_INLINE Half(float x) {  // nearest even
    const uint32_t b = std::bit_cast<uint32_t>(x), sign = (b >> 16) & 0x8000, magnitude = b & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      bits = static_cast<uint16_t>(sign | 0x7e00);
    } else if (magnitude >= 0x477ff000) {
      bits = static_cast<uint16_t>(sign | 0x7c00);
    } else if (magnitude < 0x38800000) {  // subnormal: the addition rounds at the right bit
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
    } else {
      bits = static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13));
    }
  }
  LAZYT_INLINE operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, rest = bits & 0x7fff;
    // Scaling by 2^112 makes the exponent right, subnormals too.
    const uint32_t wide = rest >= 0x7c00 ? (rest << 13) + 0x70000000 : std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f);
    return std::bit_cast<float>(sign | wide);
  }
};

// What sums of T are kept in.
template <class T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <class T>
using Wide = typename WideOf<T>::type;

// Calls f with a null pointer to the C++ type of a floating dtype.
template <class F>
void with_float(lazyt_dtype_t dtype, F&& f) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT32: return f(static_cast<float*>(nullptr));
    case LAZYT_DTYPE_FLOAT64: return f(static_cast<double*>(nullptr));
    case LAZYT_DTYPE_FLOAT16: return f(static_cast<Half*>(nullptr));
    case LAZYT_DTYPE_BFLOAT16: return f(static_cast<Bf16*>(nullptr));
    default: throw plugin::Error(LAZYT_CODE_INTERNAL, "onednn: no floating dtype: " + std::to_string(dtype));
  }
}

}  // namespace lazyt::onednn
