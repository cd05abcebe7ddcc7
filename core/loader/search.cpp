#include "loader/search.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "base/env.h"
#include "loader/manifest.h"
#include "loader/policy.h"

namespace lazyt::loader {
namespace {

namespace fs = std::filesystem;

struct Folder {
  std::string path;
  std::string found_by;
  bool named = false;  // by somebody: it must be there, as those that are searched anyway need not
};

// Of add_folder.
struct Added {
  std::mutex mutex;
  std::vector<Folder> folders;
};
Added& added() {
  static auto* a = new Added;
  return *a;
}

bool refuse(Candidate& c, const char* step, Reason reason, std::string detail) {
  c.step = step;
  c.reason = reason;
  c.detail = std::move(detail);
  return false;
}

std::string real(const std::string& path) {
  std::error_code error;
  fs::path p = fs::canonical(path, error);
  return error ? path : p.string();
}

// "lazyt_cuda.so" -> "cuda"; empty for any other name.
std::string name_from_file(const fs::path& path) {
  const std::string file = path.filename().string();
  if (!file.starts_with("lazyt_") || !file.ends_with(".so") || file.size() <= 9) return {};
  return file.substr(6, file.size() - 9);
}

std::string own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&search), &info) || !info.dli_fname) return {};
  return fs::path(real(info.dli_fname)).parent_path().string();
}

// Fills the candidate from its manifest; false if it cannot be used.
bool apply_manifest(const std::string& path, Candidate& c) {
  c.step = "manifest";
  if (!check_file(path, c)) return false;
  auto manifest = read_manifest(path);
  if (!manifest.ok()) {
    c.path = path;
    const Reason reason = manifest.status().code() == LAZYT_CODE_NOT_FOUND ? Reason::kFound : Reason::kBadManifest;
    return refuse(c, "manifest", reason, std::string(manifest.status().message()));
  }
  const Manifest& m = manifest.value();
  c.name = m.name;
  c.path = m.library;
  c.score = m.score;
  c.verdict = m.verdict;
  c.detail = m.version.empty() ? m.description : m.description + " (" + m.version + ")";
  if (m.abi_major != LAZYT_ABI_MAJOR)
    return refuse(c, "manifest", Reason::kAbiMajor,
                  fmt::format("built for ABI {}.{}, this host has {}.{}", m.abi_major, m.abi_minor, LAZYT_ABI_MAJOR,
                              LAZYT_ABI_MINOR));
  if (m.abi_draft != LAZYT_ABI_DRAFT)
    return refuse(c, "manifest", Reason::kAbiDraft,
                  fmt::format("built for draft {} of ABI {}, this host has draft {}", m.abi_draft, m.abi_major,
                              LAZYT_ABI_DRAFT));
  return check_file(c.path, c);
}

void read_folder(const Folder& folder, std::vector<Candidate>& out) {
  std::vector<fs::path> manifests, libraries;
  std::error_code error;
  fs::directory_iterator it(folder.path, error);
  if (error && folder.named) {
    Candidate c{.name = {}, .path = folder.path, .found_by = folder.found_by, .step = {}, .detail = {}};
    refuse(c, "search", Reason::kFileMissing, fmt::format("this folder cannot be read: {}", error.message()));
    out.push_back(std::move(c));
  }
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".json") manifests.push_back(it->path());
    else if (!name_from_file(it->path()).empty()) libraries.push_back(it->path());
  }
  std::sort(manifests.begin(), manifests.end());
  std::sort(libraries.begin(), libraries.end());
  std::set<std::string> described;
  for (const fs::path& path : manifests) {
    Candidate c{.name = path.stem().string(), .path = path.string(), .found_by = folder.found_by, .step = {}, .detail = {}};
    if (c.name.starts_with("lazyt_")) c.name = c.name.substr(6);
    else if (read_manifest(path.string()).status().code() == LAZYT_CODE_NOT_FOUND) continue;
    apply_manifest(path.string(), c);
    described.insert(real(c.path));
    // The library beside a manifest that is wrong is not a way around it.
    described.insert(real(fs::path(path).replace_extension(".so").string()));
    out.push_back(std::move(c));
  }
  for (const fs::path& path : libraries) {
    if (described.contains(real(path.string()))) continue;
    Candidate c{.name = name_from_file(path), .path = path.string(), .found_by = folder.found_by, .step = "file", .detail = {}};
    check_file(c.path, c);
    out.push_back(std::move(c));
  }
}

}  // namespace

bool elevated_privileges() { return getauxval(AT_SECURE) != 0; }

