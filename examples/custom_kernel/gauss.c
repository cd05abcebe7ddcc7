/* out[i] = sum over j of exp(-|x[i] - y[j]|^2 / s) * b[j], without the matrix of all pairs: what packages such as KeOps
 * are for. A kernel of lazyt.custom_kernel/1, built by gauss.py with any C compiler and the SDK's headers alone. */
#include <math.h>

#include "lazyt/ext/draft/custom_kernel.h"

/* [region kernel] */
LAZYT_EXPORT lazyt_code_t gauss_sum(void *user_data, const lazyt_kernel_call_t *call) {
  const lazyt_kernel_tensor_t *x = &lazyt_kernel_arg(call, 0)->tensor, *y = &lazyt_kernel_arg(call, 1)->tensor;
  const lazyt_kernel_tensor_t *b = &lazyt_kernel_arg(call, 2)->tensor, *out = lazyt_kernel_result(call, 0);
  const double s = lazyt_kernel_arg(call, 3)->number;
/* [end] */
  const float *xs = x->data, *ys = y->data, *bs = b->data;
  float *result = out->data;
  (void)user_data;
  if (x->dtype != LAZYT_DTYPE_FLOAT32 || y->dtype != LAZYT_DTYPE_FLOAT32 || b->dtype != LAZYT_DTYPE_FLOAT32)
    return LAZYT_CODE_INVALID_ARGUMENT;
  for (int64_t i = 0; i < x->dims[0]; i++) {
    double sum = 0;
    for (int64_t j = 0; j < y->dims[0]; j++) {
      double distance = 0;
      for (int64_t d = 0; d < x->dims[1]; d++) {
        const double step = xs[i * x->dims[1] + d] - ys[j * y->dims[1] + d];
        distance += step * step;
      }
      sum += exp(-distance / s) * bs[j];
    }
    result[i] = (float)sum;
  }
  return LAZYT_CODE_OK;
}
