// lazyt new-plugin: a backend that works, to begin from.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lazyt/base.h"
#include "sdk.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string name, language = "c", folder;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// The templates are a plugin called acme.
std::string renamed(std::string text, const std::string& name) {
  std::string upper;
  for (char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return replaced(replaced(std::move(text), "acme", name), "ACME", upper);
}

// Without the marks of what the documents quote.
std::string unmarked(const std::string& text) {
  std::stringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);)
    if (line.find("[region ") == line.npos && line.find("[end]") == line.npos) out += line + "\n";
  return out;
}

void write(const fs::path& from, const fs::path& to, const std::string& name) {
  std::ifstream in(from, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (from.extension() == ".json") {
    text = replaced(std::move(text), "LAZYT_ABI_MAJOR", std::to_string(LAZYT_ABI_MAJOR));
    text = replaced(std::move(text), "LAZYT_ABI_MINOR", std::to_string(LAZYT_ABI_MINOR));
    text = replaced(std::move(text), "LAZYT_ABI_DRAFT", std::to_string(LAZYT_ABI_DRAFT));
  }
  // Cargo takes paths only: that of this SDK.
  if (from.filename() == "Cargo.toml") text = replaced(std::move(text), "LAZYT_RUST_CRATES", sdk_path("rust").string());
  fs::create_directories(to.parent_path());
  std::ofstream out(to, std::ios::binary);
  out << renamed(unmarked(text), name);
  if (!in || !out.flush()) throw fs::filesystem_error("cannot write", to, std::make_error_code(std::errc::io_error));
}

bool valid(const std::string& name) {
  if (name.empty() || !std::islower(static_cast<unsigned char>(name[0]))) return false;
  for (char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') return false;
  return true;
}

int run(const Arguments& args) {
  auto fail = [](std::string_view why) {
    fmt::print(stderr, "lazyt new-plugin: {}\n", why);
    return 1;
  };
  if (!valid(args.name)) return fail(fmt::format("'{}': a name is [a-z][a-z0-9_]* (LIB-8)", args.name));
  const fs::path templates = sdk_path("templates");
  if (templates.empty()) return fail("the templates are not installed: run `meson install` with the tag devel");
  const fs::path folder = args.folder.empty() ? args.name : args.folder;
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder)))
    return fail(fmt::format("{} exists already and is not an empty folder", folder.string()));
  try {
    for (const char* part : {"common", args.language.c_str()})
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(templates / part)) {
        if (!entry.is_regular_file() || entry.path().extension() == ".pyc") continue;
        const fs::path below = fs::relative(entry.path(), templates / part);
        write(entry.path(), folder / renamed(below.string(), args.name), args.name);
      }
  } catch (const fs::filesystem_error& error) {
    return fail(error.what());
  }
  fmt::print("{}: a backend in {}. Its README.md has the three commands that build, check and train with it.\n",
             folder.string(), args.language);
  return 0;
}

}  // namespace

void add_new_plugin(CLI::App& app, int& exit_status) {
  auto args = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("new-plugin", "Write the sources of a backend that works, to begin from");
  verb->add_option("name", args->name, "What users will write in LAZYT_BACKEND; a-z, 0-9 and _")->required();
  verb->add_option("--lang", args->language, "Language")
      ->check(CLI::IsMember(std::vector<std::string>{"c", "cpp", "rust"}))
      ->capture_default_str();
  verb->add_option("--folder", args->folder, "Where to; a new or empty folder (default: the name)");
  verb->footer(
      "It computes what training a two-layer perceptron with SGD needs, refuses the rest with reasons, and passes\n"
      "`lazyt conformance`. All of it is yours, under the Boost licence: no notice is needed in a binary.");
  verb->callback([args, &exit_status] { exit_status = run(*args); });
}

}  // namespace lazyt::tools
