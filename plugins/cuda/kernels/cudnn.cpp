// Convolutions by cuDNN's graph API. A graph is one operation, and the bias behind it where an engine takes both. The engine is
// chosen when the program is compiled, once for all convolutions that are described alike: the first of cuDNN's own order
// that gives the same bits in every run and does not round its operands unless the program allows TF32.
#include <map>
#include <mutex>

#include "../codegen/kernel.h"
#include "vendor.h"
#include "window.h"

namespace lazyt::cuda {
namespace {

using plugin::Error;

constexpr int64_t kMostWorkspace = int64_t{512} << 20;
constexpr int64_t kX = 1, kW = 2, kY = 3, kBias = 4, kBetween = 5;  // ids of tensors

void check_dnn(DnnStatus status, const std::string& what) {
  const bool is_refusal = status / 1000 == 3;  // CUDNN_STATUS_NOT_SUPPORTED and its kinds
  if (status)
    throw Error(is_refusal ? LAZYT_CODE_UNIMPLEMENTED : LAZYT_CODE_INTERNAL, "cuDNN: " + what + " failed: " + libraries().dnn.cudnnGetErrorString(status) + " (" +
                                         std::to_string(status) + ")");
}
#define LAZYT_DNN(function, ...) check_dnn(libraries().dnn.function(__VA_ARGS__), #function)

class Descriptor {
 public:
  explicit Descriptor(DnnKind kind) { LAZYT_DNN(cudnnBackendCreateDescriptor, kind, &handle_); }
  Descriptor(Descriptor&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  ~Descriptor() {
    if (handle_) libraries().dnn.cudnnBackendDestroyDescriptor(handle_);
  }
  DnnDescriptor get() const { return handle_; }

  Descriptor& set(DnnAttribute which, DnnType type, int64_t count, const void* data) {
    check_dnn(libraries().dnn.cudnnBackendSetAttribute(handle_, which, type, count, data), "attribute " + std::to_string(which));
    return *this;
  }
  Descriptor& integer(DnnAttribute which, int64_t value) { return set(which, kDnnTypeInt64, 1, &value); }
  Descriptor& integers(DnnAttribute which, const Dims& values) {
    return set(which, kDnnTypeInt64, static_cast<int64_t>(values.size()), values.data());
  }
  Descriptor& number(DnnAttribute which, DnnType type, int value) { return set(which, type, 1, &value); }
  Descriptor& refer(DnnAttribute which, const Descriptor& to) { return set(which, kDnnTypeDescriptor, 1, &to.handle_); }
  DnnStatus try_finalize() { return libraries().dnn.cudnnBackendFinalize(handle_); }
  Descriptor& finalize() {
    check_dnn(try_finalize(), "cudnnBackendFinalize");
    return *this;
  }

 private:
  DnnDescriptor handle_ = nullptr;
};

struct Engine {
  Descriptor plan;
  int64_t workspace_bytes;
};

// One for each context, as long as a program of it uses the library.
struct Handle {
  const ContextRef context;
  DnnHandle handle = nullptr;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Engine>> known;  // null: there is none

  explicit Handle(ContextRef of) : context(std::move(of)) { LAZYT_DNN(cudnnCreate, &handle); }
  ~Handle() {
    try {
      const Current current(*context);
      known.clear();
      libraries().dnn.cudnnDestroy(handle);
    } catch (const std::exception&) {  // lost: it goes with the process
    }
  }
};

std::optional<DnnDataType> type_of(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT32: return kDnnF32;
    case LAZYT_DTYPE_FLOAT64: return kDnnF64;
    case LAZYT_DTYPE_FLOAT16: return kDnnF16;
    case LAZYT_DTYPE_BFLOAT16: return kDnnBf16;
    default: return std::nullopt;
  }
}

// As cuDNN sees a tensor: at least two spatial dims.
Tensor as_image(const Tensor& t) {
  if (t.dims().size() != 3) return t;
  Tensor out = t;
  out.layout.dims.insert(out.layout.dims.begin() + 2, 1);
  out.layout.strides.insert(out.layout.strides.begin() + 2, t.dims()[2] * t.strides()[2]);
  return out;
}
Dims as_image(Dims each, int64_t filler, size_t axes) {
  if (axes == 1) each.insert(each.begin(), filler);
  return each;
}

class DnnStep final : public LibraryStep {
 public:
  std::shared_ptr<Handle> handle;
  std::shared_ptr<const Engine> engine;
  std::vector<std::pair<int64_t, Tensor>> operands;  // by id
  std::vector<uint32_t> promises;                    // of their addresses
  Tensor workspace;
  std::string text;

