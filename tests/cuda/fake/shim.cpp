// Runs kernels of the host shim (shim.h): every thread of a block is a fiber, but one that never waits shares
// its stack with the next. Fibers start by makecontext and switch by _setjmp and _longjmp.
#undef _FORTIFY_SOURCE  // would take the switch of stacks for a fault

#include "shim.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

namespace {

struct Index {
  unsigned x, y, z;
};

constexpr unsigned kMaxThreads = 1024;
constexpr uint32_t kMaxShared = 163 * 1024;  // of a block, compute capability 8.0
constexpr unsigned char kGarbage = 0xff;
constexpr size_t kStack = 128 * 1024, kGuard = 4096;

enum class State : uint8_t { kNew, kReady, kAtBarrier, kInWarp, kDone };

struct Fiber {
  jmp_buf at;
  ucontext_t start;
  bool started = false;
  void* stack = nullptr;
};

struct Thread {
  State state;
  int line;  // of what it waits for
  unsigned mask;
  unsigned long long word;
  Fiber* fiber;
};

// The block that runs. One at a time in the process.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  Thread threads[kMaxThreads];
  unsigned long long seen[kMaxThreads];  // words of lanes when they were released
  unsigned count, next, done, current;
  jmp_buf scheduler;
  bool fault;
  bool backwards;
  unsigned char *shared, *shared_end;
  char error[200];
  void (*body)(const void*);
  const void* param;
};

std::mutex g_lock;
Block g_block;
std::vector<unsigned char> g_shared;

}  // namespace

extern "C" {
__attribute__((visibility("default"))) Index lazyt_shim_thread, lazyt_shim_block, lazyt_shim_block_dim,
    lazyt_shim_grid_dim;
__attribute__((visibility("default"))) unsigned char* lazyt_shim_shared;
}

