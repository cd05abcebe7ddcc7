// interpreter.hpp - a whole plugin around a table of operators, for C++20. Header-only.
//
//   constexpr lazyt::interpreter::Operator kOperators[] = {{"aten::relu", float32, relu}};
//   constexpr lazyt::interpreter::Plugin kAcme = {.name = "acme", ..., .operators = kOperators};
//   LAZYT_INTERPRETER(kAcme)
//
// It answers for everything that is no operator: one device whose memory is the host's, buffers, events, which nodes
// are taken, programs that are kept and run one node after the other, and the entry point. All work is done when its
// call returns, so that events are born ready. Values lie dense and row-major while a program runs, in memory of the
// run; buffers change only at its end, so that whatever fails has consumed nothing (EXE-6).
//
// A vendor begins here and replaces what the hardware does better: each table is an object of this file, and a plugin with a
// table of its own takes the others from here.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_INTERPRETER_HPP_
#define LAZYT_INTERPRETER_HPP_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lazyt/plugin.hpp"

namespace lazyt {
namespace interpreter __attribute__((visibility("hidden"))) {

using namespace lazyt::plugin;

inline constexpr uint64_t kAlignment = 64;

// --- what a vendor writes

struct Call;

struct Refusal {
  lazyt_reason_t reason = LAZYT_REASON_NONE;
  const char* why = nullptr;  // null = taken
};

struct Operator {
  std::string_view name;  // "aten::add.Tensor"
  Refusal (*refuse)(const ProgramView& program, const lazyt_node_t& node);
  void (*run)(const Call& call);  // throws Error: the outputs have it (EXE-2)
};

struct Plugin {
  const char *name, *version, *description, *vendor, *device;
  int32_t score = -1;  // below 0: taken only by those who name it
  std::span<const Operator> operators;
  void (*init)() = nullptr;      // opens the driver (LIB-3); throws Error
  void (*shutdown)() = nullptr;
};
inline const Plugin* described = nullptr;  // set by LAZYT_INTERPRETER

inline std::string text_of(const char* what) { return std::string(described->name) + ": " + what; }
inline void demand(bool holds, const char* what) {
  if (!holds) throw Error(LAZYT_CODE_INVALID_ARGUMENT, text_of(what));
}

// --- memory

// Memory of the host, which counts it and may refuse it (STA-5).
struct Free {
  void operator()(char* p) const { host().services->free(p); }
};
using Memory = std::unique_ptr<char, Free>;
inline Memory allocate(uint64_t size, uint64_t alignment = kAlignment) {
  Memory memory(static_cast<char*>(host().services->alloc(size, alignment)));
  if (!memory) throw Error(LAZYT_CODE_RESOURCE_EXHAUSTED, text_of("memory is exhausted"));
  return memory;
}

struct Device {
  std::atomic<uint64_t> bytes{0}, peak{0};  // DEV-4
  std::vector<std::string> details;         // of the last query's refusals
  void count(int64_t change) {
    const uint64_t now = bytes += static_cast<uint64_t>(change);
    for (uint64_t old = peak; now > old && change > 0 && !peak.compare_exchange_weak(old, now);) {
    }
  }
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

}  // namespace interpreter

template <>
struct plugin::Handle<lazyt_device_t> {
  using type = interpreter::Device;
};
template <>
struct plugin::Handle<lazyt_buffer_t> {
  using type = interpreter::Buffer;
};
template <>
struct plugin::Handle<lazyt_executable_t> {
  using type = interpreter::Executable;
};

namespace interpreter {

// Where element i, counted in row-major order of dims, lies.
inline int64_t offset(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t i) {
  int64_t at = 0;
  for (size_t d = dims.size(); d-- > 0; i /= dims[d]) at += i % dims[d] * strides[d];
  return at;
}

inline std::vector<int64_t> dense(std::span<const int64_t> dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0; step *= std::max<int64_t>(dims[d], 1)) strides[d] = step;
  return strides;
}

// Strides that read t as if it had these dims: 0 where it is repeated (PRG-4).
inline std::vector<int64_t> broadcast(const Tensor& t, std::span<const int64_t> dims) {
  const std::vector<int64_t> own = dense(t.dims);
  std::vector<int64_t> strides(dims.size());
  const size_t missing = dims.size() - t.dims.size();
  for (size_t d = 0; d < t.dims.size(); ++d) strides[missing + d] = t.dims[d] == 1 ? 0 : own[d];
  return strides;
}

// --- which nodes are taken

inline bool reads_scalar(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_FLOAT64 || dtype == LAZYT_DTYPE_FLOAT32 || dtype == LAZYT_DTYPE_INT64 ||
         dtype == LAZYT_DTYPE_BOOL;
}

// All tensors are f32, except argument `i64` (-1: none). A host scalar of another dtype is converted (PRG-4).
inline Refusal float32_but(const ProgramView& p, const lazyt_node_t& node, int i64) {
  constexpr Refusal no = {LAZYT_REASON_DTYPE, "computes float32"};
  auto is = [&](uint64_t index, lazyt_dtype_t dtype) {
    const lazyt_value_t& v = p.values()[index];
    return v.dtype == dtype || ((v.flags & LAZYT_VALUE_HOST_SCALAR) && reads_scalar(v.dtype));
  };
  for (uint32_t i = 0; i < node.arg_count; ++i) {
    const lazyt_arg_t& arg = p.args(node)[i];
    const lazyt_dtype_t wanted = static_cast<int>(i) == i64 ? LAZYT_DTYPE_INT64 : LAZYT_DTYPE_FLOAT32;
    if (arg.kind == LAZYT_ARG_VALUE && !is(arg.payload, wanted)) return no;
    if (arg.kind != LAZYT_ARG_LIST) continue;
    for (const lazyt_arg_t& element : p.elements(arg))
      if (element.kind == LAZYT_ARG_VALUE && !is(element.payload, wanted)) return no;
  }
  for (uint32_t i = 0; i < node.result_count; ++i)
    if (!is(node.results + i, LAZYT_DTYPE_FLOAT32)) return no;
  return {};
}
inline Refusal float32(const ProgramView& p, const lazyt_node_t& node) { return float32_but(p, node, -1); }

inline std::span<const int64_t> dims_of(const ProgramView& p, const lazyt_arg_t& arg) { return p.dims(p.values()[arg.payload]); }

// The integer that argument i is; -1 where it is none.
inline int64_t integer(const ProgramView& p, const lazyt_node_t& node, uint32_t i) {
  const lazyt_arg_t& arg = p.args(node)[i];
  return arg.kind == LAZYT_ARG_INT ? static_cast<int64_t>(arg.payload) : -1;
}

// Null for an operator that the plugin does not have.
inline const Operator* find(const ProgramView& program, const lazyt_node_t& node) {
  const auto op = std::ranges::find(described->operators, program.full_name(node), &Operator::name);
  return op == described->operators.end() ? nullptr : &*op;
}

inline Refusal refusal(const ProgramView& program, const lazyt_node_t& node) {
  const Operator* op = find(program, node);
  return op ? op->refuse(program, node) : Refusal{LAZYT_REASON_UNKNOWN_OPERATOR, "does not have this operator"};
}

inline std::string why(const ProgramView& program, const lazyt_node_t& node, const Refusal& refused) {
  return program.full_name(node) + ": " + described->name + " " + refused.why;
}

// [region query]
inline void query(Device& device, const ProgramView& program, lazyt_answer_t* answers, uint64_t count, uint64_t stride) {
  device.details.clear();
  device.details.reserve(count);  // answers borrow the texts until the next query
  for (uint64_t i = 0; i < count; ++i) {
    auto& answer = *reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(answers) + i * stride);  // C-3
    const lazyt_node_t& node = program.nodes()[i];
    const Refusal refused = refusal(program, node);
    answer.kind = refused.why ? LAZYT_ANSWER_REFUSE : LAZYT_ANSWER_TAKE;
    answer.reason = refused.reason;
    if (refused.why) answer.detail = to_c(device.details.emplace_back(why(program, node, refused)));
  }
}
// [end]

// --- programs

inline Memory copy_of(const lazyt_program_t* block) {
  Memory copy = allocate(block->total_size);
  std::memcpy(copy.get(), block, block->total_size);
  return copy;
}

// The host's block is ours during compile only (EXE-1).
inline Executable::Executable(Device& d, const lazyt_program_t* p)
    : device(d), block(copy_of(p)), program(reinterpret_cast<const lazyt_program_t*>(block.get())) {
  for (const lazyt_node_t& node : program.nodes()) {
    if (const Refusal refused = refusal(program, node); refused.why)
      throw Error(LAZYT_CODE_UNIMPLEMENTED, why(program, node, refused));
    operators.push_back(find(program, node));
  }
  for (const lazyt_constant_t& constant : program.constants())
    if (constant.file.size) throw Error(LAZYT_CODE_UNIMPLEMENTED, text_of("constants in files are not read"));
  for (const lazyt_value_t& value : program.values()) {
    places.push_back(scratch);
    const auto bytes = static_cast<uint64_t>(lazyt_value_numel(p, &value)) * lazyt_dtype_size(value.dtype);
    scratch += (std::max<uint64_t>(bytes, sizeof(Scalar)) + kAlignment - 1) / kAlignment * kAlignment;
  }
  device.count(static_cast<int64_t>(p->total_size));
}

inline Executable::~Executable() { device.count(-static_cast<int64_t>(program.block()->total_size)); }

// Copies a value's elements between its buffer, where strides spread them (PRG-2), and dense memory.
inline void move_elements(const ProgramView& p, const lazyt_value_t& value, char* spread, char* packed, bool to_packed) {
  const auto dims = p.dims(value);
  const std::vector<int64_t> strides = p.strides(value);
  const size_t size = lazyt_dtype_size(value.dtype);
  const auto count = static_cast<size_t>(lazyt_value_numel(p.block(), &value));
  if (strides == dense(dims)) {
    std::memcpy(to_packed ? packed : spread, to_packed ? spread : packed, count * size);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    char* far = spread + static_cast<size_t>(offset(dims, strides, static_cast<int64_t>(i))) * size;
    char* near = packed + i * size;
    std::memcpy(to_packed ? near : far, to_packed ? far : near, size);
  }
}

template <class T>
double read(const lazyt_scalar_t& scalar) {
  T value;
  std::memcpy(&value, scalar.bytes, sizeof value);
  return static_cast<double>(value);
}

inline Scalar read(const lazyt_scalar_t& scalar, lazyt_dtype_t dtype) {
  const double value = dtype == LAZYT_DTYPE_FLOAT64   ? read<double>(scalar)
                       : dtype == LAZYT_DTYPE_FLOAT32 ? read<float>(scalar)
                       : dtype == LAZYT_DTYPE_INT64   ? read<int64_t>(scalar)
                                                      : scalar.bytes[0];  // BOOL: no other is taken
  return {value, static_cast<float>(value)};
}

inline void load(const Executable& e, const lazyt_execute_args_t& args, char* memory) {
  const ProgramView& p = e.program;
  for (const lazyt_constant_t& c : p.constants()) {
    char* bytes = e.block.get() + p.block()->data.offset + c.offset;
    move_elements(p, p.values()[c.value], bytes, memory + e.places[c.value], true);
  }
  const Records<lazyt_execute_input_t> inputs(args.inputs, args.input_count, args.input_stride);
  for (uint64_t i = 0; i < inputs.size(); ++i) {
    const uint32_t index = p.inputs()[i].value;
    const lazyt_value_t& value = p.values()[index];
    if (value.flags & LAZYT_VALUE_HOST_SCALAR) {
      *reinterpret_cast<Scalar*>(memory + e.places[index]) = read(inputs[i].scalar, value.dtype);  // PRG-6
      continue;
    }
    const Buffer& buffer = from_c(inputs[i].buffer);
    demand(buffer.size >= p.span_bytes(value), "an input's buffer is too small");
    move_elements(p, value, buffer.data.get(), memory + e.places[index], true);
  }
}

// [region run]
inline void run(const Executable& e, const lazyt_execute_args_t& args) {
  const ProgramView& p = e.program;
  const Memory memory = allocate(e.scratch);
  load(e, args, memory.get());
  for (uint64_t i = 0; i < e.operators.size(); ++i) {
    try {
      e.operators[i]->run({e, p.nodes()[i], memory.get()});
    } catch (...) {
      throw current_error().note(p.describe(i), "while it ran");
    }
  }
  // Buffers change only here: whatever failed before this line has consumed nothing (EXE-6).
  for (uint64_t i = 0; i < args.output_count; ++i) {
    const uint32_t index = p.outputs()[i].value;
    move_elements(p, p.values()[index], from_c(args.outputs[i]).data.get(), memory.get() + e.places[index], false);
  }
}
// [end]

inline Tensor Call::value(uint64_t index) const {
  const lazyt_value_t& v = executable.program.values()[index];
  char* at = memory + executable.places[index];
  if (v.flags & LAZYT_VALUE_HOST_SCALAR) at = reinterpret_cast<char*>(&reinterpret_cast<Scalar*>(at)->as_float);
  return {reinterpret_cast<float*>(at), executable.program.dims(v), lazyt_value_numel(executable.program.block(), &v)};
}

inline std::vector<Tensor> Call::list(uint64_t i) const {
  std::vector<Tensor> tensors;
  for (const lazyt_arg_t& element : executable.program.elements(arg(i))) tensors.push_back(value(element.payload));
  return tensors;
}

// [region number]
inline double Call::number(uint64_t i) const {
  const lazyt_arg_t& a = arg(i);
  if (a.kind == LAZYT_ARG_VALUE) return reinterpret_cast<Scalar*>(memory + executable.places[a.payload])->as_double;
  if (a.kind == LAZYT_ARG_DOUBLE) return std::bit_cast<double>(a.payload);
  return static_cast<double>(static_cast<int64_t>(a.payload));
}
// [end]

inline lazyt_status_t* execute(lazyt_executable_t* handle, const lazyt_execute_args_t* args, lazyt_event_t** out_event) {
  return guard([&] {
    const Executable& e = from_c(handle);
    const ProgramView& p = e.program;
    demand(args->input_count == p.inputs().size() && args->output_count == p.outputs().size(),
            "the program has another number of inputs or outputs");
    for (uint64_t i = 0; i < args->output_count; ++i)
      demand(from_c(args->outputs[i]).size >= p.span_bytes(p.values()[p.outputs()[i].value]),
              "an output's buffer is too small");  // EXE-10
    lazyt_status_t* status = take_events(args->waits);   // EXE-11
    if (!status) status = guard([&] { run(e, *args); });
    *out_event = Event::make_ready(status)->handle();
  });
}

// --- the tables

inline const lazyt_plugin_device_t device_table = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .count = [](uint32_t* out) -> lazyt_status_t* {
      *out = 1;
      return nullptr;
    },
    .describe = [](uint32_t index, lazyt_device_info_t* out) {
      return guard([&] {
        demand(index == 0, "there is one device, number 0");
        out->name = to_c(described->device);
        out->vendor = to_c(described->vendor);
        out->flags = LAZYT_DEVICE_HOST_VISIBLE;
        out->total_bytes = 0;
        out->alignment = kAlignment;
        out->dlpack_type = out->dlpack_id = 0;
      });
    },
    .open = [](uint32_t index, lazyt_device_t** out) {
      return guard([&] {
        demand(index == 0, "there is one device, number 0");
        *out = to_handle<lazyt_device_t>(new Device);
      });
    },
    .close = [](lazyt_device_t* device) { delete from_c_or_null(device); },
    .memory_stats = [](lazyt_device_t* handle, lazyt_memory_stats_t* out) {
      return guard([&] {
        const Device& device = from_c(handle);
        out->bytes_in_use = out->bytes_reserved = device.bytes;
        out->peak_bytes_in_use = device.peak;
        out->derived_bytes = 0;
      });
    },
};

