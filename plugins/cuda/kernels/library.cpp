// Products by cuBLASLt. Its matrices are column-major: a row-major c = a b is its c' = b' a', so that its
// first operand is our second, and a vector along its rows (the bias of an epilogue) one along our columns.
// The algorithm is asked for when the program is compiled.
#include <bit>
#include <map>
#include <mutex>

#include "../execute.h"
#include "product.h"

namespace lazyt::cuda {
namespace {

using plugin::Error;

void check_lt(LtStatus status, const char* what) {
  if (status)
    throw Error(LAZYT_CODE_INTERNAL,
                "cuBLASLt: " + std::string(what) + " failed with status " + std::to_string(status));
}
#define LAZYT_LT(function, ...) check_lt(libraries().lt.function(__VA_ARGS__), #function)

// A library's object that `destroy` ends.
template <class T, class Destroy>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& o) noexcept : value_(std::exchange(o.value_, nullptr)), destroy_(o.destroy_) {}
  Owned& operator=(Owned&& o) noexcept {
    std::swap(value_, o.value_);
    std::swap(destroy_, o.destroy_);
    return *this;
  }
  ~Owned() {
    if (value_) destroy_(value_);
  }
  T* out(Destroy* destroy) {
    destroy_ = destroy;
    return &value_;
  }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
  Destroy* destroy_ = nullptr;
};
using Description = Owned<LtMatmulDesc, cublasLtMatmulDescDestroy_t>;
using Matrix = Owned<LtLayout, cublasLtMatrixLayoutDestroy_t>;
using Preference = Owned<LtPreference, cublasLtMatmulPreferenceDestroy_t>;

// One for each context, as long as a program of it uses the library.
struct Handle {
  const ContextRef context;
  LtHandle handle = nullptr;

  explicit Handle(ContextRef of) : context(std::move(of)) { LAZYT_LT(cublasLtCreate, &handle); }
  ~Handle() {
    try {
      const Current current(*context);
      libraries().lt.cublasLtDestroy(handle);
    } catch (const std::exception&) {  // lost: it goes with the process
    }
  }
};
std::shared_ptr<Handle> handle_of(const Device& device) {
  static std::mutex mutex;
  static auto& all = *new std::map<CUcontext, std::weak_ptr<Handle>>;
  const std::lock_guard lock(mutex);
  std::weak_ptr<Handle>& known = all[device.context->handle()];
  if (auto handle = known.lock()) return handle;
  auto made = std::make_shared<Handle>(device.context);
  known = made;
  return made;
}

struct Types {
  LtDataType data;
  LtComputeType compute;
  LtDataType scale;
};
std::optional<Types> types_for(lazyt_dtype_t dtype, bool tf32) {
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT32:
      return Types{kLtF32, tf32 ? kLtComputeTf32 : kLtComputeF32, kLtF32};
    case LAZYT_DTYPE_FLOAT64:
      return Types{kLtF64, kLtComputeF64, kLtF64};
    case LAZYT_DTYPE_FLOAT16:
      return Types{kLtF16, kLtComputeF32, kLtF32};
    case LAZYT_DTYPE_BFLOAT16:
      return Types{kLtBf16, kLtComputeF32, kLtF32};
    default:
      return std::nullopt;
  }
}

// How the library sees a matrix of rank 3 whose rows or columns are contiguous: turned, as it is row-major,
// or not.
struct Seen {
  int64_t rows, columns, leading, batch_offset;
  LtOperation operation;
};
std::optional<Seen> see(const Tensor& t) {
  const int64_t rows = size(t, 1), columns = size(t, 2), batch_offset = size(t, 0) == 1 ? 0 : stride(t, 0);
  const int64_t along_rows = stride_or(t, 1, columns), along_columns = stride_or(t, 2, 1);
  if (batch_offset < 0) return std::nullopt;
  if (along_columns == 1 && along_rows >= columns)
    return Seen{columns, rows, along_rows, batch_offset, kLtNormal};
  const int64_t leading = stride_or(t, 2, rows);
  if (stride_or(t, 1, 1) == 1 && leading >= rows)
    return Seen{rows, columns, leading, batch_offset, kLtTransposed};
  return std::nullopt;
}

