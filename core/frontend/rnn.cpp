// The fused recurrent cells that PyTorch asks every accelerator for, on the CPU, where it has none: they tell shapes, and
// compute what a backend refuses. On lazyt they are recorded as they are (core/passes/recurrent_rules.cpp takes them
// apart). Formulas as in torch.nn.LSTM and torch.nn.GRU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

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

}  // namespace

void register_rnn() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace lazyt::frontend
