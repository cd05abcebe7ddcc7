// Any bytes as a plugin's manifest: refused with the field that is wrong, or every field keeps what the
// loader counts on.
#include "loader/manifest.h"

#include <filesystem>

#include "target.h"

using namespace lazyt;

namespace {

// Whether a file is ours is told by its name too.
std::string linked(const std::string& name, const std::string& file) {
  static const std::string folder = [] {
    std::string made = (std::filesystem::temp_directory_path() / "lazyt_fuzz_XXXXXX").string();
    REQUIRE(::mkdtemp(made.data()));
    return made;
  }();
  std::filesystem::path link = std::filesystem::path(folder) / name;
  std::filesystem::create_symlink(file, link);
  static struct Remove {
    ~Remove() { std::filesystem::remove_all(folder); }
  } at_exit;
  return link.string();
}

void read(const std::string& path, bool ours) {
  auto manifest = loader::read_manifest(path);
  if (!manifest.ok()) {
    const lazyt_code_t code = manifest.status().code();
    REQUIRE(code == LAZYT_CODE_INVALID_ARGUMENT || (!ours && code == LAZYT_CODE_NOT_FOUND),
            manifest.status().to_string());
    REQUIRE(!manifest.status().message().empty());
    return;
  }
  const loader::Manifest& m = manifest.value();
  REQUIRE(!m.name.empty() &&
              m.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos,
          m.name);
  REQUIRE(m.library.starts_with('/') && m.library.find('\0') == std::string::npos, m.library);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file;
  static const std::string ours = linked("lazyt_x.json", file.path()), other = linked("x.json", file.path());
  file.write(data, size);
  read(ours, true);
  read(other, false);
  return 0;
}
