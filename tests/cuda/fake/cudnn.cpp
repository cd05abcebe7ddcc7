// A stand-in for cuDNN 9: the functions that the plugin calls (plugins/cuda/cudnn.h), over the stand-ins for the driver and for
// NVRTC. It convolves by a plain kernel of its own, by the rules of NVIDIA's documentation as they are read here: what it
// shows is that graphs, layouts and variant packs are described consistently, not that the library takes them.
//
// Descriptors are checked strictly: an attribute of another kind of descriptor, of another type, set after it was finalized, or
// missing, is an error; so is an address that is not aligned as was said. There are three engines: 0 adds a bias as well, but
// f32 in TF32; 1 is another engine that does not give the same bits twice, and would be wrong here; 2 takes a convolution alone.
//
// LAZYT_FAKE_CUDNN, by commas: version=N; cudart=N; none (no engine); busy (plans of engine 2 are refused in the first mode);
// fail=N (the N-th execution fails).
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../../../plugins/cuda/cudnn.h"

namespace {

using namespace lazyt::cuda;

constexpr DnnStatus kDone = 0, kBad = 2000, kNull = 2002, kMisaligned = 2003, kNotFinal = 2004, kWrongType = 2010, kUnsupported = 3000,
                    kInternal = 4000, kFailed = 5000;
constexpr int64_t kWorkspace = 512;

std::string option(const char* name) {
  const char* all = std::getenv("LAZYT_FAKE_CUDNN");
  const std::string text = "," + std::string(all ? all : "") + ",";
  const size_t at = text.find("," + std::string(name));
  if (at == std::string::npos) return "";
  const size_t end = text.find(',', at + 1), begin = at + 1 + std::strlen(name);
  return begin < end && text[begin] == '=' ? text.substr(begin + 1, end - begin - 1) : "yes";
}
size_t number(const char* name, size_t otherwise) {
  const std::string text = option(name);
  return text.empty() ? otherwise : std::stoul(text);
}

template <class F>
F* function_of(const char* variable, const char* name) {
  const char* path = std::getenv(variable);
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
}

// Words: x w y bias, workspace, kind, images, channels of x and y, those of a group, then three each of: sizes of x, w, y;
// strides, paddings, dilations; then five strides each of x, w, y (image, channel, three dims); stride of bias, whether TF32.
constexpr const char* kKernel = R"(
LAZYT_KERNEL(NAME, 45, 64) {
  const T* const x = (const T*)a.w[0]; const T* const w = (const T*)a.w[1]; const T* const y = (const T*)a.w[2];
  const int kind = (int)a.w[5];
  const long long images = a.w[6], xc = a.w[7], yc = a.w[8], xg = a.w[9], groups = xc / xg, yg = yc / groups;
  auto size = [&](int which, int d) { return (long long)a.w[10 + 3 * which + d]; };
  auto say = [&](int which, int d) { return (long long)a.w[19 + 3 * which + d]; };
  auto at = [&](int which, int d) { return (long long)a.w[28 + 5 * which + d]; };
  auto load = [&](const T* p, long long i) {
    const double v = (double)lazyt_load(p, i);
    if (!a.w[44]) return v;
    float f = (float)v; unsigned bits; memcpy(&bits, &f, 4); bits &= 0xffffe000u; memcpy(&f, &bits, 4);
    return (double)f;
  };
  for (int i = threadIdx.x; i < 512; i += 64) ((unsigned char*)a.w[4])[i] = 0x5a;
  const int to = kind == 10 ? 2 : kind == 12 ? 0 : 1;
  const long long outer = to == 1 ? yc : images, channels = to == 2 ? yc : to == 0 ? xc : xg;
  const long long inner = size(to, 0) * size(to, 1) * size(to, 2);
  for (long long e = blockIdx.x * 64LL + threadIdx.x; e < outer * channels * inner; e += gridDim.x * 64LL) {
    const long long o = e / inner / channels, c = e / inner % channels;
    const long long p[3] = {e % inner / (size(to, 1) * size(to, 2)), e % inner / size(to, 2) % size(to, 1), e % size(to, 2)};
    double sum = 0;
    if (to == 1) {
      for (long long n = 0; n < images; ++n)
        for (long long j = 0; j < size(2, 0) * size(2, 1) * size(2, 2); ++j) {
          const long long q[3] = {j / (size(2, 1) * size(2, 2)), j / size(2, 2) % size(2, 1), j % size(2, 2)};
          long long from = n * at(0, 0) + (o / yg * xg + c) * at(0, 1), there = n * at(2, 0) + o * at(2, 1);
          bool inside = true;
          for (int d = 0; d < 3; ++d) {
            const long long i = q[d] * say(0, d) - say(1, d) + p[d] * say(2, d);
            inside = inside && i >= 0 && i < size(0, d);
            from += i * at(0, 2 + d), there += q[d] * at(2, 2 + d);
          }
          if (inside) sum += load(x, from) * load(y, there);
        }
    } else {
      const long long group = to == 2 ? c / yg : c / xg;
      for (long long k = 0; k < (to == 2 ? xg : yg); ++k)
        for (long long j = 0; j < size(1, 0) * size(1, 1) * size(1, 2); ++j) {
          const long long t[3] = {j / (size(1, 1) * size(1, 2)), j / size(1, 2) % size(1, 1), j % size(1, 2)};
          long long beside = to == 2 ? c * at(1, 0) + k * at(1, 1) : (group * yg + k) * at(1, 0) + c % xg * at(1, 1);
          long long from = o * at(to == 2 ? 0 : 2, 0) + (group * (to == 2 ? xg : yg) + k) * at(to == 2 ? 0 : 2, 1);
          bool inside = true;
          for (int d = 0; d < 3; ++d) {
            beside += t[d] * at(1, 2 + d);
            long long i = to == 2 ? p[d] * say(0, d) - say(1, d) + t[d] * say(2, d) : p[d] + say(1, d) - t[d] * say(2, d);
            if (to == 0) { inside = inside && i >= 0 && i % say(0, d) == 0; i /= say(0, d); }
            inside = inside && i >= 0 && i < size(to == 2 ? 0 : 2, d);
            from += i * at(to == 2 ? 0 : 2, 2 + d);
          }
          if (inside) sum += load(to == 2 ? x : y, from) * load(w, beside);
        }
    }
    if (a.w[3]) sum += (double)lazyt_load((const T*)a.w[3], c * (long long)a.w[43]);
    lazyt_store((T*)a.w[to], o * at(to, 0) + c * at(to, 1) + p[0] * at(to, 2) + p[1] * at(to, 3) + p[2] * at(to, 4), (R)sum);
  }
}
)";

