// Kernels that users hand over for their own operators: the extension lazyt.custom_kernel/1, CUDA C.
#pragma once

#include <string>

#include "lazyt/ext/draft/custom_kernel.h"
#include "ops.h"

namespace lazyt::cuda {

extern const lazyt_custom_kernel_t kCustomKernelTable;

// Null without a kernel for the operator.
const Operator* find_custom(const std::string& full_name);
// At shutdown.
void forget_custom_kernels();

}  // namespace lazyt::cuda
