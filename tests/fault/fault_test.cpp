// Every function of the ABI x a call of it x what goes wrong there: the outcome is the one that
// sdk_docs/failures.md says, and none is a dead or hung process but that of a crash.
//
// Each cell runs in a process of its own (scenario.h). The second call of each function is tried always, the
// first and the hundredth too with LAZYT_FAULT_CALLS=1,2,100.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "scenario.h"

namespace fault {
namespace {

const char* const kFunctions[] = {
#define FAULT_FUNCTION(table, name, fails) #table "." #name,
#include "functions.h"
#undef FAULT_FUNCTION
};

// By column of the page, what is injected.
const std::map<std::string, std::string> kActions = {{"fail", "fail"},
                                                     {"no memory", "fail:RESOURCE_EXHAUSTED"},
                                                     {"delay", "delay:30"},
                                                     {"hang", "hang"},
                                                     {"crash", "crash"}};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    cell.erase(0, cell.find_first_not_of(" `"));
    cell.erase(cell.find_last_not_of(" `") + 1);
    cells.push_back(cell);
  }
  return cells;
}

// The page's table: function -> column -> outcome.
std::map<std::string, std::map<std::string, std::string>> documented() {
  std::map<std::string, std::map<std::string, std::string>> table;
  std::ifstream page(std::string(std::getenv("LAZYT_SOURCE_ROOT")) + "/sdk_docs/failures.md");
  std::vector<std::string> columns;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| function |")) columns = cells_of(line);
    if (!line.starts_with("| `") || columns.empty()) continue;
    const auto cells = cells_of(line);
    for (size_t i = 1; i < cells.size() && i < columns.size(); i++) table[cells[0]][columns[i]] = cells[i];
  }
  return table;
}

// Where it depends on who is faster, the page says "this or that".
bool allows(const std::string& documented, const std::string& outcome) {
  const size_t either = documented.find(" or ");
  return either == std::string::npos
             ? outcome == documented
             : outcome == documented.substr(0, either) || outcome == documented.substr(either + 4);
}

std::vector<int> calls() {
  const char* asked = std::getenv("LAZYT_FAULT_CALLS");
  std::istringstream in(asked ? asked : "2");
  std::vector<int> calls;
  for (std::string item; std::getline(in, item, ',');) calls.push_back(std::atoi(item.c_str()));
  return calls;
}

// A child that runs one cell.
struct Cell {
  std::string function, column;
  int call;
  bool ahead = false;  // the scenario's steps grow, so their programs can be compiled ahead
  pid_t pid = -1;
  int out = -1;
  std::chrono::steady_clock::time_point limit;
};

