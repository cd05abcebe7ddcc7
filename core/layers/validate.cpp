// Plugin, devices, capability.
#include "layers/validate.h"

#include <algorithm>
#include <bit>

#include <nlohmann/json.hpp>

#include "ir/verifier.h"
#include "layers/validate_call.h"
#include "layers/validate_program.h"

namespace lazyt::layers {

bool is_text(lazyt_string_t text) {
  if (text.size == 0) return true;
  if (!text.data) return false;
  try {
    (void)nlohmann::json(std::string(text.data, text.size)).dump();  // throws on what is not UTF-8
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void Validate::report(Side side, const char* rule, const char* function, std::string seen) {
  std::unique_lock lock(mutex_);
  Violation violation{rule, side, name_, function, std::move(seen)};
  lock.unlock();
  layers::report(violation, abort_);
}

// --- plugin -----------------------------------------------------------------------------------

lazyt_status_t* Validate::init() {
  Call call(*this, "plugin.init");
  if (phase_ == Phase::kRunning) call.host("LIB-6", "it is running already");
  if (call.refused()) return call.refusal();
  const Phase before = phase_.exchange(Phase::kRunning);
  lazyt_status_t* status = call.run([&] { return below->init(); });
  if (status) phase_ = before;
  return status;
}

void Validate::shutdown() {
  Call call(*this, "plugin.shutdown");
  if (phase_ != Phase::kRunning) call.host("LIB-6", "it is not running");
  size_t open = 0;
  {
    std::lock_guard lock(mutex_);
    open = devices_.live().size();
  }
  if (open > 0) call.host("LIB-9", fmt::format("{} devices are open", open));
  if (call.refused()) return;
  sweep();
  call.run([&] { below->shutdown(); });
  phase_ = Phase::kShutDown;
  std::unique_lock lock(mutex_);
  int64_t held = 0;
  for (const auto& [status, references] : statuses_) held += references;
  statuses_.clear();
  lock.unlock();
  if (held > 0) call.plugin("STA-4", fmt::format("it holds {} references to statuses after shutdown", held));
}

void Validate::closed() {
  std::lock_guard lock(mutex_);
  event_callbacks_.clear();
  bytes_callbacks_.clear();
}

lazyt_status_t* Validate::info(lazyt_plugin_info_t* out) {
  Call call(*this, "plugin.info");
  if (!call.sized(out, "lazyt_plugin_info_t")) return call.refusal();
  lazyt_status_t* status = call.fill(out, [&](auto* room) { return below->info(room); });
  if (status) return status;
  for (lazyt_string_t text : {out->name, out->version, out->description, out->vendor, out->why_none})
    if (!is_text(text)) call.plugin("C-4", "a string is not UTF-8");
  const std::string name(out->name.data, out->name.size);
  if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != name.npos)
    call.plugin("LIB-8", fmt::format("its name is '{}'", name));
  std::lock_guard lock(mutex_);
  name_ = name;
  return nullptr;
}

// --- devices ----------------------------------------------------------------------------------

lazyt_status_t* Validate::device_count(uint32_t* out) {
  Call call(*this, "device.count");
  if (phase_ != Phase::kRunning) call.host("LIB-9", "called while the plugin is not running");
  if (call.refused()) return call.refusal();
  uint32_t count = 0x5a5a5a5a;
  lazyt_status_t* status = call.run([&] { return below->device->count(&count); });
  if (status) {
    if (count != 0x5a5a5a5a) call.plugin("STA-1", "it failed and wrote its result");
    return status;
  }
  *out = count;
  count_ = count;
  return nullptr;
}

lazyt_status_t* Validate::device_describe(uint32_t index, lazyt_device_info_t* out) {
  Call call(*this, "device.describe");
  if (phase_ != Phase::kRunning) call.host("LIB-9", "called while the plugin is not running");
  if (!call.sized(out, "lazyt_device_info_t") || call.refused()) return call.refusal();
  lazyt_status_t* status = call.fill(out, [&](auto* room) { return below->device->describe(index, room); });
  if (count_ >= 0 && index >= count_ && call.code(status) != LAZYT_CODE_INVALID_ARGUMENT)
    call.plugin("DEV-2", fmt::format("index {} of {} is not INVALID_ARGUMENT", index, count_.load()));
  if (status) return status;
  if (out->name.size == 0 || !is_text(out->name)) call.plugin("DEV-6", "the device has no name");
  if (out->alignment != 0 && !std::has_single_bit(out->alignment))
    call.plugin("DEV-6", fmt::format("alignment {} is not a power of two", out->alignment));
  return nullptr;
}

lazyt_status_t* Validate::device_open(uint32_t index, lazyt_device_t** out) {
  Call call(*this, "device.open");
  if (phase_ != Phase::kRunning) call.host("LIB-9", "called while the plugin is not running");
  if (call.refused()) return call.refusal();
  lazyt_device_t* made = Call::unwritten<lazyt_device_t>();
  lazyt_status_t* status = call.run([&] { return below->device->open(index, &made); });
  if (count_ >= 0 && index >= count_ && call.code(status) != LAZYT_CODE_INVALID_ARGUMENT)
    call.plugin("DEV-2", fmt::format("index {} of {} is not INVALID_ARGUMENT", index, count_.load()));
  status = call.hand_out(status, made, out, "C-5");
  if (status) return status;
  auto state = std::make_shared<DeviceState>();
  state->index = index;
  lazyt_device_info_t info{};
  info.struct_size = sizeof info;
  if (lazyt_status_t* ignored = call.run([&] { return below->device->describe(index, &info); }))
    above->status->release(ignored);
  state->flags = info.flags;
  std::unique_lock lock(mutex_);
  const bool twice = devices_.find(made) != nullptr;
  if (!twice) devices_.add(made, std::move(state));
  lock.unlock();
  if (twice) call.plugin("DEV-3", "a second open gave the same handle");
  return nullptr;
}

void Validate::device_close(lazyt_device_t* device) {
  if (!device) return below->device->close(nullptr);
  Call call(*this, "device.close");
  auto state = call.use(devices_, device, "the device");
  call.alone(state);
  if (call.refused()) return;
  sweep();
  size_t buffers = 0, executables = 0, events = 0;
  std::vector<std::shared_ptr<Work>> unfinished;
  std::unique_lock lock(mutex_);
  for (const auto& [handle, b] : buffers_.live()) buffers += b->device == state;
  for (const auto& [handle, e] : executables_.live()) executables += e->device == state;
  for (const auto& [handle, e] : events_.live()) events += e->device == state;
  std::erase_if(pending_, [&](const auto& work) {
    if (work->device != state) return false;
    unfinished.push_back(work);
    return true;
  });
  lock.unlock();
  if (buffers + executables + events > 0)
    call.host("DEV-7", fmt::format("{} buffers, {} executables and {} events of it are not released", buffers,
                                   executables, events));
  for (const auto& work : unfinished) {
    for (lazyt_event_t* wait : work->waits) below->event->release(wait);
    below->event->release(work->event);
    for (lazyt_buffer_t* late : work->postponed) below->buffer->release(late);
  }
  if (call.refused()) return;
  lock.lock();
  devices_.remove(device);
  lock.unlock();
  call.run([&] { below->device->close(device); });
  check_guards(call.function);
  lock.lock();
  int callbacks = 0, bytes = 0;
  for (const auto& c : event_callbacks_)
    if (c->state->device == state && !c->failed && c->runs.exchange(1) == 0) callbacks++;
  for (const auto& c : bytes_callbacks_)
    if (c->device == state && !c->failed && c->runs.exchange(1) == 0) bytes++;
  lock.unlock();
  if (callbacks > 0) call.plugin("EVT-4", fmt::format("{} callbacks of events never ran", callbacks));
  if (bytes > 0) call.plugin("BUF-8", fmt::format("{} times done was never called", bytes));
}

lazyt_status_t* Validate::device_memory_stats(lazyt_device_t* device, lazyt_memory_stats_t* out) {
  Call call(*this, "device.memory_stats");
  call.use(devices_, device, "the device");
  if (!call.sized(out, "lazyt_memory_stats_t") || call.refused()) return call.refusal();
  lazyt_status_t* status =
      call.fill(out, [&](auto* room) { return below->device->memory_stats(device, room); });
  if (status) return status;
  if (out->bytes_in_use > out->peak_bytes_in_use)
    call.plugin("DEV-4", fmt::format("{} bytes in use, peak {}", out->bytes_in_use, out->peak_bytes_in_use));
  if (out->derived_bytes > out->bytes_in_use)
    call.plugin("DEV-4", fmt::format("{} derived bytes of {} in use", out->derived_bytes, out->bytes_in_use));
  return nullptr;
}

lazyt_status_t* Validate::device_trim(lazyt_device_t* device) {
  Call call(*this, "device.trim");
  call.alone(call.use(devices_, device, "the device"));
  if (call.refused()) return call.refusal();
  return call.run([&] { return below->device->trim(device); });
}

// --- capability -------------------------------------------------------------------------------

lazyt_status_t* Validate::capability_query(lazyt_device_t* device, const lazyt_program_t* program,
                                           lazyt_answer_t* answers, uint64_t count, uint64_t stride) {
  Call call(*this, "capability.query");
  auto state = call.use(devices_, device, "the device");
  call.alone(state);
  check_program(call, program);
  if (call.refused()) return call.refusal();
  if (count != program->nodes.count)
    call.host("C-3", fmt::format("{} answers for {} nodes", count, program->nodes.count));
  if (stride < sizeof(lazyt_answer_t) || stride % 8 != 0) call.host("C-3", fmt::format("stride {}", stride));
  auto answer = [](auto* first, uint64_t i, uint64_t step) {
    return reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(first) + i * step);
  };
  for (uint64_t i = 0; i < count && !call.refused(); i++)
    call.sized(answer(answers, i, stride), "lazyt_answer_t");
  if (call.refused()) return call.refusal();

  // Answers further apart than the host's, and what lies between them: both tell whether the stride is kept.
  constexpr uint64_t kGap = 64;
  const uint64_t step = sizeof(lazyt_answer_t) + kGap;
  std::vector<uint64_t> room((count * step + kGap) / 8, 0x5a5a5a5a5a5a5a5a);
  for (uint64_t i = 0; i < count; i++)
    std::memcpy(answer(room.data(), i, step), answer(answers, i, stride), sizeof(lazyt_answer_t));
  const base::Hash128 before = program_hash(program, state->index);
  lazyt_status_t* status = call.run(
      [&] { return below->capability->query(device, program, answer(room.data(), 0, step), count, step); });
  if (program_hash(program, state->index) != before) call.plugin("EXE-1", "it wrote into the program");
  for (uint64_t i = 0; i < count; i++) {
    const auto* gap = reinterpret_cast<const uint8_t*>(answer(room.data(), i, step) + 1);
    if (std::all_of(gap, gap + kGap, [](uint8_t byte) { return byte == 0x5a; })) continue;
    call.plugin("C-3", "it wrote between the answers: the stride is not kept");
    break;
  }
  if (status) {
    if (call.code(status) == LAZYT_CODE_UNIMPLEMENTED || call.code(status) == LAZYT_CODE_NOT_FOUND)
      call.plugin("CAP-5", "the query failed, instead of refusing nodes");
    return status;
  }
  Answers now;
  now.all_taken = true;
  const bool later = below->abi_minor > LAZYT_ABI_MINOR;  // its lists may be longer than ours (C-10)
  for (uint64_t i = 0; i < count; i++) {
    lazyt_answer_t& a = *answer(answers, i, stride);
    std::memcpy(&a, answer(room.data(), i, step), sizeof a);
    now.of_nodes.push_back(a);
    now.all_taken &= a.kind == LAZYT_ANSWER_TAKE;
    if (a.kind < LAZYT_ANSWER_REFUSE || (a.kind > LAZYT_ANSWER_ONLY_IF && !later))
      call.plugin("C-10", fmt::format("node {}: answer {} is none of the list", i, a.kind));
    else if (a.kind == LAZYT_ANSWER_ONLY_IF &&
             (a.condition <= LAZYT_CONDITION_NONE || (a.condition > LAZYT_CONDITION_STATIC_DIMS && !later)))
      call.plugin("C-10", fmt::format("node {}: condition {} is none of the list", i, a.condition));
    if (a.reason < LAZYT_REASON_NONE || (a.reason > LAZYT_REASON_COST && !later))
      call.plugin("C-10", fmt::format("node {}: reason {} is none of the list", i, a.reason));
    if (!is_text(a.detail)) call.plugin("C-4", fmt::format("node {}: the detail is not UTF-8", i));
    if (a.kind == LAZYT_ANSWER_REFUSE && (a.reason == LAZYT_REASON_NONE || a.detail.size == 0))
      call.plugin("CAP-3", fmt::format("node {} is refused without a {}", i,
                                       a.reason == LAZYT_REASON_NONE ? "reason" : "detail"));
  }
  std::unique_lock lock(mutex_);
  if (answers_.size() > 4096) answers_.clear();
  auto [known, fresh] = answers_.try_emplace(before, now);
  const bool same =
      fresh || std::equal(now.of_nodes.begin(), now.of_nodes.end(), known->second.of_nodes.begin(),
                          known->second.of_nodes.end(), [&](const lazyt_answer_t& a, const lazyt_answer_t& b) {
                            // A user's kernel may have come or gone (ext/draft/custom_kernel.h).
                            const auto unknown = [](const lazyt_answer_t& x) { return x.reason == LAZYT_REASON_UNKNOWN_OPERATOR; };
                            if (lazyt_node(program, &a - now.of_nodes.data())->op == 0 && unknown(a) != unknown(b)) return true;
                            // Options of the plugin may change in between.
                            const bool disabled =
                                a.reason == LAZYT_REASON_DISABLED || b.reason == LAZYT_REASON_DISABLED;
                            return disabled ||
                                   (a.kind == b.kind && a.reason == b.reason && a.condition == b.condition &&
                                    (a.group != 0) == (b.group != 0));
                          });
  lock.unlock();
  if (!same) call.plugin("CAP-1", "it answered the same program otherwise before");
  return nullptr;
}

}  // namespace lazyt::layers
