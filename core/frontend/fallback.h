// Host fallback: operators that cannot be recorded, or that the policy looks at (LAZYT_FALLBACK).
#pragma once

#include <ATen/core/stack.h>

#include "frontend/schema.h"
#include "trace/recorder.h"

namespace lazyt::frontend {

enum class FallbackPolicy { kAllow, kWarn, kDeny };
FallbackPolicy fallback_policy();
void set_fallback_policy(FallbackPolicy policy);  // at run time; overrides LAZYT_FALLBACK

// Runs the call now, on CPU copies of its tensors, and puts the results back. Cuts the trace for what
// it needs. Counts "aten::<op>"; raises under deny.
void call_on_host(TorchOp& op, torch::jit::Stack* stack, const std::string& reason);

// For a call that can be recorded but that the backend may refuse: warns or raises as the policy says.
void check_backend_takes(TorchOp& op, trace::Call& call, const trace::Words& metas, uint32_t fresh);

}  // namespace lazyt::frontend
