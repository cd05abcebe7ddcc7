// A stand-in for cuDNN 9: the functions that the plugin calls (plugins/cuda/cudnn.h), over the stand-ins for the driver and for
// NVRTC. It computes a graph operation by operation, by a plain kernel of its own, by the rules of NVIDIA's documentation as they
// are read here: what it shows is that graphs, layouts and variant packs are described consistently, not that the library
// takes them: that, check_cudnn.py asks the library itself.
//
// Descriptors are checked strictly: an attribute of another kind of descriptor, of another type, set after it was finalized, or
// missing, is an error; so is a tensor that is read before it is written, and an address that is not aligned as was said.
// Engines: 0 computes f32 in TF32; 1 does not give the same bits twice, and would be wrong here; 2 uses no tensor cores. 0 and 2
// take a convolution and what cuDNN takes behind one; 0 takes attention forward and backward, in exactly the library's graphs.
//
// LAZYT_FAKE_CUDNN, by commas: version=N; cudart=N; none (no engine); alone (none for more than a convolution); busy (plans of
// engine 2 are refused in the first mode); fail=N (the N-th execution fails).
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <map>
#include <set>
#include <string>
#include <utility>
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

// What host and kernel both see.
#define SHARED(...)                            \
  __VA_ARGS__                                  \
  constexpr const char* kShared = #__VA_ARGS__;
SHARED(
struct FakeNode { int type; int kind; int is_written; int rank; long long dims[5]; long long strides[5]; long long count; double* values; };
struct FakeOperation { int kind; int mode; int axis; int x; int b; int t; int y; long long stride[3]; long long padding[3]; long long dilation[3]; };
struct FakePlan { int truncates; int node_count; int operation_count; FakeNode nodes[48]; FakeOperation operations[40]; };
)

// Words: the plan, the workspace, then of each node its address or its number (as f64).
constexpr const char* kKernel = R"(
#define EACH(value, p, i, ...) \
  switch (value.type) { \
    case 0: { typedef float R; float* q = (float*)p + i; __VA_ARGS__; break; } \
    case 1: { typedef double R; double* q = (double*)p + i; __VA_ARGS__; break; } \
    case 2: { typedef float R; lazyt_f16* q = (lazyt_f16*)p + i; __VA_ARGS__; break; } \
    case 9: { typedef float R; lazyt_bf16* q = (lazyt_bf16*)p + i; __VA_ARGS__; break; } \
    default: { typedef double R; double* q = (double*)p + i; __VA_ARGS__; } \
  }
