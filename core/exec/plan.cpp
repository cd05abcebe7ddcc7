#include "exec/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

#include "base/counters.h"
#include "base/host_reasons.h"
#include "base/log.h"
#include "exec/in_flight.h"

namespace lazyt::exec {

namespace {

using base::Ref;
using base::Status;
using loader::Buffer;
using loader::Event;

constexpr uint32_t kNever = UINT32_MAX;      // no step reads it
constexpr uint32_t kAtEnd = UINT32_MAX - 1;  // an output of the launch

// An output of a step of this launch.
struct Slot {
  Ref<Buffer> buffer;
  Ref<Event> event;  // null: the bytes are there
  bool opaque = false;
  std::shared_ptr<const base::Note> origin;
  uint32_t last_use = kNever;
};

// When an input is used last.
struct LastUse {
  uint32_t step = kNever;  // or kAtEnd
  uint32_t count = 0;      // how often, in that step
};

// What a launch keeps of its ends while it runs: used again by the executor's next, as allocating it costs more than filling it.
struct Scratch {
  std::vector<LastUse> last_uses;        // of the inputs
  std::vector<Data::State> states;       // of the inputs that are read
  std::vector<std::vector<Slot>> slots;  // by step and output
  struct {
    std::vector<Ref<Buffer>> outputs;
    std::vector<uint8_t> donated;
    std::vector<loader::ExecuteInput> args;
    std::vector<Ref<Event>> waits;
    std::vector<const Buffer*> raw;
  } step;  // the current one

  void clear() {
    last_uses.clear(), states.clear(), clear_step();
    for (auto& of_step : slots) of_step.clear();
  }
  void clear_step() {
    step.outputs.clear(), step.donated.clear(), step.args.clear(), step.waits.clear(), step.raw.clear();
  }
};
thread_local Scratch scratch_of_thread;

// Results that programs print and branch on are read without a call of the plugin.
constexpr uint64_t kExposed = 4096;

struct AlignedDelete {
  void operator()(uint8_t* p) const { ::operator delete(p, std::align_val_t{64}); }
};
using HostBytes = std::shared_ptr<uint8_t>;  // shared with calls that may be given up
HostBytes host_bytes(uint64_t size) {
  return HostBytes(static_cast<uint8_t*>(::operator new(std::max<uint64_t>(size, 1), std::align_val_t{64})), AlignedDelete{});
}

// "step 2 of 3 (aten::mm, aten::relu, ...: 14 operators), model.py:12"
std::string describe_step(const Plan& plan, uint32_t s) {
  const Step& step = plan.steps[s];
  return fmt::format("{} {} of {}{}", step.executable ? "step" : "host step", s + 1, plan.steps.size(), step.operators ? *step.operators : "");
}

}  // namespace

struct Begun::State {
  std::vector<Binding> inputs;
  Scratch scratch;
};

class Launch {
 public:
  Launch(const Plan& plan, std::vector<Binding>& inputs, std::span<const Ref<Data>> outputs, uint64_t number, Scratch& scratch)
      : plan_(plan), inputs_(inputs), outputs_(outputs), number_(number), scratch_(scratch) {}
  Launch(const Launch&) = delete;

  // begun: used up. Null: nothing has run yet.
  Status run(Begun* begun) {
    LAZYT_RETURN_IF_ERROR(check());
    const uint32_t first = begun ? begun->steps_ : 0, end = static_cast<uint32_t>(plan_.steps.size());
    if (first > 0) go_on_from(*begun);
    else find_last_uses();
    for (size_t i = 0; i < inputs_.size(); i++) LAZYT_RETURN_IF_ERROR(check_input(i));
    LAZYT_RETURN_IF_ERROR(run_steps(first, end));
    fill_outputs();
    return {};
  }

  Status begin(uint32_t first, uint32_t end) {
    if (first == 0) find_last_uses();
    for (uint32_t s = first; s < end; s++)
      for (const Source& source : plan_.steps[s].inputs)
        if (source.step == Source::kProgram) LAZYT_RETURN_IF_ERROR(check_input(source.index));
    return run_steps(first, end);
  }

  // Of an input that was poisoned.
  const Ref<Failure>& cause() const { return cause_; }

 private:
  Status run_steps(uint32_t first, uint32_t end) {
    for (uint32_t s = first; s < end; s++) {
      Status status = plan_.steps[s].executable ? run_device(s) : run_host(s);
      scratch_.clear_step();
      if (!status.ok()) return status.with_note(label(), describe_step(plan_, s));
      release_after(s);
    }
    return {};
  }

