#include "layers/violation.h"

#include <cstdlib>
#include <mutex>

#include <fmt/format.h>

#include "base/counters.h"
#include "base/log.h"

namespace lazyt::layers {
namespace {

struct Hook {
  std::mutex mutex;
  std::function<void(const Violation&)> call;
};
Hook& hook() {
  static auto* h = new Hook;  // plugins may go away after static destructors
  return *h;
}

}  // namespace

std::string Violation::to_string() const {
  const std::string who = plugin.empty() ? "a plugin" : fmt::format("plugin '{}'", plugin);
  return side == Side::kHost ? fmt::format("the host broke {} in {} of {}: {}", rule, function, who, seen)
                             : fmt::format("{} broke {} in {}: {}", who, rule, function, seen);
}

void report(const Violation& violation, bool abort) {
  base::counter("ContractViolations").add();
  {
    std::lock_guard lock(hook().mutex);
    if (hook().call) return hook().call(violation);
  }
  base::log(LAZYT_LOG_ERROR, "validate: " + violation.to_string());
  if (abort) std::abort();
}

void on_violation(std::function<void(const Violation&)> call) {
  std::lock_guard lock(hook().mutex);
  hook().call = std::move(call);
}

}  // namespace lazyt::layers
