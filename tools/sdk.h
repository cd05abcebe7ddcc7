// Where the parts of the SDK lie: beside this command, wherever the whole was moved to.
#pragma once

#include <filesystem>
#include <string>

namespace lazyt::tools {

// "include", "pkgconfig", "cmake", "templates", "schema", "plugins". Empty where the SDK is not installed.
std::filesystem::path sdk_path(const std::string& part);

}  // namespace lazyt::tools
