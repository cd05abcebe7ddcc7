// Where NVIDIA's libraries lie, and opening them.
//
// The order of NVIDIA's cuda-pathfinder, which PyTorch and CuPy follow too, so that one process has one copy of each:
//   a path that the user gives  ->  loaded in the process  ->  pip wheels  ->  CONDA_PREFIX  ->  the dynamic linker's
//   own search  ->  CUDA_HOME, CUDA_PATH, /usr/local/cuda
// In a process with elevated privileges the environment says nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lazyt::cuda {

// One library: found, or why not. Never closed: it may run threads and exit handlers of its own.
struct Library {
  std::string title;    // "NVRTC"
  void* handle = nullptr;
  std::string path;     // as the linker tells it
  std::string version;  // filled by who asks the library
  std::string missing;  // why it cannot be used; empty if it can
  explicit operator bool() const { return missing.empty() && handle; }
  // "13.0 (/usr/lib/libnvrtc.so.13)" or why not.
  std::string state() const;
  // The same behind the title.
  std::string describe() const { return title + (missing.empty() ? " " : ": ") + state(); }
};

struct Wanted {
  std::string title;
  std::string_view option;             // LAZYT_CUDA_<OPTION> names a file
  std::vector<std::string> sonames;    // best first
  std::vector<std::string> wheel_dirs; // below site-packages; empty = the library comes with the driver
};

// Opens the first that is found. A file that the option names is the only candidate.
Library open_library(const Wanted& wanted);

// The address of a function, or null with the library marked as missing it.
void* find_function(Library& library, const char* name);

}  // namespace lazyt::cuda
