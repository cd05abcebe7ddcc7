// Running: inputs kept, outputs written where they belong, order by events alone.
#include <memory>
#include <thread>

#include "suite.h"

namespace lazyt::conformance {
namespace {

constexpr const char* kAdd =
    "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2\n}\n";
constexpr const char* kDouble =
    "program(%0: f32[4]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[4]\n return %1\n}\n";
constexpr const char* kMm =
    "program(%0: f32[2,2], %1: f32[2,2]) {\n %2 = aten::mm(%0, %1) : f32[2,2]\n return %2\n}\n";

class Execute : public Case {
 protected:
  // Runs one program of one output on bytes and compares.
  void gives(const char* rule, const std::string& did, const std::string& text,
             const std::vector<Bytes>& inputs, const Bytes& expected) {
    Compiled program = compile(text);
    MUST(program);
    std::vector<BufferPtr> buffers;
    std::vector<In> ins;
    for (const Bytes& b : inputs) {
      buffers.push_back(upload(b));
      MUST(buffers.back());
      ins.push_back(in(buffers.back()));
    }
    std::vector<Bytes> out = run(rule, program, ins);
    MUST(out.size() == 1);
    if (out[0].size() > expected.size()) out[0].resize(expected.size());
    same_bytes(rule, did, expected, out[0]);
  }
};

LAZYT_CASE(Execute, TheEventTellsWhenOutputsAreWritten, "EXE-2") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4})), b = upload(floats({10, 20, 30, 40}));
  MUST(a && b);
  std::vector<Bytes> out = run("EXE-2", add, {in(a), in(b)});
  MUST(out.size() == 1);
  same_bytes("EXE-2", "executed, waited for the event, read the output", floats({11, 22, 33, 44}), out[0]);
}

LAZYT_CASE(Execute, AgainBeforeEarlierWorkIsDone, "EXE-3") {
  Compiled add = compile(kAdd);
  MUST(add);
  const int runs = options().full ? 500 : 50;
  BufferPtr a = upload(floats({1, 2, 3, 4}));
  MUST(a);
  std::vector<BufferPtr> inputs;
  std::vector<std::vector<BufferPtr>> outs;
  std::vector<EventPtr> events;
  for (int i = 0; i < runs; i++) {
    const float f = static_cast<float>(i);
    inputs.push_back(upload(floats({f, f, f, f})));
    outs.push_back(outputs(add));
    MUST(inputs.back() && outs.back().size() == 1);
    events.push_back(execute("EXE-3", add, {in(a), in(inputs.back())}, outs.back()));
    MUST(events.back());
  }
  for (int i = runs; i-- > 0;) {
    MUST(wait("EXE-3", "execute", events[static_cast<size_t>(i)]));
    const float f = static_cast<float>(i);
    MUST(same_bytes("EXE-3", fmt::format("executed {} times without waiting, read output {}", runs, i),
                    floats({1 + f, 2 + f, 3 + f, 4 + f}), download(outs[static_cast<size_t>(i)][0], 16)));
  }
}

LAZYT_CASE(Execute, InputsKeepTheirBytes, "EXE-4", "PRG-1") {
  Compiled program = compile(
      "program(%0: f32[2,2], %1: f32[2,2]) {\n %2 = aten::mm(%0, %1) : f32[2,2]\n %3 = aten::relu(%2) : "
      "f32[2,2]\n"
      " %4 = aten::mul.Tensor(%3, %0) : f32[2,2]\n %5 = aten::permute(%0, ints[1,0]) : f32[2,2]\n return %4, "
      "%5\n}\n");
  MUST(program);
  const Bytes a_bytes = floats({1, -2, 3, -4}), b_bytes = floats({5, 6, -7, 8});
  BufferPtr a = upload(a_bytes), b = upload(b_bytes);
  MUST(a && b);
  for (int i = 0; i < 3; i++) MUST(!run("EXE-4", program, {in(a), in(b)}).empty());
  same_bytes("EXE-4", "executed three times, read the first input", a_bytes, download(a, 16));
  same_bytes("PRG-1", "executed three times, read the second input", b_bytes, download(b, 16));
}

