// Environment options: every LAZYT_* variable the core reads is declared here once, with its meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lazyt::base {

struct EnvOption {
  const char* name;
  const char* values;    // "allow|warn|deny", "integer >= 1", "path", ...
  const char* fallback;  // default, as text
  const char* help;
};
const std::vector<EnvOption>& env_options();

// The variable's text, or nullopt when unset or empty. REQUIRES: declared in env_options().
std::optional<std::string> env(std::string_view name);
// INVALID_ARGUMENT naming variable, value and what is allowed.
Result<int64_t> env_int(std::string_view name, int64_t fallback, int64_t min, int64_t max);
Result<bool> env_bool(std::string_view name, bool fallback);  // 0 1 false true off on no yes
Result<std::string> env_choice(std::string_view name, std::string_view fallback);  // one of values, '|' between

}  // namespace lazyt::base
