// Products by cuBLASLt. Its matrices are column-major: a row-major c = a b is its c' = b' a', so that its
// first operand is our second, and a vector along its rows (the bias of an epilogue) one along our columns.
// The algorithm is asked for when the program is compiled, once for all products that are described alike.
#include <map>
#include <mutex>

#include "product.h"
#include "vendor.h"

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
  std::mutex mutex;
  std::map<std::string, std::optional<LtHeuristic>> known;  // what it answered, by all that it was told

  explicit Handle(ContextRef of) : context(std::move(of)) { LAZYT_LT(cublasLtCreate, &handle); }
  ~Handle() {
    try {
      const Current current(*context);
      libraries().lt.cublasLtDestroy(handle);
    } catch (const std::exception&) {  // lost: it goes with the process
    }
  }
};

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

// What a call computes beside the product.
struct Beside {
  uint32_t epilogue = kLtDefault;
  std::optional<Tensor> aux;  // where kLtAux writes, or what a gradient reads
  int64_t aux_leading = 0;
  bool writes_aux = false;
  std::optional<Tensor> sum;
  std::string name = {};
};

class LtStep final : public LibraryStep {
 public:
  std::shared_ptr<Handle> handle;
  Description description;
  Matrix left, right, added, result;  // of the library's first and second operand, of c and d
  LtAlgorithm algorithm;
  size_t workspace_bytes = 0;
  Tensor a, b, c, addend, workspace;
  std::optional<Tensor> vector, aux;  // the bias or a sum; see Beside
  Number alpha, beta;
  bool wide = false;  // alpha and beta are f64
  std::vector<std::pair<Tensor, uint32_t>> promises;
  std::string text;

  std::string describe() const override { return text; }
  bool reads_numbers() const override { return !alpha.constant || !beta.constant; }
  void run(const Run& run) const override {
    for (const auto& [t, alignment] : promises) require_alignment(run, t, alignment, "a matrix product");
    const double alphas[] = {run.as_double(alpha), run.as_double(beta)};
    const float narrow[] = {static_cast<float>(alphas[0]), static_cast<float>(alphas[1])};
    const void* const x = wide ? static_cast<const void*>(alphas) : narrow;
    const void* const y = wide ? static_cast<const void*>(alphas + 1) : narrow + 1;
    auto at = [&](const Tensor& t) { return reinterpret_cast<void*>(run.at(t)); };
    // Some addresses are a part of the description.
    const std::lock_guard lock(mutex_);
    auto point = [&](LtMatmulDescAttribute which, const std::optional<Tensor>& t) {
      if (!t) return;
      const void* const address = at(*t);
      LAZYT_LT(cublasLtMatmulDescSetAttribute, description.get(), which, &address, sizeof address);
    };
    point(kLtBiasPointer, vector);
    point(kLtAuxPointer, aux);
    LAZYT_LT(cublasLtMatmul, handle->handle, description.get(), x, at(b), left.get(), at(a), right.get(), y,
             at(addend), added.get(), at(c), result.get(), &algorithm,
             workspace_bytes ? at(workspace) : nullptr, workspace_bytes, run.stream);
  }

 private:
  mutable std::mutex mutex_;
};

// All that the library is told before it chooses an algorithm.
class Told {
 public:
  template <class T>
  const T& operator()(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return value;
  }
  void matrix(const Seen& s) { (*this)(s.rows), (*this)(s.columns), (*this)(s.leading), (*this)(s.batch_offset); }
  const std::string& text() const { return bytes_; }

 private:
  std::string bytes_;
};

