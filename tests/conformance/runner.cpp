#include "runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lazyt::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// --- child ----------------------------------------------------------------------------------

class Reporter : public ::testing::EmptyTestEventListener {
 public:
  explicit Reporter(int descriptor) : descriptor_(descriptor) {}

 private:
  void OnTestStart(const ::testing::TestInfo& info) override { send({{"start", full_name(info)}}); }

  void OnTestEnd(const ::testing::TestInfo& info) override {
    const ::testing::TestResult& r = *info.result();
    std::string detail;
    for (int i = 0; i < r.total_part_count(); i++) {
      const ::testing::TestPartResult& part = r.GetTestPartResult(i);
      if (r.Failed() ? !part.failed() : !part.skipped()) continue;
      std::string text = part.message();
      while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
      const std::string failed = "Failed\n";
      if (text.rfind(failed, 0) == 0) text = text.substr(failed.size());
      if (text.rfind("Skipped", 0) == 0) text = text.substr(text.size() > 8 ? 8 : text.size());
      detail += (detail.empty() ? "" : "\n") + text;
    }
    send({{"end", full_name(info)},
          {"result", r.Failed()    ? "fail"
                     : r.Skipped() ? "unsupported"
                                   : "pass"},
          {"detail", detail},
          {"seconds", static_cast<double>(r.elapsed_time()) / 1000}});
  }

  static std::string full_name(const ::testing::TestInfo& info) {
    return fmt::format("{}.{}", info.test_suite_name(), info.name());
  }

  void send(const json& message) {
    const std::string line = message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    for (size_t at = 0; at < line.size();) {
      const ssize_t n = write(descriptor_, line.data() + at, line.size() - at);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  }

  int descriptor_;
};

// --- parent ---------------------------------------------------------------------------------

struct Child {
  pid_t pid = -1;
  int reports = -1, output = -1;
  std::vector<std::string> cases;  // that have no result yet
  std::string current, last;       // that runs; that ran before
  std::string reported, printed;
  bool alone = false;
  Clock::time_point started;  // of the case that runs, or of the process