  // What has run knows its inputs by now, and has let go of those that nothing else reads.
  void go_on_from(Begun& begun) {
    std::vector<Binding>& known = begun.state_->inputs;
    for (size_t i = 0; i < inputs_.size(); i++)
      if (states_[i].buffer || last_uses_[i].step < begun.steps_) inputs_[i] = std::move(known[i]);
  }

  std::string label() const { return number_ == 0 ? plan_.name : fmt::format("launch {}, {}", number_, plan_.name); }

  Status check() const {
    if (outputs_.size() != plan_.outputs.size())
      return base::internal(fmt::format("{} has {} outputs, launched with {}", plan_.name,
                                        plan_.outputs.size(), outputs_.size()));
    auto known = [this](const Source& source, uint32_t before) {
      if (source.step == Source::kProgram) return source.index < inputs_.size();
      return source.step < before && source.index < plan_.steps[source.step].donors.size();
    };
    for (uint32_t s = 0; s < plan_.steps.size(); s++) {
      const Step& step = plan_.steps[s];
      bool ok = step.executable ? step.executable->output_metas().size() == step.donors.size()
                                : step.inputs.size() == step.graph->inputs.size() && step.graph->outputs.size() == step.donors.size();
      for (const Source& source : step.inputs) ok = ok && known(source, s);
      if (!ok)
        return base::internal(
            fmt::format("{}: {} does not fit the plan", plan_.name, describe_step(plan_, s)));
    }
    for (const Source& source : plan_.outputs)
      if (!known(source, static_cast<uint32_t>(plan_.steps.size())) ||
          (source.step == Source::kProgram && !inputs_[source.index].data))
        return base::internal(fmt::format("{} has an output that nothing makes", plan_.name));
    return {};
  }

  void find_last_uses() {
    last_uses_.resize(inputs_.size());
    states_.resize(inputs_.size());
    if (slots_.size() < plan_.steps.size()) slots_.resize(plan_.steps.size());
    auto use = [this](const Source& source, uint32_t step) {
      if (source.step != Source::kProgram) {
        slots_[source.step][source.index].last_use = step;
        return;
      }
      LastUse& last = last_uses_[source.index];
      last = {step, last.step == step ? last.count + 1 : 1};
    };
    for (uint32_t s = 0; s < plan_.steps.size(); s++) {
      slots_[s].resize(plan_.steps[s].donors.size());
      for (const Source& source : plan_.steps[s].inputs) use(source, s);
    }
    for (const Source& source : plan_.outputs) use(source, kAtEnd);
  }

  // An error that is known already fails the launch before anything runs. One that shows up later
  // reaches the outputs through the events that steps wait for.
  Status check_input(size_t i) {
    Ref<Data>& data = inputs_[i].data;
    Data::State& state = states_[i];
    if (!data || last_uses_[i].step == kNever || state.buffer) return {};
    state = data->state();
    Status status = state.error;
    if (!state.filled || (status.ok() && state.event && state.event->ready())) {
      status = data->wait();  // for another device's executor to fill it; or for nothing
      state = data->state();
    }
    if (!status.ok()) {
      cause_ = data->failure();
      return passed_on(status) ? status : status.with_note(label(), fmt::format("input {} {}", i, kHasThisError));
    }
    if (state.buffer->device != plan_.device) {  // made before the backend was changed
      LAZYT_RETURN_IF_ERROR(data->move_to(plan_.device));
      state = data->state();
    }
    if (inputs_[i].part) {
      auto part = copy_part(inputs_[i]);
      if (!part.ok())
        return part.status().with_note(label(), fmt::format("copying a part of input {} for {}", i, describe_reader(i)));
      data = std::move(part).value();
      state = data->state();
    }
    return {};
  }

  static constexpr std::string_view kHasThisError = "has this error";

  // The first launch behind the one that failed is named; in a loop there are thousands.
  static bool passed_on(const Status& status) { return !status.notes().empty() && status.notes().back().detail.ends_with(kHasThisError); }

  std::string describe_reader(size_t input) const {
    const uint32_t step = last_uses_[input].step;
    return step < plan_.steps.size() ? describe_step(plan_, step) : "an output";
  }