LAZYT_CASE(Execute, NothingIsRememberedFromRunToRun, "EXE-12") {
  Compiled program = compile(kMm, LAZYT_COMPILE_DETERMINISTIC);
  MUST(program);
  BufferPtr a = upload(floats({0.1f, 0.2f, 0.3f, 0.4f})), b = upload(floats({1.5f, 2.5f, 3.5f, 4.5f})),
            c = upload(floats({9, 8, 7, 6}));
  MUST(a && b && c);
  std::vector<Bytes> first = run("EXE-12", program, {in(a), in(b)});
  MUST(first.size() == 1);
  const float expected[] = {0.85f, 1.15f, 1.85f, 2.55f};
  for (int i = 0; i < 4; i++) {
    float got;
    std::memcpy(&got, first[0].data() + 4 * i, 4);
    keeps("EXE-12", std::abs(got - expected[i]) < 1e-5f, "ran aten::mm once", fmt::format("{}", expected[i]),
          fmt::format("{}", got));
  }
  Bytes others[2];
  for (int i = 0; i < 12; i++) {
    std::vector<Bytes> between = run("EXE-12", program, {in(c), in(i % 2 ? a : c)});
    MUST(between.size() == 1);
    if (i < 2) others[i] = between[0];
    MUST(same_bytes("EXE-12", fmt::format("ran other inputs between, run {}", 2 * i + 1), others[i % 2],
                    between[0]));
    std::vector<Bytes> again = run("EXE-12", program, {in(a), in(b)});
    MUST(again.size() == 1);
    MUST(same_bytes("EXE-12", fmt::format("ran the same inputs again after {} other runs", 2 * i + 1),
                    first[0], again[0]));
  }
}

LAZYT_CASE(Execute, OutputsShareNoBytes, "EXE-8") {
  Compiled program =
      compile("program(%0: f32[4]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[4]\n return %1, %1, %0\n}\n");
  MUST(program);
  BufferPtr input = upload(floats({1, 2, 3, 4})), other = upload(floats({9, 9, 9, 9}));
  MUST(input && other);
  std::vector<BufferPtr> out = outputs(program);
  MUST(out.size() == 3);
  EventPtr event = execute("EXE-8", program, {in(input)}, out);
  MUST(event && wait("EXE-8", "execute", event));
  MUST(ok("EXE-8", "copy into the first output",
          plugin().buffer->copy(other.get(), 0, out[0].get(), 0, 16, {nullptr, 0}, nullptr)));
  MUST(ok("EXE-8", "copy into the third output",
          plugin().buffer->copy(other.get(), 0, out[2].get(), 0, 16, {nullptr, 0}, nullptr)));
  same_bytes("EXE-8", "returned one value twice, wrote over one output, read the other", floats({2, 4, 6, 8}),
             download(out[1], 16));
  same_bytes("EXE-8", "returned an input, wrote over that output, read the input", floats({1, 2, 3, 4}),
             download(input, 16));
}

LAZYT_CASE(Execute, WrongCountsAreRefused, "EXE-10") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4}));
  MUST(a);
  std::vector<BufferPtr> out = outputs(add);
  MUST(out.size() == 1);
  auto attempt = [&](const std::string& did, const std::vector<In>& inputs,
                     const std::vector<lazyt_buffer_t*>& outs) {
    lazyt_event_t* raw = nullptr;
    lazyt_status_t* status = execute_raw(add, inputs, outs, &raw);
    EventPtr event(status ? nullptr : raw);
    if (!status && event) status = plugin().event->wait(event.get(), LAZYT_WAIT_FOREVER);
    fails("EXE-10", did, status, {LAZYT_CODE_INVALID_ARGUMENT});
  };
  attempt("execute with one input of two", {in(a)}, {out[0].get()});
  attempt("execute with three inputs of two", {in(a), in(a), in(a)}, {out[0].get()});
  attempt("execute without outputs", {in(a), in(a)}, {});
}

LAZYT_CASE(Execute, SmallOutputsAreRefused, "EXE-10", "BUF-9") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4})), small = alloc(8);
  MUST(a && small);
  lazyt_event_t* raw = nullptr;
  lazyt_status_t* status = execute_raw(add, {in(a), in(a)}, {small.get()}, &raw);
  EventPtr event(status ? nullptr : raw);
  if (!status && event) status = plugin().event->wait(event.get(), LAZYT_WAIT_FOREVER);
  fails("EXE-10", "execute with a buffer of 8 bytes for an output of 16", status,
        {LAZYT_CODE_INVALID_ARGUMENT});
}

