// The small sound plugin of the conformance suite, or a mutant of it, behind the validate layer. A test may
// put its own functions into the plugin's tables, and misuse the tables as a host should not.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ir/text.h"
#include "layers/stack.h"
#include "layers/violation.h"
#include "loader/handles.h"

namespace lazyt::testing {

class Subject {
 public:
  explicit Subject(const std::string& name = "reference") {
    layers::on_violation([](const layers::Violation& v) { all_found().push_back(v); });
    found.clear();
    caller();
    stack_ = layers::Stack::make("validate").value();
    const char* folder = std::getenv("LAZYT_MUTANTS");
    const std::string path = std::string(folder ? folder : ".") + "/lazyt_" + name + ".so";
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) {
      ADD_FAILURE() << dlerror();
      return;
    }
    auto entry = reinterpret_cast<lazyt_plugin_entry_v1_t>(dlsym(library_, LAZYT_PLUGIN_ENTRY_NAME));
    real_ = *loader::host_table();
    services_ = *real_.services;
    real_.services = &services_;
    services_.alloc = [](uint64_t size, uint64_t alignment) -> void* {
      if (std::this_thread::get_id() != caller()) {
        memory_elsewhere().wait(Memory::kHeld);
        if (memory_elsewhere() == Memory::kShort) return nullptr;
      }
      return loader::host_table()->services->alloc(size, alignment);
    };
    host = stack_->host_over(&real_);
    const lazyt_plugin_t* table = nullptr;
    if (entry(host, &table) != nullptr) {
      ADD_FAILURE() << path << " refuses this host";
      return;
    }
    plugin = *table;
    device_table = *table->device;
    buffer_table = *table->buffer;
    event_table = *table->event;
    capability_table = *table->capability;
    executable_table = *table->executable;
    plugin.device = &device_table;
    plugin.buffer = &buffer_table;
    plugin.event = &event_table;
    plugin.capability = &capability_table;
    plugin.executable = &executable_table;
  }
  ~Subject() {
    if (library_) dlclose(library_);
    stack_ = nullptr;
  }

  // With the tables as they are now; opens device 0.
  const lazyt_plugin_t& start() {
    layered_ = stack_->plugin_over(&plugin);
    ok(layered_->init());
    lazyt_plugin_info_t info{};
    info.struct_size = sizeof info;
    ok(layered_->info(&info));
    ok(layered_->device->count(&count));
    device = open();
    return *layered_;
  }
  void stop() {
    layered_->device->close(device);
    layered_->shutdown();
  }

  lazyt_device_t* open() {
    lazyt_device_t* out = nullptr;
    ok(layered_->device->open(0, &out));
    return out;
  }
  lazyt_buffer_t* alloc(uint64_t size, lazyt_device_t* on = nullptr) {
    lazyt_buffer_desc_t desc{sizeof desc, nullptr, size, 0, 0, 0};
    lazyt_buffer_t* out = nullptr;
    ok(layered_->buffer->alloc(on ? on : device, &desc, &out));
    return out;
  }
  lazyt_buffer_t* upload(const std::vector<float>& values) {
    lazyt_host_bytes_t bytes{};
    bytes.struct_size = sizeof bytes;
    bytes.data = values.data();
    bytes.size_bytes = values.size() * 4;
    lazyt_buffer_t* out = nullptr;
    ok(layered_->buffer->from_host(device, &bytes, &out));
    return out;
  }
  // A copy of the block is kept until the subject goes.
  const lazyt_program_t* block(const std::string& text) {
    programs_.push_back(ir::Program::from_graph(ir::parse(text).value()));
    return programs_.back()->block();
  }
  lazyt_status_t* query(const lazyt_program_t* program) {
    answers.assign(program->nodes.count, lazyt_answer_t{});
    for (lazyt_answer_t& a : answers) a.struct_size = sizeof a;
    return layered_->capability->query(device, program, answers.data(), answers.size(),
                                       sizeof(lazyt_answer_t));
  }
  lazyt_executable_t* compile(const std::string& text) {
    lazyt_compile_args_t args{sizeof args, nullptr, block(text), 0};
    lazyt_executable_t* out = nullptr;
    ok(layered_->executable->compile(device, &args, &out));
    if (!out) return nullptr;
    for (uint64_t i = 0; i < args.program->outputs.count; i++) {
      lazyt_output_meta_t meta{};
      meta.struct_size = sizeof meta;
      ok(layered_->executable->output_meta(out, i, &meta));
    }
    return out;
  }
  lazyt_status_t* execute(lazyt_executable_t* executable, std::vector<lazyt_execute_input_t> inputs,
                          std::vector<lazyt_buffer_t*> outputs, lazyt_event_t** event,
                          std::vector<lazyt_event_t*> waits = {}) {
    lazyt_execute_args_t args{};
    args.struct_size = sizeof args;
    args.inputs = inputs.data();
    args.input_count = inputs.size();
    args.input_stride = sizeof(lazyt_execute_input_t);
    args.outputs = outputs.data();
    args.output_count = outputs.size();
    args.waits = {waits.data(), waits.size()};
    return layered_->executable->execute(executable, &args, event);
  }
  static lazyt_execute_input_t in(lazyt_buffer_t* buffer, bool donated = false) {
    lazyt_execute_input_t out{};
    out.buffer = buffer;
    out.flags = donated ? LAZYT_EXECUTE_DONATED : 0;
    return out;
  }
  void wait(lazyt_event_t* event) { ok(layered_->event->wait(event, LAZYT_WAIT_FOREVER)); }

