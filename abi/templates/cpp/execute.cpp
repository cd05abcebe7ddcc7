// execute.cpp - runs a program: inputs in, one operator after the other, outputs out.
#include "plugin.h"

namespace acme_backend {
namespace {

// Copies a value's elements between its buffer, where strides spread them (PRG-2), and dense memory.
void move(const ProgramView& p, const lazyt_value_t& value, char* spread, char* packed, bool to_packed) {
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

Scalar read(const lazyt_scalar_t& scalar, lazyt_dtype_t dtype) {
  const double value = dtype == LAZYT_DTYPE_FLOAT64   ? read<double>(scalar)
                       : dtype == LAZYT_DTYPE_FLOAT32 ? read<float>(scalar)
                       : dtype == LAZYT_DTYPE_INT64   ? read<int64_t>(scalar)
                                                      : scalar.bytes[0];  // BOOL: no other is taken
  return {value, static_cast<float>(value)};
}

void load(const Executable& e, const lazyt_execute_args_t& args, char* memory) {
  const ProgramView& p = e.program;
  for (const lazyt_constant_t& c : p.constants()) {
    char* bytes = e.block.get() + p.block()->data.offset + c.offset;
    move(p, p.values()[c.value], bytes, memory + e.places[c.value], true);
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
    require(buffer.size >= p.span_bytes(value), "acme: an input's buffer is too small");
    move(p, value, buffer.data.get(), memory + e.places[index], true);
  }
}

// [region run]
void run(const Executable& e, const lazyt_execute_args_t& args) {
  const ProgramView& p = e.program;
  const Memory memory = allocate(e.scratch);
  load(e, args, memory.get());
  for (uint64_t i = 0; i < e.operators.size(); ++i) {
    try {
      e.operators[i]->run({e, p.nodes()[i], memory.get()});
    } catch (Error& error) {
      throw error.note(p.describe(i), "while it ran");
    }
  }
  // Buffers change only here: whatever failed before this line has consumed nothing (EXE-6).
  for (uint64_t i = 0; i < args.output_count; ++i) {
    const uint32_t index = p.outputs()[i].value;
    move(p, p.values()[index], from_c(args.outputs[i]).data.get(), memory.get() + e.places[index], false);
  }
}
// [end]

}  // namespace

bool reads_scalar(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_FLOAT64 || dtype == LAZYT_DTYPE_FLOAT32 || dtype == LAZYT_DTYPE_INT64 ||
         dtype == LAZYT_DTYPE_BOOL;
}

int64_t offset(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t i) {
  int64_t at = 0;
  for (size_t d = dims.size(); d-- > 0; i /= dims[d]) at += i % dims[d] * strides[d];
  return at;
}

std::vector<int64_t> dense(std::span<const int64_t> dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0; step *= std::max<int64_t>(dims[d], 1)) strides[d] = step;
  return strides;
}

Tensor Call::value(uint64_t index) const {
  const lazyt_value_t& v = executable.program.values()[index];
  char* at = memory + executable.places[index];
  if (v.flags & LAZYT_VALUE_HOST_SCALAR) at = reinterpret_cast<char*>(&reinterpret_cast<Scalar*>(at)->as_float);
  return {reinterpret_cast<float*>(at), executable.program.dims(v), lazyt_value_numel(executable.program.block(), &v)};
}

std::vector<Tensor> Call::list(uint64_t i) const {
  std::vector<Tensor> tensors;
  for (const lazyt_arg_t& element : executable.program.elements(arg(i))) tensors.push_back(value(element.payload));
  return tensors;
}

// [region number]
double Call::number(uint64_t i) const {
  const lazyt_arg_t& a = arg(i);
  if (a.kind == LAZYT_ARG_VALUE) return reinterpret_cast<Scalar*>(memory + executable.places[a.payload])->as_double;
  if (a.kind == LAZYT_ARG_DOUBLE) return std::bit_cast<double>(a.payload);
  return static_cast<double>(static_cast<int64_t>(a.payload));
}
// [end]

lazyt_status_t* execute(lazyt_executable_t* handle, const lazyt_execute_args_t* args, lazyt_event_t** out_event) {
  return guard([&] {
    const Executable& e = from_c(handle);
    const ProgramView& p = e.program;
    require(args->input_count == p.inputs().size() && args->output_count == p.outputs().size(),
            "acme: the program has another number of inputs or outputs");
    for (uint64_t i = 0; i < args->output_count; ++i)
      require(from_c(args->outputs[i]).size >= p.span_bytes(p.values()[p.outputs()[i].value]),
              "acme: an output's buffer is too small");  // EXE-10
    lazyt_status_t* status = take_events(args->waits);   // EXE-11
    if (!status) status = guard([&] { run(e, *args); });
    *out_event = Event::make_ready(status)->handle();
  });
}

}  // namespace acme_backend
