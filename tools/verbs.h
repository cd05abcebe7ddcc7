// The verbs of the `lazyt` command: one file each. A verb adds its subcommand; what it does when chosen
// sets the exit status: 0 it went well, 1 it found what it looks for wrong, 2 it could not look.
#pragma once

#include <CLI/CLI.hpp>

namespace lazyt::tools {

void add_list(CLI::App& app, int& exit_status);
void add_doctor(CLI::App& app, int& exit_status);
void add_info(CLI::App& app, int& exit_status);
void add_env(CLI::App& app, int& exit_status);
void add_inspect(CLI::App& app, int& exit_status);
void add_replay(CLI::App& app, int& exit_status);
void add_run(CLI::App& app, int& exit_status);
void add_manual(CLI::App& app, int& exit_status);
void add_completion(CLI::App& app, int& exit_status);
void add_sdk(CLI::App& app, int& exit_status);
void add_new_plugin(CLI::App& app, int& exit_status);
void add_conformance(CLI::App& app, int& exit_status);

}  // namespace lazyt::tools
