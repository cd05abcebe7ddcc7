#include "cache.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace lazyt::cuda {
namespace {

using plugin::Error;

// A unit begins with the prelude, which takes about as long as two kernels: fewer are not worth a thread.
constexpr size_t kKernelsOfAUnit = 4;

struct Loaded {
  CUfunction function = nullptr;
  uint32_t shared_bytes = 0;  // that it may be launched with
};

// Of one context.
struct Functions {
  std::mutex mutex;
  std::map<std::string, Loaded> by_text;
  std::vector<CUmodule> modules;

  ~Functions() {
    for (CUmodule m : modules) cu().cuModuleUnload(m);
  }
};

void dump(const KernelSource& kernel) {
  static const std::string& folder = *new std::string(plugin::option("cuda", "dump"));
  if (folder.empty()) return;
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  std::ofstream out(folder + "/" + kernel.name + ".cu");
  out << translation_unit({&kernel});
  out.close();
  if (!out)
    throw Error(LAZYT_CODE_INVALID_ARGUMENT, "cuda: LAZYT_CUDA_DUMP: " + folder + " cannot be written to");
}

// Loads a module and finds these kernels in it. False: the driver does not take the code.
bool load(const std::vector<const KernelSource*>& kernels, const std::string& code, const Context& context,
          Functions& to, bool must) {
  CUmodule module = nullptr;
  const CUresult result = cu().cuModuleLoadData(&module, code.data());
  if (result != CUDA_SUCCESS && !must && !is_sticky(result) && result != CUDA_ERROR_OUT_OF_MEMORY)
    return false;
  context.check(result, ("loading kernel " + kernels.front()->name).c_str());
  std::vector<CUfunction> functions(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    const CUresult found = cu().cuModuleGetFunction(&functions[i], module, kernels[i]->name.c_str());
    if (found != CUDA_SUCCESS) cu().cuModuleUnload(module);
    if (found != CUDA_SUCCESS && !must) return false;
    context.check(found, ("finding kernel " + kernels[i]->name).c_str());
  }
  to.modules.push_back(module);
  for (size_t i = 0; i < kernels.size(); ++i) to.by_text[kernels[i]->text] = {functions[i], 48 << 10};
  return true;
}

// What is neither in the process nor on disk, in units of about equal numbers.
void compile_missing(const std::vector<const KernelSource*>& missing, const Target& target,
                     const Context& context, Functions& to) {
  const size_t threads = std::max<size_t>(1, plugin::host().services->thread_count());
  const size_t units = std::clamp<size_t>(missing.size() / kKernelsOfAUnit, 1, threads);
  struct Unit {
    std::vector<const KernelSource*> kernels;
    std::string code;
    std::exception_ptr error;
  };
  std::vector<Unit> work(units);
  for (size_t i = 0; i < missing.size(); ++i) work[i % units].kernels.push_back(missing[i]);
  auto compile = [&](Unit& unit) {
    try {
      unit.code = compile_kernels(unit.kernels, target);
    } catch (...) {
      unit.error = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < units; ++i) helpers.emplace_back(compile, std::ref(work[i]));
  compile(work[0]);
  for (std::thread& t : helpers) t.join();
  for (const Unit& unit : work)
    if (unit.error) std::rethrow_exception(unit.error);
  for (const Unit& unit : work) {
    load(unit.kernels, unit.code, context, to, true);
    DiskCache::standard().put(unit.kernels, compiler_identity(target), unit.code);
  }
}

}  // namespace

void load_kernels(const std::vector<KernelStep*>& steps, const Context& context, int capability) {
  if (steps.empty()) return;
  auto& known = context.kernels<Functions>();
  // One compiles, others who want the same wait for it.
  const std::lock_guard lock(known.mutex);
  const Current current(context);
  std::vector<const KernelSource*> missing;
  std::set<std::string_view> seen;
  const Target target = target_of(capability);
  for (const KernelStep* step : steps) {
    if (known.by_text.count(step->source.text) || !seen.insert(step->source.text).second) continue;
    dump(step->source);
    const auto kept = DiskCache::standard().find(step->source, compiler_identity(target));
    if (!kept || !load({&step->source}, *kept, context, known, false)) missing.push_back(&step->source);
  }
  if (!missing.empty()) compile_missing(missing, target, context, known);
  for (KernelStep* step : steps) {
    Loaded& loaded = known.by_text.at(step->source.text);
    if (step->shared_bytes > loaded.shared_bytes) {
      context.check(cu().cuFuncSetAttribute(loaded.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            static_cast<int>(step->shared_bytes)),
                    ("shared memory of kernel " + step->source.name).c_str());
      loaded.shared_bytes = step->shared_bytes;
    }
    step->function = loaded.function;
  }
}

}  // namespace lazyt::cuda
