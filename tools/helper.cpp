#include "helper.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "loader/handles.h"
#include "loader/policy.h"
#include "loader/worker.h"

namespace lazyt::tools {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

// The child's answer: what probe() changes.
std::string answer_of(const loader::Candidate& c) {
  json answer{{"name", c.name}, {"step", c.step}, {"reason", static_cast<int>(c.reason)}, {"detail", c.detail},
              {"score", c.score}};
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

void take_answer(const std::string& text, loader::Candidate& c) {
  const json answer = json::parse(text);
  c.name = answer["name"];
  c.step = answer["step"];
  c.reason = static_cast<loader::Reason>(answer["reason"].get<int>());
  c.detail = answer["detail"];
  c.score = answer["score"];
}

void refuse(loader::Candidate& c, loader::Reason reason, std::string detail) {
  c.step = "probe";
  c.reason = reason;
  c.detail = std::move(detail);
}

// The child's answer when its stack is used up.
constexpr char kNoStack = 'S';
int answer_pipe = -1;
uintptr_t stack_end = 0;

// Ends the process by the same signal, unless it came from touching what lies just below the stack.
void on_segv(int signal, siginfo_t* info, void*) {
  constexpr uintptr_t kNear = 1 << 20;  // frames may be large
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (at < stack_end + kNear && at + kNear > stack_end && write(answer_pipe, &kNoStack, 1) == 1) _exit(1);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void watch_stack(int out) {
  answer_pipe = out;
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  stack_end = reinterpret_cast<uintptr_t>(low);
  static char room[1 << 16];
  const stack_t other{.ss_sp = room, .ss_flags = 0, .ss_size = sizeof room};
  struct sigaction action {};
  action.sa_sigaction = on_segv;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (sigaltstack(&other, nullptr) == 0) sigaction(SIGSEGV, &action, nullptr);
}

[[noreturn]] void run_child(loader::Candidate candidate, int out) {
  // What the plugin prints must not end up in the report.
  dup2(STDERR_FILENO, STDOUT_FILENO);
  watch_stack(out);
  loader::set_deadline({});  // calls on this thread; the parent has a limit of its own
  if (const auto plugin = loader::probe(candidate)) {
    if (const auto device = loader::Device::open(plugin, 0); !device.ok()) {
      candidate.step = "device";
      candidate.reason = loader::Reason::kNoDevice;
      candidate.detail = device.status().to_string();
    }
  }
  const std::string answer = answer_of(candidate);
  for (size_t done = 0; done < answer.size();) {
    const ssize_t n = write(out, answer.data() + done, answer.size() - done);
    if (n <= 0) _exit(1);
    done += static_cast<size_t>(n);
  }
  // Exit handlers of the plugin's libraries are not what is being tried.
  _exit(0);
}

// False when the time is over before the other end is closed.
bool read_all(int in, Clock::time_point limit, std::string& out) {
  char buffer[4096];
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{in, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
    if (ready < 0) continue;
    const ssize_t n = read(in, buffer, sizeof buffer);
    if (n <= 0) return true;
    out.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

void probe_in_helper(loader::Candidate& candidate, double limit_seconds) {
  // Trying again is what lifts a quarantine.
  if (candidate.reason == loader::Reason::kQuarantined) candidate.reason = loader::Reason::kFound;
  if (candidate.reason != loader::Reason::kFound) return;
  const auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_seconds));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return refuse(candidate, loader::Reason::kFound, fmt::format("no helper process: {}", std::strerror(errno)));
  // The command has one thread, so that a plain fork is enough: the child may use everything.
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    run_child(candidate, ends[1]);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return refuse(candidate, loader::Reason::kFound, fmt::format("no helper process: {}", std::strerror(errno)));
  }
  std::string answer;
  const bool in_time = read_all(ends[0], limit, answer);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time)
    refuse(candidate, loader::Reason::kHung, fmt::format("did not come back within {:g} s", limit_seconds));
  else if (answer == std::string(1, kNoStack))
    refuse(candidate, loader::Reason::kStackOverflow, "ended because its stack was used up");
  else if (WIFSIGNALED(status))
    refuse(candidate, loader::Reason::kCrashed, fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))));
  else if (!json::accept(answer))
    refuse(candidate, loader::Reason::kCrashed, fmt::format("ended the process with status {}", WEXITSTATUS(status)));
  else
    take_answer(answer, candidate);
  using enum loader::Reason;
  if (candidate.reason == kCrashed || candidate.reason == kHung || candidate.reason == kStackOverflow)
    loader::put_into_quarantine(candidate);
  else
    loader::take_out_of_quarantine(candidate);
}

}  // namespace lazyt::tools
