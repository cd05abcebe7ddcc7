// The part of cuBLASLt that the plugin calls, declared here: NVIDIA ships the header with a wheel of 400 MB only. Numbers
// are those of the library's ABI, the same in CUDA 12 and 13.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace lazyt::cuda {

using LtHandle = struct LtContext*;
using LtMatmulDesc = struct LtMatmulDescriptor*;
using LtLayout = struct LtMatrixLayout*;
using LtPreference = struct LtMatmulPreference*;
using LtStatus = int;  // 0 = done, 7 invalid value, 15 not supported

enum LtDataType : int { kLtF32 = 0, kLtF64 = 1, kLtF16 = 2, kLtBf16 = 14 };
// What products are summed in; kLtComputeTf32 rounds f32 operands to TF32.
enum LtComputeType : int { kLtComputeF32 = 68, kLtComputeF64 = 70, kLtComputeTf32 = 77 };
enum LtOperation : int { kLtNormal = 0, kLtTransposed = 1 };
enum LtOrder : int { kLtColumnMajor = 0, kLtRowMajor = 1 };
// Bits; kLtBias goes with kLtRelu or kLtGelu, kLtAux with either, kLtSum with a gradient.
enum LtEpilogue : uint32_t {
  kLtDefault = 1,
  kLtRelu = 2,
  kLtBias = 4,
  kLtGelu = 32,            // the tanh form
  kLtAux = 128,            // of kLtRelu: writes a bit for each element, whether it was above 0; of kLtGelu: writes its operand
  kLtReluGradient = 136,   // DRELU: reads the bits
  kLtGeluGradient = 192,   // DGELU: reads the operand
  kLtSum = 16,             // BGRAD: the sum of each row of a column-major result, where a bias would be
  kLtSumOfA = 256,         // BGRADA: of each row of the first operand, as it is multiplied
  kLtSumOfB = 512,         // BGRADB: of each column of the second
};
enum LtMatmulDescAttribute : int {
  kLtTransA = 3,           // int32_t, LtOperation
  kLtTransB = 4,
  kLtEpilogueKind = 7,     // uint32_t, LtEpilogue
  kLtBiasPointer = 8,      // device pointer; as long as the rows of a column-major result (its columns: kLtSumOfB)
  kLtAuxPointer = 11,      // device pointer
  kLtAuxLeading = 12,      // int64_t, elements between columns; of bits a multiple of 128, else of 8
  kLtBiasDataType = 26,    // int32_t, LtDataType
};
enum LtLayoutAttribute : int {
  kLtOrder = 1,            // int32_t, LtOrder
  kLtBatchCount = 5,       // int32_t
  kLtBatchOffset = 6,      // int64_t, in elements
};
enum LtPreferenceAttribute : int {
  kLtMaxWorkspaceBytes = 1,  // uint64_t
  kLtAlignmentA = 5,         // uint32_t, bytes; 256 if not said
  kLtAlignmentB = 6,
  kLtAlignmentC = 7,
  kLtAlignmentD = 8,
};

struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  LtStatus status;
  float waves;
  int reserved[4];
};

extern "C" {
using cublasLtGetVersion_t = size_t();
using cublasLtCreate_t = LtStatus(LtHandle*);
using cublasLtDestroy_t = LtStatus(LtHandle);
using cublasLtMatmulDescCreate_t = LtStatus(LtMatmulDesc*, LtComputeType, LtDataType scale);
using cublasLtMatmulDescDestroy_t = LtStatus(LtMatmulDesc);
using cublasLtMatmulDescSetAttribute_t = LtStatus(LtMatmulDesc, LtMatmulDescAttribute, const void*, size_t);
using cublasLtMatrixLayoutCreate_t = LtStatus(LtLayout*, LtDataType, uint64_t rows, uint64_t columns, int64_t leading);
using cublasLtMatrixLayoutDestroy_t = LtStatus(LtLayout);
using cublasLtMatrixLayoutSetAttribute_t = LtStatus(LtLayout, LtLayoutAttribute, const void*, size_t);
using cublasLtMatmulPreferenceCreate_t = LtStatus(LtPreference*);
using cublasLtMatmulPreferenceDestroy_t = LtStatus(LtPreference);
using cublasLtMatmulPreferenceSetAttribute_t = LtStatus(LtPreference, LtPreferenceAttribute, const void*, size_t);
using cublasLtMatmulAlgoGetHeuristic_t = LtStatus(LtHandle, LtMatmulDesc, LtLayout a, LtLayout b, LtLayout c, LtLayout d,
                                                  LtPreference, int wanted, LtHeuristic*, int* found);
using cublasLtMatmul_t = LtStatus(LtHandle, LtMatmulDesc, const void* alpha, const void* a, LtLayout, const void* b, LtLayout,
                                  const void* beta, const void* c, LtLayout, void* d, LtLayout, const LtAlgorithm*,
                                  void* workspace, size_t workspace_bytes, CUstream);
}

#define LAZYT_CUDA_CUBLASLT_FUNCTIONS(X)                                                                     \
  X(cublasLtGetVersion) X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmulDescCreate)                     \
  X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate)               \
  X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute)                                 \
  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)

#define LAZYT_CUDA_LT_MEMBER(name) name##_t* name = nullptr;
struct CublasLtApi {
  LAZYT_CUDA_CUBLASLT_FUNCTIONS(LAZYT_CUDA_LT_MEMBER)
};
#undef LAZYT_CUDA_LT_MEMBER

}  // namespace lazyt::cuda
