#include "loader/call.h"

#include <fmt/format.h>

#include <new>

#include "base/counters.h"
#include "base/log.h"
#include "loader/per_process.h"

namespace lazyt::loader {
namespace {

std::string seconds(std::chrono::nanoseconds limit) {
  return fmt::format("{:g} s", std::chrono::duration<double>(limit).count());
}

// Workers that wait for the next call of a thread that is none.
class Callers {
 public:
  static Callers& get() {
    static PerProcess<Callers> instance;
    return instance.get();
  }

  void run(std::function<void()> task, std::function<void(const base::Status&)> lost) {
    std::shared_ptr<Worker> worker;
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        worker = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!worker) worker = std::make_shared<Worker>(kTasks);
    Worker& w = *worker;
    // Once, by whichever comes first: a worker whose call was given up has a new thread by then, and serves
    // on.
    auto lease = std::make_shared<Lease>(std::move(worker));
    w.submit(
        [this, lease, task = std::move(task)] {
          task();
          give_back(*lease);
        },
        [this, lease, lost = std::move(lost)](const base::Status& status) {
          lost(status);
          give_back(*lease);
        });
  }

 private:
  // A worker is handed back by its own task: the next may be there before that one has ended.
  static constexpr size_t kTasks = 4;
  using Lease = std::shared_ptr<Worker>;  // null once given back; mutex_
  void give_back(Lease& lease) {
    std::lock_guard lock(mutex_);
    if (lease) idle_.push_back(std::move(lease));
  }
  std::mutex mutex_;
  std::vector<std::shared_ptr<Worker>> idle_;
};

class Releases {
 public:
  static Releases& get() {
    static PerProcess<Releases> instance;
    return instance.get();
  }
  Worker worker{SIZE_MAX};  // finalizers must not block
};

// Reachable for ever, and with them their libraries.
struct Lost {
  std::mutex mutex;
  std::vector<base::Ref<const Subject>> subjects;
};
Lost& all_lost() {
  static auto* lost = new Lost;
  return *lost;
}

}  // namespace

// ---- subjects

std::vector<base::Ref<const Subject>> lost_subjects() {
  Lost& all = all_lost();
  std::lock_guard lock(all.mutex);
  return all.subjects;
}

base::Status Subject::lost_status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

base::Status Subject::lose(const char* function, std::chrono::nanoseconds limit) const {
  {
    std::lock_guard lock(mutex_);
    if (!status_.ok()) return status_;
    status_ = base::unavailable(fmt::format(
        "{} is lost: {} did not come back within {} (LAZYT_DEADLINE). What it holds cannot be read any more. "
        "Go on with another backend (lazyt.use_backend) or start the process again; if the work was merely "
        "slow, set "
        "LAZYT_DEADLINE to more seconds",
        what(), function, seconds(limit)));
    lost_.store(true, std::memory_order_release);
  }
  base::counter("LostDevices").add();
  base::log(LAZYT_LOG_ERROR, std::string(lost_status().message()));
  {
    Lost& all = all_lost();
    std::lock_guard lock(all.mutex);
    all.subjects.push_back(base::Ref<const Subject>(this));
  }
  return lost_status();
}

void Subject::keep(const void* handle) const {
  std::lock_guard lock(mutex_);
  kept_.push_back(handle);
}

// ---- calls

namespace detail {

void hand_over(std::function<void()> task, std::function<void(const base::Status&)> lost) {
  Callers::get().run(std::move(task), std::move(lost));
}

base::Status answered(const Subject& subject, const char* function, lazyt_status_t* status) {
  if (!status) return {};
  return take_status(status).with_note("plugin " + subject.plugin(), function);
}

base::Status escaped(const Subject& subject, const char* function) {
  lazyt_code_t code = LAZYT_CODE_INTERNAL;
  std::string what = "an exception that is no std::exception";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    code = LAZYT_CODE_RESOURCE_EXHAUSTED, what = "std::bad_alloc";
  } catch (const std::exception& e) {
    what = fmt::format("an exception: '{}'", e.what());
  } catch (...) {
  }
  return {code, fmt::format("plugin '{}' broke C-7 in {}: it let out {}; it must return a status instead (lazyt::plugin::guard makes one)",
                            subject.plugin(), function, what)};
}

void log_escaped(const Subject& subject, const char* function) { base::log(LAZYT_LOG_ERROR, escaped(subject, function).to_string()); }

}  // namespace detail

// ---- releases

bool releases_run_here() { return Slot::current() || deadline().count() == 0; }

void post(std::function<void()> f) {
  if (releases_run_here()) return f();
  Releases::get().worker.submit(std::move(f));
}

void settle() {
  if (deadline().count() > 0) Releases::get().worker.drain();
}

}  // namespace lazyt::loader
