#include "dnn.h"

#include <array>
#include <map>
#include <mutex>

#include "vendor.h"

namespace lazyt::cuda {
namespace {

using plugin::Error;

constexpr int64_t kMostWorkspace = int64_t{512} << 20;

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
  Descriptor& yes(DnnAttribute which) {
    const bool value = true;
    return set(which, kDnnTypeBool, 1, &value);
  }
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

// Whether its notes allow the configuration's engine.
bool is_good(const Descriptor& config, bool has_tensor_cores) {
  Descriptor engine(kDnnEngine);
  DnnDescriptor out = engine.get();
  int64_t count = 0;
  LAZYT_DNN(cudnnBackendGetAttribute, config.get(), kDnnConfigEngine, kDnnTypeDescriptor, 1, &count, &out);
  std::array<int, 64> notes{};
  LAZYT_DNN(cudnnBackendGetAttribute, engine.get(), kDnnEngineNotes, kDnnTypeNote, static_cast<int64_t>(notes.size()), &count, notes.data());
  for (int64_t i = 0; i < count; ++i) {
    const int note = notes[static_cast<size_t>(i)];
    if (note == kDnnNotDeterministic || note == kDnnNarrowsInputs) return false;
    if (note == kDnnTensorCores && !has_tensor_cores) return false;
  }
  return true;
}

// The first of cuDNN's own order that gives the same bits in every run and does not round its operands unless it may.
std::shared_ptr<const Engine> find_engine(DnnHandle handle, const Descriptor& graph, bool has_tensor_cores) {
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
    // Fewer may come than were promised.
    LAZYT_DNN(cudnnBackendGetAttribute, heuristic.get(), kDnnHeuristicResults, kDnnTypeDescriptor, count, &count, handles.data());
    for (int64_t i = 0; i < count; ++i) {
      const Descriptor& config = configs[static_cast<size_t>(i)];
      if (!is_good(config, has_tensor_cores)) continue;
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

}  // namespace

std::optional<DnnDataType> dnn_type(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT32: return kDnnF32;
    case LAZYT_DTYPE_FLOAT64: return kDnnF64;
    case LAZYT_DTYPE_FLOAT16: return kDnnF16;
    case LAZYT_DTYPE_BFLOAT16: return kDnnBf16;
    default: return std::nullopt;
  }
}

bool has_dnn(int version) { return libraries().cudnn && (!version || libraries().dnn.cudnnGetVersion() >= static_cast<size_t>(version)); }

// ---- what a graph says

DnnGraph::Id DnnGraph::add_operand(const Builder& b, const Tensor& t, bool is_written) {
  const Id id = add_node({*dnn_type(t.dtype), t.dims(), t.strides(), alignment_of(b, t), Node::kMemory});
  operands_.push_back({id, t, is_written});
  return id;
}
DnnGraph::Id DnnGraph::between(DnnDataType type, const Dims& dims, const Dims& strides) {
  return add_node({type, dims, strides, 16, Node::kVirtual});
}
DnnGraph::Id DnnGraph::number(float value) {
  const Dims ones(4, 1);
  const Id id = add_node({kDnnF32, ones, ones, 16, Node::kNumber});
  numbers_.emplace_back(id, value);
  return id;
}

void DnnGraph::pointwise(DnnPointwise mode, Id x, Id y, Id b, Id t, int64_t axis) {
  Operation o{kDnnPointwiseOperation, mode, mode == kDnnGreaterEqual ? kDnnBool : compute_of(x), axis, {{kDnnPointwiseX, x}, {kDnnPointwiseY, y}}};
  if (b) o.ends.emplace_back(kDnnPointwiseB, b);
  if (t) o.ends.emplace_back(kDnnPointwiseT, t);
  operations_.push_back(std::move(o));
}
DnnGraph::Id DnnGraph::pointwise(DnnPointwise mode, Id x, DnnDataType type, Id b, Id t, int64_t axis) {
  const Node from = node(x);
  const Id y = between(type, from.dims, from.strides);
  pointwise(mode, x, y, b, t, axis);
  return y;
}
void DnnGraph::window(DnnKind kind, Id w, Id x, Id y, const Dims& stride, const Dims& padding, const Dims& dilation) {
  const int first = kind == kDnnForward ? kDnnForwardW : kind == kDnnBackwardData ? kDnnDataW : kDnnWeightsW;
  auto name = [&](int i) { return static_cast<DnnAttribute>(first + i); };
  operations_.push_back({kind, 0, compute_of(w), -1, {{name(0), w}, {name(1), x}, {name(2), y}}, stride, padding, dilation});
}
void DnnGraph::matmul(Id a, Id b, Id c) {
  operations_.push_back({kDnnMatmul, 0, kDnnF32, -1, {{kDnnMatmulA, a}, {kDnnMatmulB, b}, {kDnnMatmulC, c}}});
}
void DnnGraph::reduce(DnnReduce mode, Id x, Id y) {
  operations_.push_back({kDnnReduction, mode, compute_of(x), -1, {{kDnnReduceX, x}, {kDnnReduceY, y}}});
}
void DnnGraph::reshape(Id x, Id y) { operations_.push_back({kDnnReshape, 0, kDnnF32, -1, {{kDnnReshapeX, x}, {kDnnReshapeY, y}}}); }

std::string DnnGraph::text() const {
  std::string out = may_narrow_ ? "tf32" : "";
  auto add = [&](const Dims& dims) {
    out += ";";
    for (int64_t d : dims) out += std::to_string(d) + ",";
  };
  for (const Node& n : nodes_) {
    out += " " + std::to_string(n.type) + "@" + std::to_string(n.alignment) + "/" + std::to_string(n.kind);
    add(n.dims), add(n.strides);
  }
  for (const Operation& o : operations_) {
    out += " " + std::to_string(o.kind) + "," + std::to_string(o.mode) + "," + std::to_string(o.compute) + "," + std::to_string(o.axis);
    for (const auto& [which, id] : o.ends) out += " " + std::to_string(which) + "=" + std::to_string(id);
    for (const Dims* dims : {&o.stride, &o.padding, &o.dilation}) add(*dims);
  }
  return out;
}

// ---- how it is asked about

struct DnnHandleOf {
  static void describe(Descriptor& out, const DnnGraph::Node& n, DnnGraph::Id id) {
    out.number(kDnnTensorType, kDnnTypeDataType, n.type).integers(kDnnTensorDims, n.dims).integers(kDnnTensorStrides, n.strides);
    out.integer(kDnnTensorId, id).integer(kDnnTensorAlignment, n.alignment);
    if (n.kind == DnnGraph::Node::kVirtual) out.yes(kDnnTensorIsVirtual);
    if (n.kind == DnnGraph::Node::kNumber) out.yes(kDnnTensorIsByValue);
    out.finalize();
  }

