#include "loader/worker.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/env.h"
#include "base/log.h"
#include "base/patience.h"
#include "loader/call.h"
#include "loader/per_process.h"

namespace lazyt::loader {
namespace {

using std::chrono::nanoseconds;
constexpr double kDefaultSeconds = 600;

// Of the kernel's last tick: milliseconds late, and read at a fraction of the cost.
int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

base::Result<nanoseconds> configured_deadline() {
  const auto text = base::env("LAZYT_DEADLINE");
  if (!text) return nanoseconds(static_cast<int64_t>(kDefaultSeconds * 1e9));
  double seconds = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, seconds);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(seconds >= 0 && seconds <= 1e7))
    return base::invalid_argument(
        fmt::format("environment: LAZYT_DEADLINE='{}' is not valid; use seconds from 0 (no limit) to "
                    "10000000, or unset it",
                    *text));
  return nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

std::atomic<int64_t>& deadline_ns() {
  static std::atomic<int64_t> ns = [] {
    const auto asked = configured_deadline();
    return asked.ok() ? asked.value().count() : static_cast<int64_t>(kDefaultSeconds * 1e9);
  }();
  return ns;
}

// Looked at in every call of a plugin: without the call that other models of access cost (thread_state.h).
constinit thread_local Slot* current_slot __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local const std::atomic<bool>* current_cancel_flag = nullptr;
thread_local int turns = 0;
std::atomic<bool> all_cancelled{false};

// Held while a call is being given up.
std::mutex& giving_up() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

nanoseconds deadline() { return nanoseconds(deadline_ns().load(std::memory_order_relaxed)); }
base::Status check_deadline() { return configured_deadline().status(); }

bool work_cancelled() {
  return all_cancelled.load(std::memory_order_relaxed) ||
         (current_cancel_flag && current_cancel_flag->load(std::memory_order_relaxed));
}
const std::atomic<bool>* cancel_flag() { return current_cancel_flag; }
void set_cancel_flag(const std::atomic<bool>* flag) { current_cancel_flag = flag; }
void cancel_all(bool on) { all_cancelled.store(on, std::memory_order_relaxed); }

// ---- slots

Slot* Slot::current() { return current_slot; }

void Slot::enter(const Subject& subject, const char* function, nanoseconds limit) {
  subject_.store(&subject, std::memory_order_relaxed);
  function_.store(function, std::memory_order_relaxed);
  limit_.store(limit.count(), std::memory_order_relaxed);
  since_.store(now_ns(), std::memory_order_release);
}

bool Slot::leave() {
  int64_t since = since_.load(std::memory_order_relaxed);
  if (since != kGivenUp && since_.compare_exchange_strong(since, kIdle, std::memory_order_acq_rel))
    return true;
  std::lock_guard wait(giving_up());
  since_.store(kIdle, std::memory_order_release);
  return false;
}

void Slot::expire(int64_t now, const std::function<void(const base::Status&)>& given_up) {
  int64_t since = since_.load(std::memory_order_acquire);
  const int64_t limit = limit_.load(std::memory_order_relaxed);
  if (since <= kIdle || limit <= 0 || now - since < limit) return;
  const Subject* subject = subject_.load(std::memory_order_relaxed);
  const char* function = function_.load(std::memory_order_relaxed);
  std::lock_guard lock(giving_up());
  // Only if it is still the same call; from here on the thread cannot leave it before the lock is free.
  if (!since_.compare_exchange_strong(since, kGivenUp, std::memory_order_acq_rel)) return;
  cancelled.store(true, std::memory_order_relaxed);
  given_up(subject->lose(function, nanoseconds(limit)));
}

// ---- workers

struct Worker::Task {
  std::function<void()> run;
  std::function<void(const base::Status&)> lost;
  bool anywhere;
};

struct Worker::Thread {
  Slot slot;
  std::weak_ptr<State> state;
  bool given_up = false;  // State::mutex
};

struct Worker::State {
  explicit State(size_t capacity) : capacity(capacity) {}
  const size_t capacity;
  std::mutex mutex;
  std::condition_variable not_empty, room, progress;
  std::deque<std::shared_ptr<Task>> queue;
  std::shared_ptr<Task> running;
  bool stop = false, ended = false, cancelled = false;
  std::optional<std::thread::id> turn;  // the thread that has the worker's place
  uint64_t submitted = 0, finished = 0;
  uint64_t follow_up = 0;  // as many had been submitted when a task last submitted one
  std::atomic<uint64_t> busy_ns{0};
  nanoseconds patience{0};  // before the thread sleeps, once
  std::shared_ptr<Thread> current;  // the thread that serves the queue
  std::thread thread;
  size_t unfinished() const { return queue.size() + (running ? 1 : 0); }  // REQUIRES: mutex
  // Who found no room is woken once half of the tasks are done: to wake a thread takes as long as a short task.
  bool has_much_room() const { return unfinished() <= capacity / 2; }
  // Whether the caller is what does the work. REQUIRES: mutex.
  bool runs_here() const {
    const auto id = std::this_thread::get_id();
    return id == thread.get_id() || turn == id;
  }
};

// Looks at the slots of all workers' threads from time to time. Starts with the first worker, never ends.
class Watchdog {
 public:
  static Watchdog& get() {
    static PerProcess<Watchdog> instance;
    return instance.get();
  }