namespace {

void set_thread(unsigned t) {
  g_block.current = t;
  const Index& d = lazyt_shim_block_dim;
  lazyt_shim_thread = {t % d.x, t / d.x % d.y, t / d.x / d.y};
}

// The k-th thread of the block to begin, and to go on.
unsigned in_order(unsigned k) { return g_block.backwards ? g_block.count - 1 - k : k; }

// What a fiber does: threads that nobody began, each to its end; then it waits for more.
void work() {
  for (;;) {
    Block& b = g_block;
    Fiber* self = b.idle.back();
    b.idle.pop_back();
    while (b.next < b.count) {
      const unsigned t = in_order(b.next++);
      b.threads[t].fiber = self;
      b.threads[t].state = State::kReady;
      set_thread(t);
      b.body(b.param);
      b.threads[b.current].state = State::kDone;
      ++b.done;
      // Other fibers may have begun threads while this one waited: it ends with its own.
    }
    b.idle.push_back(self);
    if (!_setjmp(self->at)) _longjmp(b.scheduler, 1);
  }
}

Fiber* new_fiber() {
  auto f = std::make_unique<Fiber>();
  f->stack =
      mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (f->stack == MAP_FAILED) return nullptr;
  mprotect(f->stack, kGuard, PROT_NONE);
  g_block.fibers.push_back(std::move(f));
  return g_block.fibers.back().get();
}

void enter(Fiber* f) {
  if (_setjmp(g_block.scheduler)) return;
  if (f->started) _longjmp(f->at, 1);
  f->started = true;
  getcontext(&f->start);
  f->start.uc_stack.ss_sp = f->stack;
  f->start.uc_stack.ss_size = kStack;
  f->start.uc_link = nullptr;
  makecontext(&f->start, work, 0);
  setcontext(&f->start);
}

// Of the running thread: waits until the scheduler comes back to it.
void wait(State state, int line, unsigned mask, unsigned long long word) {
  Thread& t = g_block.threads[g_block.current];
  t.state = state, t.line = line, t.mask = mask, t.word = word;
  if (!_setjmp(t.fiber->at)) _longjmp(g_block.scheduler, 1);
}

void complain(const char* format, ...) __attribute__((format(printf, 1, 2)));
void complain(const char* format, ...) {
  Block& b = g_block;
  if (b.fault) return;
  b.fault = true;
  const int n = snprintf(b.error, sizeof b.error, "block (%u, %u, %u): ", lazyt_shim_block.x,
                         lazyt_shim_block.y, lazyt_shim_block.z);
  va_list list;
  va_start(list, format);
  vsnprintf(b.error + n, sizeof b.error - static_cast<size_t>(n), format, list);
  va_end(list);
}

// Lets the lanes of one warp operation go on if all have come.
bool release_lanes(unsigned first, unsigned lane) {
  Block& b = g_block;
  const Thread& leader = b.threads[first + lane];
  for (unsigned k = 0; k < 32; ++k) {
    if (!(leader.mask >> k & 1)) continue;
    if (first + k >= b.count) {
      complain("line %d: a warp operation names lane %u, and the block has no such thread", leader.line, k);
      return false;
    }
    const Thread& t = b.threads[first + k];
    if (t.state != State::kInWarp || t.line != leader.line || t.mask != leader.mask) return false;
  }
  for (unsigned k = 0; k < 32; ++k)
    if (leader.mask >> k & 1) b.seen[first + k] = b.threads[first + k].word;
  const unsigned mask = leader.mask;
  for (unsigned k = 0; k < 32; ++k)
    if (mask >> k & 1) b.threads[first + k].state = State::kReady;
  return true;
}

// Every thread is done or waits: lets go on whoever may. False: nobody.
bool release() {
  Block& b = g_block;
  bool any = false;
  for (unsigned t = 0; t < b.count && !b.fault; ++t)
    if (b.threads[t].state == State::kInWarp) any |= release_lanes(t / 32 * 32, t % 32);
  if (any || b.fault) return any;
  for (unsigned t = 0; t < b.count; ++t)
    if (b.threads[t].state != State::kAtBarrier || b.threads[t].line != b.threads[0].line) return false;
  for (unsigned t = 0; t < b.count; ++t) b.threads[t].state = State::kReady;
  return true;
}

void complain_of_wait() {
  const Block& b = g_block;
  unsigned waits = 0;
  while (b.threads[waits].state == State::kDone) ++waits;
  const Thread& w = b.threads[waits];
  for (unsigned t = 0; t < b.count; ++t) {
    const Thread& o = b.threads[t];
    if (w.state == State::kInWarp && (t / 32 != waits / 32 || !(w.mask >> (t % 32) & 1))) continue;
    if (o.state == w.state && o.line == w.line && o.mask == w.mask) continue;
    const char* what = w.state == State::kInWarp ? "in a warp operation" : "at a barrier";
    if (o.state == State::kDone)
      return complain("thread %u waits %s of line %d that thread %u, which has left, never reaches", waits,
                      what, w.line, t);
    return complain("thread %u waits %s of line %d, thread %u at another, of line %d", waits, what, w.line, t,
                    o.line);
  }
  complain("threads wait for each other");
}

void run_block() {
  Block& b = g_block;
  b.next = b.done = 0;
  for (unsigned t = 0; t < b.count; ++t) b.threads[t] = {State::kNew, 0, 0, 0, nullptr};
  // Nobody may count on what is there.
  std::fill(g_shared.begin(), g_shared.end(), kGarbage);
  std::fill(b.shared, b.shared_end, kGarbage);
  while (b.done < b.count && !b.fault) {
    while (b.next < b.count && !b.fault) {
      if (b.idle.empty()) {
        Fiber* f = new_fiber();
        if (!f) return complain("no memory for the stacks of the threads");
        b.idle.push_back(f);
      }
      enter(b.idle.back());
    }
    if (b.fault || b.done == b.count) break;
    if (!release()) return complain_of_wait();
    for (unsigned k = 0; k < b.count && !b.fault; ++k) {
      const unsigned t = in_order(k);
      if (b.threads[t].state != State::kReady) continue;
      set_thread(t);
      enter(b.threads[t].fiber);
    }
  }
}

int refuse(lazyt_shim_launch* launch, const char* format, unsigned long long a, unsigned long long b) {
  snprintf(launch->error, sizeof launch->error, format, a, b);
  return 1;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Ends the kernel where it stands.
void lazyt_shim_fault(const char* what) {
  complain("thread %u: %s", g_block.current, what);
  _longjmp(g_block.scheduler, 1);
}

int lazyt_shim_run(lazyt_shim_launch* launch, const lazyt_shim_info* info, void (*body)(const void* param),
                   unsigned char* shared, unsigned char* shared_end) {
  const uint32_t *grid = launch->grid, *block = launch->block;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  launch->error[0] = 0;
  if (threads == 0 || threads > kMaxThreads || block[2] > 64)
    return refuse(launch, "a block of %llu threads (at most %llu, at most 64 along z)", threads, kMaxThreads);
  if (threads > info->max_threads)
    return refuse(launch, "a block of %llu threads, where the kernel is declared for %llu", threads,
                  info->max_threads);
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffff || grid[1] > 65535 ||
      grid[2] > 65535)
    return refuse(launch, "a grid of %llu blocks along x and %llu along y or z", grid[0],
                  std::max(grid[1], grid[2]));
  if (launch->shared_bytes > kMaxShared)
    return refuse(launch, "%llu bytes of shared memory (at most %llu)", launch->shared_bytes, kMaxShared);

  const std::lock_guard<std::mutex> guard(g_lock);
  // As the driver does: the parameter is copied at the launch.
  std::vector<unsigned long long> param((info->param_bytes + 7) / 8);
  if (info->param_bytes) std::memcpy(param.data(), launch->params[0], info->param_bytes);
  g_shared.resize(launch->shared_bytes);
  lazyt_shim_shared = g_shared.data();
  lazyt_shim_block_dim = {block[0], block[1], block[2]};
  lazyt_shim_grid_dim = {grid[0], grid[1], grid[2]};
  Block& b = g_block;
  b.count = static_cast<unsigned>(threads);
  b.fault = false;
  b.body = body;
  b.param = param.data();
  b.shared = shared, b.shared_end = shared_end;
  const char* order = std::getenv("LAZYT_SHIM_ORDER");
  b.backwards = order && std::strcmp(order, "backwards") == 0;
  auto at = [&](unsigned k, int d) { return b.backwards ? grid[d] - 1 - k : k; };
  for (unsigned z = 0; z < grid[2] && !b.fault; ++z)
    for (unsigned y = 0; y < grid[1] && !b.fault; ++y)
      for (unsigned x = 0; x < grid[0] && !b.fault; ++x) {
        lazyt_shim_block = {at(x, 0), at(y, 1), at(z, 2)};
        run_block();
      }
  if (!b.fault) return 0;
  std::memcpy(launch->error, b.error, sizeof launch->error);
  b.idle.clear();  // what the fibers were doing is given up
  for (auto& f : b.fibers) {
    f->started = false;
    b.idle.push_back(f.get());
  }
  return 2;
}

void lazyt_shim_barrier(int line) { wait(State::kAtBarrier, line, 0, 0); }

const unsigned long long* lazyt_shim_exchange(unsigned mask, unsigned long long word, int line) {
  const unsigned t = g_block.current;
  if (!(mask >> (t % 32) & 1)) lazyt_shim_fault("a warp operation's mask lacks the lane that calls it");
  wait(State::kInWarp, line, mask, word);
  return g_block.seen + t / 32 * 32;
}

// glibc has none: a start from Giles' formula, then Newton's method on erf, or near the ends on erfc.
double lazyt_shim_erfinv(double x) {
  const double inf = std::numeric_limits<double>::infinity();
  if (!(std::fabs(x) <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (std::fabs(x) == 1) return std::copysign(inf, x);
  const double a = std::fabs(x), w = -std::log((1 - a) * (1 + a)), t = 2 / (M_PI * 0.147) - w / 2;
  double y = std::sqrt(std::sqrt(t * t + w / 0.147) - t);
  for (int i = 0; i < 4; ++i) {
    const double error = a > 0.5 ? (1 - a) - std::erfc(y) : std::erf(y) - a;
    const double slope = 2 / std::sqrt(M_PI) * std::exp(-y * y);
    if (slope > 0) y -= error / slope / (1 + y * error / slope);
  }
  return std::copysign(y, x);
}

}  // extern "C"
#pragma GCC visibility pop