inline lazyt_buffer_t* make_buffer(lazyt_device_t* handle, uint64_t size, uint64_t alignment) {
  Device& device = from_c(handle);
  auto* buffer = new Buffer{device, size, allocate(size, std::max(alignment, kAlignment))};
  device.count(static_cast<int64_t>(size));
  return to_handle<lazyt_buffer_t>(buffer);
}

inline char* range(lazyt_buffer_t* handle, uint64_t offset, uint64_t size) {
  const Buffer& b = from_c(handle);
  if (offset > b.size || size > b.size - offset)
    throw Error(LAZYT_CODE_OUT_OF_RANGE, text_of("offset and size leave the buffer"));  // BUF-5
  return b.data.get() + offset;
}

// Moves bytes after the waits, whose errors become the operation's (BUF-6). Without out_event the outcome is the
// result (BUF-7).
inline lazyt_status_t* move_bytes(char* dst, const char* src, uint64_t size, lazyt_events_t waits, lazyt_event_t** out_event) {
  lazyt_status_t* status = take_events(waits);
  if (!status && size) std::memmove(dst, src, size);
  if (!out_event) return status;
  *out_event = Event::make_ready(status)->handle();
  return nullptr;
}

inline const lazyt_plugin_buffer_t buffer_table = {
    .struct_size = sizeof(lazyt_plugin_buffer_t),
    .alloc = [](lazyt_device_t* device, const lazyt_buffer_desc_t* desc, lazyt_buffer_t** out) {
      return guard([&] {
        demand(desc->memory_space == 0, "there is memory space 0 only");
        *out = make_buffer(device, desc->size_bytes, desc->alignment);
      });
    },
    .from_host = [](lazyt_device_t* device, const lazyt_host_bytes_t* bytes, lazyt_buffer_t** out) {
      return guard([&] {
        lazyt_buffer_t* buffer = make_buffer(device, bytes->size_bytes, 0);
        if (bytes->size_bytes) std::memcpy(from_c(buffer).data.get(), bytes->data, bytes->size_bytes);
        if (bytes->done) bytes->done(bytes->done_user_data);  // every sharing mode is a copy here (BUF-8)
        *out = buffer;
      });
    },
    .to_host = [](lazyt_buffer_t* buffer, uint64_t offset, void* dst, uint64_t size, lazyt_events_t waits,
                  lazyt_event_t** out_event) {
      return guard([&] { return move_bytes(static_cast<char*>(dst), range(buffer, offset, size), size, waits, out_event); });
    },
    .copy = [](lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst, uint64_t dst_offset, uint64_t size,
               lazyt_events_t waits, lazyt_event_t** out_event) {
      return guard([&] {
        return move_bytes(range(dst, dst_offset, size), range(src, src_offset, size), size, waits, out_event);
      });
    },
    .size = [](lazyt_buffer_t* buffer, uint64_t* out) { return guard([&] { *out = from_c(buffer).size; }); },
    .host_pointer = [](lazyt_buffer_t* buffer, void** out) {
      return guard([&] { *out = from_c(buffer).data.get(); });
    },
    .release = [](lazyt_buffer_t* handle) {
      std::unique_ptr<Buffer> buffer(from_c_or_null(handle));
      if (buffer) buffer->device.count(-static_cast<int64_t>(buffer->size));
    },
};

