#include "trace/devices.h"

#include <charconv>

#include <fmt/format.h>

#include "base/env.h"
#include "trace/storage.h"

namespace lazyt::trace {
namespace {

constexpr char kVariable[] = "LAZYT_DEVICES";

base::Result<std::vector<DeviceChoice>> read_list() {
  std::vector<DeviceChoice> out;
  const auto text = base::env(kVariable);
  if (!text) return out;
  for (size_t begin = 0; begin <= text->size();) {
    const size_t end = std::min(text->find(',', begin), text->size());
    auto choice = parse_device(std::string_view(*text).substr(begin, end - begin));
    if (!choice.ok()) return base::invalid_argument(fmt::format("{}: {}", kVariable, choice.status().message()));
    out.push_back(std::move(choice).value());
    out.back().variable = kVariable;
    begin = end + 1;
  }
  if (out.size() > kMaxDevices)
    return base::invalid_argument(fmt::format("{}: {} devices; a process has at most {}", kVariable, out.size(), kMaxDevices));
  return out;
}

}  // namespace

base::Result<DeviceChoice> parse_device(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  DeviceChoice out;
  const size_t colon = text.rfind(':');
  if (colon != text.npos && text.find('/', colon) == text.npos) {
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.index);
    if (error != std::errc() || end != number.data() + number.size())
      return base::invalid_argument(fmt::format("'{}' is no device: behind ':' comes the number of one of the backend's devices", text));
    text = text.substr(0, colon);
  }
  out.backend = text;
  if (out.backend.empty()) return base::invalid_argument("a device without a backend; name one: onednn, cuda:1, /path/to/lazyt_acme.so");
  return out;
}

const base::Result<std::vector<DeviceChoice>>& listed_devices() {
  static const auto& list = *new base::Result<std::vector<DeviceChoice>>(read_list());
  return list;
}

}  // namespace lazyt::trace
