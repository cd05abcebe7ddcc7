#include "trace/session.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/counters.h"
#include "base/env.h"
#include "base/host_reasons.h"
#include "base/log.h"
#include "base/patience.h"
#include "exec/in_flight.h"
#include "exec/transfer.h"
#include "loader/loader.h"
#include "loader/parallel.h"
#include "partition/compile.h"
#include "passes/decomposition.h"
#include "trace/compile.h"
#include "trace/lower.h"

namespace lazyt::trace {
namespace {

class Timer {
 public:
  explicit Timer(const char* metric) : metric_(metric), start_(std::chrono::steady_clock::now()) {}
  ~Timer() {
    base::record_time(metric_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }

 private:
  const char* metric_;
  std::chrono::steady_clock::time_point start_;
};

base::Counter& flushes(FlushReason reason) {
  static const auto& counters = *[] {
    auto* all = new std::vector<base::Counter*>;
    for (int r = 0; r <= static_cast<int>(FlushReason::kExit); r++)
      all->push_back(&base::counter(fmt::format("Flush{}", flush_reason_name(static_cast<FlushReason>(r)))));
    return all;
  }();
  return *counters[static_cast<size_t>(reason)];
}

// "aten::mm, aten::relu, ...: 14 operators, ending at model.py:12"
std::string describe(const Tape& tape) {
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(tape.tokens.size(), kNamed); i++) text += (i > 0 ? ", " : "") + tape.token(i).op->name;
  if (tape.tokens.size() > kNamed) text += fmt::format(", ...: {} operators", tape.tokens.size());
  return fmt::format("{}, ending at {}", text, where(tape));
}

base::Status in_forked_child() {
  return base::failed_precondition(
      "lazyt: cannot be used in a forked child process; start workers with the 'spawn' method "
      "(multiprocessing.set_start_method('spawn')) or use CPU tensors there");
}

}  // namespace

// Both in one library: libstdc++ lets waiters of 64-bit atomics sleep in a pool that each library has of its own.
void Moment::wait() const { nanoseconds_.wait(0, std::memory_order_acquire); }

void Moment::reach() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  int64_t none = 0;
  nanoseconds_.compare_exchange_strong(none, std::chrono::nanoseconds(now).count(), std::memory_order_acq_rel);
  nanoseconds_.notify_all();
}

std::atomic<bool> Session::replay_{true}, Session::ahead_on_{true}, Session::forked_{false}, Session::at_exit_{false};
std::atomic<exec::HostRunner*> Session::host_runner_{nullptr};

namespace {
std::mutex sessions_mutex;
std::array<std::atomic<Session*>, kMaxDevices> sessions;  // never destroyed
std::atomic<size_t> device_count{0};                      // 0: not known yet
}  // namespace

Session& Session::get(size_t index) {
  assert(index < kMaxDevices);
  if (Session* session = sessions[index].load(std::memory_order_acquire)) return *session;
  std::lock_guard lock(sessions_mutex);
  Session* session = sessions[index].load(std::memory_order_relaxed);
  if (!session) sessions[index].store(session = new Session(static_cast<uint8_t>(index)), std::memory_order_release);
  return *session;
}

std::vector<Session*> Session::all() {
  std::vector<Session*> used;
  for (auto& s : sessions)
    if (Session* session = s.load(std::memory_order_acquire)) used.push_back(session);
  return used;
}

size_t Session::known_count() { return device_count.load(std::memory_order_relaxed); }

size_t Session::count() {
  if (size_t n = known_count()) return n;
  const auto& list = listed_devices();
  size_t n = list.ok() ? list.value().size() : 0;
  if (list.ok() && n == 0)
    if (auto counted = get().count_plugin_devices(); counted.ok()) n = std::min(counted.value(), kMaxDevices);
  size_t unknown = 0;
  if (n > 0 && !device_count.compare_exchange_strong(unknown, n)) n = unknown;
  return std::max<size_t>(n, 1);
}

