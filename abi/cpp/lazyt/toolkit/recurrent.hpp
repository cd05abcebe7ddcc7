// recurrent.hpp - the cells of torch.nn.LSTM and torch.nn.GRU as one fused kernel each; in backwards, a second one sums
// the gradient of the biases.
//
// They are operators outside the opset: PyTorch asks every accelerator for them. Where a backend refuses, the core takes
// them apart (core/passes/recurrent_rules.cpp). Gates lie side by side in [batch, n * width].
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_RECURRENT_HPP_
#define LAZYT_TOOLKIT_RECURRENT_HPP_

#include <vector>

#include "lazyt/toolkit/moves.hpp"
#include "lazyt/toolkit/operands.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {
namespace recurrent {

// What a call must look like: no opset says it, so it is looked at here. A letter for each argument and result: a digit is a
// matrix [batch, digit * width], ? a matrix [batch, width] or none (one of them is there), v a bias [gates * width], or none or empty,
// b a bool.
inline Refusal accept(const plugin::ProgramView& program, const lazyt_node_t& node, int64_t gates, std::string_view arguments,
                      std::string_view results) {
  const auto args = program.args(node);
  if (args.size() != arguments.size() || node.result_count != results.size()) return refuse_argument("another number of arguments or results");
  const lazyt_dtype_t dtype = result(program, node, 0).dtype;
  if (!is_floating(dtype)) return refuse_dtype(dtype);
  if (!all_tensors(program, node, [&](lazyt_dtype_t d) { return d == dtype; })) return refuse_argument("operands of several dtypes");
  int64_t batch = -1, width = -1;  // of the first matrix [batch, width]
  const auto fits = [&](const lazyt_value_t& value, char kind) {
    const auto dims = program.dims(value);
    if (is_host_scalar(value)) return false;
    if (kind == 'v') return dims.size() == 1 && dims[0] == gates * width;
    return dims.size() == 2 && dims[0] == batch && dims[1] == (kind == '?' ? 1 : kind - '0') * width;
  };
  const lazyt_arg_t& first = args[arguments.find('1')];
  if (first.kind != LAZYT_ARG_VALUE) return refuse_argument("a cell without a state");
  if (const auto dims = program.dims(program.values()[first.payload]); dims.size() == 2) batch = dims[0], width = dims[1];
  bool any = arguments.find('?') == std::string_view::npos;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool may_miss = arguments[i] == '?' || arguments[i] == 'v', is_bool = arguments[i] == 'b';
    if (is_bool ? args[i].kind != LAZYT_ARG_BOOL : args[i].kind != LAZYT_ARG_VALUE && !(may_miss && args[i].kind == LAZYT_ARG_NONE))
      return refuse_argument("other arguments");
    if (args[i].kind != LAZYT_ARG_VALUE) continue;
    if (!fits(program.values()[args[i].payload], arguments[i])) return refuse_argument("operands that do not fit");
    any = any || arguments[i] == '?';
  }
  for (uint32_t i = 0; i < results.size(); ++i) {
    const auto dims = program.dims(result(program, node, i));
    const bool empty_bias = results[i] == 'v' && dims.size() == 1 && dims[0] == 0;
    if (!empty_bias && !fits(result(program, node, i), results[i])) return refuse_argument("results that do not fit");
  }
  return any ? accepted() : refuse_argument("no gradient");
}
inline Refusal accept_lstm(const plugin::ProgramView& p, const lazyt_node_t& n) { return accept(p, n, 4, "441vv", "114"); }
inline Refusal accept_lstm_backward(const plugin::ProgramView& p, const lazyt_node_t& n) { return accept(p, n, 4, "??114b", "41v"); }
inline Refusal accept_gru(const plugin::ProgramView& p, const lazyt_node_t& n) { return accept(p, n, 3, "331vv", "15"); }
inline Refusal accept_gru_backward(const plugin::ProgramView& p, const lazyt_node_t& n) { return accept(p, n, 3, "15b", "331vv"); }

// One kernel over [batch, width], in the dtype's registers.
template <class Kernel, class BuilderT>
struct Cell {
  Cell(BuilderT& builder, const lazyt_node_t& n, const Dims& dims)
      : b(builder), node(n), kernel(dims, {}), type(type_of(b.dtype(n.results))), width(dims[1]) {}

