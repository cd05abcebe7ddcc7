#include "frontend/shapes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/hash.h"
#include "cache/lru.h"
#include "frontend/arguments.h"
#include "frontend/dtype.h"
#include "frontend/overlap.h"
#include "frontend/probe.h"
#include "frontend/storage.h"

namespace lazyt::frontend {
namespace {

constexpr size_t kCacheSize = 1 << 14;

struct Entry {
  const trace::Op* op;
  trace::Words key;
  ShapeResult result;
};

std::mutex cache_mutex;
auto& cache() {
  static auto* c = new cache::Lru<base::Hash128, Entry, base::Hash128::Hasher>(kCacheSize);
  return *c;
}

void put(trace::Words& out, const at::Tensor& t) {
  if (!t.defined()) return out.push_back(0);
  TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided && from_torch(t.scalar_type()) != LAZYT_DTYPE_INVALID, "lazyt: a result of layout ",
                              t.layout(), " and dtype ", t.scalar_type(), " cannot live on the lazyt device; call the operator on the CPU");
  base::Meta meta = meta_of(t);
  // Storage is dense: what a kernel returns expanded or with holes is laid out row-major.
  if (!meta.is_dense()) meta.strides = base::contiguous_strides(meta.dims);
  trace::put_meta(out, meta);
}

ShapeResult compute(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  ShapeResult r;
  std::optional<Answer> answer = probe(op, args);
  if (!answer) {
    r.host_reason = "it has no meta kernel";
    return r;
  }
  std::vector<at::Tensor> fresh;
  for (size_t i = 0; i < op.returns.size(); i++)
    if (op.returns[i] < 0) collect(fresh, answer->results[i]);
  r.fresh = static_cast<uint32_t>(fresh.size());
  // The meta kernel answers row-major for every layout; CPU and GPU kernels keep the input's.
  if (op.op.name == "aten::convolution" && !answer->from_eager && args[0].toTensor().dim() == fresh[0].dim()) {
    auto format = args[0].toTensor().suggest_memory_format();
    if (format == at::MemoryFormat::Contiguous) format = args[1].toTensor().suggest_memory_format();
    fresh[0] = at::empty(fresh[0].sizes(), fresh[0].options().memory_format(format));
  }
  for (const at::Tensor& t : fresh) put(r.metas, t);
  std::vector<at::Tensor> all = fresh;
  for (const c10::IValue& arg : args)
    if (arg.isTensor() || arg.isTensorList() || arg.isOptionalTensorList()) collect(all, arg);
  if (std::ranges::any_of(all, [](const at::Tensor& t) { return t.defined() && static_cast<size_t>(t.dim()) > base::kMaxRank; }))
    r.host_reason = "a tensor has more dims than one in a program";
  // Meta kernels do not ask.
  if (op.op.name == "aten::multinomial") TORCH_CHECK(args[0].toTensor().size(-1) <= int64_t{1} << 24, "number of categories cannot exceed 2^24");

  // What goes into the written tensors: the functional results, or what the tensors are.
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < op.op.args.size(); i++) {
    if (!op.op.args[i].written) continue;
    const c10::IValue& after = answer->args[i];
    std::vector<at::Tensor> before;
    const size_t first = written.size();
    collect(before, args[i]), collect(written, after);
    for (size_t k = 0; k < before.size(); k++) {
      if (!before[k].defined() || before[k].sizes() == written[first + k].sizes()) continue;
      if (op.writes_itself || !op.op.args[i].out) r.host_reason = "it resizes what it writes";
      else r.resized.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(k), written[first + k].sizes().vec(), written[first + k].strides().vec()});
    }
    if (shares_elements(args[i])) r.host_reason = "it writes elements that share memory";
  }
  std::erase_if(written, [](const at::Tensor& t) { return !t.defined(); });
  const std::vector<at::Tensor>& pure = answer->functional;
  if (!pure.empty() && pure.size() == fresh.size() + written.size()) {
    for (size_t i = 0; i < written.size(); i++) {
      const at::Tensor& result = pure[r.fresh + (op.op.written_order.empty() ? i : op.op.written_order[i])];
      // Pointwise kernels compute as they would without out= and convert; others may compute in out's dtype.
      if (op.has_out && op.overlap == OverlapRule::kNone && result.scalar_type() != written[i].scalar_type()) r.host_reason = "its out= has another dtype";
      if (result.sizes() != written[i].sizes()) r.host_reason = op.has_out ? "eager resizes its out= again, having read it" : "it resizes what it writes";
      written[i] = result;
    }
  }
  for (const at::Tensor& t : written) put(r.metas, t);
  return r;
}

// Which operands share a storage, and which are one tensor: whether a write is refused depends on it.
void put_aliases(trace::Words& key, const std::vector<trace::Storage*>& operands, c10::ArrayRef<c10::IValue> args) {
  if (operands.size() < 2) return;
  const size_t before = key.size();
  std::unordered_map<const trace::Storage*, uint64_t> first;
  for (size_t i = 0; i < operands.size(); i++)
    if (auto [it, fresh] = first.try_emplace(operands[i], i); !fresh) key.push_back(i << 32 | it->second);
  if (key.size() == before) return;
  for (size_t i = 0; i < args.size(); i++)
    for (size_t j = 0; j < i; j++)
      if (args[i].isTensor() && args[j].isTensor() && args[i].toTensor().is_same(args[j].toTensor())) key.push_back(~(i << 32 | j));
}

}  // namespace

ShapeResult infer(const TorchOp& op, const trace::Call& call, c10::ArrayRef<c10::IValue> args) {
  trace::Words key(call.signature.begin(), call.signature.end());
  put_aliases(key, call.operands, args);
  key.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  base::Hash128 hash = base::hash128(key.data(), key.size() * 8, reinterpret_cast<uint64_t>(&op.op));
  {
    std::lock_guard lock(cache_mutex);
    Entry* e = cache().get(hash);
    if (e && e->op == &op.op && e->key == key) return e->result;
  }
  static base::Counter& misses = base::counter("ShapeCacheMiss");
  misses.add();
  ShapeResult result = compute(op, args);
  give_back_results();
  std::lock_guard lock(cache_mutex);
  cache().put(hash, {&op.op, std::move(key), result});
  return result;
}

}  // namespace lazyt::frontend
