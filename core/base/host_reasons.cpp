#include "base/host_reasons.h"

#include <mutex>

#include <fmt/format.h>

namespace lazyt::base {
namespace {

std::mutex mutex;
auto& reasons() {
  static auto& map = *new std::map<std::string, std::string, std::less<>>;
  return map;
}

}  // namespace

std::string host_name(std::string_view op) {
  constexpr std::string_view kOwn = "lazyt::";
  return op.starts_with(kOwn) ? fmt::format("aten::{}", op.substr(kOwn.size())) : std::string(op);
}

void note_host_reason(std::string_view op, std::string_view reason, std::string_view line) {
  std::lock_guard lock(mutex);
  if (!reasons().contains(op))
    reasons().emplace(op, fmt::format("{}{}{}", reason, line.empty() ? "" : ", first at ", line));
}

bool has_host_reason(std::string_view op) {
  std::lock_guard lock(mutex);
  return reasons().contains(op);
}

std::map<std::string, std::string, std::less<>> host_reasons() {
  std::lock_guard lock(mutex);
  return reasons();
}

}  // namespace lazyt::base