Session::Session(uint8_t index) : index(index), programs_([] {
    auto size = base::env_int("LAZYT_CACHE_SIZE", 1024, 1, 1 << 20);
    return static_cast<size_t>(size.ok() ? size.value() : 1024);
  }()) {
  // A wrong value is reported by device(), which every use passes.
  if (auto n = base::env_int("LAZYT_QUEUE", 4, 1, 1024); n.ok()) queue_ = static_cast<size_t>(n.value());
  static std::once_flag once;
  std::call_once(once, [] {
    if (auto on = base::env_bool("LAZYT_REPLAY", true); on.ok()) replay_ = on.value();
    if (auto on = base::env_bool("LAZYT_COMPILE_AHEAD", true); on.ok()) ahead_on_ = on.value() && !base::env("LAZYT_DUMP");
  });
  const auto& list = listed_devices();
  if (list.ok() && index < list.value().size()) choice_ = list.value()[index];
  else choice_.index = index;
}

Recorder& Session::take_recorder() {
  Recorder* taken = nullptr;
  {
    std::lock_guard lock(recorders_mutex_);
    if (idle_.empty()) {
      recorders_.push_back(std::make_unique<Recorder>(index));
      recorders_.back()->set_replay(replay_);
      recorders_.back()->set_max_tapes(programs_.capacity());
      return *recorders_.back();
    }
    taken = idle_.back();
    idle_.pop_back();
  }
  // What an ended thread left is no part of the next one's step. If it cannot be cut now it goes on to be pending.
  (void)flush(*taken, FlushReason::kOtherThread);
  return *taken;
}

void Session::give_back(Recorder& recorder) {
  std::lock_guard lock(recorders_mutex_);
  idle_.push_back(&recorder);
}

Recorder* Session::recorder(size_t index) {
  std::lock_guard lock(recorders_mutex_);
  return index < recorders_.size() ? recorders_[index].get() : nullptr;
}

size_t Session::index_of(const Recorder& recorder) {
  std::lock_guard lock(recorders_mutex_);
  return std::ranges::find(recorders_, &recorder, &std::unique_ptr<Recorder>::get) - recorders_.begin();
}

std::vector<Recorder*> Session::all_recorders() {
  std::lock_guard lock(recorders_mutex_);
  std::vector<Recorder*> all;
  for (auto& r : recorders_) all.push_back(r.get());
  return all;
}

Session::Totals Session::totals() {
  Totals t;
  for (Session* s : all()) {
    const auto recorders = s->all_recorders();
    std::lock_guard recording(recording_lock);
    for (Recorder* r : recorders) t.live_storages += r->live_storages(), t.tapes += r->tape_count();
  }
  return t;
}

void Session::set_replay(bool on) {
  replay_ = on;
  for (Session* s : all()) {
    const auto recorders = s->all_recorders();
    std::lock_guard recording(recording_lock);
    for (Recorder* r : recorders) r->set_replay(on);
  }
}

base::Result<base::Ref<loader::Device>> Session::device() {
  std::lock_guard lock(device_mutex_);
  if (forked_) return in_forked_child();
  if (device_ && device_->lost()) return device_->lost_status();
  if (device_) return device_;
  for (auto check : {base::env_int("LAZYT_CACHE_SIZE", 1024, 1, 1 << 20).status(),
                     base::env_int("LAZYT_QUEUE", 4, 1, 1024).status(), base::env_bool("LAZYT_REPLAY", true).status(),
                     base::env_bool("LAZYT_COMPILE_AHEAD", true).status(), piece_bytes().status(),
                     base::env_int("LAZYT_MAX_PENDING", 20000, 1, 1 << 30).status(),
                     base::env_bool("LAZYT_EAGER", false).status(),
                     base::env_int("LAZYT_PROBE_BYTES", 1 << 24, 0, 1 << 30).status(),
                     base::env_choice("LAZYT_FALLBACK", "allow").status(), loader::check_deadline(),
                     listed_devices().status()})
    if (!check.ok()) return check;
  LAZYT_ASSIGN_OR_RETURN(auto plugin, load_plugin());
  LAZYT_ASSIGN_OR_RETURN(device_, loader::Device::open(plugin, choice_.index));
  plugin_ = nullptr;
  base::log(LAZYT_LOG_INFO, fmt::format("backend {} {} ({})", plugin->info.name, plugin->info.version, device_->info.name));
  return device_;
}

