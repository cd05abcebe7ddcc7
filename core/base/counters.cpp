#include "base/counters.h"

#include <map>
#include <memory>
#include <mutex>

namespace lazyt::base {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters;
  std::map<std::string, MetricData, std::less<>> metrics;
};

Registry& registry() {
  static Registry* r = new Registry;  // never destroyed: counted to the end of the process
  return *r;
}

constexpr size_t kMaxSamples = 1024;

}  // namespace

Counter& counter(std::string_view name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.counters.find(name);
  if (it == r.counters.end()) it = r.counters.emplace(name, std::make_unique<Counter>()).first;
  return *it->second;
}

std::vector<std::pair<std::string, int64_t>> counters() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::vector<std::pair<std::string, int64_t>> out;
  for (const auto& [name, c] : r.counters)
    if (c->value() != 0) out.emplace_back(name, c->value());
  return out;
}

void record_time(std::string_view name, double seconds) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.metrics.find(name);
  if (it == r.metrics.end()) it = r.metrics.emplace(name, MetricData{}).first;
  MetricData& m = it->second;
  m.count++;
  m.total_seconds += seconds;
  if (m.samples.size() == 2 * kMaxSamples) m.samples.erase(m.samples.begin(), m.samples.end() - kMaxSamples);  // not all move at each launch
  m.samples.push_back(seconds);
}

MetricData metric(std::string_view name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.metrics.find(name);
  if (it == r.metrics.end()) return {};
  MetricData m = it->second;
  if (m.samples.size() > kMaxSamples) m.samples.erase(m.samples.begin(), m.samples.end() - kMaxSamples);
  return m;
}

std::vector<std::string> metric_names() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::vector<std::string> out;
  for (const auto& [name, m] : r.metrics)
    if (m.count) out.push_back(name);
  return out;
}

void reset_counters() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  for (auto& [name, c] : r.counters) c->reset();
  r.metrics.clear();
}

}  // namespace lazyt::base
