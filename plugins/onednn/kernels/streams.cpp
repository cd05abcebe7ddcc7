#include "streams.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "lazyt/plugin.hpp"
#include "vm.h"

namespace lazyt::onednn {
namespace {

// A machine of many cores has a third level of hundreds of MB, of which a few cores are not left more than this.
constexpr uint64_t kMostCache = uint64_t{128} << 20, kUsualCache = uint64_t{32} << 20;

uint64_t bytes_to_stream() {
  const std::string_view wanted = plugin::option("onednn", "stream");
  if (wanted == "on") return 0;
  if (wanted == "off") return UINT64_MAX;
  if (!wanted.empty()) {
    throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "LAZYT_ONEDNN_STREAM is '" + std::string(wanted) + "'; it can be on or off");
  }
  const int64_t size = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return (size > 0 ? std::min(static_cast<uint64_t>(size), kMostCache) : kUsualCache) / 2;
}

}  // namespace

bool past_caches(uint64_t bytes) {
  static const uint64_t least = bytes_to_stream();
  return bytes > least;
}

void stream_bytes(void* to, const void* from, size_t n) { vm::table().stream(to, from, n); }

}  // namespace lazyt::onednn
