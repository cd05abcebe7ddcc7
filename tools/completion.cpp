// lazyt completion: a script that completes verbs, options and names of backends.
#include <memory>
#include <string>

#include <fmt/format.h>

#include "verbs.h"

namespace lazyt::tools {
namespace {

// The options of a verb, ' ' between.
std::string options(const CLI::App& verb) {
  std::string out;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) out += (out.empty() ? "--" : " --") + name;
  return out;
}

std::string verbs(const CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : app.get_subcommands({})) out += (out.empty() ? "" : " ") + verb->get_name();
  return out;
}

// Bash; zsh reads it behind `bashcompinit`.
std::string bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* verb : app.get_subcommands({}))
    cases += fmt::format("    {}) words=\"{}\" ;;\n", verb->get_name(), options(*verb));
  return fmt::format(R"sh(_lazyt() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case ${{COMP_WORDS[1]}} in
    doctor | info | conformance) [[ $word == -* ]] || words="$words $(lazyt list --names 2>/dev/null)" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _lazyt lazyt
)sh",
                     verbs(app), cases);
}

std::string fish(const CLI::App& app) {
  std::string out = "complete -c lazyt -f -n __fish_use_subcommand -a '" + verbs(app) + "'\n";
  for (const CLI::App* verb : app.get_subcommands({}))
    for (const CLI::Option* option : verb->get_options())
      for (const std::string& name : option->get_lnames())
        out += fmt::format("complete -c lazyt -n '__fish_seen_subcommand_from {}' -l {}\n", verb->get_name(), name);
  return out + "complete -c lazyt -f -n '__fish_seen_subcommand_from doctor info conformance' -a '(lazyt list --names 2>/dev/null)'\n";
}

}  // namespace

void add_completion(CLI::App& app, int&) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("completion", "Print a script that completes this command in a shell");
  verb->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember(std::vector<std::string>{"bash", "fish", "zsh"}));
  verb->footer("Example: eval \"$(lazyt completion bash)\"");
  verb->callback([shell, &app] {
    if (*shell == "zsh") fmt::print("autoload -U +X bashcompinit && bashcompinit\n");
    fmt::print("{}", *shell == "fish" ? fish(app) : bash(app));
  });
}

}  // namespace lazyt::tools