// The step with an algorithm; null if the library has none.
std::unique_ptr<LtStep> make_step(Builder& builder, const Product& p, const Types& types, bool as_bias,
                                  const Beside& beside) {
  const CublasLtApi& lt = libraries().lt;
  const auto a = see(p.a), b = see(p.b), c = see(p.c);
  const std::optional<Seen> addend = p.addend && !as_bias ? see(*p.addend) : c;
  if (!a || !b || !c || !addend || addend->operation != kLtNormal || c->operation != kLtNormal)
    return nullptr;
  Told told;
  auto step = std::make_unique<LtStep>();
  step->handle = per_context<Handle>(builder.device());
  LAZYT_LT(cublasLtMatmulDescCreate, step->description.out(lt.cublasLtMatmulDescDestroy), told(types.compute),
           told(types.scale));
  auto set = [&](LtMatmulDescAttribute which, const auto& value) {
    LAZYT_LT(cublasLtMatmulDescSetAttribute, step->description.get(), told(which), &told(value), sizeof value);
  };
  // The heuristic reads no more of an address than how it is aligned.
  auto point = [&](LtMatmulDescAttribute which, const Tensor& t) {
    const uint32_t alignment = alignment_of(builder, t);
    set(which, reinterpret_cast<const void*>(static_cast<uintptr_t>(alignment)));
    step->promises.emplace_back(t, alignment);
  };
  set(kLtTransA, static_cast<int32_t>(b->operation));
  set(kLtTransB, static_cast<int32_t>(a->operation));
  step->a = p.a, step->b = p.b, step->c = p.c, step->addend = p.addend && !as_bias ? *p.addend : p.c;
  if (as_bias) step->vector = *p.addend;
  if (beside.sum) step->vector = *beside.sum;
  step->aux = beside.aux;
  const uint32_t epilogue = as_bias ? (beside.epilogue & ~uint32_t{kLtDefault}) | kLtBias : beside.epilogue;
  if (epilogue != kLtDefault) set(kLtEpilogueKind, epilogue);
  if (step->vector) point(kLtBiasPointer, *step->vector);
  if (step->aux) {
    point(kLtAuxPointer, *step->aux);
    set(kLtAuxLeading, beside.aux_leading);
  }
  const int64_t batch = told(size(p.c, 0));
  for (const Seen* seen : {&*a, &*b, &*addend, &*c}) told.matrix(*seen);
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
    LAZYT_LT(cublasLtMatmulPreferenceSetAttribute, preference.get(), told(which), &told(value), sizeof value);
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
  told(types.data);
  const std::lock_guard lock(step->handle->mutex);
  const auto [known, is_new] = step->handle->known.try_emplace(told.text());
  if (is_new) {
    LtHeuristic best{};
    int found = 0;
    const LtStatus status = lt.cublasLtMatmulAlgoGetHeuristic(
        step->handle->handle, step->description.get(), step->left.get(), step->right.get(), step->added.get(),
        step->result.get(), preference.get(), 1, &best, &found);
    if (!status && found && !best.status) known->second = best;
  }
  if (!known->second) return nullptr;
  step->algorithm = known->second->algorithm;
  step->workspace_bytes = known->second->workspace_bytes;
  step->text = "cublasLt " + memory_type(p.c.dtype) + " " + std::to_string(batch) + "x" +
               std::to_string(size(p.c, 1)) + "x" + std::to_string(size(p.c, 2)) + "x" +
               std::to_string(size(p.a, 2)) + (as_bias ? " bias" : "") + beside.name;
  return step;
}

// The same with an addend as the library takes it. null and nothing added if it takes none.
std::unique_ptr<LtStep> find_step(Builder& b, const Product& p, const Types& types, const Beside& beside) {
  std::unique_ptr<LtStep> step;
  const bool is_bias = p.addend && is_number(p.alpha, 1) && is_number(p.beta, 1) &&
                       stride_or(*p.addend, 0, 0) == 0 && stride_or(*p.addend, 1, 0) == 0 &&
                       stride_or(*p.addend, 2, 1) == 1;
  if (is_bias) step = make_step(b, p, types, true, beside);
  if (!step && p.addend && (!see(*p.addend) || see(*p.addend)->operation != kLtNormal)) {
    if (beside.epilogue != kLtDefault) return nullptr;  // in two steps it would be no better
    // An addend that is broadcast becomes what the result begins as.
    Product whole = p;
    whole.addend = p.c;
    step = make_step(b, whole, types, false, beside);
    if (step) b.copy(*p.addend, p.c);
  } else if (!step) {
    step = make_step(b, p, types, false, beside);
  }
  return step;
}

void add_step(Builder& b, std::unique_ptr<LtStep> step, const Product& p, const Beside& beside) {
  std::vector<StorageId> reads = {p.a.storage, p.b.storage}, writes = {p.c.storage};
  if (step->addend.storage != p.c.storage || p.addend) reads.push_back(step->addend.storage);
  if (beside.sum) writes.push_back(beside.sum->storage);
  else if (step->vector) reads.push_back(step->vector->storage);
  if (beside.aux) (beside.writes_aux ? writes : reads).push_back(beside.aux->storage);
  if (step->workspace_bytes) {
    step->workspace = b.scratch(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(step->workspace_bytes)});
    writes.push_back(step->workspace.storage);
  }
  b.add(std::move(step), reads, writes);
}

// ---- epilogues

// The tensor as [rows, columns] if its rows lie at a distance that the library takes.
std::optional<Tensor> as_rows(const Tensor& t) {
  const auto out = toolkit::join_front(t, 1);
  if (!out || stride_or(*out, 1, 1) != 1) return std::nullopt;
  const int64_t leading = stride_or(*out, 0, size(*out, 1));
  return leading % 8 == 0 && leading >= size(*out, 1) ? out : std::nullopt;
}

