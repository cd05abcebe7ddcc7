// call: every call of a plugin's function goes through here, so that one which never returns ends at its deadline.
//
// On a worker the plugin is called in place, at the cost of two clock reads; any other thread hands the call to a
// worker and waits. Releases do not wait: finalizers only enqueue. No lock of ours may be held during a call on a
// worker: a call that hangs would keep it. A synchronous device (device.h), whose calls only compute, is called in
// place by any thread: there is nothing it could hang in but a loop, and to hand over and wait costs two wake-ups.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "lazyt/status.h"
#include "loader/worker.h"

namespace lazyt::loader {

// Takes over a plugin's status (may be NULL = OK) as a core Status.
base::Status take_status(lazyt_status_t* status);

// What calls are made for: a device, or a library while it is loaded and let go. Lost once a call for it did
// not come back: then no function is called for it any more, and neither it nor its library is ever freed.
class Subject : public base::RefCounted {
 public:
  explicit Subject(std::string plugin, bool synchronous = false) : plugin_(std::move(plugin)), synchronous_(synchronous) {}

  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // UNAVAILABLE: what was lost, why, what to do; OK while it is not lost. [any thread]
  base::Status lost_status() const;
  // Returns lost_status(). A second loss changes nothing. [any thread]
  base::Status lose(const char* function, std::chrono::nanoseconds limit) const;
  // Keeps a handle that can no longer be released: a hung call may still use it. REQUIRES: lost().
  void keep(const void* handle) const;

  const std::string& plugin() const { return plugin_; }
  bool synchronous() const { return synchronous_; }  // called by any thread, which nothing gives up

 protected:
  virtual std::string what() const { return "plugin '" + plugin_ + "'"; }

 private:
  const std::string plugin_;
  const bool synchronous_;
  mutable std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  mutable base::Status status_;
  mutable std::vector<const void*> kept_;
};

// All that were lost in this process. [any thread]
std::vector<base::Ref<const Subject>> lost_subjects();

namespace detail {
// Runs task on an idle worker, without waiting.
void hand_over(std::function<void()> task, std::function<void(const base::Status&)> lost);
base::Status answered(const Subject& subject, const char* function, lazyt_status_t* status);
// Of the C++ exception being handled, which the plugin's function let out (C-7).
base::Status escaped(const Subject& subject, const char* function);
void log_escaped(const Subject& subject, const char* function);

// REQUIRES: on a worker, or no deadline, or a synchronous subject.
template <class Out, class F>
base::Status call_here(const Subject& subject, const char* function, Out& out, F& f,
                       std::chrono::nanoseconds limit) {
  Slot* slot = Slot::current();
  lazyt_status_t* status = nullptr;
  base::Status exception;
  if (slot) slot->enter(subject, function, limit);
  try {
    status = f(out);
  } catch (...) {
    exception = escaped(subject, function);
  }
  if (!slot || slot->leave()) return exception.ok() ? answered(subject, function, status) : exception;
  (void)take_status(status);
  return subject.lost_status();
}
}  // namespace detail

// Calls f(out), which calls the plugin's `function` and returns its status (given). f and out are copied
// where the call may be given up and go on: they hold values and what they keep alive, never pointers to the
// caller's stack. The errors are those of the plugin, with a note that names the function, and those of a
// lost subject. [any thread]
template <class Out, class F>
base::Status call(const Subject& subject, const char* function, Out& out, F f,
                  std::chrono::nanoseconds limit = deadline()) {
  if (subject.lost()) return subject.lost_status();
  if (Slot::current() || limit.count() == 0 || subject.synchronous()) return detail::call_here(subject, function, out, f, limit);
  struct State {
    base::Ref<const Subject> subject;
    Out out;
    std::optional<F> f;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    base::Status status;
    void finish(base::Status s) {
      std::lock_guard lock(mutex);
      if (done) return;
      status = std::move(s);
      done = true;
      changed.notify_all();
    }
  };
  std::shared_ptr<State> state(
      new State{base::Ref<const Subject>(&subject), std::move(out), std::move(f), {}, {}, false, {}});
  detail::hand_over(
      [state, function, limit] {
        base::Status status = detail::call_here(*state->subject, function, state->out, *state->f, limit);
        // While the caller still waits: what these keep is not to die on this thread, and later than settle() knows.
        state->f.reset();
        state->subject = nullptr;
        state->finish(std::move(status));
      },
      [state](const base::Status& lost) { state->finish(lost); });
  std::unique_lock lock(state->mutex);
  state->changed.wait(lock, [&] { return state->done; });
  if (!state->status.ok() && subject.lost()) return state->status;  // the call may still write its results
  out = std::move(state->out);
  return state->status;
}

// The same for functions without results.
template <class F>
base::Status call(const Subject& subject, const char* function, F f) {
  struct Nothing {
  } nothing;
  return call(subject, function, nothing, [f = std::move(f)](Nothing&) mutable { return f(); });
}

// Runs something that may release, when releases run: at once on a worker, else soon, by a worker of its own. [any thread]
void post(std::function<void()> f);
bool releases_run_here();

// Gives a handle of the subject back to its plugin when releases run. A lost subject's handle is kept. owner: keeps the
// subject and the library; it is the caller's until this returns. [any thread]
template <class Handle>
void give_back(const Subject& subject, const base::RefCounted& owner, const char* function, Handle* handle, void (*release)(Handle*)) {
  auto run = [subject = &subject, function, handle, release] {
    if (subject->lost()) return subject->keep(handle);
    Slot* slot = Slot::current();
    if (slot) slot->enter(*subject, function, deadline());
    try {
      release(handle);
    } catch (...) {
      detail::log_escaped(*subject, function);
    }
    if (slot) (void)slot->leave();
  };
  if (releases_run_here() || (subject.synchronous() && Worker::has_turn())) return run();
  post([run, owner = base::Ref<const base::RefCounted>(&owner)] { run(); });
}
// Waits until all that was released before the call is gone. [any thread but workers that serve releases]
void settle();

}  // namespace lazyt::loader
