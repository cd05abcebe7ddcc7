// Operators that no backend need know, recorded as what they are made of: where the host, or a plugin that
// runs what the host runs, has them too slowly or not at all. Others that a plugin refuses are taken apart
// when a program is compiled (core/passes/outside_rules.cpp), and keep their names until then.
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/any.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "frontend/registration.h"
#include "frontend/schema.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {
namespace {

// ---- isin: which elements are among a few others. A comparison with each, as eager computes it there; where
// eager sorts both instead, the host does.

// Eager's own rule for when comparing is the quicker way (numpy's in1d).
bool is_few(const at::Tensor& elements, const at::Tensor& others) {
  return static_cast<double>(others.numel()) < 10 * std::pow(static_cast<double>(elements.numel()), 0.145);
}

// elements, test_elements, assume_unique, invert
void isin(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor elements = torch::jit::peek(*stack, 0, 4).toTensor(),
                   others = torch::jit::peek(*stack, 1, 4).toTensor();
  const bool invert = torch::jit::peek(*stack, 3, 4).toBool();
  const at::ScalarType type = elements.scalar_type();
  // Of the dtypes that eager takes, without its promotions.
  const bool is_plain = type == others.scalar_type() && elements.device() == others.device() &&
                        type != at::kBool && type != at::kBFloat16 && !at::isComplexType(type);
  if (!is_plain || elements.numel() == 0 || others.numel() == 0 || !is_few(elements, others))
    return trace_call(torch_op(op), stack);
  const at::Tensor among = at::any(at::eq(elements.unsqueeze(-1), others.reshape(-1)), -1);
  torch::jit::drop(*stack, 4);
  torch::jit::push(*stack, invert ? among.logical_not() : among);
}

// ---- histc of integers: eager has it on accelerators alone, and programs ask for it wherever the device is
// not the CPU (transformers' mixtures of experts). Counted as CUDA counts, in whole numbers. Of floats, the
// host computes it.

// Of `values`, int64, how many lie in each of `bins` parts of low .. high, both included; int64 and of 0
// dims.
at::Tensor counts(const at::Tensor& values, int64_t bins, const at::Tensor& low, const at::Tensor& high) {
  const at::Tensor inside = values.ge(low).logical_and(values.le(high));
  // What lies outside adds 0 to the first part.
  const at::Tensor offset = (at::where(inside, values, low) - low) * bins;
  const at::Tensor part = offset.div(high - low, "floor").clamp_max(bins - 1);
  return at::zeros({bins}, values.options()).scatter_add(0, part, inside.to(at::kLong));
}

// self, bins, min, max. Of equal bounds the values' own are taken, and of those, where they are equal, one
// less and one more.
void histc(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor self = torch::jit::peek(*stack, 0, 4).toTensor();
  const int64_t bins = torch::jit::peek(*stack, 1, 4).toInt();
  const at::ScalarType type = self.scalar_type();
  if (!at::isIntegralType(type, /*includeBool=*/false) || at::isBarebonesUnsignedType(type))
    return trace_call(torch_op(op), stack);
  const int64_t low = torch::jit::peek(*stack, 2, 4).toScalar().toLong(),
                high = torch::jit::peek(*stack, 3, 4).toScalar().toLong();
  TORCH_CHECK(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins, " for dimension 0");
  TORCH_CHECK(low <= high, "torch.histc: max must be larger than min");
  const bool own_bounds = low == high;
  int64_t span = 0, product = 0;
  const bool fits =
      own_bounds ? type != at::kLong && bins <= std::numeric_limits<int32_t>::max()
                 : !__builtin_sub_overflow(high, low, &span) && !__builtin_mul_overflow(span, bins, &product);
  if (!fits)
    return trace_call(torch_op(op), stack);  // the host's error: numbers of parts could exceed 64 bits
  const at::Tensor values = self.reshape(-1).to(at::kLong);
  const auto number = [&](int64_t n) { return at::scalar_tensor(n, values.options()); };
  at::Tensor found;
  if (self.numel() == 0) {
    found = at::zeros({bins}, values.options());
  } else if (own_bounds) {
    const at::Tensor least = values.min(), greatest = values.max(), one = least.eq(greatest).to(at::kLong);
    found = counts(values, bins, least - one, greatest + one);
  } else {
    found = counts(values, bins, number(low), number(high));
  }
  torch::jit::drop(*stack, 4);
  torch::jit::push(*stack, found.to(type));
}

// ---- randperm without a generator: of the device's own. Eager's takes the CPU's where it runs on the host.

void randperm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const char* overload = op.operator_name().overload_name.empty() ? "generator" : "generator_out";
  const size_t count = op.schema().arguments().size();
  stack->insert(stack->end() - static_cast<int64_t>(count) + 1, c10::IValue());  // behind n
  c10::Dispatcher::singleton().findSchemaOrThrow("aten::randperm", overload).callBoxed(*stack);
}

}  // namespace

void register_composed() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                                __LINE__);
  library.impl("isin.Tensor_Tensor", torch::CppFunction::makeFromBoxedFunction<&isin>());
  library.impl("randperm", torch::CppFunction::makeFromBoxedFunction<&randperm>());
  library.impl("randperm.out", torch::CppFunction::makeFromBoxedFunction<&randperm>());
  library.impl("histc", torch::CppFunction::makeFromBoxedFunction<&histc>());
}

}  // namespace lazyt::frontend
