// lazyt env: the variables that lazyt reads, with what they are now.
#include <cstring>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/env.h"
#include "verbs.h"

extern char** environ;

namespace lazyt::tools {
namespace {

void run() {
  std::set<std::string> declared;
  for (const base::EnvOption& option : base::env_options()) {
    declared.insert(option.name);
    const auto value = base::env(option.name);
    const std::string fallback = *option.fallback ? fmt::format("default: {}", option.fallback) : "no default";
    fmt::print("{}{}\n    {}\n    {}; {}\n", option.name, value ? "=" + *value : std::string(), option.help, option.values,
               fallback);
  }
  // Others are options of a plugin (LAZYT_<PLUGIN>_<NAME>), or misspelt: this is where one sees it.
  std::string others;
  for (char** entry = environ; *entry; entry++) {
    const char* equals = std::strchr(*entry, '=');
    if (!equals || std::strncmp(*entry, "LAZYT_", 6) != 0) continue;
    if (!declared.contains(std::string(*entry, static_cast<size_t>(equals - *entry)))) others += fmt::format("    {}\n", *entry);
  }
  if (!others.empty()) fmt::print("set, and not read by lazyt itself (options of plugins, or misspelt):\n{}", others);
}

}  // namespace

void add_env(CLI::App& app, int&) {
  CLI::App* verb = app.add_subcommand("env", "Show every environment variable that lazyt reads, its meaning and its value");
  verb->callback([] { run(); });
}

}  // namespace lazyt::tools
