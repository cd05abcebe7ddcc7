// lazyt conformance: starts lazyt-conformance, which is a program of its own because it brings GoogleTest
// along.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "verbs.h"

namespace lazyt::tools {
namespace {

// Beside this program where it is installed; where it was built, in the folder of its tests.
std::string find_runner() {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {"lazyt-conformance", "../tests/conformance/lazyt-conformance"})
    if (std::filesystem::exists(here / place, error)) return here / place;
  return "";
}

int run(const std::vector<std::string>& arguments) {
  std::string runner = find_runner();
  if (runner.empty()) {
    fmt::print(stderr,
               "lazyt-conformance is not installed beside this command; build lazyt with -Dtests=enabled\n");
    return 2;
  }
  std::vector<char*> argv = {runner.data()};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  fmt::print(stderr, "cannot start {}: {}\n", runner, std::strerror(errno));
  return 2;
}

}  // namespace

void add_conformance(CLI::App& app, int& exit_status) {
  CLI::App* verb = app.add_subcommand(
      "conformance", "Tell which numbered rules of the headers a plugin breaks (--help shows more)");
  verb->prefix_command();
  verb->set_help_flag();  // the runner has its own
  verb->callback([verb, &exit_status] { exit_status = run(verb->remaining()); });
}

}  // namespace lazyt::tools