  // What an operation does; a reshape says nothing but its ends.
  static void describe(Descriptor& operation, std::vector<Descriptor>& kept, const DnnGraph::Operation& o) {
    if (o.kind == kDnnPointwiseOperation) {
      Descriptor& how = kept.emplace_back(kDnnPointwiseKind);
      how.number(kDnnPointwiseMode, kDnnTypePointwiseMode, o.mode).number(kDnnPointwiseCompute, kDnnTypeDataType, o.compute);
      if (o.mode == kDnnRelu) how.number(kDnnPointwiseNan, kDnnTypeNan, 1);
      if (o.axis >= 0) how.integer(kDnnPointwiseAxis, o.axis);
      operation.refer(kDnnPointwiseOf, how.finalize());
    } else if (o.kind == kDnnMatmul) {
      operation.refer(kDnnMatmulOf, kept.emplace_back(kDnnMatmulKind).number(kDnnMatmulCompute, kDnnTypeDataType, o.compute).finalize());
    } else if (o.kind == kDnnReduction) {
      Descriptor& how = kept.emplace_back(kDnnReduceKind);
      how.number(kDnnReduceMode, kDnnTypeReduceMode, o.mode).number(kDnnReduceCompute, kDnnTypeDataType, o.compute);
      operation.refer(kDnnReduceOf, how.finalize());
    } else if (o.kind != kDnnReshape) {
      Descriptor& window = kept.emplace_back(kDnnWindow);
      window.number(kDnnWindowCompute, kDnnTypeDataType, o.compute).number(kDnnWindowMode, kDnnTypeWindowMode, kDnnCrossCorrelation);
      window.integer(kDnnWindowSpatialDims, static_cast<int64_t>(o.stride.size())).integers(kDnnWindowStrides, o.stride);
      window.integers(kDnnWindowPaddingBefore, o.padding).integers(kDnnWindowPaddingAfter, o.padding).integers(kDnnWindowDilations, o.dilation);
      const int alpha = o.ends[0].first - 3;  // alpha, beta, window stand before w
      const float narrow[] = {1, 0};
      const double wide[] = {1, 0};
      for (int i : {0, 1}) {
        if (o.compute == kDnnF64) operation.set(static_cast<DnnAttribute>(alpha + i), kDnnTypeDouble, 1, wide + i);
        else operation.set(static_cast<DnnAttribute>(alpha + i), kDnnTypeFloat, 1, narrow + i);
      }
      operation.refer(static_cast<DnnAttribute>(alpha + 2), window.finalize());
    }
  }

