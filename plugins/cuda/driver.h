// NVIDIA's libraries as tables of functions, resolved when the plugin is initialised.
//
// The driver's functions are looked up by the versioned names that cuda.h gives them (cuMemAlloc_v2): a name with its
// suffix is an ABI that never changes, and only names that a driver of CUDA 12.0 has are listed here.
#pragma once

#include <cuda.h>
#include <nvrtc.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cublaslt.h"
#include "cudnn.h"
#include "lazyt/plugin.hpp"
#include "locate.h"

namespace lazyt::cuda {

#define LAZYT_CUDA_DRIVER_FUNCTIONS(X)                                                                       \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                      \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute)          \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxPushCurrent) X(cuCtxPopCurrent)            \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent)                           \
  X(cuStreamBeginCapture) X(cuStreamEndCapture)                                                              \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)                  \
  X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync)                    \
  X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolTrimTo) X(cuMemPoolSetAttribute)                          \
  X(cuMemHostAlloc) X(cuMemFreeHost) X(cuPointerGetAttribute)                                                \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpyPeerAsync) X(cuMemsetD8Async)      \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncSetAttribute) X(cuLaunchKernel)       \
  X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphAddKernelNode) X(cuGraphAddMemcpyNode)                         \
  X(cuGraphAddChildGraphNode) X(cuGraphInstantiateWithFlags) X(cuGraphExecDestroy) X(cuGraphLaunch)          \
  X(cuGraphExecKernelNodeSetParams) X(cuGraphExecMemcpyNodeSetParams) X(cuGraphExecChildGraphNodeSetParams)

#define LAZYT_CUDA_NVRTC_FUNCTIONS(X)                                                                        \
  X(nvrtcVersion) X(nvrtcGetErrorString) X(nvrtcGetNumSupportedArchs) X(nvrtcGetSupportedArchs)              \
  X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcCompileProgram) X(nvrtcGetProgramLogSize)              \
  X(nvrtcGetProgramLog) X(nvrtcGetPTXSize) X(nvrtcGetPTX) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN)

#define LAZYT_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
struct DriverApi {
  LAZYT_CUDA_DRIVER_FUNCTIONS(LAZYT_CUDA_MEMBER)
};
struct NvrtcApi {
  LAZYT_CUDA_NVRTC_FUNCTIONS(LAZYT_CUDA_MEMBER)
};
#undef LAZYT_CUDA_MEMBER

// All libraries, searched for once in a process. Immutable afterwards; any thread.
struct Libraries {
  Library driver, nvrtc;
  Library cublaslt;                     // optional: without it generated kernels multiply
  DriverApi cu;
  NvrtcApi rtc;
  CublasLtApi lt;                       // REQUIRES: cublaslt
  Library cudnn;                        // optional: without it generated kernels convolve
  CudnnApi dnn;                         // REQUIRES: cudnn
  int driver_version = 0;               // 13000 = CUDA 13.0
  int nvrtc_major = 0, nvrtc_minor = 0;
  std::vector<int> architectures;       // that NVRTC compiles for: 75, 80, ...; REQUIRES: nvrtc, not empty then
  int device_count = 0;
  std::string why_none;                 // why device_count is 0; empty if it is not
};

// The first call loads, and initialises the driver (no context is made).
const Libraries& libraries();

// The driver's table. REQUIRES: libraries().driver was found, as it was if there is a device.
inline const DriverApi& cu() { return libraries().cu; }

// "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
std::string describe(CUresult result);

// After such an error every call on the device's context fails with it, until the process ends.
bool is_sticky(CUresult result);

// The error that a result stands for, told as "cuda: <what>: ...".
plugin::Error error_of(CUresult result, const char* what);

// Throws it, unless the result is success.
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw error_of(result, what);
}

}  // namespace lazyt::cuda
