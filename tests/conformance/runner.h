// Runs cases in child processes, so that a crash or a hang of the plugin is a result like others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lazyt::conformance {

enum class Outcome { kPass, kFail, kCrash, kTimeout, kUnsupported, kNotRun };
const char* outcome_name(Outcome outcome);

struct Result {
  std::string name;
  std::vector<std::string> rules;  // that the case can find broken
  Outcome outcome = Outcome::kNotRun;
  std::string detail;  // of a failure: findings; of unsupported and not run: the reason
  double seconds = 0;
  bool expected = false;    // the expectations name it and its outcome
  std::string reason;       // theirs
  bool unexpected = false;  // they name another outcome than came
  bool good() const {
    return !unexpected && (expected || outcome == Outcome::kPass || outcome == Outcome::kUnsupported || outcome == Outcome::kNotRun);
  }
};

// What a plugin is known to break: {"lazyt_expected": 1, "cases": [{"case": "Ops.*", "result": "fail",
// "reason": "..."}]}. The first entry that fits a case counts.
struct Expectation {
  std::string pattern, result, reason;
};

struct RunOptions {
  std::vector<std::string> child;  // command line of a child; the cases are appended as a filter
  std::vector<Expectation> expected;
  int jobs = 1;
  size_t batch = 24;
  double case_seconds = 20;
  std::function<void(const Result&, size_t settled)> on_result;  // as it comes; again if a second run changed it
};

// In the order of names. SIGINT and SIGTERM end the run, a second one the process: what had no result yet is kNotRun.
std::vector<Result> run_cases(const std::vector<std::pair<std::string, std::vector<std::string>>>& cases,
                              const RunOptions& options);

int interrupted();  // by which signal; 0: by none

bool fits(const std::string& pattern, const std::string& name);  // '*' and '?'

// What a child does: runs its gtest filter and reports case by case on the file descriptor.
int run_child(int descriptor);

std::string to_json(const std::vector<Result>& results, const std::string& plugin, uint64_t seed);
std::string to_junit(const std::vector<Result>& results, const std::string& plugin);

}  // namespace lazyt::conformance
