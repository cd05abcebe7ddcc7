// Messages for people on stderr, by level (LAZYT_LOG).
#pragma once

#include <string_view>

#include "lazyt/host.h"

namespace lazyt::base {

bool log_enabled(lazyt_log_level_t level);
// One line "[lazyt warning] message". [any thread]
void log(lazyt_log_level_t level, std::string_view message);

}  // namespace lazyt::base
