// gauss.cu - sum_j exp(-|x_i - y_j|^2 / s) b_j for CUDA: each thread sums one row, no matrix of all pairs is made.
// What the function is handed: lazyt/ext/draft/custom_kernel.h.

// [region kernel]
__device__ void gauss_sum(const float* x, const float* y, const float* b, double s, float* out) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= OUT0_SIZE) return;
  float sum = 0;
  for (long long j = 0; j < ARG1_DIM0; ++j) {
    float distance = 0;
    for (int d = 0; d < ARG0_DIM1; ++d) {
      const float difference = x[i * ARG0_DIM1 + d] - y[j * ARG0_DIM1 + d];
      distance += difference * difference;
    }
    sum += expf(-distance / (float)s) * b[j];
  }
  out[i] = sum;
}
// [end]
