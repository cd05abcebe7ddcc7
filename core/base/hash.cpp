#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/format.h>

namespace lazyt::base {

std::string Hash128::to_string() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 hash128(const void* data, size_t size, uint64_t seed) {
  XXH128_hash_t h = XXH3_128bits_withSeed(data, size, seed);
  return {h.low64, h.high64};
}

}  // namespace lazyt::base
