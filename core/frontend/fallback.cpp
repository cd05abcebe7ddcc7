#include "frontend/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/CPUFallback.h>

#include <atomic>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "base/counters.h"
#include "base/env.h"
#include "frontend/errors.h"
#include "frontend/random.h"
#include "frontend/storage.h"
#include "trace/session.h"

namespace lazyt::frontend {
namespace {

std::atomic<int> policy{-1};

void apply_policy(const TorchOp& op, const std::string& reason) {
  std::string name = op.op.name + (op.op.overload.empty() ? "" : "." + op.op.overload);
  switch (fallback_policy()) {
    case FallbackPolicy::kAllow: return;
    case FallbackPolicy::kDeny:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "lazyt: ", name, " would run on the host (", reason,
                                  "), and LAZYT_FALLBACK=deny forbids it; use an operator that the backend takes, "
                                  "another backend, or LAZYT_FALLBACK=allow");
    case FallbackPolicy::kWarn: {
      static std::mutex mutex;
      static auto* warned = new std::set<std::string>;
      std::lock_guard lock(mutex);
      if (warned->insert(name).second) TORCH_WARN("lazyt: ", name, " runs on the host: ", reason);
    }
  }
}

}  // namespace

FallbackPolicy fallback_policy() {
  int p = policy.load(std::memory_order_relaxed);
  if (p >= 0) return static_cast<FallbackPolicy>(p);
  std::string text = check(base::env_choice("LAZYT_FALLBACK", "allow"));
  p = text == "deny" ? 2 : text == "warn" ? 1 : 0;
  policy = p;
  return static_cast<FallbackPolicy>(p);
}

void set_fallback_policy(FallbackPolicy p) { policy = static_cast<int>(p); }

void call_on_host(TorchOp& op, torch::jit::Stack* stack, const std::string& reason) {
  apply_policy(op, reason);
  base::counter(op.op.name).add();
  // Random operators outside the opset draw from a CPU generator that our stream seeds.
  size_t count = op.op.args.size();
  for (size_t i = 0; i < count; i++) {
    if (op.op.args[i].type != trace::ArgType::kGenerator) continue;
    c10::IValue& v = torch::jit::peek(*stack, i, count);
    std::optional<at::Generator> ours;
    if (v.isGenerator()) ours = v.toGenerator();
    RandomState r = draw(ours, 1);
    auto cpu = at::make_generator<at::CPUGeneratorImpl>(r.seed ^ (r.offset * 0x9E3779B97F4A7C15ull));
    v = cpu;
  }
  at::native::cpu_fallback(op.handle, stack);
}

void check_backend_takes(TorchOp& op, trace::Call& call, const trace::Words& metas, uint32_t fresh) {
  if (C10_LIKELY(fallback_policy() == FallbackPolicy::kAllow)) return;
  std::string reason = check(trace::Session::get().refusal(op.op, call, metas, fresh));
  if (!reason.empty()) apply_policy(op, "the backend refuses it: " + reason);
}

}  // namespace lazyt::frontend
