// Programs and executables.
#include <algorithm>
#include <span>

#include "ir/program.h"
#include "ir/shapes.h"
#include "ir/verifier.h"
#include "layers/validate_call.h"
#include "layers/validate_program.h"

namespace lazyt::layers {
namespace {

// Bytes that dims and strides of a value reach; 0 where a dim is symbolic.
uint64_t span_bytes(const lazyt_program_t* p, uint32_t value) {
  const lazyt_value_t* v = lazyt_value(p, value);
  const int64_t* dims = lazyt_ints(p, v->dims);
  int64_t last = 0, dense = 1;
  for (uint32_t i = v->rank; i-- > 0;) {
    if (dims[i] <= 0) return 0;
    last += (dims[i] - 1) * (v->strides == LAZYT_NONE ? dense : *lazyt_ints(p, v->strides + i));
    dense *= dims[i];
  }
  return static_cast<uint64_t>(last + 1) * lazyt_dtype_size(v->dtype);
}

}  // namespace

void check_program(Call& call, const lazyt_program_t* program) {
  if (!program) return call.host("C-5", "the program is NULL");
  base::Status status = ir::verify(std::span(reinterpret_cast<const uint8_t*>(program), program->total_size));
  if (status.ok()) status = ir::verify_shapes(ir::read_block(*program));
  if (status.ok()) return;
  const std::string text(status.message());
  const size_t at = text.find("(PRG-");
  const std::string rule = at == text.npos ? "PRG" : text.substr(at + 1, text.find(')', at) - at - 1);
  call.host(rule.c_str(), text);
}

base::Hash128 program_hash(const lazyt_program_t* program, uint64_t seed) {
  return base::hash128(program, program->total_size, seed);
}

void read_signature(const lazyt_program_t* p, ExecutableState& out) {
  out.known = true;
  for (uint64_t i = 0; i < p->inputs.count; i++) {
    const lazyt_input_t* in = lazyt_input(p, i);
    out.inputs.push_back({(lazyt_value(p, in->value)->flags & LAZYT_VALUE_HOST_SCALAR) != 0,
                          (in->flags & LAZYT_INPUT_MAY_DONATE) != 0, span_bytes(p, in->value)});
  }
  for (uint64_t i = 0; i < p->outputs.count; i++) {
    const lazyt_output_t* o = lazyt_output(p, i);
    out.outputs.push_back({o->donor, span_bytes(p, o->value)});
  }
}

lazyt_status_t* Validate::executable_compile(lazyt_device_t* device, const lazyt_compile_args_t* args,
                                             lazyt_executable_t** out) {
  Call call(*this, "executable.compile");
  auto on = call.use(devices_, device, "the device");
  if (call.sized(args, "lazyt_compile_args_t")) check_program(call, args->program);
  if (call.refused()) return call.refusal();
  const base::Hash128 before = program_hash(args->program, on->index);
  lazyt_executable_t* made = Call::unwritten<lazyt_executable_t>();
  lazyt_status_t* status = call.run([&] { return below->executable->compile(device, args, &made); });
  if (program_hash(args->program, on->index) != before) call.plugin("EXE-1", "it wrote into the program");
  if (status && call.code(status) != LAZYT_CODE_RESOURCE_EXHAUSTED) {
    std::unique_lock lock(mutex_);
    auto answers = answers_.find(before);
    const bool taken = answers != answers_.end() && answers->second.all_taken;
    lock.unlock();
    if (taken) call.plugin("CAP-2", "it took every node of the program, and does not compile it");
  }
  status = call.hand_out(status, made, out, "C-5");
  if (status) return status;
  auto state = std::make_shared<ExecutableState>();
  state->device = on;
  read_signature(args->program, *state);
  std::lock_guard lock(mutex_);
  executables_.add(made, std::move(state));
  return nullptr;
}

lazyt_status_t* Validate::executable_output_meta(lazyt_executable_t* executable, uint64_t index,
                                                 lazyt_output_meta_t* out) {
  Call call(*this, "executable.output_meta");
  auto state = call.use(executables_, executable, "the executable");
  if (!call.sized(out, "lazyt_output_meta_t") || call.refused()) return call.refusal();
  lazyt_status_t* status =
      call.fill(out, [&](auto* room) { return below->executable->output_meta(executable, index, room); });
  if (!state->known) return status;
  if (index >= state->outputs.size() && call.code(status) != LAZYT_CODE_INVALID_ARGUMENT)
    call.plugin("EXE-14",
                fmt::format("output {} of {} is not INVALID_ARGUMENT", index, state->outputs.size()));
  if (status || index >= state->outputs.size()) return status;
  ExecutableState::Output& output = state->outputs[index];
  if (!out->opaque && out->size_bytes < output.bytes)
    call.plugin("EXE-14", fmt::format("{} bytes for output {}, its dims and strides reach {}",
                                      out->size_bytes, index, output.bytes));
  std::lock_guard lock(mutex_);
  output.meta_bytes = out->size_bytes;
  output.opaque = out->opaque != 0;
  return nullptr;
}

lazyt_status_t* Validate::executable_memory(lazyt_executable_t* executable, lazyt_executable_memory_t* out) {
  Call call(*this, "executable.memory");
  call.use(executables_, executable, "the executable");
  if (!call.sized(out, "lazyt_executable_memory_t") || call.refused()) return call.refusal();
  return call.fill(out, [&](auto* room) { return below->executable->memory(executable, room); });
}

lazyt_status_t* Validate::executable_execute(lazyt_executable_t* executable, const lazyt_execute_args_t* args,
                                             lazyt_event_t** out) {
  Call call(*this, "executable.execute");
  auto state = call.use(executables_, executable, "the executable");
  if (state) call.alone(state->device);
  if (!call.sized(args, "lazyt_execute_args_t")) return call.refusal();
  if (args->input_count > 0 &&
      (args->input_stride < sizeof(lazyt_execute_input_t) || args->input_stride % 8 != 0))
    call.host("C-3", fmt::format("stride {}", args->input_stride));
  if (call.refused()) return call.refusal();
  sweep();

  auto work = std::make_shared<Work>();
  work->function = call.function;
  work->wait_rule = "EXE-11";
  work->device = state->device;
  auto must_fail = [&](std::string why) {
    work->must_fail = "EXE-10";
    work->why = std::move(why);
  };
  const bool fits = state->known && args->input_count == state->inputs.size() &&
                    args->output_count == state->outputs.size();
  if (state->known && !fits)
    must_fail(fmt::format("{} inputs and {} outputs for a program of {} and {} were taken", args->input_count,
                          args->output_count, state->inputs.size(), state->outputs.size()));
  std::vector<std::pair<lazyt_buffer_t*, std::shared_ptr<BufferState>>> outputs;
  for (uint64_t o = 0; o < args->output_count; o++) {
    lazyt_buffer_t* handle = args->outputs[o];
    auto buffer = call.use(buffers_, handle, "an output's buffer");
    if (!buffer) continue;
    if (buffer->device != state->device)
      call.host("EXE-16", fmt::format("output {} is on another device", o));
    if (!buffer->writable())
      call.host("BUF-13", fmt::format("output {} shares the caller's bytes, read-only", o));
    for (const auto& [other, b] : outputs)
      if (other == handle && buffer->size > 0)
        call.host("EXE-8", fmt::format("output {} has the buffer of another", o));
    if (fits && buffer->size < state->outputs[o].meta_bytes)
      must_fail(fmt::format("output {} has {} bytes of {}, and the work succeeded", o, buffer->size,
                            state->outputs[o].meta_bytes));
    outputs.emplace_back(handle, buffer);
    work->writes.push_back(buffer);
  }
  for (uint64_t i = 0; i < args->input_count; i++) {
    const auto& in = *reinterpret_cast<const lazyt_execute_input_t*>(
        reinterpret_cast<const char*>(args->inputs) + i * args->input_stride);
    if (fits && (in.buffer == nullptr) != state->inputs[i].scalar)
      call.host("PRG-6",
                fmt::format("input {} is a {}", i,
                            in.buffer ? "host scalar, and has a buffer" : "tensor, and has no buffer"));
    if (!in.buffer) continue;
    auto buffer = call.use(buffers_, in.buffer, "an input's buffer");
    if (!buffer) continue;
    work->reads.push_back(buffer);
    if (buffer->device != state->device) call.host("EXE-16", fmt::format("input {} is on another device", i));
    if (fits && buffer->size < state->inputs[i].bytes)
      call.host("EXE-16", fmt::format("input {} has {} bytes, its value needs {}", i, buffer->size,
                                      state->inputs[i].bytes));
    const bool donated = in.flags & LAZYT_EXECUTE_DONATED;
    auto output =
        std::find_if(outputs.begin(), outputs.end(), [&](const auto& o) { return o.first == in.buffer; });
    if (!donated && output != outputs.end() && buffer->size > 0)
      call.host("EXE-8", fmt::format("input {} is not donated, and its buffer is an output's", i));
    if (donated && !buffer->writable())
      call.host("BUF-13", fmt::format("input {} is donated, and shares the caller's bytes, read-only", i));
    if (donated && fits) {
      const size_t o = static_cast<size_t>(output - outputs.begin());
      if (!state->inputs[i].may_donate)
        call.host("EXE-5", fmt::format("input {} is donated, though the program does not allow it", i));
      else if (output == outputs.end() || state->outputs[o].donor != i)
        call.host("EXE-5",
                  fmt::format("input {} is donated, and is not the buffer of the output that names it", i));
    }
    const auto bytes = content(in.buffer, buffer);
    if (!bytes) continue;
    std::unique_lock lock(mutex_);
    work->kept.push_back({in.buffer, buffer, buffer->writes + (donated ? 1 : 0), *bytes, donated});
    if (in.stable_id == 0) continue;
    if (contents_.size() > 65536) contents_.clear();
    auto [known, fresh] = contents_.try_emplace({in.stable_id, in.content_version}, *bytes);
    const bool same = fresh || known->second == *bytes;
    lock.unlock();
    if (!same)
      call.host("EXE-7", fmt::format("input {} has other bytes than ({}, {}) had before", i, in.stable_id,
                                     in.content_version));
  }
  for (uint64_t i = 0; i < args->waits.count; i++) call.use(events_, args->waits.events[i], "a wait");
  if (call.refused()) return call.refusal();

  {
    std::unique_lock lock(mutex_);
    for (size_t o = 0; o < outputs.size(); o++) {
      unlooked(lock, *outputs[o].second);
      outputs[o].second->writes++;
      outputs[o].second->opaque = fits && state->outputs[o].opaque;
    }
  }
  lazyt_event_t* made = Call::unwritten<lazyt_event_t>();
  lazyt_status_t* status = call.run([&] { return below->executable->execute(executable, args, &made); });
  status = call.hand_out(status, made, out, "EXE-2");
  if (status) {
    check_kept(*work, call.code(status));
    return status;
  }
  if (state->device->flags & LAZYT_DEVICE_SYNCHRONOUS && !seen_ready(made))
    call.plugin("DEV-8", "the device is synchronous, and its work is not done");
  begin(std::move(work), made, args->waits);
  return nullptr;
}

lazyt_status_t* Validate::executable_serialize(lazyt_executable_t* executable, lazyt_write_t write,
                                               void* user_data) {
  Call call(*this, "executable.serialize");
  call.use(executables_, executable, "the executable");
  if (call.refused()) return call.refusal();
  struct Writer {
    Validate& v;
    lazyt_write_t write;
    void* user_data;
  } writer{*this, write, user_data};
  return call.run([&] {
    return below->executable->serialize(
        executable,
        [](void* self, const void* data, uint64_t size) {
          auto& w = *static_cast<Writer*>(self);
          return w.v.give(w.write(w.user_data, data, size));
        },
        &writer);
  });
}

lazyt_status_t* Validate::executable_load(lazyt_device_t* device, const void* data, uint64_t size,
                                          lazyt_executable_t** out) {
  Call call(*this, "executable.load");
  auto on = call.use(devices_, device, "the device");
  if (call.refused()) return call.refusal();
  lazyt_executable_t* made = Call::unwritten<lazyt_executable_t>();
  lazyt_status_t* status = call.run([&] { return below->executable->load(device, data, size, &made); });
  status = call.hand_out(status, made, out, "C-5");
  if (status) return status;
  auto state = std::make_shared<ExecutableState>();
  state->device = on;
  std::lock_guard lock(mutex_);
  executables_.add(made, std::move(state));
  return nullptr;
}

lazyt_status_t* Validate::executable_identity(lazyt_device_t* device, lazyt_string_t* out) {
  Call call(*this, "executable.identity");
  call.use(devices_, device, "the device");
  if (call.refused()) return call.refusal();
  return call.run([&] { return below->executable->identity(device, out); });
}

void Validate::executable_release(lazyt_executable_t* executable) {
  if (!executable) return below->executable->release(nullptr);
  Call call(*this, "executable.release");
  call.use(executables_, executable, "the executable");
  if (call.refused()) return;
  {
    std::lock_guard lock(mutex_);
    executables_.remove(executable);
  }
  call.run([&] { below->executable->release(executable); });
}

}  // namespace lazyt::layers
