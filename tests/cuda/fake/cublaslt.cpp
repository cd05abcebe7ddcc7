// A stand-in for cuBLASLt: the functions that the plugin calls (plugins/cuda/cublaslt.h), over the stand-ins
// for the driver and for NVRTC. It multiplies by a plain kernel of its own, by the rules of NVIDIA's
// documentation as they are read here: what it shows is that matrices, batches and epilogues are described
// consistently, not that the library takes them.
//
// Stricter than the library: a layout that cannot hold its matrix, an operand that lies worse than was
// promised, an attribute that the epilogue does not read, or an algorithm of another description is an error.
// The workspace is filled with bytes. LAZYT_FAKE_CUBLASLT_REFUSE names epilogues (numbers, by commas) that it
// has no algorithm for.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../../../plugins/cuda/cublaslt.h"

namespace {

using namespace lazyt::cuda;

constexpr LtStatus kDone = 0, kInvalid = 7, kUnsupported = 15, kInternal = 14;
constexpr size_t kWorkspace = 1024;
std::atomic<uint64_t> questions{0};

template <class F>
F* function_of(const char* variable, const char* name) {
  const char* path = std::getenv(variable);
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
}
template <class F>
F* driver(const char* name) {
  return function_of<F>("LAZYT_CUDA_DRIVER", name);
}
template <class F>
F* nvrtc(const char* name) {
  return function_of<F>("LAZYT_CUDA_NVRTC", name);
}

// Words: a, b, c, d, bias, m, n, k, ld of a b c d, batch offsets of a b c d, transposed a b, alpha, beta,
// epilogue, workspace, batch, aux, ld of aux.
constexpr const char* kKernel = R"(
LAZYT_KERNEL(NAME, 25, 64) {
  const long long m = a.w[5], n = a.w[6], k = a.w[7];
  auto index = [&](int which, long long z, long long row, long long column) {
    return z * (long long)a.w[12 + which] + row + column * (long long)a.w[8 + which];
  };
  const double alpha = lazyt_f64(a.w[18]), beta = lazyt_f64(a.w[19]);
  const unsigned epilogue = (unsigned)a.w[20];
  for (int i = threadIdx.x; i < 1024; i += 64) ((unsigned char*)a.w[21])[i] = 0x5a;
  for (long long e = blockIdx.x * 64LL + threadIdx.x; e < m * n * (long long)a.w[22]; e += gridDim.x * 64LL) {
    const long long row = e % m, column = e / m % n, z = e / m / n, beside = row + column * (long long)a.w[24];
    double sum = 0;
    for (long long i = 0; i < k; ++i)
      sum += (double)lazyt_load((const T*)a.w[0], a.w[16] ? index(0, z, i, row) : index(0, z, row, i)) *
             (double)lazyt_load((const T*)a.w[1], a.w[17] ? index(1, z, column, i) : index(1, z, i, column));
    double v = alpha * sum;
    if (beta != 0) v += beta * (double)lazyt_load((const T*)a.w[2], index(2, z, row, column));
    if (epilogue & 4) v += (double)lazyt_load((const T*)a.w[4], row);
    unsigned char* const byte = (unsigned char*)a.w[23] + beside / 8;
    const unsigned bit = 1u << beside % 8;
    const double c = 0.7978845608028654, q = 0.044715;
    if ((epilogue & 130) == 130) *byte = (unsigned char)(v > 0 ? *byte | bit : *byte & ~bit);
    if ((epilogue & 160) == 160) lazyt_store((T*)a.w[23], beside, (R)v);
    if (epilogue & 2) v = v > 0 ? v : v < 0 ? 0 : v;
    if (epilogue & 32) v = 0.5 * v * (1 + tanh(c * (v + q * v * v * v)));
    if ((epilogue & 136) == 136 && !(*byte & bit)) v = 0;
    if ((epilogue & 192) == 192) {
      const double x = (double)lazyt_load((const T*)a.w[23], beside), t = tanh(c * (x + q * x * x * x));
      v *= 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * q * x * x);
    }
    lazyt_store((T*)a.w[3], index(3, z, row, column), (R)v);
  }
}
// Words: from, to, count of sums, their stride, length of each, its stride.
LAZYT_KERNEL(SUM_NAME, 6, 64) {
  for (long long e = blockIdx.x * 64LL + threadIdx.x; e < (long long)a.w[2]; e += gridDim.x * 64LL) {
    double sum = 0;
    for (long long i = 0; i < (long long)a.w[4]; ++i)
      sum += (double)lazyt_load((const T*)a.w[0], e * (long long)a.w[3] + i * (long long)a.w[5]);
    lazyt_store((T*)a.w[1], e, (R)sum);
  }
}
)";

