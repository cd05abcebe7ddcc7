// FIPS 180-4. Own code because no library that the runtime needs has a hash that withstands an attacker.
#include "base/sha256.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace lazyt::base {
namespace {

constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;
constexpr size_t kBlock = 64;

void take_blocks(State& state, const uint8_t* data, size_t blocks) {
  for (; blocks > 0; blocks--, data += kBlock) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; i++)
      w[i] = uint32_t(data[4 * i]) << 24 | uint32_t(data[4 * i + 1]) << 16 | uint32_t(data[4 * i + 2]) << 8 | data[4 * i + 3];
    for (size_t i = 16; i < 64; i++) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] + (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; i++) {
      const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
      const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const State now = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; i++) state[i] += now[i];
  }
}

#ifdef __x86_64__
// The processor's own instructions: a program is hashed each time one is compiled, and these are several times as fast.
__attribute__((target("sha,sse4.1"))) void take_blocks_by_instructions(State& state, const uint8_t* data, size_t blocks) {
  auto load = [](const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); };
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  // They want the state as {a, b, e, f} and {c, d, g, h}.
  const __m128i cdab = _mm_shuffle_epi32(load(&state[0]), 0xb1), efgh = _mm_shuffle_epi32(load(&state[4]), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks > 0; blocks--, data += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (size_t i = 0; i < 16; i++) {
      __m128i& now = w[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(load(data + 16 * i), big_endian);
      } else {
        const __m128i last = w[(i + 3) % 4];
        now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
        now = _mm_sha256msg2_epu32(now, last);
      }
      const __m128i round = _mm_add_epi32(now, load(&kRounds[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, round);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(round, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before), cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_instructions() {
  unsigned a, b, c, d;
  constexpr unsigned kSha = 1u << 29, kSse41 = 1u << 19;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & kSse41) && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & kSha);
}
#endif

auto* best_take_blocks() {
#ifdef __x86_64__
  static const bool has = has_instructions();
  if (has) return &take_blocks_by_instructions;
#endif
  return &take_blocks;
}

class Sha256 {
 public:
  explicit Sha256(bool portably = false) : take_(portably ? &take_blocks : best_take_blocks()) {}

  void add(std::span<const uint8_t> bytes) {
    total_ += bytes.size();
    if (used_ > 0) {
      const size_t n = fill(bytes);
      bytes = bytes.subspan(n);
      if (used_ < kBlock) return;
      take_(state_, block_.data(), 1);
      used_ = 0;
    }
    const size_t whole = bytes.size() / kBlock;
    take_(state_, bytes.data(), whole);
    fill(bytes.subspan(whole * kBlock));
  }

  Digest finish() {
    const uint64_t bits = total_ * 8;
    std::array<uint8_t, kBlock + 8> end{0x80};
    const size_t zeros = (2 * kBlock - 8 - used_ - 1) % kBlock;
    for (size_t i = 0; i < 8; i++) end[1 + zeros + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
    add({end.data(), 1 + zeros + 8});
    Digest out;
    for (size_t i = 0; i < out.size(); i++) out[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
    return out;
  }

 private:
  size_t fill(std::span<const uint8_t> bytes) {
    const size_t n = std::min(bytes.size(), kBlock - used_);
    if (n > 0) std::memcpy(block_.data() + used_, bytes.data(), n);
    used_ += n;
    return n;
  }

  void (*take_)(State& state, const uint8_t* data, size_t blocks);
  State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlock> block_;
  size_t used_ = 0;
  uint64_t total_ = 0;
};

std::string hex(const Digest& digest) {
  std::string out;
  for (uint8_t byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

}  // namespace

Digest digest(std::initializer_list<std::span<const uint8_t>> parts, bool portably) {
  Sha256 hash(portably);
  for (std::span<const uint8_t> part : parts) hash.add(part);
  return hash.finish();
}

std::string sha256(std::span<const uint8_t> bytes) { return hex(digest({bytes})); }

Result<std::string> sha256_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Sha256 hash;
  std::vector<char> part(1 << 16);
  while (in.read(part.data(), static_cast<std::streamsize>(part.size())) || in.gcount() > 0)
    hash.add({reinterpret_cast<const uint8_t*>(part.data()), static_cast<size_t>(in.gcount())});
  if (!in.eof()) return unavailable(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return hex(hash.finish());
}

}  // namespace lazyt::base
