// Recurrent cells and layers on the CPU: what computes those that a backend refuses whole and in pieces. On lazyt they are
// recorded as they are (core/passes/recurrent_rules.cpp takes them apart). Formulas as in torch.nn.LSTM and torch.nn.GRU.
//
// Cells are those that PyTorch asks every accelerator for. A layer is a cell over a sequence in one direction, an operator
// of our own (rnn_layers.cpp records it): lazyt::lstm_layer, lazyt::gru_layer. Its products that wait for no step are one
// each for the whole sequence.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>

#include "frontend/registration.h"

namespace lazyt::frontend {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool defined(const OptionalTensor& t) { return t && t->defined(); }
Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) { return defined(bias) ? gates + *bias : gates; }
Tensor from_sigmoid(const Tensor& grad, const Tensor& s) { return grad * s * (1 - s); }
Tensor from_tanh(const Tensor& grad, const Tensor& t) { return grad * (1 - t * t); }

Tensor join(std::vector<Tensor> parts) { return at::cat(parts, 1); }
std::vector<Tensor> parts(const Tensor& t, int64_t n) { return t.chunk(n, 1); }

// (hy, cy, workspace): workspace holds the activated gates i, f, g, o.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  auto gates = parts(with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias), 4);
  Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, join({i, f, g, o})};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  if (!defined(grad_hy) && !defined(grad_cy)) return {};
  auto w = parts(workspace, 4);
  const Tensor &i = w[0], &f = w[1], &g = w[2], &o = w[3];
  Tensor tanh_cy = cy.tanh();
  Tensor d_cy = defined(grad_cy) ? *grad_cy : at::zeros_like(cy);
  Tensor d_o = at::zeros_like(o);
  if (defined(grad_hy)) {
    d_cy = d_cy + from_tanh(*grad_hy * o, tanh_cy);
    d_o = *grad_hy * tanh_cy;
  }
  Tensor d_gates =
      join({from_sigmoid(d_cy * g, i), from_sigmoid(d_cy * cx, f), from_tanh(d_cy * i, g), from_sigmoid(d_o, o)});
  return {d_gates, d_cy * f, has_bias ? d_gates.sum(at::IntArrayRef{0}) : Tensor()};
}

// (hy, workspace): workspace holds r, z, n, hx and the hidden part of n.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  auto in = parts(with_bias(input_gates, input_bias), 3), hidden = parts(with_bias(hidden_gates, hidden_bias), 3);
  Tensor r = (in[0] + hidden[0]).sigmoid(), z = (in[1] + hidden[1]).sigmoid();
  Tensor n = (in[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), join({r, z, n, hx, hidden[2]})};
}

// Gradients of input_gates, hidden_gates, hx, input_bias, hidden_bias.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  auto w = parts(workspace, 5);
  const Tensor &r = w[0], &z = w[1], &n = w[2], &hx = w[3], &hidden_n = w[4];
  Tensor d_z = from_sigmoid(grad_hy * (hx - n), z);
  Tensor d_n = from_tanh(grad_hy * (1 - z), n);
  Tensor d_r = from_sigmoid(d_n * hidden_n, r);
  Tensor d_input = join({d_r, d_z, d_n}), d_hidden = join({d_r, d_z, d_n * r});
  auto bias = [&](const Tensor& d) { return has_bias ? d.sum(at::IntArrayRef{0}) : Tensor(); };
  return {d_input, d_hidden, grad_hy * z, bias(d_input), bias(d_hidden)};
}

// ---- Layers

// The steps of [length, batch, n], in the order of time.
struct Steps {
  const bool reverse;
  const int64_t length;

  int64_t place(int64_t step) const { return reverse ? length - 1 - step : step; }
  Tensor of(const Tensor& t, int64_t step) const { return t.select(0, place(step)); }
  Tensor whole(std::vector<Tensor> steps) const {
    if (reverse) std::reverse(steps.begin(), steps.end());
    return at::stack(steps, 0);
  }
  // What each step had from the one before it: the first, `begin`.
  Tensor before(const Tensor& t, const Tensor& begin) const {
    const Tensor first = begin.unsqueeze(0);
    return reverse ? at::cat({t.slice(0, 1), first}) : at::cat({first, t.slice(0, 0, length - 1)});
  }
};

// The sum over all steps of x[step]^T y[step].
Tensor sum_outer(const Tensor& x, const Tensor& y) { return at::mm(x.flatten(0, 1).t(), y.flatten(0, 1)); }
Tensor sum_steps(const Tensor& x) { return x.sum(at::IntArrayRef{0, 1}); }

// output, hy, cy, cells, workspace: the last two as the cells leave them, for the backward.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> lstm_layer(const Tensor& input, const Tensor& hx, const Tensor& cx,
                                                              const Tensor& w_ih, const Tensor& w_hh, const OptionalTensor& b_ih,
                                                              const OptionalTensor& b_hh, bool reverse) {
  const Steps steps{reverse, input.size(0)};
  const Tensor gates = at::matmul(input, w_ih.t());
  Tensor h = hx, c = cx;
  std::vector<Tensor> output, cells, workspace;
  for (int64_t t = 0; t < steps.length; ++t) {
    Tensor w;
    std::tie(h, c, w) = lstm_cell(steps.of(gates, t), at::mm(h, w_hh.t()), c, b_ih, b_hh);
    output.push_back(h), cells.push_back(c), workspace.push_back(w);
  }
  return {steps.whole(output), h.clone(), c.clone(), steps.whole(cells), steps.whole(workspace)};
}