// The plugin that a process goes on with: the reference once more, as another library.
std::string other_library() {
  static const std::string path = [] {
    const auto folder = std::filesystem::temp_directory_path() / ("lazyt_fault_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    const auto to = folder / "lazyt_other.so";
    std::filesystem::copy_file(std::getenv("LAZYT_FAULT_WRAPS"), to,
                               std::filesystem::copy_options::overwrite_existing);
    return to.string();
  }();
  return path;
}

void start(Cell& cell) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const std::string action = kActions.at(cell.column);
  std::string at = cell.function + ":" + std::to_string(cell.call) + ":" + action;
  if (cell.function == "device.trim")
    at += ",buffer.alloc:%2:fail:RESOURCE_EXHAUSTED";  // memory is short every other time
  const std::string other = other_library(), call = std::to_string(cell.call);
  // A delay must be well below the deadline, also where everything is slow.
  const char* deadline = cell.column == "hang" ? "0.25" : "60";
  cell.pid = fork();
  if (cell.pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    if (!std::getenv("LAZYT_FAULT_VERBOSE")) dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    setenv("LAZYT_FAULT_AT", at.c_str(), 1);
    setenv("LAZYT_FAULT_OTHER", other.c_str(), 1);
    setenv("LAZYT_DEADLINE", deadline, 1);
    setenv("LAZYT_COMPILE_AHEAD", cell.ahead ? "1" : "0", 1);
    unsetenv("LAZYT_LAYERS");  // a layer calls functions of its own, and ends the process at a broken rule
    execl("/proc/self/exe", "fault_test", "--cell", cell.function.c_str(), call.c_str(), action.c_str(),
          nullptr);
    _exit(126);
  }
  close(ends[1]);
  cell.out = ends[0];
  cell.limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

std::string finish(Cell& cell) {
  std::string text;
  char buffer[4096];
  bool in_time = true;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(cell.limit - std::chrono::steady_clock::now());
    pollfd waiting{cell.out, POLLIN, 0};
    in_time = left.count() > 0 && poll(&waiting, 1, static_cast<int>(left.count())) != 0;
    if (!in_time) break;
    const ssize_t n = read(cell.out, buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  close(cell.out);
  if (!in_time) kill(cell.pid, SIGKILL);
  int status = 0;
  waitpid(cell.pid, &status, 0);
  if (!in_time) return "HUNG " + text;
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGSEGV ? "process ends" : "SIGNAL " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "STATUS " + std::to_string(WEXITSTATUS(status)) + " " + text;
  return text.substr(0, text.find('\n'));
}

class FaultTest : public testing::TestWithParam<const char*> {};

// What became of each, in the order of the cells.
std::vector<std::string> run(std::vector<Cell>& cells) {
  constexpr size_t kAtOnce = 3;  // most of their time they sleep
  std::vector<std::string> outcomes;
  for (size_t i = 0; i < cells.size() + kAtOnce; i++) {
    if (i < cells.size()) start(cells[i]);
    if (i < kAtOnce || i - kAtOnce >= cells.size()) continue;
    const Cell& cell = cells[i - kAtOnce];
    outcomes.push_back(finish(cells[i - kAtOnce]));
    std::printf("%-24s call %-4d %-10s %s\n", cell.function.c_str(), cell.call, cell.column.c_str(),
                outcomes.back().c_str());
  }
  return outcomes;
}

TEST_P(FaultTest, TheOutcomeIsTheDocumentedOne) {
  const std::string function = GetParam();
  const auto table = documented();
  ASSERT_TRUE(table.contains(function)) << "sdk_docs/failures.md has no row for it";
  std::vector<Cell> cells;
  for (const auto& [column, action] : kActions) {
    ASSERT_TRUE(table.at(function).contains(column))
        << "sdk_docs/failures.md has no column '" << column << "'";
    if (table.at(function).at(column) == "cannot") continue;  // it returns no status
    for (int call : calls()) cells.push_back({function, column, call});
  }
  const auto outcomes = run(cells);
  for (size_t i = 0; i < cells.size(); i++)
    EXPECT_TRUE(allows(table.at(function).at(cells[i].column), outcomes[i]))
        << function << ", call " << cells[i].call << ", " << cells[i].column << ": documented is '"
        << table.at(function).at(cells[i].column) << "', it came to '" << outcomes[i] << "'";
}

// Of the calls in a row that each step makes, some are made for a step that is yet to come.
TEST(FaultAhead, WhatFailsThereIsTriedAgainByTheStepThatWantsIt) {
  const auto table = documented();
  for (const std::string function : {"capability.query", "executable.compile", "executable.output_meta"}) {
    for (const auto& [column, action] : kActions) {
      std::vector<Cell> cells;
      for (int call = 40; call < 48; call++) cells.push_back({function, column, call, true});
      const auto outcomes = run(cells);
      const bool fails = column == "fail" || column == "no memory";
      const std::string expected = table.at(function).at(column) + (fails ? " or no effect" : "");
      for (const std::string& outcome : outcomes)
        EXPECT_TRUE(allows(expected, outcome))
            << function << ", " << column << ": it came to '" << outcome << "'";
      EXPECT_EQ(std::ranges::count(outcomes, "no effect") > 0, fails) << function << ", " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest, testing::ValuesIn(kFunctions), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

TEST(FaultPage, HasNoRowForAFunctionThatIsNotThere) {
  const std::set<std::string> functions(std::begin(kFunctions), std::end(kFunctions));
  for (const auto& [function, columns] : documented()) EXPECT_TRUE(functions.contains(function)) << function;
}

}  // namespace
}  // namespace fault

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--cell")
    return fault::run_cell(argv[2], std::atoi(argv[3]), argv[4]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