  bool has(uint64_t i) const { return !Builder::is_none(b.program.args(node)[i]); }
  Reg load(const Tensor& t) { return kernel.load(t); }
  Reg load(uint64_t i) { return load(argument(i)); }
  Tensor argument(uint64_t i) const { return tensor_at(b, b.program.args(node)[i]); }
  // Gate i of argument `from`.
  Reg gate(uint64_t from, int64_t i) { return load(moves::window(argument(from), 1, i * width, width)); }
  // The same with the bias that argument `bias` is, if any.
  Reg gate(uint64_t from, uint64_t bias, int64_t i) {
    const Reg x = gate(from, i);
    return has(bias) ? add(x, load(moves::window(argument(bias), 0, i * width, width))) : x;
  }
  void store(Reg r, const Tensor& t) {
    kernel.store(kernel.round_to(r, t.dtype), t);
    if (b.may_be_donated(t.storage)) aliased.push_back(t.storage);
  }
  void store_gates(const std::vector<Reg>& gates, const Tensor& t) {
    for (size_t i = 0; i < gates.size(); ++i) store(gates[i], moves::window(t, 1, static_cast<int64_t>(i) * width, width));
  }
  void finish() { kernel.build(b, aliased); }

  Reg op(Op o, Reg x, Reg y = kNoReg, Reg z = kNoReg) { return kernel.op(o, x, y, z); }
  Reg add(Reg x, Reg y) { return op(Op::kAdd, x, y); }
  Reg sub(Reg x, Reg y) { return op(Op::kSub, x, y); }
  Reg mul(Reg x, Reg y) { return op(Op::kMul, x, y); }
  Reg sigmoid(Reg x) { return op(Op::kSigmoid, x); }
  Reg tanh(Reg x) { return op(Op::kTanh, x); }
  Reg one_less(Reg x) { return sub(kernel.constant(1, type), x); }
  Reg from_sigmoid(Reg grad, Reg s) { return mul(mul(grad, s), one_less(s)); }
  Reg from_tanh(Reg grad, Reg t) { return mul(grad, one_less(mul(t, t))); }

  BuilderT& b;
  const lazyt_node_t& node;
  Kernel kernel;
  Type type;
  int64_t width;
  std::vector<StorageId> aliased;
};

// Result v = gates summed over the batch; empty, if the cell has no biases.
template <class Kernel, class BuilderT>
void sum_bias(BuilderT& b, const Tensor& gates, uint32_t v) {
  Tensor out = b.make_dense(v);
  if (out.count() == 0) return;
  Kernel kernel(gates.dims(), {true, false});
  out.layout = {out.layout.offset, {1, gates.dims()[1]}, {0, 1}};
  kernel.reduce(kernel.load(gates), ReduceKind::kSum, out);
  kernel.build(b, {});
}

// (input_gates, hidden_gates, cx, input_bias?, hidden_bias?) -> hy, cy, workspace: the activated gates i, f, g, o.
template <class Kernel, class BuilderT>
void lstm_cell(BuilderT& b, const lazyt_node_t& node) {
  Cell<Kernel, BuilderT> c(b, node, b.dims(node.results));
  auto gate = [&](int64_t i) { return c.add(c.gate(0, 3, i), c.gate(1, 4, i)); };
  const Reg i = c.sigmoid(gate(0)), f = c.sigmoid(gate(1)), g = c.tanh(gate(2)), o = c.sigmoid(gate(3));
  const Reg cy = c.add(c.mul(f, c.load(2)), c.mul(i, g));
  c.store(c.mul(o, c.tanh(cy)), b.make(node.results));
  c.store(cy, b.make(node.results + 1));
  c.store_gates({i, f, g, o}, b.make(node.results + 2));
  c.finish();
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias) -> gradients of the gates, of cx, of the biases
template <class Kernel, class BuilderT>
void lstm_cell_backward(BuilderT& b, const lazyt_node_t& node) {
  Cell<Kernel, BuilderT> c(b, node, b.dims(node.results + 1));
  const Reg i = c.gate(4, 0), f = c.gate(4, 1), g = c.gate(4, 2), o = c.gate(4, 3), tanh_cy = c.tanh(c.load(3));
  Reg d_cy = kNoReg, d_o = kNoReg;
  if (c.has(0)) {
    const Reg d_hy = c.load(0);
    d_cy = c.from_tanh(c.mul(d_hy, o), tanh_cy);
    if (c.has(1)) d_cy = c.add(c.load(1), d_cy);
    d_o = c.from_sigmoid(c.mul(d_hy, tanh_cy), o);
  } else {
    d_cy = c.load(1);
    d_o = c.kernel.constant(0, c.type);
  }
  const Tensor gates = b.make(node.results);
  c.store_gates({c.from_sigmoid(c.mul(d_cy, g), i), c.from_sigmoid(c.mul(d_cy, c.load(2)), f), c.from_tanh(c.mul(d_cy, i), g), d_o}, gates);
  c.store(c.mul(d_cy, f), b.make(node.results + 1));
  c.finish();
  sum_bias<Kernel>(b, gates, node.results + 2);
}

