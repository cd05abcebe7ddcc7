// Running an executable: all of it is submitted to the device's compute stream, and the call returns.
#include "execute.h"

#include <bit>
#include <cstring>

#include "buffer.h"
#include "graph.h"
#include "profile.h"

namespace lazyt::cuda {
namespace {

using plugin::Error;
using plugin::from_c;

// Less is launched step by step: building a graph would not pay.
constexpr size_t kFewestSteps = 3;
constexpr uint64_t kRunsBefore = 2;

bool graphs_wanted() {
  static const bool wanted = [] {
    const std::string_view option = plugin::option("cuda", "graphs");
    return option.empty() || plugin::is_on(option);
  }();
  return wanted;
}

// For finding the kernel that broke the device: each step is waited for.
bool is_synchronous() {
  static const bool on = plugin::is_on(plugin::option("cuda", "sync"));
  return on;
}

Buffer& require_buffer(const Executable& exe, lazyt_buffer_t* handle, uint64_t needed, const char* what, size_t index) {
  if (!handle) throw Error(LAZYT_CODE_INVALID_ARGUMENT, std::string("cuda: ") + what + " " + std::to_string(index) + " has no buffer");
  Buffer& buffer = from_c(handle);
  if (buffer.device.context->index != exe.device.context->index)
    throw Error(LAZYT_CODE_INVALID_ARGUMENT, std::string("cuda: ") + what + " " + std::to_string(index) + " is on device " +
                                                 std::to_string(buffer.device.context->index) + ", the executable on device " +
                                                 std::to_string(exe.device.context->index));
  if (buffer.size < needed)
    throw Error(LAZYT_CODE_INVALID_ARGUMENT, std::string("cuda: ") + what + " " + std::to_string(index) + " needs " +
                                                 std::to_string(needed) + " bytes, its buffer has " + std::to_string(buffer.size));
  return buffer;
}

// Where every storage lies in this run. The stream is ordered behind uploads that fill inputs.
void place(const Executable& exe, const lazyt_execute_args_t& args, CUdeviceptr arena, std::vector<CUdeviceptr>& storages) {
  using Kind = toolkit::Plan::Piece::Kind;
  const plugin::Records<lazyt_execute_input_t> inputs(args.inputs, args.input_count, args.input_stride);
  const CUstream stream = exe.device.compute.handle();
  auto input = [&](uint32_t i) {
    Buffer& buffer = require_buffer(exe, inputs[i].buffer, exe.inputs[i].size_bytes, "input", i);
    buffer.order(*exe.device.context, stream);
    return buffer.address();
  };
  auto output = [&](uint32_t i) {
    Buffer& buffer = require_buffer(exe, args.outputs[i], exe.outputs[i].size_bytes, "output", i);
    buffer.order(*exe.device.context, stream);
    return buffer.address();
  };
  storages.resize(exe.storages.size());
  for (size_t i = 0; i < storages.size(); ++i) {
    const toolkit::Plan::Piece& piece = exe.storages[i];
    switch (piece.kind) {
      case Kind::kInput: storages[i] = exe.inputs[piece.index].host_scalar ? 0 : input(piece.index); break;
      case Kind::kOutput: storages[i] = output(piece.index); break;
      case Kind::kConstant: storages[i] = exe.constant_memory.address() + piece.offset; break;
      case Kind::kKept: storages[i] = exe.kept.address() + piece.offset; break;
      case Kind::kArena: storages[i] = arena + piece.offset; break;
      case Kind::kBeside:
        storages[i] = args.outputs[piece.index] == inputs[exe.outputs[piece.index].donor].buffer ? arena + piece.offset
                                                                                                : output(piece.index);
        break;
    }
  }
}

// Step by step.
void submit_all(const Executable& exe, const Run& run, std::vector<uint64_t>& words) {
  for (size_t i = 0; i < exe.steps.size(); ++i) {
    try {
      run.submit(*exe.steps[i], words);
      if (is_synchronous()) run.device.context->check(cu().cuStreamSynchronize(run.stream), exe.steps[i]->describe().c_str());
    } catch (...) {
      if (exe.step_nodes[i] >= exe.nodes.size()) throw;
      throw plugin::current_error().note(exe.nodes[exe.step_nodes[i]], "while " + exe.steps[i]->describe() + " was run");
    }
  }
}

void run_steps(Executable& exe, const Run& run) {
  thread_local std::vector<uint64_t> words;
  if (Profile* profile = Profile::wanted()) {
    if (++exe.runs >= Profile::kProfiledFrom) return profile->run(exe, run);
    return submit_all(exe, run, words);
  }
  const bool as_graph = exe.steps.size() >= kFewestSteps && exe.runs >= kRunsBefore && graphs_wanted() && !is_synchronous();
  if (!as_graph) {
    ++exe.runs;
    return submit_all(exe, run, words);
  }
  words.clear();
  for (const auto& step : exe.steps)
    if (const auto* kernel = as<KernelStep>(*step)) {
      words.resize(words.size() + kernel->words.size());
      run.fill(kernel->words, words.data() + words.size() - kernel->words.size());
    }
  // Library steps read numbers, too, which then are no words of kernels: they count as changed when any of them is.
  const plugin::Records<lazyt_execute_input_t> inputs(run.inputs, exe.inputs.size(), run.input_stride);
  for (size_t i = 0; i < exe.inputs.size(); ++i) {
    if (!exe.inputs[i].host_scalar) continue;
    words.resize(words.size() + 2);
    std::memcpy(&words[words.size() - 2], inputs[i].scalar.bytes, 16);
  }
  if (!exe.graphs) exe.graphs = std::make_shared<Graphs>(exe.device);
  exe.graphs->launch(exe, run, words);
}

// What kernels write: see Fault.
struct FaultWords {
  uint64_t site = 0;
  int64_t value = 0;
};

// Submits all of a run and what tells whether its kernels found their input wrong.
Work* submit(Executable& exe, const std::vector<CUdeviceptr>& storages, const lazyt_execute_args_t& args, std::shared_ptr<Waits> waits) {
  Device& device = exe.device;
  const Context& context = *device.context;
  const CUstream stream = device.compute.handle();
  const CUdeviceptr words = exe.fault_memory.address();
  if (words) context.check(cu().cuMemsetD8Async(words, 0, sizeof(FaultWords), stream), "cuMemsetD8Async");
  run_steps(exe, {device, stream, storages, args.inputs, args.input_stride, words});
  if (!words) return device.compute.finish(std::move(waits));

  // Runs that wait to be looked at fill the staging memory only where the host is far ahead; the stream's own thread must not
  // wait for them.
  Staging& staging = device.fault_staging;
  const Staging::Slice slice = staging.take(sizeof(FaultWords), !device.compute.worker().is_current());
  auto pageable = slice.data ? nullptr : std::make_shared<FaultWords>();
  void* const to = slice.data ? static_cast<void*>(slice.data) : pageable.get();
  if (const CUresult result = cu().cuMemcpyDtoHAsync(to, words, sizeof(FaultWords), stream); result != CUDA_SUCCESS) {
    if (slice.data) staging.give(slice);
    context.check(result, "cuMemcpyDtoHAsync");
  }
  return device.compute.finish(
      std::move(waits),
      [to, pageable, faults = exe.faults] {
        FaultWords seen;
        std::memcpy(&seen, to, sizeof seen);
        if (seen.site == 0 || seen.site > faults->size()) return;
        const Fault& fault = (*faults)[seen.site - 1];
        Error e(fault.code, fault.before + (fault.shown ? std::to_string(seen.value) : "") + fault.after);
        e.note(fault.node, "while it was run");
        throw e;
      },
      [&staging, slice] {
        if (slice.data) staging.give(slice);
      });
}

}  // namespace

CUdeviceptr Scratch::reserve(uint64_t bytes) {
  if (bytes <= block_.bytes()) return block_.address();
  try {
    Block larger(device_.memory, bytes);
    retire();
    block_ = std::move(larger);
  } catch (const Error&) {  // not both: the old one may be all that is missing
    retire();
    block_ = Block(device_.memory, bytes);
  }
  return block_.address();
}

void Scratch::retire() noexcept {
  if (!block_.address()) return;
  try {
    const Current current(*device_.context);
    block_.busy_until(device_.compute.mark());
  } catch (...) {  // lost: nothing runs any more
  }
  block_ = {};
}

void prepare(Executable& exe) {
  Device& device = exe.device;
  const Current current(*device.context);
  if (!exe.constants.empty()) {
    exe.constant_memory = Block(device.memory, exe.constants.size());
    device.context->check(
        cu().cuMemcpyHtoDAsync(exe.constant_memory.address(), exe.constants.data(), exe.constants.size(), device.compute.handle()),
        "cuMemcpyHtoDAsync");
    device.compute.mark()->wait();
  }
  exe.constants = {};
  exe.kept = Block(device.memory, exe.kept_bytes);
  if (!exe.faults->empty()) exe.fault_memory = Block(device.memory, sizeof(FaultWords));
  const std::lock_guard lock(device.scratch_mutex);
  exe.scratch = device.scratch.lock();
  if (!exe.scratch) device.scratch = exe.scratch = std::make_shared<Scratch>(device);
}

void Run::fill(const std::vector<Word>& words, uint64_t* out) const {
  for (const Word& w : words) {
    switch (w.kind) {
      case Word::kAddress: *out++ = storages[w.storage] + w.bits; break;
      case Word::kFloat: *out++ = std::bit_cast<uint64_t>(as_double(w.number)); break;
      case Word::kInt: *out++ = static_cast<uint64_t>(as_int(w.number)); break;
      case Word::kBits: *out++ = w.bits; break;
      case Word::kFaults: *out++ = faults; break;
    }
  }
}

void Run::submit(const Step& step, std::vector<uint64_t>& words) const {
  if (const auto* kernel = as<KernelStep>(step)) {
    words.resize(kernel->words.size());
    fill(kernel->words, words.data());
    void* parameter = words.data();
    device.context->check(
        cu().cuLaunchKernel(kernel->function, kernel->grid[0], kernel->grid[1], kernel->grid[2], kernel->block[0], kernel->block[1],
                            kernel->block[2], kernel->shared_bytes, stream, &parameter, nullptr),
        "cuLaunchKernel");
  } else if (const auto* copy = as<CopyStep>(step)) {
    if (is_needed(*copy)) device.context->check(cu().cuMemcpyDtoDAsync(at(copy->to), at(copy->from), copy->bytes, stream), "cuMemcpyDtoDAsync");
  } else {
    as<LibraryStep>(step)->run(*this);
  }
}

// What was submitted may use the memory until it is done.
Executable::~Executable() {
  try {
    const Current current(*device.context);
    const MarkRef mark = device.compute.mark();
    constant_memory.busy_until(mark);
    kept.busy_until(mark);
    fault_memory.busy_until(mark);
  } catch (...) {  // lost: nothing runs any more
  }
}

lazyt_status_t* execute(lazyt_executable_t* handle, const lazyt_execute_args_t* args, lazyt_event_t** out_event) {
  return plugin::guard([&] {
    Executable& exe = from_c(handle);
    plugin::require(args->input_count == exe.inputs.size(), "cuda: execute: wrong number of inputs");
    plugin::require(args->output_count == exe.outputs.size(), "cuda: execute: wrong number of outputs");
    Work* work = nullptr;
    lazyt_status_t* status = plugin::guard([&]() -> lazyt_status_t* {
      Device& device = exe.device;
      device.context->require_alive();
      const Current current(*device.context);
      auto waits = std::make_shared<Waits>(*device.context, device.compute.handle(), args->waits);
      if (waits->failed()) return waits->error();
      // Memory first: a failure here has consumed nothing (EXE-6).
      const CUdeviceptr arena = exe.arena_bytes ? exe.scratch->reserve(exe.arena_bytes) : 0;
      thread_local std::vector<CUdeviceptr> storages;
      place(exe, *args, arena, storages);
      try {
        work = submit(exe, storages, *args, std::move(waits));
      } catch (...) {
        // The event will be ready: nothing that was submitted may write any more.
        cu().cuStreamSynchronize(device.compute.handle());
        throw;
      }
      return nullptr;
    });
    *out_event = (work ? work : Work::make_ready(status))->handle();
  });
}

}  // namespace lazyt::cuda
