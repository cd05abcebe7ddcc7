// 128-bit hashes (XXH3) of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lazyt::base {

struct Hash128 {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  std::string to_string() const;  // 32 hex digits
  void write_canonical(uint8_t out[16]) const;  // XXH3's canonical order: big-endian, high half first
  struct Hasher {
    size_t operator()(const Hash128& h) const { return h.low; }
  };
};

Hash128 hash128(const void* data, size_t size, uint64_t seed = 0);

}  // namespace lazyt::base
