// lazyt list: what can be found, without running any of it.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "loader/loader.h"
#include "verbs.h"

namespace lazyt::tools {

void add_list(CLI::App& app, int& exit_status) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("list", "List the backends that can be found; no code of theirs is run");
  verb->add_flag("--json", *json, "The same as JSON");
  auto names = std::make_shared<bool>(false);
  verb->add_flag("--names", *names, "Only the names of those that can be tried, one a line");
  verb->footer(
      "Folders, in order: LAZYT_PLUGIN_PATH; beside the lazyt library; ~/.local/share/lazyt/plugins (or below\n"
      "XDG_DATA_HOME); /usr/local/lib/lazyt/plugins; /usr/lib/lazyt/plugins. Where two have one name, the first counts.");
  verb->callback([json, names, &exit_status] {
    const loader::Report report = loader::list();
    if (*json) {
      fmt::print("{}", report.to_json());
      return;
    }
    if (*names) {
      for (const loader::Candidate& c : report.candidates)
        if (c.reason == loader::Reason::kFound) fmt::print("{}\n", c.name);
      return;
    }
    if (report.candidates.empty()) {
      fmt::print("{}", report.to_text());
      exit_status = 1;
      return;
    }
    size_t width = 4;
    for (const loader::Candidate& c : report.candidates) width = std::max(width, c.name.size());
    for (const loader::Candidate& c : report.candidates) {
      const bool usable = c.reason == loader::Reason::kFound;
      fmt::print("{:{}}  {:>5}  {}\n", c.name, width, c.score, usable ? c.path : loader::reason_name(c.reason));
      if (!usable) fmt::print("{:{}}         {}\n", "", width, c.path);
      if (!c.detail.empty()) fmt::print("{:{}}         {}\n", "", width, c.detail);
    }
  });
}

}  // namespace lazyt::tools
