// The real cuDNN on a machine without a GPU: it builds plans for the GPU that LAZYT_DNN_DEVICE describes (a file of JSON, see
// check_cudnn.py), and runs none of them. What the plugin is given is a handle of ours; where the library wants one, it gets
// the description instead (cuDNN 9.8 and later). LAZYT_DNN_LIBRARY is the library's path.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "../../../plugins/cuda/cudnn.h"

namespace {

using namespace lazyt::cuda;

constexpr auto kDeviceKind = static_cast<DnnKind>(38);
constexpr auto kDeviceJson = static_cast<DnnAttribute>(2702), kHeuristicDevice = static_cast<DnnAttribute>(204), kPlanDevice = static_cast<DnnAttribute>(407);
constexpr auto kTypeChar = static_cast<DnnType>(24);

template <class F>
F* real(const char* name) {
  static void* const library = [] {
    const char* path = std::getenv("LAZYT_DNN_LIBRARY");
    void* opened = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!opened) std::fprintf(stderr, "cudnn_plans: LAZYT_DNN_LIBRARY: %s\n", path ? dlerror() : "is not set"), std::exit(1);
    return opened;
  }();
  return reinterpret_cast<F*>(dlsym(library, name));
}
#define REAL(name) static const auto call = real<name##_t>(#name)

// Null if it cannot be described.
DnnDescriptor device() {
  static const DnnDescriptor made = [] {
    const char* path = std::getenv("LAZYT_DNN_DEVICE");
    std::ifstream file(path ? path : "");
    const std::string json((std::istreambuf_iterator<char>(file)), {});
    DnnDescriptor out = nullptr;
    const bool good = !json.empty() && !real<cudnnBackendCreateDescriptor_t>("cudnnBackendCreateDescriptor")(kDeviceKind, &out) &&
                      !real<cudnnBackendSetAttribute_t>("cudnnBackendSetAttribute")(out, kDeviceJson, kTypeChar, static_cast<int64_t>(json.size()), json.data()) &&
                      !real<cudnnBackendFinalize_t>("cudnnBackendFinalize")(out);
    if (!good) std::fprintf(stderr, "cudnn_plans: LAZYT_DNN_DEVICE names no device that this cuDNN takes\n");
    return good ? out : nullptr;
  }();
  return made;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

size_t cudnnGetVersion() {
  REAL(cudnnGetVersion);
  return call();
}
size_t cudnnGetCudartVersion() { return 12000; }
const char* cudnnGetErrorString(DnnStatus status) {
  REAL(cudnnGetErrorString);
  return call(status);
}
DnnStatus cudnnCreate(DnnHandle* out) {
  *out = reinterpret_cast<DnnHandle>(device());
  return *out ? 0 : 1001;
}
DnnStatus cudnnDestroy(DnnHandle) { return 0; }
DnnStatus cudnnSetStream(DnnHandle, CUstream) { return 0; }
DnnStatus cudnnBackendCreateDescriptor(DnnKind kind, DnnDescriptor* out) {
  REAL(cudnnBackendCreateDescriptor);
  return call(kind, out);
}
DnnStatus cudnnBackendDestroyDescriptor(DnnDescriptor o) {
  REAL(cudnnBackendDestroyDescriptor);
  return call(o);
}
DnnStatus cudnnBackendSetAttribute(DnnDescriptor o, DnnAttribute which, DnnType type, int64_t count, const void* data) {
  REAL(cudnnBackendSetAttribute);
  const DnnDescriptor described = device();
  if (which == kDnnGraphHandle) return 0;
  if (which == kDnnPlanHandle) return call(o, kPlanDevice, kDnnTypeDescriptor, 1, &described);
  if (which == kDnnHeuristicGraph)
    if (const DnnStatus status = call(o, kHeuristicDevice, kDnnTypeDescriptor, 1, &described)) return status;
  return call(o, which, type, count, data);
}
DnnStatus cudnnBackendFinalize(DnnDescriptor o) {
  REAL(cudnnBackendFinalize);
  return call(o);
}
DnnStatus cudnnBackendGetAttribute(DnnDescriptor o, DnnAttribute which, DnnType type, int64_t wanted, int64_t* count, void* out) {
  REAL(cudnnBackendGetAttribute);
  return call(o, which, type, wanted, count, out);
}
DnnStatus cudnnBackendExecute(DnnHandle, DnnDescriptor, DnnDescriptor) { return 0; }

}  // extern "C"
#pragma GCC visibility pop
