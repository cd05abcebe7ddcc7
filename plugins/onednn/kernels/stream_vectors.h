// Stores of whole vectors past the caches (streams.h), of each instruction set's own.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "lanes.h"

namespace lazyt::onednn::vm {
namespace {

inline bool begins_line(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

// REQUIRES: p is a multiple of the vector's size. A line is written whole, one vector behind the other: what waits half written gives
// way to what other programs on the core write, and comes to memory by parts, four times as slowly.
template <class Vector>
void stream(void* p, Vector v) {
#ifdef __AVX512F__
  if constexpr (sizeof v == 64) return _mm512_stream_si512(static_cast<__m512i*>(p), std::bit_cast<__m512i>(v));
#endif
#ifdef __AVX__
  if constexpr (sizeof v == 32) return _mm256_stream_si256(static_cast<__m256i*>(p), std::bit_cast<__m256i>(v));
#endif
#ifdef __SSE2__
  if constexpr (sizeof v == 16) return _mm_stream_si128(static_cast<__m128i*>(p), std::bit_cast<__m128i>(v));
#endif
  std::memcpy(p, &v, sizeof v);
}

}  // namespace
}  // namespace lazyt::onednn::vm
