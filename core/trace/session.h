// Session: what one lazyt device runs on: the plugin's device, the executor, the caches, the recorders of threads.
//
// There is one for each device of the process (devices.h). Recording needs no session's device: the plugin is loaded when
// the first bytes or the first launch need it, or the number of devices is asked for.
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
#include "trace/ahead.h"
#include "trace/devices.h"
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
  // The session of lazyt:index. Never destroyed; shut_down_all() ends its work. REQUIRES: index < kMaxDevices. [any thread]
  static Session& get(size_t index = 0);
  static std::vector<Session*> all();  // that were used
  // The number of devices, fixed once it is known: listed in LAZYT_DEVICES, or those of the plugin, which is loaded for
  // this. 1 as long as neither can be told; device() says why. [any thread]
  static size_t count();
  static size_t known_count();  // 0 before that: loads nothing

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
  static Totals totals();  // of all recorders of all sessions
  static void set_replay(bool on);  // for all

  // The plugin's device, loaded at first use. A failure is not remembered: the next call tries again. A lost device
  // is an error that says so.
  base::Result<base::Ref<loader::Device>> device();
  // Finishes all work and moves on to another backend's device. Data of the old one stays readable. From a lost device
  // it moves on with what is pending: only what needs that device's bytes fails.
  base::Status use_backend(DeviceChoice choice);

  // A user's kernel for the backend in use; programs are compiled anew. No other thread may record meanwhile.
  base::Status add_kernel(const loader::CustomKernel& kernel);

  // The bytes on the device. When memory is short, waits for launches to end and tries again. keep: owns data.
  base::Result<base::Ref<loader::Buffer>> upload(const void* data, uint64_t size, loader::Keep keep);

  // Another device's data on this one: filled behind what was handed to the executor before, with the source's error if
  // it has one. Blocks as flush does.
  base::Result<base::Ref<exec::Data>> receive(const base::Ref<exec::Data>& source);

  // Cuts the recorder's trace, if there is one, and hands it to the executor; or runs it, where that is known to cost less
  // (synchronous devices). Blocks while the queue is full: callers hold neither the GIL nor the recorders' mutex.
  base::Status flush(Recorder& recorder, FlushReason reason);
  // The recorder's trace has come to its next_gate(): what of its program can run by now goes to the executor, if that has room.
  // Does not block.
  void begin(Recorder& recorder);
  base::Status flush_all(FlushReason reason);
  // Cuts the caller's trace (null: it has none) and what threads that have ended left, then waits until all that was cut
  // has been run. Errors stay with the data they poisoned.
  base::Status wait(Recorder* recorder);
  // Cuts the caller's trace (null: it has none). The moment is reached when the device has done all that was cut, also
  // where it failed. Blocks as flush does.
  base::Result<base::Ref<Moment>> moment(Recorder* recorder);
  // The error of poisoned data is about to be raised. What was handed to the executor before fails by it, too; what is
  // launched later finds the storages that the failed launch was to write as they were before it (exec::Failure).
  void tell(const exec::Data& data);
  // Cuts the trace in which the storage's bytes are pending, if any; returns its data, null if never written.
  base::Result<base::Ref<exec::Data>> materialize(Storage& storage);

  // The pending program that computes the given storage; or (null) all that is pending in the recorder's trace,
  // which may be null. For printing.
  base::Result<ir::Graph> pending_program(const Storage* storage, Recorder* recorder);
  // Whether the backend takes the (single) call; the refusal as "reason: detail" otherwise. Only used
  // when fallback is not allowed silently.
  base::Result<std::string> refusal(const Op& op, Call& call, const Words& metas, uint32_t fresh);

  // Runs islands of all sessions; set once by the frontend.
  static void set_host_runner(exec::HostRunner* runner) { host_runner_ = runner; }
  cache::ProgramCache& programs() { return programs_; }
  // Gives back what tensors left that died since the last launch. Launches and waits do so themselves.
  void drop_dead();
  uint64_t executor_busy_ns() const { return executor_ ? executor_->busy_ns() : 0; }

  // Ends the work in flight, which plugins are told is no longer wanted, and the executor threads; later use
  // starts them again. For exit: returns although a plugin hangs, after its deadline.
  static void shut_down_all();
  // shut_down_all() when the process exits, and before static objects of plugins are destroyed: those are made when a
  // plugin is loaded, or first compiles or runs something. For programs in C++; an interpreter has its own way.
  static void shut_down_at_exit();
  // In a forked child nothing of the parent's threads is left: what the parent has used cannot be used there.
  // Returns whether that is so.
  static bool mark_forked();
  const uint8_t index;

 private:
  explicit Session(uint8_t index);
  base::Result<uint32_t> count_plugin_devices();
  base::Result<base::Ref<loader::Plugin>> load_plugin();  // REQUIRES: device_mutex_
  void shutdown();
  std::vector<Recorder*> all_recorders();
  base::Ref<loader::Device> device_in_use();  // null before the first use; may be lost
  void help();                                // runs what was submitted and may run here; does not block
  void drain();                               // waits for what was submitted
  void execute(Launch& launch, const base::Ref<loader::Device>& device);
  void run(Launch& launch, const base::Ref<loader::Device>& device);
  base::Result<base::Ref<exec::Plan>> plan_for(const Tape& tape, Variant& variant,
                                               const base::Ref<loader::Device>& device);
  void compile_ahead(Draft& draft, const base::Ref<loader::Device>& device, loader::Worker& worker);
  void go_on_ahead(loader::Worker& worker);
  loader::Worker& executor();
  static uint32_t wanted_threads();

  std::mutex device_mutex_, submit_mutex_, recorders_mutex_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<Recorder*> idle_;  // of threads that have ended
  base::Ref<loader::Device> device_;
  base::Ref<loader::Plugin> plugin_;  // loaded to count its devices, until one is opened
  DeviceChoice choice_;
  std::unique_ptr<loader::Worker> executor_;
  cache::ProgramCache programs_;
  Ahead ahead_;
  size_t queue_ = 4;
  static std::atomic<exec::HostRunner*> host_runner_;
  static std::atomic<bool> replay_, ahead_on_, forked_, at_exit_;
};

}  // namespace lazyt::trace
