#include "base/env.h"

#include <cassert>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

namespace lazyt::base {

const std::vector<EnvOption>& env_options() {
  static const auto& options = *new std::vector<EnvOption>{
      {"LAZYT_BACKEND", "name | path | comma list", "", "Backend to run on; unset: highest score with a device."},
      {"LAZYT_DEVICES", "comma list of name[:number] | path[:number]", "",
       "The process's devices in order: lazyt:0 is the first; LAZYT_BACKEND is not read then. Unset: all of LAZYT_BACKEND's."},
      {"LAZYT_PLUGIN_PATH", "absolute folders, ':' between", "", "Folders to look for plugins in, first."},
      {"LAZYT_PLUGIN_SELECT", "comma list of globs", "", "Backends that searching may find, by name."},
      {"LAZYT_PLUGIN_DISABLE", "comma list of globs", "", "Backends that are not used, by name."},
      {"LAZYT_PLUGIN_ALLOW", "absolute path", "", "File of SHA-256 sums, one a line: only these libraries are loaded."},
      {"LAZYT_REQUIRE_CONFORMANCE", "core|full", "", "Only backends whose manifest has this verdict of `lazyt conformance`."},
      {"LAZYT_LAYERS", "comma list of layers", "", "Layers between host and plugin: validate[:abort], trace[:json][:enter], record[:data]."},
      {"LAZYT_TRACE", "path", "stderr", "File to which the layer `trace` appends."},
      {"LAZYT_RECORD", "path", "", "File that the layer `record` writes, for `lazyt replay`."},
      {"LAZYT_FALLBACK", "allow|warn|deny", "allow", "What to do with an operator that the backend lacks."},
      {"LAZYT_LOG", "trace|debug|info|warning|error", "warning", "Least level of messages on stderr."},
      {"LAZYT_THREADS", "integer >= 1", "the process's CPUs", "Threads that backends may use for compute."},
      {"LAZYT_QUEUE", "integer >= 1", "4", "Launches that may wait or run before recording blocks."},
      {"LAZYT_DEADLINE", "seconds >= 0; 0: none", "600",
       "How long one call into a backend may take before its device is given up as lost."},
      {"LAZYT_CACHE_SIZE", "integer >= 1", "1024", "Compiled programs kept in memory."},
      {"LAZYT_EAGER", "0|1", "0", "Run each operator before its call returns: for debugging, errors come at their own line."},
      {"LAZYT_MAX_PENDING", "integer >= 1", "20000", "Recorded operators after which a trace is cut."},
      {"LAZYT_PROBE_BYTES", "integer >= 0", "16777216", "Operands up to this size (of products and convolutions a 64th) are shown to PyTorch's CPU kernel, as zeros, to learn shapes and errors."},
      {"LAZYT_COMPILE_AHEAD", "0|1", "1", "Compile the program of the next size where sizes grow from step to step."},
      {"LAZYT_PIECE_BYTES", "integer >= 0; 0: never", "1048576",
       "Programs whose pieces read so much each are cut into them, so that one that is waited for runs while it is recorded (synchronous backends)."},
      {"LAZYT_REPLAY", "0|1", "1", "Follow known tapes while recording."},
      {"LAZYT_VERIFY", "0|1", "0", "Check every program after each pass."},
      {"LAZYT_DUMP", "path", "", "Folder, made if need be, into which every compiled program is written as .lzp, and what of it the backend gets where that is not all (segment_N)."},
  };
  return options;
}

std::optional<std::string> env(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

namespace {
Status wrong(std::string_view name, std::string_view value, std::string_view allowed) {
  return invalid_argument(fmt::format("environment: {}='{}' is not valid; use {}, or unset it", name, value, allowed));
}
}  // namespace

Result<int64_t> env_int(std::string_view name, int64_t fallback, int64_t min, int64_t max) {
  auto text = env(name);
  if (!text) return fallback;
  int64_t value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < min || value > max)
    return wrong(name, *text, fmt::format("an integer from {} to {}", min, max));
  return value;
}

Result<bool> env_bool(std::string_view name, bool fallback) {
  auto text = env(name);
  if (!text) return fallback;
  for (const char* yes : {"1", "true", "on", "yes"})
    if (*text == yes) return true;
  for (const char* no : {"0", "false", "off", "no"})
    if (*text == no) return false;
  return wrong(name, *text, "0 or 1");
}

Result<std::string> env_choice(std::string_view name, std::string_view fallback) {
  auto text = env(name);
  if (!text) return std::string(fallback);
  for (const EnvOption& o : env_options()) {
    if (name != o.name) continue;
    std::string_view rest = o.values;
    while (!rest.empty()) {
      size_t bar = rest.find('|');
      if (rest.substr(0, bar) == *text) return *text;
      rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
    }
    return wrong(name, *text, fmt::format("one of {}", o.values));
  }
  return internal(fmt::format("environment: {} is not declared in base/env.cpp", name));
}

}  // namespace lazyt::base
