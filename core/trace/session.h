// Session: what one lazyt device runs on: the plugin's device, the executor, the caches, the recorders of threads.
//
// lazyt:0 is the one session of the process today. Recording needs no session's device: the plugin is
// loaded when the first bytes or the first launch need it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/program_cache.h"
#include "exec/host_runner.h"
#include "ir/graph.h"
#include "loader/handles.h"
#include "loader/worker.h"
#include "trace/recorder.h"

namespace lazyt::trace {

// A point in the order of work, and when the device got there.
class Moment : public base::RefCounted {
 public:
  bool reached() const { return nanoseconds() != 0; }
  int64_t nanoseconds() const { return nanoseconds_.load(std::memory_order_acquire); }  // steady clock; 0: not reached
  void wait() const;  // callers do not hold the GIL
  void reach();       // now, if it is not reached yet

 private:
  std::atomic<int64_t> nanoseconds_{0};
};

class Session {
 public:
  // The process's session. Never destroyed; shutdown() ends its work. [any thread]
  static Session& get();

  // A recorder for a thread that begins to record, with the tapes of one that has ended if there is one. It lives
  // as long as the session; give_back when the thread ends: what is pending there stays so until it is needed, or
  // the recorder taken up again.
  Recorder& take_recorder();
  void give_back(Recorder& recorder);
  // By the order in which they were made; null if there are not so many.
  Recorder* recorder(size_t index);
  size_t index_of(const Recorder& recorder);
  struct Totals {
    size_t live_storages = 0, tapes = 0;
  };
  Totals totals();  // of all recorders
  void set_replay(bool on);

  // The plugin's device, loaded at first use (LAZYT_BACKEND, or `backend` before that). A failure
  // is not remembered: the next call tries again. A lost device is an error that says so.
  base::Result<base::Ref<loader::Device>> device();
  // Finishes all work and moves on to another backend. Data of the old one stays readable. From a lost device it
  // moves on with what is pending: only what needs that device's bytes fails.
  base::Status use_backend(const std::string& requested);

  // A user's kernel for the backend in use; programs are compiled anew. No other thread may record meanwhile.
  base::Status add_kernel(const loader::CustomKernel& kernel);

  // The bytes on the device. When memory is short, waits for launches to end and tries again. keep: owns data.
  base::Result<base::Ref<loader::Buffer>> upload(const void* data, uint64_t size, loader::Keep keep);

  // Cuts the recorder's trace, if there is one, and hands it to the executor. Blocks while the queue is full:
  // callers hold neither the GIL nor the recorders' mutex.
  base::Status flush(Recorder& recorder, FlushReason reason);
  base::Status flush_all(FlushReason reason);
  // Cuts the caller's trace (null: it has none), then waits until all that was cut has been run. Errors stay with the
  // data they poisoned.
  base::Status wait(Recorder* recorder);
  // Cuts the caller's trace (null: it has none). The moment is reached when the device has done all that was cut, also
  // where it failed. Blocks as flush does.
  base::Result<base::Ref<Moment>> moment(Recorder* recorder);
  // Cuts the trace in which the storage's bytes are pending, if any; returns its data, null if never written.
  base::Result<base::Ref<exec::Data>> materialize(Storage& storage);

  // The pending program that computes the given storage; or (null) all that is pending in the recorder's trace,
  // which may be null. For printing.
  base::Result<ir::Graph> pending_program(const Storage* storage, Recorder* recorder);
  // Whether the backend takes the (single) call; the refusal as "reason: detail" otherwise. Only used
  // when fallback is not allowed silently.
  base::Result<std::string> refusal(const Op& op, Call& call, const Words& metas, uint32_t fresh);

  // Runs islands; set once by the frontend.
  void set_host_runner(exec::HostRunner* runner) { host_runner_ = runner; }
  cache::ProgramCache& programs() { return programs_; }
  // Gives back what tensors left that died since the last launch. Launches and waits do so themselves.
  void drop_dead();
  uint64_t executor_busy_ns() const { return executor_ ? executor_->busy_ns() : 0; }

  // Ends the work in flight, which plugins are told is no longer wanted, and the executor thread; later use
  // starts it again. For exit: returns although a plugin hangs, after its deadline.
  void shutdown();
  // shutdown() when the process exits, and before static objects of plugins are destroyed: those are made when a
  // plugin is loaded, or first compiles or runs something. For programs in C++; an interpreter has its own way.
  void shut_down_at_exit();
  // In a forked child nothing of the parent's threads is left: what the parent has used cannot be used there.
  // Returns whether that is so.
  bool mark_forked() { return forked_ = forked_ || device_ || executor_; }
  bool forked() const { return forked_; }

 private:
  Session();
  std::vector<Recorder*> all_recorders();
  base::Ref<loader::Device> device_in_use();  // null before the first use; may be lost
  void drain();                               // waits for what was submitted
  void run(Launch& launch, const base::Ref<loader::Device>& device);
  base::Result<base::Ref<exec::Plan>> plan_for(const Tape& tape, const Variant& variant,
                                               const base::Ref<loader::Device>& device);
  loader::Worker& executor();

  std::mutex device_mutex_, submit_mutex_, recorders_mutex_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<Recorder*> idle_;  // of threads that have ended
  bool replay_ = true;
  base::Ref<loader::Device> device_;
  std::string requested_;
  std::unique_ptr<loader::Worker> executor_;
  cache::ProgramCache programs_;
  exec::HostRunner* host_runner_ = nullptr;
  size_t queue_ = 4;
  std::atomic<bool> forked_{false}, at_exit_{false};
};

}  // namespace lazyt::trace