  void watch(std::shared_ptr<Worker::Thread> thread) {
    std::lock_guard lock(mutex_);
    std::erase_if(threads_, [](const auto& t) { return t.expired(); });
    threads_.push_back(thread);
    start();
  }

  void deadline_changed() {
    std::lock_guard lock(mutex_);
    start();
    changed_.notify_all();
  }

 private:
  void start() {
    if (std::exchange(started_, started_ || deadline().count() > 0) == started_) return;
    std::thread([this] { look(); }).detach();
  }

  void look() {
    std::unique_lock lock(mutex_);
    while (true) {
      // An eighth of the deadline: a call is given up at most that much too late.
      const int64_t period = std::max<int64_t>(deadline().count() / 8, 1'000'000);
      changed_.wait_for(lock, nanoseconds(deadline().count() > 0 ? period : int64_t{60'000'000'000}));
      const auto threads = threads_;
      lock.unlock();
      for (const auto& weak : threads)
        if (auto thread = weak.lock())
          thread->slot.expire(now_ns(), [&](const base::Status& lost) { give_up(*thread, lost); });
      lock.lock();
    }
  }

  static void give_up(Worker::Thread& thread, const base::Status& status) {
    auto state = thread.state.lock();
    if (!state) return;
    std::shared_ptr<Worker::Task> task;
    {
      std::lock_guard lock(state->mutex);
      if (thread.given_up) return;  // hung again, in what it did after its task was taken away
      thread.given_up = true;
      task = std::move(state->running);
      state->thread.detach();
      Worker::start(state);
    }
    if (task && task->lost) task->lost(status);
    {
      std::lock_guard lock(state->mutex);
      state->finished++;
    }
    state->progress.notify_all(), state->room.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<Worker::Thread>> threads_;
  bool started_ = false;
};

void set_deadline(nanoseconds limit) {
  deadline_ns().store(limit.count(), std::memory_order_relaxed);
  Watchdog::get().deadline_changed();
}

Worker::Worker(size_t capacity) : state_(std::make_shared<State>(std::max<size_t>(capacity, 1))) {
  std::lock_guard lock(state_->mutex);
  start(state_);
}

Worker::~Worker() {
  std::thread last;
  {
    std::unique_lock lock(state_->mutex);
    state_->stop = true;
    state_->not_empty.notify_one();
    state_->progress.wait(lock, [this] { return state_->ended; });
    last = std::move(state_->thread);
  }
  last.join();
}

// REQUIRES: state's mutex.
void Worker::start(const std::shared_ptr<State>& state) {
  auto thread = std::make_shared<Thread>();
  thread->state = state;
  thread->slot.cancelled = state->cancelled;
  state->current = thread;
  state->thread = std::thread([state, thread] { loop(state, *thread); });
  Watchdog::get().watch(std::move(thread));
}

void Worker::submit(std::function<void()> run, std::function<void(const base::Status&)> lost, bool anywhere) {
  auto task = std::make_shared<Task>(Task{std::move(run), std::move(lost), anywhere});
  {
    std::unique_lock lock(state_->mutex);
    // A task that waited for room would wait for its own end.
    if (!state_->runs_here() && state_->unfinished() >= state_->capacity)
      state_->room.wait(lock, [this] { return state_->has_much_room(); });
    state_->queue.push_back(std::move(task));
    state_->submitted++;
    if (state_->runs_here()) state_->follow_up = state_->submitted;
    if (state_->turn) return;  // its end wakes the thread
  }
  state_->not_empty.notify_one();
}

bool Worker::has_room() {
  std::lock_guard lock(state_->mutex);
  return state_->unfinished() < state_->capacity;
}

bool Worker::has_queue() {
  std::lock_guard lock(state_->mutex);
  return !state_->queue.empty();
}

void Worker::stay_awake(nanoseconds patience) {
  std::lock_guard lock(state_->mutex);
  state_->patience = patience;
}

Worker::Turn Worker::try_turn() {
  std::lock_guard lock(state_->mutex);
  if (state_->finished != state_->submitted) return Turn(nullptr);
  state_->turn = std::this_thread::get_id();
  turns++;
  state_->submitted++;
  return Turn(state_);
}

bool Worker::has_turn() { return turns > 0; }

void Worker::help() {
  while (true) {
    std::shared_ptr<Task> task;
    {
      std::lock_guard lock(state_->mutex);
      if (state_->running || state_->turn || state_->queue.empty() || !state_->queue.front()->anywhere) return;
      task = std::move(state_->queue.front());
      state_->queue.pop_front();
      state_->turn = std::this_thread::get_id();
      turns++;
    }
    const Turn turn(state_);
    task->run();
    task = nullptr;  // before it counts as finished, as on the worker's thread
  }
}

Worker::Turn::~Turn() {
  if (!state_) return;
  turns--;
  bool more;
  {
    std::lock_guard lock(state_->mutex);
    state_->turn.reset();
    state_->finished++;
    more = state_->stop || !state_->queue.empty();
  }
  if (more) state_->not_empty.notify_one();
  state_->progress.notify_all(), state_->room.notify_all();
}

void Worker::drain() {
  std::unique_lock lock(state_->mutex);
  if (state_->runs_here()) return;  // the caller is what it would wait for
  uint64_t goal = state_->submitted;
  while (state_->finished < goal) {
    state_->progress.wait(lock, [&] { return state_->finished >= goal; });
    goal = std::max(goal, state_->follow_up);
  }
}

void Worker::cancel() {
  std::lock_guard lock(state_->mutex);
  state_->cancelled = true;
  state_->current->slot.cancelled = true;
}

uint64_t Worker::busy_ns() const { return state_->busy_ns.load(std::memory_order_relaxed); }

void Worker::loop(const std::shared_ptr<State>& state, Thread& thread) {
  current_slot = &thread.slot;
  current_cancel_flag = &thread.slot.cancelled;
  std::unique_lock lock(state->mutex);
  while (true) {
    if (const nanoseconds patience = std::exchange(state->patience, {}); patience.count() > 0) {
      lock.unlock();
      base::look_for(patience, [&] {
        std::lock_guard look(state->mutex);
        return state->stop || !state->queue.empty();
      });
      lock.lock();
    }
    state->not_empty.wait(lock, [&] { return !state->turn && (state->stop || !state->queue.empty()); });
    if (state->queue.empty()) break;
    {
      std::shared_ptr<Task> task = std::move(state->queue.front());
      state->queue.pop_front();
      state->running = task;
      lock.unlock();
      const auto start = std::chrono::steady_clock::now();
      task->run();
      lock.lock();
      if (thread.given_up) return;  // another thread serves the queue; the watchdog has the task, too
      state->running = nullptr;
      lock.unlock();
      task = nullptr;  // before it counts as finished: drain promises that what it held is gone
      const auto spent = std::chrono::steady_clock::now() - start;
      state->busy_ns.fetch_add(std::chrono::nanoseconds(spent).count(), std::memory_order_relaxed);
    }
    lock.lock();
    state->finished++;
    state->progress.notify_all();
    if (state->has_much_room()) state->room.notify_all();
  }
  state->ended = true;
  state->progress.notify_all();
}

}  // namespace lazyt::loader
