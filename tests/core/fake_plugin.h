// FakePlugin: a small working plugin inside the test's process, over the C tables. It computes
// aten::add, aten::mul and aten::neg on f32 and can be told to refuse, to fail and to be late.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/shape.h"
#include "exec/in_flight.h"
#include "loader/handles.h"

struct lazyt_device_s {};

struct lazyt_buffer_s {
  std::vector<uint8_t> bytes;
};

struct lazyt_event_s {
  std::atomic<int> references{1};
  bool ready = false;
  lazyt_status_t* status = nullptr;
  std::vector<std::pair<lazyt_event_callback_t, void*>> callbacks;
};

struct lazyt_executable_s {
  std::vector<uint64_t> words;
  const lazyt_program_t* program() const { return reinterpret_cast<const lazyt_program_t*>(words.data()); }
};

namespace lazyt::testing {

struct FakeState {
  std::mutex mutex;
  std::condition_variable changed;

  // What to do; set before use.
  bool host_visible = true, synchronous = false;
  std::set<std::string> refused;                  // operator names
  std::map<std::string, lazyt_answer_t> answers;  // others than TAKE
  bool fail_compile = false;
  lazyt_code_t fail_execute = LAZYT_CODE_OK;  // execute itself fails
  lazyt_code_t fail_event = LAZYT_CODE_OK;    // execute succeeds, its event carries the error
  bool late = false;                          // events become ready only when the gate is open
  bool gate_open = false;
  bool opaque = false;  // outputs are opaque: their bytes are stored inverted
  uint64_t memory_limit = UINT64_MAX;
  lazyt_executable_flags_t executable_flags = 0;