struct Kernels {
  CUmodule module = nullptr;
  std::map<int, CUfunction> functions, sums;  // by LtDataType
};

// One module of a kernel for each type.
bool load(Kernels& out) {
  std::ifstream file(LAZYT_PRELUDE);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::map<int, std::pair<const char*, const char*>> types = {{kLtF32, {"float", "float"}},
                                                                    {kLtF64, {"double", "double"}},
                                                                    {kLtF16, {"lazyt_f16", "float"}},
                                                                    {kLtBf16, {"lazyt_bf16", "float"}}};
  for (const auto& [type, names] : types)
    text += std::string("#define T ") + names.first + "\n#define R " + names.second +
            "\n#define NAME fake_matmul_" + std::to_string(type) +
            "\n#define SUM_NAME fake_sum_" + std::to_string(type) + kKernel +
            "#undef T\n#undef R\n#undef NAME\n#undef SUM_NAME\n";
  void* program = nullptr;
  static const auto create =
      nvrtc<int(void**, const char*, const char*, int, const char* const*, const char* const*)>(
          "nvrtcCreateProgram");
  static const auto compile = nvrtc<int(void*, int, const char* const*)>("nvrtcCompileProgram");
  static const auto size_of = nvrtc<int(void*, size_t*)>("nvrtcGetCUBINSize");
  static const auto get = nvrtc<int(void*, char*)>("nvrtcGetCUBIN");
  static const auto destroy = nvrtc<int(void**)>("nvrtcDestroyProgram");
  static const auto load_module = driver<CUresult(CUmodule*, const void*)>("cuModuleLoadData");
  static const auto find = driver<CUresult(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction");
  if (!create || !load_module || create(&program, text.c_str(), "cublaslt.cu", 0, nullptr, nullptr))
    return false;
  const char* option = "--gpu-architecture=sm_90";
  size_t bytes = 0;
  bool good = compile(program, 1, &option) == 0 && size_of(program, &bytes) == 0;
  std::vector<char> image(bytes);
  good = good && get(program, image.data()) == 0 && load_module(&out.module, image.data()) == CUDA_SUCCESS;
  for (const auto& [type, names] : types) {
    const std::string suffix = std::to_string(type);
    good = good && find(&out.functions[type], out.module, ("fake_matmul_" + suffix).c_str()) == CUDA_SUCCESS &&
           find(&out.sums[type], out.module, ("fake_sum_" + suffix).c_str()) == CUDA_SUCCESS;
  }
  destroy(&program);
  return good;
}

uint64_t bits(double v) {
  uint64_t out;
  std::memcpy(&out, &v, sizeof out);
  return out;
}

}  // namespace

namespace lazyt::cuda {

struct LtContext {
  Kernels kernels;
};
struct LtMatmulDescriptor {
  LtComputeType compute;
  LtDataType scale;
  int32_t turns[2] = {0, 0};
  uint32_t epilogue = kLtDefault;
  const void* bias = nullptr;
  const void* aux = nullptr;
  int64_t aux_leading = 0;
};
struct LtMatrixLayout {
  LtDataType type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t offset = 0;
};
struct LtMatmulPreference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

}  // namespace lazyt::cuda

namespace {

uint64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address);
  return bits & (~bits + 1);
}

bool refuses(uint32_t epilogue) {
  const char* list = std::getenv("LAZYT_FAKE_CUBLASLT_REFUSE");
  return list && ("," + std::string(list) + ",").find("," + std::to_string(epilogue) + ",") != std::string::npos;
}

// Whether there is such an epilogue, and the description says what it reads, and no more.
bool is_whole(const LtMatmulDescriptor& d, const LtMatrixLayout& out) {
  constexpr uint32_t kGood[] = {1, 2, 4, 6, 130, 134, 32, 36, 160, 164, 136, 152, 192, 208, 256, 512};
  if (std::find(std::begin(kGood), std::end(kGood), d.epilogue) == std::end(kGood)) return false;
  const bool has_vector = d.epilogue & (4 | 16 | 256 | 512), has_aux = d.epilogue & 128;
  if (has_vector != (d.bias != nullptr) || has_aux != (d.aux != nullptr)) return false;
  if (!has_aux) return d.aux_leading == 0;
  const bool is_bits = (d.epilogue & 130) == 130 || (d.epilogue & 136) == 136;
  return out.batch == 1 && alignment_of(d.aux) >= 16 && d.aux_leading >= out.rows && d.aux_leading % (is_bits ? 128 : 8) == 0;
}

