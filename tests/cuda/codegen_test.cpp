// From texts of kernels to functions: compiled together, kept in the process and on disk, errors that name
// the kernel.
#include "../../plugins/cuda/codegen/cache.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fixture.h"

namespace lazyt::cuda {
namespace {

namespace fs = std::filesystem;

class Codegen : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    std::string name = testing::TempDir() + "lazyt-cuda-cache-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override {
    fs::remove_all(folder_);
    CudaTest::TearDown();
  }

  // out[0] = value.
  static KernelSource constant(const std::string& value) {
    return specialise("constant",
                      "LAZYT_KERNEL(KERNEL, 1, 32) { if (threadIdx.x == 0) *(int*)a.w[0] = VALUE; }",
                      {{"VALUE", value}});
  }
  static std::unique_ptr<KernelStep> step_of(KernelSource source) {
    auto step = std::make_unique<KernelStep>();
    step->source = std::move(source);
    step->block = {32, 1, 1};
    return step;
  }
  void load(const std::vector<KernelStep*>& steps) {
    load_kernels(steps, *device().context, device().capability);
  }
  int run(const KernelStep& step) {
    int out = -1;
    uint64_t word = reinterpret_cast<uint64_t>(&out);  // the fake's memory is the host's
    void* parameter = &word;
    const Current current(*device().context);
    EXPECT_EQ(cu().cuLaunchKernel(step.function, 1, 1, 1, 32, 1, 1, step.shared_bytes,
                                  device().compute.handle(), &parameter, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(cu().cuStreamSynchronize(device().compute.handle()), CUDA_SUCCESS);
    return out;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& f : fs::directory_iterator(folder_)) out.push_back(f.path().string());
    std::sort(out.begin(), out.end());
    return out;
  }

  std::string folder_;
};

TEST_F(Codegen, KernelsOfOneProgramAreCompiledTogetherAndEqualTextsOnce) {
  std::vector<std::unique_ptr<KernelStep>> steps;
  std::vector<KernelStep*> all;
  for (int i = 0; i < 11; ++i) {
    steps.push_back(step_of(constant(std::to_string(1000 + i % 10))));
    all.push_back(steps.back().get());
  }
  load(all);
  for (int i = 0; i < 11; ++i) EXPECT_EQ(run(*all[static_cast<size_t>(i)]), 1000 + i % 10);
  EXPECT_EQ(all[0]->function, all[10]->function);
  EXPECT_NE(all[0]->function, all[1]->function);
}

TEST_F(Codegen, AKernelThatIsKnownInTheProcessIsNotCompiledAgain) {
  auto first = step_of(constant("77")), second = step_of(constant("77"));
  load({first.get()});
  load({second.get()});
  EXPECT_EQ(first->function, second->function);
}

TEST_F(Codegen, AnErrorNamesTheKernelAndSaysWhatNvrtcSays) {
  auto good = step_of(constant("1")), bad = step_of(constant("nobody_defines_this"));
  try {
    load({good.get(), bad.get()});
    FAIL() << "compiled";
  } catch (const plugin::Error& e) {
    EXPECT_EQ(e.code(), LAZYT_CODE_INTERNAL);
    EXPECT_NE(e.message().find(bad->source.name), std::string::npos) << e.message();
    EXPECT_EQ(e.message().find(good->source.name), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("nobody_defines_this"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("NVRTC_ERROR_COMPILATION"), std::string::npos) << e.message();
  }
  load({good.get()});
  EXPECT_EQ(run(*good), 1);
}

TEST_F(Codegen, SharedMemoryBeyondTheDefaultIsAllowedForTheKernelThatWantsIt) {
  auto step = step_of(specialise("large",
                                 "LAZYT_KERNEL(KERNEL, 1, 32) { LAZYT_DYNAMIC_SHARED(int, x); x[threadIdx.x] "
                                 "= 5; *(int*)a.w[0] = x[threadIdx.x]; }",
                                 {}));
  step->shared_bytes = 100 << 10;
  load({step.get()});
  EXPECT_EQ(run(*step), 5);
}

TEST_F(Codegen, AGpuThatNvrtcDoesNotKnowGetsPtx) {
  EXPECT_EQ(target_of(90).option(), "--gpu-architecture=sm_90");
  EXPECT_EQ(target_of(99).option(), "--gpu-architecture=sm_90")
      << "a later minor of a known major runs its machine code";
  EXPECT_EQ(target_of(150).option(), "--gpu-architecture=compute_121");
}

// ---- files

TEST_F(Codegen, AFileIsFoundByEveryKernelThatItHoldsAndByNoOther) {
  const DiskCache cache(folder_, 1 << 20);
  const KernelSource a = constant("1"), b = constant("2"), c = constant("3");
  cache.put({&a, &b}, "identity", std::string("code\0code", 9));
  EXPECT_EQ(cache.find(a, "identity"), std::string("code\0code", 9));
  EXPECT_EQ(cache.find(b, "identity"), std::string("code\0code", 9));
  EXPECT_EQ(cache.find(c, "identity"), std::nullopt);
  EXPECT_EQ(cache.find(a, "another compiler"), std::nullopt);
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(Codegen, ADamagedFileIsNotUsed) {
  const DiskCache cache(folder_, 1 << 20);
  const KernelSource a = constant("1"), other = constant("2");
  cache.put({&a}, "identity", std::string(100, 'x'));
  const std::string path = files().at(0);
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (size_t at = 0; at < bytes.size(); at += 7) {
    std::string damaged = bytes;
    damaged[at] ^= 0x10;
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_EQ(cache.find(a, "identity"), std::nullopt) << "a bit flipped at " << at;
    std::ofstream(path, std::ios::binary) << bytes.substr(0, at);
    EXPECT_EQ(cache.find(a, "identity"), std::nullopt) << "cut at " << at;
  }
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_TRUE(cache.find(a, "identity"));
  // A file of another kernel under this one's name.
  cache.put({&other}, "identity", "theirs");
  for (const std::string& f : files())
    if (f != path) fs::copy_file(f, path, fs::copy_options::overwrite_existing);
  EXPECT_EQ(cache.find(a, "identity"), std::nullopt);
}

TEST_F(Codegen, TheFolderStaysBelowItsLimit) {
  const DiskCache cache(folder_, 40000);
  std::vector<KernelSource> kernels;
  for (int i = 0; i < 30; ++i) kernels.push_back(constant(std::to_string(i)));
  for (const KernelSource& k : kernels) cache.put({&k}, "identity", std::string(4000, 'x'));
  uint64_t bytes = 0;
  for (const std::string& f : files()) bytes += fs::file_size(f);
  EXPECT_LE(bytes, 40000u);
  EXPECT_TRUE(cache.find(kernels.back(), "identity")) << "the newest stays";
  EXPECT_FALSE(cache.find(kernels.front(), "identity"));
}

TEST_F(Codegen, AFolderThatCannotBeWrittenToKeepsNothingAndIsNoError) {
  const DiskCache cache("/proc/nowhere", 1 << 20);
  const KernelSource a = constant("1");
  cache.put({&a}, "identity", "code");
  EXPECT_EQ(cache.find(a, "identity"), std::nullopt);
}

}  // namespace
}  // namespace lazyt::cuda
