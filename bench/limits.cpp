// What this processor can do at most, and what oneDNN alone does, for products.py: a library, so that the
// turns are taken in one process. Each function works for about so many seconds of processor time, and
// answers operations a second of it (a multiply-add is two); 0: not on this processor.
#include <cpuid.h>
#include <immintrin.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

namespace {

double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Runs f, which does so many operations, again and again.
template <class F>
double rate(double seconds, double operations, F&& f) {
  const double begin = now();
  double end = begin;
  uint64_t runs = 0;
  while (end - begin < seconds) f(), ++runs, end = now();
  return operations * static_cast<double>(runs) / (end - begin);
}

constexpr int kTurns = 100000;

// Enough sums in flight to hide the latency, each in a register of its own: by name, as GCC adds copies
// around intrinsics.
#define LAZYT_6(op, a, b, c, d, e, f) op(a) op(b) op(c) op(d) op(e) op(f)
#define LAZYT_12(op) LAZYT_6(op, "0", "1", "2", "3", "4", "5") LAZYT_6(op, "6", "7", "8", "9", "10", "11")
#define LAZYT_24(op) \
  LAZYT_12(op) LAZYT_6(op, "12", "13", "14", "15", "16", "17") LAZYT_6(op, "18", "19", "20", "21", "22", "23")
#define LAZYT_FMA_512(n) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" n "\n"
#define LAZYT_FMA_256(n) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" n "\n"
#define LAZYT_BF16_512(n) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" n "\n"
#define LAZYT_LOW \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"
#define LAZYT_HIGH                                                                                     \
  LAZYT_LOW, "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", \
      "xmm22", "xmm23"

// Of zeros: a register of any bits could hold what multiplies slowly.
__attribute__((target("avx512f"), noinline)) void fma_avx512() {
  asm volatile("vpxord %%zmm30, %%zmm30, %%zmm30\n vpxord %%zmm31, %%zmm31, %%zmm31" ::: "xmm30", "xmm31");
  for (int t = 0; t < kTurns; ++t) asm volatile(LAZYT_24(LAZYT_FMA_512)::: LAZYT_HIGH);
}
__attribute__((target("avx2,fma"), noinline)) void fma_avx2() {
  asm volatile("vpxor %%ymm14, %%ymm14, %%ymm14\n vpxor %%ymm15, %%ymm15, %%ymm15" ::: "xmm14", "xmm15");
  for (int t = 0; t < kTurns; ++t) asm volatile(LAZYT_12(LAZYT_FMA_256)::: LAZYT_LOW);
}
__attribute__((target("avx512f,avx512bf16"), noinline)) void bf16_avx512() {
  asm volatile("vpxord %%zmm30, %%zmm30, %%zmm30\n vpxord %%zmm31, %%zmm31, %%zmm31" ::: "xmm30", "xmm31");
  for (int t = 0; t < kTurns; ++t) asm volatile(LAZYT_24(LAZYT_BF16_512)::: LAZYT_HIGH);
}

// Tiles of 16 x 32 by 32 x 16: four sums of two by two operands, as kernels have them.
struct alignas(64) TileShape {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
bool may_use_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1)) return false;  // AMX-BF16
  constexpr long kRequest = 0x1023, kTileData = 18;                              // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
__attribute__((target("amx-tile,amx-bf16"), noinline)) void bf16_amx() {
  static const TileShape shape;  // GCC 12 takes only 8 bytes of it as read
  _tile_loadconfig(&shape);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int t = 0; t < kTurns / 10; ++t) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    asm volatile("");
  }
  _tile_release();
}

}  // namespace

extern "C" {

double limit_f32(double seconds) {
  if (__builtin_cpu_supports("avx512f")) return rate(seconds, 2.0 * kTurns * 24 * 16, fma_avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return rate(seconds, 2.0 * kTurns * 12 * 8, fma_avx2);
  return 0;
}

double limit_bf16(double seconds) {
  if (may_use_tiles()) return rate(seconds, 2.0 * (kTurns / 10) * 4 * 16 * 16 * 32, bf16_amx);
  return __builtin_cpu_supports("avx512bf16") ? rate(seconds, 2.0 * kTurns * 24 * 32, bf16_avx512) : 0;
}

// Seconds a convolution takes oneDNN alone, on one thread, by turns over so many operands and results:
// activations channels-last, weights as it wants them. The primitive only: nothing is made or packed in the
// time.
double onednn_convolution(double seconds, int64_t operands, int64_t n, int64_t ic, int64_t size, int64_t oc,
                          int64_t kernel, int64_t stride, int64_t padding) {
  using namespace dnnl;
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const engine cpu(engine::kind::cpu, 0);
  stream s(cpu);
  const int64_t out = (size + 2 * padding - kernel) / stride + 1;
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const convolution_forward::primitive_desc pd(
      cpu, prop_kind::forward_inference, algorithm::convolution_direct,
      memory::desc({n, ic, size, size}, f32, Tag::nhwc),
      memory::desc({oc, ic, kernel, kernel}, f32, Tag::any), memory::desc({n, oc, out, out}, f32, Tag::nhwc),
      {stride, stride}, {padding, padding}, {padding, padding});
  auto filled = [&](const memory::desc& desc) {
    memory m(desc, cpu);
    std::fill_n(static_cast<float*>(m.get_data_handle()), desc.get_size() / sizeof(float), 0.01f);
    return m;
  };
  const memory w = filled(pd.weights_desc());
  std::vector<std::unordered_map<int, memory>> turns;
  for (int64_t i = 0; i < operands; ++i)
    turns.push_back({{DNNL_ARG_SRC, filled(pd.src_desc())},
                     {DNNL_ARG_WEIGHTS, w},
                     {DNNL_ARG_DST, filled(pd.dst_desc())}});
  const convolution_forward primitive(pd);
  auto all = [&] {
    for (const auto& arguments : turns) primitive.execute(s, arguments);
  };
  all();
  const double runs = rate(seconds, static_cast<double>(operands), all);
  omp_set_num_threads(before);
  return 1 / runs;
}

}  // extern "C"
