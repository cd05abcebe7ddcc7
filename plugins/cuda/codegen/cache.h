// Compiled kernels, kept three times: as functions in the process, as files on disk, and as what NVRTC makes
// where both know nothing.
//
//   LAZYT_CUDA_CACHE_DIR   the folder on disk; "off": none. Otherwise XDG_CACHE_HOME/lazyt/cuda or
//   ~/.cache/lazyt/cuda LAZYT_CUDA_CACHE_MB    what it may hold (256); the files that were not used for
//   longest go LAZYT_CUDA_DUMP        a folder to write the source of every kernel to, once in a process
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nvrtc.h"

namespace lazyt::cuda {

// Sets the functions of all kernel steps. What is not known is compiled together, in as many units as threads
// pay. Modules stay loaded as long as the context: other programs use the same kernels. Throws. Any
// thread.
void load_kernels(const std::vector<KernelStep*>& steps, const Context& context, int capability);

// The files. A file is never believed: it holds the texts that it was made from, which are compared, and a
// checksum.
class DiskCache {
 public:
  // An empty folder: keeps nothing.
  DiskCache(std::string folder, uint64_t limit_bytes) : folder_(std::move(folder)), limit_(limit_bytes) {}
  // As the options say.
  static const DiskCache& standard();

  std::optional<std::string> find(const KernelSource& kernel, const std::string& identity) const;
  // code: what all these kernels were compiled to. Other processes see all of a file or nothing; what cannot
  // be written is not kept.
  void put(const std::vector<const KernelSource*>& kernels, const std::string& identity,
           const std::string& code) const;

 private:
  std::string path_of(const KernelSource& kernel, const std::string& identity) const;
  void trim() const;

  std::string folder_;
  uint64_t limit_;
};

}  // namespace lazyt::cuda
