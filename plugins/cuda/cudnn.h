// The part of cuDNN that the plugin calls, the backend (graph) API of cuDNN 9, declared here: NVIDIA ships the header with a
// wheel of some 400 MB only, and cudnn-frontend's headers want it, too. Numbers are those of the library's ABI.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace lazyt::cuda {

using DnnHandle = struct DnnContext*;
using DnnDescriptor = struct DnnObject*;
using DnnStatus = int;  // 0 = done, 2000 bad parameter, 3000 not supported, 5000 execution failed, each with what follows it

enum DnnDataType : int { kDnnF32 = 0, kDnnF64 = 1, kDnnF16 = 2, kDnnI32 = 4, kDnnBf16 = 9, kDnnBool = 11 };
enum DnnMode : int { kDnnCrossCorrelation = 1, kDnnFallback = 2, kDnnBest = 3 };  // of windows, heuristics
enum DnnPointwise : int {
  kDnnAdd = 0,
  kDnnMul = 1,
  kDnnDiv = 6,
  kDnnSub = 9,
  kDnnExp = 13,
  kDnnLog = 15,
  kDnnIdentity = 21,
  kDnnRelu = 100,
  kDnnGreaterEqual = 303,
  kDnnIndex = 501,   // of its input's elements along an axis
  kDnnSelect = 601,  // t ? x : b
};
enum DnnReduce : int { kDnnSum = 0, kDnnMax = 3 };
enum DnnNote : int { kDnnTensorCores = 0, kDnnNarrowsInputs = 1, kDnnNotDeterministic = 4 };

enum DnnKind : int {
  kDnnPointwiseKind = 0,
  kDnnWindow = 1,  // CONVOLUTION_DESCRIPTOR
  kDnnEngine = 2,
  kDnnEngineConfig = 3,
  kDnnHeuristic = 4,
  kDnnPlan = 5,
  kDnnForward = 10,
  kDnnBackwardWeights = 11,
  kDnnBackwardData = 12,
  kDnnPointwiseOperation = 13,
  kDnnGraph = 15,
  kDnnVariantPack = 16,
  kDnnTensor = 17,
  kDnnMatmulKind = 18,
  kDnnMatmul = 19,
  kDnnReduceKind = 21,
  kDnnReduction = 22,
  kDnnReshape = 31,
};
enum DnnType : int {
  kDnnTypeHandle = 0,
  kDnnTypeDataType = 1,
  kDnnTypeBool = 2,
  kDnnTypeInt64 = 3,
  kDnnTypeFloat = 4,
  kDnnTypeDouble = 5,
  kDnnTypePointer = 6,
  kDnnTypeWindowMode = 7,
  kDnnTypeHeuristicMode = 8,
  kDnnTypeNan = 10,
  kDnnTypeNote = 11,
  kDnnTypePointwiseMode = 14,
  kDnnTypeDescriptor = 15,
  kDnnTypeReduceMode = 18,
};
enum DnnAttribute : int {
  kDnnPointwiseMode = 0,
  kDnnPointwiseCompute = 1,   // kDnnTypeDataType
  kDnnPointwiseNan = 2,       // 1: ReLU keeps it
  kDnnPointwiseAxis = 9,
  kDnnWindowCompute = 100,    // kDnnTypeDataType
  kDnnWindowMode = 101,
  kDnnWindowDilations = 102,  // int64, one for each spatial dim; so the next three
  kDnnWindowStrides = 103,
  kDnnWindowPaddingAfter = 104,
  kDnnWindowPaddingBefore = 105,
  kDnnWindowSpatialDims = 106,
  kDnnHeuristicMode = 200,
  kDnnHeuristicGraph = 201,
  kDnnHeuristicResults = 202,  // engine configurations, the best first
  kDnnConfigEngine = 300,
  kDnnPlanHandle = 400,
  kDnnPlanConfig = 401,
  kDnnPlanWorkspaceBytes = 402,
  kDnnForwardAlpha = 700,  // of each operation: alpha, beta (float, or double), window, w, x, y as they follow
  kDnnForwardBeta = 701,
  kDnnForwardWindow = 702,
  kDnnForwardW = 703,
  kDnnForwardX = 704,
  kDnnForwardY = 705,
  kDnnDataAlpha = 706,
  kDnnDataBeta = 707,
  kDnnDataWindow = 708,
  kDnnDataW = 709,
  kDnnDataX = 710,
  kDnnDataY = 711,
  kDnnWeightsAlpha = 712,
  kDnnWeightsBeta = 713,
  kDnnWeightsWindow = 714,
  kDnnWeightsW = 715,
  kDnnWeightsX = 716,
  kDnnWeightsY = 717,
  kDnnPointwiseOf = 750,
  kDnnPointwiseX = 751,
  kDnnPointwiseB = 752,
  kDnnPointwiseY = 753,
  kDnnPointwiseT = 758,
  kDnnGraphHandle = 800,
  kDnnGraphOperations = 801,
  kDnnTensorAlignment = 900,
  kDnnTensorType = 901,
  kDnnTensorDims = 902,
  kDnnTensorStrides = 903,
  kDnnTensorId = 906,
  kDnnTensorIsVirtual = 907,
  kDnnTensorIsByValue = 908,
  kDnnPackIds = 1000,
  kDnnPackPointers = 1001,
  kDnnPackWorkspace = 1003,
  kDnnEngineNotes = 1303,
  kDnnMatmulCompute = 1500,  // kDnnTypeDataType
  kDnnMatmulA = 1520,
  kDnnMatmulB = 1521,
  kDnnMatmulC = 1522,
  kDnnMatmulOf = 1523,
  kDnnReduceMode = 1600,
  kDnnReduceCompute = 1601,  // kDnnTypeDataType
  kDnnReduceX = 1610,
  kDnnReduceY = 1611,
  kDnnReduceOf = 1612,
  kDnnReshapeX = 2200,
  kDnnReshapeY = 2201,
};