Matrix layout_of(const Seen& seen, LtDataType type, int64_t batch) {
  Matrix out;
  const CublasLtApi& lt = libraries().lt;
  LAZYT_LT(cublasLtMatrixLayoutCreate, out.out(lt.cublasLtMatrixLayoutDestroy), type,
           static_cast<uint64_t>(seen.rows), static_cast<uint64_t>(seen.columns), seen.leading);
  if (batch > 1) {
    const auto count = static_cast<int32_t>(batch);
    LAZYT_LT(cublasLtMatrixLayoutSetAttribute, out.get(), kLtBatchCount, &count, sizeof count);
    LAZYT_LT(cublasLtMatrixLayoutSetAttribute, out.get(), kLtBatchOffset, &seen.batch_offset,
             sizeof seen.batch_offset);
  }
  return out;
}

// Of a tensor's first element in any run. Buffers of other libraries lie at multiples of 16 at least, or the
// run says so.
uint32_t alignment_of(const Builder& b, const Tensor& t) {
  const auto offset = static_cast<uint64_t>(t.layout.offset) * t.element();
  const uint64_t base = b.is_own(t.storage) ? kAlignment : 16;
  return static_cast<uint32_t>(offset ? std::min(base, uint64_t{1} << std::countr_zero(offset)) : base);
}

class LtStep final : public LibraryStep {
 public:
  std::shared_ptr<Handle> handle;
  Description description;
  Matrix left, right, added, result;  // of the library's first and second operand, of c and d
  LtAlgorithm algorithm;
  size_t workspace_bytes = 0;
  Tensor a, b, c, addend, workspace;
  std::optional<Tensor> bias;
  Number alpha, beta;
  bool wide = false;  // alpha and beta are f64
  std::vector<std::pair<Tensor, uint32_t>> promises;
  std::string text;

  std::string describe() const override { return text; }
  void run(const Run& run) const override {
    for (const auto& [t, alignment] : promises)
      if (run.at(t) % alignment)
        throw Error(LAZYT_CODE_INVALID_ARGUMENT,
                    "cuda: a buffer of a matrix product lies at an address that is no multiple of " +
                        std::to_string(alignment) + "; copy it to a tensor of its own");
    const double alphas[] = {run.as_double(alpha), run.as_double(beta)};
    const float narrow[] = {static_cast<float>(alphas[0]), static_cast<float>(alphas[1])};
    const void* const x = wide ? static_cast<const void*>(alphas) : narrow;
    const void* const y = wide ? static_cast<const void*>(alphas + 1) : narrow + 1;
    auto at = [&](const Tensor& t) { return reinterpret_cast<void*>(run.at(t)); };
    // The bias' address is a part of the description.
    const std::lock_guard lock(mutex_);
    if (bias) {
      const void* const address = at(*bias);
      LAZYT_LT(cublasLtMatmulDescSetAttribute, description.get(), kLtBiasPointer, &address, sizeof address);
    }
    LAZYT_LT(cublasLtMatmul, handle->handle, description.get(), x, at(b), left.get(), at(a), right.get(), y,
             at(addend), added.get(), at(c), result.get(), &algorithm,
             workspace_bytes ? at(workspace) : nullptr, workspace_bytes, run.stream);
  }

 private:
  mutable std::mutex mutex_;
};

