// Events: ready once, waits with a deadline, callbacks.
#include <atomic>
#include <chrono>
#include <thread>

#include "suite.h"

namespace lazyt::conformance {
namespace {

struct Heard {
  std::atomic<int> calls{0};
  std::atomic<lazyt_code_t> code{-1};
  static void call(void* self, lazyt_status_t* status) {
    auto* heard = static_cast<Heard*>(self);
    heard->code = status ? host()->status->code(status) : LAZYT_CODE_OK;
    heard->calls++;
  }
  // Callbacks may come a little after wait returned.
  void settle() const {
    for (int i = 0; i < 1000 && calls == 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
};

class Event : public Case {
 protected:
  // Work of some size, so that events of plugins with a queue are not ready at once.
  static constexpr int64_t kSide = 96;
  Compiled work() {
    return compile(
        fmt::format("program(%0: f32[{0},{0}]) {{\n %1 = aten::mm(%0, %0) : f32[{0},{0}]\n %2 = aten::mm(%1, "
                    "%0) : f32[{0},{0}]\n"
                    " return %2\n}}\n",
                    kSide));
  }
  // The last event of `count` executes in a row; outputs are kept until the case ends.
  EventPtr last_of(const char* rule, const Compiled& program, int count) {
    BufferPtr input = upload(Bytes(kSide * kSide * 4, 0));
    if (!input) return nullptr;
    EventPtr event;
    for (int i = 0; i < count; i++) {
      std::vector<BufferPtr> out = outputs(program);
      if (out.size() != 1) return nullptr;
      event = execute(rule, program, {in(input)}, out);
      if (!event) return nullptr;
      for (BufferPtr& b : out) buffers_.push_back(std::move(b));
      events_.push_back(nullptr);
      if (i + 1 < count) events_.back() = std::move(event);
    }
    buffers_.push_back(std::move(input));
    return event;
  }
  void TearDown() override {
    for (const EventPtr& e : events_)
      if (e) take_code(plugin().event->wait(e.get(), LAZYT_WAIT_FOREVER));
    events_.clear();
    buffers_.clear();
    Case::TearDown();
  }
  uint32_t ready(const char* rule, const EventPtr& event) {
    uint32_t r = 77;
    ok(rule, "ready", plugin().event->ready(event.get(), &r));
    keeps(rule, r <= 1, "ready", "0 or 1", fmt::format("{}", r));
    return r;
  }

  std::vector<BufferPtr> buffers_;
  std::vector<EventPtr> events_;
};

LAZYT_CASE(Event, ReadyStaysReady, "EVT-1") {
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("EVT-1", program, 3);
  MUST(event && wait("EVT-1", "execute", event));
  for (int i = 0; i < 50; i++) {
    MUST(keeps("EVT-1", ready("EVT-1", event) == 1, "ready after wait returned", "1", "0"));
    MUST(ok("EVT-1", "wait(0) once ready", plugin().event->wait(event.get(), 0)));
  }
}

LAZYT_CASE(Event, SynchronousWorkIsDoneAtOnce, "DEV-8") {
  if (!(info().flags & LAZYT_DEVICE_SYNCHRONOUS)) return unsupported("the device is not synchronous");
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("DEV-8", program, 3);
  MUST(event && keeps("DEV-8", ready("DEV-8", event) == 1, "ready after execute", "1", "0"));
  BufferPtr from = upload(Bytes(1 << 20, 1)), to = upload(Bytes(1 << 20, 2));
  MUST(from && to);
  lazyt_event_t* copied = nullptr;
  MUST(ok("DEV-8", "copy", plugin().buffer->copy(from.get(), 0, to.get(), 0, 1 << 20, {}, &copied)));
  event.reset(copied);
  if (event) keeps("DEV-8", ready("DEV-8", event) == 1, "ready after copy", "1", "0");
}

LAZYT_CASE(Event, ErrorsStay, "EVT-1", "EVT-2") {
  EventPtr failed = failed_event();
  MUST(failed);
  const lazyt_code_t code = take_code(plugin().event->wait(failed.get(), LAZYT_WAIT_FOREVER));
  for (int i = 0; i < 10; i++) {
    keeps("EVT-2", ready("EVT-2", failed) == 1, "ready of an event that carries an error", "1", "0");
    fails("EVT-1", "wait again", plugin().event->wait(failed.get(), 0), {code});
  }
}

LAZYT_CASE(Event, ErrorsReachCallbacks, "EVT-4", "EVT-6") {
  EventPtr failed = failed_event();
  MUST(failed);
  const lazyt_code_t code = take_code(plugin().event->wait(failed.get(), LAZYT_WAIT_FOREVER));
  Heard heard;
  MUST(ok("EVT-4", "on_ready", plugin().event->on_ready(failed.get(), Heard::call, &heard)));
  heard.settle();
  MUST(keeps("EVT-4", heard.calls == 1, "on_ready of an event that carries an error", "one call",
             fmt::format("{} calls", heard.calls.load())));
  keeps("EVT-6", heard.code == code, "on_ready of an event that carries an error",
        fmt::format("code {}", code), fmt::format("code {}", heard.code.load()));
}

LAZYT_CASE(Event, WaitWithoutTimeDoesNotBlock, "EVT-3") {
  Compiled program = work();
  MUST(program);
  // More work each time, until the question comes while it runs. Plugins that work at once never get there.
  bool asked_in_time = false;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (int count = 40; count <= 640 && !asked_in_time && std::chrono::steady_clock::now() < limit; count *= 2) {
    EventPtr event = last_of("EVT-3", program, count);
    MUST(event);
    const bool before = ready("EVT-3", event) == 1;
    const auto start = std::chrono::steady_clock::now();
    const lazyt_code_t code = take_code(plugin().event->wait(event.get(), 0));
    const auto took = std::chrono::steady_clock::now() - start;
    const bool after = ready("EVT-3", event) == 1;
    const double ms = std::chrono::duration<double, std::milli>(took).count();
    if (before)
      keeps("EVT-3", code == LAZYT_CODE_OK, "wait(0) of a ready event", "OK", fmt::format("code {}", code));
    if (!after)
      keeps("EVT-3", code == LAZYT_CODE_DEADLINE_EXCEEDED, "wait(0) of an event that is not ready",
            "DEADLINE_EXCEEDED", fmt::format("code {}", code));
    keeps("EVT-3", before || code != LAZYT_CODE_OK || ms < 25, "wait(0) of an event that was not ready",
          "an answer at once", fmt::format("OK after {:.1f} ms", ms));
    asked_in_time = !before && (code != LAZYT_CODE_OK || ms >= 25);
    MUST(wait("EVT-3", "execute", event));
  }
}

LAZYT_CASE(Event, WaitEndsAtItsDeadline, "EVT-3") {
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("EVT-3", program, 40);
  MUST(event);
  const lazyt_code_t code = take_code(plugin().event->wait(event.get(), 1000000));
  if (ready("EVT-3", event) == 0)
    keeps("EVT-3", code == LAZYT_CODE_DEADLINE_EXCEEDED, "wait(1 ms) of an event that is not ready then",
          "DEADLINE_EXCEEDED", fmt::format("code {}", code));
  MUST(wait("EVT-3", "execute", event));
}

LAZYT_CASE(Event, CallbackOfAReadyEventRunsOnce, "EVT-4", "EVT-6") {
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("EVT-4", program, 1);
  MUST(event && wait("EVT-4", "execute", event));
  Heard heard[3];
  for (Heard& h : heard)
    MUST(ok("EVT-4", "on_ready of a ready event", plugin().event->on_ready(event.get(), Heard::call, &h)));
  for (Heard& h : heard) {
    h.settle();
    keeps("EVT-4", h.calls == 1, "on_ready of a ready event", "one call",
          fmt::format("{} calls", h.calls.load()));
    if (h.calls)
      keeps("EVT-6", h.code == LAZYT_CODE_OK, "on_ready of work that went well", "NULL as status",
            fmt::format("code {}", h.code.load()));
  }
}

LAZYT_CASE(Event, CallbackOfAPendingEventRunsOnce, "EVT-4") {
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("EVT-4", program, 20);
  MUST(event);
  Heard heard[5];
  for (Heard& h : heard)
    MUST(ok("EVT-4", "on_ready", plugin().event->on_ready(event.get(), Heard::call, &h)));
  MUST(wait("EVT-4", "execute", event));
  for (Heard& h : heard) {
    h.settle();
    keeps("EVT-4", h.calls == 1, "on_ready before the work is done", "one call",
          fmt::format("{} calls", h.calls.load()));
  }
}

LAZYT_CASE(Event, CallbackRunsAfterRelease, "EVT-4", "EVT-5") {
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("EVT-4", program, 10);
  MUST(event);
  Heard heard;
  MUST(ok("EVT-4", "on_ready", plugin().event->on_ready(event.get(), Heard::call, &heard)));
  event.reset();
  heard.settle();
  keeps("EVT-4", heard.calls == 1, "on_ready, then release of the event", "one call",
        fmt::format("{} calls", heard.calls.load()));
}

LAZYT_CASE(Event, ReleaseDoesNotCancel, "EVT-5") {
  Compiled add =
      compile("program(%0: f32[4]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[4]\n return %1\n}\n");
  MUST(add);
  BufferPtr input = upload(floats({1, 2, 3, 4}));
  MUST(input);
  std::vector<BufferPtr> first = outputs(add), second = outputs(add);
  MUST(first.size() == 1 && second.size() == 1);
  EventPtr event = execute("EVT-5", add, {in(input)}, first);
  MUST(event);
  // What reads the output waits for it by a reference of its own; the host's goes.
  lazyt_event_t* waits[] = {event.get()};
  EventPtr next = execute("EVT-5", add, {in(first[0])}, second, {waits, 1});
  MUST(next);
  event.reset();
  MUST(wait("EVT-5", "execute", next));
  same_bytes("EVT-5", "executed twice in a chain, released the first event at once", floats({4, 8, 12, 16}),
             download(second[0], 16));
}

LAZYT_CASE(Event, RetainedEventsLive, "EVT-6") {
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("EVT-6", program, 5);
  MUST(event);
  plugin().event->retain(event.get());
  EventPtr other(event.get());
  event.reset();
  ok("EVT-6", "wait by the second reference", plugin().event->wait(other.get(), LAZYT_WAIT_FOREVER));
}

LAZYT_CASE(Event, ManyThreadsWait, "EVT-6") {
  Compiled program = work();
  MUST(program);
  EventPtr event = last_of("EVT-6", program, 20);
  MUST(event);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back(
        [&] { good += take_code(plugin().event->wait(event.get(), LAZYT_WAIT_FOREVER)) == LAZYT_CODE_OK; });
  for (std::thread& t : threads) t.join();
  keeps("EVT-6", good == 4, "wait from four threads", "OK four times", fmt::format("{} times", good.load()));
}

}  // namespace
}  // namespace lazyt::conformance
