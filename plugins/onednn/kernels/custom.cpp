#include "custom.h"

#include <deque>
#include <map>
#include <mutex>

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

struct Kernels {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Kernel>, std::less<>> by_name;
};
Kernels& kernels() {
  static auto& all = *new Kernels;
  return all;
}

std::shared_ptr<const Kernel> find(const std::string& full_name) {
  std::lock_guard lock(kernels().mutex);
  const auto it = kernels().by_name.find(full_name);
  return it == kernels().by_name.end() ? nullptr : it->second;
}

std::string_view text_of(lazyt_string_t s) { return s.size ? std::string_view(s.data, s.size) : std::string_view(); }

lazyt_status_t* add(const lazyt_kernel_desc_t* desc) {
  return plugin::guard([&] {
    std::string name(text_of(desc->name));
    if (desc->kind != LAZYT_KERNEL_FUNCTION)
      throw Error(LAZYT_CODE_UNIMPLEMENTED, "onednn takes kernels that are C functions, not kind " + std::to_string(desc->kind) + " ('" + name + "')");
    if (!desc->function) throw Error(LAZYT_CODE_INVALID_ARGUMENT, "the kernel '" + name + "' has no function");
    if (name.find("::") == std::string::npos || name.starts_with("aten::"))
      throw Error(LAZYT_CODE_INVALID_ARGUMENT, "'" + name + "' is no name of an operator of a user: 'mylib::op'");
    auto kernel = std::make_shared<const Kernel>(Kernel{name, desc->function, desc->user_data});
    std::lock_guard lock(kernels().mutex);
    kernels().by_name[std::move(name)] = std::move(kernel);
  });
}

lazyt_status_t* remove(lazyt_string_t name) {
  return plugin::guard([&] {
    std::lock_guard lock(kernels().mutex);
    const auto it = kernels().by_name.find(text_of(name));
    if (it == kernels().by_name.end()) throw Error(LAZYT_CODE_NOT_FOUND, "there is no kernel '" + std::string(text_of(name)) + "'");
    kernels().by_name.erase(it);
  });
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
  call->kernel = find(program.full_name(node));
  if (!call->kernel) throw Error(LAZYT_CODE_FAILED_PRECONDITION, "the kernel of " + program.full_name(node) + " was removed");
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
        arg.text = call->texts.emplace_back(text_of(lazyt_text(program.block(), {static_cast<uint32_t>(a.payload), a.count}))).data();
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
  b.add("custom " + call->kernel->name, reads, writes, [call](const Frame& frame) { call->run(frame); });
}

}  // namespace

const Operator* find_custom(const std::string& full_name) {
  static const Operator taken{toolkit::Role::kOpaque, accept, lower};
  return find(full_name) ? &taken : nullptr;
}

void forget_custom_kernels() {
  std::lock_guard lock(kernels().mutex);
  kernels().by_name.clear();
}

const lazyt_custom_kernel_t kCustomKernelTable = {
    .struct_size = sizeof(lazyt_custom_kernel_t),
    .next = nullptr,
    .add = add,
    .remove = remove,
};

}  // namespace lazyt::onednn