  std::string describe() const override { return text; }
  void run(const Run& run) const override {
    std::vector<int64_t> ids;
    std::vector<void*> addresses;
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto& [id, t] = operands[i];
      require_alignment(run, t, promises[i], "a convolution");
      ids.push_back(id);
      addresses.push_back(reinterpret_cast<void*>(run.at(t)));
    }
    const auto count = static_cast<int64_t>(ids.size());
    Descriptor pack(kDnnVariantPack);
    pack.set(kDnnPackIds, kDnnTypeInt64, count, ids.data()).set(kDnnPackPointers, kDnnTypePointer, count, addresses.data());
    void* const scratch = engine->workspace_bytes ? reinterpret_cast<void*>(run.at(workspace)) : nullptr;
    pack.set(kDnnPackWorkspace, kDnnTypePointer, 1, &scratch).finalize();
    const std::lock_guard lock(handle->mutex);  // the stream is the handle's
    LAZYT_DNN(cudnnSetStream, handle->handle, run.stream);
    LAZYT_DNN(cudnnBackendExecute, handle->handle, engine->plan.get(), pack.get());
  }
};

// What a graph says, which is also what it is known by.
struct Question {
  Window::Kind kind;
  DnnDataType type;
  bool tf32;
  std::map<int64_t, Tensor> tensors;  // by id, as cuDNN sees them
  std::map<int64_t, int64_t> alignments;
  Dims stride, padding, dilation;

