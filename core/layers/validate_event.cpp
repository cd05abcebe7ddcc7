// Events, and what is known once they are ready.
#include <algorithm>
#include <chrono>

#include "layers/validate_call.h"

namespace lazyt::layers {
namespace {

using Clock = std::chrono::steady_clock;
// Longer than this past its limit, a wait has ignored it; shorter, the machine may be busy.
constexpr double kLateSeconds = 3;

}  // namespace

void Validate::add_event(lazyt_event_t* event, const std::shared_ptr<DeviceState>& device) {
  std::lock_guard lock(mutex_);
  if (auto state = events_.find(event)) {  // a plugin may give references to one that is always ready
    state->references++;
    if (state->device != device) state->device = nullptr;
    return;
  }
  auto state = std::make_shared<EventState>();
  state->device = device;
  events_.add(event, std::move(state));
}

void Validate::begin(std::shared_ptr<Work> work, lazyt_event_t* event, lazyt_events_t waits) {
  add_event(event, work->device);
  work->event = event;
  below->event->retain(event);
  for (uint64_t i = 0; i < waits.count; i++) {
    below->event->retain(waits.events[i]);
    work->waits.push_back(waits.events[i]);
  }
  std::lock_guard lock(mutex_);
  pending_.push_back(std::move(work));
}

std::vector<std::shared_ptr<Work>> Validate::pending() {
  std::lock_guard lock(mutex_);
  return {pending_.begin(), pending_.end()};
}

bool Validate::seen_ready(lazyt_event_t* event) {
  uint32_t ready = 0;
  lazyt_status_t* status = take(below->event->ready(event, &ready), "event.ready");
  above->status->release(status);
  return !status && ready == 1;
}

bool Validate::surely_ready(lazyt_event_t* event) {
  if (seen_ready(event)) return true;
  lazyt_status_t* status = take(below->event->wait(event, 0), "event.wait");
  const bool late = status && above->status->code(status) == LAZYT_CODE_DEADLINE_EXCEEDED;
  above->status->release(status);
  if (late) return false;
  if (!seen_ready(event))
    report(Side::kPlugin, "EVT-1", "event.ready", "wait tells an outcome, ready says that there is none");
  return true;
}

std::optional<std::pair<lazyt_code_t, std::string>> Validate::outcome(lazyt_event_t* event) {
  if (!surely_ready(event)) return std::nullopt;
  lazyt_status_t* status = take(below->event->wait(event, 0), "event.wait");
  if (!status) return std::pair(LAZYT_CODE_OK, std::string());
  const lazyt_string_t message = above->status->message(status);
  std::pair out(above->status->code(status), std::string(message.data, message.size));
  above->status->release(status);
  return out;
}

void Validate::check_kept(const Work& work, lazyt_code_t outcome) {
  for (const Work::Kept& kept : work.kept) {
    if (kept.donated && outcome != LAZYT_CODE_RESOURCE_EXHAUSTED) continue;
    std::unique_lock lock(mutex_);
    if (kept.buffer->writes != kept.writes || buffers_.find(kept.handle) != kept.buffer) continue;
    kept.buffer->looks++;
    lock.unlock();
    const auto now = content(kept.handle, kept.buffer);
    lock.lock();
    if (--kept.buffer->looks == 0) looked_.notify_all();
    lock.unlock();
    if (!now || *now == kept.bytes) continue;
    lock.lock();
    contents_.clear();  // of what the plugin changed, the host is not asked why
    lock.unlock();
    if (kept.donated)
      report(Side::kPlugin, "EXE-6", work.function,
             "memory is short, and the bytes of a donated input changed");
    else
      report(Side::kPlugin, "EXE-4", work.function, "the bytes of an input that was not donated changed");
  }
}

void Validate::settle(const std::shared_ptr<Work>& work) {
  {
    std::lock_guard lock(mutex_);
    auto it = std::find(pending_.begin(), pending_.end(), work);
    if (it == pending_.end()) return;  // another thread does
    pending_.erase(it);
  }
  const auto done = outcome(work->event);
  if (done && done->first == LAZYT_CODE_OK) {
    check_waits({work->waits.data(), work->waits.size()}, work->wait_rule, work->function);
    if (work->must_fail) report(Side::kPlugin, work->must_fail, work->function, work->why);
  }
  if (done) check_kept(*work, done->first);
  for (lazyt_event_t* wait : work->waits) below->event->release(wait);
  below->event->release(work->event);
  for (lazyt_buffer_t* buffer : work->postponed) below->buffer->release(buffer);
}

void Validate::settle(lazyt_event_t* event) {
  for (const auto& work : pending())
    if (work->event == event) settle(work);
}

void Validate::sweep() {
  for (const auto& work : pending())
    if (seen_ready(work->event)) settle(work);
}

// status: what the event was now said to carry; borrowed.
void Validate::check_told(lazyt_event_t* event, EventState& state, lazyt_status_t* status,
                          const char* function) {
  (void)event;
  const lazyt_string_t message = status ? above->status->message(status) : lazyt_string_t{nullptr, 0};
  std::pair now(status ? above->status->code(status) : LAZYT_CODE_OK,
                std::string(message.data, message.size));
  std::unique_lock lock(mutex_);
  state.ready = true;
  if (!state.outcome) state.outcome = now;
  const auto before = *state.outcome;
  lock.unlock();
  if (before != now)
    report(Side::kPlugin, "EVT-6", function,
           fmt::format("told code {} '{}', before code {} '{}'", now.first, now.second, before.first,
                       before.second));
}

// Asked before a call: what another thread learns while that runs says nothing about its answer.
bool Validate::was_ready(const EventState& state) {
  std::lock_guard lock(mutex_);
  return state.ready;
}

lazyt_status_t* Validate::event_ready(lazyt_event_t* event, uint32_t* out) {
  Call call(*this, "event.ready");
  auto state = call.use(events_, event, "the event");
  if (call.refused()) return call.refusal();
  uint32_t ready = 0x5a5a5a5a;
  const bool before = was_ready(*state);
  lazyt_status_t* status = call.run([&] { return below->event->ready(event, &ready); });
  if (status) {
    if (ready != 0x5a5a5a5a) call.plugin("STA-1", "it failed and wrote its result");
    return status;
  }
  if (ready > 1) call.plugin("C-5", fmt::format("it answered {}, neither 0 nor 1", ready));
  {
    std::lock_guard lock(mutex_);
    state->ready |= ready == 1;
  }
  if (before && ready == 0) call.plugin("EVT-1", "the event was ready and is no more");
  if (ready == 1) settle(event);
  *out = ready;
  return nullptr;
}

lazyt_status_t* Validate::event_wait(lazyt_event_t* event, uint64_t timeout_ns) {
  Call call(*this, "event.wait");
  auto state = call.use(events_, event, "the event");
  if (call.refused()) return call.refusal();
  const bool before = was_ready(*state);
  const auto start = Clock::now();
  lazyt_status_t* status = call.run([&] { return below->event->wait(event, timeout_ns); });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double limit = static_cast<double>(timeout_ns) / 1e9;
  if (timeout_ns != LAZYT_WAIT_FOREVER && seconds > limit + kLateSeconds)
    call.plugin("EVT-3", fmt::format("it took {:.1f} s, the limit was {:.1f} s", seconds, limit));
  const bool late = call.code(status) == LAZYT_CODE_DEADLINE_EXCEEDED;
  if (late && !seen_ready(event)) {
    if (timeout_ns == LAZYT_WAIT_FOREVER)
      call.plugin("EVT-3", "a wait without limit ended before the event was ready");
    if (before) call.plugin("EVT-1", "the event was ready and is no more");
    return status;
  }
  // An event may carry DEADLINE_EXCEEDED as its own error, or have become ready just now.
  if (!late) {
    if (!seen_ready(event)) call.plugin("EVT-1", "wait told the outcome, but ready says that there is none");
    check_told(event, *state, status, call.function);
  }
  settle(event);
  return status;
}

void EventCallback::run(void* self, lazyt_status_t* status) {
  auto& c = *static_cast<EventCallback*>(self);
  const int run = c.runs.fetch_add(1);
  if (c.failed)
    c.v.report(Side::kPlugin, "EVT-4", "event.on_ready", "the callback ran although the call failed");
  if (run > 0) return c.v.report(Side::kPlugin, "EVT-4", "event.on_ready", "the callback ran a second time");
  c.v.check_told(c.event, *c.state, status, "event.on_ready");
  c.call(c.user_data, status);
}

lazyt_status_t* Validate::event_on_ready(lazyt_event_t* event, lazyt_event_callback_t callback,
                                         void* user_data) {
  Call call(*this, "event.on_ready");
  auto state = call.use(events_, event, "the event");
  if (!callback) call.host("EVT-4", "the callback is NULL");
  if (call.refused()) return call.refusal();
  auto record = std::shared_ptr<EventCallback>(new EventCallback{*this, callback, user_data, event, state});
  {
    std::lock_guard lock(mutex_);
    while (event_callbacks_.size() > 4096 && event_callbacks_.front()->runs > 0) event_callbacks_.pop_front();
    event_callbacks_.push_back(record);
  }
  lazyt_status_t* status =
      call.run([&] { return below->event->on_ready(event, EventCallback::run, record.get()); });
  if (status) {
    record->failed = true;
    if (record->runs > 0) call.plugin("EVT-4", "the callback ran although the call failed");
  }
  return status;
}

void Validate::event_retain(lazyt_event_t* event) {
  Call call(*this, "event.retain");
  auto state = call.use(events_, event, "the event");
  if (call.refused()) return;
  {
    std::lock_guard lock(mutex_);
    state->references++;
  }
  call.run([&] { below->event->retain(event); });
}

void Validate::event_release(lazyt_event_t* event) {
  if (!event) return below->event->release(nullptr);
  Call call(*this, "event.release");
  auto state = call.use(events_, event, "the event");
  if (call.refused()) return;
  bool last = false, works = false;
  {
    std::lock_guard lock(mutex_);
    last = --state->references == 0;
    if (last) events_.remove(event);
    works =
        std::any_of(pending_.begin(), pending_.end(), [&](const auto& work) { return work->event == event; });
  }
  if (last && works && seen_ready(event)) settle(event);
  call.run([&] { below->event->release(event); });
}

}  // namespace lazyt::layers
