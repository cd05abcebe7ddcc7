// The 16-bit floating types in C++: stored as they are, computed as float. Conversions round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "clones.h"

namespace lazyt::onednn {

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  LAZYT_INLINE BFloat16(float x) {
    const uint32_t b = std::bit_cast<uint32_t>(x);
    bits = x != x ? UINT16_C(0x7fc0) : static_cast<uint16_t>((b + 0x7fff + ((b >> 16) & 1)) >> 16);
  }
  LAZYT_INLINE operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct Half {
  uint16_t bits;
  Half() = default;
  LAZYT_INLINE Half(float x) {
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
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, body = static_cast<uint32_t>(bits & 0x7fff) << 13;
    // Exponent 31 (infinities, NaNs) becomes 255; below 1 the scale by 2^112 makes subnormals right.
    const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(body) * 0x1p112f);
    return std::bit_cast<float>(((bits & 0x7c00) == 0x7c00 ? body | 0x7f800000 : scaled) | sign);
  }
};

template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<Half> {
  using type = float;
};
template <>
struct ComputeOf<BFloat16> {
  using type = float;
};
// The type in which values of T are computed.
template <class T>
using Compute = typename ComputeOf<T>::type;

template <class T>
LAZYT_INLINE Compute<T> widen(T x) {
  return x;
}
template <class T>
LAZYT_INLINE T narrow(Compute<T> x) {
  return x;
}

}  // namespace lazyt::onednn
