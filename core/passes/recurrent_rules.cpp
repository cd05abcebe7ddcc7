// The fused recurrent cells that PyTorch asks every accelerator for, in pieces: a backend that fuses pointwise chains
// gets one kernel each. They are no operators of the opset. Formulas as in torch.nn.LSTM and torch.nn.GRU.
#include "passes/decomposition.h"

namespace lazyt::passes {

namespace {

using base::Dims;
using ir::Arg;
using ir::ValueId;

// Arithmetic on the pieces' values.
struct Cell {
  Pieces& p;

  ValueId add(ValueId a, ValueId b) { return p.binary("add", a, b); }
  ValueId sub(ValueId a, ValueId b) { return p.binary("sub", a, b); }
  ValueId mul(ValueId a, ValueId b) { return p.binary("mul", a, b); }
  ValueId sigmoid(ValueId x) { return p.unary("aten::sigmoid", x); }
  ValueId tanh(ValueId x) { return p.unary("aten::tanh", x); }
  ValueId one_less(ValueId x) {  // 1 - x
    return p.op("aten::rsub", "Scalar", {Arg::of_value(x), Arg::of_int(1), Arg::of_int(1)}, p.dtype(x), p.dims(x));
  }
  ValueId from_sigmoid(ValueId grad, ValueId s) { return mul(mul(grad, s), one_less(s)); }
  ValueId from_tanh(ValueId grad, ValueId t) { return mul(grad, one_less(mul(t, t))); }
  ValueId with_bias(size_t gates, size_t bias) {
    return p.is_none(bias) ? p.value(gates) : add(p.value(gates), p.value(bias));
  }
  // Part i of n side by side.
  ValueId part(ValueId x, int64_t i, int64_t n) {
    const int64_t width = p.dims(x)[1] / n;
    return p.slice(x, 1, i * width, (i + 1) * width);
  }
  ValueId join(std::vector<ValueId> parts) {
    Dims dims = p.dims(parts[0]);
    dims[1] *= static_cast<int64_t>(parts.size());
    std::vector<Arg> list;
    for (ValueId v : parts) list.push_back(Arg::of_value(v));
    return p.op("aten::cat", "", {Arg::of_list(std::move(list)), Arg::of_int(1)}, p.dtype(parts[0]), std::move(dims));
  }
  ValueId bias_of(ValueId gates) { return p.reshape(p.reduce("sum", gates, {0}), {p.dims(gates)[1]}); }
};

}  // namespace

// (input_gates, hidden_gates, cx, input_bias?, hidden_bias?) -> hy, cy, workspace: the activated gates i, f, g, o.
std::optional<std::vector<ValueId>> lstm_cell(Pieces& p) {
  Cell c{p};
  const ValueId gates = c.add(c.with_bias(0, 3), c.with_bias(1, 4)), cx = p.value(2);
  const ValueId i = c.sigmoid(c.part(gates, 0, 4)), f = c.sigmoid(c.part(gates, 1, 4)), g = c.tanh(c.part(gates, 2, 4)),
                o = c.sigmoid(c.part(gates, 3, 4));
  const ValueId cy = c.add(c.mul(f, cx), c.mul(i, g));
  return std::vector{c.mul(o, c.tanh(cy)), cy, c.join({i, f, g, o})};
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias) -> gradients of the gates, of cx, of the biases
std::optional<std::vector<ValueId>> lstm_cell_backward(Pieces& p) {
  if (p.is_none(0) && p.is_none(1)) return std::nullopt;
  Cell c{p};
  const ValueId cx = p.value(2), workspace = p.value(4);
  const ValueId i = c.part(workspace, 0, 4), f = c.part(workspace, 1, 4), g = c.part(workspace, 2, 4), o = c.part(workspace, 3, 4);
  const ValueId tanh_cy = c.tanh(p.value(3));
  ValueId d_cy, d_o;
  if (p.is_none(0)) {
    d_cy = p.value(1);
    d_o = p.full(Arg::of_int(0), p.dtype(o), p.dims(o));
  } else {
    d_cy = c.from_tanh(c.mul(p.value(0), o), tanh_cy);
    if (!p.is_none(1)) d_cy = c.add(p.value(1), d_cy);
    d_o = c.mul(p.value(0), tanh_cy);
  }
  const ValueId d_gates = c.join({c.from_sigmoid(c.mul(d_cy, g), i), c.from_sigmoid(c.mul(d_cy, cx), f),
                                  c.from_tanh(c.mul(d_cy, i), g), c.from_sigmoid(d_o, o)});
  std::vector<ValueId> out{d_gates, c.mul(d_cy, f)};
  if (p.node.result_count > 2) out.push_back(c.bias_of(d_gates));
  return out;
}

// (input_gates, hidden_gates, hx, input_bias?, hidden_bias?) -> hy, workspace: r, z, n, hx and the hidden part of n
std::optional<std::vector<ValueId>> gru_cell(Pieces& p) {
  Cell c{p};
  const ValueId in = c.with_bias(0, 3), hidden = c.with_bias(1, 4), hx = p.value(2);
  const ValueId r = c.sigmoid(c.add(c.part(in, 0, 3), c.part(hidden, 0, 3)));
  const ValueId z = c.sigmoid(c.add(c.part(in, 1, 3), c.part(hidden, 1, 3)));
  const ValueId hidden_n = c.part(hidden, 2, 3);
  const ValueId n = c.tanh(c.add(c.part(in, 2, 3), c.mul(r, hidden_n)));
  return std::vector{c.add(n, c.mul(z, c.sub(hx, n))), c.join({r, z, n, hx, hidden_n})};
}

// (grad_hy, workspace, has_bias) -> gradients of input_gates, hidden_gates, hx, input_bias, hidden_bias
std::optional<std::vector<ValueId>> gru_cell_backward(Pieces& p) {
  Cell c{p};
  const ValueId grad = p.value(0), workspace = p.value(1);
  const ValueId r = c.part(workspace, 0, 5), z = c.part(workspace, 1, 5), n = c.part(workspace, 2, 5), hx = c.part(workspace, 3, 5),
                hidden_n = c.part(workspace, 4, 5);
  const ValueId d_z = c.from_sigmoid(c.mul(grad, c.sub(hx, n)), z), d_n = c.from_tanh(c.mul(grad, c.one_less(z)), n);
  const ValueId d_r = c.from_sigmoid(c.mul(d_n, hidden_n), r);
  const ValueId d_input = c.join({d_r, d_z, d_n}), d_hidden = c.join({d_r, d_z, c.mul(d_n, r)});
  std::vector<ValueId> out{d_input, d_hidden, c.mul(grad, z)};
  if (p.node.result_count > 3) out.insert(out.end(), {c.bias_of(d_input), c.bias_of(d_hidden)});
  return out;
}

}  // namespace lazyt::passes
