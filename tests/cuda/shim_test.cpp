// The host shim: a fake that lets wrong kernels pass would be worse than none.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "fake/shim.h"

namespace {

// NVRTC of the stand-in, by the real one's signatures.
struct Nvrtc {
  void* library = dlopen(std::getenv("LAZYT_FAKE_NVRTC"), RTLD_NOW | RTLD_LOCAL);
  template <class F>
  F* at(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library, name));
  }
};

struct Compiled {
  int result = -1;
  std::string log;
  void* library = nullptr;
};

constexpr const char* kBegin = "template <int N> struct lazyt_args { unsigned long long w[N]; };\n";

Compiled compile(const std::string& source,
                 const std::vector<const char*>& options = {"--gpu-architecture=sm_90"}) {
  static const Nvrtc nvrtc;
  void* program = nullptr;
  const std::string text = kBegin + source;
  nvrtc.at<int(void**, const char*, const char*, int, const char* const*, const char* const*)>(
      "nvrtcCreateProgram")(&program, text.c_str(), "test.cu", 0, nullptr, nullptr);
  Compiled out;
  out.result = nvrtc.at<int(void*, int, const char* const*)>("nvrtcCompileProgram")(
      program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  nvrtc.at<int(void*, size_t*)>("nvrtcGetProgramLogSize")(program, &size);
  out.log.resize(size);
  nvrtc.at<int(void*, char*)>("nvrtcGetProgramLog")(program, out.log.data());
  if (out.result == 0) {
    nvrtc.at<int(void*, size_t*)>("nvrtcGetCUBINSize")(program, &size);
    std::string image(size, 0);
    nvrtc.at<int(void*, char*)>("nvrtcGetCUBIN")(program, image.data());
    lazyt_shim_image header;
    std::memcpy(&header, image.data(), sizeof header);
    EXPECT_STREQ(header.magic, LAZYT_SHIM_MAGIC);
    EXPECT_EQ(header.library_bytes, size - sizeof header);
    std::string path = testing::TempDir() + "lazyt-shim-test-XXXXXX";
    const int fd = mkstemp(path.data());
    EXPECT_EQ(write(fd, image.data() + sizeof header, header.library_bytes),
              static_cast<ssize_t>(header.library_bytes));
    close(fd);
    out.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(out.library, nullptr) << dlerror();
    unlink(path.c_str());
  }
  nvrtc.at<int(void**)>("nvrtcDestroyProgram")(&program);
  return out;
}

struct Outcome {
  int result;
  std::string error;
};

Outcome launch(const Compiled& compiled, const char* name, std::vector<uint64_t> words, uint32_t blocks,
               uint32_t threads, uint32_t shared = 0) {
  void* params[] = {words.data()};
  lazyt_shim_launch l{{blocks, 1, 1}, {threads, 1, 1}, shared, params, {}};
  const int result = reinterpret_cast<lazyt_shim_entry>(dlsym(compiled.library, name))(&l);
  return {result, l.error};
}

template <class T>
uint64_t word(T* p) {
  return reinterpret_cast<uint64_t>(p);
}

TEST(Shim, EveryThreadOfEveryBlockRunsOnce) {
  const Compiled c = compile(
      R"(LAZYT_KERNEL(count, 1, 256) { atomicAdd((int*)a.w[0] + blockIdx.x * blockDim.x + threadIdx.x, 1); })");
  ASSERT_EQ(c.result, 0) << c.log;
  std::vector<int> hits(7 * 100, 0);
  EXPECT_EQ(launch(c, "count", {word(hits.data())}, 7, 100).result, 0);
  EXPECT_EQ(hits, std::vector<int>(700, 1));
}

TEST(Shim, ABarrierIsReachedByAllBeforeOneGoesOn) {
  const Compiled c = compile(R"(LAZYT_KERNEL(reverse, 1, 1024) {
    __shared__ int x[1024];
    int* p = (int*)a.w[0] + blockIdx.x * 1024;
    for (int k = 0; k < 3; ++k) {
      x[threadIdx.x] = p[threadIdx.x];
      __syncthreads();
      p[threadIdx.x] = x[1023 - threadIdx.x] + 1;
      __syncthreads();
    }
  })");
  ASSERT_EQ(c.result, 0) << c.log;
  std::vector<int> x(2048), expected(2048);
  std::iota(x.begin(), x.end(), 0);
  for (int i = 0; i < 2048; ++i) expected[static_cast<size_t>(i)] = i / 1024 * 1024 + 1023 - i % 1024 + 3;
  EXPECT_EQ(launch(c, "reverse", {word(x.data())}, 2, 1024).result, 0);
  EXPECT_EQ(x, expected);
}

