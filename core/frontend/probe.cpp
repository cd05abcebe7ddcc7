#include "frontend/probe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "base/env.h"
#include "frontend/arguments.h"
#include "frontend/errors.h"
#include "frontend/metas.h"
#include "frontend/overlap.h"
#include "frontend/storage.h"
#include "ir/registry.h"

namespace lazyt::frontend {
namespace {

using torch::jit::Stack;

constexpr uint64_t kMostBytesForWords = 16 << 20;  // to hear eager's words for an error that a meta kernel found

// A kernel that reads so much takes a few ms, once for a signature; what computes more gets less.
uint64_t max_probe_bytes(const TorchOp& op) {
  static const auto n = static_cast<uint64_t>(check(base::env_int("LAZYT_PROBE_BYTES", 1 << 24, 0, 1 << 30)));
  return is_contraction(op) ? n / 64 : n;
}

Stack on_meta(c10::ArrayRef<c10::IValue> args) {
  return replace(args, at::kMeta,
                 [](const at::Tensor& t) { return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta)); });
}

constexpr int kIdentity = 2;  // a fill: matrices that can be inverted

// What operands are filled with at first. PyTorch before 2.13 lets LAPACK follow pivots of zero out of memory.
int first_fill(const TorchOp& op) { return op.op.name == "aten::linalg_ldl_solve" ? 1 : 0; }

// Zeros. Many of them are pages that only a write makes: what a kernel reads takes no memory, and what it leaves goes back at once,
// where the C library would keep it.
at::DataPtr zeroed(size_t bytes) {
  constexpr size_t kMapped = 64 << 10;
  if (bytes >= kMapped) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data != MAP_FAILED) return c10::InefficientStdFunctionContext::makeDataPtr(data, [bytes](void* p) { munmap(p, bytes); }, at::kCPU);
  }
  at::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
  if (bytes) std::memset(data.get(), 0, bytes);
  return data;
}

// Operands that share a storage share one here, too, so that eager's kernel sees what overlaps; one that occurs twice is
// one: without elements, it overlaps itself and nothing else.
Stack on_cpu(c10::ArrayRef<c10::IValue> args, int fill) {
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors;
  return replace(args, at::kCPU, [&](const at::Tensor& t) {
    at::Tensor& same = tensors[t.unsafeGetTensorImpl()];
    if (same.defined()) return same;
    const c10::StorageImpl* impl = t.storage().unsafeGetStorageImpl();
    auto [it, fresh] = storages.try_emplace(impl);
    if (fresh) {
      const size_t bytes = impl->nbytes();
      it->second = c10::Storage(c10::Storage::use_byte_size_t(), bytes, zeroed(bytes), c10::GetCPUAllocator(), /*resizable=*/true);
    }
    auto cpu = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(it->second), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    cpu.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    if (fill == 1) cpu.fill_(1);
    if (fill == kIdentity && cpu.dim() >= 2) cpu.diagonal(0, -2, -1).fill_(1);
    return same = std::move(cpu);
  });
}

// Bytes that on_cpu would take, or of an expanded operand those that a kernel would go over.
uint64_t bytes_of(c10::ArrayRef<c10::IValue> args) {
  std::unordered_map<const c10::StorageImpl*, uint64_t> storages;
  replace(args, at::kCPU, [&](const at::Tensor& t) {
    uint64_t& bytes = storages[t.storage().unsafeGetStorageImpl()];
    bytes = std::max<uint64_t>({bytes, t.storage().nbytes(), t.nbytes()});
    return t;
  });
  uint64_t sum = 0;
  for (const auto& [storage, bytes] : storages) sum += bytes;
  return sum;
}

std::vector<c10::IValue> functional_args(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  std::vector<c10::IValue> out;
  auto written = [&] {
    size_t i = 0;
    while (!op.op.args[i].out) i++;
    return args[i].toTensor().scalar_type();
  };
  for (int from : op.op.functional_args) {
    switch (from) {
      case trace::kOutDType: out.emplace_back(written()); break;
      case trace::kOutLayout: out.emplace_back(at::kStrided); break;
      case trace::kOutDevice: out.emplace_back(*device_of(args)); break;
      case trace::kOutPinned: out.emplace_back(); break;
      default: out.push_back(args[static_cast<size_t>(from)]);
    }
  }
  for (size_t i = 0; i < args.size() && op.op.functional_args.empty(); i++)
    if (!op.op.args[i].out) out.push_back(args[i]);
  return out;
}

std::atomic<uint64_t> bytes_of_results = 0;  // of eager's, that may lie in the heap

