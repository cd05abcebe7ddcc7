#include "frontend/linear.h"

#include <ATen/ops/linear_backward_ops.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/library.h>

#include "frontend/history.h"
#include "frontend/registration.h"
#include "frontend/storage.h"

namespace lazyt::frontend {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Mask = std::array<bool, 3>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;  // of input, weight and bias
using c10::DispatchKey;
using torch::autograd::generated::LinearBackward0;

bool defined(const OptionalTensor& t) { return t && t->defined(); }
bool is_like(const Tensor& t, const Tensor& x) {
  return is_lazy(t) && t.scalar_type() == x.scalar_type() && t.unsafeGetTensorImpl()->device() == x.unsafeGetTensorImpl()->device();
}

// Shapes that fit, in memory order whose gradients lie row-major in eager, too, and are rounded as one addmm.
bool is_plain(const Tensor& x, const Tensor& w, const OptionalTensor& b) {
  if (!is_lazy(x) || !at::isFloatingType(x.scalar_type()) || !is_like(w, x) || x.dim() < 2 || w.dim() != 2) return false;
  const at::IntArrayRef xs = x.sizes(), ws = w.sizes(), x_strides = x.strides(), w_strides = w.strides();
  if (xs.back() != ws[1] || w_strides[0] != ws[1] || w_strides[1] != 1 || x.numel() == 0 || w.numel() == 0) return false;
  if (xs.size() == 2 && x_strides[0] == 1 && x_strides[1] == xs[0]) return false;
  return !defined(b) || (is_like(*b, x) && b->dim() == 1 && b->size(0) == ws[0] && (xs.size() == 2 || x.is_contiguous()));
}

// What the mask asks for is there and fits.
bool is_plain(const Tensor& x, const Tensor& grad, const Tensor& w, const Mask& mask) {
  if (!is_lazy(grad) || !at::isFloatingType(grad.scalar_type()) || grad.dim() < 2 || grad.numel() == 0) return false;
  if (mask[0] && !(w.defined() && is_like(w, grad) && w.dim() == 2 && w.size(0) == grad.size(-1) && w.size(1) > 0)) return false;
  return !mask[1] || (x.defined() && is_like(x, grad) && x.dim() == grad.dim() && x.sizes().slice(0, x.dim() - 1) == grad.sizes().slice(0, x.dim() - 1) && x.size(-1) > 0);
}

// ---- Gradients, call by call.

Tensor rows(const Tensor& t) { return t.dim() == 2 ? t : t.dim() == 1 ? t.unsqueeze(0) : t.flatten(0, -2); }

Gradients composite_backward(const Tensor& x, const Tensor& grad, const Tensor& w, Mask mask) {
  const Tensor g = rows(grad);
  Gradients made;
  if (mask[0]) {
    std::vector<int64_t> sizes = grad.sizes().vec();
    sizes.back() = w.size(1);
    std::get<0>(made) = at::mm(g, w.conj()).reshape(sizes);
  }
  if (mask[1]) std::get<1>(made) = at::mm(g.t(), rows(x).conj());
  if (mask[2]) std::get<2>(made) = g.sum(at::IntArrayRef{0});
  return made;
}

// ---- Autograd

// Before PyTorch 2.13 nodes were shared_ptr's.
template <class Node>
auto make_node() {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) return c10::make_intrusive<Node>();
  else return std::shared_ptr<Node>(new Node, [](Node* n) { deleteNode(n); });
}

// As VariableType's, but that it keeps only what the gradients asked for need.
Tensor linear(c10::DispatchKeySet keys, const Tensor& x, const Tensor& w, const OptionalTensor& b) {
  using namespace torch::autograd;
  if (keys.has_any(kWatchers) || !is_plain(x, w, b) || has_tangent(x) || has_tangent(w) || (defined(b) && has_tangent(*b))) return at::native::linear(x, w, b);
  const bool with_history = compute_requires_grad(x, w, b);
  Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    y = at::_ops::linear::redispatch(keys & c10::after_ADInplaceOrView_keyset, x, w, b);
  }
  if (!with_history) return y;
  auto node = make_node<LinearBackward0>();
  node->set_next_edges(collect_next_edges(x, w, b));
  if (node->should_compute_output(0)) node->weight_ = SavedVariable(w, /*is_output=*/false);
  if (node->should_compute_output(1)) node->input_ = SavedVariable(x, /*is_output=*/false);
  set_history(y, node);
  return y;
}

Gradients linear_backward(c10::DispatchKeySet keys, const Tensor& x, const Tensor& grad, const Tensor& w, Mask mask) {
  const auto followed = [](const Tensor& t) { return t.defined() && has_history(t); };
  if (keys.has_any(kWatchers) || followed(x) || followed(grad) || followed(w)) return composite_backward(x, grad, w, mask);
  at::AutoDispatchBelowADInplaceOrView below;
  return at::_ops::linear_backward::redispatch(keys & c10::after_ADInplaceOrView_keyset, x, grad, w, mask);
}

}  // namespace

bool is_plain_linear(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  const Tensor &x = args[0].toTensor(), &second = args[1].toTensor();
  if (op.op.lowering == trace::Lowering::kLinear) return is_plain(x, second, args[2].toOptional<Tensor>());
  const c10::List<bool> mask = args[3].toBoolList();
  return is_plain(x, second, args[2].toTensor(), {mask[0], mask[1], mask[2]});
}

void register_linear() {
  static torch::Library autograd(torch::Library::IMPL, "aten", DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  autograd.impl("linear", TORCH_FN(linear));
  autograd.impl("linear_backward", TORCH_FN(linear_backward));
  // PyTorch has it for the devices alone that record linear; vmap over gradients asks for it, too.
  static std::vector<torch::Library> composite;
  for (DispatchKey key : {DispatchKey::CompositeImplicitAutograd, DispatchKey::FuncTorchBatched})
    composite.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__).impl("linear_backward", TORCH_FN(composite_backward));
}

}  // namespace lazyt::frontend
