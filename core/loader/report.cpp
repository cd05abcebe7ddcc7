#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "loader/loader.h"

namespace lazyt::loader {
namespace {

struct Words {
  const char* name;
  const char* hint;
};

// In the order of Reason.
constexpr Words kWords[] = {
    {"loaded", ""},
    {"found", ""},
    {"file-missing", "Install the plugin again, or correct the path."},
    {"bad-manifest", "Correct the manifest (`lazyt sdk schema` prints where its schema lies), or install the plugin again."},
    {"untrusted-path",
     "Use absolute paths; take the write permission for others away with chmod o-w; with elevated privileges, install into a system folder."},
    {"not-a-library", "Install the plugin again: this file is damaged or is something else."},
    {"wrong-architecture", "Install the build of the plugin for this machine's architecture."},
    {"missing-dependency", "Install the library that is named, or put its folder into LD_LIBRARY_PATH before starting."},
    {"undefined-symbol",
     "The plugin and one of its libraries do not fit together: install the versions its vendor names."},
    {"no-entry", "This is not a lazyt plugin, or it was linked with its entry symbol hidden."},
    {"entry-failed", "The plugin itself refused; see its message."},
    {"abi-major", "Install a lazyt of the plugin's ABI, or a plugin built for this one."},
    {"abi-draft", "Until ABI 1 is frozen, plugin and lazyt must come from the same release: rebuild the plugin."},
    {"host-too-old", "Update lazyt, or install an older version of the plugin."},
    {"struct-too-short", "Rebuild the plugin with the released headers; struct_size must be sizeof the whole table."},
    {"missing-slot", "The plugin is incomplete: its vendor must fill the slot that is named."},
    {"handshake", "See what differs; a plugin that was compiled with other conventions (such as -fshort-enums or packing) is to be rebuilt without them."},
    {"init-failed", "The plugin could not start; see its message."},
    {"no-device", "Check the device and its driver; or choose another backend with LAZYT_BACKEND."},
    {"duplicate-name", "Remove one of the two, or give the path of the one you want in LAZYT_BACKEND."},
    {"crashed", "Report this to the plugin's vendor; until then take it out of the plugin folders."},
    {"hung", "Report this to the plugin's vendor; a device or its driver may be stuck."},
    {"bad-layers", "Correct or unset LAZYT_LAYERS."},
    {"stack-overflow", "Report this to the plugin's vendor: it recurses without end, or wants more stack than `ulimit -s` gives."},
    {"disabled", "Correct or unset the variable that is named."},
    {"not-allowed", "If you trust this library, add the sum to the list: sha256sum FILE."},
    {"not-conformant", "Have it judged: lazyt conformance NAME --verdict (with --profile full for `full`); or unset LAZYT_REQUIRE_CONFORMANCE."},
    {"quarantined", "Install a build that works; `lazyt doctor NAME` tries it again and lifts the quarantine if it comes up."},
};
static_assert(std::size(kWords) == static_cast<size_t>(Reason::kQuarantined) + 1);

}  // namespace

const char* reason_name(Reason reason) { return kWords[static_cast<size_t>(reason)].name; }
const char* reason_hint(Reason reason) { return kWords[static_cast<size_t>(reason)].hint; }

std::string Report::to_text() const {
  std::string out =
      fmt::format("requested: {}\n", requested.empty() ? "(automatic: the highest score with a device)" : requested);
  if (candidates.empty())
    return out + "no plugin found in LAZYT_PLUGIN_PATH, beside the library, in the user folder or the system folders\n";
  for (const Candidate& c : candidates) {
    out += fmt::format("{}: {} at step '{}'\n    {} (found by: {}, score {})\n", c.name.empty() ? "(no name)" : c.name,
                       reason_name(c.reason), c.step, c.path.empty() ? "(empty path)" : c.path, c.found_by, c.score);
    if (!c.detail.empty()) {
      // Details of several lines stay under their candidate.
      std::string indented;
      for (char ch : c.detail) indented += ch == '\n' ? std::string("\n    ") : std::string(1, ch);
      out += fmt::format("    {}\n", indented);
    }
    if (*reason_hint(c.reason)) out += fmt::format("    to do: {}\n", reason_hint(c.reason));
  }
  return out;
}

std::string Report::to_json() const {
  nlohmann::ordered_json root{{"lazyt_report", 1}, {"requested", requested}, {"candidates", nlohmann::json::array()}};
  for (const Candidate& c : candidates)
    root["candidates"].push_back({{"name", c.name},
                                  {"path", c.path},
                                  {"found_by", c.found_by},
                                  {"step", c.step},
                                  {"reason", reason_name(c.reason)},
                                  {"detail", c.detail},
                                  {"hint", reason_hint(c.reason)},
                                  {"score", c.score},
                                  {"conformance", c.verdict.profile}});
  // Paths and messages need not be UTF-8.
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lazyt::loader