template <class Make>
Answer ask(const TorchOp& op, c10::ArrayRef<c10::IValue> args, Make&& make) {
  Answer a;
  a.args = make(args);
  a.results = a.args;
  op.handle.callBoxed(a.results);
  if (op.functional) {
    Stack stack = make(functional_args(op, args));
    op.functional->callBoxed(stack);
    for (const c10::IValue& v : stack) collect(a.functional, v);
  }
  return a;
}

// With a generator of its own: eager must not draw from the process's.
Stack with_generator(const TorchOp& op, c10::ArrayRef<c10::IValue> given) {
  Stack args = given.vec();
  for (size_t i = 0; i < args.size(); i++)
    if (op.op.args[i].type == trace::ArgType::kGenerator) args[i] = at::make_generator<at::CPUGeneratorImpl>();
  return args;
}

Answer ask_eager(const TorchOp& op, c10::ArrayRef<c10::IValue> given, int fill) {
  const Stack args = with_generator(op, given);
  Answer a = ask(op, args, [&](c10::ArrayRef<c10::IValue> v) { return on_cpu(v, fill); });
  a.from_eager = true;
  std::vector<at::Tensor> made;
  for (const c10::IValue& v : a.results) collect(made, v);
  for (const at::Tensor& t : made)
    if (t.defined() && t.has_storage()) bytes_of_results += t.storage().nbytes();  // sparse ones have none
  return a;
}

Answer ask_meta(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  Answer a;
  a.args = on_meta(args);
  if (auto results = contraction_results(op, a.args)) {
    a.results = std::move(*results);
    return a;
  }
  a = ask(op, args, on_meta);
  check_overlap(op, args);
  return a;
}

// Somebody's code: it may do more than compute.
bool is_custom(const TorchOp& op) { return op.op.name.rfind("aten::", 0) != 0; }

// Whether eager's verdict on constants is its verdict on the call.
bool speaks_for_all_values(const TorchOp& op) {
  if (is_custom(op)) return false;
  if (op.op.name.find("segment_reduce") != std::string::npos) return false;  // its lengths must add up
  // A random operator must not draw from the process's CPU generator: it gets one of its own.
  return !op.op.random || std::any_of(op.op.args.begin(), op.op.args.end(), [](const trace::OpArg& a) { return a.type == trace::ArgType::kGenerator; });
}

// The gradient of 1x1 weights that step over pixels, where PyTorch's oneDNN writes past it: channels lie last, and there are fewer
// of them than a vector has lanes.
bool steps_over_pixels_of_few_channels(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  if (op.op.name != "aten::convolution_backward" || !args[10].toBoolList()[1]) return false;
  constexpr int64_t kMostLanes = 16;
  const at::Tensor& weight = args[2].toTensor();
  return weight.dim() > 2 && weight.size(1) < kMostLanes && c10::multiply_integers(weight.sizes().slice(2)) == 1 &&
         std::ranges::any_of(args[4].toIntVector(), [](int64_t s) { return s > 1; });
}
// Calls on which PyTorch's kernels for the CPU write where they must not: also its oneDNN's gradient of 3-d weights that step through
// a depth padded by 3 or more, and group norm's of channels that lie last, into a gradient of the input that nobody wants.
bool breaks_eager(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  if (op.op.name == "aten::native_group_norm_backward") return !args[9].toBoolList()[0];
  if (steps_over_pixels_of_few_channels(op, args)) return true;
  if (op.op.name != "aten::convolution_backward" || args[1].toTensor().dim() != 5) return false;
  const auto stride = args[4].toIntVector(), padding = args[5].toIntVector();  // one number: for all axes
  return !stride.empty() && stride[0] > 1 && !padding.empty() && padding[0] > 2;
}

// "pow" not implemented for 'Float8_e5m2'
bool lacks_dtype_of_accelerators(const char* said) {
  constexpr const char* kMark = "not implemented for '";
  const char* mark = std::strstr(said, kMark);
  if (!mark) return false;
  const std::string_view dtype = mark + std::strlen(kMark);
  return dtype.starts_with("Float8") || dtype.starts_with("Float4") || dtype.starts_with("ComplexHalf") || dtype.starts_with("UInt");
}

