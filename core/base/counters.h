// Counters and timers by name: what `lazyt.metrics` shows. Cheap to bump, never reset but on request.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazyt::base {

// A counter lives for the process; look it up once and keep the pointer on hot paths.
class Counter {
 public:
  void add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  // Cheaper; REQUIRES that a lock keeps all who add apart.
  void add_locked(int64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }
  void reset() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

Counter& counter(std::string_view name);  // [any thread]
// Names with a value other than 0, sorted.
std::vector<std::pair<std::string, int64_t>> counters();

// Samples of a duration: count, total and the last samples for percentiles.
struct MetricData {
  int64_t count = 0;
  double total_seconds = 0;
  std::vector<double> samples;  // seconds; at most the last 1024, oldest first
};
void record_time(std::string_view name, double seconds);  // [any thread]
MetricData metric(std::string_view name);
std::vector<std::string> metric_names();

void reset_counters();  // all counters to 0, all metrics emptied

}  // namespace lazyt::base
