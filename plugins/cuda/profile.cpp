#include "profile.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "execute.h"

namespace lazyt::cuda {
namespace {

// Submitted at once; what a stream holds before a submission blocks is some thousand pieces, of which a step and its event
// are two.
constexpr size_t kAtOnce = 200;

void CUDA_CB hold(void* opened) {
  while (!static_cast<std::atomic<bool>*>(opened)->load(std::memory_order_acquire)) std::this_thread::yield();
}

}  // namespace

// Never destroyed: work may still run when statics are.
Profile* Profile::wanted() {
  static Profile* const profile = [] {
    const std::string_view option = plugin::option("cuda", "profile");
    if (option.empty() || option == "0") return static_cast<Profile*>(nullptr);
    std::atexit([] { wanted()->report(); });
    return new Profile(option == "2");
  }();
  return profile;
}

// Not in the driver's table: by the name that CUDA 12.0 has, where headers of today spell a later one.
Profile::Profile(bool by_node) : by_node_(by_node) {
  Library driver = libraries().driver;
  launch_host_ = reinterpret_cast<decltype(launch_host_)>(find_function(driver, "cuLaunchHostFunc"));
  elapsed_ = reinterpret_cast<decltype(elapsed_)>(find_function(driver, "cuEventElapsedTime"));
  if (!driver) throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "cuda: LAZYT_CUDA_PROFILE: " + driver.missing);
}

void Profile::run(const Executable& exe, const Run& run) {
  const Context& context = *run.device.context;
  const auto& steps = exe.steps;
  std::vector<uint64_t> words;
  struct Events {
    ~Events() {
      for (const CUevent e : all) cu().cuEventDestroy(e);
    }
    std::vector<CUevent> all;
  } events;
  for (size_t i = 0; i <= std::min(steps.size(), kAtOnce); ++i) {
    events.all.push_back(nullptr);
    if (const CUresult result = cu().cuEventCreate(&events.all.back(), CU_EVENT_DEFAULT); result != CUDA_SUCCESS) {
      events.all.pop_back();
      context.check(result, "cuEventCreate");
    }
  }
  for (size_t begin = 0; begin < steps.size(); begin += kAtOnce) {
    const size_t count = std::min(steps.size() - begin, kAtOnce);
    {
      std::atomic<bool> opened = false;
      // The function reads `opened` until then: an error, too, opens and waits.
      struct Open {
        ~Open() {
          opened.store(true, std::memory_order_release);
          cu().cuStreamSynchronize(stream);
        }
        std::atomic<bool>& opened;
        CUstream stream;
      } open{opened, run.stream};
      context.check(launch_host_(run.stream, hold, &opened), "cuLaunchHostFunc");
      context.check(cu().cuEventRecord(events.all[0], run.stream), "cuEventRecord");
      for (size_t i = 0; i < count; ++i) {
        run.submit(*steps[begin + i], words);
        context.check(cu().cuEventRecord(events.all[i + 1], run.stream), "cuEventRecord");
      }
    }
    context.check(cu().cuStreamSynchronize(run.stream), "cuStreamSynchronize");
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      float ms = 0;
      context.check(elapsed_(&ms, events.all[i], events.all[i + 1]), "cuEventElapsedTime");
      const size_t step = begin + i;
      std::string key = steps[step]->describe();
      if (const auto* kernel = as<KernelStep>(*steps[step]))
        key += " <" + std::to_string(kernel->grid[0] * kernel->grid[1] * kernel->grid[2]) + " x " +
               std::to_string(kernel->block[0] * kernel->block[1] * kernel->block[2]) + ">";
      if (by_node_ && exe.step_nodes[step] < exe.nodes.size()) key += " | " + exe.nodes[exe.step_nodes[step]];
      Entry& e = entries_[key];
      const double us = ms * 1e3;
      e.us += us;
      e.least = e.runs ? std::min(e.least, us) : us;
      ++e.runs;
    }
  }
  const std::lock_guard lock(mutex_);
  ++executions_;
}

void Profile::report() {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, Entry>> sorted(entries_.begin(), entries_.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  double all = 0;
  for (const auto& [name, e] : sorted) all += e.us;
  std::fprintf(stderr, "%.0f us in %llu runs of programs\n%12s%10s%12s%12s  step\n", all,
               static_cast<unsigned long long>(executions_), "total us", "runs", "mean us", "least us");
  for (const auto& [name, e] : sorted)
    std::fprintf(stderr, "%12.0f%10llu%12.2f%12.2f  %s\n", e.us, static_cast<unsigned long long>(e.runs),
                 e.us / static_cast<double>(e.runs), e.least, name.c_str());
}

}  // namespace lazyt::cuda
