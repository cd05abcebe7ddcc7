// plugin.h - what the files of acme share. Rules such as (BUF-5) stand in lazyt's headers.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lazyt/plugin.hpp"

namespace acme_backend {

using namespace lazyt::plugin;

constexpr uint64_t kAlignment = 64;

// Memory of the host, which counts it and may refuse it (STA-5).
struct Free {
  void operator()(char* p) const { host().services->free(p); }
};
using Memory = std::unique_ptr<char, Free>;
Memory allocate(uint64_t size, uint64_t alignment = kAlignment);

struct Device {
  std::atomic<uint64_t> bytes{0}, peak{0};  // DEV-4
  std::vector<std::string> details;         // of the last query's refusals
  void count(int64_t change);
};

struct Buffer {
  Device& device;
  uint64_t size;
  Memory data;
};

// Of f32 unless said otherwise; dense and row-major.
struct Tensor {
  float* data;
  std::span<const int64_t> dims;
  int64_t count;
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data), static_cast<size_t>(count)};
  }
};

struct Operator;

// A program that was taken: a copy of its block, and where each value lies in the memory of a run.
struct Executable {
  Executable(Device& device, const lazyt_program_t* block);
  ~Executable();
  Device& device;
  Memory block;
  ProgramView program;
  std::vector<uint64_t> places;  // bytes, for each value
  std::vector<const Operator*> operators;
  uint64_t scratch = 0;  // bytes of a run
};

// What lies in the place of a host scalar.
struct Scalar {
  double as_double;
  float as_float;
};

// One node of a program that runs.
struct Call {
  const Executable& executable;
  const lazyt_node_t& node;
  char* memory;

  Tensor in(uint64_t i) const { return value(arg(i).payload); }
  Tensor out(uint64_t i = 0) const { return value(node.results + i); }
  // The tensors of a list.
  std::vector<Tensor> list(uint64_t i) const;
  // Written into the program, or a host scalar, whose bytes come with each execute (PRG-6).
  double number(uint64_t i) const;
  std::span<const int64_t> ints(uint64_t i) const { return executable.program.ints(arg(i)); }
  const lazyt_arg_t& arg(uint64_t i) const { return executable.program.args(node)[i]; }

 private:
  Tensor value(uint64_t index) const;
};

struct Refusal {
  lazyt_reason_t reason = LAZYT_REASON_NONE;
  const char* why = nullptr;  // null = taken
};

struct Operator {
  std::string_view name;
  Refusal (*refuse)(const ProgramView& program, const lazyt_node_t& node);
  void (*run)(const Call& call);
};
// Null for an operator that acme does not have.
const Operator* find(const ProgramView& program, const lazyt_node_t& node);
Refusal refusal(const ProgramView& program, const lazyt_node_t& node);
bool reads_scalar(lazyt_dtype_t dtype);

// Where element i, counted in row-major order of dims, lies.
int64_t offset(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t i);
std::vector<int64_t> dense(std::span<const int64_t> dims);

extern const lazyt_plugin_device_t device_table;
extern const lazyt_plugin_buffer_t buffer_table;
extern const lazyt_plugin_capability_t capability_table;
extern const lazyt_plugin_executable_t executable_table;

lazyt_status_t* execute(lazyt_executable_t* handle, const lazyt_execute_args_t* args, lazyt_event_t** out_event);

}  // namespace acme_backend

template <>
struct lazyt::plugin::Handle<lazyt_device_t> {
  using type = acme_backend::Device;
};
template <>
struct lazyt::plugin::Handle<lazyt_buffer_t> {
  using type = acme_backend::Buffer;
};
template <>
struct lazyt::plugin::Handle<lazyt_executable_t> {
  using type = acme_backend::Executable;
};
