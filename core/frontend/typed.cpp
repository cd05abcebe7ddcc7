#include "frontend/typed.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/op_registration/infer_schema.h>

#include "frontend/encode.h"
#include "frontend/expected.h"
#include "frontend/history.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {
namespace {

Replay replay_call(const TorchOp& op, std::span<const TypedArg> args, ThreadState& thread) {
  return C10_LIKELY(encode(op, args, thread.call)) ? replay(thread) : Replay::kUnknown;
}

template <class Signature>
class Typed;

template <class Result, class... Args>
class Typed<Result(Args...)> final : public c10::OperatorKernel {
 public:
  explicit Typed(TorchOp& op) : op_(op) {}

  Result operator()(Args... args) {
    ThreadState& thread = thread_state();
    Replay outcome = replay_expected(op_, thread, args...);
    if (C10_UNLIKELY(outcome == Replay::kUnknown)) {
      const TypedArg typed[] = {TypedArg(args)...};
      outcome = replay_call(op_, typed, thread);
    }
    if (C10_UNLIKELY(outcome == Replay::kUnknown)) return boxed(args...);
    if constexpr (std::is_same_v<Result, at::Tensor>) return finish(outcome, std::move(thread.fresh[0]));
    else if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) return finish(outcome, std::exchange(thread.fresh, {}));
    else if constexpr (requires { std::tuple_size<Result>::value; }) {
      std::vector<at::Tensor>& fresh = thread.fresh;
      return [&]<size_t... i>(std::index_sequence<i...>) {
        return finish(outcome, Result(std::move(fresh[i])...));
      }(std::make_index_sequence<std::tuple_size_v<Result>>{});
    } else if constexpr (std::is_same_v<Result, void>) count(first(args...)), finish(outcome, 0);
    else return finish<at::Tensor&>(outcome, first(args...));
  }

 private:
  template <class R>
  static R finish(Replay outcome, R&& result) {
    if (C10_UNLIKELY(outcome > Replay::kKnown)) look_up(thread_state(), outcome);
    return std::forward<R>(result);
  }

  void count(at::TensorList written) const {
    if (!is_uncounted_write(op_)) return;
    for (const at::Tensor& t : written) count_write(t);
  }

  template <class First, class... Rest>
  static First& first(First& f, Rest&...) {
    return f;
  }

  Result boxed(Args... args) {
    // As under PyTorch's kernel for autograd; a write is still to be counted.
    const c10::impl::ExcludeDispatchKeyGuard below(op_.op.writes() ? c10::autograd_dispatch_keyset : c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    torch::jit::Stack stack = c10::impl::boxArgs<Args...>(args...);
    trace_call(op_, &stack);
    if constexpr (std::is_reference_v<Result>) return first(args...);
    else if constexpr (!std::is_void_v<Result>) return c10::impl::PopResult<Result>::call(stack);
  }

  TorchOp& op_;
};

// Whether the schema's types are those of a C++ signature; what it writes is the caller's to look at.
template <class Signature>
bool fits(const c10::FunctionSchema& schema) {
  static const c10::FunctionSchema ours = c10::inferFunctionSchemaFlattenedReturns<Signature>();
  auto same = [](const std::vector<c10::Argument>& a, const std::vector<c10::Argument>& b) {
    return std::ranges::equal(a, b, [](const c10::Argument& x, const c10::Argument& y) { return *x.real_type() == *y.real_type(); });
  };
  return same(schema.arguments(), ours.arguments()) && same(schema.returns(), ours.returns());
}

template <class Signature>
bool try_register(TorchOp& op) {
  if (!fits<Signature>(op.handle.schema())) return false;
  try {
    register_kernel<Signature>(op.handle, c10::DispatchKey::PrivateUse1, std::make_unique<Typed<Signature>>(op));
    if (op.handle.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView)) pass_autograd<Signature>(op.handle, redispatched<Signature>(op.handle));
    else pass_autograd<Signature>(op.handle, [typed = Typed<Signature>(op)](c10::DispatchKeySet, auto&&... args) mutable -> decltype(auto) { return typed(args...); });
  } catch (const c10::Error&) {  // a list is a TensorList to some kernels, an ITensorListRef to others
    return false;
  }
  return true;
}

template <class... Signatures>
bool try_all(TorchOp& op) {
  return (try_register<Signatures>(op) || ...);
}

}  // namespace

bool register_typed(TorchOp& op) {
  if (!op.recordable || op.op.random || op.has_out || op.element_numbers || op.masks_count || op.takes_cpu || op.copies_storage || one_by_one()) return false;
  using T = const at::Tensor&;
  using N = const at::Scalar&;
  using L = at::TensorList;
  using O = const std::optional<at::Tensor>&;
  using Tensor = at::Tensor;
  const auto& args = op.op.args;
  if (args.empty()) return false;
  if (!op.op.writes())
    return try_all<Tensor(T), Tensor(T, T), Tensor(T, N), Tensor(T, T, N), Tensor(T, T, T), Tensor(T, T, T, N), Tensor(T, T, T, N, N),
                   Tensor(T, T, int64_t), Tensor(T, T, T, int64_t), Tensor(T, T, O), std::tuple<Tensor, Tensor, Tensor>(T, T, T, std::array<bool, 3>), Tensor(T, int64_t, bool), Tensor(T, std::optional<at::ScalarType>), Tensor(T, T, int64_t, at::ScalarType),
                   Tensor(T, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>), Tensor(T, std::string_view), Tensor(T, T, std::string_view),
                   std::tuple<Tensor, Tensor, Tensor>(T, c10::SymIntArrayRef, O, O, double), Tensor(T, T, c10::SymInt, bool, bool),
                   std::tuple<Tensor, Tensor>(T, T, T, double, bool, O, std::optional<double>),
                   Tensor(L, int64_t), Tensor(const at::ITensorListRef&, int64_t), std::vector<Tensor>(L), std::vector<Tensor>(L, N), std::vector<Tensor>(L, L), std::vector<Tensor>(L, L, N)>(op);
  const bool only_first = args[0].written && std::none_of(args.begin() + 1, args.end(), [](const trace::OpArg& a) { return a.written; });
  if (!only_first) return false;
  using W = Tensor&;
  if (op.returns == std::vector<int>{0})
    return try_all<W(W), W(W, T), W(W, N), W(W, T, N), W(W, T, T), W(W, T, T, N)>(op);
  return try_all<void(L), void(L, N), void(L, L), void(L, L, N), void(L, L, L, N)>(op);
}

}  // namespace lazyt::frontend
