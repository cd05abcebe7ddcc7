// lazyt-conformance: tells of a plugin which numbered rules of the headers it breaks.
#include <limits.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/sha256.h"

#include "loader/loader.h"
#include "ops.h"
#include "runner.h"
#include "suite.h"

namespace lazyt::conformance {

int load_only(const char* library, int answer);
int unload(const char* library, int rounds);

namespace {

std::string this_program() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "lazyt-conformance";
}

// The library of a path (library or manifest) or a backend's name.
std::string find_library(const std::string& plugin) {
  if (plugin.find('/') != std::string::npos || std::filesystem::exists(plugin)) {
    std::string path = std::filesystem::absolute(plugin).lexically_normal();
    if (!path.ends_with(".json")) return path;
    return loader::candidate(path).path;
  }
  for (const loader::Candidate& c : loader::list().candidates)
    if (c.name == plugin && (c.reason == loader::Reason::kFound || c.reason == loader::Reason::kNotConformant ||
                             c.reason == loader::Reason::kQuarantined))
      return c.path;
  return "";
}

std::vector<Expectation> read_expected(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  const auto all = nlohmann::json::parse(file, nullptr, true, /*ignore_comments=*/true);
  std::vector<Expectation> out;
  for (const auto& c : all.at("cases")) {
    out.push_back({c.at("case"), c.at("result"), c.at("reason")});
    const std::string& r = out.back().result;
    if (r != "pass" && r != "fail" && r != "crash" && r != "timeout")
      throw std::runtime_error(path + ": no such result: " + r);
  }
  return out;
}

// Writes into the manifest beside the library that it kept the rules. False, with the reason told, if it cannot.
bool write_verdict(const std::string& library, bool full, const std::vector<Result>& results) {
  auto fail = [](const std::string& why) {
    fmt::print(stderr, "no verdict: {}\n", why);
    return false;
  };
  int64_t passed = 0, unsupported = 0;
  for (const Result& r : results) {
    if (!r.good() || (r.outcome != Outcome::kPass && r.outcome != Outcome::kUnsupported))
      return fail(r.name + " did not pass; expected failures have no verdict");
    (r.outcome == Outcome::kPass ? passed : unsupported)++;
  }
  const std::string path = std::filesystem::path(library).replace_extension(".json");
  std::ifstream in(path);
  auto manifest = nlohmann::ordered_json::parse(in, nullptr, false);
  if (!manifest.is_object()) return fail(path + " is not a manifest");
  auto hash = base::sha256_of_file(library);
  if (!hash.ok()) return fail(hash.status().to_string());
  manifest["conformance"] = {{"profile", full ? "full" : "core"}, {"suite", LAZYT_VERSION}, {"library", hash.value()},
                             {"passed", passed}, {"unsupported", unsupported}};
  std::ofstream out(path);
  out << manifest.dump(2) << "\n";
  if (!out.flush()) return fail("cannot write " + path);
  fmt::print("{} has the verdict '{}' now\n", path, full ? "full" : "core");
  return true;
}

std::string quoted(const std::string& s) {
  return s.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-=") == s.npos
             ? s
             : "'" + s + "'";
}

// How far the run is, on standard error: one line that is written over on a terminal, else a line every ten seconds.
class Progress {
 public:
  explicit Progress(size_t all) : all_(all) {}
  ~Progress() {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }

  void operator()(const Result& r, size_t settled) {
    bad_.erase(r.name);
    if (!r.good()) bad_.insert(r.name);
    const auto now = std::chrono::steady_clock::now();
    if (now - told_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10))) return;
    told_ = now;
    fmt::print(stderr, "{}{} of {} cases, {} not as wanted{}", terminal_ ? "\r\033[K" : "", settled, all_, bad_.size(),
               terminal_ ? "" : "\n");
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO);
  const size_t all_;
  std::set<std::string> bad_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