base::Result<base::Ref<loader::Plugin>> Session::load_plugin() {
  if (plugin_) return plugin_;
  LAZYT_ASSIGN_OR_RETURN(plugin_, loader::load(choice_.backend, nullptr, choice_.variable));
  return plugin_;
}

base::Result<uint32_t> Session::count_plugin_devices() {
  std::lock_guard lock(device_mutex_);
  if (forked_) return in_forked_child();
  if (device_) return loader::device_count(*device_->plugin);
  LAZYT_ASSIGN_OR_RETURN(auto plugin, load_plugin());
  return loader::device_count(*plugin);
}

base::Ref<loader::Device> Session::device_in_use() {
  std::lock_guard lock(device_mutex_);
  return device_;
}

base::Status Session::use_backend(DeviceChoice choice) {
  {
    std::lock_guard lock(device_mutex_);
    if (forked_) return in_forked_child();
  }
  base::Ref<loader::Device> old = device_in_use();
  const bool lost = old && old->lost();
  if (old && !lost) LAZYT_RETURN_IF_ERROR(flush_all(FlushReason::kBackendChange));
  drain();
  if (old) exec::InFlight::get().finish(old.get());
  base::Result<base::Ref<loader::Plugin>> plugin = loader::load(choice.backend);
  if (!plugin.ok()) return plugin.status();
  LAZYT_ASSIGN_OR_RETURN(auto device, loader::Device::open(plugin.value(), choice.index));
  std::lock_guard submit(submit_mutex_);
  if (executor_) executor_->drain();  // what another thread has launched meanwhile
  std::lock_guard lock(device_mutex_);
  const auto all = all_recorders();
  std::lock_guard recording(recording_lock);
  // What was recorded before any device was there runs on the new one; so does what a lost one did not get to.
  if (device_ && !lost) {
    if (!std::ranges::all_of(all, &Recorder::empty))
      return base::failed_precondition("backend: another thread recorded meanwhile; change the backend when none does");
    for (Recorder* r : all) r->clear_tapes();
  }
  programs_.clear();
  ahead_.clear();
  choice_ = std::move(choice);
  plugin_ = nullptr;
  device_ = std::move(device);
  return {};
}

base::Status Session::add_kernel(const loader::CustomKernel& kernel) {
  LAZYT_ASSIGN_OR_RETURN(auto device, this->device());
  LAZYT_RETURN_IF_ERROR(flush_all(FlushReason::kBackendChange));
  drain();
  std::lock_guard submit(submit_mutex_);
  if (executor_) executor_->drain();  // what another thread has launched meanwhile
  LAZYT_RETURN_IF_ERROR(loader::add_kernel(*device, kernel));
  const auto all = all_recorders();
  std::lock_guard recording(recording_lock);
  if (!std::ranges::all_of(all, &Recorder::empty))
    return base::failed_precondition("add_kernel: another thread recorded meanwhile; add kernels when none does");
  for (Recorder* r : all) r->clear_tapes();
  programs_.clear();
  ahead_.clear();
  return {};
}

loader::Worker& Session::executor() {  // REQUIRES: submit_mutex_
  if (!executor_) executor_ = std::make_unique<loader::Worker>(queue_);
  return *executor_;
}

namespace {

// To wake another core's thread takes 7 to 25 us of this one's, and what goes between their caches about as much again
// (sdk_docs/decisions/0002-recorder.md): what takes less is run here. Who waits for it loses nothing by running it, but does
// not see the threads that the executor has for longer programs; and nothing watches it.
constexpr uint32_t kHandOverNs = 30'000, kWaitedForNs = 300'000, kWaitedForOnOneThreadNs = 5'000'000;

// What has begun while it was recorded mostly ends within so much: who waits for it looks for that before it sleeps. And the next mostly
// begins so soon behind it: the executor looks for that.
constexpr std::chrono::microseconds kNearlyDone{1000}, kNextBegins{100};

bool takes_at_most(uint32_t ns, const Variant& variant) { return variant.launch_ns.load(std::memory_order_relaxed) <= ns; }
// Of a synchronous device.
bool waiter_may_run(const Variant& variant, uint32_t threads) {
  return takes_at_most(threads == 1 ? kWaitedForOnOneThreadNs : kWaitedForNs, variant);
}

// What a thread that computes for PyTorch, and has the executor's turn, has set (denormals, rounding) is not what programs run with.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    if (lent_) std::fegetenv(&before_), std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() {
    if (lent_) std::fesetenv(&before_);
  }

 private:
  const bool lent_ = loader::Worker::has_turn();
  std::fenv_t before_;
};

}  // namespace

