// Inputs that are given up, and outputs that take over their buffers.
#include "suite.h"

namespace lazyt::conformance {
namespace {

class Donation : public Case {
 protected:
  static constexpr const char* kStep =
      "program(%0: f32[4] donate, %1: f32[4]) {\n %2 = aten::mul.Tensor(%1, %1) : f32[4]\n %3 = "
      "aten::add.Tensor(%0, %2, 1) : f32[4]\n return %3 <- %0\n}\n";
  static constexpr const char* kAdd =
      "program(%0: f32[4] donate, %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2 <- "
      "%0\n}\n";
};

LAZYT_CASE(Donation, TheOutputIsTheDonorsBuffer, "EXE-5", "PRG-8") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4})), b = upload(floats({10, 20, 30, 40}));
  MUST(a && b);
  lazyt_event_t* raw = nullptr;
  MUST(ok("PRG-8", "execute with the donated input as output",
          execute_raw(add, {donated(a), in(b)}, {a.get()}, &raw)));
  EventPtr event(raw);
  MUST(wait("PRG-8", "execute", event));
  same_bytes("EXE-5", "read the buffer of donor and output", floats({11, 22, 33, 44}), download(a, 16));
  same_bytes("EXE-5", "read the input that was not donated", floats({10, 20, 30, 40}), download(b, 16));
}

LAZYT_CASE(Donation, InplaceSteps, "EXE-5") {
  Compiled step = compile(kStep);
  MUST(step);
  BufferPtr state = upload(floats({0, 0, 0, 0})), x = upload(floats({1, 2, 3, 4}));
  MUST(state && x);
  EventPtr event;
  for (int i = 0; i < 20; i++) {
    lazyt_event_t* waits[] = {event.get()};
    lazyt_event_t* raw = nullptr;
    MUST(ok("EXE-5", "execute",
            execute_raw(step, {donated(state), in(x)}, {state.get()}, &raw, {waits, event ? 1u : 0u})));
    event.reset(raw);
  }
  MUST(wait("EXE-5", "twenty executes on one buffer", event));
  same_bytes("EXE-5", "twenty steps in place", floats({20, 80, 180, 320}), download(state, 16));
}

LAZYT_CASE(Donation, ADonorMayBeKept, "EXE-4", "EXE-8") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4})), b = upload(floats({10, 20, 30, 40}));
  MUST(a && b);
  std::vector<Bytes> out = run("EXE-4", add, {in(a), in(b)});
  MUST(out.size() == 1);
  same_bytes("EXE-8", "an output names a donor that is not donated", floats({11, 22, 33, 44}), out[0]);
  same_bytes("EXE-4", "read the donor that was not donated", floats({1, 2, 3, 4}), download(a, 16));
}

LAZYT_CASE(Donation, NothingIsConsumedWithoutMemory, "EXE-6") {
  Compiled step = compile(kStep);
  MUST(step);
  bool exhausted = false;
  for (int64_t k = 0; k < 20; k++) {
    BufferPtr state = upload(floats({1, 1, 1, 1})), x = upload(floats({1, 2, 3, 4}));
    MUST(state && x);
    lazyt_event_t* raw = nullptr;
    fail_allocations(k);
    lazyt_status_t* status = execute_raw(step, {donated(state), in(x)}, {state.get()}, &raw);
    EventPtr event(status ? nullptr : raw);
    if (!status) status = plugin().event->wait(event.get(), LAZYT_WAIT_FOREVER);
    const bool refused = allocation_failed();
    fail_allocations(-1);
    const lazyt_code_t code = take_code(status);
    if (code == LAZYT_CODE_RESOURCE_EXHAUSTED) {
      exhausted = true;
      same_bytes(
          "EXE-6",
          fmt::format(
              "execute that failed with RESOURCE_EXHAUSTED, allocation {} refused; read the donated input",
              k),
          floats({1, 1, 1, 1}), download(state, 16));
    }
    if (!refused) break;
  }
  if (!exhausted) unsupported("execute cannot be made to run out of memory");
}

}  // namespace
}  // namespace lazyt::conformance
