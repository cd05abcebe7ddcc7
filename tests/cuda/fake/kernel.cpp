// Modules are images of the host shim; a kernel runs on the stream's thread.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "fake.h"
#include "shim.h"

struct CUfunc_st {
  CUcontext context = nullptr;
  std::string name;
  lazyt_shim_entry entry = nullptr;
  lazyt_shim_info info{};
  uint32_t most_shared = 48 << 10;  // dynamic, unless the attribute allows more
};

namespace fake {

CUresult make_launch(CUfunction function, const unsigned* grid, const unsigned* block, unsigned shared, void** parameters,
                     const char* name, Launch& out) {
  require_handle(function, name);
  if (count_down(state().config.fail_launch)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  ++state().counts.launches;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  const bool fits = grid[0] && grid[1] && grid[2] && grid[0] <= INT32_MAX && grid[1] <= 65535 && grid[2] <= 65535 && threads &&
                    block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64;
  if (!fits || shared > function->most_shared) return CUDA_ERROR_INVALID_VALUE;
  if (threads > function->info.max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  out.function = function;
  std::memcpy(out.grid, grid, sizeof out.grid);
  std::memcpy(out.block, block, sizeof out.block);
  out.shared_bytes = shared;
  if (function->info.param_bytes && !parameters) return CUDA_ERROR_INVALID_VALUE;
  out.parameter.resize(function->info.param_bytes);
  if (function->info.param_bytes) std::memcpy(out.parameter.data(), parameters[0], out.parameter.size());
  return CUDA_SUCCESS;
}

CUresult run_launch(const Launch& launch) {
  {
    const Lock lock(state().mutex);
    if (count_down(state().config.lose_device)) return CUDA_ERROR_ECC_UNCORRECTABLE;
    if (count_down(state().config.fault_kernel)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  lazyt_shim_launch call{};
  std::memcpy(call.grid, launch.grid, sizeof call.grid);
  std::memcpy(call.block, launch.block, sizeof call.block);
  call.shared_bytes = launch.shared_bytes;
  void* parameter = const_cast<std::byte*>(launch.parameter.data());
  call.params = &parameter;
  const int result = launch.function->entry(&call);
  if (result) std::fprintf(stderr, "fake CUDA: kernel %s: %s\n", launch.function->name.c_str(), call.error);
  return result == 0 ? CUDA_SUCCESS : result == 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* out, const void* image) {
  CUctx_st* context;
  {
    const Lock lock(state().mutex);
    CUresult result;
    context = current(result);
    if (!context) return result;
  }
  lazyt_shim_image header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.magic, LAZYT_SHIM_MAGIC, sizeof header.magic) != 0) return CUDA_ERROR_INVALID_IMAGE;
  // A name that was never used: dlopen gives a loaded library again for its name.
  std::string path = (std::filesystem::temp_directory_path() / "lazyt_fake_module_XXXXXX").string();
  const int file = mkstemp(path.data());
  const char* bytes = static_cast<const char*>(image) + sizeof header;
  for (uint64_t done = 0; done < header.library_bytes;) {
    const ssize_t n = write(file, bytes + done, header.library_bytes - done);
    if (n <= 0) misuse("cuModuleLoadData", "cannot write the image");
    done += static_cast<uint64_t>(n);
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  close(file);
  unlink(path.c_str());
  if (!library) {
    std::fprintf(stderr, "fake CUDA: cuModuleLoadData: %s\n", dlerror());
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const Lock lock(state().mutex);
  *out = new CUmod_st;
  (*out)->context = context;
  (*out)->library = library;
  add_handle(*out);
  context->handles.insert(*out);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  Lock lock(state().mutex);
  require_handle(module, "cuModuleUnload");
  drop_handle(module);
  module->context->handles.erase(module);
  for (const auto& [name, function] : module->functions) drop_handle(function.get());
  lock.unlock();
  dlclose(module->library);
  delete module;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  const Lock lock(state().mutex);
  require_handle(module, "cuModuleGetFunction");
  auto& function = module->functions[name];
  if (!function) {
    void* entry = dlsym(module->library, name);
    void* info = dlsym(module->library, (std::string(name) + "__info").c_str());
    if (!entry || !info) {
      module->functions.erase(name);
      return CUDA_ERROR_NOT_FOUND;
    }
    function = std::make_unique<CUfunc_st>(
        CUfunc_st{module->context, name, reinterpret_cast<lazyt_shim_entry>(entry), *static_cast<lazyt_shim_info*>(info)});
    add_handle(function.get());
  }
  *out = function.get();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  const Lock lock(state().mutex);
  require_handle(function, "cuFuncSetAttribute");
  if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > 227 << 10) return CUDA_ERROR_INVALID_VALUE;
  function->most_shared = static_cast<uint32_t>(value);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                unsigned shared, CUstream stream, void** parameters, void** extra) {
  const Lock lock(state().mutex);
  if (extra) misuse("cuLaunchKernel", "`extra` is not known here");
  if (const CUresult bad = check_stream(stream, "cuLaunchKernel")) return bad;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  Launch launch;
  if (const CUresult bad = make_launch(function, grid, block, shared, parameters, "cuLaunchKernel", launch)) return bad;
  if (function->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) {
    CUgraphNode node = make_node(CU_GRAPH_NODE_TYPE_KERNEL);
    node->launch = std::move(launch);
    stream->capture->nodes.push_back(node);
    return CUDA_SUCCESS;
  }
  enqueue(stream, [launch = std::move(launch)] { return run_launch(launch); });
  return CUDA_SUCCESS;
}

}  // extern "C"
