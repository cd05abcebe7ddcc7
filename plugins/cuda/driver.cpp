#include "driver.h"

#include <algorithm>
#include <vector>

namespace lazyt::cuda {
namespace {

constexpr int kOldestDriver = 12000;
constexpr size_t kOldestCudnn = 90000;

// The name as cuda.h's macros expand it.
#define LAZYT_CUDA_TEXT(name) #name
#define LAZYT_CUDA_LOAD_DRIVER(name) load(out.driver, out.cu.name, LAZYT_CUDA_TEXT(name));
#define LAZYT_CUDA_LOAD_NVRTC(name) load(out.nvrtc, out.rtc.name, LAZYT_CUDA_TEXT(name));
#define LAZYT_CUDA_LOAD_CUBLASLT(name) load(out.cublaslt, out.lt.name, LAZYT_CUDA_TEXT(name));
#define LAZYT_CUDA_LOAD_CUDNN(name) load(out.cudnn, out.dnn.name, LAZYT_CUDA_TEXT(name));

template <class F>
void load(Library& library, F& function, const char* name) {
  function = reinterpret_cast<F>(find_function(library, name));
}

std::string dotted(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

void load_driver(Libraries& out) {
  out.driver = open_library({"the NVIDIA driver", "driver", {"libcuda.so.1", "libcuda.so"}, {}});
  if (!out.driver) return;
  // The version first: an old driver lacks functions, and its age is the better reason.
  load(out.driver, out.cu.cuDriverGetVersion, "cuDriverGetVersion");
  if (!out.cu.cuDriverGetVersion || out.cu.cuDriverGetVersion(&out.driver_version) != CUDA_SUCCESS) return;
  out.driver.version = "for CUDA " + dotted(out.driver_version);
  if (out.driver_version < kOldestDriver) {
    out.driver.missing = out.driver.path + " is for CUDA " + dotted(out.driver_version) + "; CUDA " + dotted(kOldestDriver) +
                         " or later is needed: install a newer driver";
    return;
  }
  LAZYT_CUDA_DRIVER_FUNCTIONS(LAZYT_CUDA_LOAD_DRIVER)
}

// Of the newest major that the driver runs. folder: of the wheels of CUDA 12; later ones share one.
Library open_of_toolkit(int driver_version, std::string title, std::string_view option, const std::string& soname,
                        const std::string& folder) {
  Wanted wanted{std::move(title), option, {}, {}};
  for (int major = std::max(driver_version / 1000, 12); major >= 12; --major) {
    wanted.sonames.push_back(soname + "." + std::to_string(major));
    wanted.wheel_dirs.push_back(major == 12 ? "nvidia/" + folder + "/lib" : "nvidia/cu" + std::to_string(major) + "/lib");
  }
  return open_library(wanted);
}

void load_nvrtc(Libraries& out) {
  out.nvrtc = open_of_toolkit(out.driver_version, "NVRTC", "nvrtc", "libnvrtc.so", "cuda_nvrtc");
  if (!out.nvrtc) return;
  LAZYT_CUDA_NVRTC_FUNCTIONS(LAZYT_CUDA_LOAD_NVRTC)
  if (!out.nvrtc) return;
  if (out.rtc.nvrtcVersion(&out.nvrtc_major, &out.nvrtc_minor) == NVRTC_SUCCESS)
    out.nvrtc.version = std::to_string(out.nvrtc_major) + "." + std::to_string(out.nvrtc_minor);
  int count = 0;
  if (out.rtc.nvrtcGetNumSupportedArchs(&count) == NVRTC_SUCCESS) out.architectures.resize(static_cast<size_t>(count));
  if (count == 0 || out.rtc.nvrtcGetSupportedArchs(out.architectures.data()) != NVRTC_SUCCESS)
    out.nvrtc.missing = out.nvrtc.path + " does not say what GPUs it compiles for";
}

// Whether the user wants none of the libraries that compute.
bool are_off(Library& library, const char* title) {
  const std::string_view wanted = plugin::option("cuda", "libraries");
  if (wanted.empty() || plugin::is_on(wanted)) return false;
  library.title = title;
  library.missing = "switched off by LAZYT_CUDA_LIBRARIES";
  return true;
}

void load_cublaslt(Libraries& out) {
  if (are_off(out.cublaslt, "cuBLASLt")) return;
  out.cublaslt = open_of_toolkit(out.driver_version, "cuBLASLt", "cublaslt", "libcublasLt.so", "cublas");
  if (!out.cublaslt) return;
  LAZYT_CUDA_CUBLASLT_FUNCTIONS(LAZYT_CUDA_LOAD_CUBLASLT)
  if (!out.cublaslt) return;
  const size_t version = out.lt.cublasLtGetVersion();  // 130002 = 13.0.2
  out.cublaslt.version = std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100);
}

void load_cudnn(Libraries& out) {
  if (are_off(out.cudnn, "cuDNN")) return;
  out.cudnn = open_library({"cuDNN", "cudnn", {"libcudnn.so.9"}, {"nvidia/cudnn/lib"}});
  if (!out.cudnn) return;
  // The versions first: an old one lacks functions, and its age is the better reason.
  load(out.cudnn, out.dnn.cudnnGetVersion, "cudnnGetVersion");
  load(out.cudnn, out.dnn.cudnnGetCudartVersion, "cudnnGetCudartVersion");
  if (!out.cudnn) return;
  const size_t version = out.dnn.cudnnGetVersion();  // 91002 = 9.10.2, 8902 = 8.9.2
  const size_t major = version < kOldestCudnn ? 1000 : 10000;
  out.cudnn.version = std::to_string(version / major) + "." + std::to_string(version % major / 100) + "." + std::to_string(version % 100);
  const size_t cuda = out.dnn.cudnnGetCudartVersion();
  if (version < kOldestCudnn)
    out.cudnn.missing = out.cudnn.path + " is cuDNN " + out.cudnn.version + "; 9.0 or later is needed: pip install nvidia-cudnn-cu" +
                        std::to_string(out.driver_version / 1000);
  else if (cuda / 1000 > static_cast<size_t>(out.driver_version) / 1000)
    out.cudnn.missing = out.cudnn.path + " is for CUDA " + dotted(static_cast<int>(cuda)) + ", the driver for CUDA " +
                        dotted(out.driver_version) + ": pip install nvidia-cudnn-cu" + std::to_string(out.driver_version / 1000);
  if (!out.cudnn) return;
  LAZYT_CUDA_CUDNN_FUNCTIONS(LAZYT_CUDA_LOAD_CUDNN)
}

void count_devices(Libraries& out) {
  if (!out.driver) {
    out.why_none = out.driver.describe();
    return;
  }
  CUresult result = out.cu.cuInit(0);
  if (result == CUDA_SUCCESS) result = out.cu.cuDeviceGetCount(&out.device_count);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
    const char* name = nullptr;
    const char* text = nullptr;
    out.cu.cuGetErrorName(result, &name);
    out.cu.cuGetErrorString(result, &text);
    out.device_count = 0;
    out.why_none = out.driver.describe() + " does not start: " + (name ? name : "error " + std::to_string(result)) +
                   (text ? std::string(": ") + text : "");
  } else if (out.device_count == 0) {
    out.why_none = out.driver.describe() + " finds no device: no NVIDIA GPU here, or CUDA_VISIBLE_DEVICES hides it";
  } else if (!out.nvrtc) {
    out.why_none = out.nvrtc.describe() + "; it compiles the kernels: pip install nvidia-cuda-nvrtc, or a CUDA toolkit";
    out.device_count = 0;
  }
}

// A GPU that NVRTC compiles nothing for is no device; what is behind it neither, so that indices stay the driver's.
void leave_out_older_devices(Libraries& out) {
  const int oldest = *std::min_element(out.architectures.begin(), out.architectures.end());
  for (int i = 0; i < out.device_count; ++i) {
    CUdevice device = 0;
    int major = 0, minor = 0;
    if (out.cu.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
        out.cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) != CUDA_SUCCESS ||
        out.cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) != CUDA_SUCCESS)
      return;  // told where the device is used
    if (major * 10 + minor >= oldest) continue;
    out.device_count = i;
    if (i == 0)
      out.why_none = "GPU 0 is sm_" + std::to_string(major * 10 + minor) + ", " + out.nvrtc.describe() + " compiles for sm_" +
                     std::to_string(oldest) +
                     " and later: install an older one (pip install nvidia-cuda-nvrtc-cu12), or put a newer GPU first by CUDA_VISIBLE_DEVICES";
    return;
  }
}

}  // namespace

