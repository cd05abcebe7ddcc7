// NVRTC: from the texts of kernels to the bytes that a driver loads.
#pragma once

#include <string>
#include <vector>

#include "../compile.h"

namespace lazyt::cuda {

// What kernels are compiled for.
struct Target {
  int capability = 0;  // 90 = sm_90
  bool assembled =
      true;  // machine code; else PTX, which the driver assembles for a GPU that NVRTC does not know
  std::string option() const;
};

// For a GPU of this capability. REQUIRES: one that the NVRTC at hand compiles for, as that of each device is.
Target target_of(int capability);

// Everything but the texts that decides what compile_kernels gives: versions, options, the prelude.
const std::string& compiler_identity(const Target& target);

// All of them as one translation unit. Throws INTERNAL with the name of the kernel and what NVRTC says. Any
// thread.
std::string compile_kernels(const std::vector<const KernelSource*>& kernels, const Target& target);

// What NVRTC is given for these kernels.
std::string translation_unit(const std::vector<const KernelSource*>& kernels);

}  // namespace lazyt::cuda