static void fake_round(const FakeNode& n, double& v) {
  double room;
  EACH(n, &room, 0, { lazyt_store(q, 0, (R)v); v = (double)lazyt_load(q, 0); })
}
// The place of an element of `in` that stands where element i of `of` does: dims of fewer elements are spread out evenly.
static long long fake_place(const FakeNode& of, const FakeNode& in, long long i) {
  long long place = 0, step = 1;
  for (int d = of.rank - 1; d >= 0; --d) {
    place += i % of.dims[d] * in.dims[d] / of.dims[d] * step;
    step *= in.dims[d], i /= of.dims[d];
  }
  return place;
}
static void fake_window(FakePlan& plan, const FakeOperation& o) {
  FakeNode &x = plan.nodes[o.x], &w = plan.nodes[o.b], &y = plan.nodes[o.y];
  FakeNode& to = o.kind == 10 ? y : o.kind == 12 ? x : w;
  for (long long i = 0; i < to.count; ++i) to.values[i] = 0;
  const int axes = x.rank - 2;
  auto size = [&](const FakeNode& n, int d) { return d < axes ? n.dims[2 + d] : 1LL; };
  auto pixels = [&](const FakeNode& n) { return size(n, 0) * size(n, 1) * size(n, 2); };
  auto narrow = [&](const FakeNode& n, double v) {
    if (!plan.truncates || n.type != 0) return v;
    float f = (float)v; unsigned bits; memcpy(&bits, &f, 4); bits &= 0xffffe000u; memcpy(&f, &bits, 4);
    return (double)f;
  };
  const long long xg = w.dims[1], yg = w.dims[0] / (x.dims[1] / xg);
  for (long long n = 0; n < x.dims[0]; ++n)
    for (long long c = 0; c < y.dims[1]; ++c)
      for (long long k = 0; k < xg; ++k)
        for (long long p = 0; p < pixels(y); ++p)
          for (long long t = 0; t < pixels(w); ++t) {
            long long at = 0, q = p, tap = t, step = 1;
            bool inside = true;
            for (int d = axes - 1; d >= 0; --d) {
              const long long i = q % size(y, d) * o.stride[d] - o.padding[d] + tap % size(w, d) * o.dilation[d];
              inside = inside && i >= 0 && i < size(x, d);
              at += i * step, step *= size(x, d), q /= size(y, d), tap /= size(w, d);
            }
            if (!inside) continue;
            const long long ix = (n * x.dims[1] + c / yg * xg + k) * pixels(x) + at, iy = (n * y.dims[1] + c) * pixels(y) + p, iw = (c * xg + k) * pixels(w) + t;
            if (o.kind == 10) y.values[iy] += narrow(x, x.values[ix]) * narrow(w, w.values[iw]);
            else if (o.kind == 12) x.values[ix] += narrow(y, y.values[iy]) * narrow(w, w.values[iw]);
            else w.values[iw] += narrow(x, x.values[ix]) * narrow(y, y.values[iy]);
          }
}
static void fake_operation(FakePlan& plan, const FakeOperation& o) {
  FakeNode &x = plan.nodes[o.x], &b = plan.nodes[o.b], &y = plan.nodes[o.y];
  if (o.kind == 10 || o.kind == 11 || o.kind == 12) return fake_window(plan, o);
  if (o.kind == 13) {
    for (long long i = 0; i < y.count; ++i) {
      const double v = o.mode == 501 ? 0 : x.values[fake_place(y, x, i)], u = o.b >= 0 ? b.values[fake_place(y, b, i)] : 0;
      double r = v;
      if (o.mode == 0) r = v + u;
      if (o.mode == 1) r = v * u;
      if (o.mode == 6) r = v / u;
      if (o.mode == 9) r = v - u;
      if (o.mode == 13) r = exp(v);
      if (o.mode == 15) r = log(v);
      if (o.mode == 100) r = v < 0 ? 0 : v;
      if (o.mode == 303) r = v >= u;
      if (o.mode == 601) r = plan.nodes[o.t].values[fake_place(y, plan.nodes[o.t], i)] ? v : u;
      if (o.mode == 501) {
        long long rest = i;
        for (int d = y.rank - 1; d > o.axis; --d) rest /= y.dims[d];
        r = rest % y.dims[o.axis];
      }
      y.values[i] = r;
    }
  } else if (o.kind == 19) {
    const long long m = y.dims[2], n = y.dims[3], k = x.dims[3];
    for (long long i = 0; i < y.count; ++i) {
      const long long head = i / (m * n), batch = head / y.dims[1], h = head % y.dims[1];
      const double* l = x.values + (batch * x.dims[1] + h * x.dims[1] / y.dims[1]) * m * k + i / n % m * k;
      const double* r = b.values + (batch * b.dims[1] + h * b.dims[1] / y.dims[1]) * k * n + i % n;
      double sum = 0;
      for (long long j = 0; j < k; ++j) sum += l[j] * r[j * n];
      y.values[i] = sum;
    }
  } else if (o.kind == 22) {
    for (long long i = 0; i < y.count; ++i) y.values[i] = o.mode == 3 ? -1e308 : 0;
    for (long long i = 0; i < x.count; ++i) {
      double& into = y.values[fake_place(x, y, i)];
      into = o.mode == 3 ? (x.values[i] > into ? x.values[i] : into) : into + x.values[i];
    }
  } else {  // the last two dims in turn
    const long long rows = y.dims[2], columns = y.dims[3];
    for (long long i = 0; i < y.count; ++i) y.values[i] = x.values[i / (rows * columns) * rows * columns + i % columns * rows + i / columns % rows];
  }
}
LAZYT_KERNEL(fake_dnn, 50, 1) {
  FakePlan& plan = *(FakePlan*)a.w[0];
  for (int i = 0; i < 512; ++i) ((unsigned char*)a.w[1])[i] = 0x5a;
  auto walk = [&](int at, bool stores) {
    FakeNode& n = plan.nodes[at];
    void* const p = (void*)a.w[2 + at];
    for (long long i = 0; i < n.count; ++i) {
      long long offset = 0, rest = i;
      for (int d = n.rank - 1; d >= 0; --d) offset += rest % n.dims[d] * n.strides[d], rest /= n.dims[d];
      if (stores) EACH(n, p, offset, lazyt_store(q, 0, (R)n.values[i]))
      else EACH(n, p, offset, n.values[i] = (double)lazyt_load(q, 0))
    }
  };
  for (int i = 0; i < plan.node_count; ++i) {
    if (plan.nodes[i].kind == 2) plan.nodes[i].values[0] = lazyt_f64(a.w[2 + i]);
    else if (plan.nodes[i].kind == 0 && !plan.nodes[i].is_written) walk(i, false);
  }
  for (int i = 0; i < plan.operation_count; ++i) {
    const FakeOperation& o = plan.operations[i];
    fake_operation(plan, o);
    const int to = o.kind == 12 ? o.x : o.kind == 11 ? o.b : o.y;
    for (long long j = 0; j < plan.nodes[to].count; ++j) fake_round(plan.nodes[to], plan.nodes[to].values[j]);
    if (plan.nodes[to].kind == 0) walk(to, true);
  }
}
)";

