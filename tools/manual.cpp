// lazyt manual: the manual page, made of what --help says. The build installs it as lazyt(1).
#include <string>

#include <fmt/format.h>

#include "base/env.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

// Text as roff reads it: no line is taken for a request, a backslash or a minus is itself.
std::string text(const std::string& plain) {
  std::string out;
  for (size_t i = 0; i < plain.size(); i++) {
    const char c = plain[i];
    const bool begins = i == 0 || plain[i - 1] == '\n';
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
  }
  return out;
}

// Lines as they are.
std::string lines(const std::string& plain) { return plain.empty() ? "" : fmt::format(".nf\n{}\n.fi\n", text(plain)); }

std::string entry(const std::string& term, const std::string& meaning) {
  return fmt::format(".TP\n.B {}\n{}\n", text(term), text(meaning.empty() ? "(see above)" : meaning));
}

std::string options(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    const std::string positional = option->get_name(true), named = option->get_name(false, true);
    out += entry(option->get_positional() ? positional : named, option->get_description());
  }
  return out;
}

std::string manual(const CLI::App& app) {
  const std::string about = app.get_description();
  const size_t dash = about.find(" - "), end = about.find('\n');
  std::string out = fmt::format(".TH LAZYT 1 \"\" \"lazyt {}\" \"User Commands\"\n", LAZYT_VERSION);
  out += fmt::format(".SH NAME\nlazyt \\- {}\n", text(about.substr(dash + 3, end - dash - 3)));
  out += ".SH SYNOPSIS\n.B lazyt\n.I VERB\n[\\fIoptions\\fR]\n";
  out += ".SH DESCRIPTION\n" + text(about.substr(about.find_first_not_of('\n', end))) + "\n.SH VERBS\n";
  for (const CLI::App* verb : app.get_subcommands({})) {
    out += fmt::format(".SS lazyt {}\n{}\n", text(verb->get_name()), text(verb->get_description()));
    out += options(*verb);
    if (!verb->get_footer().empty() && verb->get_footer() != app.get_footer()) out += ".PP\n" + lines(verb->get_footer());
  }
  out += ".SH ENVIRONMENT\n";
  for (const base::EnvOption& option : base::env_options())
    out += entry(option.name, fmt::format("{} ({}{}{})", option.help, option.values, *option.fallback ? "; default: " : "", option.fallback));
  return out + ".SH EXIT STATUS\n" + lines(app.get_footer());
}

}  // namespace

void add_manual(CLI::App& app, int&) {
  CLI::App* verb = app.add_subcommand("manual", "Print the manual page: lazyt manual | man -l -");
  verb->callback([&app] { fmt::print("{}", manual(app)); });
}

}  // namespace lazyt::tools
