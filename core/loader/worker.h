// Worker: a thread that calls plugins, and that is given up when a call does not come back.
//
// A hung call cannot be ended in-process. So plugins are called on workers only (call.h), each call is
// written into its worker's slot, and one watchdog looks at all slots. Past its limit the call's subject is
// lost, the task fails, and a new thread takes over the worker's queue; the old one ends should the call ever
// return.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace lazyt::loader {

class Subject;

// How long a call into a plugin may take (LAZYT_DEADLINE); zero: for ever, and nothing is watched. [any
// thread]
std::chrono::nanoseconds deadline();
// What is wrong with LAZYT_DEADLINE, if anything; deadline() is then the default.
base::Status check_deadline();
// In place of the environment; for tests.
void set_deadline(std::chrono::nanoseconds limit);

// The call that a worker's thread is in. Written by that thread, read by the watchdog.
class Slot {
 public:
  // Of the calling thread; null on threads that are no workers.
  static Slot* current();

  void enter(const Subject& subject, const char* function, std::chrono::nanoseconds limit);
  // False if the call was given up: the subject is lost and nobody waits for the result. Blocks until all
  // of that has been done.
  bool leave();
  // [watchdog] Gives the call up if it is past its limit: the subject is lost, then given_up is told so.
  void expire(int64_t now, const std::function<void(const base::Status&)>& given_up);

  std::atomic<bool> cancelled{false};  // nobody wants the work of this thread any more

 private:
  static constexpr int64_t kIdle = 0, kGivenUp = -1;
  std::atomic<int64_t> since_{kIdle};  // steady clock, ns
  std::atomic<int64_t> limit_{0};
  std::atomic<const char*> function_{nullptr};
  std::atomic<const Subject*> subject_{nullptr};
};

// What host services answer to "was my work cancelled": of the thread's worker, or of all at exit.
bool work_cancelled();
const std::atomic<bool>* cancel_flag();               // of the calling thread; may be null
void set_cancel_flag(const std::atomic<bool>* flag);  // lends another thread's flag; null takes it back
void cancel_all(bool on);                             // the process is about to exit

class Worker {
  struct State;

 public:
  // capacity: tasks waiting or running; submit blocks beyond that.
  explicit Worker(size_t capacity = 4);
  // Runs what was submitted, then ends the thread. Returns although a call hangs, once it is given up.
  ~Worker();

  // Blocks while the queue is full: callers must hold neither the GIL nor a lock that a task takes.
  // A task must not throw; it is destroyed on the worker's thread right after it ran. lost is called once,
  // on another thread and while run may still be running, if run is given up; may be null. anywhere: help() may
  // run it, too.
  void submit(std::function<void()> run, std::function<void(const base::Status&)> lost = nullptr, bool anywhere = false);
  // Whether submit would not block now.
  bool has_room();
  // Whether a task waits for its turn. [any thread]
  bool has_queue();
  // More is expected soon: behind its task the thread looks for it for so long, once, before it sleeps. [any thread]
  void stay_awake(std::chrono::nanoseconds patience);
  // The calling thread in the worker's place: while a turn lives, what is submitted waits. Nothing watches it. It ends on
  // the thread that has taken it.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<State> state) : state_(std::move(state)) {}
    Turn(const Turn&) = delete;
    ~Turn();
    explicit operator bool() const { return state_ != nullptr; }

   private:
    std::shared_ptr<State> state_;
  };
  // A turn, if all that was submitted has run. [any thread]
  Turn try_turn();
  static bool has_turn();  // whether the calling thread has one, of any worker
  // For who is about to wait: runs what the worker's thread has not begun, in its turn, up to the first task that may not
  // run anywhere. To wake a thread and be woken by it takes longer than a short task. [any thread]
  void help();
  // Blocks until everything submitted before the call has run or was given up, what its tasks submit of their own
  // too, and turns that began before it have ended.
  void drain();
  // Tells plugins that ask that this worker's work is no longer wanted; what is queued still runs.
  void cancel();
  uint64_t busy_ns() const;  // time spent in tasks, turns not counted

 private:
  struct Task;
  struct Thread;
  static void start(const std::shared_ptr<State>& state);
  static void loop(const std::shared_ptr<State>& state, Thread& thread);
  friend class Watchdog;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive the worker
};

}  // namespace lazyt::loader