inline const lazyt_plugin_capability_t capability_table = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .query = [](lazyt_device_t* device, const lazyt_program_t* program, lazyt_answer_t* answers, uint64_t count,
                uint64_t stride) {
      return guard([&] { query(from_c(device), ProgramView(program), answers, count, stride); });
    },
};

inline const lazyt_plugin_executable_t executable_table = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .compile = [](lazyt_device_t* device, const lazyt_compile_args_t* args, lazyt_executable_t** out) {
      return guard([&] { *out = to_handle<lazyt_executable_t>(new Executable(from_c(device), args->program)); });
    },
    .output_meta = [](lazyt_executable_t* handle, uint64_t index, lazyt_output_meta_t* out) {
      return guard([&] {
        const ProgramView& p = from_c(handle).program;
        demand(index < p.outputs().size(), "no such output");
        out->size_bytes = p.span_bytes(p.values()[p.outputs()[index].value]);
        out->alignment = kAlignment;
        out->memory_space = out->opaque = 0;
      });
    },
    .memory = [](lazyt_executable_t* handle, lazyt_executable_memory_t* out) {
      return guard([&] {
        out->code_bytes = from_c(handle).program.block()->total_size;
        out->scratch_bytes = from_c(handle).scratch;
        out->flags = LAZYT_EXECUTABLE_KEEPS_NOTHING;
      });
    },
    .execute = execute,
    .release = [](lazyt_executable_t* handle) { delete from_c_or_null(handle); },
};