const std::map<int, std::pair<const char*, const char*>> kTypes = {
    {kDnnF32, {"float", "float"}}, {kDnnF64, {"double", "double"}}, {kDnnF16, {"lazyt_f16", "float"}}, {kDnnBf16, {"lazyt_bf16", "float"}}};

// The attributes of each kind of descriptor that may be set, with their types.
const std::map<int, std::map<int, int>>& attributes() {
  static const auto& all = *new std::map<int, std::map<int, int>>{
      {kDnnPointwise, {{0, kDnnTypePointwiseMode}, {1, kDnnTypeDataType}}},
      {kDnnWindow, {{100, kDnnTypeDataType}, {101, kDnnTypeWindowMode}, {102, kDnnTypeInt64}, {103, kDnnTypeInt64}, {104, kDnnTypeInt64}, {105, kDnnTypeInt64}, {106, kDnnTypeInt64}}},
      {kDnnEngine, {}},
      {kDnnEngineConfig, {}},
      {kDnnHeuristic, {{200, kDnnTypeHeuristicMode}, {201, kDnnTypeDescriptor}}},
      {kDnnPlan, {{400, kDnnTypeHandle}, {401, kDnnTypeDescriptor}}},
      {kDnnForward, {{700, kDnnTypeFloat}, {701, kDnnTypeFloat}, {702, kDnnTypeDescriptor}, {703, kDnnTypeDescriptor}, {704, kDnnTypeDescriptor}, {705, kDnnTypeDescriptor}}},
      {kDnnBackwardData, {{706, kDnnTypeFloat}, {707, kDnnTypeFloat}, {708, kDnnTypeDescriptor}, {709, kDnnTypeDescriptor}, {710, kDnnTypeDescriptor}, {711, kDnnTypeDescriptor}}},
      {kDnnBackwardWeights, {{712, kDnnTypeFloat}, {713, kDnnTypeFloat}, {714, kDnnTypeDescriptor}, {715, kDnnTypeDescriptor}, {716, kDnnTypeDescriptor}, {717, kDnnTypeDescriptor}}},
      {kDnnPointwiseOperation, {{750, kDnnTypeDescriptor}, {751, kDnnTypeDescriptor}, {752, kDnnTypeDescriptor}, {753, kDnnTypeDescriptor}}},
      {kDnnGraph, {{800, kDnnTypeHandle}, {801, kDnnTypeDescriptor}}},
      {kDnnVariantPack, {{1000, kDnnTypeInt64}, {1001, kDnnTypePointer}, {1003, kDnnTypePointer}}},
      {kDnnTensor, {{900, kDnnTypeInt64}, {901, kDnnTypeDataType}, {902, kDnnTypeInt64}, {903, kDnnTypeInt64}, {906, kDnnTypeInt64}, {907, kDnnTypeBool}}},
  };
  return all;
}
size_t bytes_of(int type) {
  switch (type) {
    case kDnnTypeBool: return 1;
    case kDnnTypeHandle: case kDnnTypeInt64: case kDnnTypeDouble: case kDnnTypePointer: case kDnnTypeDescriptor: return 8;
    default: return 4;
  }
}

