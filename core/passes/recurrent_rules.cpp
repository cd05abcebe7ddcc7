// Recurrent layers and cells in pieces (core/frontend/rnn.cpp says what they are). A layer becomes one product of all its
// steps with the weights of the input, and a product and a cell for each step; backwards, one product for the gradient of
// each weight. A cell that is refused becomes pointwise operators: a backend that fuses chains of them gets one kernel
// each. They are no operators of the opset. Formulas as in torch.nn.LSTM and torch.nn.GRU.
#include <algorithm>

#include "passes/decomposition.h"

namespace lazyt::passes {

namespace {

using base::Dims;
using ir::Arg;
using ir::ValueId;

// Arithmetic on the pieces' values.
struct Cell {
  Pieces& p;

  ValueId sigmoid(ValueId x) { return p.unary("aten::sigmoid", x); }
  ValueId tanh(ValueId x) { return p.unary("aten::tanh", x); }
  ValueId one_less(ValueId x) { return p.from(1, x); }
  ValueId from_sigmoid(ValueId grad, ValueId s) { return p.mul(p.mul(grad, s), one_less(s)); }
  ValueId from_tanh(ValueId grad, ValueId t) { return p.mul(grad, one_less(p.mul(t, t))); }
  ValueId with_bias(size_t gates, size_t bias) {
    return p.is_none(bias) ? p.value(gates) : p.add(p.value(gates), p.value(bias));
  }
  // Part i of n side by side.
  ValueId part(ValueId x, int64_t i, int64_t n) {
    const int64_t width = p.size(x, 1) / n;
    return p.slice(x, 1, i * width, (i + 1) * width);
  }
  ValueId join(const std::vector<ValueId>& parts) { return p.cat(parts, 1); }
  ValueId bias_of(ValueId gates) { return p.reshape(p.reduce("sum", gates, {0}), {p.size(gates, 1)}); }
};

// (input_gates, hidden_gates, cx, input_bias?, hidden_bias?) -> hy, cy, workspace: the activated gates i, f, g, o.
Results lstm_cell(Pieces& p) {
  Cell c{p};
  const ValueId gates = c.p.add(c.with_bias(0, 3), c.with_bias(1, 4)), cx = p.value(2);
  const ValueId i = c.sigmoid(c.part(gates, 0, 4)), f = c.sigmoid(c.part(gates, 1, 4)), g = c.tanh(c.part(gates, 2, 4)),
                o = c.sigmoid(c.part(gates, 3, 4));
  const ValueId cy = c.p.add(c.p.mul(f, cx), c.p.mul(i, g));
  return std::vector{c.p.mul(o, c.tanh(cy)), cy, c.join({i, f, g, o})};
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias) -> gradients of the gates, of cx, of the biases
Results lstm_cell_backward(Pieces& p) {
  if (p.is_none(0) && p.is_none(1)) return kNot;
  Cell c{p};
  const ValueId cx = p.value(2), workspace = p.value(4);
  const ValueId i = c.part(workspace, 0, 4), f = c.part(workspace, 1, 4), g = c.part(workspace, 2, 4), o = c.part(workspace, 3, 4);
  const ValueId tanh_cy = c.tanh(p.value(3));
  ValueId d_cy, d_o;
  if (p.is_none(0)) {
    d_cy = p.value(1);
    d_o = p.zeros(p.dtype(o), p.dims(o));
  } else {
    d_cy = c.from_tanh(c.p.mul(p.value(0), o), tanh_cy);
    if (!p.is_none(1)) d_cy = c.p.add(p.value(1), d_cy);
    d_o = c.p.mul(p.value(0), tanh_cy);
  }
  const ValueId d_gates = c.join({c.from_sigmoid(c.p.mul(d_cy, g), i), c.from_sigmoid(c.p.mul(d_cy, cx), f),
                                  c.from_tanh(c.p.mul(d_cy, i), g), c.from_sigmoid(d_o, o)});
  std::vector<ValueId> out{d_gates, c.p.mul(d_cy, f)};
  if (p.node.result_count > 2) out.push_back(c.bias_of(d_gates));
  return out;
}

// (input_gates, hidden_gates, hx, input_bias?, hidden_bias?) -> hy, workspace: r, z, n, hx and the hidden part of n
Results gru_cell(Pieces& p) {
  Cell c{p};
  const ValueId in = c.with_bias(0, 3), hidden = c.with_bias(1, 4), hx = p.value(2);
  const ValueId r = c.sigmoid(c.p.add(c.part(in, 0, 3), c.part(hidden, 0, 3)));
  const ValueId z = c.sigmoid(c.p.add(c.part(in, 1, 3), c.part(hidden, 1, 3)));
  const ValueId hidden_n = c.part(hidden, 2, 3);
  const ValueId n = c.tanh(c.p.add(c.part(in, 2, 3), c.p.mul(r, hidden_n)));
  return std::vector{c.p.add(n, c.p.mul(z, c.p.sub(hx, n))), c.join({r, z, n, hx, hidden_n})};
}

// (grad_hy, workspace, has_bias) -> gradients of input_gates, hidden_gates, hx, input_bias, hidden_bias
Results gru_cell_backward(Pieces& p) {
  Cell c{p};
  const ValueId grad = p.value(0), workspace = p.value(1);
  const ValueId r = c.part(workspace, 0, 5), z = c.part(workspace, 1, 5), n = c.part(workspace, 2, 5), hx = c.part(workspace, 3, 5),
                hidden_n = c.part(workspace, 4, 5);
  const ValueId d_z = c.from_sigmoid(c.p.mul(grad, c.p.sub(hx, n)), z), d_n = c.from_tanh(c.p.mul(grad, c.one_less(z)), n);
  const ValueId d_r = c.from_sigmoid(c.p.mul(d_n, hidden_n), r);
  const ValueId d_input = c.join({d_r, d_z, d_n}), d_hidden = c.join({d_r, d_z, c.p.mul(d_n, r)});
  std::vector<ValueId> out{d_input, d_hidden, c.p.mul(grad, z)};
  if (p.node.result_count > 3) out.insert(out.end(), {c.bias_of(d_input), c.bias_of(d_hidden)});
  return out;
}

constexpr int64_t kMostSteps = 1 << 20;  // each is several nodes

// Steps of a layer in the order of time, each [batch, width]: rows of [length * batch, width].
struct Steps {
  Pieces& p;
  const int64_t length, batch;
  const bool reverse;