  ~Child() {
    if (reports >= 0) close(reports);
    if (output >= 0) close(output);
  }
};

std::unique_ptr<Child> start(const RunOptions& options, std::vector<std::string> cases, bool alone) {
  auto child = std::make_unique<Child>();
  int reports[2], output[2];
  if (pipe2(reports, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) return nullptr;
  std::string filter;
  for (const std::string& c : cases) filter += (filter.empty() ? "" : ":") + c;
  std::vector<std::string> command = options.child;
  command.push_back("--cases=" + filter);
  command.push_back(fmt::format("--report-fd={}", 200));
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  child->pid = fork();
  if (child->pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // not in the group that a terminal's signals reach
    dup2(reports[1], 200);
    dup2(output[1], 1);
    dup2(output[1], 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(reports[1]);
  close(output[1]);
  child->reports = reports[0];
  child->output = output[0];
  fcntl(child->reports, F_SETFL, O_NONBLOCK);
  fcntl(child->output, F_SETFL, O_NONBLOCK);
  child->cases = std::move(cases);
  child->alone = alone;
  child->started = Clock::now();
  return child;
}

// False at the end of the stream.
bool read_all(int descriptor, std::string& into) {
  char buffer[4096];
  while (true) {
    const ssize_t n = read(descriptor, buffer, sizeof buffer);
    if (n > 0) {
      into.append(buffer, static_cast<size_t>(n));
      continue;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
  }
}

std::string tail(const std::string& text, size_t lines) {
  size_t at = text.size();
  while (at > 0 && lines > 0)
    if (text[--at] == '\n' && at + 1 < text.size()) lines--;
  return text.substr(at ? at + 1 : 0);
}

volatile std::sig_atomic_t signal_came = 0;

// While it lives, the first of a signal that asks to end is noted; the second has its usual effect.
class NotedSignals {
 public:
  NotedSignals() {
    struct sigaction noted{};
    noted.sa_handler = [](int number) { signal_came = number; };
    noted.sa_flags = static_cast<int>(SA_RESETHAND);
    for (size_t i = 0; i < std::size(kSignals); i++) sigaction(kSignals[i], &noted, &before_[i]);
  }
  ~NotedSignals() {
    for (size_t i = 0; i < std::size(kSignals); i++) sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[std::size(kSignals)];
};

class Run {
 public:
  Run(const RunOptions& options, std::map<std::string, Result>& results)
      : options_(options), results_(results) {}

  void go(std::deque<std::vector<std::string>> batches) {
    const NotedSignals noted;
    batches_ = std::move(batches);
    while (!interrupted() && (!batches_.empty() || !alone_.empty() || !children_.empty())) {
      while (children_.size() < static_cast<size_t>(options_.jobs) &&
             (!batches_.empty() || !alone_.empty())) {
        const bool alone = batches_.empty();
        std::vector<std::string> cases;
        if (alone) {
          cases = {alone_.front()};
          alone_.pop_front();
        } else {
          cases = std::move(batches_.front());
          batches_.pop_front();
        }
        if (auto child = start(options_, std::move(cases), alone)) children_.push_back(std::move(child));
      }
      std::vector<pollfd> polls;
      for (const auto& c : children_) polls.push_back({c->reports, POLLIN, 0});
      poll(polls.data(), polls.size(), 100);
      for (size_t i = 0; i < children_.size();) {
        if (attend(*children_[i]))
          i++;
        else
          children_.erase(children_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    for (const auto& c : children_) {  // interrupted
      kill(-c->pid, SIGKILL);
      waitpid(c->pid, nullptr, 0);
    }
  }

 private:
  // False when the child is done with.
  bool attend(Child& c) {
    const bool open = read_all(c.reports, c.reported);
    read_all(c.output, c.printed);
    for (size_t end; (end = c.reported.find('\n')) != std::string::npos; c.reported.erase(0, end + 1))
      take(c, json::parse(c.reported.substr(0, end), nullptr, false));
    if (open && since(c.started) < options_.case_seconds) return true;
    const bool late = open;
    if (late) kill(-c.pid, SIGKILL);
    int status = 0;
    // All reported, but the process will not end: the last case owns that.
    for (int i = 0; !late && i < static_cast<int>(options_.case_seconds * 100); i++) {
      if (waitpid(c.pid, &status, WNOHANG) == c.pid) return ended(c, status, false);
      read_all(c.output, c.printed);
      usleep(10000);
    }
    kill(-c.pid, SIGKILL);
    waitpid(c.pid, &status, 0);
    return ended(c, status, true);
  }

  bool ended(Child& c, int status, bool late) {
    read_all(c.output, c.printed);
    const bool clean = !late && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (clean && c.cases.empty()) return false;
    std::string how = late                  ? fmt::format("no answer within {:.0f} s", options_.case_seconds)
                      : WIFSIGNALED(status) ? fmt::format("ended by {}", strsignal(WTERMSIG(status)))
                                            : fmt::format("ended with exit status {}", WEXITSTATUS(status));
    if (!c.printed.empty()) how += "\n  printed: " + tail(c.printed, 30);
    std::string guilty = !c.current.empty() ? c.current : c.cases.empty() ? c.last : c.cases.front();
    if (c.cases.empty()) how += "\n  after its last case, while the process ended";
    std::erase(c.cases, guilty);
    settle(c, results_[guilty], late ? Outcome::kTimeout : Outcome::kCrash, how);
    if (!c.cases.empty()) batches_.push_back(c.cases);
    return false;
  }

  void take(Child& c, const json& message) {
    if (!message.is_object()) return;
    c.started = Clock::now();
    if (message.contains("start")) c.current = message["start"];
    if (!message.contains("end")) return;
    c.last = message["end"];
    c.current.clear();
    std::erase(c.cases, c.last);
    Result& r = results_[c.last];
    r.seconds = message["seconds"];
    const std::string result = message["result"];
    settle(c, r,
           result == "pass"   ? Outcome::kPass
           : result == "fail" ? Outcome::kFail
                              : Outcome::kUnsupported,
           message["detail"]);
  }

  // What fails is run again alone, unless it is expected to.
  void settle(const Child& c, Result& r, Outcome outcome, const std::string& detail) {
    const bool bad = outcome != Outcome::kPass && outcome != Outcome::kUnsupported;
    if (c.alone && !bad) {
      r.detail += "\n  note: run alone it passes; it depends on what ran before";
      return;
    }
    settled_ += r.outcome == Outcome::kNotRun;
    r.outcome = outcome;
    r.detail = detail;
    const Expectation* e = expectation(r.name);
    r.expected = bad && e && e->result == outcome_name(outcome);
    r.unexpected = e && e->result != outcome_name(outcome) && outcome != Outcome::kUnsupported;
    r.reason = e ? e->reason : "";
    if (bad && !c.alone && !r.expected) alone_.push_back(r.name);
    if (options_.on_result) options_.on_result(r, settled_);
  }

  const Expectation* expectation(const std::string& name) const {
    for (const Expectation& e : options_.expected)
      if (fits(e.pattern, name)) return &e;
    return nullptr;
  }

  const RunOptions& options_;
  std::map<std::string, Result>& results_;
  std::deque<std::vector<std::string>> batches_;
  std::deque<std::string> alone_;
  std::vector<std::unique_ptr<Child>> children_;
  size_t settled_ = 0;
};

}  // namespace

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "fail";
    case Outcome::kCrash:
      return "crash";
    case Outcome::kTimeout:
      return "timeout";
    case Outcome::kUnsupported:
      return "unsupported";
    case Outcome::kNotRun:
      return "not run";
  }
  return "?";
}

int interrupted() { return signal_came; }

bool fits(const std::string& pattern, const std::string& name) {
  size_t p = 0, n = 0, star = std::string::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      p++, n++;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') p++;
  return p == pattern.size();
}

std::vector<Result> run_cases(const std::vector<std::pair<std::string, std::vector<std::string>>>& cases,
                              const RunOptions& options) {
  std::map<std::string, Result> results;
  std::deque<std::vector<std::string>> batches;
  for (const auto& [name, rules] : cases) {
    results[name].name = name;
    results[name].rules = rules;
    results[name].detail = "interrupted";
    if (batches.empty() || batches.back().size() >= options.batch) batches.emplace_back();
    batches.back().push_back(name);
  }
  Run(options, results).go(std::move(batches));
  std::vector<Result> out;
  for (auto& [name, result] : results) out.push_back(std::move(result));
  return out;
}

int run_child(int descriptor) {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Reporter(descriptor));
  (void)RUN_ALL_TESTS();
  return 0;  // what failed was reported; another status means that the process itself went wrong
}

std::string to_json(const std::vector<Result>& results, const std::string& plugin, uint64_t seed) {
  json out = {{"lazyt_conformance", 1}, {"plugin", plugin}, {"seed", seed}, {"cases", json::array()}};
  for (const Result& r : results) {
    json c = {{"case", r.name},
              {"rules", r.rules},
              {"result", outcome_name(r.outcome)},
              {"seconds", r.seconds},
              {"good", r.good()}};
    if (!r.detail.empty()) c["detail"] = r.detail;
    if (r.expected) c["expected"] = r.reason;
    if (r.unexpected) c["unexpected"] = r.reason;
    out["cases"].push_back(std::move(c));
  }
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string to_junit(const std::vector<Result>& results, const std::string& plugin) {
  auto escape = [](const std::string& s) {
    std::string out;
    for (char c : s) {
      if (c == '<')
        out += "&lt;";
      else if (c == '>')
        out += "&gt;";
      else if (c == '&')
        out += "&amp;";
      else if (c == '"')
        out += "&quot;";
      else if (static_cast<unsigned char>(c) >= 32 || c == '\n')
        out += c;
    }
    return out;
  };
  size_t bad = 0, skipped = 0;
  for (const Result& r : results) {
    bad += !r.good();
    skipped += r.good() && r.outcome != Outcome::kPass;
  }
  std::string out = fmt::format(
      "<?xml version=\"1.0\"?>\n<testsuites>\n<testsuite name=\"conformance\" package=\"{}\" "
      "tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
      escape(plugin), results.size(), bad, skipped);
  for (const Result& r : results) {
    const size_t dot = r.name.find('.');
    out += fmt::format("<testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                       escape(r.name.substr(0, dot)), escape(r.name.substr(dot + 1)), r.seconds);
    if (!r.good())
      out += fmt::format("><failure message=\"{}\">{}</failure></testcase>\n",
                         r.unexpected ? "unexpected " : "" + std::string(outcome_name(r.outcome)),
                         escape(r.detail));
    else if (r.outcome != Outcome::kPass)
      out += fmt::format("><skipped message=\"{}\"/></testcase>\n",
                         escape(r.expected ? "expected: " + r.reason : r.detail));
    else
      out += "/>\n";
  }
  return out + "</testsuite>\n</testsuites>\n";
}

}  // namespace lazyt::conformance
