// Bytes that are copied as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "clones.h"

namespace lazyt::onednn {

// Whether glibc's memcpy is slow on this CPU (AMD's) where the destination lies a few bytes behind the source within a page, as it
// does between two page-aligned blocks that are shifted against each other: up to 2 KiB it goes backwards then, which AMD's CPUs
// read ahead badly (2 to 4 times as long on a Zen 4), beyond by `rep movsb` (6 times there, 25 times on a Zen 5: glibc's bug 30994).
extern const bool slow_shifted_memcpy;

inline void copy_bytes(void* to, const void* from, size_t n) {
  constexpr size_t kPage = 4096, kBackwards = 512, kRepeated = 2048;
  auto* out = static_cast<std::byte*>(to);
  auto* in = static_cast<const std::byte*>(from);
  const size_t behind = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kPage;
  if (slow_shifted_memcpy && (n > kRepeated ? behind > 0 && behind < 64 : n > kBackwards && behind < 256)) {
    using Vector = unsigned char __attribute__((vector_size(16)));
    for (; n >= 2 * sizeof(Vector); n -= 2 * sizeof(Vector), in += 2 * sizeof(Vector), out += 2 * sizeof(Vector)) {
      Vector a, b;  // of one the compiler makes memcpy
      std::memcpy(&a, in, sizeof a);
      std::memcpy(&b, in + sizeof a, sizeof b);
      std::memcpy(out, &a, sizeof a);
      std::memcpy(out + sizeof a, &b, sizeof b);
    }
  }
  std::memcpy(out, in, n);
}

using Bytes16 = uint8_t __attribute__((vector_size(16)));
using Bytes32 = uint8_t __attribute__((vector_size(32)));
using Bytes64 = uint8_t __attribute__((vector_size(64)));

// The same by vectors (or words), the last of which may lie over the one before. REQUIRES: n is a Vector's size or more
template <class Vector>
LAZYT_INLINE void copy_by(void* __restrict to, const void* __restrict from, size_t n) {
  auto* out = static_cast<std::byte*>(to);
  auto* in = static_cast<const std::byte*>(from);
  Vector v, last;
  std::memcpy(&last, in + n - sizeof last, sizeof last);
  for (size_t i = 0; i + sizeof v < n; i += sizeof v) {
    std::memcpy(&v, in + i, sizeof v);
    std::memcpy(out + i, &v, sizeof v);
  }
  std::memcpy(out + n - sizeof last, &last, sizeof last);  // over what the loop left
}

// The same of what is often short: memcpy's call takes as long as some hundred bytes.
inline void copy_row(void* __restrict to, const void* __restrict from, size_t n) {
  if (n < sizeof(Bytes16) || n > 16 * sizeof(Bytes16)) return copy_bytes(to, from, n);
  copy_by<Bytes16>(to, from, n);
}

}  // namespace lazyt::onednn