// What a plan runs, copied out of its descriptors, which may be gone when it does.
struct Tensor {
  int64_t id = 0, alignment = 1;
  int type = 0;
  bool is_virtual = false;
  std::vector<int64_t> dims, strides;
};
struct Work {
  int kind = 0;
  Tensor x, w, y, bias;
  bool has_bias = false;
  std::vector<int64_t> stride, padding, dilation;
};

std::atomic<size_t> executions{0};

}  // namespace

namespace lazyt::cuda {

struct DnnContext {
  CUmodule module = nullptr;
  std::map<int, CUfunction> functions;
  CUstream stream = nullptr;
};

struct DnnObject {
  DnnKind kind;
  bool is_final = false;
  std::map<int, std::vector<char>> set;
  Work work;       // of graphs and of what is made from them
  int engine = 0;  // of configurations, engines and plans
  int mode = 0;

  template <class T>
  std::vector<T> all(int which) const {
    const auto found = set.find(which);
    if (found == set.end()) return {};
    std::vector<T> out(found->second.size() / sizeof(T));
    std::memcpy(out.data(), found->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T one(int which) const {
    const auto values = all<T>(which);
    return values.size() == 1 ? values[0] : T{};
  }
  const DnnObject* refer(int which, DnnKind expected) const {
    const DnnObject* o = one<const DnnObject*>(which);
    return o && o->is_final && o->kind == expected ? o : nullptr;
  }
};

}  // namespace lazyt::cuda

namespace {

bool read(const DnnObject* o, Tensor& out) {
  if (!o) return false;
  out = {o->one<int64_t>(906), o->one<int64_t>(900), o->one<int>(901), o->one<uint8_t>(907) != 0, o->all<int64_t>(902), o->all<int64_t>(903)};
  return true;
}

bool is_like(const Tensor& a, const Tensor& b) { return a.dims == b.dims && a.strides == b.strides; }
bool is_last(const Tensor& t) { return t.dims[1] == 1 || t.strides[1] == 1; }
bool is_first(const Tensor& t) { return t.dims[1] == 1 || t.strides[1] != 1 || std::all_of(t.dims.begin() + 2, t.dims.end(), [](int64_t d) { return d == 1; }); }

// A convolution, whether it may be one.
DnnStatus read_operation(const DnnObject& o, Work& out) {
  const int first = o.kind == kDnnForward ? 700 : o.kind == kDnnBackwardData ? 706 : 712;
  const DnnObject* window = o.refer(first + 2, kDnnWindow);
  if (!window || !read(o.refer(first + 3, kDnnTensor), out.w) || !read(o.refer(first + 4, kDnnTensor), out.x) ||
      !read(o.refer(first + 5, kDnnTensor), out.y))
    return kNotFinal;
  out.kind = o.kind;
  out.stride = window->all<int64_t>(103), out.dilation = window->all<int64_t>(102), out.padding = window->all<int64_t>(105);
  const size_t axes = static_cast<size_t>(window->one<int64_t>(106));
  if (window->one<int>(101) != kDnnCrossCorrelation || out.padding != window->all<int64_t>(104)) return kBad;
  for (const auto* list : {&out.stride, &out.dilation, &out.padding})
    if (list->size() != axes) return kBad;
  for (const Tensor* t : {&out.x, &out.w, &out.y})
    if (t->dims.size() != axes + 2 || t->strides.size() != axes + 2) return kBad;
  const bool wide = out.x.type == kDnnF64;
  const bool scaled = wide ? o.one<double>(first) == 1 && o.one<double>(first + 1) == 0 : o.one<float>(first) == 1 && o.one<float>(first + 1) == 0;
  if (!scaled || window->one<int>(100) != (wide ? kDnnF64 : kDnnF32)) return kBad;
  if (axes < 2 || axes > 3) return kUnsupported;
  if (out.x.dims[0] != out.y.dims[0] || out.w.dims[0] != out.y.dims[1] || out.x.dims[1] % out.w.dims[1] != 0) return kBad;
  const int64_t groups = out.x.dims[1] / out.w.dims[1];
  if (out.y.dims[1] % groups) return kBad;
  for (size_t d = 0; d < axes; ++d) {
    const int64_t covered = out.dilation[d] * (out.w.dims[2 + d] - 1) + 1, room = out.x.dims[2 + d] + 2 * out.padding[d] - covered;
    // A gradient may belong to an x that no window reaches the end of.
    if (room < 0 || room / out.stride[d] + 1 != out.y.dims[2 + d]) return kBad;
  }
  const bool last = is_last(out.x) && is_last(out.w) && is_last(out.y), firsts = is_first(out.x) && is_first(out.w) && is_first(out.y);
  return last || firsts ? kDone : kUnsupported;
}

DnnStatus read_graph(const DnnObject& o, Work& out) {
  const auto operations = o.all<const DnnObject*>(801);
  if (!o.one<void*>(800) || operations.empty() || operations.size() > 2) return kBad;
  for (const DnnObject* operation : operations)
    if (!operation || !operation->is_final) return kNotFinal;
  out = operations[0]->work;
  Tensor& written = out.kind == kDnnForward ? out.y : out.kind == kDnnBackwardData ? out.x : out.w;
  if (operations.size() == 2) {
    const DnnObject& add = *operations[1];
    Tensor from, to;
    const DnnObject* mode = add.kind == kDnnPointwiseOperation ? add.refer(750, kDnnPointwise) : nullptr;
    if (!mode || mode->one<int>(0) != kDnnAdd) return kUnsupported;
    if (!read(add.refer(751, kDnnTensor), from) || !read(add.refer(752, kDnnTensor), out.bias) || !read(add.refer(753, kDnnTensor), to))
      return kNotFinal;
    if (!from.is_virtual || from.id != written.id || !is_like(from, to) || from.type != (to.type == kDnnF64 ? kDnnF64 : kDnnF32)) return kBad;
    for (size_t d = 0; d < out.bias.dims.size(); ++d)
      if (out.bias.dims[d] != (d == 1 ? to.dims[1] : 1)) return kBad;
    written = to;
    out.has_bias = true;
  }
  std::set<int64_t> ids;
  for (const Tensor* t : {&out.x, &out.w, &out.y, &out.bias}) {
    if (t == &out.bias && !out.has_bias) continue;
    if (t->is_virtual || t->type != out.x.type || !ids.insert(t->id).second) return kBad;
  }
  return kTypes.contains(out.x.type) ? kDone : kUnsupported;
}

// Engines of a graph, as the heuristic orders them.
std::vector<int> engines(const DnnObject& heuristic) {
  if (!option("none").empty()) return {};
  const bool is_wide = heuristic.work.x.type == kDnnF64;
  if (heuristic.work.has_bias) return is_wide ? std::vector<int>{} : std::vector<int>{0};
  if (is_wide) return {2};
  return heuristic.one<int>(200) == kDnnFallback ? std::vector<int>{2} : std::vector<int>{1, 0, 2};
}

DnnStatus finalize(DnnObject& o) {
  const auto& known = attributes().at(o.kind);
  for (const auto& [which, type] : known)
    if (!o.set.contains(which) && which != kDnnTensorIsVirtual) return kBad;
  switch (o.kind) {
    case kDnnTensor: {
      const auto dims = o.all<int64_t>(902), strides = o.all<int64_t>(903);
      const auto good = [](int64_t n) { return n > 0; };
      if (dims.size() < 4 || dims.size() > 5 || strides.size() != dims.size()) return kBad;
      if (!std::all_of(dims.begin(), dims.end(), good) || !std::all_of(strides.begin(), strides.end(), good)) return kBad;
      return o.one<int64_t>(900) > 0 && o.one<int64_t>(906) > 0 ? kDone : kBad;
    }
    case kDnnForward: case kDnnBackwardData: case kDnnBackwardWeights: return read_operation(o, o.work);
    case kDnnGraph: return read_graph(o, o.work);
    case kDnnHeuristic: {
      const DnnObject* graph = o.refer(201, kDnnGraph);
      if (!graph) return kNotFinal;
      o.work = graph->work;
      return engines(o).empty() ? kUnsupported : kDone;
    }
    case kDnnPlan: {
      const DnnObject* config = o.one<const DnnObject*>(401);
      if (!config || config->kind != kDnnEngineConfig || !config->is_final || !o.one<void*>(400)) return kNotFinal;
      o.work = config->work, o.engine = config->engine;
      return o.engine == 2 && !option("busy").empty() && config->mode != kDnnFallback ? kUnsupported : kDone;
    }
    case kDnnVariantPack: return o.all<int64_t>(1000).size() == o.all<void*>(1001).size() ? kDone : kBad;
    default: return kDone;
  }
}

bool load(DnnContext& out) {
  std::ifstream file(LAZYT_PRELUDE);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  for (const auto& [type, names] : kTypes)
    text += std::string("#define T ") + names.first + "\n#define R " + names.second + "\n#define NAME fake_window_" + std::to_string(type) +
            kKernel + "#undef T\n#undef R\n#undef NAME\n";
  static const auto create = function_of<int(void**, const char*, const char*, int, const char* const*, const char* const*)>("LAZYT_CUDA_NVRTC", "nvrtcCreateProgram");
  static const auto compile = function_of<int(void*, int, const char* const*)>("LAZYT_CUDA_NVRTC", "nvrtcCompileProgram");
  static const auto size_of = function_of<int(void*, size_t*)>("LAZYT_CUDA_NVRTC", "nvrtcGetCUBINSize");
  static const auto get = function_of<int(void*, char*)>("LAZYT_CUDA_NVRTC", "nvrtcGetCUBIN");
  static const auto destroy = function_of<int(void**)>("LAZYT_CUDA_NVRTC", "nvrtcDestroyProgram");
  static const auto load_module = function_of<CUresult(CUmodule*, const void*)>("LAZYT_CUDA_DRIVER", "cuModuleLoadData");
  static const auto find = function_of<CUresult(CUfunction*, CUmodule, const char*)>("LAZYT_CUDA_DRIVER", "cuModuleGetFunction");
  void* program = nullptr;
  if (!create || !load_module || create(&program, text.c_str(), "cudnn.cu", 0, nullptr, nullptr)) return false;
  const char* target = "--gpu-architecture=sm_90";
  size_t bytes = 0;
  bool good = compile(program, 1, &target) == 0 && size_of(program, &bytes) == 0;
  std::vector<char> image(bytes);
  good = good && get(program, image.data()) == 0 && load_module(&out.module, image.data()) == CUDA_SUCCESS;
  for (const auto& [type, names] : kTypes)
    good = good && find(&out.functions[type], out.module, ("fake_window_" + std::to_string(type)).c_str()) == CUDA_SUCCESS;
  destroy(&program);
  return good;
}

DnnStatus execute(const DnnContext& handle, const DnnObject& plan, const DnnObject& pack) {
  if (++executions == number("fail", 0)) return kFailed;
  const auto ids = pack.all<int64_t>(1000);
  const auto pointers = pack.all<void*>(1001);
  const Work& work = plan.work;
  std::vector<const Tensor*> wanted = {&work.x, &work.w, &work.y};
  if (work.has_bias) wanted.push_back(&work.bias);
  if (ids.size() != wanted.size()) return kBad;
  uint64_t words[45] = {};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = std::find(ids.begin(), ids.end(), wanted[i]->id);
    if (found == ids.end()) return kBad;
    words[i] = reinterpret_cast<uint64_t>(pointers[static_cast<size_t>(found - ids.begin())]);
    if (!words[i]) return kNull;
    if (words[i] % static_cast<uint64_t>(wanted[i]->alignment)) return kMisaligned;
  }
  words[4] = reinterpret_cast<uint64_t>(pack.one<void*>(1003));
  if (!words[4] || words[4] % 16) return kMisaligned;
  auto put = [&](size_t at, int64_t value) { words[at] = static_cast<uint64_t>(value); };
  put(5, work.kind), put(6, work.x.dims[0]), put(7, work.x.dims[1]), put(8, work.y.dims[1]), put(9, work.w.dims[1]);
  const size_t axes = work.stride.size(), skipped = 3 - axes;
  const Tensor* tensors[] = {&work.x, &work.w, &work.y};
  const std::vector<int64_t>* said[] = {&work.stride, &work.padding, &work.dilation};
  for (size_t which = 0; which < 3; ++which) {
    for (size_t d = 0; d < 3; ++d) {
      const bool is_there = d >= skipped;
      put(10 + 3 * which + d, is_there ? tensors[which]->dims[2 + d - skipped] : 1);
      put(19 + 3 * which + d, is_there ? (*said[which])[d - skipped] : which != 1);
      put(28 + 5 * which + 2 + d, is_there ? tensors[which]->strides[2 + d - skipped] : 0);
    }
    put(28 + 5 * which, tensors[which]->strides[0]), put(28 + 5 * which + 1, tensors[which]->strides[1]);
  }
  put(43, work.has_bias ? work.bias.strides[1] : 0);
  put(44, plan.engine == 0 && work.x.type == kDnnF32);
  if (plan.engine == 1) words[44] = 1;
  static const auto launch =
      function_of<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**)>("LAZYT_CUDA_DRIVER", "cuLaunchKernel");
  void* parameters[] = {words};
  return launch(handle.functions.at(work.x.type), 4, 1, 1, 64, 1, 1, 0, handle.stream, parameters, nullptr) == CUDA_SUCCESS ? kDone : kInternal;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

size_t cudnnGetVersion() { return number("version", 91002); }
size_t cudnnGetCudartVersion() { return number("cudart", 13000); }
const char* cudnnGetErrorString(DnnStatus status) {
  return status == kFailed ? "CUDNN_STATUS_EXECUTION_FAILED" : status == kUnsupported ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM";
}

DnnStatus cudnnCreate(DnnHandle* out) {
  auto* made = new DnnContext;
  if (!load(*made)) {
    delete made;
    return kInternal;
  }
  *out = made;
  return kDone;
}
DnnStatus cudnnDestroy(DnnHandle handle) {
  static const auto unload = function_of<CUresult(CUmodule)>("LAZYT_CUDA_DRIVER", "cuModuleUnload");
  unload(handle->module);
  delete handle;
  return kDone;
}
DnnStatus cudnnSetStream(DnnHandle handle, CUstream stream) {
  handle->stream = stream;
  return kDone;
}

DnnStatus cudnnBackendCreateDescriptor(DnnKind kind, DnnDescriptor* out) {
  if (!attributes().contains(kind)) return kBad;
  *out = new DnnObject{.kind = kind};
  return kDone;
}
DnnStatus cudnnBackendDestroyDescriptor(DnnDescriptor o) {
  delete o;
  return kDone;
}

DnnStatus cudnnBackendSetAttribute(DnnDescriptor o, DnnAttribute which, DnnType type, int64_t count, const void* data) {
  if (o->is_final || count < 1 || !data) return kBad;
  const auto& known = attributes().at(o->kind);
  const auto found = known.find(which);
  if (found == known.end()) return kBad;
  // Alpha and beta are of the computing type, which is told elsewhere.
  if (found->second != type && !(found->second == kDnnTypeFloat && type == kDnnTypeDouble)) return kWrongType;
  const auto* bytes = static_cast<const char*>(data);
  o->set[which].assign(bytes, bytes + static_cast<size_t>(count) * bytes_of(type));
  return kDone;
}

DnnStatus cudnnBackendFinalize(DnnDescriptor o) {
  if (o->is_final) return kBad;
  const DnnStatus status = finalize(*o);
  o->is_final = status == kDone;
  return status;
}

DnnStatus cudnnBackendGetAttribute(DnnDescriptor o, DnnAttribute which, DnnType type, int64_t wanted, int64_t* count, void* out) {
  if (!o->is_final) return kNotFinal;
  if (o->kind == kDnnHeuristic && which == kDnnHeuristicResults && type == kDnnTypeDescriptor) {
    const std::vector<int> all = engines(*o);
    *count = static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < std::min(wanted, *count); ++i) {
      DnnObject* config = static_cast<DnnObject**>(out)[i];
      if (config->kind != kDnnEngineConfig || config->is_final) return kBad;
      config->engine = all[static_cast<size_t>(i)], config->work = o->work, config->mode = o->one<int>(200), config->is_final = true;
    }
    return kDone;
  }
  if (o->kind == kDnnEngineConfig && which == kDnnConfigEngine && type == kDnnTypeDescriptor && wanted == 1) {
    DnnObject* engine = *static_cast<DnnObject**>(out);
    if (engine->kind != kDnnEngine || engine->is_final) return kBad;
    engine->engine = o->engine, engine->work = o->work, engine->is_final = true;
    *count = 1;
    return kDone;
  }
  if (o->kind == kDnnEngine && which == kDnnEngineNotes && type == kDnnTypeNote) {
    *count = o->engine < 2;
    if (*count > wanted) return kBad;
    if (*count) *static_cast<int*>(out) = o->engine == 0 ? kDnnTensorCores : kDnnNotDeterministic;
    return kDone;
  }
  if (o->kind == kDnnPlan && which == kDnnPlanWorkspaceBytes && type == kDnnTypeInt64 && wanted == 1) {
    *static_cast<int64_t*>(out) = kWorkspace;
    *count = 1;
    return kDone;
  }
  return kBad;
}

DnnStatus cudnnBackendExecute(DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack) {
  if (plan->kind != kDnnPlan || pack->kind != kDnnVariantPack || !plan->is_final || !pack->is_final) return kNotFinal;
  return execute(*handle, *plan, *pack);
}

}  // extern "C"
#pragma GCC visibility pop
