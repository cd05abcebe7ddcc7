// lazyt sdk: where headers, build files and templates for plugins are.
#include "sdk.h"

#include <memory>

#include <fmt/format.h>

#include "verbs.h"

namespace lazyt::tools {
namespace {

namespace fs = std::filesystem;

struct Part {
  const char *name, *path, *help;
};
constexpr Part kParts[] = {
    {"include", "include", "the headers: cc -I"},
    {"pkgconfig", "lib/pkgconfig", "lazyt.pc: PKG_CONFIG_PATH"},
    {"cmake", "lib/cmake/lazyt", "the CMake package: -Dlazyt_DIR"},
    {"rust", "share/rust", "the crates lazyt-sys and lazyt-plugin"},
    {"templates", "share/templates", "what `lazyt new-plugin` copies"},
    {"ops", "share/ops.toml", "the operators of the opset: schemas, dtypes, what each is made of"},
    {"schema", "share/manifest.schema.json", "JSON schema of manifests"},
    {"plugins", "plugins", "the plugins that came with this lazyt"},
};

int run(const std::string& wanted) {
  for (const Part& part : kParts) {
    const fs::path path = sdk_path(part.name);
    if (wanted.empty()) {
      fmt::print("{:10} {}\n{:10} {}\n", part.name, path.empty() ? "(not installed)" : path.string(), "", part.help);
    } else if (wanted == part.name) {
      if (path.empty()) fmt::print(stderr, "lazyt sdk: {} is not installed: run `meson install` with the tag devel\n", wanted);
      else fmt::print("{}\n", path.string());
      return path.empty() ? 1 : 0;
    }
  }
  return 0;
}

}  // namespace

fs::path sdk_path(const std::string& name) {
  std::error_code error;
  const fs::path root = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  for (const Part& part : kParts)
    if (name == part.name && fs::exists(root / part.path, error)) return root / part.path;
  return {};
}

void add_sdk(CLI::App& app, int& exit_status) {
  auto wanted = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("sdk", "Show where the headers, build files and templates for plugins are");
  std::vector<std::string> names;
  for (const Part& part : kParts) names.emplace_back(part.name);
  verb->add_option("part", *wanted, "Print the path of this part only")->check(CLI::IsMember(names));
  verb->footer("Example: cc -fPIC -shared -I\"$(lazyt sdk include)\" mine.c -o lazyt_mine.so");
  verb->callback([wanted, &exit_status] { exit_status = run(*wanted); });
}

}  // namespace lazyt::tools
