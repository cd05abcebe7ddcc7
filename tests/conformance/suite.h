// What cases are written with: the plugin under test, checks that cite a rule, objects that are released
// by themselves, and programs in text form.
//
//   LAZYT_CASE(Buffer, SizeIsWhatWasAsked, "BUF-10") {
//     BufferPtr buffer = alloc(64);
//     MUST(buffer);
//     ...
//     keeps("BUF-10", size == 64, "size() of a buffer of 64 bytes", "64", fmt::format("{}", size));
//   }
//
// A case names all rules that it can find broken; a check that cites another is itself an error.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "host.h"
#include "ir/program.h"
#include "layers/stack.h"
#include "lazyt/lazyt.h"

namespace lazyt::conformance {

struct Options {
  std::string plugin;     // path of the library
  std::string artifacts;  // where programs of failing cases are written
  std::string repeat;     // the command that runs a case, "{}" for its name
  uint64_t seed = 1;
  bool full = false;
};
Options& options();

// The text of a rule as its header has it; empty if no header does.
std::string rule_text(const std::string& rule);

// Rules that each case cites, by "Area.Case".
struct CaseInfo {
  std::string name;
  std::vector<std::string> rules;
};
std::vector<CaseInfo>& all_cases();
struct Register {
  Register(const char* name, std::vector<std::string> rules) {
    all_cases().push_back({name, std::move(rules)});
  }
};

// The library that is tested, opened once for the process without the loader, so that what the loader
// would refuse is told by its rule. Its table goes through the validate layer, whose findings are failures of
// the case in which they came up.
struct Subject {
  void* library = nullptr;
  const lazyt_plugin_t* table = nullptr;
  std::string error;  // why it could not be started
  std::unique_ptr<layers::Stack> layers;
  static Subject& get();
};
inline const lazyt_plugin_t& plugin() { return *Subject::get().table; }

template <class T>
struct Release {
  void operator()(T* handle) const;
};
template <>
inline void Release<lazyt_device_t>::operator()(lazyt_device_t* h) const {
  plugin().device->close(h);
}
template <>
inline void Release<lazyt_buffer_t>::operator()(lazyt_buffer_t* h) const {
  plugin().buffer->release(h);
}
template <>
inline void Release<lazyt_event_t>::operator()(lazyt_event_t* h) const {
  plugin().event->release(h);
}
template <>
inline void Release<lazyt_executable_t>::operator()(lazyt_executable_t* h) const {
  plugin().executable->release(h);
}
using DevicePtr = std::unique_ptr<lazyt_device_t, Release<lazyt_device_t>>;
using BufferPtr = std::unique_ptr<lazyt_buffer_t, Release<lazyt_buffer_t>>;
using EventPtr = std::unique_ptr<lazyt_event_t, Release<lazyt_event_t>>;
using ExecutablePtr = std::unique_ptr<lazyt_executable_t, Release<lazyt_executable_t>>;

using Bytes = std::vector<uint8_t>;
template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}
inline Bytes floats(std::initializer_list<float> values) { return bytes_of(std::vector<float>(values)); }
// "f32 1, 2.5, ..." of at most some values, for messages.
std::string show(const Bytes& bytes);
template <class T>
lazyt_scalar_t scalar(T value) {
  lazyt_scalar_t out{};
  std::memcpy(out.bytes, &value, sizeof value);
  return out;
}
// Text with bytes that no rule lets a plugin keep.
inline constexpr uint8_t kStale = 0x5A;

struct Compiled {
  base::Ref<ir::Program> program;
  ExecutablePtr handle;
  std::vector<lazyt_output_meta_t> metas;
  explicit operator bool() const { return handle != nullptr; }
};

struct In {
  lazyt_buffer_t* buffer = nullptr;
  lazyt_scalar_t scalar{};
  uint64_t stable_id = 0, content_version = 0;
  bool donated = false;
};
inline In in(const BufferPtr& b) { return {b.get()}; }
inline In donated(const BufferPtr& b) { return {b.get(), {}, 0, 0, true}; }
inline In number(lazyt_scalar_t s) { return {nullptr, s}; }

