// A device of the fake driver, and programs whose steps are written by hand.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../../plugins/cuda/buffer.h"
#include "../../plugins/cuda/execute.h"
#include "loader/handles.h"

namespace lazyt::cuda {

struct EventRelease {
  void operator()(lazyt_event_t* e) const { Work::table().release(e); }
};
struct BufferRelease {
  void operator()(lazyt_buffer_t* b) const { kBufferTable.release(b); }
};
using EventPtr = std::unique_ptr<lazyt_event_t, EventRelease>;
using BufferPtr = std::unique_ptr<lazyt_buffer_t, BufferRelease>;
using Floats = std::vector<float>;

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(plugin::adopt_host(loader::host_table()), nullptr);
    ASSERT_EQ(libraries().why_none, "");
    device_ = open(0);
  }
  void TearDown() override {
    for (CUmodule module : modules_) {
      const Current current(device().context->lost() ? *context_of_modules_ : *device().context);
      cu().cuModuleUnload(module);
    }
    kDeviceTable.close(device_);
    configure("delay_us=0,fail_alloc=0,fail_launch=0,fault_kernel=0,lose_device=0,memory=1073741824");
  }

  static void configure(const char* text) {
    reinterpret_cast<void (*)(const char*)>(dlsym(libraries().driver.handle, "lazyt_fake_cuda"))(text);
  }
  static uint64_t counted(const char* name) {
    return reinterpret_cast<uint64_t (*)(const char*)>(dlsym(libraries().driver.handle, "lazyt_fake_cuda_count"))(name);
  }

  static lazyt_device_t* open(uint32_t index) {
    lazyt_device_t* device = nullptr;
    EXPECT_EQ(text_of(kDeviceTable.open(index, &device)), "");
    return device;
  }
  Device& device() const { return plugin::from_c(device_); }

  // "" = OK. Takes the status.
  static std::string text_of(lazyt_status_t* status) {
    return status ? loader::take_status(status).to_string() : "";
  }
  static std::string wait(const EventPtr& event) { return text_of(Work::table().wait(event.get(), LAZYT_WAIT_FOREVER)); }
  static bool ready(const EventPtr& event) {
    uint32_t ready = 0;
    Work::table().ready(event.get(), &ready);
    return ready;
  }

  static BufferPtr alloc(lazyt_device_t* device, uint64_t bytes) {
    lazyt_buffer_desc_t desc{.struct_size = sizeof desc, .size_bytes = bytes};
    lazyt_buffer_t* out = nullptr;
    EXPECT_EQ(text_of(kBufferTable.alloc(device, &desc, &out)), "");
    return BufferPtr(out);
  }
  BufferPtr alloc(uint64_t floats) const { return alloc(device_, floats * 4); }
  static BufferPtr upload(lazyt_device_t* device, const Floats& values) {
    lazyt_host_bytes_t bytes{.struct_size = sizeof bytes, .data = values.data(), .size_bytes = values.size() * 4};
    lazyt_buffer_t* out = nullptr;
    EXPECT_EQ(text_of(kBufferTable.from_host(device, &bytes, &out)), "");
    return BufferPtr(out);
  }
  BufferPtr upload(const Floats& values) const { return upload(device_, values); }
  static EventPtr read(const BufferPtr& buffer, Floats& out, const std::vector<lazyt_event_t*>& waits = {}) {
    lazyt_event_t* event = nullptr;
    EXPECT_EQ(text_of(kBufferTable.to_host(buffer.get(), 0, out.data(), out.size() * 4, {waits.data(), waits.size()}, &event)), "");
    return EventPtr(event);
  }
  static Floats download(const BufferPtr& buffer, size_t count, const std::vector<lazyt_event_t*>& waits = {}) {
    Floats out(count);
    EXPECT_EQ(wait(read(buffer, out, waits)), "");
    return out;
  }

  // ---- programs
  // y[i] = x[i] * factor + shift, all float.
  static constexpr const char* kScale =
      "template <int N> struct lazyt_args { unsigned long long w[N]; };\n"
      "LAZYT_KERNEL(scale, 5, 256) {\n"
      "  const float* x = (const float*)a.w[0]; float* y = (float*)a.w[1]; const long long n = (long long)a.w[2];\n"
      "  double f, s; memcpy(&f, &a.w[3], 8); memcpy(&s, &a.w[4], 8);\n"
      "  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) y[i] = x[i] * (float)f + (float)s;\n"
      "}\n";

  CUfunction function(const char* source, const char* name, Device& on) {
    const NvrtcApi& rtc = libraries().rtc;
    nvrtcProgram program = nullptr;
    EXPECT_EQ(rtc.nvrtcCreateProgram(&program, source, "test.cu", 0, nullptr, nullptr), NVRTC_SUCCESS);
    const char* options[] = {"--gpu-architecture=sm_90"};
    EXPECT_EQ(rtc.nvrtcCompileProgram(program, 1, options), NVRTC_SUCCESS);
    size_t size = 0;
    rtc.nvrtcGetCUBINSize(program, &size);
    std::string image(size, 0);
    rtc.nvrtcGetCUBIN(program, image.data());
    rtc.nvrtcDestroyProgram(&program);
    const Current current(*on.context);
    CUmodule module = nullptr;
    CUfunction out = nullptr;
    EXPECT_EQ(cu().cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
    EXPECT_EQ(cu().cuModuleGetFunction(&out, module, name), CUDA_SUCCESS);
    modules_.push_back(module);
    context_of_modules_ = on.context;
    return out;
  }
  static Word number(uint32_t input) {
    return Word::f64({.constant = false, .input = input, .dtype = LAZYT_DTYPE_FLOAT64});
  }
  static Word number(double value) { return Word::f64({.d = value}); }
  static Tensor tensor(StorageId storage, int64_t count) {
    return {storage, LAZYT_DTYPE_FLOAT32, Layout::dense(Dims{count})};
  }

  std::unique_ptr<KernelStep> scale(StorageId from, StorageId to, int64_t count, Word factor, Word shift) {
    if (!scale_) scale_ = function(kScale, "scale", device());
    auto step = std::make_unique<KernelStep>();
    step->source.name = "scale";
    step->function = scale_;
    step->block = {256, 1, 1};
    step->words = {Word::address(tensor(from, count)), Word::address(tensor(to, count)), Word::integer(count), factor, shift};
    return step;
  }

  // Input 0 is x, input 1 a number f; output 0 is `steps` times x -> x * f + 1. Storages: x, f, y, two pieces of the arena.
  std::unique_ptr<Executable> chain(int64_t count, int steps) {
    using Piece = toolkit::Plan::Piece;
    auto exe = std::make_unique<Executable>(device());
    const uint64_t bytes = static_cast<uint64_t>(count) * 4;
    exe->inputs = {{bytes, false}, {0, true}};
    exe->outputs = {{bytes, LAZYT_NONE}};
    const uint64_t piece = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    exe->storages = {{Piece::kInput, 0, 0}, {Piece::kInput, 1, 0}, {Piece::kOutput, 0, 0}, {Piece::kArena, 0, 0}, {Piece::kArena, 0, piece}};
    exe->arena_bytes = 2 * piece;
    for (int i = 0; i < steps; ++i) {
      const StorageId from = i == 0 ? 0 : 3 + static_cast<StorageId>(i - 1) % 2, to = i == steps - 1 ? 2 : 3 + static_cast<StorageId>(i) % 2;
      exe->nodes.push_back("test::scale, node " + std::to_string(i));
      exe->step_nodes.push_back(static_cast<uint32_t>(i));
      exe->steps.push_back(scale(from, to, count, number(1u), number(1.0)));
    }
    prepare(*exe);
    return exe;
  }
  static Floats expected(Floats x, double f, int steps) {
    for (int i = 0; i < steps; ++i)
      for (float& v : x) v = v * static_cast<float>(f) + 1;
    return x;
  }

  static EventPtr run(Executable& exe, const BufferPtr& x, double f, const BufferPtr& y, const std::vector<lazyt_event_t*>& waits = {}) {
    lazyt_execute_input_t inputs[2] = {{.buffer = x.get()}, {}};
    std::memcpy(inputs[1].scalar.bytes, &f, sizeof f);
    lazyt_buffer_t* outputs[1] = {y.get()};
    lazyt_execute_args_t args{.struct_size = sizeof args,
                              .inputs = inputs,
                              .input_count = 2,
                              .input_stride = sizeof inputs[0],
                              .outputs = outputs,
                              .output_count = 1,
                              .waits = {waits.data(), waits.size()}};
    lazyt_event_t* event = nullptr;
    EXPECT_EQ(text_of(execute(plugin::to_handle<lazyt_executable_t>(&exe), &args, &event)), "");
    return EventPtr(event);
  }

  lazyt_device_t* device_ = nullptr;
  CUfunction scale_ = nullptr;
  std::vector<CUmodule> modules_;
  ContextRef context_of_modules_;
};

inline Floats numbers(size_t count) {
  Floats out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(i % 1001) * 0.25f;
  return out;
}

}  // namespace lazyt::cuda