const Libraries& libraries() {
  static const Libraries& loaded = *[] {
    auto* out = new Libraries;
    load_driver(*out);
    // Libraries are large: not for nothing.
    if (out->driver) load_nvrtc(*out);
    count_devices(*out);
    if (out->device_count) leave_out_older_devices(*out);
    if (out->device_count) load_cublaslt(*out), load_cudnn(*out);
    return out;
  }();
  return loaded;
}

std::string describe(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  cu().cuGetErrorName(result, &name);
  cu().cuGetErrorString(result, &text);
  return (name ? name : "error " + std::to_string(result)) + (text ? std::string(": ") + text : "");
}

bool is_sticky(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: case CUDA_ERROR_LAUNCH_TIMEOUT: case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR: case CUDA_ERROR_ILLEGAL_INSTRUCTION: case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE: case CUDA_ERROR_INVALID_PC: case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE: case CUDA_ERROR_NVLINK_UNCORRECTABLE: case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED: case CUDA_ERROR_EXTERNAL_DEVICE: return true;
    case 226: case 721: return true;  // CONTAINED, TENSOR_MEMORY_LEAK: not in every cuda.h
    default: return false;
  }
}

plugin::Error error_of(CUresult result, const char* what) {
  lazyt_code_t code = LAZYT_CODE_INTERNAL;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) code = LAZYT_CODE_RESOURCE_EXHAUSTED;
  if (is_sticky(result)) code = LAZYT_CODE_UNAVAILABLE;
  return {code, std::string("cuda: ") + what + ": " + describe(result)};
}

}  // namespace lazyt::cuda