  // What happened.
  int64_t buffers = 0, events = 0, executables = 0, devices = 0;  // alive
  uint64_t bytes_in_use = 0;
  int compiles = 0, executes = 0, donations = 0;
  std::vector<uint64_t> stable_ids;  // of the last execute
  std::set<const lazyt_buffer_s*> opaque_buffers;
  std::vector<std::thread> threads;
};

// C tables have no user data: one state for the process, renewed by each FakePlugin.
inline std::unique_ptr<FakeState>& fake_slot() {
  static std::unique_ptr<FakeState> slot;
  return slot;
}
inline FakeState& fake() { return *fake_slot(); }

inline lazyt_status_t* fake_error(lazyt_code_t code, const std::string& message) {
  return loader::host_table()->status->create(code, {message.data(), message.size()});
}

// ---- events

inline lazyt_event_t* make_event() {
  std::lock_guard lock(fake().mutex);
  fake().events++;
  return new lazyt_event_s;
}
inline void retain_event(lazyt_event_t* e) { e->references.fetch_add(1, std::memory_order_relaxed); }
inline void release_event(lazyt_event_t* e) {
  if (!e || e->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  loader::host_table()->status->release(e->status);
  delete e;
  std::lock_guard lock(fake().mutex);
  fake().events--;
}
inline void signal_event(lazyt_event_t* e, lazyt_status_t* status) {
  std::vector<std::pair<lazyt_event_callback_t, void*>> callbacks;
  {
    std::lock_guard lock(fake().mutex);
    e->status = status;
    e->ready = true;
    callbacks.swap(e->callbacks);
    fake().changed.notify_all();
  }
  for (auto& [callback, user_data] : callbacks) callback(user_data, status);
}
inline lazyt_status_t* wait_event(lazyt_event_t* e, uint64_t timeout_ns) {
  std::unique_lock lock(fake().mutex);
  auto ready = [&] { return e->ready; };
  if (timeout_ns == LAZYT_WAIT_FOREVER)
    fake().changed.wait(lock, ready);
  else if (!fake().changed.wait_for(lock, std::chrono::nanoseconds(timeout_ns), ready))
    return fake_error(LAZYT_CODE_DEADLINE_EXCEEDED, "not ready");
  return e->status ? loader::host_table()->status->retain(e->status) : nullptr;
}
inline const lazyt_plugin_event_t* event_table() {
  static const lazyt_plugin_event_t table{
      sizeof(lazyt_plugin_event_t),
      nullptr,
      [](lazyt_event_t* e, uint32_t* out) -> lazyt_status_t* {
        std::lock_guard lock(fake().mutex);
        *out = e->ready ? 1 : 0;
        return nullptr;
      },
      wait_event,
      [](lazyt_event_t* e, lazyt_event_callback_t callback, void* user_data) -> lazyt_status_t* {
        {
          std::lock_guard lock(fake().mutex);
          if (!e->ready) {
            e->callbacks.emplace_back(callback, user_data);
            return nullptr;
          }
        }
        callback(user_data, e->status);
        return nullptr;
      },
      retain_event,
      release_event};
  return &table;
}

// ---- device

inline const lazyt_plugin_device_t* device_table() {
  static const lazyt_plugin_device_t table{sizeof(lazyt_plugin_device_t),
                                           nullptr,
                                           [](uint32_t* out) -> lazyt_status_t* { return *out = 2, nullptr; },
                                           [](uint32_t, lazyt_device_info_t* out) -> lazyt_status_t* {
                                             out->name = LAZYT_STR("fake device");
                                             out->vendor = LAZYT_STR("tests");
                                             out->flags = (fake().host_visible ? LAZYT_DEVICE_HOST_VISIBLE : 0) |
                                                          (fake().synchronous ? LAZYT_DEVICE_SYNCHRONOUS : 0);
                                             out->total_bytes = 1 << 20;
                                             out->alignment = 16;
                                             return nullptr;
                                           },
                                           [](uint32_t, lazyt_device_t** out) -> lazyt_status_t* {
                                             std::lock_guard lock(fake().mutex);
                                             fake().devices++;
                                             *out = new lazyt_device_s;
                                             return nullptr;
                                           },
                                           [](lazyt_device_t* d) {
                                             if (!d) return;
                                             std::lock_guard lock(fake().mutex);
                                             fake().devices--;
                                             delete d;
                                           },
                                           [](lazyt_device_t*, lazyt_memory_stats_t* out) -> lazyt_status_t* {
                                             std::lock_guard lock(fake().mutex);
                                             out->bytes_in_use = out->peak_bytes_in_use =
                                                 out->bytes_reserved = fake().bytes_in_use;
                                             out->derived_bytes = 0;
                                             return nullptr;
                                           },
                                           nullptr};
  return &table;
}

// ---- buffers

inline lazyt_status_t* alloc_buffer(uint64_t size, lazyt_buffer_t** out) {
  std::lock_guard lock(fake().mutex);
  if (size > fake().memory_limit - std::min(fake().memory_limit, fake().bytes_in_use))
    return fake_error(LAZYT_CODE_RESOURCE_EXHAUSTED, "the fake device is full");
  fake().bytes_in_use += size;
  fake().buffers++;
  *out = new lazyt_buffer_s{std::vector<uint8_t>(size, 0xcd)};
  return nullptr;
}
inline bool is_opaque(const lazyt_buffer_t* b) {
  std::lock_guard lock(fake().mutex);
  return fake().opaque_buffers.contains(b);
}
inline std::vector<uint8_t> plain_bytes(const lazyt_buffer_t* b) {
  std::vector<uint8_t> bytes = b->bytes;
  if (is_opaque(b))
    for (uint8_t& byte : bytes) byte = ~byte;
  return bytes;
}
inline lazyt_status_t* wait_all(lazyt_events_t waits) {
  for (uint64_t i = 0; i < waits.count; i++)
    if (lazyt_status_t* status = wait_event(waits.events[i], LAZYT_WAIT_FOREVER)) return status;
  return nullptr;
}
inline const lazyt_plugin_buffer_t* buffer_table() {
  static const lazyt_plugin_buffer_t table{
      sizeof(lazyt_plugin_buffer_t),
      nullptr,
      [](lazyt_device_t*, const lazyt_buffer_desc_t* desc, lazyt_buffer_t** out) -> lazyt_status_t* {
        return alloc_buffer(desc->size_bytes, out);
      },
      [](lazyt_device_t*, const lazyt_host_bytes_t* host, lazyt_buffer_t** out) -> lazyt_status_t* {
        if (lazyt_status_t* status = alloc_buffer(host->size_bytes, out)) return status;
        if (host->size_bytes) std::memcpy((*out)->bytes.data(), host->data, host->size_bytes);
        if (host->done) host->done(host->done_user_data);
        return nullptr;
      },
      [](lazyt_buffer_t* b, uint64_t offset, void* dst, uint64_t size, lazyt_events_t waits,
         lazyt_event_t** out) -> lazyt_status_t* {
        if (lazyt_status_t* status = wait_all(waits)) return status;
        const auto bytes = plain_bytes(b);
        if (offset > bytes.size() || size > bytes.size() - offset)
          return fake_error(LAZYT_CODE_OUT_OF_RANGE, "outside the buffer");
        if (size) std::memcpy(dst, bytes.data() + offset, size);
        if (out) signal_event(*out = make_event(), nullptr);
        return nullptr;
      },
      [](lazyt_buffer_t* from, uint64_t from_offset, lazyt_buffer_t* to, uint64_t to_offset, uint64_t size, lazyt_events_t waits,
         lazyt_event_t** out) -> lazyt_status_t* {
        if (lazyt_status_t* status = wait_all(waits)) return status;
        if (from_offset + size > from->bytes.size() || to_offset + size > to->bytes.size())
          return fake_error(LAZYT_CODE_OUT_OF_RANGE, "outside the buffer");
        if (size) std::memcpy(to->bytes.data() + to_offset, from->bytes.data() + from_offset, size);
        if (out) signal_event(*out = make_event(), nullptr);
        return nullptr;
      },
      [](lazyt_buffer_t* b, uint64_t* out) -> lazyt_status_t* { return *out = b->bytes.size(), nullptr; },
      [](lazyt_buffer_t* b, void** out) -> lazyt_status_t* {
        if (!fake().host_visible) return fake_error(LAZYT_CODE_UNIMPLEMENTED, "not visible");
        *out = b->bytes.data();
        return nullptr;
      },
      nullptr,
      nullptr,
      [](lazyt_buffer_t* b) {
        if (!b) return;
        std::lock_guard lock(fake().mutex);
        fake().buffers--;
        fake().bytes_in_use -= b->bytes.size();
        fake().opaque_buffers.erase(b);
        delete b;
      }};
  return &table;
}

// ---- capability and programs

inline std::string node_name(const lazyt_program_t* p, uint64_t n) {
  return loader::to_string(lazyt_text(p, lazyt_node(p, n)->name));
}

inline const lazyt_plugin_capability_t* capability_table() {
  static const lazyt_plugin_capability_t table{
      sizeof(lazyt_plugin_capability_t), nullptr,
      [](lazyt_device_t*, const lazyt_program_t* p, lazyt_answer_t* answers, uint64_t count,
         uint64_t stride) -> lazyt_status_t* {
        for (uint64_t n = 0; n < count; n++) {
          auto* answer = reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(answers) + n * stride);
          const std::string name = node_name(p, n);
          answer->kind = LAZYT_ANSWER_TAKE;
          if (auto it = fake().answers.find(name); it != fake().answers.end()) *answer = it->second;
          if (fake().refused.contains(name)) {
            answer->kind = LAZYT_ANSWER_REFUSE;
            answer->reason = LAZYT_REASON_UNKNOWN_OPERATOR;
            answer->detail = LAZYT_STR("not in the fake");
          }
        }
        return nullptr;
      }};
  return &table;
}

inline float scalar_value(lazyt_dtype_t dtype, const lazyt_scalar_t& s) {
  if (dtype == LAZYT_DTYPE_FLOAT64) {
    double v;
    return std::memcpy(&v, s.bytes, sizeof v), static_cast<float>(v);
  }
  if (dtype == LAZYT_DTYPE_INT64) {
    int64_t v;
    return std::memcpy(&v, s.bytes, sizeof v), static_cast<float>(v);
  }
  float v;
  return std::memcpy(&v, s.bytes, sizeof v), v;
}

struct FakeRun {
  const lazyt_executable_s* executable;
  std::vector<lazyt_execute_input_t> inputs;
  std::vector<lazyt_buffer_t*> outputs;
  bool opaque;
};

// Dense f32, operands of equal size or of one element.
inline lazyt_status_t* compute(const FakeRun& run) {
  const lazyt_program_t* p = run.executable->program();
  std::vector<std::vector<float>> values(p->values.count);
  for (uint64_t i = 0; i < p->inputs.count; i++) {
    const uint32_t v = lazyt_input(p, i)->value;
    if (!run.inputs[i].buffer) {
      values[v] = {scalar_value(lazyt_value(p, v)->dtype, run.inputs[i].scalar)};
      continue;
    }
    const auto bytes = plain_bytes(run.inputs[i].buffer);
    values[v].resize(lazyt_value_numel(p, lazyt_value(p, v)));
    if (bytes.size() < values[v].size() * 4) return fake_error(LAZYT_CODE_INTERNAL, "input too small");
    if (!values[v].empty()) std::memcpy(values[v].data(), bytes.data(), values[v].size() * 4);
  }
  for (uint64_t c = 0; c < p->constants.count; c++) {
    const lazyt_constant_t* constant = lazyt_constant(p, c);
    auto& value = values[constant->value];
    value.resize(constant->size / 4);
    std::memcpy(value.data(), reinterpret_cast<const char*>(p) + p->data.offset + constant->offset,
                constant->size);
  }
  for (uint64_t n = 0; n < p->nodes.count; n++) {
    const lazyt_node_t* node = lazyt_node(p, n);
    const std::string name = node_name(p, n);
    auto operand = [&](uint32_t i) -> const std::vector<float>& {
      return values[lazyt_arg(p, node->args + i)->payload];
    };
    std::vector<float> result(lazyt_value_numel(p, lazyt_value(p, node->results)));
    for (size_t i = 0; i < result.size(); i++) {
      auto at = [&](uint32_t arg) { return operand(arg).size() == 1 ? operand(arg)[0] : operand(arg).at(i); };
      if (name == "aten::neg")
        result[i] = -at(0);
      else if (name == "aten::add")
        result[i] = at(0) + at(1);
      else if (name == "aten::mul")
        result[i] = at(0) * at(1);
      else
        return fake_error(LAZYT_CODE_UNIMPLEMENTED, name);
    }
    values[node->results] = std::move(result);
  }
  for (uint64_t o = 0; o < p->outputs.count; o++) {
    const auto& value = values[lazyt_output(p, o)->value];
    lazyt_buffer_t* buffer = run.outputs[o];
    if (buffer->bytes.size() < value.size() * 4) return fake_error(LAZYT_CODE_INTERNAL, "output too small");
    if (!value.empty()) std::memcpy(buffer->bytes.data(), value.data(), value.size() * 4);
    if (!run.opaque) continue;
    for (uint8_t& byte : buffer->bytes) byte = ~byte;
    std::lock_guard lock(fake().mutex);
    fake().opaque_buffers.insert(buffer);
  }
  return nullptr;
}

inline lazyt_status_t* execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args,
                               lazyt_event_t** out) {
  FakeRun run{executable, {}, {args->outputs, args->outputs + args->output_count}, fake().opaque};
  std::vector<lazyt_event_t*> waits(args->waits.events, args->waits.events + args->waits.count);
  bool late;
  {
    std::lock_guard lock(fake().mutex);
    fake().executes++;
    fake().stable_ids.clear();
    for (uint64_t i = 0; i < args->input_count; i++) {
      run.inputs.push_back(*reinterpret_cast<const lazyt_execute_input_t*>(
          reinterpret_cast<const char*>(args->inputs) + i * args->input_stride));
      fake().stable_ids.push_back(run.inputs.back().stable_id);
      if (run.inputs.back().flags & LAZYT_EXECUTE_DONATED) fake().donations++;
    }
    if (fake().fail_execute) return fake_error(fake().fail_execute, "told to fail");
    late = fake().late;
  }
  auto work = [run = std::move(run), fail = fake().fail_event](lazyt_events_t events) -> lazyt_status_t* {
    if (lazyt_status_t* status = wait_all(events)) return status;
    if (fail) return fake_error(fail, "told to fail later");
    return compute(run);
  };
  lazyt_event_t* event = make_event();
  if (!late) {
    signal_event(event, work({waits.data(), waits.size()}));
    *out = event;
    return nullptr;
  }
  retain_event(event);
  for (auto* wait : waits) retain_event(wait);
  std::lock_guard lock(fake().mutex);
  fake().threads.emplace_back([work = std::move(work), waits = std::move(waits), event] {
    {
      std::unique_lock lock(fake().mutex);
      fake().changed.wait(lock, [] { return fake().gate_open; });
    }
    signal_event(event, work({waits.data(), waits.size()}));
    for (auto* wait : waits) release_event(wait);
    release_event(event);
  });
  *out = event;
  return nullptr;
}