TEST(Shim, LanesExchangeValues) {
  const Compiled c = compile(R"(LAZYT_KERNEL(lanes, 2, 64) {
    double v = ((double*)a.w[0])[threadIdx.x];
    for (int k = 16; k; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);
    const unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    const int first = __shfl_sync(0xffffffffu, (int)threadIdx.x, 3, 8);
    const int below = __shfl_up_sync(0xffffffffu, (int)threadIdx.x, 1), above = __shfl_down_sync(0xffffffffu, (int)threadIdx.x, 4);
    double* out = (double*)a.w[1] + threadIdx.x * 5;
    out[0] = v, out[1] = odd, out[2] = first, out[3] = below, out[4] = above;
  })");
  ASSERT_EQ(c.result, 0) << c.log;
  std::vector<double> x(64), out(64 * 5);
  std::iota(x.begin(), x.end(), 0);
  EXPECT_EQ(launch(c, "lanes", {word(x.data()), word(out.data())}, 1, 64).result, 0);
  for (size_t t = 0; t < 64; ++t) {
    EXPECT_EQ(out[t * 5], t < 32 ? 496 : 1520);
    EXPECT_EQ(out[t * 5 + 1], 0xaaaaaaaau);
    EXPECT_EQ(out[t * 5 + 2], static_cast<double>(t / 8 * 8 + 3));
    EXPECT_EQ(out[t * 5 + 3], static_cast<double>(t % 32 ? t - 1 : t));
    EXPECT_EQ(out[t * 5 + 4], static_cast<double>(t % 32 < 28 ? t + 4 : t));
  }
}

TEST(Shim, LanesOutsideTheMaskNeedNotCome) {
  const Compiled c = compile(R"(LAZYT_KERNEL(part, 1, 32) {
    if (threadIdx.x >= 8) return;
    int v = threadIdx.x;
    for (int k = 4; k; k /= 2) v += __shfl_xor_sync(0xffu, v, k);
    ((int*)a.w[0])[threadIdx.x] = v;
  })");
  ASSERT_EQ(c.result, 0) << c.log;
  std::vector<int> out(8);
  EXPECT_EQ(launch(c, "part", {word(out.data())}, 1, 32).result, 0);
  EXPECT_EQ(out, std::vector<int>(8, 28));
}

TEST(Shim, ABarrierThatSomeThreadNeverReachesIsAnError) {
  const Compiled c = compile(
      "LAZYT_KERNEL(left, 1, 64) { if (threadIdx.x == 5) return; __syncthreads(); }\n"
      "LAZYT_KERNEL(two, 1, 64) {\n  if (threadIdx.x == 5)\n    __syncthreads();\n  else\n    "
      "__syncthreads(); }\n"
      "LAZYT_KERNEL(fine, 1, 64) { __syncthreads(); }");
  ASSERT_EQ(c.result, 0) << c.log;
  const Outcome left = launch(c, "left", {0}, 1, 64);
  EXPECT_EQ(left.result, 2);
  EXPECT_NE(left.error.find("thread 5, which has left, never reaches"), std::string::npos) << left.error;
  const Outcome two = launch(c, "two", {0}, 1, 64);
  EXPECT_EQ(two.result, 2);
  EXPECT_NE(two.error.find("thread 5 at another"), std::string::npos) << two.error;
  EXPECT_EQ(launch(c, "fine", {0}, 3, 64).result, 0) << "the next launch is sound";
}

TEST(Shim, AShuffleWithLanesThatHaveLeftIsAnError) {
  const Compiled c = compile(
      "LAZYT_KERNEL(left, 1, 64) { if (threadIdx.x % 32 == 7) return; __shfl_xor_sync(~0u, 1, 1); }\n"
      "LAZYT_KERNEL(few, 1, 64) { __shfl_xor_sync(~0u, 1, 1); }\n"
      "LAZYT_KERNEL(own, 1, 64) { __shfl_xor_sync(~0u ^ 1u << threadIdx.x % 32, 1, 1); }");
  ASSERT_EQ(c.result, 0) << c.log;
  EXPECT_NE(launch(c, "left", {0}, 1, 64).error.find("in a warp operation"), std::string::npos);
  EXPECT_NE(launch(c, "few", {0}, 1, 48).error.find("no such thread"), std::string::npos);
  EXPECT_NE(launch(c, "own", {0}, 1, 64).error.find("mask lacks the lane"), std::string::npos);
}