// Gradients of input, hx, cx, w_ih, w_hh and of each bias.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> lstm_layer_backward(
    const OptionalTensor& grad_output, const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const Tensor& input,
    const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& output, const Tensor& cells,
    const Tensor& workspace, bool reverse) {
  const Steps steps{reverse, input.size(0)};
  Tensor d_h = defined(grad_hy) ? *grad_hy : at::zeros_like(hx), d_c = defined(grad_cy) ? *grad_cy : at::zeros_like(cx);
  std::vector<Tensor> all(static_cast<size_t>(steps.length));
  for (int64_t t = steps.length; t-- > 0;) {
    if (defined(grad_output)) d_h = d_h + steps.of(*grad_output, t);
    Tensor& gates = all[static_cast<size_t>(t)];
    std::tie(gates, d_c, std::ignore) =
        lstm_cell_backward(d_h, d_c, t ? steps.of(cells, t - 1) : cx, steps.of(cells, t), steps.of(workspace, t), false);
    d_h = at::mm(gates, w_hh);
  }
  const Tensor gates = steps.whole(all);
  return {at::matmul(gates, w_ih), d_h, d_c, sum_outer(gates, input), sum_outer(gates, steps.before(output, hx)), sum_steps(gates)};
}

// output, hy, workspace
std::tuple<Tensor, Tensor, Tensor> gru_layer(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                                             const OptionalTensor& b_ih, const OptionalTensor& b_hh, bool reverse) {
  const Steps steps{reverse, input.size(0)};
  const Tensor gates = at::matmul(input, w_ih.t());
  Tensor h = hx;
  std::vector<Tensor> output, workspace;
  for (int64_t t = 0; t < steps.length; ++t) {
    Tensor w;
    std::tie(h, w) = gru_cell(steps.of(gates, t), at::mm(h, w_hh.t()), h, b_ih, b_hh);
    output.push_back(h), workspace.push_back(w);
  }
  return {steps.whole(output), h.clone(), steps.whole(workspace)};
}

// Gradients of input, hx, w_ih, w_hh, b_ih, b_hh.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> gru_layer_backward(
    const OptionalTensor& grad_output, const OptionalTensor& grad_hy, const Tensor& input, const Tensor& hx, const Tensor& w_ih,
    const Tensor& w_hh, const Tensor& output, const Tensor& workspace, bool reverse) {
  const Steps steps{reverse, input.size(0)};
  Tensor d_h = defined(grad_hy) ? *grad_hy : at::zeros_like(hx);
  std::vector<Tensor> inputs(static_cast<size_t>(steps.length)), hiddens(inputs.size());
  for (int64_t t = steps.length; t-- > 0;) {
    if (defined(grad_output)) d_h = d_h + steps.of(*grad_output, t);
    const size_t i = static_cast<size_t>(t);
    Tensor d_hx;
    std::tie(inputs[i], hiddens[i], d_hx, std::ignore, std::ignore) = gru_cell_backward(d_h, steps.of(workspace, t), false);
    d_h = d_hx + at::mm(hiddens[i], w_hh);
  }
  const Tensor in = steps.whole(inputs), hidden = steps.whole(hiddens);
  return {at::matmul(in, w_ih), d_h, sum_outer(in, input), sum_outer(hidden, steps.before(output, hx)), sum_steps(in), sum_steps(hidden)};
}

}  // namespace

void register_rnn() {
  static torch::Library layers(torch::Library::FRAGMENT, "lazyt", std::nullopt, __FILE__, __LINE__);
  layers.def(
      "lstm_layer(Tensor input, Tensor hx, Tensor cx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, bool reverse)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  layers.def(
      "lstm_layer_backward(Tensor? grad_output, Tensor? grad_hy, Tensor? grad_cy, Tensor input, Tensor hx, Tensor cx, Tensor w_ih,"
      " Tensor w_hh, Tensor output, Tensor cells, Tensor workspace, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  layers.def(
      "gru_layer(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, bool reverse)"
      " -> (Tensor, Tensor, Tensor)");
  layers.def(
      "gru_layer_backward(Tensor? grad_output, Tensor? grad_hy, Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor output,"
      " Tensor workspace, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  static torch::Library of_layers(torch::Library::IMPL, "lazyt", c10::DispatchKey::CPU, __FILE__, __LINE__);
  of_layers.impl("lstm_layer", TORCH_FN(lstm_layer));
  of_layers.impl("lstm_layer_backward", TORCH_FN(lstm_layer_backward));
  of_layers.impl("gru_layer", TORCH_FN(gru_layer));
  of_layers.impl("gru_layer_backward", TORCH_FN(gru_layer_backward));
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace lazyt::frontend
