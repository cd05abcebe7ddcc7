#include "suite.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "layers/violation.h"
#include "loader/handles.h"
#include "partition/partition.h"

namespace lazyt::conformance {
namespace {

// {"BUF-1", "size_bytes 0 is valid everywhere; ..."}, ... of all headers
const std::map<std::string, std::string>& rules() {
  static const std::map<std::string, std::string> all = {
#include "rules.inc"
  };
  return all;
}

// Of the case that runs.
std::mutex violations_mutex;
std::vector<layers::Violation> violations;
void keep_violation(const layers::Violation& v) {
  std::lock_guard lock(violations_mutex);
  for (const layers::Violation& other : violations)
    if (other.to_string() == v.to_string()) return;
  violations.push_back(v);
}
std::vector<layers::Violation> take_violations() {
  std::lock_guard lock(violations_mutex);
  return std::exchange(violations, {});
}

std::string code_text(lazyt_status_t* status) {
  if (!status) return "OK";
  const auto& t = *host()->status;
  return fmt::format("{}: {}", base::code_name(t.code(status)), loader::to_string(t.message(status)));
}

}  // namespace

Options& options() {
  static Options o;
  return o;
}

std::string rule_text(const std::string& rule) {
  auto it = rules().find(rule);
  return it == rules().end() ? "" : it->second;
}

std::vector<CaseInfo>& all_cases() {
  static std::vector<CaseInfo> cases;
  return cases;
}

Subject& Subject::get() {
  static Subject* subject = [] {
    auto* s = new Subject;
    s->library = dlopen(options().plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!s->library) {
      s->error = fmt::format("cannot be opened (LIB-2): {}", dlerror());
      return s;
    }
    auto entry = reinterpret_cast<lazyt_plugin_entry_v1_t>(dlsym(s->library, LAZYT_PLUGIN_ENTRY_NAME));
    if (!entry) {
      s->error = "does not export " LAZYT_PLUGIN_ENTRY_NAME " (LIB-1)";
      return s;
    }
    const lazyt_plugin_t* table = nullptr;
    s->layers = layers::Stack::make("validate").value();
    layers::on_violation(keep_violation);
    if (lazyt_status_t* status = entry(s->layers->host_over(host()), &table)) {
      s->error = "refuses this host: " + code_text(status);
      return s;
    }
    if (!table || !table->init || !table->device || !table->buffer || !table->event || !table->capability ||
        !table->executable) {
      s->error = "lacks a required table (LIB-5)";
      return s;
    }
    table = s->layers->plugin_over(table);
    if (lazyt_status_t* status = table->init()) {
      s->error = "init failed: " + code_text(status);
      return s;
    }
    s->table = table;
    return s;
  }();
  return *subject;
}

std::string show(const Bytes& bytes) {
  std::string out;
  if (bytes.size() % 4 == 0) {
    for (size_t i = 0; i < bytes.size() / 4 && i < 8; i++) {
      float f;
      std::memcpy(&f, bytes.data() + 4 * i, 4);
      out += fmt::format("{}{:.9g}", i ? ", " : "", f);
    }
    return "[" + out + (bytes.size() > 32 ? ", ...]" : "]");
  }
  for (size_t i = 0; i < bytes.size() && i < 16; i++) out += fmt::format("{:02x} ", bytes[i]);
  return out + (bytes.size() > 16 ? "..." : "");
}

// --- life of a case -------------------------------------------------------------------------

void Case::SetUp() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  name_ = fmt::format("{}.{}", info->test_suite_name(), info->name());
  for (const CaseInfo& c : all_cases())
    if (c.name == name_) rules_ = c.rules;
  Subject& subject = Subject::get();
  if (!subject.table) {
    broken_ = true;
    FAIL() << "the plugin " << subject.error;
  }
  fail_allocations(-1);
  take_violations();
  statuses_before_ = live_statuses();
  if (!needs_device()) return;
  uint32_t count = 0;
  lazyt_status_t* status = plugin().device->count(&count);
  if (status || count == 0) {
    host()->status->release(status);
    lazyt_plugin_info_t why{};
    why.struct_size = sizeof why;
    host()->status->release(plugin().info(&why));
    GTEST_SKIP() << "the plugin has no device: " << loader::to_string(why.why_none);
  }
  device_ = open(0);
  if (!device_) FAIL() << "device 0 cannot be opened";
  info_.struct_size = sizeof info_;
  host()->status->release(plugin().device->describe(0, &info_));
}