class Case : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  virtual bool needs_device() const { return true; }

  // --- checks; all return whether the rule was kept
  bool keeps(const char* rule, bool kept, const std::string& did, const std::string& expected,
             const std::string& got);
  // Takes the status over.
  bool ok(const char* rule, const std::string& did, lazyt_status_t* status);
  // That it failed with one of the codes (any, if none is named) and a message (STA-2).
  bool fails(const char* rule, const std::string& did, lazyt_status_t* status,
             std::initializer_list<lazyt_code_t> codes = {});
  void unsupported(const std::string& reason);  // declared: ends the case without a verdict
  // The code, message lost; takes the status over.
  static lazyt_code_t take_code(lazyt_status_t* status);

  // --- the device and what lies on it; null after a failed check
  lazyt_device_t* device() const { return device_.get(); }
  const lazyt_device_info_t& info() const { return info_; }
  bool host_visible() const { return info_.flags & LAZYT_DEVICE_HOST_VISIBLE; }
  DevicePtr open(uint32_t index = 0);
  BufferPtr alloc(uint64_t size, lazyt_device_t* on = nullptr, uint64_t alignment = 0, uint32_t space = 0);
  // A buffer that holds the bytes; a copy of them is kept until the case ends.
  BufferPtr upload(const Bytes& bytes, lazyt_device_t* on = nullptr);
  Bytes download(const BufferPtr& buffer, uint64_t size);
  bool same_bytes(const char* rule, const std::string& did, const Bytes& expected, const Bytes& got);

  // --- programs
  base::Ref<ir::Program> parse(const std::string& text);
  // Null, and the case unsupported, if the plugin refuses a node.
  Compiled compile(const std::string& text, lazyt_compile_flags_t flags = 0, lazyt_device_t* on = nullptr);
  Compiled compile(const base::Ref<ir::Program>& program, lazyt_compile_flags_t flags = 0,
                   lazyt_device_t* on = nullptr);
  // Output buffers by the metas, full of kStale.
  std::vector<BufferPtr> outputs(const Compiled& program, lazyt_device_t* on = nullptr);
  // The raw call: its status and event as they come.
  static lazyt_status_t* execute_raw(const Compiled& program, const std::vector<In>& inputs,
                                     const std::vector<lazyt_buffer_t*>& outputs, lazyt_event_t** out_event,
                                     lazyt_events_t waits = {nullptr, 0});
  EventPtr execute(const char* rule, const Compiled& program, const std::vector<In>& inputs,
                   const std::vector<BufferPtr>& outputs, lazyt_events_t waits = {nullptr, 0});
  bool wait(const char* rule, const std::string& did, const EventPtr& event);
  // All of it: outputs, execute, wait, and the bytes of every output. Empty after a failed check.
  std::vector<Bytes> run(const char* rule, const Compiled& program, const std::vector<In>& inputs);

  // An event of an execute that failed, or null if the plugin has no way to one.
  EventPtr failed_event();

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::vector<std::string> rules_;
  lazyt_device_info_t info_{};
  DevicePtr device_;
  std::vector<std::unique_ptr<Bytes>> kept_;
  std::vector<base::Ref<ir::Program>> programs_;
  bool broken_ = false;
  int64_t statuses_before_ = 0;
};

class DevicelessCase : public Case {
 protected:
  bool needs_device() const override { return false; }
};

#define LAZYT_CASE(area, case_name, ...)                                                          \
  static const ::lazyt::conformance::Register register_##area##_##case_name{#area "." #case_name, \
                                                                            {__VA_ARGS__}};       \
  TEST_F(area, case_name)

#define MUST(x)       \
  do {                \
    if (!(x)) return; \
  } while (0)

}  // namespace lazyt::conformance
