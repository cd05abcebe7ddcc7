#include "loader/policy.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/env.h"
#include "base/log.h"
#include "base/sha256.h"
#include "loader/search.h"

namespace lazyt::loader {
namespace {

namespace fs = std::filesystem;

bool refuse(Candidate& c, Reason reason, std::string detail) {
  c.step = "policy";
  c.reason = reason;
  c.detail = std::move(detail);
  return false;
}

bool fits(const std::string& globs, const std::string& name) {
  std::stringstream list(globs);
  for (std::string glob; std::getline(list, glob, ',');) {
    glob.erase(0, glob.find_first_not_of(" \t"));
    glob.erase(glob.find_last_not_of(" \t") + 1);
    if (!glob.empty() && fnmatch(glob.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

// The first word of each line; what follows is for people.
bool listed(std::istream& list, const std::string& hash) {
  for (std::string line; std::getline(list, line);) {
    std::string word;
    std::stringstream(line) >> word;
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word == hash) return true;
  }
  return false;
}

bool check_allowed(Candidate& c) {
  const auto file = base::env("LAZYT_PLUGIN_ALLOW");
  if (!file) return true;
  std::ifstream list(*file);
  if (!list || (*file)[0] != '/')
    return refuse(c, Reason::kNotAllowed, fmt::format("LAZYT_PLUGIN_ALLOW: '{}' is not the absolute path of a file that can be read", *file));
  auto hash = base::sha256_of_file(c.path);
  if (!hash.ok()) return refuse(c, Reason::kNotAllowed, hash.status().to_string());
  if (listed(list, hash.value())) return true;
  return refuse(c, Reason::kNotAllowed, fmt::format("{} does not list its SHA-256, {}", *file, hash.value()));
}

bool check_conformance(Candidate& c) {
  auto wanted = base::env_choice("LAZYT_REQUIRE_CONFORMANCE", "");
  if (!wanted.ok()) return refuse(c, Reason::kNotConformant, std::string(wanted.status().message()));
  if (wanted.value().empty()) return true;
  if (c.verdict.profile.empty())
    return refuse(c, Reason::kNotConformant,
                  fmt::format("LAZYT_REQUIRE_CONFORMANCE={} and its manifest has no verdict", wanted.value()));
  if (c.verdict.profile != "full" && c.verdict.profile != wanted.value())
    return refuse(c, Reason::kNotConformant,
                  fmt::format("LAZYT_REQUIRE_CONFORMANCE={} and the verdict of its manifest is for '{}'", wanted.value(), c.verdict.profile));
  auto hash = base::sha256_of_file(c.path);
  if (hash.ok() && hash.value() == c.verdict.library) return true;
  return refuse(c, Reason::kNotConformant,
                hash.ok() ? "the verdict of its manifest is for another build of the library" : hash.status().to_string());
}

// Empty while privileges are elevated: the user's files do not count then.
std::string quarantine() {
  if (elevated_privileges()) return {};
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/lazyt/quarantine";
  return home && home[0] == '/' ? std::string(home) + "/.cache/lazyt/quarantine" : std::string();
}

// Where a note about these bytes lies or would lie; empty if it cannot be told.
std::string note_of(const Candidate& c) {
  const std::string folder = quarantine();
  std::error_code error;
  const uintmax_t size = fs::file_size(c.path, error);
  if (folder.empty() || error) return {};
  auto hash = base::sha256_of_file(c.path);
  return hash.ok() ? fmt::format("{}/{}-{}", folder, size, hash.value()) : std::string();
}

// Libraries are hashed only where a note about one of their size lies.
bool may_have_note(const Candidate& c) {
  std::error_code error;
  const std::string begin = fmt::format("{}-", fs::file_size(c.path, error));
  for (fs::directory_iterator it(quarantine(), error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(begin)) return true;
  return false;
}

bool check_quarantine(Candidate& c) {
  if (!may_have_note(c)) return true;
  std::ifstream note(note_of(c));
  std::string why;
  if (!note || !std::getline(note, why)) return true;
  return refuse(c, Reason::kQuarantined, why);
}

}  // namespace

bool check_policy(Candidate& c, bool by_search) {
  if (auto globs = base::env("LAZYT_PLUGIN_DISABLE"); globs && fits(*globs, c.name))
    return refuse(c, Reason::kDisabled, fmt::format("LAZYT_PLUGIN_DISABLE={}", *globs));
  if (auto globs = base::env("LAZYT_PLUGIN_SELECT"); globs && by_search && !fits(*globs, c.name))
    return refuse(c, Reason::kDisabled, fmt::format("LAZYT_PLUGIN_SELECT={} leaves it out", *globs));
  return check_allowed(c) && check_conformance(c) && check_quarantine(c);
}

void put_into_quarantine(const Candidate& c) {
  const std::string note = note_of(c);
  if (note.empty()) return;
  std::error_code error;
  fs::create_directories(fs::path(note).parent_path(), error);
  std::ofstream out(note);
  out << reason_name(c.reason) << ": " << c.detail << "\n" << c.path << "\n";
  if (!out.flush()) base::log(LAZYT_LOG_WARNING, fmt::format("quarantine: cannot write {}", note));
}

void take_out_of_quarantine(const Candidate& c) {
  std::error_code error;
  if (may_have_note(c)) fs::remove(note_of(c), error);
}

}  // namespace lazyt::loader