// As Launch's threads.
uint32_t Session::wanted_threads() {
  exec::HostRunner* host = host_runner_;
  return host ? host->threads() : 0;
}

base::Status Session::flush(Recorder& recorder, FlushReason reason) {
  // First of all: without a device nothing is cut, so nothing is lost.
  {
    std::lock_guard recording(recording_lock);
    if (recorder.empty()) return {};
  }
  LAZYT_ASSIGN_OR_RETURN(auto device, this->device());
  std::unique_lock submit(submit_mutex_);  // launches run in the order of their flushes
  auto launch = std::make_shared<Launch>();
  {
    std::lock_guard recording(recording_lock);
    if (recorder.empty()) return {};
    *launch = recorder.flush(reason);
  }
  flushes(reason).add();
  launch->threads = wanted_threads();
  const bool anywhere = device->synchronous() && waiter_may_run(*launch->variant, launch->threads);
  if (reason == FlushReason::kValueNeeded ? anywhere : device->synchronous() && takes_at_most(kHandOverNs, *launch->variant))
    if (auto turn = executor().try_turn()) {
      submit.unlock();
      execute(*launch, device);
      launch.reset();  // before the turn ends, as of what is submitted
      return {};
    }
  std::shared_ptr<Draft> draft;
  if (ahead_on_ && launch->variant->launch_ns.load(std::memory_order_relaxed) == UINT32_MAX) draft = ahead_.begin(launch->tape, launch->variant);
  executor().submit([this, launch, device]() mutable {
    execute(*launch, device);
    if (launch->early) executor().stay_awake(kNextBegins);
    launch.reset();
  }, [launch](const base::Status& lost) {
    auto error = lost.with_note(fmt::format("launch {}", launch->step), describe(*launch->tape));
    for (auto& out : launch->outputs) out->poison(error);
  }, anywhere);
  const base::Ref<exec::Data> soon = reason == FlushReason::kValueNeeded && launch->early ? launch->outputs.back() : nullptr;  // filled last
  launch.reset();
  // Behind the launch, while the host records.
  loader::Worker& worker = executor();
  if (draft) worker.submit([this, draft, device = std::move(device), &worker] { compile_ahead(*draft, device, worker); });
  submit.unlock();
  if (draft && reason == FlushReason::kValueNeeded)
    if (const Growth* growth = draft->growth()) {
      {
        std::lock_guard recording(recording_lock);
        recorder.expect(*growth);
      }
      if (!soon || !soon->filled()) draft->prepared();
    }
  if (!soon) return {};
  worker.help();  // nothing has begun yet where the executor finds no processor
  base::look_for(kNearlyDone, [&] { return soon->filled(); });
  return {};
}

void Session::begin(Recorder& recorder) {
  const std::unique_lock submit(submit_mutex_, std::try_to_lock);  // another thread may wait for room under it
  if (!submit || forked_) return;
  const bool has_room = executor().has_room();
  base::Ref<Early> early;
  {
    std::lock_guard recording(recording_lock);
    early = recorder.begin(has_room);
  }
  if (!early) return;
  loader::Worker& worker = executor();
  const uint32_t threads = wanted_threads();
  worker.submit([early, &worker, threads] {
    loader::set_thread_count(threads);
    const DefaultArithmetic arithmetic;
    early->run([&worker] { return worker.has_queue(); });
  }, [early](const base::Status&) { early->lose(); }, waiter_may_run(*early->variant, threads));
}

// On the executor's thread, or another's that has its turn.
void Session::execute(Launch& launch, const base::Ref<loader::Device>& device) {
  loader::set_thread_count(launch.threads);
  const DefaultArithmetic arithmetic;
  try {
    run(launch, device);
  } catch (const std::exception& e) {  // only this launch fails
    const bool memory = dynamic_cast<const std::bad_alloc*>(&e);
    const base::Status error(memory ? LAZYT_CODE_RESOURCE_EXHAUSTED : LAZYT_CODE_INTERNAL, std::string("lazyt: the host failed to run a program: ") + e.what());
    for (auto& out : launch.outputs) out->poison(error);
  }
}

