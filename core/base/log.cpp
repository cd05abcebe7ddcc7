#include "base/log.h"

#include <cstdio>
#include <string>

#include "base/env.h"

namespace lazyt::base {
namespace {

constexpr const char* kLevels[] = {"trace", "debug", "info", "warning", "error"};

lazyt_log_level_t threshold() {
  static const lazyt_log_level_t level = [] {
    auto choice = env_choice("LAZYT_LOG", "warning");
    if (!choice.ok()) std::fprintf(stderr, "[lazyt warning] %s\n", choice.status().to_string().c_str());
    for (lazyt_log_level_t i = 0; i < 5; i++)
      if (choice.ok() && choice.value() == kLevels[i]) return i;
    return LAZYT_LOG_WARNING;
  }();
  return level;
}

}  // namespace

bool log_enabled(lazyt_log_level_t level) { return level >= threshold(); }

void log(lazyt_log_level_t level, std::string_view message) {
  if (!log_enabled(level)) return;
  std::string line = std::string("[lazyt ") + kLevels[level < 0 ? 0 : level > 4 ? 4 : level] + "] " + std::string(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lazyt::base
