#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/format.h>

namespace lazyt::base {

std::string Hash128::to_string() const { return fmt::format("{:016x}{:016x}", high, low); }

void Hash128::write_canonical(uint8_t out[16]) const {
  for (int i = 0; i < 8; i++) {
    out[i] = static_cast<uint8_t>(high >> (56 - 8 * i));
    out[8 + i] = static_cast<uint8_t>(low >> (56 - 8 * i));
  }
}

Hash128 hash128(const void* data, size_t size, uint64_t seed) {
  XXH128_hash_t h = XXH3_128bits_withSeed(data, size, seed);
  return {h.low64, h.high64};
}

}  // namespace lazyt::base