namespace {

void count_compile(bool was_cached) {
  static base::Counter &cached = base::counter("CachedCompile"), &uncached = base::counter("UncachedCompile");
  (was_cached ? cached : uncached).add();
}

void count_guess(const Ahead::Guess& guess) {
  static base::Counter& ahead = base::counter("CompiledAhead");
  count_compile(guess.cached);
  if (!guess.cached) ahead.add();
}

}  // namespace

void Session::run(Launch& launch, const base::Ref<loader::Device>& device) {
  launch.dead.clear();
  launch.dropped.clear();
  bool first = !launch.variant->plan;
  if (first || !(launch.variant->plan->device == device)) {
    auto plan = plan_for(*launch.tape, *launch.variant, device);
    if (!plan.ok()) {
      base::Status error = plan.status().with_note(
          "compile", fmt::format("launch {} ({}): {}", launch.step, flush_reason_name(launch.reason), describe(*launch.tape)));
      exec::fail(error, launch.inputs, launch.outputs, launch.variant->rewrites);
      return;
    }
    launch.variant->plan = std::move(plan).value();
    if (!launch.variant->gates_known) launch.variant->set_gates(gates_of(*launch.tape, *launch.variant->plan));
    launch.variant->launch_ns = launch.variant->last_launch_ns = UINT32_MAX;
  } else if (auto guess = launch.variant->launch_ns == UINT32_MAX ? ahead_.take(*launch.variant) : std::nullopt) {
    first = true;
    count_guess(*guess);
  } else {
    count_compile(true);
  }
  const auto start = std::chrono::steady_clock::now();
  exec::InFlight::get().limit(device.get(), queue_);
  Variant& variant = *launch.variant;
  exec::Begun* begun = launch.early ? launch.early->begun(*variant.plan) : nullptr;
  variant.plan->launch(std::move(launch.inputs), launch.outputs, launch.step, variant.rewrites, begun);
  const auto spent = std::chrono::steady_clock::now() - start + (begun ? launch.early->spent() : std::chrono::nanoseconds(0));
  base::record_time("ExecuteTime", std::chrono::duration<double>(spent).count());
  // Islands see what the thread has set for PyTorch, so they stay on the executor's.
  if (!variant.plan->has_islands()) {
    const auto ns = static_cast<uint32_t>(std::min<int64_t>(std::chrono::nanoseconds(spent).count(), UINT32_MAX));
    variant.launch_ns.store(std::min(ns, std::exchange(variant.last_launch_ns, ns)), std::memory_order_relaxed);
  }
  if (first && at_exit_) shut_down_at_exit();
}

base::Result<base::Ref<exec::Plan>> Session::plan_for(const Tape& tape, Variant& variant,
                                                      const base::Ref<loader::Device>& device) {
  if (auto guess = ahead_.take(tape, variant); guess && guess->variant->plan->device == device) {
    count_guess(*guess);
    variant.rewrites = guess->variant->rewrites;
    return guess->variant->plan;
  }
  Timer timer("CompileTime");
  LAZYT_ASSIGN_OR_RETURN(Prepared prepared, prepare(tape, variant.outputs));
  LAZYT_ASSIGN_OR_RETURN(Compiled compiled, compile(std::move(prepared), device, programs_, host_runner_));
  count_compile(compiled.cached);
  for (const partition::Refusal& r : compiled.refusals)
    base::note_host_reason(base::host_name(r.op.substr(0, r.op.find('.'))), r.reason, r.line);
  variant.rewrites = std::move(compiled.rewrites);
  return std::move(compiled.plan);
}

void Session::compile_ahead(Draft& draft, const base::Ref<loader::Device>& device, loader::Worker& worker) {
  const auto begin = [&](Prepared prepared) {
    Timer timer("CompileAheadTime");
    return Compilation::begin(std::move(prepared), device, programs_, host_runner_);
  };
  ahead_.begin(draft, {begin, [device] { return device->lost(); }});
  go_on_ahead(worker);
}

