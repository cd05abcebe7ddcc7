#include "nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "prelude.h"

namespace lazyt::cuda {
namespace {

using plugin::Error;

// --fmad=false: a product and a sum are two roundings in a fused kernel, as they are in two kernels: what is
// fused with what does not change a bit. Kernels are bound by memory; where one rounding is wanted, the code
// says fma.
constexpr std::array<const char*, 3> kOptions = {"--std=c++17", "--fmad=false",
                                                 "--device-as-default-execution-space"};

const NvrtcApi& rtc() { return libraries().rtc; }

void check_rtc(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw Error(LAZYT_CODE_INTERNAL, std::string("cuda: ") + what + ": " + rtc().nvrtcGetErrorString(result));
}

// NVRTC opens its own part by a bare name, which the linker does not find beside it in a wheel unless it is
// loaded.
void open_builtins() {
  static std::once_flag once;
  std::call_once(once, [] {
    const Libraries& all = libraries();
    const std::string folder = all.nvrtc.path.substr(0, all.nvrtc.path.rfind('/') + 1);
    const std::string name =
        "libnvrtc-builtins.so." + std::to_string(all.nvrtc_major) + "." + std::to_string(all.nvrtc_minor);
    if (!folder.empty())
      dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);  // if it is missed, NVRTC says so
  });
}

class Program {
 public:
  explicit Program(const std::string& source) {
    check_rtc(rtc().nvrtcCreateProgram(&program_, source.c_str(), "lazyt.cu", 0, nullptr, nullptr),
              "nvrtcCreateProgram");
  }
  ~Program() { rtc().nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;

  nvrtcResult compile(const Target& target) {
    const std::string architecture = target.option();
    std::vector<const char*> options{architecture.c_str()};
    options.insert(options.end(), kOptions.begin(), kOptions.end());
    return rtc().nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data());
  }
  std::string log() const {
    return text(rtc().nvrtcGetProgramLogSize, rtc().nvrtcGetProgramLog, "nvrtcGetProgramLog").c_str();
  }
  std::string code(const Target& target) const {
    return target.assembled ? text(rtc().nvrtcGetCUBINSize, rtc().nvrtcGetCUBIN, "nvrtcGetCUBIN")
                            : text(rtc().nvrtcGetPTXSize, rtc().nvrtcGetPTX, "nvrtcGetPTX");
  }

 private:
  template <class Size, class Get>
  std::string text(Size size, Get get, const char* what) const {
    size_t n = 0;
    check_rtc(size(program_, &n), what);
    std::string out(n, '\0');
    check_rtc(get(program_, out.data()), what);
    return out;
  }
  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::string Target::option() const {
  return std::string("--gpu-architecture=") + (assembled ? "sm_" : "compute_") + std::to_string(capability);
}

Target target_of(int capability) {
  int best = 0;
  for (int k : libraries().architectures)
    if (k <= capability) best = std::max(best, k);
  // Machine code runs on later minors of its major only.
  return {best, best / 10 == capability / 10};
}

const std::string& compiler_identity(const Target& target) {
  static std::mutex mutex;
  static auto& made = *new std::map<std::string, std::string>;
  const std::lock_guard lock(mutex);
  std::string& text = made[target.option()];
  if (text.empty()) {
    text = "NVRTC " + libraries().nvrtc.version + ' ' + target.option();
    for (const char* option : kOptions) text += std::string(" ") + option;
    text += '\n';
    text += kPrelude;
  }
  return text;
}

std::string translation_unit(const std::vector<const KernelSource*>& kernels) {
  std::string source = kPrelude;
  for (const KernelSource* k : kernels) source += "#line 1 \"" + k->name + "\"\n" + k->text + "\n";
  return source;
}

std::string compile_kernels(const std::vector<const KernelSource*>& kernels, const Target& target) {
  open_builtins();
  Program program(translation_unit(kernels));
  const nvrtcResult result = program.compile(target);
  if (result == NVRTC_SUCCESS) return program.code(target);
  std::string log = program.log();
  // The rest of the log follows from the first error, or is of other kernels.
  if (log.size() > 4000) log = log.substr(0, 4000) + "...";
  std::string names;
  for (const KernelSource* k : kernels)
    if (kernels.size() == 1 || log.find(k->name) != std::string::npos)
      names += (names.empty() ? "" : ", ") + k->name;
  throw Error(LAZYT_CODE_INTERNAL, "cuda: " + std::string(rtc().nvrtcGetErrorString(result)) +
                                       " for kernel " + names + " (" + target.option() + ", " +
                                       libraries().nvrtc.describe() + "):\n" + log);
}

}  // namespace lazyt::cuda
