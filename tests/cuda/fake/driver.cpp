// Devices, contexts, errors, configuration.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

thread_local std::vector<CUcontext> stack;
std::set<const void*>& handles() {
  static auto& all = *new std::set<const void*>;
  return all;
}

void configure(Config& config, const char* text) {
  const std::map<std::string, std::function<void(uint64_t)>> known = {
      {"devices", [&](uint64_t n) { config.devices = static_cast<int>(n); }},
      {"version", [&](uint64_t n) { config.version = static_cast<int>(n); }},
      {"capability", [&](uint64_t n) { config.capability = static_cast<int>(n); }},
      {"init", [&](uint64_t n) { config.init = static_cast<int>(n); }},
      {"pools", [&](uint64_t n) { config.pools = static_cast<int>(n); }},
      {"memory", [&](uint64_t n) { config.memory = n; }},
      {"delay_us", [&](uint64_t n) { config.delay_us = n; }},
      {"fail_alloc", [&](uint64_t n) { config.fail_alloc = n; }},
      {"fail_launch", [&](uint64_t n) { config.fail_launch = n; }},
      {"fault_kernel", [&](uint64_t n) { config.fault_kernel = n; }},
      {"lose_device", [&](uint64_t n) { config.lose_device = n; }},
  };
  for (std::string rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size()), equals = rest.find('=');
    const auto found = known.find(rest.substr(0, equals));
    if (equals >= comma || found == known.end()) misuse("LAZYT_FAKE_CUDA", "does not know '" + rest.substr(0, comma) + "'");
    found->second(std::strtoull(rest.c_str() + equals + 1, nullptr, 10));
    rest.erase(0, comma + 1);
  }
}

struct Named {
  CUresult code;
  const char *name, *text;
};
constexpr Named kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Named* find_error(CUresult code) {
  for (const Named& e : kErrors)
    if (e.code == code) return &e;
  return nullptr;
}

CUresult require_device(CUdevice device) {
  if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && device < state().config.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

State& state() {
  static State& made = *[] {
    auto* s = new State;
    if (const char* text = std::getenv("LAZYT_FAKE_CUDA")) configure(s->config, text);
    return s;
  }();
  return made;
}

void misuse(const char* function, const std::string& what) {
  std::fprintf(stderr, "fake CUDA: %s: %s\n", function, what.c_str());
  std::abort();
}

void add_handle(const void* handle) { handles().insert(handle); }
void drop_handle(const void* handle) { handles().erase(handle); }
void require_handle(const void* handle, const char* function) {
  if (!handles().contains(handle)) misuse(function, "a handle that is not alive");
}

CUresult status_of(const CUctx_st* context) {
  if (!context->retained) return CUDA_ERROR_INVALID_CONTEXT;
  return context->lost;
}

CUctx_st* current(CUresult& result) {
  result = stack.empty() ? CUDA_ERROR_INVALID_CONTEXT : status_of(stack.back());
  return result == CUDA_SUCCESS ? stack.back() : nullptr;
}

bool count_down(uint64_t& n) { return n && --n == 0; }

}  // namespace fake

using namespace fake;

extern "C" {

void lazyt_fake_cuda(const char* text) {
  const Lock lock(state().mutex);
  configure(state().config, text);
}

uint64_t lazyt_fake_cuda_count(const char* name) {
  const Lock lock(state().mutex);
  const Counts& c = state().counts;
  const std::string_view wanted = name;
  if (wanted == "allocations") return c.allocations;
  if (wanted == "launches") return c.launches;
  if (wanted == "graph_launches") return c.graph_launches;
  if (wanted == "graph_updates") return c.graph_updates;
  if (wanted == "instantiated") return c.instantiated;
  if (wanted == "copies") return c.copies;
  misuse("lazyt_fake_cuda_count", "does not count " + std::string(wanted));
}

CUresult CUDAAPI cuInit(unsigned int flags) {
  const Lock lock(state().mutex);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  const Config& config = state().config;
  if (config.init) return static_cast<CUresult>(config.init);
  if (!config.devices) return CUDA_ERROR_NO_DEVICE;
  state().initialised = true;
  if (state().contexts.empty())
    for (int i = 0; i < config.devices; ++i) state().contexts.push_back(std::make_unique<CUctx_st>(CUctx_st{.device = i}));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = state().config.version;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** out) {
  const Named* found = find_error(error);
  *out = found ? found->name : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** out) {
  const Named* found = find_error(error);
  *out = found ? found->text : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  const Lock lock(state().mutex);
  if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = state().config.devices;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  const Lock lock(state().mutex);
  *device = ordinal;
  return require_device(ordinal);
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
  const Lock lock(state().mutex);
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
  return require_device(device);
}

CUresult CUDAAPI cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  const Lock lock(state().mutex);
  *bytes = state().config.memory;
  return require_device(device);
}

CUresult CUDAAPI cuDeviceGetAttribute(int* out, CUdevice_attribute which, CUdevice device) {
  const Lock lock(state().mutex);
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = state().config.capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = state().config.capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = 4; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *out = state().config.pools; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *out = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *out = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *out = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = 227 << 10; break;
    default: misuse("cuDeviceGetAttribute", "knows no attribute " + std::to_string(which));
  }
  return require_device(device);
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Lock lock(state().mutex);
  if (const CUresult bad = require_device(device)) return bad;
  CUctx_st* made = state().contexts[static_cast<size_t>(device)].get();
  if (!made->retained++) made->lost = CUDA_SUCCESS;
  *context = made;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  const Lock lock(state().mutex);
  if (const CUresult bad = require_device(device)) return bad;
  CUctx_st* context = state().contexts[static_cast<size_t>(device)].get();
  if (!context->retained) misuse("cuDevicePrimaryCtxRelease", "the context is not retained");
  if (--context->retained) return CUDA_SUCCESS;
  // CUDA would free it all; whoever releases the context is to have released what it made.
  if (context->lost == CUDA_SUCCESS && !context->handles.empty())
    misuse("cuDevicePrimaryCtxRelease", std::to_string(context->handles.size()) + " streams, events, pools, modules or graphs are left");
  if (context->lost == CUDA_SUCCESS && context->allocated)
    misuse("cuDevicePrimaryCtxRelease", std::to_string(context->allocated) + " bytes are left");
  // What a lost one left behind goes with it.
  context->allocated = 0;
  context->handles.clear();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  const Lock lock(state().mutex);
  if (!context || !context->retained) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  if (stack.empty()) misuse("cuCtxPopCurrent", "no context is current");
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

}  // extern "C"