  std::string text() const {
    std::string out = std::to_string(static_cast<int>(kind)) + "," + std::to_string(type) + (tf32 ? ",tf32" : "");
    auto add = [&](const Dims& dims) {
      out += ";";
      for (int64_t d : dims) out += std::to_string(d) + ",";
    };
    for (const auto& [id, t] : tensors) {
      out += " " + std::to_string(id) + "@" + std::to_string(alignments.at(id));
      add(t.dims()), add(t.strides());
    }
    for (const Dims* dims : {&stride, &padding, &dilation}) add(*dims);
    return out;
  }
};

Descriptor describe(int64_t id, DnnDataType type, const Tensor& t, int64_t alignment, bool is_virtual) {
  Descriptor out(kDnnTensor);
  out.number(kDnnTensorType, kDnnTypeDataType, type).integers(kDnnTensorDims, t.dims()).integers(kDnnTensorStrides, t.strides());
  out.integer(kDnnTensorId, id).integer(kDnnTensorAlignment, alignment);
  if (is_virtual) out.set(kDnnTensorIsVirtual, kDnnTypeBool, 1, &is_virtual);
  out.finalize();
  return out;
}

// Whether its notes allow the configuration's engine.
bool is_good(const Descriptor& config, const Question& q) {
  Descriptor engine(kDnnEngine);
  DnnDescriptor out = engine.get();
  int64_t count = 0;
  LAZYT_DNN(cudnnBackendGetAttribute, config.get(), kDnnConfigEngine, kDnnTypeDescriptor, 1, &count, &out);
  std::array<int, 64> notes{};
  LAZYT_DNN(cudnnBackendGetAttribute, engine.get(), kDnnEngineNotes, kDnnTypeNote, static_cast<int64_t>(notes.size()), &count, notes.data());
  for (int64_t i = 0; i < count; ++i) {
    const int note = notes[static_cast<size_t>(i)];
    if (note == kDnnNotDeterministic || note == kDnnNarrowsInputs) return false;
    if (note == kDnnTensorCores && q.type == kDnnF32 && !q.tf32) return false;
  }
  return true;
}

std::shared_ptr<const Engine> find_engine(DnnHandle handle, const Descriptor& graph, const Question& q) {
  for (const DnnMode mode : {kDnnBest, kDnnFallback}) {
    Descriptor heuristic(kDnnHeuristic);
    heuristic.refer(kDnnHeuristicGraph, graph).number(kDnnHeuristicMode, kDnnTypeHeuristicMode, mode);
    if (heuristic.try_finalize()) continue;
    int64_t count = 0;
    if (libraries().dnn.cudnnBackendGetAttribute(heuristic.get(), kDnnHeuristicResults, kDnnTypeDescriptor, 0, &count, nullptr)) continue;
    std::vector<Descriptor> configs;
    std::vector<DnnDescriptor> handles;
    for (int64_t i = 0; i < count; ++i) handles.push_back(configs.emplace_back(kDnnEngineConfig).get());
    if (!count) continue;
    LAZYT_DNN(cudnnBackendGetAttribute, heuristic.get(), kDnnHeuristicResults, kDnnTypeDescriptor, count, &count, handles.data());
    for (int64_t i = 0; i < count; ++i) {
      const Descriptor& config = configs[static_cast<size_t>(i)];
      if (!is_good(config, q)) continue;
      Descriptor plan(kDnnPlan);
      plan.set(kDnnPlanHandle, kDnnTypeHandle, 1, &handle).refer(kDnnPlanConfig, config);
      if (plan.try_finalize()) continue;
      int64_t bytes = 0, one = 0;
      LAZYT_DNN(cudnnBackendGetAttribute, plan.get(), kDnnPlanWorkspaceBytes, kDnnTypeInt64, 1, &one, &bytes);
      if (bytes <= kMostWorkspace) return std::make_shared<const Engine>(Engine{std::move(plan), bytes});
    }
  }
  return nullptr;
}

// Null if none takes the graph.
std::shared_ptr<const Engine> build(Handle& handle, const Question& q) {
  const DnnDataType compute = q.type == kDnnF64 ? kDnnF64 : kDnnF32;
  const bool has_bias = q.tensors.contains(kBias);
  const int64_t written = q.kind == Window::Kind::kForward ? kY : q.kind == Window::Kind::kData ? kX : kW;
  std::map<int64_t, Descriptor> tensors;
  for (const auto& [id, t] : q.tensors) tensors.emplace(id, describe(id, q.type, t, q.alignments.at(id), false));
  if (has_bias) tensors.emplace(kBetween, describe(kBetween, compute, q.tensors.at(written), 16, true));
  auto at = [&](int64_t id) -> const Descriptor& { return tensors.at(has_bias && id == written ? kBetween : id); };

  Descriptor window(kDnnWindow);
  window.number(kDnnWindowCompute, kDnnTypeDataType, compute).number(kDnnWindowMode, kDnnTypeWindowMode, kDnnCrossCorrelation);
  window.integer(kDnnWindowSpatialDims, static_cast<int64_t>(q.stride.size())).integers(kDnnWindowStrides, q.stride);
  window.integers(kDnnWindowPaddingBefore, q.padding).integers(kDnnWindowPaddingAfter, q.padding).integers(kDnnWindowDilations, q.dilation);
  window.finalize();

  const DnnKind kind = q.kind == Window::Kind::kForward ? kDnnForward : q.kind == Window::Kind::kData ? kDnnBackwardData : kDnnBackwardWeights;
  const int first = q.kind == Window::Kind::kForward ? kDnnForwardAlpha : q.kind == Window::Kind::kData ? kDnnDataAlpha : kDnnWeightsAlpha;
  auto name = [&](int i) { return static_cast<DnnAttribute>(first + i); };
  Descriptor operation(kind);
  const float narrow[] = {1, 0};
  const double wide[] = {1, 0};
  for (int i : {0, 1}) {
    if (compute == kDnnF64) operation.set(name(i), kDnnTypeDouble, 1, wide + i);
    else operation.set(name(i), kDnnTypeFloat, 1, narrow + i);
  }
  operation.refer(name(2), window).refer(name(3), at(kW)).refer(name(4), at(kX)).refer(name(5), at(kY)).finalize();

  std::vector<DnnDescriptor> operations = {operation.get()};
  std::vector<Descriptor> kept;
  if (has_bias) {
    Descriptor& add = kept.emplace_back(kDnnPointwise);
    add.number(kDnnPointwiseMode, kDnnTypePointwiseMode, kDnnAdd).number(kDnnPointwiseCompute, kDnnTypeDataType, compute).finalize();
    Descriptor behind(kDnnPointwiseOperation);
    behind.refer(kDnnPointwiseOf, add).refer(kDnnPointwiseX, tensors.at(kBetween)).refer(kDnnPointwiseB, tensors.at(kBias));
    behind.refer(kDnnPointwiseY, tensors.at(written)).finalize();
    operations.push_back(behind.get());
    kept.push_back(std::move(behind));
  }
  Descriptor graph(kDnnGraph);
  graph.set(kDnnGraphHandle, kDnnTypeHandle, 1, &handle.handle);
  graph.set(kDnnGraphOperations, kDnnTypeDescriptor, static_cast<int64_t>(operations.size()), operations.data());
  graph.finalize();
  return find_engine(handle.handle, graph, q);
}

std::shared_ptr<const Engine> ask(Handle& handle, const Question& q) {
  const std::lock_guard lock(handle.mutex);
  const auto [known, is_new] = handle.known.try_emplace(q.text());
  if (!is_new) return known->second;
  try {
    known->second = build(handle, q);
  } catch (const Error& e) {
    if (e.code() != LAZYT_CODE_UNIMPLEMENTED) throw;
  }
  return known->second;
}

// False if there is no engine.
bool add_step(Builder& b, const Window& window, const Tensor& x, const Tensor& w, const Tensor& y, const std::optional<Tensor>& bias) {
  const size_t axes = window.x.dims().size() - 2;
  Question q{window.kind, *type_of(x.dtype), (b.flags() & LAZYT_COMPILE_TF32) != 0, {}, {}, as_image(window.stride, 1, axes),
             as_image(window.padding, 0, axes), as_image(window.dilation, 1, axes)};
  auto step = std::make_unique<DnnStep>();
  std::vector<StorageId> reads, writes;
  auto add = [&](int64_t id, const Tensor& t, bool written) {
    const uint32_t alignment = alignment_of(b, t);
    q.tensors.emplace(id, as_image(t)), q.alignments.emplace(id, alignment);
    step->operands.emplace_back(id, t), step->promises.push_back(alignment);
    (written ? writes : reads).push_back(t.storage);
  };
  add(kX, x, window.kind == Window::Kind::kData);
  add(kW, w, window.kind == Window::Kind::kWeights);
  add(kY, y, window.kind == Window::Kind::kForward);
  if (bias) {
    Dims dims(x.dims().size(), 1);
    dims[1] = bias->dims()[0];
    add(kBias, reshaped(*bias, dims, toolkit::row_major(dims)), false);
  }
  step->handle = per_context<Handle>(b.device());
  step->engine = ask(*step->handle, q);
  if (!step->engine) return false;
  constexpr const char* kNames[] = {"forward", "data", "weights"};
  step->text = std::string("cudnn ") + kNames[static_cast<int>(window.kind)] + " " + memory_type(x.dtype) + (bias ? " bias" : "");
  if (step->engine->workspace_bytes) {
    step->workspace = b.scratch(LAZYT_DTYPE_UINT8, {step->engine->workspace_bytes});
    writes.push_back(step->workspace.storage);
  }
  b.add(std::move(step), reads, writes);
  return true;
}

// t += bias, in place.
void add_bias(Builder& b, const Tensor& bias, const Tensor& t) {
  Dims strides(t.dims().size(), 0);
  strides[1] = bias.strides()[0];
  const toolkit::Type type = toolkit::type_of(toolkit::compute_dtype(t.dtype));
  FusedKernel kernel(t.dims(), {});
  const auto sum = kernel.op(toolkit::Op::kAdd, kernel.cast(kernel.load(t), type), kernel.cast(kernel.load(reshaped(bias, t.dims(), strides)), type));
  kernel.store(kernel.cast(sum, toolkit::type_of(t.dtype)), t);
  kernel.build(b, {});
}

}  // namespace

