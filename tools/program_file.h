// The program in a file that the user names.
#pragma once

#include <fmt/format.h>

#include <string>

#include "ir/program.h"
#include "layers/recording.h"

namespace lazyt::tools {

inline base::Result<base::Ref<ir::Program>> load_program(const std::string& file) {
  if (layers::is_recording(file)) return base::invalid_argument(fmt::format("{} is a recording of a whole run; `lazyt replay {}` plays it", file, file));
  return ir::Program::load(file);
}

}  // namespace lazyt::tools