// A line for each thing that was declined, however many cases wanted it.
void tell_unsupported(const std::vector<Result>& results) {
  std::map<std::string, std::vector<std::string>> cases;
  for (const Result& r : results)
    if (r.good() && !r.expected && r.outcome == Outcome::kUnsupported) cases[r.detail].push_back(r.name);
  for (const auto& [detail, names] : cases)
    fmt::print("unsupported {}{}: {}\n", names[0], names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "",
               detail);
}

int report(const std::vector<Result>& results, const std::string& repeat, bool verbose) {
  size_t counts[6] = {}, expected = 0, unexpected = 0, bad = 0;
  for (const Result& r : results) {
    if (r.expected)
      expected++;
    else
      counts[static_cast<int>(r.outcome)]++;
    unexpected += r.unexpected;
    bad += !r.good();
    if (r.good()) {
      const bool passed = r.outcome == Outcome::kPass;
      if (r.outcome == Outcome::kNotRun && interrupted()) continue;
      if (r.outcome == Outcome::kUnsupported && !r.expected && !verbose) continue;
      if (verbose || (!passed && !r.expected))
        fmt::print("{:<11} {}{}\n", r.expected ? "expected" : outcome_name(r.outcome), r.name,
                   r.expected ? ": " + r.reason
                   : passed   ? ""
                              : ": " + r.detail);
      continue;
    }
    fmt::print("{}{} {}\n", r.unexpected ? "UNEXPECTED " : "",
               r.outcome == Outcome::kPass ? "pass" : outcome_name(r.outcome), r.name);
    if (r.unexpected) fmt::print("  the expectations say otherwise: {}\n", r.reason);
    if (r.outcome != Outcome::kPass) {
      std::string rules;
      for (const std::string& rule : r.rules) rules += " " + rule;
      if (r.outcome != Outcome::kFail) fmt::print("  rules:{}\n", rules);
      fmt::print("  {}\n", r.detail);
      fmt::print("  repeat: {} --filter {}\n", repeat, quoted(r.name));
    }
  }
  if (!verbose) tell_unsupported(results);
  fmt::print(
      "{} cases: {} pass, {} fail, {} crash, {} timeout, {} unsupported, {} expected failures, {} "
      "unexpected{}\n",
      results.size(), counts[0], counts[1], counts[2], counts[3], counts[4], expected, unexpected,
      counts[5] ? fmt::format(", {} not run", counts[5]) : "");
  return bad ? 1 : 0;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Tells of a plugin which numbered rules of the headers it breaks. Exit status: 0 it keeps them, 1 it "
      "breaks some, 2 it could not be tested, 128 and a signal's number: interrupted, after telling of what has run."};
  std::string plugin, profile = "quick", filter = "*", json_file, junit_file, expected_file, not_run, cases;
  Options& o = options();
  o.artifacts = "conformance-failures";
  RunOptions run_options;
  bool list = false, list_rules = false, verbose = false, verdict = false;
  int report_fd = -1;
  app.add_option("plugin", plugin, "A backend's name, a library or a manifest");
  app.add_option("--profile", profile, "quick or full")->check(CLI::IsMember({"quick", "full"}));
  app.add_option("--filter", filter, "Cases to run: globs, ':' between them");
  app.add_option("--seed", o.seed, "For cases that draw sizes and bytes");
  app.add_option("--json", json_file, "Write the results there");
  app.add_option("--junit", junit_file, "Write the results there, as JUnit's XML");
  app.add_option("--expected", expected_file,
                 "Known failures; default: <name>.expected.json beside lazyt_<name>.so");
  app.add_option("--not-run", not_run, "The plugin runs on stand-ins: what passes is reported as not run, for this reason");
  app.add_option("--jobs", run_options.jobs, "Processes at a time")->check(CLI::Range(1, 256));
  app.add_option("--timeout", run_options.case_seconds, "Seconds a case may take");
  app.add_option("--artifacts", o.artifacts, "Folder for the programs of failing cases");
  app.add_flag("--verdict", verdict, "Write into the manifest that all cases passed (see LAZYT_REQUIRE_CONFORMANCE)");
  app.add_flag("--list", list, "List the cases and their rules");
  app.add_flag("--list-rules", list_rules, "List the rules that cases cite");
  app.add_flag("--verbose", verbose, "Name what passes, too, and each case that was declined");
  app.add_option("--cases", cases)->group("");
  app.add_option("--report-fd", report_fd)->group("");
  CLI11_PARSE(app, argc, argv);

  o.full = profile == "full";
  o.plugin = plugin;
  register_op_cases();
  if (report_fd >= 0) {
    ::testing::GTEST_FLAG(filter) = cases;
    return run_child(report_fd);
  }

  std::vector<std::pair<std::string, std::vector<std::string>>> selected;
  for (const CaseInfo& c : all_cases()) {
    bool wanted = false;
    for (size_t at = 0; at <= filter.size();) {
      const size_t end = std::min(filter.find(':', at), filter.size());
      wanted |= fits(filter.substr(at, end - at), c.name);
      at = end + 1;
    }
    if (wanted) selected.emplace_back(c.name, c.rules);
  }
  if (list || list_rules) {
    for (const auto& [name, rules] : selected) {
      std::string text;
      for (const std::string& r : rules) list_rules ? fmt::print("{}\n", r) : void(text += " " + r);
      if (!list_rules) fmt::print("{}{}\n", name, text);
    }
    return 0;
  }
  if (plugin.empty()) {
    fmt::print(stderr, "name a plugin: a backend, a library or a manifest\n");
    return 2;
  }
  const std::string library = find_library(plugin);
  if (library.empty() || !std::filesystem::exists(library)) {
    fmt::print(stderr, "there is no plugin '{}'\n", plugin);
    return 2;
  }
  if (selected.empty()) {
    fmt::print(stderr, "no case fits '{}'\n", filter);
    return 2;
  }
  // Not lazyt_<name>...json: that would be a manifest.
  std::string backend = std::filesystem::path(library).stem();
  if (backend.starts_with("lazyt_")) backend.erase(0, 6);
  const std::string beside = std::filesystem::path(library).replace_filename(backend + ".expected.json");
  if (expected_file.empty() && std::filesystem::exists(beside)) expected_file = beside;
  try {
    if (!expected_file.empty()) run_options.expected = read_expected(expected_file);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  run_options.child = {this_program(), library, "--profile=" + profile, fmt::format("--seed={}", o.seed),
                       "--artifacts=" + o.artifacts};
  if (o.full) run_options.case_seconds *= 3;
  std::vector<Result> results;
  {
    Progress progress(selected.size());
    run_options.on_result = [&](const Result& r, size_t settled) { progress(r, settled); };
    results = run_cases(selected, run_options);
  }
  if (!not_run.empty())
    for (Result& r : results)
      if (r.good() && r.outcome == Outcome::kPass) r.outcome = Outcome::kNotRun, r.detail = not_run;
  const std::string repeat = fmt::format("lazyt conformance {}{} --seed {}", quoted(library),
                                         o.full ? " --profile full" : "", o.seed);
  if (!json_file.empty()) std::ofstream(json_file) << to_json(results, library, o.seed);
  if (!junit_file.empty()) std::ofstream(junit_file) << to_junit(results, library);
  const int status = report(results, repeat, verbose);
  if (const int number = interrupted()) {
    fmt::print(stderr, "interrupted by {}: what is 'not run' has no result\n", strsignal(number));
    return 128 + number;
  }
  if (verdict && filter != "*") fmt::print(stderr, "no verdict: --filter left cases out\n");
  if (verdict && (filter != "*" || !write_verdict(library, o.full, results))) return status ? status : 1;
  return status;
}

}  // namespace
}  // namespace lazyt::conformance

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--load-only")
    return lazyt::conformance::load_only(argv[2], std::stoi(argv[3]));
  if (argc == 4 && std::string_view(argv[1]) == "--unload")
    return lazyt::conformance::unload(argv[2], std::stoi(argv[3]));
  int none = 1;
  char* only[] = {argv[0], nullptr};
  ::testing::InitGoogleTest(&none, only);
  return lazyt::conformance::run(argc, argv);
}