extern "C" {
using cudnnGetVersion_t = size_t();
using cudnnGetCudartVersion_t = size_t();
using cudnnGetErrorString_t = const char*(DnnStatus);
using cudnnCreate_t = DnnStatus(DnnHandle*);
using cudnnDestroy_t = DnnStatus(DnnHandle);
using cudnnSetStream_t = DnnStatus(DnnHandle, CUstream);
using cudnnBackendCreateDescriptor_t = DnnStatus(DnnKind, DnnDescriptor*);
using cudnnBackendDestroyDescriptor_t = DnnStatus(DnnDescriptor);
using cudnnBackendSetAttribute_t = DnnStatus(DnnDescriptor, DnnAttribute, DnnType, int64_t count, const void*);
using cudnnBackendGetAttribute_t = DnnStatus(DnnDescriptor, DnnAttribute, DnnType, int64_t wanted, int64_t* count, void*);
using cudnnBackendFinalize_t = DnnStatus(DnnDescriptor);
using cudnnBackendExecute_t = DnnStatus(DnnHandle, DnnDescriptor plan, DnnDescriptor pack);
}

#define LAZYT_CUDA_CUDNN_FUNCTIONS(X)                                                                        \
  X(cudnnGetVersion) X(cudnnGetCudartVersion) X(cudnnGetErrorString) X(cudnnCreate) X(cudnnDestroy)          \
  X(cudnnSetStream) X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor)                         \
  X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)

#define LAZYT_CUDA_DNN_MEMBER(name) name##_t* name = nullptr;
struct CudnnApi {
  LAZYT_CUDA_CUDNN_FUNCTIONS(LAZYT_CUDA_DNN_MEMBER)
};
#undef LAZYT_CUDA_DNN_MEMBER

}  // namespace lazyt::cuda