  void ok(lazyt_status_t* status) {
    base::Status taken = loader::take_status(status);
    EXPECT_TRUE(taken.ok()) << taken.to_string();
  }
  // That the call was refused by the layer, with the rule in the message.
  void refused(lazyt_status_t* status, const std::string& rule) {
    base::Status taken = loader::take_status(status);
    EXPECT_EQ(taken.code(), LAZYT_CODE_INTERNAL) << taken.to_string();
    EXPECT_NE(taken.message().find(rule + " "), std::string::npos) << taken.to_string();
  }
  // That exactly these violations, each with its side and rule, were found since the last call.
  void expect_found(layers::Side side, std::vector<std::string> rules) {
    std::string got;
    std::vector<std::string> seen;
    for (const layers::Violation& v : found) {
      got += "\n  " + v.to_string();
      EXPECT_EQ(static_cast<int>(v.side), static_cast<int>(side)) << v.to_string();
      EXPECT_FALSE(v.function.empty());
      if (std::find(seen.begin(), seen.end(), v.rule) == seen.end()) seen.push_back(v.rule);
    }
    std::sort(seen.begin(), seen.end());
    std::sort(rules.begin(), rules.end());
    EXPECT_EQ(seen, rules) << got;
    found.clear();
  }

  // What services.alloc does on the plugin's own threads: gives nothing, or waits until this is changed.
  enum class Memory { kPlenty, kShort, kHeld };
  static void set_memory_elsewhere(Memory memory) {
    memory_elsewhere() = memory;
    memory_elsewhere().notify_all();
  }

  lazyt_plugin_t plugin{};
  lazyt_plugin_device_t device_table{};
  lazyt_plugin_buffer_t buffer_table{};
  lazyt_plugin_event_t event_table{};
  lazyt_plugin_capability_t capability_table{};
  lazyt_plugin_executable_t executable_table{};
  const lazyt_host_t* host = nullptr;  // as the plugin sees it
  lazyt_device_t* device = nullptr;
  uint32_t count = 0;
  std::vector<lazyt_answer_t> answers;
  std::vector<layers::Violation>& found = all_found();  // of all subjects

 private:
  static std::atomic<Memory>& memory_elsewhere() {
    static std::atomic<Memory> memory{Memory::kPlenty};
    return memory;
  }
  static std::thread::id caller() {
    static const std::thread::id id = std::this_thread::get_id();
    return id;
  }
  static std::vector<layers::Violation>& all_found() {
    static std::vector<layers::Violation> all;
    return all;
  }

  std::unique_ptr<layers::Stack> stack_;
  lazyt_host_t real_{};
  lazyt_host_services_t services_{};
  void* library_ = nullptr;
  const lazyt_plugin_t* layered_ = nullptr;
  std::vector<base::Ref<ir::Program>> programs_;
};

}  // namespace lazyt::testing