bool add_library_window(Builder& b, const Window& window) {
  if (!libraries().cudnn || !type_of(window.x.dtype)) return false;
  const Current current(*b.device().context);
  // All three lie alike, as the operand does whose place is not ours to choose; what is written in another order is copied.
  const bool last = is_channels_last(window.kind == Window::Kind::kData ? window.y : window.x);
  auto strides = [&](const Tensor& t) { return last ? channels_last(t.dims()) : toolkit::row_major(t.dims()); };
  std::optional<Tensor> copy;
  auto place = [&](const Tensor& t, Window::Kind writes) {
    if (toolkit::same_strides(t.dims(), t.strides(), strides(t))) return reshaped(t, t.dims(), strides(t));
    if (window.kind != writes) return b.laid_out(t, t.dtype, strides(t));
    return *(copy = b.scratch(t.dtype, t.dims(), strides(t), static_cast<uint64_t>(t.count()) * t.element()));
  };
  const Tensor x = place(window.x, Window::Kind::kData), w = place(window.w, Window::Kind::kWeights), y = place(window.y, Window::Kind::kForward);
  std::optional<Tensor> bias = window.bias;
  if (bias) bias = b.dense(*bias);
  const Tensor& to = window.kind == Window::Kind::kForward ? y : window.kind == Window::Kind::kData ? x : w;
  if (!bias || !add_step(b, window, x, w, y, bias)) {
    if (!add_step(b, window, x, w, y, {})) return false;
    if (bias) add_bias(b, *bias, to);
  }
  if (copy) b.copy(to, window.kind == Window::Kind::kForward ? window.y : window.kind == Window::Kind::kData ? window.x : window.w);
  return true;
}

}  // namespace lazyt::cuda