bool check_file(const std::string& path, Candidate& c) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    return refuse(c, c.step.empty() ? "file" : c.step.c_str(), Reason::kFileMissing, path + " does not exist");
  if (!S_ISREG(info.st_mode)) return refuse(c, "file", Reason::kNotALibrary, path + " is not a file");
  if (info.st_mode & S_IWOTH)
    return refuse(c, "file", Reason::kUntrustedPath, path + " can be written by every user");
  // Who may write the folder may put another library in its place; the sticky bit keeps that to owners.
  const std::string folder = fs::absolute(path).parent_path().string();
  if (stat(folder.c_str(), &info) == 0 && (info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX))
    return refuse(c, "file", Reason::kUntrustedPath, "its folder " + folder + " can be written by every user");
  return true;
}

Candidate candidate_at(const std::string& path, const std::string& found_by, bool from_environment) {
  Candidate c{.name = name_from_file(path), .path = path, .found_by = found_by, .step = "file", .detail = {}};
  if (c.name.empty()) c.name = fs::path(path).stem().string();
  if (from_environment && elevated_privileges()) {
    refuse(c, "search", Reason::kUntrustedPath, "paths of the environment are ignored while privileges are elevated");
    return c;
  }
  if (from_environment && fs::path(path).is_relative()) {
    refuse(c, "search", Reason::kUntrustedPath, "a relative path would depend on the current directory");
    return c;
  }
  c.path = fs::absolute(path).lexically_normal().string();
  if (c.path.ends_with(".json")) {
    if (!apply_manifest(c.path, c) && c.reason == Reason::kFound) c.reason = Reason::kBadManifest;
  } else {
    check_file(c.path, c);
    // What the manifest beside it tells of this library, though the library was named.
    auto manifest = read_manifest(fs::path(c.path).replace_extension(".json").string());
    if (manifest.ok() && real(manifest.value().library) == real(c.path)) c.verdict = manifest.value().verdict;
  }
  if (c.reason == Reason::kFound) check_policy(c, false);
  return c;
}

void add_folder(std::string path, std::string found_by) {
  std::lock_guard lock(added().mutex);
  added().folders.push_back({std::move(path), std::move(found_by), true});
}

std::vector<Candidate> search() {
  std::vector<Candidate> out;
  std::vector<Folder> folders;
  const bool elevated = elevated_privileges();
  auto refused = [&](std::string path, std::string found_by, std::string why) {
    Candidate c{.name = {}, .path = std::move(path), .found_by = std::move(found_by), .step = {}, .detail = {}};
    refuse(c, "search", Reason::kUntrustedPath, std::move(why));
    out.push_back(std::move(c));
  };

  if (auto path = base::env("LAZYT_PLUGIN_PATH")) {
    if (elevated) {
      refused(*path, "LAZYT_PLUGIN_PATH", "paths of the environment are ignored while privileges are elevated");
    } else {
      for (size_t begin = 0; begin <= path->size();) {
        size_t end = std::min(path->find(':', begin), path->size());
        std::string entry = path->substr(begin, end - begin);
        if (entry.empty() || entry[0] != '/')
          refused(entry, "LAZYT_PLUGIN_PATH",
                  entry.empty() ? "an empty entry would mean the current directory"
                                : "a relative path would depend on the current directory");
        else
          folders.push_back({entry, "LAZYT_PLUGIN_PATH", true});
        begin = end + 1;
      }
    }
  }
  if (const std::string own = own_folder(); !own.empty())
    for (const char* where : {"/plugins", "/../plugins", ""}) folders.push_back({own + where, "beside the library"});
  if (!elevated) {
    const char* data = std::getenv("XDG_DATA_HOME");
    const char* home = std::getenv("HOME");
    if (data && data[0] == '/') folders.push_back({std::string(data) + "/lazyt/plugins", "user folder"});
    else if (home && home[0] == '/') folders.push_back({std::string(home) + "/.local/share/lazyt/plugins", "user folder"});
  }
  folders.push_back({"/usr/local/lib/lazyt/plugins", "system folder"});
  folders.push_back({"/usr/lib/lazyt/plugins", "system folder"});

  {
    std::lock_guard lock(added().mutex);
    folders.insert(folders.end(), added().folders.begin(), added().folders.end());
  }

  std::set<std::string> seen;
  for (const Folder& f : folders)
    if (seen.insert(real(f.path)).second) read_folder(f, out);

  for (Candidate& c : out)
    if (c.reason == Reason::kFound) check_policy(c, true);
  for (size_t i = 0; i < out.size(); i++)
    for (size_t k = 0; k < i && out[i].reason == Reason::kFound; k++)
      if (out[k].name == out[i].name && out[k].reason == Reason::kFound)
        refuse(out[i], "search", Reason::kDuplicateName, fmt::format("'{}' is {} already", out[k].name, out[k].path));
  return out;
}

}  // namespace lazyt::loader
