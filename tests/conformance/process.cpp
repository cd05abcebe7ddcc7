// The library leaves the process, and the process is copied.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "suite.h"

namespace lazyt::conformance {
namespace {

using Process = Case;
using Unload = DevicelessCase;

constexpr const char* kAdd =
    "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2\n}\n";

// What became of a child; "exit status 0" is well.
std::string end_of(pid_t pid) {
  int status = 0;
  for (int i = 0; i < 1500; i++) {
    if (waitpid(pid, &status, WNOHANG) == pid)
      return WIFSIGNALED(status) ? fmt::format("ended by {}", strsignal(WTERMSIG(status)))
                                 : fmt::format("exit status {}", WEXITSTATUS(status));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return "no end within 15 s";
}

// A new process: this one has the library loaded already.
std::string run_self(const char* mode, const std::string& argument) {
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "lazyt-conformance", mode, options().plugin.c_str(), argument.c_str(), nullptr);
    _exit(127);
  }
  return end_of(pid);
}

LAZYT_CASE(Unload, TheLibraryCanBeUnloadedAndLoadedAgain, "LIB-6", "LIB-10") {
  const std::string got = run_self("--unload", "3");
  keeps(
      "LIB-10", got == "exit status 0",
      "three times in a new process: load, init, open, use and close the device, shutdown, unload; then exit",
      "exit status 0", got);
}

LAZYT_CASE(Unload, TheProcessCanEndWithEverythingOpen, "LIB-11", "C-7") {
  const std::string got = run_self("--unload", "0");
  keeps("LIB-11", got == "exit status 0", "in a new process: load, init, open and use the device, exit",
        "exit status 0", got);
}

LAZYT_CASE(Process, AForkedChildCanEnd, "LIB-11") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4}));
  MUST(a);
  for (bool at_once : {true, false}) {
    fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      if (at_once) _exit(0);
      std::exit(0);  // what the library registered runs in the child, without the threads of the parent
    }
    const std::string got = end_of(pid);
    keeps("LIB-11", got == "exit status 0",
          at_once ? "fork, and _exit in the child" : "fork, and exit in the child", "exit status 0", got);
    std::vector<Bytes> out = run("LIB-11", add, {in(a), in(a)});
    MUST(out.size() == 1);
    same_bytes("LIB-11", "executed in the parent afterwards, then read its input", floats({1, 2, 3, 4}),
               download(a, 16));
  }
}

}  // namespace

// A new process started by Unload comes here. rounds 0: one, and nothing is closed.
int unload(const char* path, int rounds) {
  for (int round = 0; round < std::max(rounds, 1); round++) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return 2;
    auto entry = reinterpret_cast<lazyt_plugin_entry_v1_t>(dlsym(library, LAZYT_PLUGIN_ENTRY_NAME));
    const lazyt_plugin_t* p = nullptr;
    if (!entry || entry(host(), &p) || p->init()) return 3;
    uint32_t count = 0;
    if (p->device->count(&count)) return 4;
    lazyt_device_t* device = nullptr;
    if (count > 0) {
      if (p->device->open(0, &device)) return 5;
      const float values[4] = {1, 2, 3, 4};
      lazyt_host_bytes_t bytes{};
      bytes.struct_size = sizeof bytes;
      bytes.data = values;
      bytes.size_bytes = sizeof values;
      lazyt_buffer_t* buffer = nullptr;
      float back[4] = {};
      if (p->buffer->from_host(device, &bytes, &buffer) ||
          p->buffer->to_host(buffer, 0, back, sizeof back, {nullptr, 0}, nullptr))
        return 6;
      if (std::memcmp(back, values, sizeof back) != 0) return 7;
      if (rounds == 0) return 0;
      p->buffer->release(buffer);
      p->device->close(device);
    }
    if (rounds == 0) return 0;
    p->shutdown();
    if (live_statuses() != 0) return 8;
    dlclose(library);
  }
  // What a thread that was left behind would run is gone.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return 0;
}

}  // namespace lazyt::conformance
