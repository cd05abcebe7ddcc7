// Whole vectors of f16 and bf16 elements as floats. Included where code is compiled for each instruction set.
#pragma once

#include "floats.h"
#include "lanes.h"

namespace lazyt::onednn::vm {
namespace {  // each instruction set has its own copy

using Floats = math::V;
using Words = uint32_t __attribute__((vector_size(kVectorBytes)));
using Shorts = uint16_t __attribute__((vector_size(kVectorBytes / 2)));  // as many as floats

// GCC 12 takes convertvector apart into halves.
LAZYT_INLINE Words widened(Shorts bits) {
#if defined(__AVX512F__)
  return std::bit_cast<Words>(_mm512_cvtepu16_epi32(std::bit_cast<__m256i>(bits)));
#elif defined(__AVX2__)
  return std::bit_cast<Words>(_mm256_cvtepu16_epi32(std::bit_cast<__m128i>(bits)));
#else
  return __builtin_convertvector(bits, Words);
#endif
}
LAZYT_INLINE Floats to_float(Shorts bits, BFloat16) { return std::bit_cast<Floats>(widened(bits) << 16); }
#if defined(__AVX512F__)
LAZYT_INLINE Floats to_float(Shorts bits, Half) { return _mm512_cvtph_ps(std::bit_cast<__m256i>(bits)); }
LAZYT_INLINE Shorts to_bits(Floats f, Half) { return std::bit_cast<Shorts>(_mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
#elif defined(__F16C__)
LAZYT_INLINE Floats to_float(Shorts bits, Half) { return _mm256_cvtph_ps(std::bit_cast<__m128i>(bits)); }
LAZYT_INLINE Shorts to_bits(Floats f, Half) { return std::bit_cast<Shorts>(_mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
#else
LAZYT_INLINE Floats to_float(Shorts bits, Half) {
  const Words h = __builtin_convertvector(bits, Words);
  const Words sign = (h & 0x8000u) << 16, body = (h & 0x7fffu) << 13;
  const Floats value = std::bit_cast<Floats>(body) * std::bit_cast<float>(UINT32_C(0x77800000));
  return std::bit_cast<Floats>(((h & 0x7c00u) == 0x7c00u ? body | 0x7f800000u : std::bit_cast<Words>(value)) | sign);
}
LAZYT_INLINE Shorts to_bits(Floats f, Half) {
  Words x = std::bit_cast<Words>(f);
  const Words sign = x & 0x80000000u;
  x ^= sign;
  const Words special = x > 0x7f800000u ? (x & 0u) + 0x7e00u : (x & 0u) + 0x7c00u;
  const Words denormal = std::bit_cast<Words>(std::bit_cast<Floats>(x) + 0.5f) - 0x3f000000u;
  const Words normal = (x + 0xc8000fffu + ((x >> 13) & 1u)) >> 13;
  const Words out = x >= 0x47800000u ? special : x < 0x38800000u ? denormal : normal;
  return __builtin_convertvector(out | (sign >> 16), Shorts);
}
#endif

// Rounded to nearest even: the upper halves of the words count.
LAZYT_INLINE Words rounded(Floats f) {
  const Words x = std::bit_cast<Words>(f), nan = (x & 0u) + 0x7fc00000u;
  return f != f ? nan : x + 0x7fffu + ((x >> 16) & 1u);
}
LAZYT_INLINE Shorts to_bits(Floats f, BFloat16) {
  const Words bits = rounded(f) >> 16;
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m256i both = _mm256_packus_epi32(std::bit_cast<__m256i>(bits), std::bit_cast<__m256i>(bits));
  return std::bit_cast<Shorts>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(both, 0xd8)));
#else
  return __builtin_convertvector(bits, Shorts);
#endif
}
LAZYT_INLINE Floats round_to(Floats f, BFloat16) { return std::bit_cast<Floats>(rounded(f) & 0xffff0000u); }
LAZYT_INLINE Floats round_to(Floats f, Half type) { return to_float(to_bits(f, type), type); }

}  // namespace
}  // namespace lazyt::onednn::vm
