// Fused optimizer steps take the learning rate as a float, which would be part of their program; it is recorded as the
// 0-dim tensor that their other overload takes, a host scalar: a schedule recompiles nothing.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "frontend/registration.h"

namespace lazyt::frontend {
namespace {

void with_rate_as_tensor(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  c10::IValue& rate = torch::jit::peek(*stack, *schema.argumentIndexWithName("lr"), schema.arguments().size());
  rate = at::scalar_tensor(rate.toDouble(), at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  c10::Dispatcher::singleton().findSchemaOrThrow(schema.name().c_str(), "tensor_lr").callBoxed(stack);
}

}  // namespace

void register_optimizers() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const char* name : {"_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&with_rate_as_tensor>());
}

}  // namespace lazyt::frontend
