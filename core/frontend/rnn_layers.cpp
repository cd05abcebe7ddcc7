// torch.nn.LSTM and torch.nn.GRU on lazyt: one operator a layer and direction (rnn.cpp), instead of one a product and cell
// of each step. What those do not say (packed sequences, projections, autocast, transforms of torch.func) stays PyTorch's
// own composite, over cells.
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "frontend/history.h"
#include "frontend/registration.h"
#include "frontend/storage.h"

namespace lazyt::frontend {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

// Operands of a layer, in the order of its schema: input, the states, w_ih, w_hh and, if there are, b_ih, b_hh.
struct LstmKind {
  static constexpr size_t kStates = 2;
  static constexpr const char *kForward = "lazyt::lstm_layer", *kBackward = "lazyt::lstm_layer_backward";
  static variable_list composite(const Tensor& input, TensorList states, TensorList weights) {
    auto [output, hy, cy] = at::native::lstm(input, states, weights, weights.size() == 4, 1, 0.0, false, false, false);
    return {output, hy.squeeze(0), cy.squeeze(0)};
  }
};
struct GruKind {
  static constexpr size_t kStates = 1;
  static constexpr const char *kForward = "lazyt::gru_layer", *kBackward = "lazyt::gru_layer_backward";
  static variable_list composite(const Tensor& input, TensorList states, TensorList weights) {
    auto [output, hy] = at::native::gru(input, states[0], weights, weights.size() == 4, 1, 0.0, false, false, false);
    return {output, hy.squeeze(0)};
  }
};

torch::jit::Stack call(const char* name, torch::jit::Stack stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
  return stack;
}
c10::IValue optional(const Tensor& t) { return t.defined() ? c10::IValue(t) : c10::IValue(); }

template <class Kind>
struct Layer : torch::autograd::Function<Layer<Kind>> {
  static constexpr size_t kResults = 1 + Kind::kStates;  // output, and the states in the end

  static variable_list forward(AutogradContext* ctx, TensorList operands, bool reverse) {
    torch::jit::Stack stack(operands.begin(), operands.end());
    if (operands.size() == 3 + Kind::kStates) stack.insert(stack.end(), 2, c10::IValue());  // no biases
    stack.emplace_back(reverse);
    const torch::jit::Stack made = call(Kind::kForward, std::move(stack));
    variable_list results, saved(operands.begin(), operands.end());
    for (size_t i = 0; i < kResults; ++i) results.push_back(made[i].toTensor());
    saved.push_back(results[0]);
    for (size_t i = kResults; i < made.size(); ++i) saved.push_back(made[i].toTensor());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["operands"] = static_cast<int64_t>(operands.size());
    ctx->saved_data["reverse"] = reverse;
    ctx->set_materialize_grads(false);
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto operands = static_cast<size_t>(ctx->saved_data["operands"].toInt());
    const bool reverse = ctx->saved_data["reverse"].toBool(), has_biases = operands > 3 + Kind::kStates;
    variable_list results;
    if (at::GradMode::is_enabled()) {
      results = differentiable({saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(operands)}, grads, reverse);
    } else {
      torch::jit::Stack stack;
      for (const Tensor& grad : grads) stack.push_back(optional(grad));
      for (size_t i = 0; i < saved.size(); ++i)
        if (i < 3 + Kind::kStates || i >= operands) stack.emplace_back(saved[i]);
      stack.emplace_back(reverse);
      for (const c10::IValue& made : call(Kind::kBackward, std::move(stack))) results.push_back(made.toTensor());
      if (!has_biases) results.resize(operands);
      if (results.size() < operands) results.push_back(results.back());  // an LSTM's biases have one gradient
    }
    results.emplace_back();  // reverse
    return results;
  }

