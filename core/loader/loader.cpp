#include "loader/loader.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/env.h"
#include "base/log.h"
#include "loader/library.h"
#include "loader/search.h"

namespace lazyt::loader {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = std::min(list.find(',', begin), list.size());
    std::string item = list.substr(begin, end - begin);
    item.erase(0, item.find_first_not_of(" \t"));
    item.erase(item.find_last_not_of(" \t") + 1);
    if (!item.empty()) out.push_back(std::move(item));
    begin = end + 1;
  }
  return out;
}

// Null when the candidate cannot run anything; the candidate says why.
base::Ref<Plugin> open_with_device(Candidate& c) {
  base::Ref<Plugin> plugin = open_library(c);
  if (plugin && count_devices(*plugin, c) == 0) plugin = nullptr;
  return plugin;
}

std::string names(const std::vector<Candidate>& candidates) {
  std::string out;
  for (const Candidate& c : candidates)
    if (!c.name.empty() && c.reason != Reason::kDuplicateName) out += (out.empty() ? "" : ", ") + c.name;
  return out.empty() ? "none" : out;
}

base::Ref<Plugin> load_item(const std::string& item, const std::string& asked_by, bool from_environment, Report& report) {
  if (item.find('/') != std::string::npos) {
    Candidate c = candidate_at(item, asked_by, from_environment);
    base::Ref<Plugin> plugin = c.reason == Reason::kFound ? open_with_device(c) : nullptr;
    report.candidates.insert(report.candidates.begin(), std::move(c));
    return plugin;
  }
  for (Candidate& c : report.candidates)
    if (c.name == item && c.reason == Reason::kFound) return open_with_device(c);
  return nullptr;
}

base::Ref<Plugin> load_best(Report& report) {
  std::vector<Candidate>& all = report.candidates;
  std::vector<base::Ref<Plugin>> opened(all.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); i++) {
    if (all[i].reason != Reason::kFound) continue;
    // Without a manifest only the library itself knows its score.
    if (all[i].step == "file") {
      opened[i] = open_library(all[i]);
      if (!opened[i]) continue;
    }
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a].score > all[b].score; });
  base::Ref<Plugin> best;
  for (size_t i : order) {
    if (best || all[i].score < 0) {
      all[i].reason = Reason::kFound;
      continue;
    }
    if (!opened[i]) opened[i] = open_library(all[i]);
    if (opened[i] && count_devices(*opened[i], all[i]) > 0) best = opened[i];
  }
  return best;
}

}  // namespace

Report list() {
  Report report;
  report.candidates = search();
  return report;
}

base::Result<base::Ref<Plugin>> load(const std::string& requested, Report* report_out, const char* variable) {
  LAZYT_RETURN_IF_ERROR(layers::check_environment());
  Report local;
  Report& report = report_out ? *report_out : local;
  report = list();
  const bool from_environment = requested.empty() || variable;
  report.requested = requested.empty() ? base::env("LAZYT_BACKEND").value_or("") : requested;
  const char* asked_by = variable ? variable : from_environment ? "LAZYT_BACKEND" : "argument";

  const std::vector<std::string> items = split(report.requested);
  // Another plugin may be found without them, and nobody would notice.
  for (const Candidate& c : report.candidates)
    if (c.name.empty())
      base::log(LAZYT_LOG_WARNING, fmt::format("{}: '{}' is left out: {}", c.found_by, c.path, c.detail));
  if (items.empty()) {
    if (base::Ref<Plugin> best = load_best(report)) return best;
    return base::Status(report.candidates.empty() ? LAZYT_CODE_NOT_FOUND : LAZYT_CODE_UNAVAILABLE,
                        "no backend can run here; install a plugin or name one in LAZYT_BACKEND.\n" + report.to_text());
  }
  for (const std::string& item : items) {
    if (base::Ref<Plugin> plugin = load_item(item, asked_by, from_environment, report)) return plugin;
    base::log(LAZYT_LOG_INFO, fmt::format("backend '{}' cannot be used; see `lazyt doctor`", item));
  }

  lazyt_code_t code = LAZYT_CODE_FAILED_PRECONDITION;
  std::string what;
  if (items.size() > 1) {
    what = fmt::format("none of the backends {} of {} can be used", report.requested, asked_by);
  } else {
    const std::string& item = items[0];
    const bool path = item.find('/') != std::string::npos;
    const Candidate* c = nullptr;
    for (const Candidate& k : report.candidates)
      if (!c && (path ? k.found_by == asked_by : k.name == item)) c = &k;
    if (!c) {
      code = LAZYT_CODE_NOT_FOUND;
      what = fmt::format("there is no backend '{}' ({}); found: {}", item, asked_by, names(report.candidates));
    } else {
      if (c->reason == Reason::kNoDevice) code = LAZYT_CODE_UNAVAILABLE;
      what = fmt::format("backend '{}' ({}) cannot be used: {} at step '{}': {}. {}", item, asked_by,
                         reason_name(c->reason), c->step, c->detail, reason_hint(c->reason));
    }
  }
  return base::Status(code, what + "\n" + report.to_text());
}

base::Result<uint32_t> device_count(const Plugin& plugin) {
  Candidate c;
  const uint32_t count = count_devices(plugin, c);
  if (count == 0) return base::unavailable(fmt::format("backend '{}' has no device: {}", plugin.info.name, c.detail));
  return count;
}

base::Ref<Plugin> probe(Candidate& candidate) { return candidate.reason == Reason::kFound ? open_with_device(candidate) : nullptr; }

Candidate candidate(const std::string& path) { return candidate_at(path, "argument", false); }

}  // namespace lazyt::loader
