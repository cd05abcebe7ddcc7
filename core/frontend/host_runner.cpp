// Host islands: nodes that the plugin refused, run by PyTorch's CPU kernels on the executor thread.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "base/counters.h"
#include "base/host_reasons.h"
#include "exec/host_runner.h"
#include "frontend/arguments.h"
#include "frontend/dtype.h"
#include "frontend/host_random.h"
#include "frontend/registration.h"
#include "trace/session.h"

namespace lazyt::frontend {
namespace {

using ir::Arg;

class Runner final : public exec::HostRunner {
 public:
  // torch.set_num_threads, OMP_NUM_THREADS.
  uint32_t threads() const override { return static_cast<uint32_t>(at::get_num_threads()); }

  base::Status run(const ir::Graph& graph, std::span<const exec::HostTensor> inputs,
                   std::span<const exec::HostTensor> outputs) override {
    at::NoGradGuard no_grad;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::vector<at::Tensor> values(graph.values.size());
    for (size_t i = 0; i < inputs.size(); i++) {
      values[graph.inputs[i].value] = operand(inputs[i]);
      if (inputs[i].weak) values[graph.inputs[i].value].unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    for (const ir::Constant& c : graph.constants) {
      exec::HostTensor t{graph.values[c.value].meta, const_cast<uint8_t*>(c.bytes.data())};
      values[c.value] = tensor(t);
    }
    for (const ir::Node& node : graph.nodes) {
      std::string name = node.name + (node.overload.empty() ? "" : "." + node.overload);
      if (node.source) name += fmt::format(", {}:{}", node.source->file, node.source->line);
      const auto begin = std::chrono::steady_clock::now();
      try {
        std::vector<at::Tensor> results = is_draw(node) ? draw_on_host(node, values) : run_node(node, values);
        std::move(results.begin(), results.end(), values.begin() + node.first_result);
      } catch (const c10::IndexError& e) {
        return base::Status(LAZYT_CODE_OUT_OF_RANGE, e.what_without_backtrace()).with_note("host", name);
      } catch (const c10::NotImplementedError& e) {
        return base::unimplemented(e.what_without_backtrace()).with_note("host", name);
      } catch (const c10::Error& e) {
        return base::invalid_argument(e.what_without_backtrace()).with_note("host", name);
      } catch (const std::exception& e) {
        return base::internal(e.what()).with_note("host", name);
      }
      base::record_time(base::host_name(node.name), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    for (size_t i = 0; i < outputs.size(); i++) tensor(outputs[i]).copy_(values[graph.outputs[i].value]);
    return {};
  }

 private:
  static at::Tensor tensor(const exec::HostTensor& t) {
    return at::from_blob(t.data, t.meta.dims, t.meta.strides, at::TensorOptions().dtype(to_torch(t.meta.dtype)));
  }

  // Kernels read complex128 by loads that want 16 bytes' alignment; host scalars have 8.
  static at::Tensor operand(const exec::HostTensor& t) {
    at::Tensor given = tensor(t);
    if (reinterpret_cast<uintptr_t>(t.data) % given.itemsize() == 0) return given;
    at::Tensor aligned = at::empty_strided(given.sizes(), given.strides(), given.options());
    std::memcpy(aligned.mutable_data_ptr(), t.data, t.meta.span_bytes());
    return aligned;
  }

  static std::vector<at::Tensor> run_node(const ir::Node& node, const std::vector<at::Tensor>& values) {
    auto handle = c10::Dispatcher::singleton().findSchema({node.name, node.overload});
    TORCH_CHECK(handle, "lazyt: no host implementation of ", node.name, "; the backend must take it");
    const auto& schema_args = handle->schema().arguments();
    torch::jit::Stack stack;
    for (size_t i = 0; i < node.args.size(); i++) stack.push_back(to_ivalue(node.args[i], schema_args[i].real_type(), values));
    for (size_t i = node.args.size(); i < schema_args.size(); i++) stack.push_back(*schema_args[i].default_value());
    if (reads_bytes(node.name, node.overload)) stack[0] = row_major(stack[0].toTensor());
    // One that writes works on copies, which stand behind its new tensors (trace::Op).
    const auto writes = [](const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); };
    std::vector<at::Tensor> results, written;
    for (size_t i = 0; i < schema_args.size(); i++) {
      if (!writes(schema_args[i])) continue;
      stack[i] = map_tensors(stack[i], [](const at::Tensor& t) { return t.clone(); });
      collect(written, stack[i]);
    }
    handle->callBoxed(stack);
    for (size_t i = 0; i < stack.size(); i++)
      if (!writes(handle->schema().returns()[i])) collect(results, stack[i]);
    for (at::Tensor& t : written)
      if (t.defined()) results.push_back(std::move(t));
    // What was written from fewer elements: some kernels read past an expanded operand, or refuse it.
    if (node.name == "aten::expand") results[0] = results[0].contiguous();
    TORCH_CHECK(results.size() == node.result_count, "lazyt: ", node.name, " gave ", results.size(), " tensors, not ", node.result_count);
    return results;
  }

  // Operators that PRG-3 defines on row-major operands; PyTorch's look at the storage.
  static bool reads_bytes(const std::string& name, const std::string& overload) {
    return name.starts_with("aten::as_strided") || (name == "aten::view" && overload == "dtype");
  }
  static at::Tensor row_major(const at::Tensor& t) {
    at::Tensor dense = t.contiguous();
    return dense.storage_offset() == 0 && dense.storage().nbytes() == dense.nbytes() ? dense : dense.clone();
  }

  static c10::IValue to_ivalue(const Arg& a, c10::TypePtr type, const std::vector<at::Tensor>& values) {
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    switch (a.kind) {
      case LAZYT_ARG_VALUE: {
        const at::Tensor& t = values[a.value];
        switch (type->kind()) {
          case c10::TypeKind::NumberType: return t.item();
          case c10::TypeKind::IntType: case c10::TypeKind::SymIntType: return t.item<int64_t>();
          case c10::TypeKind::FloatType: return t.item<double>();
          case c10::TypeKind::BoolType: return t.item<bool>();
          default: return t;
        }
      }
      case LAZYT_ARG_INT: return a.i;
      case LAZYT_ARG_DOUBLE: return a.d;
      case LAZYT_ARG_BOOL: return a.i != 0;
      case LAZYT_ARG_COMPLEX: return c10::complex<double>(a.doubles[0], a.doubles[1]);
      case LAZYT_ARG_STRING: return a.string;
      case LAZYT_ARG_DTYPE: return static_cast<int64_t>(to_torch(static_cast<base::DType>(a.i)));
      case LAZYT_ARG_INTS: return a.ints;
      case LAZYT_ARG_DOUBLES: return a.doubles;
      case LAZYT_ARG_BOOLS: {
        c10::List<bool> list;
        for (int64_t b : a.ints) list.push_back(b != 0);
        return list;
      }
      case LAZYT_ARG_MEMORY_FORMAT: case LAZYT_ARG_LAYOUT: return a.i;
      case LAZYT_ARG_DEVICE: return c10::Device(c10::kCPU);
      case LAZYT_ARG_LIST: {
        c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
        c10::impl::GenericList out(element);
        for (const Arg& e : a.list) out.push_back(to_ivalue(e, element, values));
        return out;
      }
      default: return {};
    }
  }
};

}  // namespace

void register_host_runner() {
  static Runner runner;
  trace::Session::set_host_runner(&runner);
}

}  // namespace lazyt::frontend