TEST(Shim, LaunchesOutsideTheLimitsAreRefused) {
  const Compiled c =
      compile("LAZYT_KERNEL(small, 1, 128) { LAZYT_DYNAMIC_SHARED(float, x); x[threadIdx.x] = 0; }");
  ASSERT_EQ(c.result, 0) << c.log;
  const auto* info = static_cast<const lazyt_shim_info*>(dlsym(c.library, "small__info"));
  EXPECT_EQ(info->max_threads, 128u);
  EXPECT_EQ(info->param_bytes, 8u);
  EXPECT_EQ(launch(c, "small", {0}, 1, 128, 512).result, 0);
  EXPECT_EQ(launch(c, "small", {0}, 1, 129, 4096).result, 1)
      << "more threads than the kernel is declared for";
  EXPECT_EQ(launch(c, "small", {0}, 0, 128, 4096).result, 1) << "no blocks";
  EXPECT_EQ(launch(c, "small", {0}, 1, 128, 1 << 20).result, 1) << "a megabyte of shared memory";
}

TEST(Shim, DynamicSharedMemoryBeginsAsGarbage) {
  const Compiled c = compile(
      "LAZYT_KERNEL(read, 1, 1) { LAZYT_DYNAMIC_SHARED(float, x); *(float*)a.w[0] = x[3]; x[3] = 1; }");
  ASSERT_EQ(c.result, 0) << c.log;
  float out = 0;
  EXPECT_EQ(launch(c, "read", {word(&out)}, 2, 1, 64).result, 0);
  EXPECT_TRUE(std::isnan(out));
}

TEST(Shim, TheOrderOfThreadsCanBeTurnedAround) {
  const Compiled c = compile(
      R"(LAZYT_KERNEL(order, 2, 64) { ((int*)a.w[0])[atomicAdd((int*)a.w[1], 1)] = blockIdx.x * 64 + threadIdx.x; }
    LAZYT_KERNEL(race, 1, 64) { __shared__ int x[64]; x[threadIdx.x] = threadIdx.x; ((int*)a.w[0])[threadIdx.x] = x[threadIdx.x / 2]; })");
  ASSERT_EQ(c.result, 0) << c.log;
  std::vector<int> forwards(128), backwards(128), raced(64), fine(64);
  int at = 0;
  EXPECT_EQ(launch(c, "order", {word(forwards.data()), word(&at)}, 2, 64).result, 0);
  launch(c, "race", {word(fine.data())}, 1, 64);
  at = 0;
  setenv("LAZYT_SHIM_ORDER", "backwards", 1);
  EXPECT_EQ(launch(c, "order", {word(backwards.data()), word(&at)}, 2, 64).result, 0);
  launch(c, "race", {word(raced.data())}, 1, 64);
  unsetenv("LAZYT_SHIM_ORDER");
  EXPECT_TRUE(std::is_sorted(forwards.begin(), forwards.end()));
  EXPECT_TRUE(std::is_sorted(backwards.rbegin(), backwards.rend()));
  EXPECT_NE(raced, fine) << "the lack of a barrier shows";
}

TEST(Shim, WhatNvrtcWouldNotCompileIsNotCompiled) {
  const Compiled wrong = compile("LAZYT_KERNEL(k, 1, 1) { nothing_of_this_name(a.w[0]); }");
  EXPECT_EQ(wrong.result, 6);
  EXPECT_NE(wrong.log.find("nothing_of_this_name"), std::string::npos) << wrong.log;
  EXPECT_EQ(compile("#include <math.h>\nLAZYT_KERNEL(k, 1, 1) {}").result, 6);
  EXPECT_EQ(compile("LAZYT_KERNEL(k, 1, 1) {}", {"--no-such-option"}).result, 5);
  EXPECT_EQ(compile("LAZYT_KERNEL(k, 1, 1) {}", {"--gpu-architecture=sm_52"}).result, 5);
  EXPECT_EQ(compile("void f();\nLAZYT_KERNEL(k, 1, 1) { f(); }").result, 6) << "what nobody defines";
}

}  // namespace
