// What it costs to cross the ABI, on the null plugin: --only CASE --calls N runs one case N times and prints nanoseconds
// a call; bench/boundary.py counts its instructions, too.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "ir/graph.h"
#include "loader/loader.h"

namespace {

using namespace lazyt;  // the bench is a program of the host

// The baseline: the null plugin's execute as a C++ backend in this process would have it. Its event is made, asked and
// dropped through virtual functions; or, as the null plugin does, it is one for all that went well.
struct VirtualEvent {
  virtual ~VirtualEvent() = default;
  virtual bool ready() const { return true; }
  virtual void release() {
    if (references.fetch_sub(1) == 1) delete this;
  }
  std::atomic<uint32_t> references{1};
};
struct SharedEvent : VirtualEvent {
  void release() override {}
};

struct VirtualBackend {
  virtual ~VirtualBackend() = default;
  virtual VirtualEvent* execute(const lazyt_execute_args_t& args) {
    if (args.input_count != inputs || args.output_count != outputs) return nullptr;
    for (uint64_t i = 0; i < args.output_count; i++)
      if (!args.outputs[i]) return nullptr;
    for (uint64_t i = 0; i < args.waits.count; i++)
      if (!args.waits.events[i]) return nullptr;
    return event();
  }
  virtual VirtualEvent* event() { return new VirtualEvent; }
  uint64_t inputs = 1, outputs = 1;
};
struct SharingBackend : VirtualBackend {
  VirtualEvent* event() override {
    static SharedEvent shared;
    return &shared;
  }
};

base::Ref<ir::Program> program_of(int nodes) {
  ir::Graph graph;
  const ir::Meta meta = ir::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {4, 4});
  ir::ValueId v = graph.add_input(meta);
  for (int i = 0; i < nodes; i++) v = graph.add_op("aten::relu", "", {ir::Arg::of_value(v)}, meta);
  graph.outputs.push_back({v});
  return ir::Program::from_graph(graph);
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "boundary_cpp: %s\n", why.c_str());
  std::exit(1);
}
template <class T>
T must(base::Result<T> r) {
  if (!r.ok()) fail(r.status().to_string());
  return std::move(r).value();
}

struct Fixture {
  base::Ref<loader::Device> device = must(loader::Device::open(must(loader::load("null")), 0));
  base::Ref<loader::Executable> executable = must(loader::Executable::compile(device, *program_of(1), 0));
  base::Ref<loader::Buffer> in = must(loader::Buffer::alloc(device, 64)), out = must(loader::Buffer::alloc(device, 64));
  lazyt_execute_input_t input{in->handle, {}, 0, 0, 0};
  lazyt_buffer_t* output = out->handle;
  lazyt_execute_args_t args{sizeof args, nullptr, &input, 1, sizeof input, &output, 1, {nullptr, 0}};
};

std::function<void()> make(const std::string& name) {
  const auto f = std::make_shared<Fixture>();
  if (name.starts_with("virtual call")) {
    // As unknown to the compiler as a plugin's table is.
    static VirtualBackend* volatile backend = nullptr;
    backend = name == "virtual call, its event made" ? new VirtualBackend : new SharingBackend;
    return [f] {
      VirtualEvent* event = backend->execute(f->args);
      if (!event || !event->ready()) fail("the virtual backend failed");
      event->release();
    };
  }
  if (name == "execute, through the table") {
    const lazyt_plugin_t& t = f->device->table();
    return [f, x = t.executable, e = t.event] {
      lazyt_event_t* event = nullptr;
      uint32_t ready = 0;
      if (x->execute(f->executable->handle, &f->args, &event) || e->ready(event, &ready) || !ready) fail("null failed");
      e->release(event);
    };
  }
  if (name == "execute, through the host's handles") {
    return [f] {
      const loader::ExecuteInput input{.buffer = f->in.get()};
      const loader::Buffer* outputs[] = {f->out.get()};
      auto event = f->executable->execute({&input, 1}, outputs, {});
      if (!event.ok() || !event.value()->ready()) fail("null failed");
    };
  }
  const int nodes = std::atoi(name.c_str());  // "1000 nodes"
  if (nodes <= 0) fail("there is no case '" + name + "'");
  return [f, program = program_of(nodes), compile = f->device->table().executable] {
    lazyt_compile_args_t args{sizeof args, nullptr, program->block(), 0};
    lazyt_executable_t* out = nullptr;
    if (compile->compile(f->device->handle, &args, &out)) fail("null failed");
    compile->release(out);
  };
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  int calls = 100000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--only")) only = argv[i + 1];
    else if (!std::strcmp(argv[i], "--calls")) calls = std::atoi(argv[i + 1]);
    else fail(fmt::format("unknown argument {}", argv[i]));
  }
  lazyt::loader::set_deadline(std::chrono::nanoseconds(0));  // calls run where they are made, as on a worker
  std::function<void()> body = make(only);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; i++) body();
  const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / calls;
  std::printf("%.1f\n", ns);
}