  // input: [length, batch, ...]
  Steps(Pieces& pieces, size_t input, bool backwards)
      : p(pieces), length(p.size(p.value(input), 0)), batch(p.size(p.value(input), 1)), reverse(backwards) {
    if (length > kMostSteps) throw std::out_of_range("too many steps");
  }

  ValueId product(ValueId a, ValueId b) {
    return p.op("aten::mm", "", {Arg::of_value(a), Arg::of_value(b)}, p.dtype(a), {p.size(a, 0), p.size(b, 1)});
  }
  ValueId turned(ValueId x) { return p.permute(x, {1, 0}); }
  ValueId rows(ValueId x) { return p.reshape(x, {length * batch, p.size(x, 2)}); }
  ValueId steps(ValueId rows) { return p.reshape(rows, {length, batch, p.size(rows, 1)}); }
  ValueId at(ValueId rows, int64_t step) {
    const int64_t place = reverse ? length - 1 - step : step;
    return p.slice(rows, 0, place * batch, (place + 1) * batch);
  }
  // Of all steps, given in the order of time.
  ValueId whole(std::vector<ValueId> each) {
    if (reverse) std::reverse(each.begin(), each.end());
    return p.cat(each, 0);
  }
  // What each step had from the one before it: the first, `begin`.
  ValueId before(ValueId rows, ValueId begin) {
    if (length == 1) return begin;
    const int64_t count = (length - 1) * batch;
    const ValueId others = reverse ? p.slice(rows, 0, batch, batch + count) : p.slice(rows, 0, 0, count);
    return p.cat(reverse ? std::vector{others, begin} : std::vector{begin, others}, 0);
  }
  ValueId sum(ValueId rows) { return p.reshape(p.reduce("sum", rows, {0}), {p.size(rows, 1)}); }
  // Results of a node of several.
  std::vector<ValueId> cell(const char* name, std::vector<Arg> args, const std::vector<Dims>& dims) {
    const ValueId first = p.node_of(name, std::move(args), p.result().dtype, dims);
    std::vector<ValueId> out;
    for (size_t i = 0; i < dims.size(); i++) out.push_back(first + static_cast<ValueId>(i));
    return out;
  }
};

// (input, hx, cx, w_ih, w_hh, b_ih?, b_hh?, reverse) -> output, hy, cy, cells, workspace
Results lstm_layer(Pieces& p) {
  Steps s(p, 0, p.arg(7).i != 0);
  const ValueId w_hh = s.turned(p.value(4)), gates = s.product(s.rows(p.value(0)), s.turned(p.value(3)));
  ValueId h = p.value(1), c = p.value(2);
  std::vector<ValueId> output, cells, workspace;
  for (int64_t t = 0; t < s.length; t++) {
    const std::vector<ValueId> made =
        s.cell("aten::_thnn_fused_lstm_cell",
               {Arg::of_value(s.at(gates, t)), Arg::of_value(s.product(h, w_hh)), Arg::of_value(c), p.arg(5), p.arg(6)},
               {p.dims(h), p.dims(c), {s.batch, p.size(gates, 1)}});
    output.push_back(h = made[0]), cells.push_back(c = made[1]), workspace.push_back(made[2]);
  }
  return std::vector{s.steps(s.whole(output)), h, c, s.steps(s.whole(cells)), s.steps(s.whole(workspace))};
}

// (grad_output?, grad_hy?, grad_cy?, input, hx, cx, w_ih, w_hh, output, cells, workspace, reverse) -> gradients of input,
// hx, cx, w_ih, w_hh and of each bias
Results lstm_layer_backward(Pieces& p) {
  if (p.is_none(0) && p.is_none(1) && p.is_none(2)) return kNot;
  Steps s(p, 3, p.arg(11).i != 0);
  const ValueId hx = p.value(4), cx = p.value(5), w_ih = p.value(6), w_hh = p.value(7);
  const ValueId output = s.rows(p.value(8)), cells = s.rows(p.value(9)), workspace = s.rows(p.value(10));
  const ValueId grad = p.is_none(0) ? ir::kNone : s.rows(p.value(0));
  Arg d_h = p.arg(1), d_c = p.arg(2);
  std::vector<ValueId> all(static_cast<size_t>(s.length));
  for (int64_t t = s.length; t-- > 0;) {
    if (!p.is_none(0)) {
      const ValueId here = s.at(grad, t);
      d_h = Arg::of_value(d_h.kind == LAZYT_ARG_NONE ? here : p.add(d_h.value, here));
    }
    const std::vector<ValueId> made = s.cell("aten::_thnn_fused_lstm_cell_backward_impl",
                                             {d_h, d_c, Arg::of_value(t ? s.at(cells, t - 1) : cx), Arg::of_value(s.at(cells, t)),
                                              Arg::of_value(s.at(workspace, t)), Arg::of_bool(false)},
                                             {{s.batch, p.size(workspace, 1)}, p.dims(cx), {0}});
    all[static_cast<size_t>(t)] = made[0];
    d_h = Arg::of_value(s.product(made[0], w_hh)), d_c = Arg::of_value(made[1]);
  }
  const ValueId gates = s.whole(all), turned = s.turned(gates);
  return std::vector{s.steps(s.product(gates, w_ih)), d_h.value, d_c.value, s.product(turned, s.rows(p.value(3))),
                     s.product(turned, s.before(output, hx)), s.sum(gates)};
}

// (input, hx, w_ih, w_hh, b_ih?, b_hh?, reverse) -> output, hy, workspace
Results gru_layer(Pieces& p) {
  Steps s(p, 0, p.arg(6).i != 0);
  const ValueId w_hh = s.turned(p.value(3)), gates = s.product(s.rows(p.value(0)), s.turned(p.value(2)));
  ValueId h = p.value(1);
  std::vector<ValueId> output, workspace;
  for (int64_t t = 0; t < s.length; t++) {
    const std::vector<ValueId> made =
        s.cell("aten::_thnn_fused_gru_cell",
               {Arg::of_value(s.at(gates, t)), Arg::of_value(s.product(h, w_hh)), Arg::of_value(h), p.arg(4), p.arg(5)},
               {p.dims(h), {s.batch, 5 * p.size(h, 1)}});
    output.push_back(h = made[0]), workspace.push_back(made[1]);
  }
  return std::vector{s.steps(s.whole(output)), h, s.steps(s.whole(workspace))};
}

// (grad_output?, grad_hy?, input, hx, w_ih, w_hh, output, workspace, reverse) -> gradients of input, hx, w_ih, w_hh, b_ih,
// b_hh
Results gru_layer_backward(Pieces& p) {
  if (p.is_none(0) && p.is_none(1)) return kNot;
  Steps s(p, 2, p.arg(8).i != 0);
  const ValueId hx = p.value(3), w_ih = p.value(4), w_hh = p.value(5), output = s.rows(p.value(6)), workspace = s.rows(p.value(7));
  const Dims gates{s.batch, p.size(w_hh, 0)};
  const ValueId grad = p.is_none(0) ? ir::kNone : s.rows(p.value(0));
  Arg d_h = p.arg(1);
  std::vector<ValueId> inputs(static_cast<size_t>(s.length)), hiddens(inputs.size());
  for (int64_t t = s.length; t-- > 0;) {
    if (!p.is_none(0)) {
      const ValueId here = s.at(grad, t);
      d_h = Arg::of_value(d_h.kind == LAZYT_ARG_NONE ? here : p.add(d_h.value, here));
    }
    const std::vector<ValueId> made = s.cell("aten::_thnn_fused_gru_cell_backward",
                                             {d_h, Arg::of_value(s.at(workspace, t)), Arg::of_bool(false)}, {gates, gates, p.dims(hx), {0}, {0}});
    inputs[static_cast<size_t>(t)] = made[0], hiddens[static_cast<size_t>(t)] = made[1];
    d_h = Arg::of_value(p.add(made[2], s.product(made[1], w_hh)));
  }
  const ValueId in = s.whole(inputs), hidden = s.whole(hiddens);
  return std::vector{s.steps(s.product(in, w_ih)), d_h.value, s.product(s.turned(in), s.rows(p.value(2))),
                     s.product(s.turned(hidden), s.before(output, hx)), s.sum(in), s.sum(hidden)};
}

}  // namespace

const Rules& recurrent_rules() {
  static const auto& rules = *new Rules{
      {"aten::_thnn_fused_gru_cell", gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
      {"aten::_thnn_fused_lstm_cell", lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
      {"lazyt::gru_layer", gru_layer},
      {"lazyt::gru_layer_backward", gru_layer_backward},
      {"lazyt::lstm_layer", lstm_layer},
      {"lazyt::lstm_layer_backward", lstm_layer_backward},
  };
  return rules;
}

}  // namespace lazyt::passes
