// SHA-256 of files: what an allow-list or a verdict names a library by.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace lazyt::base {

// 64 characters of lower-case hex.
std::string sha256(std::span<const uint8_t> bytes);
// UNAVAILABLE if the file cannot be read to its end.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace lazyt::base
