#include "graph.h"

#include <algorithm>

namespace lazyt::cuda {
namespace {

// Outputs (gradients) of the launches that may be under way (LAZYT_QUEUE, 4), of the one being made, and of the program.
constexpr size_t kVariants = 6;

CUDA_KERNEL_NODE_PARAMS kernel_params(const KernelStep& step, void** words) {
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = step.function;
  p.gridDimX = step.grid[0], p.gridDimY = step.grid[1], p.gridDimZ = step.grid[2];
  p.blockDimX = step.block[0], p.blockDimY = step.block[1], p.blockDimZ = step.block[2];
  p.sharedMemBytes = step.shared_bytes;
  p.kernelParams = words;
  return p;
}

CUDA_MEMCPY3D copy_params(const CopyStep& step, const Run& run) {
  CUDA_MEMCPY3D p{};
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  p.srcDevice = run.at(step.from);
  p.dstDevice = run.at(step.to);
  p.WidthInBytes = step.bytes;
  p.Height = p.Depth = 1;
  return p;
}

// Which copies a run needs is part of a graph's shape.
bool same_copies(const Executable& executable, const Run& run, const std::vector<CUdeviceptr>& storages) {
  const Run other{run.device, run.stream, storages, run.inputs, run.input_stride};
  return std::all_of(executable.steps.begin(), executable.steps.end(), [&](const auto& step) {
    const auto* copy = as<CopyStep>(*step);
    return !copy || run.is_needed(*copy) == other.is_needed(*copy);
  });
}

}  // namespace

Graphs::Variant::~Variant() {
  if (exec) cu().cuGraphExecDestroy(exec);
  if (graph) cu().cuGraphDestroy(graph);
  for (const Node& n : nodes)
    if (n.child) cu().cuGraphDestroy(n.child);
}

// Launches may still run: what they use goes behind them, on the stream's thread.
Graphs::~Graphs() {
  if (variants_.empty()) return;
  try {
    const Current current(*device_.context);
    device_.compute.worker().post([variants = std::move(variants_), mark = device_.compute.mark(), context = device_.context]() mutable {
      try {
        mark->wait();
      } catch (...) {  // lost: nothing runs any more
      }
      CUcontext before = nullptr;
      if (cu().cuCtxPushCurrent(context->handle()) != CUDA_SUCCESS) return;
      variants.clear();
      cu().cuCtxPopCurrent(&before);
    });
  } catch (...) {  // lost: they go with the process
  }
}

CUgraph Graphs::capture(const LibraryStep& step, const Run& run) {
  const Context& context = *device_.context;
  const CUstream stream = device_.capture.handle();
  // Relaxed: other threads, and the library itself, may allocate meanwhile.
  context.check(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  CUgraph captured = nullptr;
  lazyt_status_t* failed = plugin::guard([&] { step.run({run.device, stream, run.storages, run.inputs, run.input_stride}); });
  const CUresult result = cu().cuStreamEndCapture(stream, &captured);
  if (failed && captured) cu().cuGraphDestroy(captured);
  plugin::check(failed);
  context.check(result, "cuStreamEndCapture");
  return captured;
}

std::shared_ptr<Graphs::Variant> Graphs::build(const Executable& executable, const Run& run, const std::vector<uint64_t>& words) {
  const Context& context = *device_.context;
  auto made = std::make_shared<Variant>();
  made->words = words;
  made->storages = run.storages;
  context.check(cu().cuGraphCreate(&made->graph, 0), "cuGraphCreate");
  CUgraphNode last = nullptr;
  size_t at = 0;
  for (const auto& step : executable.steps) {
    const size_t after = last ? 1 : 0;
    CUgraphNode node = nullptr;
    CUgraph child = nullptr;
    const size_t first = at;
    if (const auto* kernel = as<KernelStep>(*step)) {
      void* parameter = made->words.data() + at;
      const CUDA_KERNEL_NODE_PARAMS p = kernel_params(*kernel, &parameter);
      context.check(cu().cuGraphAddKernelNode(&node, made->graph, &last, after, &p), "cuGraphAddKernelNode");
      at += kernel->words.size();
    } else if (const auto* copy = as<CopyStep>(*step)) {
      if (!run.is_needed(*copy)) continue;
      const CUDA_MEMCPY3D p = copy_params(*copy, run);
      context.check(cu().cuGraphAddMemcpyNode(&node, made->graph, &last, after, &p, context.handle()), "cuGraphAddMemcpyNode");
    } else {
      child = capture(*as<LibraryStep>(*step), run);
      made->nodes.push_back({step.get(), nullptr, first, child});  // owns it from here on
      context.check(cu().cuGraphAddChildGraphNode(&node, made->graph, &last, after, child), "cuGraphAddChildGraphNode");
      made->nodes.pop_back();
    }
    made->nodes.push_back({step.get(), node, first, child});
    last = node;
  }
  context.check(cu().cuGraphInstantiateWithFlags(&made->exec, made->graph, 0), "cuGraphInstantiate");
  return made;
}

void Graphs::update(Variant& variant, const Run& run, const std::vector<uint64_t>& words) {
  const Context& context = *device_.context;
  const auto moved = [&](StorageId s) { return variant.storages[s] != run.storages[s]; };
  for (Node& n : variant.nodes) {
    if (const auto* kernel = as<KernelStep>(*n.step)) {
      const auto now = words.begin() + static_cast<ptrdiff_t>(n.first_word), end = now + static_cast<ptrdiff_t>(kernel->words.size());
      if (std::equal(now, end, variant.words.begin() + static_cast<ptrdiff_t>(n.first_word))) continue;
      void* parameter = const_cast<uint64_t*>(&*now);
      const CUDA_KERNEL_NODE_PARAMS p = kernel_params(*kernel, &parameter);
      context.check(cu().cuGraphExecKernelNodeSetParams(variant.exec, n.node, &p), "cuGraphExecKernelNodeSetParams");
    } else if (const auto* copy = as<CopyStep>(*n.step)) {
      if (!moved(copy->from.storage) && !moved(copy->to.storage)) continue;
      const CUDA_MEMCPY3D p = copy_params(*copy, run);
      context.check(cu().cuGraphExecMemcpyNodeSetParams(variant.exec, n.node, &p, context.handle()), "cuGraphExecMemcpyNodeSetParams");
    } else {
      // Its numbers are no words of its own: one that has some is captured again whatever has changed.
      const LibraryStep& library = *as<LibraryStep>(*n.step);
      if (!library.reads_numbers() && std::none_of(library.storages.begin(), library.storages.end(), moved)) continue;
      CUgraph child = capture(library, run);
      const CUresult result = cu().cuGraphExecChildGraphNodeSetParams(variant.exec, n.node, child);
      cu().cuGraphDestroy(std::exchange(n.child, child));
      context.check(result, "cuGraphExecChildGraphNodeSetParams");
    }
  }
  variant.words = words;
  variant.storages = run.storages;
}

void Graphs::launch(const Executable& executable, const Run& run, const std::vector<uint64_t>& words) {
  const auto find = [&](auto&& fits) {
    Variant* best = nullptr;
    for (const auto& v : variants_)
      if (fits(*v) && (!best || v->last_use < best->last_use)) best = v.get();
    return best;
  };
  Variant* chosen = find([&](const Variant& v) { return v.storages == run.storages; });
  if (!chosen && variants_.size() >= kVariants)
    chosen = find([&](const Variant& v) { return same_copies(executable, run, v.storages); });
  if (chosen) {
    // Half updated, it would compute with addresses of two runs.
    try {
      if (chosen->words != words || chosen->storages != run.storages) update(*chosen, run, words);
    } catch (...) {
      std::erase_if(variants_, [&](const auto& v) { return v.get() == chosen; });
      throw;
    }
  } else {
    if (variants_.size() >= kVariants) {
      device_.compute.mark()->wait();
      variants_.clear();
    }
    variants_.push_back(build(executable, run, words));
    chosen = variants_.back().get();
  }
  chosen->last_use = ++uses_;
  device_.context->check(cu().cuGraphLaunch(chosen->exec, run.stream), "cuGraphLaunch");
}

}  // namespace lazyt::cuda
