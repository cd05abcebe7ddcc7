// A stand-in for libcuda on host memory: what the CUDA plugin needs of the driver, asynchronous as the real one and
// stricter about misuse.
//
//   driver.cpp   devices, contexts, errors, what is configured
//   memory.cpp   allocations, pools, pinned memory: each allocation has pages of its own, which nobody may touch once freed
//   stream.cpp   streams (a thread each), events, copies
//   kernel.cpp   modules of the host shim (shim.h), launches
//   graph.cpp    graphs: built, captured, instantiated, updated, launched
//
// What CUDA leaves undefined ends the process with a line on stderr: a handle that was destroyed, bytes outside of an
// allocation, a context that is released while something of it is left.
//
// LAZYT_FAKE_CUDA="devices=2,memory=1073741824,..." configures (Config below); lazyt_fake_cuda(text) changes it while the
// process runs, and lazyt_fake_cuda_count(name) tells what was done.
#pragma once

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fake {

struct Config {
  int devices = 1;
  int version = 13000;
  int capability = 90;
  int init = 0;            // what cuInit answers
  int pools = 1;           // whether devices have memory pools
  uint64_t memory = uint64_t{1} << 30;  // bytes of each device
  uint64_t delay_us = 0;   // that each piece of work takes longer
  // The n-th from now, counted from 1; 0 = none.
  uint64_t fail_alloc = 0;    // allocation of device memory: CUDA_ERROR_OUT_OF_MEMORY
  uint64_t fail_launch = 0;   // launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES from the call itself
  uint64_t fault_kernel = 0;  // kernel: CUDA_ERROR_ILLEGAL_ADDRESS while it runs, the context is lost
  uint64_t lose_device = 0;   // piece of work of any kind: CUDA_ERROR_ECC_UNCORRECTABLE, the context is lost
};

// How often something was done since the process began.
struct Counts {
  uint64_t allocations = 0, launches = 0, graph_launches = 0, graph_updates = 0, copies = 0, instantiated = 0;
};

// One lock over everything but the work itself.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  Config config;
  Counts counts;
  bool initialised = false;
  std::vector<std::unique_ptr<CUctx_st>> contexts;  // by device, once made
};
State& state();
using Lock = std::unique_lock<std::mutex>;

[[noreturn]] void misuse(const char* function, const std::string& what);

// Every live handle; what is not one is misuse.
void add_handle(const void* handle);
void drop_handle(const void* handle);
void require_handle(const void* handle, const char* function);

// What a stream, an event or a pool was made in is alive and was not lost.
CUresult status_of(const CUctx_st* context);
// The thread's current context; null and an error if there is none.
CUctx_st* current(CUresult& result);
// True the n-th time.
bool count_down(uint64_t& n);

// Work behind an event, done or not.
struct Completion {
  bool done = false;
  std::chrono::steady_clock::time_point at{};
};

struct Allocation {
  uint64_t bytes = 0;
  int device = -1;  // -1 = pinned host memory
  CUmemoryPool pool = nullptr;
  bool mapped = true;
};
// Ends the process unless [address, address + bytes) lies in live memory of a device. The lock is held.
void require_device_bytes(CUdeviceptr address, uint64_t bytes, const char* function);
// Host bytes are not device bytes. The lock is held.
void require_host_bytes(const void* address, uint64_t bytes, const char* function);

struct Copy {
  void* to;
  const void* from;
  uint64_t bytes;
};

struct Launch {
  CUfunction function = nullptr;
  uint32_t grid[3], block[3], shared_bytes = 0;
  std::vector<std::byte> parameter;
};
// Copies what a launch says, or refuses it. The lock is held.
CUresult make_launch(CUfunction function, const unsigned* grid, const unsigned* block, unsigned shared, void** parameters,
                     const char* name, Launch& out);
CUresult run_launch(const Launch& launch);
CUresult run_copy(const Copy& copy);

// The lock is held.
CUgraphNode make_node(CUgraphNodeType type);
// The lock is held: appends to the stream, or, while it is captured, to its graph.
void enqueue(CUstream stream, std::function<CUresult()> work, std::shared_ptr<Completion> done = nullptr);
// Null and an error where the stream is not of a live context.
CUresult check_stream(CUstream& stream, const char* function);

}  // namespace fake

struct CUctx_st {
  int device = 0;
  int retained = 0;
  CUresult lost = CUDA_SUCCESS;
  CUstream legacy = nullptr;
  uint64_t allocated = 0;  // bytes in use
  std::set<const void*> handles;  // of streams, events, pools, modules, graphs
};

struct CUstream_st {
  struct Item {
    std::function<CUresult()> work;
    std::shared_ptr<fake::Completion> done;
  };
  CUcontext context = nullptr;
  std::deque<Item> items;
  bool busy = false, closing = false;
  CUgraph capture = nullptr;
};

struct CUevent_st {
  CUcontext context = nullptr;
  std::shared_ptr<fake::Completion> last;  // null: never recorded, which counts as done
};

struct CUmemPoolHandle_st {
  CUcontext context = nullptr;
  uint64_t used = 0;
};

struct CUmod_st {
  CUcontext context = nullptr;
  void* library = nullptr;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

struct CUgraphNode_st {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  fake::Launch launch;
  fake::Copy copy{};
  std::vector<CUgraphNode> children;  // of a child graph
  std::vector<CUgraphNode> after;
};

struct CUgraph_st {
  CUcontext context = nullptr;
  std::vector<CUgraphNode> nodes;
};

struct CUgraphExec_st {
  CUcontext context = nullptr;
  std::vector<CUgraphNode> originals;
  std::vector<CUgraphNode_st> nodes;
};