// Whether the four matrices make a product.
bool agrees(const LtMatmulDescriptor& d, const LtMatrixLayout& a, const LtMatrixLayout& b,
            const LtMatrixLayout& c, const LtMatrixLayout& out) {
  for (const LtMatrixLayout* l : {&a, &b, &c, &out})
    if (l->leading < l->rows || l->rows < 1 || l->columns < 1 || l->batch != out.batch || l->type != out.type)
      return false;
  if (!is_whole(d, out)) return false;
  const int64_t m = d.turns[0] ? a.columns : a.rows, k = d.turns[0] ? a.rows : a.columns;
  const int64_t n = d.turns[1] ? b.rows : b.columns, k2 = d.turns[1] ? b.columns : b.rows;
  return k == k2 && m == out.rows && n == out.columns && c.rows == m && c.columns == n;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

size_t cublasLtGetVersion() { return 130002; }

LtStatus cublasLtCreate(LtHandle* out) {
  auto* made = new LtContext;
  if (!load(made->kernels)) {
    delete made;
    return kInternal;
  }
  *out = made;
  return kDone;
}
LtStatus cublasLtDestroy(LtHandle handle) {
  static const auto unload = driver<CUresult(CUmodule)>("cuModuleUnload");
  unload(handle->kernels.module);
  delete handle;
  return kDone;
}

LtStatus cublasLtMatmulDescCreate(LtMatmulDesc* out, LtComputeType compute, LtDataType scale) {
  *out = new LtMatmulDescriptor{compute, scale};
  return kDone;
}
LtStatus cublasLtMatmulDescDestroy(LtMatmulDesc d) {
  delete d;
  return kDone;
}
LtStatus cublasLtMatmulDescSetAttribute(LtMatmulDesc d, LtMatmulDescAttribute which, const void* value,
                                        size_t bytes) {
  void* to = which == kLtTransA         ? static_cast<void*>(&d->turns[0])
             : which == kLtTransB       ? static_cast<void*>(&d->turns[1])
             : which == kLtEpilogueKind ? static_cast<void*>(&d->epilogue)
             : which == kLtBiasPointer  ? static_cast<void*>(&d->bias)
             : which == kLtAuxPointer   ? static_cast<void*>(&d->aux)
             : which == kLtAuxLeading   ? static_cast<void*>(&d->aux_leading)
                                        : nullptr;
  const bool is_wide = which == kLtBiasPointer || which == kLtAuxPointer || which == kLtAuxLeading;
  if (!to || bytes != (is_wide ? 8u : 4u)) return kInvalid;
  std::memcpy(to, value, bytes);
  return kDone;
}

LtStatus cublasLtMatrixLayoutCreate(LtLayout* out, LtDataType type, uint64_t rows, uint64_t columns,
                                    int64_t leading) {
  *out = new LtMatrixLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  return kDone;
}
LtStatus cublasLtMatrixLayoutDestroy(LtLayout l) {
  delete l;
  return kDone;
}
LtStatus cublasLtMatrixLayoutSetAttribute(LtLayout l, LtLayoutAttribute which, const void* value,
                                          size_t bytes) {
  if (which == kLtBatchCount && bytes == 4)
    std::memcpy(&l->batch, value, bytes);
  else if (which == kLtBatchOffset && bytes == 8)
    std::memcpy(&l->offset, value, bytes);
  else
    return kInvalid;
  return kDone;
}

LtStatus cublasLtMatmulPreferenceCreate(LtPreference* out) {
  *out = new LtMatmulPreference;
  return kDone;
}
LtStatus cublasLtMatmulPreferenceDestroy(LtPreference p) {
  delete p;
  return kDone;
}
LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference p, LtPreferenceAttribute which, const void* value,
                                              size_t bytes) {
  if (which == kLtMaxWorkspaceBytes && bytes == 8)
    std::memcpy(&p->workspace, value, bytes);
  else if (which >= kLtAlignmentA && which <= kLtAlignmentD && bytes == 4)
    std::memcpy(&p->alignment[which - kLtAlignmentA], value, bytes);
  else
    return kInvalid;
  return kDone;
}