LAZYT_CASE(Execute, ErrorsOfWaitsArePassedOn, "EXE-11") {
  EventPtr failed = failed_event();
  MUST(failed);
  const lazyt_code_t code = take_code(plugin().event->wait(failed.get(), LAZYT_WAIT_FOREVER));
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4}));
  MUST(a);
  std::vector<BufferPtr> out = outputs(add);
  MUST(out.size() == 1);
  lazyt_event_t* waits[] = {failed.get()};
  EventPtr event = execute("EXE-11", add, {in(a), in(a)}, out, {waits, 1});
  MUST(event);
  fails("EXE-11", "execute after an event that carries an error, wait",
        plugin().event->wait(event.get(), LAZYT_WAIT_FOREVER), {code});
}

LAZYT_CASE(Execute, ChainsAreOrderedByEvents, "EXE-2") {
  Compiled twice = compile(kDouble);
  MUST(twice);
  std::vector<BufferPtr> chain;
  chain.push_back(upload(floats({1, 2, 3, 4})));
  MUST(chain.back());
  EventPtr last;
  std::vector<EventPtr> events;
  for (int i = 0; i < 10; i++) {
    std::vector<BufferPtr> out = outputs(twice);
    MUST(out.size() == 1);
    lazyt_event_t* waits[] = {events.empty() ? nullptr : events.back().get()};
    events.push_back(execute("EXE-2", twice, {in(chain.back())}, out, {waits, events.empty() ? 0u : 1u}));
    MUST(events.back());
    chain.push_back(std::move(out[0]));
  }
  lazyt_event_t* waits[] = {events.back().get()};
  Bytes dst(16);
  MUST(ok("EXE-2", "to_host that waits for the last of ten executes",
          plugin().buffer->to_host(chain.back().get(), 0, dst.data(), 16, {waits, 1}, nullptr)));
  same_bytes("EXE-2", "a chain of ten executes, each waiting for the one before",
             floats({1024, 2048, 3072, 4096}), dst);
}

LAZYT_CASE(Execute, FromAnyThread, "EXE-9") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4}));
  MUST(a);
  for (int i = 0; i < 4; i++) {
    std::vector<BufferPtr> out = outputs(add);
    MUST(out.size() == 1);
    std::thread([&] {
      EventPtr event = execute("EXE-9", add, {in(a), in(a)}, out);
      if (event) wait("EXE-9", "execute on another thread", event);
    }).join();
    same_bytes("EXE-9", "compiled on one thread, executed on another, read on the first",
               floats({2, 4, 6, 8}), download(out[0], 16));
  }
}

// Inputs and outputs that lie in the caller's memory, with guard zones around them.
LAZYT_CASE(Execute, NothingIsWrittenAroundOutputs, "BUF-9") {
  if (!host_visible()) return unsupported("the device's memory is not visible to the CPU");
  const uint64_t count = 37, size = count * 4, guard = 256;
  Compiled program = compile(
      "program(%0: f32[37], %1: f32[37]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[37]\n %3 = "
      "aten::mul.Tensor(%2, %0) : f32[37]\n return %2, %3\n}\n");
  MUST(program);
  struct Zone {
    alignas(64) uint8_t bytes[256 + 64 * 3 + 256];
  };
  auto zones = std::make_unique<Zone[]>(4);
  std::memset(static_cast<void*>(zones.get()), kStale, 4 * sizeof(Zone));
  std::vector<BufferPtr> buffers;
  for (int i = 0; i < 4; i++) {
    const std::vector<float> ones(count, 1.0f);
    std::memcpy(zones[i].bytes + guard, ones.data(), size);
    lazyt_host_bytes_t bytes{};
    bytes.struct_size = sizeof bytes;
    bytes.data = zones[i].bytes + guard;
    bytes.size_bytes = size;
    bytes.sharing = LAZYT_SHARING_ALIAS_MUTABLE;
    bytes.done = [](void*) {};
    lazyt_buffer_t* handle = nullptr;
    MUST(ok("BUF-9", "from_host with ALIAS_MUTABLE", plugin().buffer->from_host(device(), &bytes, &handle)));
    buffers.emplace_back(handle);
  }
  lazyt_event_t* raw = nullptr;
  MUST(
      ok("BUF-9", "execute",
         execute_raw(program, {in(buffers[0]), in(buffers[1])}, {buffers[2].get(), buffers[3].get()}, &raw)));
  EventPtr event(raw);
  MUST(wait("BUF-9", "execute", event));
  for (size_t i = 0; i < 4; i++) {
    bool same = true;
    for (uint64_t k = 0; k < sizeof(Zone); k++)
      same &= (k >= guard && k < guard + size) || zones[i].bytes[k] == kStale;
    keeps("BUF-9", same,
          fmt::format("executed with shared memory for inputs and outputs, looked around {} {}",
                      i < 2 ? "input" : "output", i % 2),
          "guard bytes as they were", "some were written");
  }
}

