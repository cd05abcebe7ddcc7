#include "loader/manifest.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lazyt::loader {
namespace {

using nlohmann::json;

template <class T>
base::Status integer(const json& object, const char* key, bool required, T& out) {
  auto it = object.find(key);
  if (it == object.end())
    return required ? base::invalid_argument(fmt::format("field '{}' is missing", key)) : base::Status();
  if (!it->is_number_integer()) return base::invalid_argument(fmt::format("field '{}' is not an integer", key));
  // Above 2^63 it is of another type, which would turn into a negative one.
  const bool fits = it->is_number_unsigned() ? std::in_range<T>(it->get<uint64_t>()) : std::in_range<T>(it->get<int64_t>());
  if (!fits) return base::invalid_argument(fmt::format("field '{}': {} is out of range", key, it->dump()));
  out = it->get<T>();
  return {};
}

base::Status text(const json& object, const char* key, bool required, std::string& out) {
  auto it = object.find(key);
  if (it == object.end())
    return required ? base::invalid_argument(fmt::format("field '{}' is missing", key)) : base::Status();
  if (!it->is_string()) return base::invalid_argument(fmt::format("field '{}' is not a string", key));
  out = it->get<std::string>();
  if (required && out.empty()) return base::invalid_argument(fmt::format("field '{}' is empty", key));
  if (out.find('\0') != std::string::npos)
    return base::invalid_argument(fmt::format("field '{}' holds a character U+0000", key));
  return {};
}

bool valid_name(const std::string& name) {
  for (char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') return false;
  return !name.empty();
}

}  // namespace

base::Result<Manifest> read_manifest(const std::string& path) {
  std::ifstream in(path);
  if (!in) return base::invalid_argument("cannot be read");
  json root;
  std::string wrong = "field 'lazyt_manifest' is missing";
  try {
    root = json::parse(in);
  } catch (const json::exception& e) {  // "[json.exception.parse_error.101] parse error at line 3, column 1: ..."
    const std::string_view said = e.what();
    wrong = fmt::format("not valid JSON: {}", said.substr(said.find("] ") + 2));
  }
  const bool ours = std::filesystem::path(path).filename().string().starts_with("lazyt_");
  if (!root.is_object() || !root.contains("lazyt_manifest"))
    return ours ? base::invalid_argument(std::move(wrong)) : base::not_found("not a lazyt manifest");
  Manifest m;
  uint32_t format = 0;
  LAZYT_RETURN_IF_ERROR(integer(root, "lazyt_manifest", true, format));
  if (format != 1)
    return base::invalid_argument(fmt::format("manifest format {} is not known to this host, which reads 1", format));
  LAZYT_RETURN_IF_ERROR(text(root, "name", true, m.name));
  if (!valid_name(m.name))
    return base::invalid_argument(fmt::format("name '{}' has other characters than a-z, 0-9 and _", m.name));
  LAZYT_RETURN_IF_ERROR(text(root, "library", true, m.library));
  if (!root.contains("abi") || !root["abi"].is_object()) return base::invalid_argument("field 'abi' is not an object");
  LAZYT_RETURN_IF_ERROR(integer(root["abi"], "major", true, m.abi_major));
  LAZYT_RETURN_IF_ERROR(integer(root["abi"], "minor", true, m.abi_minor));
  LAZYT_RETURN_IF_ERROR(integer(root["abi"], "draft", false, m.abi_draft));
  LAZYT_RETURN_IF_ERROR(text(root, "version", false, m.version));
  LAZYT_RETURN_IF_ERROR(text(root, "description", false, m.description));
  LAZYT_RETURN_IF_ERROR(integer(root, "score", false, m.score));
  if (auto it = root.find("conformance"); it != root.end()) {
    if (!it->is_object()) return base::invalid_argument("field 'conformance' is not an object");
    LAZYT_RETURN_IF_ERROR(text(*it, "profile", true, m.verdict.profile));
    LAZYT_RETURN_IF_ERROR(text(*it, "suite", true, m.verdict.suite));
    LAZYT_RETURN_IF_ERROR(text(*it, "library", true, m.verdict.library));
  }
  m.library = (std::filesystem::path(path).parent_path() / m.library).lexically_normal().string();
  return m;
}

}  // namespace lazyt::loader
