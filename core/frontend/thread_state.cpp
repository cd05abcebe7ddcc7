#include "frontend/thread_state.h"

#include "frontend/errors.h"
#include "frontend/storage.h"
#include "trace/session.h"

namespace lazyt::frontend {
namespace {

void take_stream(Lane& lane, uint32_t device) {
  trace::Session& session = trace::Session::get(device);
  lane.own = &session.take_recorder();
  lane.stream = lane.own_stream = static_cast<int64_t>(session.index_of(*lane.own));
}

Lane& lane_with_stream(uint32_t device) {
  Lane& lane = thread_state().lanes[device];
  if (C10_UNLIKELY(!lane.own)) take_stream(lane, device);
  return lane;
}

trace::Recorder* recorder_if_any(uint32_t device) {
  return current_thread_state ? current_thread_state->lanes[device].recorder : nullptr;
}

}  // namespace

void take_recorder(Lane& lane, uint32_t device) {
  if (!lane.own) take_stream(lane, device);
  lane.recorder = lane.own;
}

size_t device_count() {
  if (size_t known = trace::Session::known_count()) return known;
  WithoutGil released;  // a plugin may be loaded
  return trace::Session::count();
}

uint32_t check_device(c10::Device d) {
  if (d.type() == kDeviceType && d.index() < 0) return thread_state().device;
  if (d.type() == kDeviceType && d.index() == 0) return 0;
  const size_t count = device_count();
  TORCH_CHECK(d.type() == kDeviceType && static_cast<size_t>(d.index()) < count, "lazyt: there is no device ", d, "; there ",
              count == 1 ? "is one, lazyt:0" : c10::str("are ", count, ", lazyt:0 to lazyt:", count - 1));
  return static_cast<uint32_t>(d.index());
}

int64_t current_stream(uint32_t device) { return lane_with_stream(device).stream; }

int64_t join_stream(uint32_t device, int64_t stream) {
  Lane& lane = lane_with_stream(device);
  const int64_t before = std::exchange(lane.stream, stream);
  if (lane.recorder && lane.recorder == lane.own) return before;  // it records by itself
  lane.recorder = stream == lane.own_stream ? nullptr : trace::Session::get(device).recorder(static_cast<size_t>(stream));
  return before;
}

Gil gil;

void flush(trace::FlushReason reason, std::optional<uint32_t> device) {
  for (uint32_t i = 0; i < trace::kMaxDevices; i++)
    if (trace::Recorder* recorder = recorder_if_any(i); recorder && device.value_or(i) == i)
      check(trace::Session::get(i).flush(*recorder, reason));
}

void wait(std::optional<uint32_t> device) {
  if (!device) flush(trace::FlushReason::kValueNeeded);  // so that the devices work at the same time
  for (trace::Session* s : trace::Session::all())
    if (device.value_or(s->index) == s->index) check(s->wait(recorder_if_any(s->index)));
}

}  // namespace lazyt::frontend