// Whether t's rows, summed, are those of side k of the product: of a its columns, of b its rows.
bool is_side(const Tensor& t, const Tensor& side, size_t k) {
  const auto rows = toolkit::join_front(t, 1);
  return rows && rows->storage == side.storage && rows->layout.offset == side.layout.offset && size(side, 0) == 1 &&
         size(*rows, 0) == size(side, k) && size(*rows, 1) == size(side, 3 - k) &&
         stride_or(*rows, 0, 0) == stride_or(side, k, 0) && stride_or(*rows, 1, 0) == stride_or(side, 3 - k, 0);
}

// What may be asked for, the best first. `product`: where the result goes if it is not what the activation answers.
std::vector<Beside> choices(Builder& b, const Epilogue& e, const Product& p) {
  using Kind = Epilogue::Kind;
  std::vector<Beside> out;
  const int64_t m = size(p.c, 1), n = size(p.c, 2);
  switch (e.kind) {
    case Kind::kRelu:
      if (e.keeps) {
        const int64_t leading = (n + 127) / 128 * 128;
        out.push_back({kLtRelu | kLtAux, b.scratch(LAZYT_DTYPE_UINT8, {m * leading / 8}), leading, true, {}, " relu mask"});
      }
      out.push_back({kLtRelu, {}, 0, false, {}, " relu"});
      break;
    case Kind::kGelu:
      if (!e.keeps) out.push_back({kLtGelu, {}, 0, false, {}, " gelu"});
      if (e.keeps) out.push_back({kLtGelu | kLtAux, p.c, n, true, {}, " gelu kept"});
      break;
    case Kind::kReluGradient:
      if (e.forward->mask) out.push_back({kLtReluGradient, *e.forward->mask, (n + 127) / 128 * 128, false, {}, " relu gradient"});
      break;
    case Kind::kGeluGradient:
      if (const auto saved = as_rows(b.tensor(e.saved)))
        out.push_back({kLtGeluGradient, *saved, stride_or(*saved, 0, n), false, {}, " gelu gradient"});
      break;
    case Kind::kWindow:
    case Kind::kChain:
    case Kind::kNorm:
    case Kind::kLoss:
    case Kind::kLookup:
    case Kind::kParts:
    case Kind::kNone:
      break;
  }
  if (e.sum == LAZYT_NONE) return out;
  auto sum = [&] { return e.sum_place ? *e.sum_place : b.make_dense(b.program.nodes()[e.sum].results); };
  if (e.kind != Kind::kNone) {
    if (out.empty()) return out;
    Beside with = out.front();
    with.epilogue |= kLtSum, with.sum = sum(), with.name += " sum";
    out.insert(out.begin(), std::move(with));
    return out;
  }
  // Our a is the library's b.
  const Tensor summed = b.tensor(Builder::value_of(b.program.args(b.program.nodes()[e.sum])[0]));
  if (is_side(summed, p.a, 2)) out.push_back({kLtSumOfB, {}, 0, false, sum(), " sum of a"});
  else if (is_side(summed, p.b, 1)) out.push_back({kLtSumOfA, {}, 0, false, sum(), " sum of b"});
  return out;
}

bool add_with_epilogue(Builder& b, const Product& product, const Types& types, Epilogue& e) {
  if (size(product.c, 0) != 1) return false;
  for (const Beside& beside : choices(b, e, product)) {
    Product p = product;
    if (e.activation != LAZYT_NONE)
      p.c = reshaped(b.make_dense(b.program.nodes()[e.activation].results), p.c.dims(), p.c.strides());
    auto step = find_step(b, p, types, beside);
    if (!step) continue;
    add_step(b, std::move(step), p, beside);
    e.activated = e.activation != LAZYT_NONE;
    e.summed = beside.sum.has_value();
    if (e.kind == Epilogue::Kind::kRelu) e.mask = beside.aux;
    return true;
  }
  return false;
}

}  // namespace

bool add_library_product(Builder& b, const Product& product, Epilogue* epilogue) {
  if (!libraries().cublaslt) return false;
  const auto types = types_for(product.c.dtype, b.flags() & LAZYT_COMPILE_TF32);
  if (!types || size(product.c, 0) > INT32_MAX) return false;
  const Current current(*b.device().context);
  Product p = product;
  if (!see(p.a)) p.a = b.dense(p.a);
  if (!see(p.b)) p.b = b.dense(p.b);
  if (epilogue && add_with_epilogue(b, p, *types, *epilogue)) return true;
  auto step = find_step(b, p, *types, {});
  if (!step) return false;
  add_step(b, std::move(step), p, {});
  return true;
}

}  // namespace lazyt::cuda