// (input_gates, hidden_gates, hx, input_bias?, hidden_bias?) -> hy, workspace: r, z, n, hx and the hidden part of n
template <class Kernel, class BuilderT>
void gru_cell(BuilderT& b, const lazyt_node_t& node) {
  Cell<Kernel, BuilderT> c(b, node, b.dims(node.results));
  const Reg r = c.sigmoid(c.add(c.gate(0, 3, 0), c.gate(1, 4, 0))), z = c.sigmoid(c.add(c.gate(0, 3, 1), c.gate(1, 4, 1)));
  const Reg hidden_n = c.gate(1, 4, 2), n = c.tanh(c.add(c.gate(0, 3, 2), c.mul(r, hidden_n))), hx = c.load(2);
  c.store(c.add(n, c.mul(z, c.sub(hx, n))), b.make(node.results));
  c.store_gates({r, z, n, hx, hidden_n}, b.make(node.results + 1));
  c.finish();
}

// (grad_hy, workspace, has_bias) -> gradients of input_gates, hidden_gates, hx, input_bias, hidden_bias
template <class Kernel, class BuilderT>
void gru_cell_backward(BuilderT& b, const lazyt_node_t& node) {
  Cell<Kernel, BuilderT> c(b, node, b.dims(node.results + 2));
  const Reg grad = c.load(uint64_t{0}), r = c.gate(1, 0), z = c.gate(1, 1), n = c.gate(1, 2), hx = c.gate(1, 3), hidden_n = c.gate(1, 4);
  const Reg d_z = c.from_sigmoid(c.mul(grad, c.sub(hx, n)), z), d_n = c.from_tanh(c.mul(grad, c.one_less(z)), n);
  const Reg d_r = c.from_sigmoid(c.mul(d_n, hidden_n), r);
  const Tensor input = b.make(node.results), hidden = b.make(node.results + 1);
  c.store_gates({d_r, d_z, d_n}, input);
  c.store_gates({d_r, d_z, c.mul(d_n, r)}, hidden);
  c.store(c.mul(grad, z), b.make(node.results + 2));
  c.finish();
  sum_bias<Kernel>(b, input, node.results + 3);
  sum_bias<Kernel>(b, hidden, node.results + 4);
}

}  // namespace recurrent

template <class Kernel, class BuilderT>
void add_recurrent(Operators<BuilderT>& all) {
  using namespace recurrent;
  all.add_named("aten::_thnn_fused_lstm_cell", {Role::kOpaque, accept_lstm, lstm_cell<Kernel, BuilderT>});
  all.add_named("aten::_thnn_fused_lstm_cell_backward_impl", {Role::kOpaque, accept_lstm_backward, lstm_cell_backward<Kernel, BuilderT>});
  all.add_named("aten::_thnn_fused_gru_cell", {Role::kOpaque, accept_gru, gru_cell<Kernel, BuilderT>});
  all.add_named("aten::_thnn_fused_gru_cell_backward", {Role::kOpaque, accept_gru_backward, gru_cell_backward<Kernel, BuilderT>});
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_RECURRENT_HPP_