void Session::go_on_ahead(loader::Worker& worker) {
  if (!ahead_.has_begun()) return;
  Timer timer("CompileAheadTime");
  if (ahead_.go_on([&worker] { return worker.has_queue(); })) worker.submit([this, &worker] { go_on_ahead(worker); });
}

base::Result<base::Ref<loader::Buffer>> Session::upload(const void* data, uint64_t size, loader::Keep keep) {
  LAZYT_ASSIGN_OR_RETURN(auto device, this->device());
  auto buffer = loader::Buffer::from_host(device, data, size, keep);
  if (buffer.ok() || buffer.status().code() != LAZYT_CODE_RESOURCE_EXHAUSTED) return buffer;
  drain();
  exec::make_room(*device);
  return loader::Buffer::from_host(device, data, size, std::move(keep));
}

base::Result<base::Ref<exec::Data>> Session::receive(const base::Ref<exec::Data>& source) {
  LAZYT_ASSIGN_OR_RETURN(auto device, this->device());
  auto data = base::make_ref<exec::Data>(source->shared_meta, source->size_bytes);
  std::lock_guard submit(submit_mutex_);
  executor().submit([source, data, device = std::move(device)] { exec::transfer(source, *data, device); },
                    [data](const base::Status& lost) { data->poison(lost.with_note("copy", "from another device")); });
  return data;
}

base::Status Session::flush_all(FlushReason reason) {
  for (Recorder* r : all_recorders()) LAZYT_RETURN_IF_ERROR(flush(*r, reason));
  return {};
}

base::Status Session::wait(Recorder* recorder) {
  if (recorder) LAZYT_RETURN_IF_ERROR(flush(*recorder, FlushReason::kValueNeeded));
  std::vector<Recorder*> left;
  {
    std::lock_guard lock(recorders_mutex_);
    left = idle_;
  }
  for (Recorder* r : left) LAZYT_RETURN_IF_ERROR(flush(*r, FlushReason::kValueNeeded));
  drain();
  return {};
}

void Session::tell(const exec::Data& data) {
  const base::Ref<exec::Failure> failure = data.failure();
  if (!failure) return;
  drain();
  failure->told = true;
}

base::Result<base::Ref<Moment>> Session::moment(Recorder* recorder) {
  auto moment = base::make_ref<Moment>();
  if (recorder) LAZYT_RETURN_IF_ERROR(flush(*recorder, FlushReason::kTimedEvent));
  std::lock_guard submit(submit_mutex_);
  if (forked_) return in_forked_child();
  if (!executor_) {  // nothing was ever run
    moment->reach();
    return moment;
  }
  executor().submit([moment, device = device_in_use()] {
    if (device) exec::InFlight::get().finish(device.get());
    moment->reach();
  }, [moment](const base::Status&) { moment->reach(); });
  return moment;
}

void Session::help() {
  loader::Worker* executor;
  {
    std::unique_lock submit(submit_mutex_, std::try_to_lock);
    if (!submit) return;  // another thread hands work over, perhaps to a full queue
    executor = executor_.get();
  }
  if (executor) executor->help();
}

void Session::drain() {
  loader::Worker* executor;
  {
    std::lock_guard submit(submit_mutex_);
    executor = executor_.get();
  }
  if (executor) executor->help(), executor->drain();
  // What is compiled ahead may be in nobody's hands since a call was given up.
  for (; executor && ahead_.has_begun(); executor->drain()) executor->submit([this, executor] { go_on_ahead(*executor); });
  drop_dead();
}

void Session::drop_dead() {
  std::vector<base::Ref<exec::Data>> dead;  // dropped after the lock
  std::lock_guard recording(recording_lock);
  dead = Recorder::take_dead(index);
}

base::Result<base::Ref<exec::Data>> Session::materialize(Storage& storage) {
  Recorder* recorder;
  base::Ref<exec::Data> data;
  {
    std::lock_guard recording(recording_lock);
    recorder = storage.pending ? storage.recorder : nullptr;
    data = storage.data;
  }
  if (recorder) {
    LAZYT_RETURN_IF_ERROR(flush(*recorder, FlushReason::kValueNeeded));
    std::lock_guard recording(recording_lock);
    data = storage.data;
  }
  if (data && !data->filled()) help();
  return data;
}