  base::Result<Ref<Data>> copy_part(const Binding& binding) const {
    const Ref<Data>& whole = binding.data;
    Ref<Buffer> buffer;
    Ref<Event> copied;
    if (whole->opaque()) {  // only the way to the host converts
      const HostBytes bytes = host_bytes(binding.size);
      LAZYT_RETURN_IF_ERROR(whole->read(binding.offset, bytes.get(), binding.size, bytes));
      LAZYT_ASSIGN_OR_RETURN(buffer, Buffer::from_host(plan_.device, bytes.get(), binding.size, bytes));
    } else {
      LAZYT_ASSIGN_OR_RETURN(buffer, with_room(*plan_.device, [&] { return Buffer::alloc(plan_.device, binding.size); }));
      LAZYT_ASSIGN_OR_RETURN(copied, buffer->copy_from(*whole->buffer(), binding.offset, 0, binding.size, whole->event()));
      if (copied) {
        whole->add_reader(copied);
        InFlight::get().hold(copied, {Ref<const base::RefCounted>(whole->buffer()), Ref<const base::RefCounted>(buffer)});
      }
    }
    auto part = base::make_ref<Data>(base::Meta::contiguous(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(binding.size)}), binding.size);
    part->fulfil(std::move(buffer), std::move(copied));
    return part;
  }

  bool may_donate(uint32_t s, const Source& source) const {
    // Two inputs of the step may be one input of the program: then one of them must keep its bytes.
    if (source.step != Source::kProgram || last_uses_[source.index].step != s || last_uses_[source.index].count != 1) return false;
    const Binding& binding = inputs_[source.index];
    return binding.data && binding.data->may_donate(states_[source.index]);
  }

  Status alloc(uint32_t s, size_t output, uint64_t size, uint64_t alignment, uint32_t space,
               Ref<Buffer>* out) const {
    auto buffer = with_room(*plan_.device, [&] { return Buffer::alloc(plan_.device, size, alignment, space); });
    if (buffer.ok()) {
      *out = std::move(buffer).value();
      return {};
    }
    if (buffer.status().code() != LAZYT_CODE_RESOURCE_EXHAUSTED) return buffer.status();
    std::string message = fmt::format("out of memory on '{}': output {} of {} needs {} bytes",
                                      plan_.device->info.name, output, describe_step(plan_, s), size);
    if (auto stats = plan_.device->memory_stats(); stats.ok())
      message += fmt::format(
          "; {} bytes in use ({} of them could be trimmed), peak {}, reserved {}, device total {}",
          stats.value().bytes_in_use, stats.value().derived_bytes, stats.value().peak_bytes_in_use,
          stats.value().bytes_reserved, plan_.device->info.total_bytes);
    return Status(LAZYT_CODE_RESOURCE_EXHAUSTED, std::move(message))
        .with_note("plugin " + plan_.device->plugin->info.name, std::string(buffer.status().message()));
  }

  Status run_device(uint32_t s) {
    const Step& step = plan_.steps[s];
    const size_t output_count = step.donors.size();

    std::vector<Ref<Buffer>>& outputs = scratch_.step.outputs;
    std::vector<uint8_t>& donated = scratch_.step.donated;
    outputs.resize(output_count);
    donated.resize(step.inputs.size());
    for (size_t o = 0; o < output_count; o++) {
      const lazyt_output_meta_t& meta = step.executable->output_metas()[o];
      const uint32_t donor = step.donors[o];
      if (donor < step.inputs.size() && !donated[donor] && !meta.opaque && meta.memory_space == 0 &&
          may_donate(s, step.inputs[donor])) {
        Ref<Buffer> buffer = states_[step.inputs[donor].index].buffer;
        if (buffer->size >= meta.size_bytes) {
          outputs[o] = std::move(buffer);
          donated[donor] = true;
          continue;
        }
      }
      LAZYT_RETURN_IF_ERROR(alloc(s, o, meta.size_bytes, meta.alignment, meta.memory_space, &outputs[o]));
    }

    std::vector<loader::ExecuteInput>& args = scratch_.step.args;
    std::vector<Ref<Event>>& waits = scratch_.step.waits;
    args.resize(step.inputs.size());
    for (size_t i = 0; i < step.inputs.size(); i++) {
      const Source& source = step.inputs[i];
      Ref<Event> event;
      if (source.step != Source::kProgram) {
        args[i].buffer = slots_[source.step][source.index].buffer.get();
        event = slots_[source.step][source.index].event;
      } else if (const Binding& binding = inputs_[source.index]; binding.data) {
        args[i].buffer = states_[source.index].buffer.get();
        event = states_[source.index].event;
        args[i].stable_id = binding.data->stable_id;
        args[i].content_version = 1;
        args[i].donated = donated[i];
        if (donated[i])  // earlier work may still read what will be overwritten
          for (auto& reader : binding.data->readers()) waits.push_back(std::move(reader));
      } else {
        args[i].scalar = binding.scalar;
      }
      if (event) waits.push_back(std::move(event));
    }
    // Outputs of one step share its event.
    auto address = [](const Ref<Event>& e) { return e.get(); };
    std::ranges::sort(waits, {}, address);
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());

