// Bytes that are copied as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lazyt::onednn {

// memcpy, but by pieces where it is slow: beyond 2 KiB glibc takes `rep movsb`, which on AMD's CPUs needs 25 times as long
// (569 us instead of 23 a MB on a Zen 5) if the destination lies 1 to 31 bytes behind the source within a page, as it does
// between two page-aligned blocks that are shifted against each other (glibc's bug 30994).
inline void copy_bytes(void* to, const void* from, size_t n) {
  constexpr size_t kPage = 4096, kPiece = 2048;
  const size_t behind = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kPage;
  if (n <= kPiece || behind == 0 || behind >= 64) {
    std::memcpy(to, from, n);
    return;
  }
  for (size_t i = 0; i < n; i += kPiece)
    std::memcpy(static_cast<std::byte*>(to) + i, static_cast<const std::byte*>(from) + i, n - i < kPiece ? n - i : kPiece);
}

}  // namespace lazyt::onednn