// The attributes of each kind of descriptor that may be set, with their types; the optional ones are negative.
const std::map<int, std::map<int, int>>& attributes() {
  constexpr int i64 = kDnnTypeInt64, f32 = kDnnTypeFloat, to = kDnnTypeDescriptor, type = kDnnTypeDataType;
  auto window = [=](int first) {
    return std::map<int, int>{{first, f32}, {first + 1, f32}, {first + 2, to}, {first + 3, to}, {first + 4, to}, {first + 5, to}};
  };
  static const auto& all = *new std::map<int, std::map<int, int>>{
      {kDnnPointwiseKind, {{0, kDnnTypePointwiseMode}, {1, type}, {2, -kDnnTypeNan}, {9, -i64}}},
      {kDnnWindow, {{100, type}, {101, kDnnTypeWindowMode}, {102, i64}, {103, i64}, {104, i64}, {105, i64}, {106, i64}}},
      {kDnnEngine, {}},
      {kDnnEngineConfig, {}},
      {kDnnHeuristic, {{200, kDnnTypeHeuristicMode}, {201, to}}},
      {kDnnPlan, {{400, kDnnTypeHandle}, {401, to}}},
      {kDnnForward, window(700)},
      {kDnnBackwardData, window(706)},
      {kDnnBackwardWeights, window(712)},
      {kDnnPointwiseOperation, {{750, to}, {751, to}, {752, -to}, {753, to}, {758, -to}}},
      {kDnnGraph, {{800, kDnnTypeHandle}, {801, to}}},
      {kDnnVariantPack, {{1000, i64}, {1001, kDnnTypePointer}, {1003, kDnnTypePointer}}},
      {kDnnTensor, {{900, i64}, {901, type}, {902, i64}, {903, i64}, {906, i64}, {907, -kDnnTypeBool}, {908, -kDnnTypeBool}}},
      {kDnnMatmulKind, {{1500, type}}},
      {kDnnMatmul, {{1520, to}, {1521, to}, {1522, to}, {1523, to}}},
      {kDnnReduceKind, {{1600, kDnnTypeReduceMode}, {1601, type}}},
      {kDnnReduction, {{1610, to}, {1611, to}, {1612, to}}},
      {kDnnReshape, {{2200, to}, {2201, to}}},
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
struct Work {
  FakePlan plan{};
  std::vector<int64_t> ids, alignments;
  std::vector<double> values;  // of all nodes
  std::string pattern;         // the operations, in words
  bool has_last = true;        // all of more than one channel are channels-last

  int find(int64_t id) const {
    const auto at = std::find(ids.begin(), ids.end(), id);
    return at == ids.end() ? -1 : static_cast<int>(at - ids.begin());
  }
};

std::atomic<size_t> executions{0};

}  // namespace

namespace lazyt::cuda {

struct DnnContext {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
};

struct DnnObject {
  DnnKind kind;
  bool is_final = false;
  std::map<int, std::vector<char>> set;
  std::shared_ptr<Work> work = {};  // of graphs and of what is made from them
  int engine = 0;                   // of configurations, engines and plans
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

bool is_last(const FakeNode& t) { return t.dims[1] == 1 || t.strides[1] == 1; }
bool is_first(const FakeNode& t) { return t.dims[1] == 1 || t.strides[1] != 1 || std::all_of(t.dims + 2, t.dims + t.rank, [](long long d) { return d == 1; }); }

// Reads a graph's operations into what computes them; what is not described consistently is an error.
class Reader {
 public:
  explicit Reader(Work& out) : out_(out) {}

  DnnStatus read(const DnnObject& o) {
    const auto all = o.all<const DnnObject*>(801);
    if (!o.one<void*>(800) || all.empty() || all.size() > std::size(out_.plan.operations)) return kBad;
    for (const DnnObject* operation : all) {
      if (!operation || !operation->is_final) return kNotFinal;
      if (const DnnStatus status = read_operation(*operation)) return status;
    }
    size_t count = 0;
    for (int i = 0; i < out_.plan.node_count; ++i) {
      FakeNode& n = out_.plan.nodes[i];
      if (n.kind == 1 && (!n.is_written || !is_read_[i])) return kBad;
      count += static_cast<size_t>(n.count);
    }
    out_.values.resize(count);
    double* at = out_.values.data();
    for (int i = 0; i < out_.plan.node_count; ++i) out_.plan.nodes[i].values = at, at += out_.plan.nodes[i].count;
    return kDone;
  }

 private:
  FakeNode& node(int i) { return out_.plan.nodes[i]; }

  // -2: not a tensor that is described as before
  int tensor(const DnnObject* t) {
    if (!t) return -2;
    FakeNode n{};
    const auto dims = t->all<int64_t>(902), strides = t->all<int64_t>(903);
    n.type = t->one<int>(901), n.kind = t->one<uint8_t>(907) ? 1 : t->one<uint8_t>(908) ? 2 : 0, n.rank = static_cast<int>(dims.size()), n.count = 1;
    for (size_t d = 0; d < dims.size(); ++d) n.dims[d] = dims[d], n.strides[d] = strides[d], n.count *= dims[d];
    const int64_t id = t->one<int64_t>(906), alignment = t->one<int64_t>(900);
    if (const int known = out_.find(id); known >= 0) {
      n.is_written = node(known).is_written;
      return std::memcmp(&n, &node(known), sizeof n) == 0 && out_.alignments[static_cast<size_t>(known)] == alignment ? known : -2;
    }
    if (n.kind == 2 && n.count != 1) return -2;
    out_.ids.push_back(id), out_.alignments.push_back(alignment), is_read_.push_back(false);
    node(out_.plan.node_count) = n;
    return out_.plan.node_count++;
  }
  bool read_from(int i) {
    if (i < 0 || (node(i).kind == 1 && !node(i).is_written)) return false;
    return is_read_[static_cast<size_t>(i)] = true;
  }
  bool write_to(int i) { return i >= 0 && node(i).kind != 2 && !is_read_[static_cast<size_t>(i)] && !std::exchange(node(i).is_written, 1); }
  // Each dim is the other's, or divides it.
  bool spreads(int from, int over) {
    if (node(from).rank != node(over).rank) return false;
    for (int d = 0; d < node(over).rank; ++d)
      if (node(over).dims[d] % node(from).dims[d]) return false;
    return true;
  }
  bool broadcasts(int from, int over) {
    for (int d = 0; d < node(over).rank; ++d)
      if (node(from).dims[d] != node(over).dims[d] && node(from).dims[d] != 1) return false;
    return spreads(from, over);
  }

  DnnStatus read_operation(const DnnObject& o) {
    FakeOperation f{};
    f.kind = o.kind, f.x = f.b = f.t = f.y = -1;
    DnnStatus status = kBad;
    switch (o.kind) {
      case kDnnForward: case kDnnBackwardData: case kDnnBackwardWeights: status = read_window(o, f); break;
      case kDnnPointwiseOperation: status = read_pointwise(o, f); break;
      case kDnnMatmul: status = read_matmul(o, f); break;
      case kDnnReduction: status = read_reduction(o, f); break;
      case kDnnReshape: status = read_reshape(o, f); break;
      default: break;
    }
    out_.plan.operations[out_.plan.operation_count++] = f;
    return status;
  }

  DnnStatus read_window(const DnnObject& o, FakeOperation& f) {
    const int first = o.kind == kDnnForward ? 700 : o.kind == kDnnBackwardData ? 706 : 712;
    const DnnObject* window = o.refer(first + 2, kDnnWindow);
    if (!window) return kNotFinal;
    f.b = tensor(o.refer(first + 3, kDnnTensor)), f.x = tensor(o.refer(first + 4, kDnnTensor)), f.y = tensor(o.refer(first + 5, kDnnTensor));
    const int to = o.kind == kDnnForward ? f.y : o.kind == kDnnBackwardData ? f.x : f.b;
    for (int i : {f.b, f.x, f.y})
      if (!(i == to ? write_to(i) : read_from(i))) return kBad;
    const FakeNode &x = node(f.x), &w = node(f.b), &y = node(f.y);
    const auto stride = window->all<int64_t>(103), padding = window->all<int64_t>(105), dilation = window->all<int64_t>(102);
    const size_t axes = static_cast<size_t>(window->one<int64_t>(106));
    if (window->one<int>(101) != kDnnCrossCorrelation || padding != window->all<int64_t>(104)) return kBad;
    for (const auto* list : {&stride, &dilation, &padding})
      if (list->size() != axes) return kBad;
    for (const FakeNode* t : {&x, &w, &y})
      if (static_cast<size_t>(t->rank) != axes + 2) return kBad;
    const bool wide = node(to == f.b ? f.x : f.b).type == kDnnF64;
    const bool scaled = wide ? o.one<double>(first) == 1 && o.one<double>(first + 1) == 0 : o.one<float>(first) == 1 && o.one<float>(first + 1) == 0;
    if (!scaled || window->one<int>(100) != (wide ? kDnnF64 : kDnnF32)) return kBad;
    if (axes < 2 || axes > 3) return kUnsupported;
    if (x.dims[0] != y.dims[0] || w.dims[0] != y.dims[1] || x.dims[1] % w.dims[1] != 0 || y.dims[1] % (x.dims[1] / w.dims[1])) return kBad;
    for (size_t d = 0; d < axes; ++d) {
      f.stride[d] = stride[d], f.padding[d] = padding[d], f.dilation[d] = dilation[d];
      const int64_t covered = dilation[d] * (w.dims[2 + d] - 1) + 1, room = x.dims[2 + d] + 2 * padding[d] - covered;
      // A gradient may belong to an x that no window reaches the end of.
      if (room < 0 || room / stride[d] + 1 != y.dims[2 + d]) return kBad;
    }
    out_.pattern += o.kind == kDnnForward ? "forward" : o.kind == kDnnBackwardData ? "data" : "weights";
    out_.has_last = is_last(x) && is_last(w) && is_last(y);
    return out_.has_last || (is_first(x) && is_first(w) && is_first(y)) ? kDone : kUnsupported;
  }

  DnnStatus read_pointwise(const DnnObject& o, FakeOperation& f) {
    const DnnObject* mode = o.refer(750, kDnnPointwiseKind);
    if (!mode) return kNotFinal;
    static const std::map<int, const char*> kNames = {{0, "add"}, {1, "mul"}, {6, "div"}, {9, "sub"}, {13, "exp"}, {15, "log"}, {21, "identity"}, {100, "relu"}, {303, "ge"}, {501, "index"}, {601, "select"}};
    f.mode = mode->one<int>(0), f.axis = static_cast<int>(mode->one<int64_t>(9));
    const bool is_binary = f.mode < 10 || f.mode == 303 || f.mode == 601, is_wide = mode->one<int>(1) == kDnnF64;
    if (!kNames.contains(f.mode) || o.set.contains(752) != is_binary || o.set.contains(758) != (f.mode == 601) || mode->set.contains(9) != (f.mode == 501) ||
        mode->set.contains(2) != (f.mode == 100))
      return kBad;
    f.x = tensor(o.refer(751, kDnnTensor)), f.y = tensor(o.refer(753, kDnnTensor));
    if (is_binary) f.b = tensor(o.refer(752, kDnnTensor));
    if (f.mode == 601) f.t = tensor(o.refer(758, kDnnTensor));
    for (int i : {f.x, f.b, f.t})
      if (i != -1 && !read_from(i)) return kBad;
    if (!write_to(f.y)) return kBad;
    for (int i : {f.x, f.b, f.t})
      if (i != -1 && !broadcasts(i, f.y)) return kBad;
    if ((f.mode == 303) != (mode->one<int>(1) == kDnnBool) || (f.mode == 303) != (node(f.y).type == kDnnBool) || (f.mode == 501) != (node(f.y).type == kDnnI32)) return kBad;
    if (is_wide != (node(f.x).type == kDnnF64) || (f.t >= 0 && node(f.t).type != kDnnBool)) return kBad;
    out_.pattern += std::string(" ") + kNames.at(f.mode);
    return kDone;
  }

  DnnStatus read_matmul(const DnnObject& o, FakeOperation& f) {
    const DnnObject* how = o.refer(1523, kDnnMatmulKind);
    if (!how) return kNotFinal;
    f.x = tensor(o.refer(1520, kDnnTensor)), f.b = tensor(o.refer(1521, kDnnTensor)), f.y = tensor(o.refer(1522, kDnnTensor));
    if (!read_from(f.x) || !read_from(f.b) || !write_to(f.y) || how->one<int>(1500) != kDnnF32) return kBad;
    const FakeNode &a = node(f.x), &b = node(f.b), &c = node(f.y);
    if (a.rank != 4 || b.rank != 4 || c.rank != 4 || a.dims[2] != c.dims[2] || b.dims[3] != c.dims[3] || a.dims[3] != b.dims[2]) return kBad;
    if (a.dims[0] != c.dims[0] || b.dims[0] != c.dims[0] || c.dims[1] % a.dims[1] || c.dims[1] % b.dims[1]) return kBad;
    out_.pattern += " matmul";
    return kDone;
  }

  DnnStatus read_reduction(const DnnObject& o, FakeOperation& f) {
    const DnnObject* how = o.refer(1612, kDnnReduceKind);
    if (!how) return kNotFinal;
    f.mode = how->one<int>(1600), f.x = tensor(o.refer(1610, kDnnTensor)), f.y = tensor(o.refer(1611, kDnnTensor));
    if (!read_from(f.x) || !write_to(f.y) || !spreads(f.y, f.x) || (f.mode != kDnnSum && f.mode != kDnnMax) || how->one<int>(1601) != kDnnF32) return kBad;
    out_.pattern += f.mode == kDnnMax ? " max" : " sum";
    return kDone;
  }

  DnnStatus read_reshape(const DnnObject& o, FakeOperation& f) {
    f.x = tensor(o.refer(2200, kDnnTensor)), f.y = tensor(o.refer(2201, kDnnTensor));
    if (!read_from(f.x) || !write_to(f.y)) return kBad;
    const FakeNode &x = node(f.x), &y = node(f.y);
    if (x.rank != 4 || y.rank != 4) return kBad;
    for (int d = 0; d < 4; ++d) {
      const int from = d < 2 ? d : 5 - d;  // the same memory, the last two dims in turn
      if (y.dims[d] != x.dims[from] || y.strides[d] != x.strides[from]) return kBad;
    }
    out_.pattern += " turn";
    return kDone;
  }

  Work& out_;
  std::vector<bool> is_read_;
};

std::string without(std::string text, const std::string& part) {
  if (const size_t at = text.find(part); at != std::string::npos) text.erase(at, part.size());
  return text;
}

// Engines of a graph, as the heuristic orders them.
std::vector<int> engines(const DnnObject& heuristic) {
  if (!option("none").empty()) return {};
  const Work& work = *heuristic.work;
  const FakeNode& first = work.plan.nodes[0];  // any of the operands
  const bool is_fallback = heuristic.one<int>(200) == kDnnFallback, is_wide = first.type == kDnnF64;
  const std::string& p = work.pattern;
  if (p == "forward" || p == "data" || p == "weights") {
    if (is_wide) return {2};
    return is_fallback ? std::vector<int>{2} : std::vector<int>{1, 0, 2};
  }
  const std::set<std::string> any = {"forward add", "forward relu", "forward add relu", "data add"},
                              last = {"forward mul add", "forward mul add relu", "forward mul add add", "forward mul add add relu", "forward add add", "forward add add relu"};
  if (any.contains(p) || last.contains(p)) {
    if (is_wide || !option("alone").empty() || (last.contains(p) && !work.has_last)) return {};
    return is_fallback && p != "data add" ? std::vector<int>{2} : std::vector<int>{0};
  }
  // With or without the causal mask; heads that share keys' are summed.
  const std::string mask = " index index ge select", bare = without(p, mask);
  const std::string forward = " matmul mul max sub exp sum log add div matmul",
                    backward = " mul sum mul matmul mul sub exp turn matmul matmul sub mul mul turn matmul turn matmul identity",
                    shared = " mul sum mul matmul mul sub exp turn matmul sum matmul sub mul mul turn matmul sum turn matmul identity";
  if (bare != forward && bare != backward && bare != shared) return {};
  for (int i = 0; i < work.plan.node_count; ++i) {
    const FakeNode& n = work.plan.nodes[i];
    if (n.kind == 0 && n.type != kDnnF32 && ((n.type != kDnnF16 && n.type != kDnnBf16) || (n.strides[2] != 1 && n.strides[3] != 1))) return {};
    if (n.kind == 0 && n.type != kDnnF32 && (n.strides[3] == 1 ? n.dims[3] : n.dims[2]) % 8) return {};
  }
  return is_fallback ? std::vector<int>{} : std::vector<int>{0};
}

DnnStatus finalize(DnnObject& o) {
  const auto& known = attributes().at(o.kind);
  for (const auto& [which, type] : known)
    if (!o.set.contains(which) && type > 0) return kBad;
  switch (o.kind) {
    case kDnnTensor: {
      const auto dims = o.all<int64_t>(902), strides = o.all<int64_t>(903);
      const auto good = [](int64_t n) { return n > 0; };
      if (dims.size() < 4 || dims.size() > 5 || strides.size() != dims.size()) return kBad;
      if (!std::all_of(dims.begin(), dims.end(), good) || !std::all_of(strides.begin(), strides.end(), good)) return kBad;
      return o.one<int64_t>(900) > 0 && o.one<int64_t>(906) > 0 ? kDone : kBad;
    }
    case kDnnGraph: o.work = std::make_shared<Work>(); return Reader(*o.work).read(o);
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
  text += std::string(kShared) + kKernel;
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
  good = good && find(&out.function, out.module, "fake_dnn") == CUDA_SUCCESS;
  destroy(&program);
  return good;
}

DnnStatus execute(const DnnContext& handle, const DnnObject& plan, const DnnObject& pack) {
  if (++executions == number("fail", 0)) return kFailed;
  const auto ids = pack.all<int64_t>(1000);
  const auto pointers = pack.all<const void*>(1001);
  auto work = std::make_shared<Work>(*plan.work);
  work->plan.truncates = plan.engine < 2;
  for (int i = 0; i < work->plan.node_count; ++i) work->plan.nodes[i].values += work->values.data() - plan.work->values.data();
  uint64_t words[50] = {reinterpret_cast<uint64_t>(&work->plan), reinterpret_cast<uint64_t>(pack.one<void*>(1003))};
  if (!words[1] || words[1] % 16) return kMisaligned;
  size_t wanted = 0;
  for (size_t i = 0; i < work->ids.size(); ++i) {
    const FakeNode& n = work->plan.nodes[i];
    if (n.kind == 1) continue;
    ++wanted;
    const auto found = std::find(ids.begin(), ids.end(), work->ids[i]);
    if (found == ids.end()) return kBad;
    const void* const p = pointers[static_cast<size_t>(found - ids.begin())];
    if (!p) return kNull;
    const double value = n.kind == 2 ? *static_cast<const float*>(p) : 0;
    if (n.kind == 2) std::memcpy(words + 2 + i, &value, sizeof value);
    else words[2 + i] = reinterpret_cast<uint64_t>(p);
    if (n.kind == 0 && words[2 + i] % static_cast<uint64_t>(work->alignments[i])) return kMisaligned;
  }
  if (ids.size() != wanted) return kBad;
  static const auto launch =
      function_of<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**)>("LAZYT_CUDA_DRIVER", "cuLaunchKernel");
  void* parameters[] = {words};
  // Graphs run it again, and what was launched outlives the handle: so does this, the process.
  static std::mutex mutex;
  static auto& works = *new std::vector<std::shared_ptr<Work>>;
  const std::lock_guard lock(mutex);
  works.push_back(std::move(work));
  return launch(handle.function, 1, 1, 1, 1, 1, 1, 0, handle.stream, parameters, nullptr) == CUDA_SUCCESS ? kDone : kInternal;
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
  if (std::abs(found->second) != type && !(found->second == kDnnTypeFloat && type == kDnnTypeDouble)) return kWrongType;
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
