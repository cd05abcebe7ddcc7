// What must be true, or the run fails: a fault of a kernel of one thread.
#include "lazyt/toolkit/assertion.hpp"

#include "text.h"

namespace lazyt::cuda {
namespace {

void check(Builder& b, const Tensor& condition, const std::string& message) {
  const auto fault = b.fault({LAZYT_CODE_INVALID_ARGUMENT, message, "", false, {}});
  b.add_kernel(specialise("assert", R"(
LAZYT_KERNEL(KERNEL, 3, 32) {
  if (blockIdx.x == 0 && threadIdx.x == 0 && *(const T*)a.w[0] == 0) lazyt_fault(a.w[1], a.w[2], 0);
}
)",
                          {{"T", bits_type(condition.element())}}),
               1, 32, {Word::address(condition), fault[0], fault[1]}, {condition.storage}, {});
}

}  // namespace

void register_assertion(Operators& all) { toolkit::add_assertion<Builder, check>(all); }

}  // namespace lazyt::cuda
