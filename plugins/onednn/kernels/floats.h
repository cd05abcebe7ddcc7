// The 16-bit floating types in C++, and their conversions. float_to_half and half_to_float are in vm_math.h.
#pragma once

#include <bit>
#include <cstdint>

#include "vm_math.h"

namespace lazyt::onednn {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
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

namespace {  // each instruction set has its own copy

template <class T>
inline T widen(T x) {
  return x;
}
inline float widen(Half x) { return vm::math::half_to_float(x.bits); }
inline float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Round to nearest even.
template <class T>
inline T narrow(Compute<T> x) {
  return x;
}
template <>
inline Half narrow<Half>(float x) {
  return {vm::math::float_to_half(x)};
}
template <>
inline BFloat16 narrow<BFloat16>(float x) {
  const uint32_t b = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  return {static_cast<uint16_t>((b & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded)};
}

}  // namespace
}  // namespace lazyt::onednn