inline const lazyt_plugin_executable_t* executable_table() {
  static const lazyt_plugin_executable_t table{
      sizeof(lazyt_plugin_executable_t),
      nullptr,
      [](lazyt_device_t*, const lazyt_compile_args_t* args, lazyt_executable_t** out) -> lazyt_status_t* {
        std::lock_guard lock(fake().mutex);
        fake().compiles++;
        if (fake().fail_compile) return fake_error(LAZYT_CODE_INTERNAL, "told not to compile");
        auto* executable = new lazyt_executable_s;
        executable->words.resize((args->program->total_size + 7) / 8);
        std::memcpy(executable->words.data(), args->program, args->program->total_size);
        fake().executables++;
        *out = executable;
        return nullptr;
      },
      [](lazyt_executable_t* e, uint64_t index, lazyt_output_meta_t* out) -> lazyt_status_t* {
        const lazyt_program_t* p = e->program();
        out->size_bytes = lazyt_value_numel(p, lazyt_value(p, lazyt_output(p, index)->value)) * 4;
        out->alignment = 0;
        out->memory_space = 0;
        out->opaque = fake().opaque;
        return nullptr;
      },
      [](lazyt_executable_t*, lazyt_executable_memory_t* out) -> lazyt_status_t* {
        out->flags = fake().executable_flags;
        return nullptr;
      },
      execute,
      nullptr,
      nullptr,
      nullptr,
      [](lazyt_executable_t* e) {
        if (!e) return;
        std::lock_guard lock(fake().mutex);
        fake().executables--;
        delete e;
      }};
  return &table;
}

