// Where a device's time goes, for the developer: with LAZYT_CUDA_PROFILE=1 a table by kernel and library call on stderr when
// the process ends, with =2 by the node that each was made for, too.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "compile.h"

namespace lazyt::cuda {

// Programs then run step by step, waited for, from the kProfiledFrom-th run on timed by events. Steps are submitted behind a
// host function that holds the stream until they are all there, so that the host's time for a launch counts as nobody's.
class Profile {
 public:
  static constexpr uint64_t kProfiledFrom = 3;  // what libraries load lazily is loaded

  // Null without the option.
  static Profile* wanted();
  // Submits all of the steps and waits for them. The context is current. Throws what it makes of CUDA's errors.
  void run(const Executable& executable, const Run& run);

 private:
  struct Entry {
    double us = 0, least = 0;
    uint64_t runs = 0;
  };
  explicit Profile(bool by_node);
  void report();

  const bool by_node_;
  decltype(&::cuLaunchHostFunc) launch_host_ = nullptr;
  CUresult (*elapsed_)(float*, CUevent, CUevent) = nullptr;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  uint64_t executions_ = 0;
};

}  // namespace lazyt::cuda