  // Null if none takes the graph.
  static std::shared_ptr<const Engine> build(Handle& handle, const DnnGraph& g) {
    std::vector<Descriptor> tensors, operations, kept;
    for (const DnnGraph::Node& n : g.nodes_) {
      Descriptor& made = tensors.emplace_back(kDnnTensor);
      describe(made, n, static_cast<DnnGraph::Id>(tensors.size()));
    }
    bool is_narrow = true;  // nothing that is multiplied is wider than 16 bits
    std::vector<DnnDescriptor> handles;
    for (const DnnGraph::Operation& o : g.operations_) {
      Descriptor& made = operations.emplace_back(o.kind);
      describe(made, kept, o);
      for (const auto& [which, id] : o.ends) made.refer(which, tensors[static_cast<size_t>(id) - 1]);
      handles.push_back(made.finalize().get());
      if (o.kind == kDnnPointwiseOperation || o.kind == kDnnReduction || o.kind == kDnnReshape) continue;
      for (const auto& [which, id] : o.ends)
        if (const auto& n = g.node(id); n.kind == DnnGraph::Node::kMemory && which != kDnnMatmulC && (n.type == kDnnF32 || n.type == kDnnF64)) is_narrow = false;
    }
    Descriptor graph(kDnnGraph);
    graph.set(kDnnGraphHandle, kDnnTypeHandle, 1, &handle.handle);
    graph.set(kDnnGraphOperations, kDnnTypeDescriptor, static_cast<int64_t>(handles.size()), handles.data());
    graph.finalize();
    return find_engine(handle.handle, graph, is_narrow || g.may_narrow_);
  }

  static std::shared_ptr<const Engine> ask(Handle& handle, const DnnGraph& g) {
    const std::lock_guard lock(handle.mutex);
    const auto [known, is_new] = handle.known.try_emplace(g.text());
    if (!is_new) return known->second;
    try {
      known->second = build(handle, g);
    } catch (const Error& e) {
      if (e.code() != LAZYT_CODE_UNIMPLEMENTED) throw;
    }
    return known->second;
  }
};

// ---- how it runs

class DnnStep final : public LibraryStep {
 public:
  std::shared_ptr<Handle> handle;
  std::shared_ptr<const Engine> engine;
  std::vector<DnnGraph::Operand> operands;
  std::vector<uint32_t> promises;  // of their addresses
  std::vector<std::pair<int64_t, float>> numbers;
  Tensor workspace;
  std::string text, of;

  std::string describe() const override { return text; }
  bool reads_numbers() const override { return false; }
  void run(const Run& run) const override {
    std::vector<int64_t> ids;
    std::vector<const void*> addresses;
    for (size_t i = 0; i < operands.size(); ++i) {
      require_alignment(run, operands[i].tensor, promises[i], of.c_str());
      ids.push_back(operands[i].id);
      addresses.push_back(reinterpret_cast<const void*>(run.at(operands[i].tensor)));
    }
    for (const auto& [id, value] : numbers) ids.push_back(id), addresses.push_back(&value);  // read while it is called
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

bool DnnGraph::add(Builder& b) {
  auto step = std::make_unique<DnnStep>();
  step->handle = per_context<Handle>(b.device());
  step->engine = DnnHandleOf::ask(*step->handle, *this);
  if (!step->engine) return false;
  std::vector<StorageId> reads, writes;
  for (const Operand& o : operands_) {
    (o.is_written ? writes : reads).push_back(o.tensor.storage);
    step->promises.push_back(static_cast<uint32_t>(node(o.id).alignment));
  }
  step->operands = operands_, step->numbers = numbers_;
  step->text = name_, step->of = of_;
  if (step->engine->workspace_bytes) {
    step->workspace = b.scratch(LAZYT_DTYPE_UINT8, {step->engine->workspace_bytes});
    writes.push_back(step->workspace.storage);
  }
  b.add(std::move(step), reads, writes);
  return true;
}

}  // namespace lazyt::cuda