    std::vector<const Buffer*>& raw = scratch_.step.raw;
    raw.resize(output_count);
    std::ranges::transform(outputs, raw.begin(), [](const auto& b) { return b.get(); });
    // Null if the work is done already. Without memory nothing was consumed (EXE-6), so that it can be tried again.
    auto execute = [&]() -> base::Result<Ref<Event>> {
      LAZYT_ASSIGN_OR_RETURN(Ref<Event> event, step.executable->execute(args, raw, waits));
      if (!event->ready()) return event;
      LAZYT_RETURN_IF_ERROR(event->wait());
      return Ref<Event>();
    };
    auto started = with_room(*plan_.device, execute);
    if (!started.ok()) {
      // What was donated may have been overwritten.
      if (started.status().code() != LAZYT_CODE_RESOURCE_EXHAUSTED)
        for (size_t i = 0; i < step.inputs.size(); i++)
          if (donated[i]) inputs_[step.inputs[i].index].data = nullptr;
      return started.status();
    }
    const Ref<Event> event = std::move(started).value();
    std::shared_ptr<const base::Note> origin;
    if (event) {
      origin = std::make_shared<const base::Note>(base::Note{label(), describe_step(plan_, s)});
      InFlight::Objects objects;
      objects.emplace_back(step.executable);
      for (const auto& arg : args)
        if (arg.buffer) objects.emplace_back(Ref<const Buffer>(arg.buffer));
      for (const auto& b : outputs) objects.emplace_back(b);
      InFlight::get().hold(event, std::move(objects));
      for (size_t i = 0; i < step.inputs.size(); i++)
        if (step.inputs[i].step == Source::kProgram && !donated[i] && inputs_[step.inputs[i].index].data)
          inputs_[step.inputs[i].index].data->add_reader(event);
    }
    for (size_t o = 0; o < output_count; o++) {
      Slot& slot = slots_[s][o];
      const bool small = outputs[o]->size <= kExposed && !step.executable->output_metas()[o].opaque;
      outputs[o]->expose(small && !event && plan_.device->host_visible());
      slot.buffer = std::move(outputs[o]);
      slot.event = event;
      slot.opaque = step.executable->output_metas()[o].opaque != 0;
      slot.origin = origin;
    }
    return {};
  }

  Status run_host(uint32_t s) {
    const Step& step = plan_.steps[s];
    const ir::Graph& graph = *step.graph;
    if (!plan_.host_runner && !graph.nodes.empty())
      return base::failed_precondition(
          "the plugin refused operators, and there is nothing to run them on the host");
    uint64_t moved = 0;

    std::vector<HostTensor> inputs(step.inputs.size());
    std::vector<HostBytes> copies;
    for (size_t i = 0; i < step.inputs.size(); i++) {
      const ir::Value& value = graph.values[graph.inputs[i].value];
      inputs[i].meta = value.meta;
      inputs[i].weak = value.weak;
      const Source& source = step.inputs[i];
      Ref<Buffer> buffer;
      bool opaque = false;
      if (source.step != Source::kProgram) {
        const Slot& slot = slots_[source.step][source.index];
        if (slot.event) {
          Status status = slot.event->wait();
          if (!status.ok())
            return slot.origin ? status.with_note(slot.origin->where, slot.origin->detail) : status;
        }
        buffer = slot.buffer;
        opaque = slot.opaque;
      } else if (Binding& binding = inputs_[source.index]; binding.data) {
        LAZYT_RETURN_IF_ERROR(binding.data->wait());
        buffer = states_[source.index].buffer;
        opaque = states_[source.index].opaque;
      } else {
        inputs[i].data = binding.scalar.bytes;
        continue;
      }
      const uint64_t size = value.meta.span_bytes();
      if (size > buffer->size)
        return base::internal(fmt::format("input {} has {} bytes, its buffer {}", i, size, buffer->size));
      moved += size;
      if (plan_.device->host_visible() && !opaque) {
        LAZYT_ASSIGN_OR_RETURN(inputs[i].data, buffer->host_pointer());
      } else {
        copies.push_back(host_bytes(size));
        inputs[i].data = copies.back().get();
        if (size > 0) LAZYT_RETURN_IF_ERROR(buffer->to_host(0, copies.back().get(), size, copies.back()));
      }
    }

    std::vector<HostTensor> outputs(graph.outputs.size());
    std::vector<HostBytes> results(graph.outputs.size());  // when the CPU cannot write the buffer
    for (size_t o = 0; o < outputs.size(); o++) {
      outputs[o].meta = graph.values[graph.outputs[o].value].meta;
      const uint64_t size = outputs[o].meta.span_bytes();
      moved += size;
      if (plan_.device->host_visible()) {
        LAZYT_RETURN_IF_ERROR(alloc(s, o, size, 0, 0, &slots_[s][o].buffer));
        LAZYT_ASSIGN_OR_RETURN(outputs[o].data, slots_[s][o].buffer->host_pointer());
      } else {
        results[o] = host_bytes(size);
        outputs[o].data = results[o].get();
      }
    }

    if (!graph.nodes.empty()) {
      for (const ir::Node& node : graph.nodes) base::counter(base::host_name(node.name)).add();
      base::counter("FallbackBytes").add(static_cast<int64_t>(moved));
      LAZYT_RETURN_IF_ERROR(plan_.host_runner->run(graph, inputs, outputs));
    } else {
      LAZYT_RETURN_IF_ERROR(copy_constants(graph, outputs));
    }

    if (!plan_.device->host_visible())
      for (size_t o = 0; o < outputs.size(); o++) {
        LAZYT_ASSIGN_OR_RETURN(slots_[s][o].buffer, Buffer::from_host(plan_.device, results[o].get(),
                                                                      outputs[o].meta.span_bytes(), results[o]));
      }
    return {};
  }

  // A host step without nodes makes those outputs of the program that are constants.
  static Status copy_constants(const ir::Graph& graph, std::span<const HostTensor> outputs) {
    for (size_t o = 0; o < outputs.size(); o++) {
      auto constant = std::ranges::find(graph.constants, graph.outputs[o].value, &ir::Constant::value);
      if (constant == graph.constants.end() || constant->bytes.size() < outputs[o].meta.span_bytes())
        return base::internal("an output that no operator makes is no constant either");
      if (outputs[o].meta.span_bytes() > 0)
        std::memcpy(outputs[o].data, constant->bytes.data(), outputs[o].meta.span_bytes());
    }
    return {};
  }

  void release_after(uint32_t s) {
    for (const Source& source : plan_.steps[s].inputs) {
      if (source.step == Source::kProgram) {
        if (last_uses_[source.index].step == s) inputs_[source.index].data = nullptr, states_[source.index] = {};
      } else if (Slot& slot = slots_[source.step][source.index]; slot.last_use == s) {
        slot = {};
      }
    }
  }

  void fill_outputs() {
    for (size_t o = 0; o < outputs_.size(); o++) {
      const Source& source = plan_.outputs[o];
      if (source.step == Source::kProgram) {
        outputs_[o]->alias(inputs_[source.index].data);
        continue;
      }
      Slot& slot = slots_[source.step][source.index];
      if (slot.buffer) {
        outputs_[o]->fulfil(
            {std::move(slot.buffer), std::move(slot.event), slot.opaque, std::move(slot.origin)});
        continue;
      }
      // One result for two outputs: the first took it.
      for (size_t first = 0; first < o; first++)
        if (plan_.outputs[first].step == source.step && plan_.outputs[first].index == source.index) {
          outputs_[o]->alias(outputs_[first]);
          break;
        }
    }
  }

  const Plan& plan_;
  std::vector<Binding>& inputs_;
  std::span<const Ref<Data>> outputs_;
  const uint64_t number_;
  Scratch& scratch_;
  std::vector<LastUse>& last_uses_ = scratch_.last_uses;
  std::vector<Data::State>& states_ = scratch_.states;
  std::vector<std::vector<Slot>>& slots_ = scratch_.slots;
  Ref<Failure> cause_;
};

