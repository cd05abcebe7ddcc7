// lazyt: the command. Needs neither Python nor PyTorch.
#include "loader/call.h"
#include "verbs.h"

int main(int argc, char** argv) {
  using namespace lazyt::tools;
  CLI::App app(
      "lazyt - backends of the lazyt device for PyTorch: which there are, whether they work, what they run.\n"
      "\n"
      "A backend is a plugin: a library lazyt_<name>.so with a manifest beside it. Programs choose one with\n"
      "LAZYT_BACKEND (a name, a path, or a list in order of preference).",
      "lazyt");
  app.set_version_flag("--version", "lazyt " LAZYT_VERSION);
  app.require_subcommand(1);
  app.footer(
      "When a backend does not come up, start with `lazyt doctor NAME`.\n"
      "Exit status: 0 it went well, 1 something is wrong and is named, 2 bad arguments.");
  int exit_status = 0;
  add_list(app, exit_status);
  add_doctor(app, exit_status);
  add_info(app, exit_status);
  add_env(app, exit_status);
  add_inspect(app, exit_status);
  add_run(app, exit_status);
  add_replay(app, exit_status);
  add_new_plugin(app, exit_status);
  add_sdk(app, exit_status);
  add_conformance(app, exit_status);
  add_completion(app, exit_status);
  add_manual(app, exit_status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  // A plugin that is unloaded on another thread while the process exits is unloaded under its own destructors.
  lazyt::loader::settle();
  return exit_status;
}