LAZYT_CASE(Execute, NewVersionsAreNewBytes, "EXE-7") {
  Compiled mm = compile(kMm);
  MUST(mm);
  BufferPtr a = upload(floats({1, 0, 0, 1}));
  MUST(a);
  auto with = [&](const Bytes& weight, uint64_t id, uint64_t version) {
    BufferPtr b = upload(weight);
    if (!b) return Bytes();
    In key = in(b);
    key.stable_id = id;
    key.content_version = version;
    std::vector<Bytes> out = run("EXE-7", mm, {in(a), key});
    return out.empty() ? Bytes() : out[0];
  };
  const Bytes first = floats({1, 2, 3, 4}), second = floats({5, 6, 7, 8}), third = floats({9, 8, 7, 6});
  same_bytes("EXE-7", "ran with weights (id 1, version 1)", first, with(first, 1, 1));
  same_bytes("EXE-7", "ran with weights (id 1, version 1) again", first, with(first, 1, 1));
  same_bytes("EXE-7", "ran with other weights (id 1, version 2)", second, with(second, 1, 2));
  same_bytes("EXE-7", "ran with other weights (id 2, version 1)", third, with(third, 2, 1));
  same_bytes("EXE-7", "ran with weights without a key", first, with(first, 0, 0));
  same_bytes("EXE-7", "ran with other weights without a key", second, with(second, 0, 0));
}

LAZYT_CASE(Execute, InputsLieStrideApart, "C-3") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4})), b = upload(floats({10, 20, 30, 40}));
  MUST(a && b);
  std::vector<BufferPtr> out = outputs(add);
  MUST(out.size() == 1);
  struct Longer {
    lazyt_execute_input_t known;
    uint64_t later[3];
  } inputs[2];
  std::memset(static_cast<void*>(inputs), kStale, sizeof inputs);
  inputs[0].known = {a.get(), {}, 0, 0, 0};
  inputs[1].known = {b.get(), {}, 0, 0, 0};
  lazyt_execute_args_t args{};
  args.struct_size = sizeof args;
  args.inputs = &inputs[0].known;
  args.input_count = 2;
  args.input_stride = sizeof(Longer);
  lazyt_buffer_t* outs[] = {out[0].get()};
  args.outputs = outs;
  args.output_count = 1;
  lazyt_event_t* raw = nullptr;
  MUST(ok("C-3", "execute with a longer input_stride",
          plugin().executable->execute(add.handle.get(), &args, &raw)));
  EventPtr event(raw);
  MUST(wait("C-3", "execute", event));
  same_bytes("C-3", "execute with a longer input_stride", floats({11, 22, 33, 44}), download(out[0], 16));
}

LAZYT_CASE(Execute, InputStridesAreKept, "PRG-2") {
  gives("PRG-2", "added a row-major and a column-major [2,3]",
        "program(%0: f32[2,3], %1: f32[2,3]{1,2}) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[2,3]\n return "
        "%2\n}\n",
        {floats({1, 2, 3, 4, 5, 6}), floats({10, 40, 20, 50, 30, 60})}, floats({11, 22, 33, 44, 55, 66}));
}

LAZYT_CASE(Execute, OutputStridesAreKept, "PRG-2") {
  gives("PRG-2", "added into a column-major [2,3]",
        "program(%0: f32[2,3]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[2,3]{1,2}\n return %1\n}\n",
        {floats({1, 2, 3, 4, 5, 6})}, floats({2, 8, 4, 10, 6, 12}));
}

LAZYT_CASE(Execute, BroadcastingIsImplicit, "PRG-4") {
  gives("PRG-4", "added [2,1] and [3]",
        "program(%0: f32[2,1], %1: f32[3]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[2,3]\n return %2\n}\n",
        {floats({10, 20}), floats({1, 2, 3})}, floats({11, 12, 13, 21, 22, 23}));
}

