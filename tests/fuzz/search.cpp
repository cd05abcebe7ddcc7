// Any lines as LAZYT_BACKEND, LAZYT_PLUGIN_PATH, XDG_DATA_HOME and HOME, over a folder of files that are no
// plugins: nothing loads, the error says why, and the report is text and JSON whatever the lines hold.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "loader/loader.h"
#include "target.h"

using namespace lazyt;
namespace fs = std::filesystem;

namespace {

// '@' in an input stands for it.
const std::string& folder() {
  static const std::string made = [] {
    std::string path = (fs::temp_directory_path() / "lazyt_fuzz_XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()));
    auto write = [&](const char* name, const char* text) { std::ofstream(fs::path(path) / name) << text; };
    write(
        "lazyt_a.json",
        R"({"lazyt_manifest": 1, "name": "a", "library": "none.so", "abi": {"major": 1, "minor": 0, "draft": 1}})");
    write("lazyt_b.so", "no library");
    write("lazyt_c.json", "{");
    write("other.json", "{}");
    fs::create_directories(fs::path(path) / "lazyt/plugins");
    fs::create_symlink(path + "/lazyt_b.so", fs::path(path) / "lazyt/plugins/lazyt_b.so");
    return path;
  }();
  static struct Remove {
    ~Remove() { fs::remove_all(made); }
  } at_exit;
  return made;
}

void check(const loader::Report& report) {
  REQUIRE(!report.to_text().empty() && !report.to_json().empty());
  for (const loader::Candidate& c : report.candidates) REQUIRE(c.reason != loader::Reason::kLoaded, c.path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; i++)
    data[i] == '@' ? text += folder() : text += static_cast<char>(data[i] ? data[i] : '\n');
  std::string lines[4];
  static const char* names[] = {"LAZYT_BACKEND", "LAZYT_PLUGIN_PATH", "XDG_DATA_HOME", "HOME"};
  for (size_t i = 0, begin = 0; i < 4 && begin <= text.size(); i++) {
    size_t end = std::min(text.find('\n', begin), text.size());
    lines[i] = std::string(names[i]) + "=" + text.substr(begin, end - begin);
    begin = end + 1;
    ::putenv(lines[i].data());
  }
  loader::Report report;
  auto plugin = loader::load({}, &report);
  REQUIRE(!plugin.ok());
  REQUIRE(!plugin.status().message().empty());
  check(report);
  for (const char* name : names) ::unsetenv(name);
  return 0;
}