  // The same gradients with a graph of their own, by PyTorch's composite. Operands may be one tensor several times.
  static variable_list differentiable(variable_list operands, const variable_list& grads, bool reverse) {
    for (Tensor& t : operands) t = t.requires_grad() ? t.view_as(t) : t;
    variable_list states(operands.begin() + 1, operands.begin() + 1 + Kind::kStates);
    for (Tensor& t : states) t = t.unsqueeze(0);
    const Tensor input = reverse ? operands[0].flip(0) : operands[0];
    const variable_list weights(operands.begin() + 1 + Kind::kStates, operands.end());
    variable_list made = Kind::composite(input, states, weights);
    if (reverse) made[0] = made[0].flip(0);
    variable_list outputs, of_outputs, inputs;
    for (size_t i = 0; i < kResults; ++i)
      if (grads[i].defined()) outputs.push_back(made[i]), of_outputs.push_back(grads[i]);
    for (const Tensor& t : operands)
      if (t.requires_grad()) inputs.push_back(t);
    const variable_list found = torch::autograd::grad(outputs, inputs, of_outputs, true, true, true);
    variable_list results;
    for (size_t i = 0, next = 0; i < operands.size(); ++i) results.push_back(operands[i].requires_grad() ? found[next++] : Tensor());
    return results;
  }
};

// No subclass of Tensor, no transform of torch.func, no forward-mode gradient: those want the composite's own operators.
bool is_plain(const Tensor& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet wrappers{DispatchKey::Python,      DispatchKey::PythonTLSSnapshot,    DispatchKey::FuncTorchBatched,
                                         DispatchKey::Functionalize, DispatchKey::FuncTorchGradWrapper, DispatchKey::Conjugate,
                                         DispatchKey::Negative,    DispatchKey::ZeroTensor};
  return t.defined() && t.device().type() == kDeviceType && !t.key_set().has_any(wrappers) && !has_tangent(t);
}

// Whether the layers are what their operators take; what is wrong, the composite says.
template <class Kind>
bool takes(const Tensor& input, TensorList hx, TensorList params, int64_t gates, bool has_biases, int64_t layers, bool bidirectional,
           bool batch_first) {
  const size_t each = has_biases ? 4 : 2, count = static_cast<size_t>(layers * (bidirectional ? 2 : 1));
  if (hx.size() != Kind::kStates || params.size() != each * count || !is_plain(input) || input.dim() != 3 || input.numel() == 0) return false;
  if (at::autocast::is_autocast_enabled(kDeviceType) || !at::isFloatingType(input.scalar_type())) return false;
  const auto alike = [&](const Tensor& t) { return is_plain(t) && t.scalar_type() == input.scalar_type() && t.device() == input.device(); };
  if (!std::all_of(hx.begin(), hx.end(), alike) || !std::all_of(params.begin(), params.end(), alike)) return false;
  const int64_t batch = input.size(batch_first ? 0 : 1), width = hx[0].size(-1);
  for (const Tensor& t : hx)
    if (t.sizes() != at::IntArrayRef{static_cast<int64_t>(count), batch, width}) return false;
  int64_t wide = input.size(2);
  for (size_t i = 0; i < params.size(); i += each) {
    if (i == each * (bidirectional ? 2 : 1)) wide = width * (bidirectional ? 2 : 1);
    if (params[i].sizes() != at::IntArrayRef{gates * width, wide} || params[i + 1].sizes() != at::IntArrayRef{gates * width, width}) return false;
    if (has_biases && (params[i + 2].sizes() != at::IntArrayRef{gates * width} || params[i + 3].sizes() != at::IntArrayRef{gates * width})) return false;
  }
  return width > 0;
}

// Output, then the states in the end.
template <class Kind>
variable_list layers_of(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t layers, double dropout, bool train,
                        bool bidirectional, bool batch_first) {
  const size_t each = has_biases ? 4 : 2;
  Tensor x = batch_first ? input.transpose(0, 1) : input;
  std::vector<variable_list> states(Kind::kStates);
  for (int64_t layer = 0, i = 0; layer < layers; ++layer) {
    variable_list sides;
    for (bool reverse : {false, true}) {
      if (reverse && !bidirectional) continue;
      variable_list operands{x};
      for (const Tensor& t : hx) operands.push_back(t.select(0, i));
      const TensorList weights = params.slice(static_cast<size_t>(i++) * each, each);
      operands.insert(operands.end(), weights.begin(), weights.end());
      const variable_list made = Layer<Kind>::apply(TensorList(operands), reverse);
      sides.push_back(made[0]);
      for (size_t s = 0; s < Kind::kStates; ++s) states[s].push_back(made[1 + s]);
    }
    x = bidirectional ? at::cat(sides, 2) : sides[0];
    if (dropout != 0 && train && layer < layers - 1) x = at::dropout(x, dropout, true);
  }
  variable_list results{batch_first ? x.transpose(0, 1) : x};
  for (const variable_list& state : states) results.push_back(at::stack(state, 0));
  return results;
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t layers, double dropout,
                                        bool train, bool bidirectional, bool batch_first) {
  if (!takes<LstmKind>(input, hx, params, 4, has_biases, layers, bidirectional, batch_first))
    return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  variable_list made = layers_of<LstmKind>(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  return {made[0], made[1], made[2]};
}

std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases, int64_t layers, double dropout,
                               bool train, bool bidirectional, bool batch_first) {
  if (!takes<GruKind>(input, hx, params, 3, has_biases, layers, bidirectional, batch_first))
    return at::native::gru(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  variable_list made = layers_of<GruKind>(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  return {made[0], made[1]};
}

}  // namespace

void register_rnn_layers() {
  static std::vector<torch::Library> libraries;
  for (c10::DispatchKey key : {c10::DispatchKey::AutogradPrivateUse1, c10::DispatchKey::PrivateUse1}) {
    torch::Library& library = libraries.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library.impl("lstm.input", TORCH_FN(lstm));
    library.impl("gru.input", TORCH_FN(gru));
  }
}

}  // namespace lazyt::frontend