void Case::TearDown() {
  fail_allocations(-1);
  if (broken_) return;
  device_.reset();
  kept_.clear();
  for (const layers::Violation& v : take_violations()) {
    if (v.side == layers::Side::kHost) {
      ADD_FAILURE() << "error in the suite: " << v.to_string();
      continue;
    }
    rules_.push_back(v.rule);  // watched in every case: no case needs to name them
    keeps(v.rule.c_str(), false, "watched " + v.function, "no such thing", v.seen);
  }
  // Threads of the plugin may hold theirs a little longer.
  for (int i = 0; i < 100 && live_statuses() != statuses_before_; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (int64_t lost = live_statuses() - statuses_before_; lost != 0 && !HasFailure()) {
    rules_.push_back("STA-4");
    keeps("STA-4", false, "ran the case and released what it made", "every status released once",
          fmt::format("{} references are left", lost));
  }
  if (!HasFailure()) return;
  for (size_t i = 0; i < programs_.size(); i++) {
    std::error_code ignored;
    std::filesystem::create_directories(options().artifacts, ignored);
    std::string file = name_;
    std::replace(file.begin(), file.end(), '/', '_');
    const std::string path =
        fmt::format("{}/{}{}.lzp", options().artifacts, file, i ? fmt::format("-{}", i + 1) : "");
    base::Status saved = programs_[i]->save(path);
    ADD_FAILURE() << "program: " << (saved.ok() ? path : saved.to_string());
  }
}

// --- checks ---------------------------------------------------------------------------------

bool Case::keeps(const char* rule, bool kept, const std::string& did, const std::string& expected,
                 const std::string& got) {
  if (std::find(rules_.begin(), rules_.end(), rule) == rules_.end())
    ADD_FAILURE() << "error in the suite: " << name_ << " does not name " << rule;
  if (kept) return true;
  ADD_FAILURE() << "rule " << rule << ": " << rule_text(rule) << "\n  did: " << did
                << "\n  expected: " << expected << "\n  got: " << got;
  return false;
}

bool Case::ok(const char* rule, const std::string& did, lazyt_status_t* status) {
  const std::string text = code_text(status);
  const bool kept = keeps(rule, status == nullptr, did, "OK", text);
  host()->status->release(status);
  return kept;
}

bool Case::fails(const char* rule, const std::string& did, lazyt_status_t* status,
                 std::initializer_list<lazyt_code_t> codes) {
  const auto& t = *host()->status;
  std::string expected;
  for (lazyt_code_t code : codes) expected += (expected.empty() ? "" : " or ") + base::code_name(code);
  if (expected.empty()) expected = "an error";
  const bool wanted =
      status && (codes.size() == 0 || std::find(codes.begin(), codes.end(), t.code(status)) != codes.end());
  bool kept = keeps(rule, wanted, did, expected, code_text(status));
  if (status && t.message(status).size == 0) {
    rules_.push_back("STA-2");
    kept = keeps("STA-2", false, did, "a message that says what failed", "an empty message");
  }
  t.release(status);
  return kept;
}

void Case::unsupported(const std::string& reason) {
  [&] { GTEST_SKIP() << reason; }();
}

lazyt_code_t Case::take_code(lazyt_status_t* status) {
  if (!status) return LAZYT_CODE_OK;
  const lazyt_code_t code = host()->status->code(status);
  host()->status->release(status);
  return code;
}

// --- objects --------------------------------------------------------------------------------

DevicePtr Case::open(uint32_t index) {
  lazyt_device_t* handle = nullptr;
  lazyt_status_t* status = plugin().device->open(index, &handle);
  if (status || !handle) {
    ADD_FAILURE() << "device.open(" << index
                  << "): " << (status ? code_text(status) : "success without a device");
    host()->status->release(status);
    return nullptr;
  }
  return DevicePtr(handle);
}

BufferPtr Case::alloc(uint64_t size, lazyt_device_t* on, uint64_t alignment, uint32_t space) {
  lazyt_buffer_desc_t desc{sizeof desc, nullptr, size, alignment, space, 0};
  lazyt_buffer_t* handle = nullptr;
  lazyt_status_t* status = plugin().buffer->alloc(on ? on : device(), &desc, &handle);
  if (status || !handle) {
    ADD_FAILURE() << "buffer.alloc(" << size
                  << " bytes): " << (status ? code_text(status) : "success without a buffer");
    host()->status->release(status);
    return nullptr;
  }
  return BufferPtr(handle);
}

BufferPtr Case::upload(const Bytes& bytes, lazyt_device_t* on) {
  kept_.push_back(std::make_unique<Bytes>(bytes));
  lazyt_host_bytes_t source{};
  source.struct_size = sizeof source;
  source.data = kept_.back()->data();
  source.size_bytes = bytes.size();
  source.sharing = LAZYT_SHARING_COPY;
  lazyt_buffer_t* handle = nullptr;
  lazyt_status_t* status = plugin().buffer->from_host(on ? on : device(), &source, &handle);
  if (status || !handle) {
    ADD_FAILURE() << "buffer.from_host(" << bytes.size()
                  << " bytes): " << (status ? code_text(status) : "success without a buffer");
    host()->status->release(status);
    return nullptr;
  }
  return BufferPtr(handle);
}

Bytes Case::download(const BufferPtr& buffer, uint64_t size) {
  Bytes out(size, kStale);
  lazyt_status_t* status = plugin().buffer->to_host(buffer.get(), 0, out.data(), size, {nullptr, 0}, nullptr);
  if (status) {
    ADD_FAILURE() << "buffer.to_host(0, " << size << " bytes): " << code_text(status);
    host()->status->release(status);
    return {};
  }
  return out;
}

bool Case::same_bytes(const char* rule, const std::string& did, const Bytes& expected, const Bytes& got) {
  if (expected == got) return keeps(rule, true, did, "", "");
  size_t at = 0;
  while (at < expected.size() && at < got.size() && expected[at] == got[at]) at++;
  return keeps(rule, false, did, show(expected),
               fmt::format("{}, first difference at byte {}", show(got), at));
}

// --- programs -------------------------------------------------------------------------------

base::Ref<ir::Program> Case::parse(const std::string& text) {
  base::Result<ir::Graph> graph = ir::parse(text);
  if (!graph.ok()) {
    ADD_FAILURE() << "error in the suite: " << graph.status().to_string() << "\n" << text;
    return nullptr;
  }
  if (base::Status status = ir::verify(graph.value()); !status.ok()) {
    ADD_FAILURE() << "error in the suite: " << status.to_string() << "\n" << text;
    return nullptr;
  }
  programs_.push_back(ir::Program::from_graph(graph.value()));
  return programs_.back();
}

Compiled Case::compile(const std::string& text, lazyt_compile_flags_t flags, lazyt_device_t* on) {
  base::Ref<ir::Program> program = parse(text);
  return program ? compile(program, flags, on) : Compiled{};
}

Compiled Case::compile(const base::Ref<ir::Program>& program, lazyt_compile_flags_t flags,
                       lazyt_device_t* on) {
  if (!on) on = device();
  const lazyt_program_t* block = program->block();
  std::vector<lazyt_answer_t> answers(block->nodes.count);
  for (lazyt_answer_t& a : answers) a.struct_size = sizeof a;
  lazyt_status_t* status =
      plugin().capability->query(on, block, answers.data(), answers.size(), sizeof(lazyt_answer_t));
  if (status) {
    ADD_FAILURE() << "capability.query: " << code_text(status);
    host()->status->release(status);
    return {};
  }
  for (size_t i = 0; i < answers.size(); i++) {
    if (answers[i].kind == LAZYT_ANSWER_TAKE || answers[i].kind == LAZYT_ANSWER_ONLY_IF) continue;
    const lazyt_node_t* node = lazyt_node(block, i);
    const std::string detail = loader::to_string(answers[i].detail);
    unsupported(fmt::format("refuses {} ({}){}{}", loader::to_string(lazyt_text(block, node->name)),
                            partition::reason_name(answers[i].reason), detail.empty() ? "" : ": ", detail));
    return {};
  }
  Compiled out{program, nullptr, {}};
  lazyt_compile_args_t args{sizeof args, nullptr, block, flags};
  lazyt_executable_t* handle = nullptr;
  status = plugin().executable->compile(on, &args, &handle);
  if (status || !handle) {
    rules_.push_back("CAP-2");
    keeps("CAP-2", false, "compile of a program whose nodes are all taken", "OK",
          status ? code_text(status) : "success without an executable");
    host()->status->release(status);
    return {};
  }
  out.handle.reset(handle);
  out.metas.resize(block->outputs.count);
  for (size_t i = 0; i < out.metas.size(); i++) {
    out.metas[i].struct_size = sizeof out.metas[i];
    status = plugin().executable->output_meta(handle, i, &out.metas[i]);
    if (status) {
      ADD_FAILURE() << "executable.output_meta(" << i << "): " << code_text(status);
      host()->status->release(status);
      return {};
    }
  }
  return out;
}

std::vector<BufferPtr> Case::outputs(const Compiled& program, lazyt_device_t* on) {
  std::vector<BufferPtr> out;
  for (const lazyt_output_meta_t& meta : program.metas) {
    out.push_back(alloc(meta.size_bytes, on, meta.alignment, meta.memory_space));
    if (!out.back()) return {};
    if (meta.opaque || meta.size_bytes == 0) continue;
    BufferPtr stale = upload(Bytes(meta.size_bytes, kStale), on);
    if (!stale) return {};
    lazyt_status_t* status =
        plugin().buffer->copy(stale.get(), 0, out.back().get(), 0, meta.size_bytes, {nullptr, 0}, nullptr);
    if (status) {
      ADD_FAILURE() << "buffer.copy: " << code_text(status);
      host()->status->release(status);
      return {};
    }
  }
  return out;
}

lazyt_status_t* Case::execute_raw(const Compiled& program, const std::vector<In>& inputs,
                                  const std::vector<lazyt_buffer_t*>& outputs, lazyt_event_t** out_event,
                                  lazyt_events_t waits) {
  std::vector<lazyt_execute_input_t> raw;
  for (const In& i : inputs)
    raw.push_back(
        {i.buffer, i.scalar, i.stable_id, i.content_version, i.donated ? LAZYT_EXECUTE_DONATED : 0});
  lazyt_execute_args_t args{};
  args.struct_size = sizeof args;
  args.inputs = raw.data();
  args.input_count = raw.size();
  args.input_stride = sizeof(lazyt_execute_input_t);
  args.outputs = outputs.data();
  args.output_count = outputs.size();
  args.waits = waits;
  lazyt_status_t* status = plugin().executable->execute(program.handle.get(), &args, out_event);
  // Borrowed for the call: what stood there means nothing any more.
  std::fill(raw.begin(), raw.end(), lazyt_execute_input_t{});
  return status;
}

EventPtr Case::execute(const char* rule, const Compiled& program, const std::vector<In>& inputs,
                       const std::vector<BufferPtr>& outputs, lazyt_events_t waits) {
  std::vector<lazyt_buffer_t*> raw;
  for (const BufferPtr& b : outputs) raw.push_back(b.get());
  lazyt_event_t* event = nullptr;
  if (!ok(rule, "execute", execute_raw(program, inputs, raw, &event, waits))) return nullptr;
  keeps(rule, event != nullptr, "execute", "an event", "success without an event");
  return EventPtr(event);
}

bool Case::wait(const char* rule, const std::string& did, const EventPtr& event) {
  return ok(rule, did + ", wait", plugin().event->wait(event.get(), LAZYT_WAIT_FOREVER));
}

std::vector<Bytes> Case::run(const char* rule, const Compiled& program, const std::vector<In>& inputs) {
  std::vector<BufferPtr> buffers = outputs(program);
  if (buffers.size() != program.metas.size()) return {};
  EventPtr event = execute(rule, program, inputs, buffers);
  if (!event || !wait(rule, "execute", event)) return {};
  std::vector<Bytes> results;
  for (size_t i = 0; i < buffers.size(); i++)
    results.push_back(download(buffers[i], program.metas[i].size_bytes));
  return results;
}

EventPtr Case::failed_event() {
  auto failed = [](lazyt_status_t* status, lazyt_event_t* raw) -> EventPtr {
    EventPtr event(raw);
    host()->status->release(status);
    if (status || !event) return nullptr;
    return take_code(plugin().event->wait(event.get(), LAZYT_WAIT_FOREVER)) == LAZYT_CODE_OK
               ? nullptr
               : std::move(event);
  };
  // An output's buffer that is too small (EXE-10).
  Compiled add =
      compile("program(%0: f32[64]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[64]\n return %1\n}\n");
  if (!add) return nullptr;
  BufferPtr input = upload(Bytes(256, 0)), small = alloc(4);
  if (!input || !small) return nullptr;
  lazyt_event_t* event = nullptr;
  lazyt_status_t* status = execute_raw(add, {in(input)}, {small.get()}, &event);
  if (EventPtr found = failed(status, event)) return found;
  unsupported("no work fails late: errors of this plugin are returned by the call");
  return nullptr;
}

}  // namespace lazyt::conformance