LtStatus cublasLtMatmulAlgoGetHeuristic(LtHandle, LtMatmulDesc d, LtLayout a, LtLayout b, LtLayout c,
                                        LtLayout out, LtPreference p, int wanted, LtHeuristic* best,
                                        int* found) {
  *found = 0;
  if (wanted < 1 || !agrees(*d, *a, *b, *c, *out)) return kInvalid;
  // As the library: no epilogue of f64.
  if (out->type == kLtF64 && d->epilogue != kLtDefault) return kUnsupported;
  if (p->workspace < kWorkspace || refuses(d->epilogue)) return kUnsupported;
  ++questions;
  *best = {};
  best->workspace_bytes = kWorkspace;
  for (int i = 0; i < 4; ++i) best->algorithm.data[i] = p->alignment[i];
  best->algorithm.data[4] = d->epilogue;
  best->algorithm.data[5] = alignment_of(d->bias);
  best->algorithm.data[6] = alignment_of(d->aux);
  best->algorithm.data[7] = static_cast<uint64_t>(d->aux_leading);
  *found = 1;
  return kDone;
}

LtStatus cublasLtMatmul(LtHandle handle, LtMatmulDesc d, const void* alpha, const void* a, LtLayout la,
                        const void* b, LtLayout lb, const void* beta, const void* c, LtLayout lc, void* out,
                        LtLayout lo, const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                        CUstream stream) {
  if (!agrees(*d, *la, *lb, *lc, *lo) || workspace_bytes < kWorkspace || algorithm->data[4] != d->epilogue)
    return kInvalid;
  const void* operands[] = {a, b, c, out};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<uintptr_t>(operands[i]) % algorithm->data[i]) return kInvalid;
  if (d->bias && reinterpret_cast<uintptr_t>(d->bias) % algorithm->data[5]) return kInvalid;
  if (d->aux && reinterpret_cast<uintptr_t>(d->aux) % algorithm->data[6]) return kInvalid;
  if (static_cast<uint64_t>(d->aux_leading) != algorithm->data[7]) return kInvalid;
  if (reinterpret_cast<uintptr_t>(workspace) % 256) return kInvalid;
  const bool wide = d->scale == kLtF64;
  auto scalar = [&](const void* at) {
    double x = 0;
    float narrow = 0;
    std::memcpy(wide ? static_cast<void*>(&x) : &narrow, at, wide ? 8 : 4);
    return bits(wide ? x : static_cast<double>(narrow));
  };
  auto word = [](const void* at) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(at)); };
  auto number = [](int64_t n) { return static_cast<uint64_t>(n); };
  const int64_t k = d->turns[0] ? la->rows : la->columns;
  const uint64_t words[25] = {word(a),
                              word(b),
                              word(c),
                              word(out),
                              word(d->bias),
                              number(lo->rows),
                              number(lo->columns),
                              number(k),
                              number(la->leading),
                              number(lb->leading),
                              number(lc->leading),
                              number(lo->leading),
                              number(la->offset),
                              number(lb->offset),
                              number(lc->offset),
                              number(lo->offset),
                              number(d->turns[0]),
                              number(d->turns[1]),
                              scalar(alpha),
                              scalar(beta),
                              d->epilogue,
                              word(workspace),
                              number(lo->batch),
                              word(d->aux),
                              number(d->aux_leading)};
  void* parameters[] = {const_cast<uint64_t*>(words)};
  static const auto launch = driver<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                             unsigned, unsigned, CUstream, void**, void**)>("cuLaunchKernel");
  CUresult result =
      launch(handle->kernels.functions.at(lo->type), 4, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr);
  auto sum = [&](const void* from, int64_t count, int64_t at, int64_t length, int64_t step) {
    if (result != CUDA_SUCCESS) return;
    const uint64_t to_sum[6] = {word(from), word(d->bias), number(count), number(at), number(length), number(step)};
    void* sum_parameters[] = {const_cast<uint64_t*>(to_sum)};
    result = launch(handle->kernels.sums.at(lo->type), 2, 1, 1, 64, 1, 1, 0, stream, sum_parameters, nullptr);
  };
  if (d->epilogue & 16) sum(out, lo->rows, 1, lo->columns, lo->leading);
  if (d->epilogue & 256) sum(a, lo->rows, d->turns[0] ? la->leading : 1, k, d->turns[0] ? 1 : la->leading);
  if (d->epilogue & 512) sum(b, lo->columns, d->turns[1] ? 1 : lb->leading, k, d->turns[1] ? lb->leading : 1);
  return result == CUDA_SUCCESS ? kDone : kInternal;
}

// Of the stand-in: how often it was asked for an algorithm.
uint64_t lazyt_fake_cublaslt_questions() { return questions; }

}  // extern "C"
#pragma GCC visibility pop
