// reductions.hpp - the reductions of the opset that a fused kernel can end in.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_REDUCTIONS_HPP_
#define LAZYT_TOOLKIT_REDUCTIONS_HPP_

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "lazyt/toolkit/plan.hpp"
#include "lazyt/toolkit/registers.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {
namespace detail {

struct Form {
  lazyt_op_t op;
  ReduceKind kind;
  bool mean = false;
  int dims_arg = -1;  // -1: all dims
  int norm_arg = -1;  // the order of a norm
};

inline constexpr Form kForms[] = {
    {LAZYT_OP_SUM, ReduceKind::kSum},
    {LAZYT_OP_SUM_DIM_INTLIST, ReduceKind::kSum, false, 1},
    {LAZYT_OP_MEAN, ReduceKind::kSum, true},
    {LAZYT_OP_MEAN_DIM, ReduceKind::kSum, true, 1},
    {LAZYT_OP_PROD, ReduceKind::kProd},
    {LAZYT_OP_PROD_DIM_INT, ReduceKind::kProd, false, 1},
    {LAZYT_OP_AMAX, ReduceKind::kMax, false, 1},
    {LAZYT_OP_AMIN, ReduceKind::kMin, false, 1},
    {LAZYT_OP_MAX, ReduceKind::kMax},
    {LAZYT_OP_MIN, ReduceKind::kMin},
    {LAZYT_OP_ANY, ReduceKind::kAny},
    {LAZYT_OP_ANY_DIM, ReduceKind::kAny, false, 1},
    {LAZYT_OP_ANY_DIMS, ReduceKind::kAny, false, 1},
    {LAZYT_OP_ALL, ReduceKind::kAll},
    {LAZYT_OP_ALL_DIM, ReduceKind::kAll, false, 1},
    {LAZYT_OP_ALL_DIMS, ReduceKind::kAll, false, 1},
    {LAZYT_OP_NORM_SCALAR, ReduceKind::kSum, false, -1, 1},
    {LAZYT_OP_NORM_SCALAROPT_DIM, ReduceKind::kSum, false, 2, 1},
    {LAZYT_OP_NORM_SCALAROPT_DIM_DTYPE, ReduceKind::kSum, false, 2, 1},
    {LAZYT_OP_LINALG_VECTOR_NORM, ReduceKind::kSum, false, 2, 1},
};

inline const Form* find_form(lazyt_op_t op) {
  for (const Form& f : kForms)
    if (f.op == op) return &f;
  return nullptr;
}

}  // namespace detail

inline bool is_reduction(lazyt_op_t op) { return detail::find_form(op) != nullptr; }

// Which dims of operand 0 the node reduces.
inline std::vector<bool> reduced_dims(const plugin::ProgramView& program, const lazyt_node_t& node) {
  const detail::Form& form = *detail::find_form(node.op);
  const auto args = program.args(node);
  const size_t rank = program.values()[args[0].payload].rank;
  if (form.dims_arg < 0) return std::vector<bool>(rank, true);
  const lazyt_arg_t& arg = args[static_cast<uint64_t>(form.dims_arg)];
  std::vector<bool> out(rank, false);
  if (arg.kind == LAZYT_ARG_INT) {
    if (rank) out[static_cast<size_t>(arg.payload)] = true;
    return out;
  }
  if (arg.kind == LAZYT_ARG_NONE || arg.count == 0) {
    // torch.any(dim=[]) alone reduces nothing.
    const bool nothing =
        arg.kind != LAZYT_ARG_NONE && (node.op == LAZYT_OP_ANY_DIMS || node.op == LAZYT_OP_ALL_DIMS);
    return std::vector<bool>(rank, !nothing);
  }
  for (int64_t d : program.ints(arg))
    if (rank) out[static_cast<size_t>(d)] = true;
  return out;
}

// x: operand 0. out: as many dims as the walk, the reduced ones of stride 0. Throws UNIMPLEMENTED for what kernels lack.
// Of the kernel it wants reduce(x, kind, out, divisor, root): a total in f64 or i64, scaled by 1 / divisor, its root taken.
template <class Kernel>
void emit_reduction(const plugin::ProgramView& program, const lazyt_node_t& node, Kernel& k, Reg x,
                    const Tensor& out) {
  const detail::Form& form = *detail::find_form(node.op);
  const auto args = program.args(node);
  const lazyt_value_t& operand = program.values()[args[0].payload];
  const auto reduced = reduced_dims(program, node);
  const auto dims = program.dims(operand);
  double length = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    if (reduced[d]) length *= static_cast<double>(dims[d]);
  // Sums and products of integers are i64; a dtype argument converts before the sum.
  const Type result = type_of(out.dtype);
  if (form.norm_arg >= 0) {
    const lazyt_arg_t& order = args[static_cast<uint64_t>(form.norm_arg)];
    double p = 2;
    if (order.kind == LAZYT_ARG_INT)
      p = static_cast<double>(static_cast<int64_t>(order.payload));
    else if (order.kind == LAZYT_ARG_DOUBLE)
      p = std::bit_cast<double>(order.payload);
    else if (order.kind != LAZYT_ARG_NONE)
      throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "a norm whose order is a host scalar");
    if (!is_float(result)) throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "a norm of integers");
    x = k.cast(x, result);
    if (p == 2 && length != 1) {
      return k.reduce(x, ReduceKind::kSquares, out, 1, true);  // in f64: no overflow that the root would undo
    }
    const Reg a = k.op(Op::kAbs, x);
    if (p == 1 || p == 2) return k.reduce(a, ReduceKind::kSum, out);  // of one element: its size
    if (p == std::numeric_limits<double>::infinity() && length > 0) return k.reduce(a, ReduceKind::kMax, out);
    if (p == -std::numeric_limits<double>::infinity() && length > 0)
      return k.reduce(a, ReduceKind::kMin, out);
    if (p == 0)
      return k.reduce(k.cast(k.op(Op::kNe, x, k.constant(0, result)), result), ReduceKind::kSum, out);
    throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "a norm of order " + std::to_string(p));
  }
  switch (form.kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProd:
      x = k.cast(x, is_float(result) ? result : Type::kI64);
      if (form.mean && !is_float(result))
        throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "a mean of integers");
      return k.reduce(x, form.kind, out, form.mean ? length : 1);
    case ReduceKind::kAny:
    case ReduceKind::kAll:
      return k.reduce(x, form.kind, out);
    default:
      if (length == 0) throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "the largest or smallest of nothing");
      return k.reduce(x, form.kind, out);
  }
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_REDUCTIONS_HPP_
