// isin: which elements are among a few others. Recorded as what eager computes there, a comparison with each; where eager sorts
// both instead, the host does.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/any.h>
#include <ATen/ops/eq.h>
#include <torch/library.h>

#include <cmath>

#include "frontend/registration.h"
#include "frontend/schema.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {
namespace {

// Eager's own rule for when comparing is the quicker way (numpy's in1d).
bool is_few(const at::Tensor& elements, const at::Tensor& others) {
  return static_cast<double>(others.numel()) < 10 * std::pow(static_cast<double>(elements.numel()), 0.145);
}

// elements, test_elements, assume_unique, invert
void isin(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor elements = torch::jit::peek(*stack, 0, 4).toTensor(), others = torch::jit::peek(*stack, 1, 4).toTensor();
  const bool invert = torch::jit::peek(*stack, 3, 4).toBool();
  const at::ScalarType type = elements.scalar_type();
  // Of the dtypes that eager takes, without its promotions.
  const bool is_plain = type == others.scalar_type() && elements.device() == others.device() && type != at::kBool &&
                        type != at::kBFloat16 && !at::isComplexType(type);
  if (!is_plain || elements.numel() == 0 || others.numel() == 0 || !is_few(elements, others)) return trace_call(torch_op(op), stack);
  const at::Tensor among = at::any(at::eq(elements.unsqueeze(-1), others.reshape(-1)), -1);
  torch::jit::drop(*stack, 4);
  torch::jit::push(*stack, invert ? among.logical_not() : among);
}

}  // namespace

void register_isin() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("isin.Tensor_Tensor", torch::CppFunction::makeFromBoxedFunction<&isin>());
}

}  // namespace lazyt::frontend
