// Any lines NAME=value as the environment: each option is read as its declaration says, to a value that is
// allowed or to an error that names the variable.
#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "layers/stack.h"
#include "target.h"

using namespace lazyt;

namespace {

void refused(const base::Status& status, const char* name) {
  REQUIRE(status.code() == LAZYT_CODE_INVALID_ARGUMENT, status.to_string());
  REQUIRE(status.message().find(name) != std::string_view::npos, status.to_string());
}

void read(const base::EnvOption& option) {
  const std::string_view values = option.values;
  const char* text = std::getenv(option.name);
  const bool set = text && *text;
  if (values == "0|1") {
    auto on = base::env_bool(option.name, true);
    if (!on.ok()) return refused(on.status(), option.name);
    REQUIRE(set || on.value());
  } else if (values == "integer >= 1") {
    for (int64_t most : {int64_t{1}, int64_t{1024}, std::numeric_limits<int64_t>::max()}) {
      auto n = base::env_int(option.name, 1, 1, most);
      if (n.ok())
        REQUIRE(n.value() >= 1 && n.value() <= most);
      else
        refused(n.status(), option.name);
    }
  } else if (values.find('|') != std::string_view::npos && values.find(' ') == std::string_view::npos) {
    auto word = base::env_choice(option.name, option.fallback);
    if (!word.ok()) return refused(word.status(), option.name);
    if (!set) return REQUIRE(word.value() == option.fallback, word.value());
    REQUIRE(!word.value().empty() && word.value().find('|') == std::string::npos, word.value());
    REQUIRE(values.find(word.value()) != std::string_view::npos, word.value());
  } else {
    auto value = base::env(option.name);
    REQUIRE(value.has_value() == set);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  std::replace(text.begin(), text.end(), '\0', '\n');
  std::vector<std::string> lines;  // putenv keeps pointers to them
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto& options = base::env_options();
  for (std::string& line : lines)
    for (const base::EnvOption& option : options)
      if (line.starts_with(std::string(option.name) + "=")) ::putenv(line.data());
  for (const base::EnvOption& option : options) read(option);
  if (base::Status layers = layers::check_environment(); !layers.ok()) refused(layers, "LAZYT_LAYERS");
  for (const base::EnvOption& option : options) ::unsetenv(option.name);
  return 0;
}
