#include "frontend/shapes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <mutex>

#include "base/hash.h"
#include "cache/lru.h"
#include "frontend/dtype.h"
#include "frontend/storage.h"

namespace lazyt::frontend {
namespace {

constexpr size_t kCacheSize = 1 << 14;

struct Entry {
  const trace::Op* op;
  trace::Words signature;
  ShapeResult result;
};

std::mutex cache_mutex;
auto& cache() {
  static auto* c = new cache::Lru<base::Hash128, Entry, base::Hash128::Hasher>(kCacheSize);
  return *c;
}

at::Tensor to_meta(const at::Tensor& t) {
  if (!is_lazy(t)) return t;  // CPU scalars stay: they decide dtypes
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
}

c10::IValue to_meta(const c10::IValue& v) {
  if (v.isTensor()) return to_meta(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const auto& e : v.toListRef()) out.push_back(to_meta(e.toTensor()));
    return out;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const auto& e : v.toListRef())
      out.push_back(e.isNone() ? std::nullopt : std::optional<at::Tensor>(to_meta(e.toTensor())));
    return out;
  }
  if (v.isDevice()) return c10::Device(at::kMeta);
  if (v.isGenerator()) return {};
  return v;
}

void put(trace::Words& out, const at::Tensor& t) {
  if (!t.defined()) return out.push_back(0);
  base::Meta meta = meta_of(t);
  // Storage is dense: what a kernel returns expanded or with holes is laid out row-major.
  if (!meta.is_dense()) meta.strides = base::contiguous_strides(meta.dims);
  trace::put_meta(out, meta);
}

void collect(std::vector<at::Tensor>& out, const c10::IValue& v) {
  if (v.isTensor()) out.push_back(v.toTensor());
  else if (v.isNone()) out.emplace_back();
  else for (const auto& e : v.toListRef()) out.push_back(e.isNone() ? at::Tensor() : e.toTensor());
}

// Meta kernels that are written in Python word errors in their own way, and refuse a few calls that eager takes:
// what eager says is what users know. Zeros of the operands' geometry are enough to hear it, where they are not
// large: the arguments on the CPU after the call, and its results, or eager's own error. Nothing if too large.
struct OnZeros {
  torch::jit::Stack args, results;
};

std::optional<OnZeros> ask_eager(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  constexpr int64_t kMost = 1 << 22;
  int64_t elements = 0;
  std::function<c10::IValue(const c10::IValue&)> to_cpu = [&](const c10::IValue& v) -> c10::IValue {
    auto zeros = [&](const at::Tensor& t) {
      if (!t.defined() || !is_lazy(t)) return t;
      elements += t.numel();
      if (elements > kMost) return at::Tensor();
      return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU)).zero_();
    };
    if (v.isTensor()) return zeros(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> out;
      for (const auto& e : v.toListRef()) out.push_back(zeros(e.toTensor()));
      return out;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> out;
      for (const auto& e : v.toListRef())
        out.push_back(e.isNone() ? std::nullopt : std::optional<at::Tensor>(zeros(e.toTensor())));
      return out;
    }
    if (v.isDevice()) return c10::Device(at::kCPU);
    if (v.isGenerator()) return {};
    return v;
  };
  OnZeros said;
  for (const auto& a : args) said.args.push_back(to_cpu(a));
  if (elements > kMost) return std::nullopt;
  said.results = said.args;
  op.handle.callBoxed(said.results);
  return said;
}

ShapeResult compute(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  ShapeResult r;
  torch::jit::Stack stack;
  for (const auto& a : args) stack.push_back(to_meta(a));
  torch::jit::Stack inputs = stack;
  bool eager_said = false;
  try {
    op.handle.callBoxed(stack);
  } catch (const c10::NotImplementedError&) {
    r.known = false;
    return r;
  } catch (...) {
    auto said = ask_eager(op, args);
    if (!said) throw;
    inputs = std::move(said->args);
    stack = std::move(said->results);
    eager_said = true;
  }
  std::vector<at::Tensor> fresh;
  for (size_t i = 0; i < op.returns.size(); i++)
    if (op.returns[i] < 0) collect(fresh, stack[i]);
  r.fresh = static_cast<uint32_t>(fresh.size());
  // The meta kernel answers row-major for every layout; CPU and GPU kernels keep the input's.
  if (op.op.name == "aten::convolution" && inputs[0].toTensor().dim() == fresh[0].dim()) {
    auto format = inputs[0].toTensor().suggest_memory_format();
    if (format == at::MemoryFormat::Contiguous) format = inputs[1].toTensor().suggest_memory_format();
    fresh[0] = at::empty(fresh[0].sizes(), fresh[0].options().memory_format(format));
  }
  for (const at::Tensor& t : fresh) put(r.metas, t);

  // What goes into the written tensors: the functional results, or what the tensors are.
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < op.op.args.size(); i++)
    if (op.op.args[i].written) {
      if (op.op.args[i].out && args[i].isTensor() && inputs[i].toTensor().sizes() != args[i].toTensor().sizes())
        r.resized.push_back({static_cast<uint32_t>(i), inputs[i].toTensor().sizes().vec(), inputs[i].toTensor().strides().vec()});
      collect(written, inputs[i]);
    }
  std::erase_if(written, [](const at::Tensor& t) { return !t.defined(); });
  if (op.functional && !written.empty() && !eager_said) {
    torch::jit::Stack pure;
    for (size_t i = 0; i < inputs.size(); i++)
      if (!op.op.args[i].out) pure.push_back(to_meta(args[i]));
    std::vector<at::Tensor> results;
    op.functional->callBoxed(pure);
    for (const auto& v : pure) collect(results, v);
    if (results.size() == fresh.size() + written.size()) written.assign(results.begin() + r.fresh, results.end());
  }
  for (const at::Tensor& t : written) put(r.metas, t);
  return r;
}

}  // namespace

const ShapeResult& infer(const TorchOp& op, const trace::Call& call, c10::ArrayRef<c10::IValue> args) {
  thread_local ShapeResult result;
  base::Hash128 key = base::hash128(call.signature.data(), call.signature.size() * 8, reinterpret_cast<uint64_t>(&op.op));
  {
    std::lock_guard lock(cache_mutex);
    Entry* e = cache().get(key);
    if (e && e->op == &op.op && e->signature == call.signature) return result = e->result;
  }
  static base::Counter& misses = base::counter("ShapeCacheMiss");
  misses.add();
  result = compute(op, args);
  std::lock_guard lock(cache_mutex);
  cache().put(key, {&op.op, call.signature, result});
  return result;
}

}  // namespace lazyt::frontend
