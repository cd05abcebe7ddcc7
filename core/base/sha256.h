// SHA-256: what an allow-list or a verdict names a library by, and what a program is known by.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>

#include "base/status.h"

namespace lazyt::base {

using Digest = std::array<uint8_t, 32>;
// For tables: a digest is a hash as it is.
struct DigestHash {
  size_t operator()(const Digest& digest) const {
    size_t first;
    std::memcpy(&first, digest.data(), sizeof first);
    return first;
  }
};
// Of the parts one after another. portably: without the processor's instructions for it; for tests.
Digest digest(std::initializer_list<std::span<const uint8_t>> parts, bool portably = false);
// 64 characters of lower-case hex.
std::string sha256(std::span<const uint8_t> bytes);
// UNAVAILABLE if the file cannot be read to its end.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace lazyt::base
