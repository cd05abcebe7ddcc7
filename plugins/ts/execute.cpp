// Running an executable: on the calling thread, inputs as views of the buffers' storages, results
// adopted by the output buffers where they can be.
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <omp.h>

#include <cstring>
#include <memory>

#include "buffer.h"
#include "compile.h"
#include "errors.h"

namespace lazyt::ts {
namespace {

namespace jit = torch::jit;
using plugin::Error;
using plugin::Event;
using plugin::from_c;

// The state of the calling thread must not leak into a program: no autograd, no autocast, no modes or
// function transforms of the user.
class ThreadState {
 private:
  static c10::DispatchKeySet excluded() {
    using enum c10::DispatchKey;
    return c10::autocast_dispatch_keyset |
           c10::DispatchKeySet({Python, PythonTLSSnapshot, PythonDispatcher, FuncTorchDynamicLayerFrontMode,
                                FuncTorchDynamicLayerBackMode, FuncTorchVmapMode, FuncTorchBatched, Functionalize});
  }

  c10::impl::ForceDispatchKeyGuard guard_{c10::default_included_set, excluded()};
  c10::InferenceMode inference_;
};

template <class T>
T read(const lazyt_scalar_t& scalar) {
  T value;
  std::memcpy(&value, scalar.bytes, sizeof value);
  return value;
}

at::Scalar number_of(const lazyt_scalar_t& scalar, at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool: return scalar.bytes[0] != 0;
    case at::kByte: return read<uint8_t>(scalar);
    case at::kChar: return read<int8_t>(scalar);
    case at::kShort: return read<int16_t>(scalar);
    case at::kInt: return read<int32_t>(scalar);
    case at::kLong: return read<int64_t>(scalar);
    case at::kUInt16: return read<uint16_t>(scalar);
    case at::kUInt32: return read<uint32_t>(scalar);
    case at::kUInt64: return read<uint64_t>(scalar);
    case at::kHalf: return static_cast<float>(read<at::Half>(scalar));
    case at::kBFloat16: return static_cast<float>(read<at::BFloat16>(scalar));
    case at::kFloat: return read<float>(scalar);
    case at::kDouble: return read<double>(scalar);
    case at::kComplexFloat: return read<c10::complex<float>>(scalar);
    case at::kComplexDouble: return read<c10::complex<double>>(scalar);
    default: throw Error(LAZYT_CODE_UNIMPLEMENTED, "a host scalar has a dtype that is no number of PyTorch's");
  }
}

at::Tensor tensor_of(const lazyt_scalar_t& scalar, const InputSpec& spec) {
  at::Tensor tensor = at::empty({}, at::TensorOptions(spec.dtype));
  std::memcpy(tensor.mutable_data_ptr(), scalar.bytes, tensor.element_size());
  if (spec.weak) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::IValue value_of(const lazyt_execute_input_t& input, const InputSpec& spec, Form form) {
  switch (form) {
    case Form::kBuffer: {
      Buffer& buffer = from_c(input.buffer);
      if (buffer.size() < spec.size_bytes) {
        throw Error(LAZYT_CODE_INVALID_ARGUMENT, "an input needs " + std::to_string(spec.size_bytes) +
                                                     " bytes, its buffer has " + std::to_string(buffer.size()));
      }
      return tensor_over(buffer.storage(), spec.dtype, spec.dims, spec.strides);
    }
    case Form::kTensor: return tensor_of(input.scalar, spec);
    case Form::kNumber: return number_of(input.scalar, spec.dtype);
    case Form::kInt: return number_of(input.scalar, spec.dtype).toLong();
    case Form::kFloat: return number_of(input.scalar, spec.dtype).toDouble();
    case Form::kBool: return number_of(input.scalar, spec.dtype).toBool();
  }
  throw Error(LAZYT_CODE_INTERNAL, "an unknown form of a host scalar");
}

// The interpreter reports a failed operator as text: a traceback whose line numbers are those of
// kSourceName, then "RuntimeError: " and the message.
Error error_of(const Executable& executable, std::string_view text) {
  std::string_view message = text;
  const std::string mark = std::string(kSourceName) + "\", line ";
  const size_t at = text.find(mark);
  size_t line = std::string_view::npos;
  if (at != std::string_view::npos) {
    line = 0;
    for (size_t i = at + mark.size(); i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      line = line * 10 + static_cast<size_t>(text[i] - '0');
    }
    // The traceback ends where a line begins with the exception's name.
    const size_t error = text.find("Error: ", at);
    if (error != std::string_view::npos) message = text.substr(error + 7);
  }
  Error out(code_of(message), first_line(message));
  if (line < executable.nodes.size()) out.note(executable.nodes[line], "while it ran");
  return out;
}

void run_graph(const Executable& executable, jit::Stack& stack) {
  try {
    jit::InterpreterState(executable.code).run(stack);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& e) {
    throw error_of(executable, e.what_without_backtrace());
  } catch (const std::exception& e) {
    throw error_of(executable, e.what());
  }
}

bool same_layout(const at::Tensor& result, const TensorSpec& spec) {
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    if (spec.dims[i] > 1 && result.stride(static_cast<int64_t>(i)) != spec.strides[i]) return false;
  }
  return true;
}

// Whether the result's storage can become the buffer's: nobody else has it, and its bytes lie as the
// output's. A storage of twice the size would keep memory that the host believes free.
bool can_adopt(const at::Tensor& result, const TensorSpec& spec, const Buffer& buffer) {
  if (!result.has_storage() || result.use_count() != 1 || result.storage().use_count() != 1) return false;
  if (result.is_conj() || result.is_neg() || result._is_zerotensor() || result.storage_offset() != 0) return false;
  const uint64_t bytes = result.storage().nbytes();
  return result.device() == buffer.device().device && bytes >= buffer.size() && bytes <= 2 * buffer.size() + 64 &&
         same_layout(result, spec);
}

c10::Storage bytes_for(at::Tensor result, const TensorSpec& spec, const Buffer& buffer, size_t index) {
  if (!result.defined() || result.scalar_type() != spec.dtype || result.sizes() != at::IntArrayRef(spec.dims)) {
    throw Error(LAZYT_CODE_INTERNAL, "output " + std::to_string(index) +
                                         " has another shape or dtype than its program says: " +
                                         (result.defined() ? result.toString() + " " + c10::str(result.sizes())
                                                           : std::string("undefined")));
  }
  if (buffer.size() < spec.size_bytes) {
    throw Error(LAZYT_CODE_INVALID_ARGUMENT, "output " + std::to_string(index) + " needs " +
                                                 std::to_string(spec.size_bytes) + " bytes, its buffer has " +
                                                 std::to_string(buffer.size()));
  }
  if (can_adopt(result, spec, buffer)) return result.storage();
  c10::Storage storage = allocate(buffer.device().device, buffer.size());
  if (result.numel()) tensor_over(storage, spec.dtype, spec.dims, spec.strides).copy_(result);
  return storage;
}

// As the graph wants its inputs: those beyond kMostInputs in tuples.
void bundle(jit::Stack& stack) {
  const size_t count = stack.size();
  if (count <= kMostInputs) return;
  jit::Stack tuples;
  for (size_t first = kMostInputs; first < count; first += kMostInputs) {
    const auto begin = stack.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(kMostInputs, count - first));
    tuples.emplace_back(c10::ivalue::Tuple::create(std::vector<c10::IValue>(begin, end)));
  }
  stack.resize(kMostInputs);
  for (c10::IValue& tuple : tuples) stack.push_back(std::move(tuple));
}