base::Result<ir::Graph> Session::pending_program(const Storage* storage, Recorder* recorder) {
  base::Ref<Tape> tape;
  std::vector<uint32_t> outputs;
  {
    std::lock_guard recording(recording_lock);
    if (storage) recorder = storage->pending ? storage->recorder : nullptr;
    if (!recorder) return ir::Graph();
    tape = recorder->snapshot();
    outputs = recorder->pending_slots(storage);
  }
  LAZYT_ASSIGN_OR_RETURN(ir::Graph graph, lower(*tape, outputs));
  LAZYT_RETURN_IF_ERROR(optimise(graph));
  return graph;
}

base::Result<std::string> Session::refusal(const Op& op, Call& call, const Words& metas, uint32_t fresh) {
  LAZYT_ASSIGN_OR_RETURN(auto device, this->device());
  // A tape of this one call over dense inputs.
  Tape tape;
  Words signature(call.signature.begin(), call.signature.end()), roles;
  for_each_tensor(signature.data(), signature.size(), [&](uint64_t* w) {
    uint32_t rank = low_of(*w);
    base::Meta meta = base::Meta::contiguous(static_cast<base::DType>(mid_of(*w)), base::Dims(w + 2, w + 2 + rank));
    w[1] = 0;
    std::copy(meta.strides.begin(), meta.strides.end(), w + 2 + rank);
    uint32_t slot = static_cast<uint32_t>(tape.slots.size());
    roles.push_back(kNewInput | slot);
    put_meta(roles, meta);
    const uint64_t bytes = meta.span_bytes();
    roles.push_back(bytes);
    tape.inputs.push_back(slot);
    tape.slots.push_back(std::make_shared<const Slot>(Slot{std::move(meta), bytes}));
  });
  tape.scalars = call.scalar_types;
  const TokenHeader header{.op = &op, .scalars = static_cast<uint32_t>(call.scalars.size()), .fresh = fresh, .written = static_cast<uint32_t>(call.writes.size())};
  tape.add(Token::of(header, signature, roles, metas), static_cast<uint32_t>(tape.slots.size()));
  const uint64_t* m = metas.data();
  std::vector<uint32_t> outputs;
  for (uint32_t i = 0; i < fresh + call.writes.size(); i++) {
    outputs.push_back(static_cast<uint32_t>(tape.slots.size()));
    base::Meta meta = take_meta(m);
    if (meta.dtype == LAZYT_DTYPE_INVALID) meta = base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {0});
    tape.slots.push_back(i < fresh ? std::make_shared<const Slot>(Slot{std::move(meta)}) : tape.slots[call.writes[i - fresh]]);
  }
  LAZYT_ASSIGN_OR_RETURN(ir::Graph graph, lower(tape, outputs));
  LAZYT_RETURN_IF_ERROR(optimise(graph));
  std::lock_guard submit(submit_mutex_);  // a device answers one call at a time (C-9)
  if (executor_) executor_->drain();
  LAZYT_ASSIGN_OR_RETURN(auto refusals, partition::refusals(graph, device, &passes::decompose_and_mark));
  if (!refusals.empty()) return refusals[0].reason;
  return std::string();
}

void Session::shut_down_at_exit() {
  at_exit_ = true;
  std::atexit([] { shut_down_all(); });  // the last one registered runs first
}

bool Session::mark_forked() {
  for (Session* s : all()) forked_ = forked_ || s->device_ || s->executor_;
  return forked_;
}

void Session::shut_down_all() {
  if (forked_) return;
  loader::cancel_all(true);
  for (Session* s : all()) s->shutdown();
  loader::settle();
  loader::cancel_all(false);
}

void Session::shutdown() {
  if (auto s = flush_all(FlushReason::kExit); !s.ok()) base::log(LAZYT_LOG_DEBUG, "exit: " + s.to_string());
  {
    std::lock_guard submit(submit_mutex_);
    executor_.reset();
  }
  drop_dead();
  if (auto device = device_in_use()) exec::InFlight::get().finish(device.get());
}

}  // namespace lazyt::trace
