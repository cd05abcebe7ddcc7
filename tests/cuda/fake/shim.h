// The host shim: what CUDA C++ source of the plugin needs to be compiled and run by the host's compiler.
//
//   nvrtc.cpp  a library with NVRTC's entry points: it puts this header before a source, compiles it with g++ into a
//              shared library and hands that out as the "cubin" (lazyt_shim_image and then the library's bytes)
//   shim.cpp   in the same library: runs a kernel's threads (see lazyt_shim_run)
//
// The fake driver loads the image: it writes the bytes behind the lazyt_shim_image to a file of a name that it never
// used before (dlopen gives a loaded library again for its name: /proc/self/fd/N is no good), opens that with
// dlopen(RTLD_NOW | RTLD_LOCAL), and finds a kernel NAME as symbol NAME (a lazyt_shim_entry) and what it asks of a
// launch as symbol NAME__info (a lazyt_shim_info). It calls the entry from any thread; launches of a process run one
// after another. Pointers in the kernel's arguments are host addresses.
//
// Blocks run one after another. Threads of a block run one after another as well, each to its end, unless one waits
// (at __syncthreads or a warp operation): then the others run until all that it waits for have come.
// LAZYT_SHIM_ORDER=backwards turns the order of blocks and threads around: a kernel that lacks a barrier then gives
// something else. What CUDA leaves undefined is an error: a barrier that some thread of the block does not reach, a
// warp operation that a named thread does not reach, a pack of elements that is not aligned, a block larger than the
// kernel was declared for, a launch outside the limits of compute capability 8.0.
//
// The first half is C, for the fake driver. With LAZYT_SHIM defined (by nvrtc.cpp) the second half follows, for kernels.
#ifndef LAZYT_TESTS_CUDA_FAKE_SHIM_H_
#define LAZYT_TESTS_CUDA_FAKE_SHIM_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LAZYT_SHIM_MAGIC "LZSHIM1" /* with its NUL: 8 bytes */

// Begins an image; the bytes of a shared library follow.
typedef struct lazyt_shim_image {
  char magic[8];
  uint64_t library_bytes;
} lazyt_shim_image;

// NAME__info.
typedef struct lazyt_shim_info {
  uint32_t max_threads;  // of a block: CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
  uint32_t param_bytes;  // of the one parameter
} lazyt_shim_info;

typedef struct lazyt_shim_launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;  // dynamic
  void* const* params;    // as cuLaunchKernel's kernelParams: params[0] is the address of the parameter, read
                          // by this call
  char error[200];        // written where the entry returns other than 0: what the kernel did wrong
} lazyt_shim_launch;

// Runs all blocks. 0 = done; 1 = the launch is refused, nothing ran (CUDA_ERROR_INVALID_VALUE); 2 = the
// kernel did something undefined and stopped there (CUDA_ERROR_LAUNCH_FAILED).
typedef int (*lazyt_shim_entry)(lazyt_shim_launch* launch);

// Called by entries: `body` is one thread's work on the parameter; [shared, shared_end) is the kernels' static shared memory,
// which begins as garbage in every block.
int lazyt_shim_run(lazyt_shim_launch* launch, const lazyt_shim_info* info, void (*body)(const void* param),
                   unsigned char* shared, unsigned char* shared_end);

#ifdef __cplusplus
}
#endif

#ifdef LAZYT_SHIM

#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct lazyt_shim_uint3 {
  unsigned x, y, z;
} uint3;

// ---- of shim.cpp
extern "C" {
extern uint3 lazyt_shim_thread, lazyt_shim_block, lazyt_shim_block_dim, lazyt_shim_grid_dim;
extern unsigned char* lazyt_shim_shared;
// line: of the source; all threads must wait at the same.
void lazyt_shim_barrier(int line);
// Every lane in mask gives a word and comes back when all have given; afterwards *words are those of the 32
// lanes.
const unsigned long long* lazyt_shim_exchange(unsigned mask, unsigned long long word, int line);
void lazyt_shim_fault(const char* what);
double lazyt_shim_erfinv(double v);
}

#define threadIdx lazyt_shim_thread
#define blockIdx lazyt_shim_block
#define blockDim lazyt_shim_block_dim
#define gridDim lazyt_shim_grid_dim
#define warpSize 32

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
// Blocks run one after another: one copy serves all. Nothing else of a library of kernels is zero at its start.
#define __shared__ static
extern "C" __attribute__((visibility("hidden"))) unsigned char __bss_start[], _end[];
#define __constant__ static const
#define __restrict__ __restrict

