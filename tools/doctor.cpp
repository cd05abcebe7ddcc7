// lazyt doctor: tries backends and says of each how far it came, why no further, and what to do.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/env.h"
#include "helper.h"
#include "loader/loader.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

struct Arguments {
  std::string backend;
  bool json = false;
  double limit_seconds = 20;
};

int run(const Arguments& args) {
  const bool by_path = args.backend.find('/') != std::string::npos;
  loader::Report report;
  report.requested = args.backend.empty() ? base::env("LAZYT_BACKEND").value_or("") : args.backend;
  if (by_path) {
    report.candidates.push_back(loader::candidate(args.backend));
  } else {
    report.candidates = loader::list().candidates;
    if (!args.backend.empty())
      std::erase_if(report.candidates, [&](const loader::Candidate& c) { return c.name != args.backend; });
  }

  bool works = false;
  for (loader::Candidate& c : report.candidates) {
    probe_in_helper(c, args.limit_seconds);
    works |= c.reason == loader::Reason::kLoaded;
  }
  if (args.json) {
    fmt::print("{}", report.to_json());
  } else if (!args.backend.empty() && report.candidates.empty()) {
    fmt::print("there is no backend '{}'; `lazyt list` shows those that can be found\n", args.backend);
  } else {
    fmt::print("{}", report.to_text());
  }
  return works ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_status) {
  auto args = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("doctor", "Try backends and say how far each comes, why no further, what to do");
  verb->add_option("backend", args->backend, "Name or path; all that can be found if left out");
  verb->add_flag("--json", args->json, "The report as JSON; reason codes are stable");
  verb->add_option("--timeout", args->limit_seconds, "Seconds that one backend may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->footer(
      "Each backend is tried in a process of its own, so that one which crashes or hangs is reported like any other.\n"
      "Exit status: 0 if a backend works, 1 if none does.");
  verb->callback([args, &exit_status] { exit_status = run(*args); });
}

}  // namespace lazyt::tools