namespace {

// One string for all who say the same and live at a time: programs that differ in a size have steps of the same names.
std::shared_ptr<const std::string> shared(std::string text) {
  static std::mutex mutex;
  static auto& texts = *new std::unordered_map<std::string, std::weak_ptr<const std::string>>;
  static size_t sweep_at = 64;
  std::lock_guard lock(mutex);
  if (texts.size() >= sweep_at) {
    std::erase_if(texts, [](const auto& entry) { return entry.second.expired(); });
    sweep_at = std::max<size_t>(64, 2 * texts.size());
  }
  std::weak_ptr<const std::string>& known = texts[text];
  auto found = known.lock();
  if (!found) known = found = std::make_shared<const std::string>(std::move(text));
  return found;
}

}  // namespace

std::shared_ptr<const std::string> describe_operators(const ir::Graph& graph, bool on_device) {
  constexpr size_t kNamed = 4;
  const auto& nodes = graph.nodes;
  if (nodes.empty()) return {};
  std::string text = " (";
  for (size_t i = 0; i < std::min(nodes.size(), kNamed); i++) {
    if (i > 0) text += ", ";
    text += nodes[i].name;
  }
  if (nodes.size() > kNamed) text += fmt::format(", ...: {} operators", nodes.size());
  text += ")";
  for (const auto& node : nodes) {
    if (!node.source) continue;
    text += fmt::format(", {}:{}", node.source->file, node.source->line);
    break;
  }
  // A plugin runs them as one: which of them it was is not known.
  if (nodes.size() > 1 && on_device) text += "; LAZYT_EAGER=1 runs each by itself and raises its error at its line";
  return shared(std::move(text));
}

