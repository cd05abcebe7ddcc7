// lazyt env: the variables that lazyt reads, with what they are now.
#include <cctype>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/env.h"
#include "loader/loader.h"
#include "verbs.h"

extern char** environ;

namespace lazyt::tools {
namespace {

struct Variable {
  std::string name, value, source, help, values, fallback;
};

// Where a variable that lazyt itself does not read belongs: an option of a plugin (LAZYT_<PLUGIN>_<NAME>), or nowhere.
std::string reader_of(const std::string& name, const std::vector<std::string>& plugins) {
  for (const std::string& plugin : plugins) {
    std::string prefix = "LAZYT_" + plugin + "_";
    for (char& c : prefix) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (name.starts_with(prefix)) return "option of plugin " + plugin;
  }
  return "";
}

std::vector<Variable> variables() {
  std::vector<Variable> all;
  std::set<std::string> declared;
  for (const base::EnvOption& option : base::env_options()) {
    declared.insert(option.name);
    const auto value = base::env(option.name);
    all.push_back({option.name, value.value_or(option.fallback), value ? "environment" : *option.fallback ? "default" : "unset",
                   option.help, option.values, option.fallback});
  }
  std::vector<std::string> plugins;
  for (const loader::Candidate& c : loader::list().candidates) plugins.push_back(c.name);
  for (char** entry = environ; *entry; entry++) {
    const char* equals = std::strchr(*entry, '=');
    if (!equals || std::strncmp(*entry, "LAZYT_", 6) != 0) continue;
    const std::string name(*entry, static_cast<size_t>(equals - *entry));
    if (declared.contains(name)) continue;
    const std::string reader = reader_of(name, plugins);
    all.push_back({name, equals + 1, "environment", reader.empty() ? "read by nobody here: of a plugin that is not found, or misspelt" : reader, "", ""});
  }
  return all;
}

void run(bool json) {
  if (json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const Variable& v : variables())
      out.push_back({{"name", v.name}, {"value", v.source == "unset" ? nlohmann::ordered_json() : nlohmann::ordered_json(v.value)},
                     {"source", v.source}, {"help", v.help}, {"values", v.values}, {"default", v.fallback}});
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  for (const Variable& v : variables()) {
    fmt::print("{}{}  ({})\n    {}\n", v.name, v.source == "unset" ? "" : "=" + v.value, v.source, v.help);
    if (!v.values.empty()) fmt::print("    {}; {}\n", v.values, v.fallback.empty() ? "no default" : "default: " + v.fallback);
  }
}

}  // namespace

void add_env(CLI::App& app, int&) {
  CLI::App* verb = app.add_subcommand("env", "Show every environment variable that lazyt and its plugins read: meaning, value, and where that is from");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "The same as JSON");
  verb->callback([json] { run(*json); });
}

}  // namespace lazyt::tools