// The step with an algorithm; null if the library has none.
std::unique_ptr<LtStep> make_step(Builder& builder, const Product& p, const Types& types, bool as_bias) {
  const CublasLtApi& lt = libraries().lt;
  const auto a = see(p.a), b = see(p.b), c = see(p.c);
  const std::optional<Seen> addend = p.addend && !as_bias ? see(*p.addend) : c;
  if (!a || !b || !c || !addend || addend->operation != kLtNormal || c->operation != kLtNormal)
    return nullptr;
  auto step = std::make_unique<LtStep>();
  step->handle = handle_of(builder.device());
  LAZYT_LT(cublasLtMatmulDescCreate, step->description.out(lt.cublasLtMatmulDescDestroy), types.compute,
           types.scale);
  auto set = [&](LtMatmulDescAttribute which, const auto& value) {
    LAZYT_LT(cublasLtMatmulDescSetAttribute, step->description.get(), which, &value, sizeof value);
  };
  set(kLtTransA, static_cast<int32_t>(b->operation));
  set(kLtTransB, static_cast<int32_t>(a->operation));
  step->a = p.a, step->b = p.b, step->c = p.c, step->addend = p.addend && !as_bias ? *p.addend : p.c;
  if (as_bias) {
    step->bias = *p.addend;
    set(kLtEpilogueKind, static_cast<uint32_t>(kLtBias));
    // The heuristic reads no more of it than how it is aligned.
    set(kLtBiasPointer,
        reinterpret_cast<const void*>(static_cast<uintptr_t>(alignment_of(builder, *p.addend))));
  }
  const int64_t batch = size(p.c, 0);
  step->left = layout_of(*b, types.data, batch);
  step->right = layout_of(*a, types.data, batch);
  step->added = layout_of(*addend, types.data, batch);
  step->result = layout_of(*c, types.data, batch);
  step->alpha = p.alpha;
  step->beta = p.addend && !as_bias ? p.beta : kZero;
  step->wide = types.scale == kLtF64;

  Preference preference;
  LAZYT_LT(cublasLtMatmulPreferenceCreate, preference.out(lt.cublasLtMatmulPreferenceDestroy));
  auto prefer = [&](LtPreferenceAttribute which, const auto& value) {
    LAZYT_LT(cublasLtMatmulPreferenceSetAttribute, preference.get(), which, &value, sizeof value);
  };
  // What NVIDIA recommends for cublasSetWorkspace.
  const uint64_t most = (builder.device().capability >= 90 ? uint64_t{32} : uint64_t{4}) << 20;
  prefer(kLtMaxWorkspaceBytes, most);
  auto promise = [&](LtPreferenceAttribute which, const Tensor& t) {
    const uint32_t alignment = alignment_of(builder, t);
    prefer(which, alignment);
    step->promises.emplace_back(t, alignment);
  };
  promise(kLtAlignmentA, p.b);
  promise(kLtAlignmentB, p.a);
  promise(kLtAlignmentC, step->addend);
  promise(kLtAlignmentD, p.c);
  if (step->bias) step->promises.emplace_back(*step->bias, alignment_of(builder, *step->bias));
  LtHeuristic best{};
  int found = 0;
  const LtStatus status = lt.cublasLtMatmulAlgoGetHeuristic(
      step->handle->handle, step->description.get(), step->left.get(), step->right.get(), step->added.get(),
      step->result.get(), preference.get(), 1, &best, &found);
  if (status || found == 0 || best.status) return nullptr;
  step->algorithm = best.algorithm;
  step->workspace_bytes = best.workspace_bytes;
  step->text = "cublasLt " + memory_type(p.c.dtype) + " " + std::to_string(batch) + "x" +
               std::to_string(size(p.c, 1)) + "x" + std::to_string(size(p.c, 2)) + "x" +
               std::to_string(size(p.a, 2)) + (as_bias ? " bias" : "");
  return step;
}

}  // namespace

bool add_library_product(Builder& b, const Product& product) {
  if (!libraries().cublaslt) return false;
  const auto types = types_for(product.c.dtype, b.flags() & LAZYT_COMPILE_TF32);
  if (!types || size(product.c, 0) > INT32_MAX) return false;
  const Current current(*b.device().context);
  Product p = product;
  if (!see(p.a)) p.a = b.dense(p.a);
  if (!see(p.b)) p.b = b.dense(p.b);
  std::unique_ptr<LtStep> step;
  const bool is_bias = p.addend && is_number(p.alpha, 1) && is_number(p.beta, 1) &&
                       stride_or(*p.addend, 0, 0) == 0 && stride_or(*p.addend, 1, 0) == 0 &&
                       stride_or(*p.addend, 2, 1) == 1;
  if (is_bias) step = make_step(b, p, *types, true);
  if (!step && p.addend && (!see(*p.addend) || see(*p.addend)->operation != kLtNormal)) {
    // An addend that is broadcast becomes what the result begins as.
    Product whole = p;
    whole.addend = p.c;
    step = make_step(b, whole, *types, false);
    if (step) b.copy(*p.addend, p.c);
  } else if (!step) {
    step = make_step(b, p, *types, false);
  }
  if (!step) return false;
  std::vector<StorageId> reads = {p.a.storage, p.b.storage}, writes = {p.c.storage};
  if (step->addend.storage != p.c.storage || p.addend) reads.push_back(step->addend.storage);
  if (step->bias) reads.push_back(step->bias->storage);
  if (step->workspace_bytes) {
    step->workspace = b.scratch(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(step->workspace_bytes)});
    writes.push_back(step->workspace.storage);
  }
  b.add(std::move(step), reads, writes);
  return true;
}

}  // namespace lazyt::cuda
