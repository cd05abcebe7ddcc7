#include "locate.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "lazyt/plugin.hpp"

namespace lazyt::cuda {
namespace {

namespace fs = std::filesystem;

constexpr int kMode = RTLD_NOW | RTLD_LOCAL;

std::string env(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : "";
}

std::string last_error() {
  const char* text = dlerror();
  return text ? text : "unknown reason";
}

// lib/python3.X/site-packages of an environment.
void add_site_packages(std::vector<fs::path>& out, const fs::path& prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(prefix / "lib", ignored))
    if (entry.path().filename().string().starts_with("python3")) out.push_back(entry.path() / "site-packages");
}

// Where wheels may lie: around the plugin (site-packages/lazyt/plugins), where Python is told to look, and in the
// environment that the process runs in.
std::vector<fs::path> site_packages() {
  std::vector<fs::path> out;
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&site_packages), &self) && self.dli_fname)
    out.push_back(fs::path(self.dli_fname).parent_path() / "../..");
  const std::string path = env("PYTHONPATH");
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin && path[begin] == '/') out.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  if (const std::string prefix = env("VIRTUAL_ENV"); !prefix.empty()) add_site_packages(out, prefix);
  std::error_code error;
  if (const fs::path exe = fs::read_symlink("/proc/self/exe", error); !error) add_site_packages(out, exe.parent_path().parent_path());
  return out;
}

std::vector<fs::path> toolkits() {
  std::vector<fs::path> out;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string home = env(name); !home.empty()) out.emplace_back(home);
  out.emplace_back("/usr/local/cuda");
  return out;
}

bool open_as(Library& library, const std::string& file, int mode = kMode) {
  library.handle = dlopen(file.c_str(), mode);
  if (!library.handle) return false;
  library.path = path_of(library.handle);
  return true;
}

// Every soname in one folder. A file that is there and cannot be opened is remembered as the reason.
bool open_in(Library& library, const Wanted& wanted, const fs::path& folder, std::string& reason) {
  std::error_code ignored;
  for (const std::string& soname : wanted.sonames) {
    const fs::path file = folder / soname;
    if (!fs::exists(file, ignored)) continue;
    if (open_as(library, file.string())) return true;
    reason = last_error();
  }
  return false;
}

bool search(Library& library, const Wanted& wanted, std::string& reason) {
  for (const std::string& soname : wanted.sonames)
    if (open_as(library, soname, kMode | RTLD_NOLOAD)) return true;
  if (!wanted.wheel_dirs.empty()) {
    for (const fs::path& site : site_packages())
      for (const std::string& dir : wanted.wheel_dirs)
        if (open_in(library, wanted, site / dir, reason)) return true;
    if (const std::string conda = env("CONDA_PREFIX"); !conda.empty())
      if (open_in(library, wanted, fs::path(conda) / "lib", reason)) return true;
  }
  for (const std::string& soname : wanted.sonames) {
    if (open_as(library, soname)) return true;
    const std::string said = last_error();
    // "No such file" of an older soname must not hide why a newer one could not be opened.
    if (reason.empty() || said.find("No such file") == std::string::npos) reason = said;
  }
  if (!wanted.wheel_dirs.empty())
    for (const fs::path& home : toolkits())
      for (const char* dir : {"lib64", "lib"})
        if (open_in(library, wanted, home / dir, reason)) return true;
  return false;
}

}  // namespace

std::string Library::state() const {
  if (!missing.empty()) return missing;
  return (version.empty() ? "" : version + " ") + "(" + path + ")";
}

Library open_library(const Wanted& wanted) {
  Library library;
  library.title = wanted.title;
  const std::string chosen(plugin::option("cuda", wanted.option));
  std::string variable = "LAZYT_CUDA_";
  for (char c : wanted.option) variable += static_cast<char>(c - 'a' + 'A');
  if (!chosen.empty()) {
    if (chosen.front() != '/') {
      library.missing = variable + "=" + chosen + " is not an absolute path";
    } else if (!open_as(library, chosen)) {
      library.missing = "the library of " + variable + " does not open: " + last_error();
    }
    return library;
  }
  std::string reason;
  if (!search(library, wanted, reason)) library.missing = "not found (" + reason + "); " + variable + " names a file";
  return library;
}

void* find_function(Library& library, const char* name) {
  if (!library.handle) return nullptr;
  void* found = dlsym(library.handle, name);
  if (!found && library.missing.empty()) library.missing = library.path + " has no function " + name;
  return found;
}

}  // namespace lazyt::cuda