inline const lazyt_plugin_t plugin_table = {
    .struct_size = sizeof(lazyt_plugin_t),
    .abi_major = LAZYT_ABI_MAJOR,
    .abi_minor = LAZYT_ABI_MINOR,
    .abi_draft = LAZYT_ABI_DRAFT,
    .handshake = [](uint64_t seed, lazyt_handshake_t* out) -> uint64_t {
      lazyt_handshake_fill(out);
      return seed ^ LAZYT_HANDSHAKE_MASK;
    },
    .init = [] {
      return guard([] {
        if (described->init) described->init();
      });
    },
    .shutdown = [] {
      if (described->shutdown) described->shutdown();
    },
    .info = [](lazyt_plugin_info_t* out) -> lazyt_status_t* {
      out->name = to_c(described->name);
      out->version = to_c(described->version);
      out->description = to_c(described->description);
      out->vendor = to_c(described->vendor);
      out->why_none = {};
      out->score = described->score;
      return nullptr;
    },
    .device = &device_table,
    .buffer = &buffer_table,
    .event = &Event::table(),
    .capability = &capability_table,
    .executable = &executable_table,
};

}  // namespace interpreter
}  // namespace lazyt

// The entry point of a plugin that `whole` (an interpreter::Plugin) describes.
#define LAZYT_INTERPRETER(whole)                                                                          \
  lazyt_status_t* lazyt_plugin_entry_v1(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin) {     \
    if (lazyt_status_t* refused = lazyt::plugin::adopt_host(host)) return refused;                        \
    lazyt::interpreter::described = &(whole);                                                             \
    *out_plugin = &lazyt::interpreter::plugin_table;                                                      \
    return nullptr;                                                                                       \
  }

#endif  // LAZYT_INTERPRETER_HPP_