inline const lazyt_plugin_t* plugin_table() {
  static const lazyt_plugin_t table{
      sizeof(lazyt_plugin_t),
      nullptr,
      LAZYT_ABI_MAJOR,
      LAZYT_ABI_MINOR,
      LAZYT_ABI_DRAFT,
      0,
      [](uint64_t seed, lazyt_handshake_t* out) -> uint64_t {
        return lazyt_handshake_fill(out), seed ^ LAZYT_HANDSHAKE_MASK;
      },
      []() -> lazyt_status_t* { return nullptr; },
      [] {},
      [](lazyt_plugin_info_t* out) -> lazyt_status_t* { return out->name = LAZYT_STR("fake"), nullptr; },
      [](lazyt_string_t) -> const void* { return nullptr; },
      device_table(),
      buffer_table(),
      event_table(),
      capability_table(),
      executable_table()};
  return &table;
}

// The plugin with one open device. Destroyed after everything that was made on it.
class FakePlugin {
 public:
  explicit FakePlugin(bool host_visible = true, bool synchronous = false) {
    exec::InFlight::get().sweep();
    loader::settle();  // what an earlier one still releases
    fake_slot() = std::make_unique<FakeState>();
    fake().host_visible = host_visible, fake().synchronous = synchronous;
    loader::PluginInfo info;
    info.name = "fake";
    info.vendor = "tests";
    plugin_ = base::make_ref<loader::Plugin>(nullptr, plugin_table(), info);
    device = open();
  }
  ~FakePlugin() {
    finish();
    device = nullptr;
    loader::settle();
  }

  base::Ref<loader::Device> open(uint32_t index = 0) { return loader::Device::open(plugin_, index).value(); }

  // Lets late work run; returns when all of it is done.
  void finish() {
    open_gate();
    std::vector<std::thread> threads;
    {
      std::lock_guard lock(fake().mutex);
      threads.swap(fake().threads);
    }
    for (auto& thread : threads) thread.join();
    exec::InFlight::get().sweep();
    loader::settle();
  }
  void open_gate() {
    std::lock_guard lock(fake().mutex);
    fake().gate_open = true;
    fake().changed.notify_all();
  }
  FakeState* operator->() {
    loader::settle();
    return &fake();
  }
  int64_t live_buffers() {
    loader::settle();
    std::lock_guard lock(fake().mutex);
    return fake().buffers;
  }

  base::Ref<loader::Device> device;

 private:
  base::Ref<loader::Plugin> plugin_;
};

}  // namespace lazyt::testing