// Calls that answer for x[indices] = values, of which only the number of elements set in masks is open: any indices fit
// beside one element, a tensor without elements takes none. One value fits any number of them. A mask without dims or
// elements leaves nothing open.
std::vector<std::vector<c10::IValue>> with_known_masks(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  const at::Tensor &self = args[0].toTensor(), &values = args[2].toTensor();
  std::vector<at::Tensor> indices;
  collect(indices, args[1]);
  std::erase_if(indices, [](const at::Tensor& t) { return !t.defined(); });
  const auto is_open = [](const at::Tensor& t) { return is_mask(t) && t.dim() > 0 && t.numel() > 0; };
  const bool fills = values.numel() == 1 && indices.size() == 1;  // eager takes the value as a number, whatever is set
  if (fills || std::ranges::none_of(indices, is_open)) return {args.vec()};
  if (op.op.args[0].written) {
    at::assert_no_overlap(self, values);
    for (const at::Tensor& t : indices) at::assert_no_overlap(self, t);
  }
  std::vector<std::vector<c10::IValue>> out;
  for (int64_t count : {1, 0}) {
    std::vector<c10::IValue>& fitted = out.emplace_back(args.vec());
    fitted[1] = map_tensors(args[1], [&](const at::Tensor& t) {
      if (!t.defined() || !is_open(t)) return t;
      at::Tensor mask = at::zeros(t.sizes(), t.options().device(at::kCPU));
      mask.view(-1).narrow(0, 0, count).fill_(1);
      return mask;
    });
    if (values.numel() == 1) continue;
    fitted[2] = at::zeros({}, values.options().device(at::kCPU));
    fitted[3] = true;  // accumulate: else that one were taken as a number, too
  }
  return out;
}

// Many of PyTorch's meta kernels are written in Python. In a process without it eager answers for operands of any size,
// if the operator's shapes depend on shapes alone: running it on the host would cost as much, at every call.
std::optional<Answer> without_meta_kernel(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  if (op.op.lowering == trace::Lowering::kDropout) {  // eager would draw from the CPU's generator
    Answer a;
    a.args = on_meta(args);
    const at::Tensor& x = a.args[0].toTensor();
    a.results = {at::empty_like(x), at::empty_like(x, x.options().dtype(at::kBool))};
    return a;
  }
  if (!speaks_for_all_values(op) || !ir::find_op(op.op.functional_name, op.op.functional_overload)) return std::nullopt;
  try {
    return ask_eager(op, args, 0);
  } catch (const c10::Error&) {  // perhaps about zeros alone; on the host it is about the values
    return std::nullopt;
  }
}

// Eager's answer for constants; its error, if that is about shapes and dtypes. None: what it raises is about values.
std::optional<Answer> ask_eager_of_all_values(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  // What zeros and ones both raise is about shapes and dtypes; a singular matrix is about zeros.
  std::exception_ptr said;
  bool singular = false;
  for (int fill = first_fill(op); fill <= kIdentity; fill++) {
    if (fill == kIdentity && !singular) break;
    try {
      return ask_eager(op, args, fill);
    } catch (const c10::NotImplementedError& e) {
      // The CPU's kernel lacks the dtype; of those that are made for accelerators the backend may have more.
      if (lacks_dtype_of_accelerators(e.what_without_backtrace())) return std::nullopt;
      if (!said) said = std::current_exception();
    } catch (const c10::LinAlgError&) {
      singular = true;
    } catch (...) {
      if (!said) said = std::current_exception();
    }
  }
  if (said && !singular) std::rethrow_exception(said);
  return std::nullopt;
}

// Large operands, on the CPU and small: sizes above kSmall become others that are as equal and as ordered, numbers that name such a
// size too. Without what overlaps.
Stack likeness(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  constexpr int64_t kSmall = 12;
  std::map<int64_t, int64_t> sizes;
  replace(args, at::kCPU, [&](const at::Tensor& t) {
    for (int64_t s : t.sizes())
      if (s > kSmall) sizes.emplace(s, 0);
    return t;
  });
  int64_t next = kSmall;
  for (auto& [size, small] : sizes) small = next += kSmall;
  const auto as_small = [&](int64_t s) {
    const auto it = sizes.find(s);
    return it == sizes.end() ? s : it->second;
  };
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors;
  Stack out = replace(args, at::kCPU, [&](const at::Tensor& t) {
    at::Tensor& small = tensors[t.unsafeGetTensorImpl()];
    if (small.defined()) return small;
    std::vector<int64_t> dims;
    for (int64_t s : t.sizes()) dims.push_back(as_small(s));
    const at::Tensor dense = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
    const at::Tensor order = at::empty_like(dense, dense.options());  // strides of its own where t has holes or is expanded
    std::vector<int64_t> axes(t.dim()), strides(t.dim());
    std::iota(axes.begin(), axes.end(), 0);
    std::ranges::stable_sort(axes, [&](int64_t a, int64_t b) { return order.stride(a) < order.stride(b); });
    int64_t step = 1;
    for (int64_t a : axes) strides[a] = std::exchange(step, step * std::max<int64_t>(dims[a], 1));
    small = at::empty_strided(dims, strides, t.options().device(at::kCPU));
    return small.zero_();
  });
  for (size_t i = 0; i < out.size(); i++) {
    if (op.op.args[i].type == trace::ArgType::kInt && out[i].isInt()) out[i] = as_small(out[i].toInt());
    if (!out[i].isIntList()) continue;
    std::vector<int64_t> list = out[i].toIntVector();
    std::ranges::transform(list, list.begin(), as_small);
    out[i] = std::move(list);
  }
  return with_generator(op, out);
}