#define LAZYT_DYNAMIC_SHARED(T, name) T* const name = (T*)lazyt_shim_shared
// Twice, because the name may be a macro itself.
#define LAZYT_KERNEL(name, N, THREADS) LAZYT_SHIM_KERNEL(name, N, THREADS)
#define LAZYT_SHIM_KERNEL(name, N, THREADS)                                                                  \
  static void name##__body(const lazyt_args<N>& a);                                                          \
  extern "C" __attribute__((visibility("default"))) const lazyt_shim_info name##__info = {THREADS, 8 * (N)}; \
  extern "C" __attribute__((visibility("default"))) int name(lazyt_shim_launch* launch) {                    \
    return lazyt_shim_run(                                                                                   \
        launch, &name##__info, [](const void* p) { name##__body(*(const lazyt_args<N>*)p); }, __bss_start, _end); \
  }                                                                                                          \
  static void name##__body(const lazyt_args<N>& a)

// ---- barriers and warps
inline void __syncthreads(int line = __builtin_LINE()) { lazyt_shim_barrier(line); }
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
  lazyt_shim_exchange(mask, 0, line);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace lazyt_shim {
inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31; }
template <class T>
unsigned long long to_word(T v) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  unsigned long long w = 0;
  memcpy(&w, &v, sizeof v);
  return w;
}
template <class T>
T take(unsigned mask, T v, unsigned from, int line) {
  const unsigned long long* words = lazyt_shim_exchange(mask, to_word(v), line);
  if (!(mask >> from & 1)) lazyt_shim_fault("a shuffle reads a lane that is not in its mask");
  T out;
  memcpy(&out, &words[from], sizeof out);
  return out;
}
}  // namespace lazyt_shim

template <class T>
T __shfl_sync(unsigned mask, T v, int src, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = lazyt_shim::lane(), base = lane & ~(unsigned)(width - 1);
  return lazyt_shim::take(mask, v, base + ((unsigned)src & (unsigned)(width - 1)), line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int flip, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = lazyt_shim::lane(), other = lane ^ (unsigned)flip,
                 end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;
  return lazyt_shim::take(mask, v, other < end ? other : lane, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = lazyt_shim::lane(), end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;
  return lazyt_shim::take(mask, v, lane + by < end ? lane + by : lane, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = lazyt_shim::lane(), base = lane & ~(unsigned)(width - 1);
  return lazyt_shim::take(mask, v, lane >= base + by ? lane - by : lane, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  const unsigned long long* words = lazyt_shim_exchange(mask, predicate != 0, line);
  unsigned out = 0;
  for (unsigned i = 0; i < 32; ++i)
    if ((mask >> i & 1) && words[i]) out |= 1u << i;
  return out;
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) == mask;
}

// ---- atomics: one thread runs at a time
template <class T>
T atomicAdd(T* p, T v) {
  const T old = *p;
  *p = (T)(old + v);
  return old;
}
template <class T>
T atomicMax(T* p, T v) {
  const T old = *p;
  if (v > old) *p = v;
  return old;
}
template <class T>
T atomicMin(T* p, T v) {
  const T old = *p;
  if (v < old) *p = v;
  return old;
}
template <class T>
T atomicOr(T* p, T v) {
  const T old = *p;
  *p = (T)(old | v);
  return old;
}
template <class T>
T atomicAnd(T* p, T v) {
  const T old = *p;
  *p = (T)(old & v);
  return old;
}
template <class T>
T atomicExch(T* p, T v) {
  const T old = *p;
  *p = v;
  return old;
}
template <class T>
T atomicCAS(T* p, T expected, T v) {
  const T old = *p;
  if (old == expected) *p = v;
  return old;
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  const unsigned old = *p;
  *p = old >= limit ? 0 : old + 1;
  return old;
}

// ---- bits and arithmetic
template <class To, class From>
To lazyt_shim_bits(From v) {
  static_assert(sizeof(To) == sizeof(From), "");
  To out;
  memcpy(&out, &v, sizeof out);
  return out;
}
inline unsigned __float_as_uint(float v) { return lazyt_shim_bits<unsigned>(v); }
inline int __float_as_int(float v) { return lazyt_shim_bits<int>(v); }
inline float __uint_as_float(unsigned v) { return lazyt_shim_bits<float>(v); }
inline float __int_as_float(int v) { return lazyt_shim_bits<float>(v); }
inline long long __double_as_longlong(double v) { return lazyt_shim_bits<long long>(v); }
inline double __longlong_as_double(long long v) { return lazyt_shim_bits<double>(v); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline float rsqrtf(float v) { return (float)(1.0 / sqrt((double)v)); }
inline double rsqrt(double v) { return 1.0 / sqrt(v); }
inline float erfinvf(float v) { return (float)lazyt_shim_erfinv(v); }
inline double erfinv(double v) { return lazyt_shim_erfinv(v); }

#endif  // LAZYT_SHIM
#endif  // LAZYT_TESTS_CUDA_FAKE_SHIM_H_
