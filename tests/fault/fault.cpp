#include "fault.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lazyt/plugin.hpp"

namespace fault {
namespace {

using lazyt::plugin::Error;
using lazyt::plugin::guard;
using lazyt::plugin::host;

struct Name {
  std::string_view text;
  bool fails;
};
constexpr Name kNames[] = {
#define FAULT_FUNCTION(table, name, fails) {#table "." #name, fails != 0},
#include "functions.h"
#undef FAULT_FUNCTION
};

constexpr std::string_view kCodes[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

enum class Action { kFail, kDelay, kHang, kCrash };

struct Fault {
  uint32_t function = 0;
  uint64_t call = 0;
  bool each = false;  // multiples of call
  Action action = Action::kFail;
  lazyt_code_t code = LAZYT_CODE_INTERNAL;
  uint64_t milliseconds = 0;
};

// Set by configure, before anything else is called. Never freed: a hung call may be in it when the process ends.
std::vector<Fault>& faults = *new std::vector<Fault>;
std::atomic<uint64_t> calls[kFunctions];

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(by, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

[[noreturn]] void wrong(std::string_view entry, const std::string& what) {
  throw Error(LAZYT_CODE_INVALID_ARGUMENT, "LAZYT_FAULT_AT: '" + std::string(entry) + "': " + what +
                                               "; write FUNCTION:CALL:fail[:CODE]|delay:MS|hang|crash");
}

uint64_t number(std::string_view entry, std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0)
    wrong(entry, "'" + std::string(text) + "' is not a number from 1 on");
  return value;
}

template <size_t N, class T, class Get>
std::optional<uint32_t> index_of(const T (&names)[N], std::string_view text, Get get) {
  for (uint32_t i = 0; i < N; i++)
    if (get(names[i]) == text) return i;
  return std::nullopt;
}

Fault parse(std::string_view entry) {
  const auto parts = split(entry, ':');
  if (parts.size() < 3 || parts.size() > 4) wrong(entry, "it has " + std::to_string(parts.size()) + " parts");
  Fault fault;
  const auto function = index_of(kNames, parts[0], [](const Name& n) { return n.text; });
  if (!function) wrong(entry, "there is no function '" + std::string(parts[0]) + "'");
  fault.function = *function;
  fault.each = parts[1].starts_with('%');
  fault.call = number(entry, parts[1].substr(fault.each ? 1 : 0));
  const std::string_view action = parts[2], argument = parts.size() == 4 ? parts[3] : std::string_view();
  if (action == "fail") {
    if (!kNames[fault.function].fails) wrong(entry, "the function returns no status, so it cannot fail");
    fault.action = Action::kFail;
    if (!argument.empty()) {
      const auto code = index_of(kCodes, argument, [](std::string_view c) { return c; });
      if (!code || *code == 0) wrong(entry, "there is no code '" + std::string(argument) + "'");
      fault.code = static_cast<lazyt_code_t>(*code);
    }
  } else if (action == "delay") {
    fault.action = Action::kDelay;
    fault.milliseconds = number(entry, argument);
  } else if ((action == "hang" || action == "crash") && argument.empty()) {
    fault.action = action == "hang" ? Action::kHang : Action::kCrash;
  } else {
    wrong(entry, "there is no action '" + std::string(action) + "'");
  }
  return fault;
}

}  // namespace

lazyt_status_t* configure() {
  return guard([] {
    faults.clear();  // the counts go on: the second call of entry is in the second load
    const std::string_view text = lazyt::plugin::option("fault", "at");
    if (text.empty()) return;
    for (std::string_view entry : split(text, ',')) faults.push_back(parse(entry));
  });
}

lazyt_status_t* strike(Function function) {
  const uint64_t call = calls[function].fetch_add(1) + 1;
  const std::string name(kNames[function].text);
  host().services->count(lazyt::plugin::to_c("fault." + name), 1);
  for (const Fault& fault : faults) {
    if (fault.function != function || (fault.each ? call % fault.call != 0 : call != fault.call)) continue;
    switch (fault.action) {
      case Action::kFail:
        return lazyt::plugin::make_status(
            fault.code, "injected: call " + std::to_string(call) + " of " + name + " fails");
      case Action::kDelay:
        std::this_thread::sleep_for(std::chrono::milliseconds(fault.milliseconds));
        break;
      case Action::kHang:
        while (true) pause();
      case Action::kCrash:
        std::raise(SIGSEGV);
    }
  }
  return nullptr;
}

}  // namespace fault