void run(const Executable& executable, const lazyt_execute_args_t& args) {
  ThreadState state;
  // OpenMP keeps the number for each thread; PyTorch's kernels ask for this thread's.
  if (const int threads = static_cast<int>(plugin::host().services->thread_count()); threads != omp_get_max_threads())
    omp_set_num_threads(threads);
  jit::Stack stack;
  stack.reserve(executable.feeds.size() + executable.constants.size() + executable.outputs.size());
  plugin::Records<lazyt_execute_input_t> inputs(args.inputs, args.input_count, args.input_stride);
  for (const Feed& feed : executable.feeds) {
    stack.push_back(value_of(inputs[feed.input], executable.inputs[feed.input], feed.form));
  }
  for (const at::Tensor& constant : executable.constants) stack.emplace_back(constant);
  bundle(stack);
  run_graph(executable, stack);
  // All outputs are ready before the first buffer changes: a failure until then consumed nothing (EXE-6).
  std::vector<c10::Storage> results;
  results.reserve(executable.outputs.size());
  for (size_t i = 0; i < executable.outputs.size(); ++i) {
    at::Tensor result = std::move(stack[i]).toTensor();
    results.push_back(bytes_for(std::move(result), executable.outputs[i], from_c(args.outputs[i]), i));
  }
  stack.clear();
  for (size_t i = 0; i < results.size(); ++i) from_c(args.outputs[i]).bind(std::move(results[i]));
}

}  // namespace

lazyt_status_t* execute(lazyt_executable_t* handle, const lazyt_execute_args_t* args, lazyt_event_t** out_event) {
  return plugin::guard([&] {
    const Executable& executable = from_c(handle);
    plugin::require(args->input_count == executable.inputs.size(), "execute: wrong number of inputs");
    plugin::require(args->output_count == executable.outputs.size(), "execute: wrong number of outputs");
    lazyt_status_t* status = plugin::take_events(args->waits);
    if (!status) status = guard([&] { run(executable, *args); });
    *out_event = Event::make_ready(status)->handle();
  });
}

}  // namespace lazyt::ts