void Plan::launch(std::vector<Binding> inputs, std::span<const Ref<Data>> outputs, uint64_t number,
                  std::span<const uint32_t> rewrites, Begun* begun) const {
  InFlight::get().sweep();
  Status status;
  Ref<Failure> cause;
  if (begun && begun->failed_) begun = nullptr;
  Scratch& scratch = begun ? begun->state_->scratch : scratch_of_thread;
  try {
    Launch launch(*this, inputs, outputs, number, scratch);
    status = launch.run(begun);
    cause = launch.cause();
  } catch (const std::bad_alloc&) {
    status = {LAZYT_CODE_RESOURCE_EXHAUSTED, "out of host memory while launching " + name};
    inputs.clear();  // it is not known what was consumed
  } catch (const std::exception& e) {
    status = base::internal(fmt::format("launching {}: {}", name, e.what()));
    inputs.clear();
  }
  scratch.clear();
  if (!status.ok()) fail(status, inputs, outputs, rewrites, std::move(cause));
}

Begun::Begun(Ref<const Plan> plan, size_t inputs) : plan_(std::move(plan)), state_(std::make_unique<State>()) {
  state_->inputs.resize(inputs);
}
Begun::~Begun() = default;

void Begun::bind(uint32_t input, Binding binding) {
  if (!failed_) state_->inputs[input] = std::move(binding);
}

void Begun::advance(uint32_t steps) {
  if (failed_ || steps <= steps_) return;
  Status status;
  try {
    status = Launch(*plan_, state_->inputs, {}, 0, state_->scratch).begin(std::exchange(steps_, steps), steps);
  } catch (const std::exception& e) {
    status = base::internal(e.what());
  }
  if (status.ok()) return;
  failed_ = true;
  *state_ = {};
  base::log(LAZYT_LOG_DEBUG, "what of a launch had begun failed; it runs from its beginning: " + status.to_string());
}

void fail(const Status& error, std::span<const Binding> inputs, std::span<const Ref<Data>> outputs,
          std::span<const uint32_t> rewrites, Ref<Failure> cause) {
  if (!cause) cause = base::make_ref<Failure>();
  // What an error about values leaves is eager's to say: what stood before its operator was done. Not so a want of memory.
  const bool leaves = error.code() == LAZYT_CODE_RESOURCE_EXHAUSTED;
  for (size_t o = 0; o < outputs.size(); o++) {
    const uint32_t input = leaves && o < rewrites.size() ? rewrites[o] : ir::kNone;
    const bool left = input < inputs.size() && !inputs[input].part;
    outputs[o]->poison(error, cause, left ? inputs[input].data : nullptr);
  }
}

}  // namespace lazyt::exec
