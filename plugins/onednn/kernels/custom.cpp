#include "custom.h"

#include <deque>

#include "lazyt/toolkit/custom.hpp"
#include "streams.h"
#include "vm.h"

namespace lazyt::onednn {
namespace {

using plugin::Error;
using plugin::from_c;

struct Kernel {
  std::string name;
  lazyt_kernel_function_t function;
  void* user_data;
};

toolkit::CustomKernels<Kernel>& kernels() {
  static auto& all = *new toolkit::CustomKernels<Kernel>;
  return all;
}

lazyt_status_t* add(const lazyt_kernel_desc_t* desc) {
  return plugin::guard([&] {
    const std::string name = toolkit::CustomKernels<Kernel>::name_of(*desc);
    if (desc->kind != LAZYT_KERNEL_FUNCTION)
      throw Error(LAZYT_CODE_UNIMPLEMENTED, "onednn takes kernels that are C functions, not kind " + std::to_string(desc->kind) + " ('" + name + "')");
    if (!desc->function) throw Error(LAZYT_CODE_INVALID_ARGUMENT, "the kernel '" + name + "' has no function");
    kernels().set(name, {name, desc->function, desc->user_data});
  });
}

lazyt_status_t* remove(lazyt_string_t name) {
  return plugin::guard([&] { kernels().remove(name); });
}

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  for (const lazyt_arg_t& a : program.args(node)) {
    if (a.kind == LAZYT_ARG_LIST || a.kind == LAZYT_ARG_COMPLEX)
      return refuse_argument("kernels of users take no lists of tensors and no complex numbers");
  }
  return {};
}

// One call of a kernel: what is known when compiled, and what comes with each run.
struct Call {
  std::shared_ptr<const Kernel> kernel;
  std::vector<lazyt_kernel_arg_t> args;
  std::vector<Tensor> tensors;                       // by argument; dtype INVALID: none
  std::vector<std::pair<size_t, Number>> scalars;    // arguments that are host scalars
  std::vector<std::vector<int64_t>> ints;            // kept for the arguments' pointers
  std::vector<std::vector<double>> numbers;
  std::deque<std::string> texts;
  std::vector<Tensor> results;

  void run(const Frame& frame) const {
    std::vector<lazyt_kernel_arg_t> now = args;
    for (size_t i = 0; i < now.size(); ++i)
      if (tensors[i].dtype != LAZYT_DTYPE_INVALID) now[i].tensor = seen(frame, tensors[i]);
    for (const auto& [i, number] : scalars) {
      now[i].number = frame.as_double(number);
      now[i].integer = now[i].kind == LAZYT_ARG_DOUBLE ? 0 : frame.as_int(number);
    }
    std::vector<lazyt_kernel_tensor_t> out;
    for (const Tensor& t : results) out.push_back(seen(frame, t));
    const lazyt_kernel_call_t call = {sizeof call, nullptr, now.data(), now.size(), sizeof now[0],
                                      out.data(), out.size(), sizeof out[0], static_cast<uint32_t>(frame.threads), 0};
    if (const lazyt_code_t code = kernel->function(kernel->user_data, &call); code != LAZYT_CODE_OK)
      throw Error(code, "the kernel of " + kernel->name + " failed with code " + std::to_string(code));
  }

 private:
  static lazyt_kernel_tensor_t seen(const Frame& frame, const Tensor& t) {
    auto* bytes = frame.storages[t.storage] + t.layout.offset * static_cast<int64_t>(t.element());
    return {bytes, t.dims().data(), static_cast<uint32_t>(t.dims().size()), t.dtype};
  }
};

void lower(Builder& b, const lazyt_node_t& node) {
  const ProgramView& program = b.program;
  auto call = std::make_shared<Call>();
  call->kernel = kernels().of(program, node);
  std::vector<StorageId> reads, writes;
  for (const lazyt_arg_t& a : program.args(node)) {
    lazyt_kernel_arg_t arg{};
    arg.kind = a.kind;
    arg.count = a.count;
    call->tensors.emplace_back();
    switch (a.kind) {
      case LAZYT_ARG_VALUE:
        if (b.is_scalar(Builder::value_of(a))) {
          const Number n = b.number_of(a);
          const bool floating = n.dtype == LAZYT_DTYPE_FLOAT64 || vm::is_float(vm::type_of(n.dtype));
          arg.kind = floating ? LAZYT_ARG_DOUBLE : LAZYT_ARG_INT;
          call->scalars.emplace_back(call->args.size(), n);
        } else {
          call->tensors.back() = b.dense(Builder::value_of(a));
          reads.push_back(call->tensors.back().storage);
        }
        break;
      case LAZYT_ARG_DOUBLE: arg.number = Builder::double_of(a); break;
      case LAZYT_ARG_STRING:
        arg.text = call->texts.emplace_back(plugin::view(lazyt_text(program.block(), {static_cast<uint32_t>(a.payload), a.count}))).data();
        break;
      case LAZYT_ARG_INTS:
      case LAZYT_ARG_BOOLS: {
        const int64_t* from = lazyt_ints(program.block(), a.payload);
        arg.ints = call->ints.emplace_back(from, from + a.count).data();
        break;
      }
      case LAZYT_ARG_DOUBLES: {
        const int64_t* from = lazyt_ints(program.block(), a.payload);
        std::vector<double> values(a.count);
        std::copy_n(reinterpret_cast<const char*>(from), a.count * sizeof(double), reinterpret_cast<char*>(values.data()));
        arg.numbers = call->numbers.emplace_back(std::move(values)).data();
        break;
      }
      default: arg.integer = Builder::int_of(a);
    }
    call->args.push_back(arg);
  }
  for (uint32_t i = 0; i < node.result_count; ++i) {
    call->results.push_back(b.make_dense(node.results + i));
    writes.push_back(call->results.back().storage);
  }
  b.add("custom " + call->kernel->name, reads, writes, [call](const Frame& frame) {
    end_of_streams();  // for threads of its own
    call->run(frame);
  });
}

}  // namespace

const Operator* find_custom(const std::string& full_name) {
  static const Operator taken{toolkit::Role::kOpaque, accept, lower};
  return kernels().find(full_name) ? &taken : nullptr;
}

void forget_custom_kernels() { kernels().clear(); }

const lazyt_custom_kernel_t kCustomKernelTable = {
    .struct_size = sizeof(lazyt_custom_kernel_t),
    .next = nullptr,
    .add = add,
    .remove = remove,
};

}  // namespace lazyt::onednn