// Raises what eager refuses of operands that are too large to ask it about. Meta kernels let some of it pass: PyTorch has them for the
// shapes of calls that are right. Of a product or convolution that is asked without rows or images: nothing is computed.
void refuse_as_eager(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  static const auto& rows = *new std::unordered_map<std::string_view, std::vector<size_t>>{
      {"aten::mm", {0}}, {"aten::addmm", {0, 1}}, {"aten::linear", {0}}, {"aten::bmm", {0, 1}}, {"aten::baddbmm", {0, 1, 2}}, {"aten::convolution", {0}}};
  if (const auto without = rows.find(op.op.name); without != rows.end()) {
    std::vector<c10::IValue> fewer = args.vec();
    const at::Tensor& most = args[without->second.back()].toTensor();
    // Without any, kernels do not look at dtypes; with all, they do so first.
    const bool mixed = std::ranges::any_of(args, [&](const c10::IValue& v) { return v.isTensor() && v.toTensor().defined() && v.toTensor().scalar_type() != most.scalar_type(); });
    for (size_t i : without->second) {
      const at::Tensor& t = args[i].toTensor();
      if (!mixed && t.dim() >= 2 && t.size(0) == most.size(0)) fewer[i] = t.narrow(0, 0, 0);
    }
    ask_eager_of_all_values(op, fewer);
    return;
  }
  if (is_contraction(op)) return;
  try {
    Stack small = likeness(op, args);
    op.handle.callBoxed(small);
  } catch (...) {  // about what they are, or about what stands for them
    constexpr uint64_t kMostBytes = uint64_t{256} << 20;
    if (bytes_of(args) <= kMostBytes) ask_eager_of_all_values(op, args);
  }
}

std::optional<Answer> probe_as_given(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  const uint64_t bytes = bytes_of(args);
  const bool certain = speaks_for_all_values(op) && !breaks_eager(op, args), eager_first = certain && bytes <= max_probe_bytes(op);
  if (eager_first)
    if (auto answer = ask_eager_of_all_values(op, args)) return answer;
  const auto refuse = [&] {
    if (certain && !eager_first) refuse_as_eager(op, args);
  };
  try {
    Answer a = ask_meta(op, args);
    refuse();
    if (steps_over_pixels_of_few_channels(op, args)) a.results[1] = at::empty_like(args[2].toTensor(), at::kMeta);  // as eager
    return a;
  } catch (const c10::NotImplementedError&) {
    return without_meta_kernel(op, args);
  } catch (...) {
    if (is_custom(op)) return std::nullopt;  // none, or one that refuses: on the host the operator says why
    // Of products they have eager's words, which name the sizes.
    if (bytes > kMostBytesForWords && (!is_contraction(op) || op.op.name == "aten::convolution")) refuse();
    // Meta kernels that are written in Python word errors in their own way, and refuse a few calls that eager takes.
    if (eager_first || op.op.random || bytes > kMostBytesForWords || breaks_eager(op, args)) throw;
    return ask_eager(op, args, first_fill(op));
  }
}

}  // namespace

std::optional<Answer> probe(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  if (auto results = certain_results(op, args)) {
    Answer a;
    a.args = args.vec();
    a.results = *std::move(results);
    return a;
  }
  if (!op.masks_count || !has_mask(args)) return probe_as_given(op, args);
  std::exception_ptr said;
  for (const std::vector<c10::IValue>& known : with_known_masks(op, args)) {
    try {
      return probe_as_given(op, known);
    } catch (...) {
      if (!said) said = std::current_exception();
    }
  }
  std::rethrow_exception(said);
}

void give_back_results() {
  constexpr uint64_t kMuch = uint64_t{4} << 20;
  if (bytes_of_results < kMuch) return;
  bytes_of_results = 0;
#ifdef __GLIBC__
  (void)malloc_trim(0);
#endif
}

}  // namespace lazyt::frontend