LAZYT_CASE(Execute, HostScalarsTravelWithEachExecute, "PRG-6") {
  Compiled program = compile(
      "program(%0: f32[2], %1: host weak f64) {\n %2 = aten::mul.Scalar(%0, %1) : f32[2]\n return %2\n}\n");
  MUST(program);
  BufferPtr input = upload(floats({1, 2}));
  MUST(input);
  for (double factor : {3.0, 0.0, 1.0, -2.5}) {
    std::vector<Bytes> out = run("PRG-6", program, {in(input), number(scalar(factor))});
    MUST(out.size() == 1);
    const float f = static_cast<float>(factor);
    same_bytes("PRG-6", fmt::format("aten::mul.Scalar with host scalar {}", factor), floats({f, 2 * f}),
               out[0]);
  }
}

LAZYT_CASE(Execute, HostScalarsAreConvertedByTheirReader, "PRG-4", "PRG-6") {
  Compiled program = compile(
      "program(%0: f32[2], %1: host weak i64) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[2]\n return "
      "%2\n}\n");
  MUST(program);
  BufferPtr input = upload(floats({1, 2}));
  MUST(input);
  std::vector<Bytes> out = run("PRG-6", program, {in(input), number(scalar(int64_t{40}))});
  MUST(out.size() == 1);
  same_bytes("PRG-4", "aten::add.Tensor of f32 and a host scalar of i64", floats({41, 42}), out[0]);
}

LAZYT_CASE(Execute, AsStridedCountsInRowMajorOrder, "PRG-3") {
  gives("PRG-3", "as_strided of a column-major [2,3]",
        "program(%0: f32[2,3]{1,2}) {\n %1 = aten::as_strided(%0, ints[2,2], ints[2,1], 1) : f32[2,2]\n "
        "return %1\n}\n",
        {floats({0, 3, 1, 4, 2, 5})}, floats({1, 2, 3, 4}));
}

LAZYT_CASE(Execute, ViewsAreCopiesToTheReader, "PRG-1") {
  Compiled program = compile(
      "program(%0: f32[2,2]) {\n %1 = aten::permute(%0, ints[1,0]) : f32[2,2]\n %2 = aten::relu(%1) : "
      "f32[2,2]\n %3 = aten::add.Tensor(%0, %2, 1) : f32[2,2]\n return %1, %2, %3\n}\n");
  MUST(program);
  BufferPtr input = upload(floats({1, -2, 3, -4}));
  MUST(input);
  std::vector<Bytes> out = run("PRG-1", program, {in(input)});
  MUST(out.size() == 3);
  same_bytes("PRG-1", "permute", floats({1, 3, -2, -4}), out[0]);
  same_bytes("PRG-1", "relu of the view", floats({1, 3, 0, 0}), out[1]);
  same_bytes("PRG-1", "the operand after relu of its view", floats({2, 1, 3, -4}), out[2]);
}

LAZYT_CASE(Execute, ConstantsAreRead, "EXE-1") {
  gives("EXE-1", "added a constant of the block",
        "program(%0: f32[2]) {\n const %1: f32[2] = hex(0000803f00000040)\n %2 = aten::add.Tensor(%0, %1, 1) "
        ": f32[2]\n return %2\n}\n",
        {floats({10, 20})}, floats({11, 22}));
}

LAZYT_CASE(Execute, TheListOfWaitsIsBorrowed, "C-8") {
  Compiled twice = compile(kDouble);
  MUST(twice);
  BufferPtr input = upload(floats({1, 2, 3, 4}));
  MUST(input);
  std::vector<BufferPtr> first = outputs(twice), second = outputs(twice);
  MUST(first.size() == 1 && second.size() == 1);
  EventPtr event = execute("C-8", twice, {in(input)}, first), next;
  MUST(event);
  {
    lazyt_event_t* waits[] = {event.get()};
    next = execute("C-8", twice, {in(first[0])}, second, {waits, 1});
    waits[0] = nullptr;
  }
  MUST(next && wait("C-8", "execute", next));
  same_bytes("C-8", "wrote over the lists of inputs, outputs and waits after execute", floats({4, 8, 12, 16}),
             download(second[0], 16));
}

}  // namespace
}  // namespace lazyt::conformance
