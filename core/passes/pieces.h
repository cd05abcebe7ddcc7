// Pieces: what a decomposition rule sees of its node, and how it makes the nodes that replace it.
//
// Nothing says what a node outside the opset has, nor of which ranks its operands are. So what a rule reads is looked
// for: an argument, a dim or a result that is not there, a number that is no size, or a shape that no tensor has
// throws std::out_of_range, and the rule does not apply. Rules index by at(), never by [].
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "passes/rewriter.h"

namespace lazyt::passes {

inline bool is_half(base::DType d) { return d == LAZYT_DTYPE_FLOAT16 || d == LAZYT_DTYPE_BFLOAT16; }
inline bool is_float(base::DType d) { return is_half(d) || d == LAZYT_DTYPE_FLOAT32 || d == LAZYT_DTYPE_FLOAT64; }
inline bool is_integral(base::DType d) { return d >= LAZYT_DTYPE_UINT8 && d <= LAZYT_DTYPE_INT64; }
// What rules compute in.
inline base::DType wide(base::DType d) { return is_half(d) ? LAZYT_DTYPE_FLOAT32 : d; }

class Pieces {
 public:
  using ValueId = ir::ValueId;
  using Arg = ir::Arg;

  // args: the node's, with operands of the new graph.
  Pieces(Rewriter& rewriter, const ir::Node& node)
      : node(node), args(rewriter.map_args(node)), graph_(rewriter.to), from_(rewriter.from) {}

  const ir::Node& node;
  const std::vector<Arg> args;

  const Arg& arg(size_t i) const { return args.at(i); }
  bool is_value(size_t i) const { return arg(i).kind == LAZYT_ARG_VALUE; }
  bool is_none(size_t i) const { return arg(i).kind == LAZYT_ARG_NONE; }
  ValueId value(size_t i) const {
    if (!is_value(i)) throw std::out_of_range("no value");
    return arg(i).value;
  }
  // A size, a step, a number of groups: from 1 on, so small that a product of two is a number, too.
  static int64_t size_of(int64_t n) {
    if (n < 1 || n > INT32_MAX) throw std::out_of_range("no size");
    return n;
  }
  // Elements of a shape made of sizes of several tensors.
  static int64_t elements(const base::Dims& dims) {
    if (!base::is_countable(dims)) throw std::out_of_range("no shape");
    return base::numel(dims);
  }
  const ir::Meta& meta(ValueId v) const { return graph_.values.at(v).meta; }
  const base::Dims& dims(ValueId v) const { return meta(v).dims; }
  int64_t size(ValueId v, size_t dim) const { return dims(v).at(dim); }
  size_t rank(ValueId v) const { return dims(v).size(); }
  base::Dims all_dims(ValueId v) const;  // 0, 1, ...
  base::DType dtype(ValueId v) const { return meta(v).dtype; }
  bool is_host_scalar(ValueId v) const { return graph_.values.at(v).kind == ir::ValueKind::kHostScalar; }
  const ir::Meta& result(uint32_t r = 0) const {
    if (r >= node.result_count) throw std::out_of_range("no result");
    return from_.values[node.first_result + r].meta;
  }
  // Operand i in the result's dtype, halves in f32; and back: v in the result's dtype and shape.
  ValueId operand(size_t i) { return cast(value(i), wide(result().dtype)); }
  ValueId rounded(ValueId v, uint32_t r = 0) { return reshape(cast(v, result(r).dtype), result(r).dims); }

  // One node; its result is row-major.
  ValueId op(std::string name, std::string overload, std::vector<Arg> a, base::DType dtype, base::Dims dims) {
    return graph_.add_op(std::move(name), std::move(overload), std::move(a), row_major(dtype, std::move(dims)), node.source);
  }
  // The same for several results; they follow the first.
  ValueId node_of(std::string name, std::vector<Arg> a, base::DType dtype, const std::vector<base::Dims>& dims) {
    std::vector<ir::Meta> metas;
    for (const base::Dims& d : dims) metas.push_back(row_major(dtype, d));
    return graph_.nodes[graph_.add_node(std::move(name), "", std::move(a), std::move(metas), node.source)].first_result;
  }
  ValueId unary(std::string name, ValueId x) { return op(std::move(name), "", {Arg::of_value(x)}, dtype(x), dims(x)); }
  // add, sub, mul, div, pow, lt, ...: .Tensor of two values, broadcast, or .Scalar of a value and a number.
  ValueId binary(const std::string& name, ValueId a, ValueId b);
  ValueId scalar(const std::string& name, ValueId a, Arg number);
  ValueId compare(const std::string& name, ValueId a, Arg number);
  ValueId add(ValueId a, ValueId b) { return binary("add", a, b); }
  ValueId sub(ValueId a, ValueId b) { return binary("sub", a, b); }
  ValueId mul(ValueId a, ValueId b) { return binary("mul", a, b); }
  ValueId div(ValueId a, ValueId b) { return binary("div", a, b); }
  // With a number known to the rule; whole ones are passed as such, as operands may be integers.
  ValueId plus(ValueId a, double n) { return scalar("add", a, number(n)); }
  ValueId times(ValueId a, double n) { return scalar("mul", a, number(n)); }
  ValueId from(double n, ValueId a) { return scalar("rsub", a, number(n)); }  // n - a
  ValueId is(const char* relation, ValueId a, double n) { return compare(relation, a, number(n)); }
  // Operators of two values without an overload: maximum; logical_and, whose result is bool.
  ValueId of_two(const std::string& name, ValueId a, ValueId b);
  ValueId both(const std::string& name, ValueId a, ValueId b);
  ValueId where(ValueId which, ValueId a, ValueId b);
  ValueId number_where(ValueId which, double n, ValueId b);
  ValueId cast(ValueId x, base::DType to);
  ValueId reshape(ValueId x, base::Dims to);
  ValueId permute(ValueId x, base::Dims order);
  // Two dims swapped; one moved to stand at `to`.
  ValueId swap(ValueId x, size_t a, size_t b);
  ValueId move(ValueId x, size_t from, size_t to);
  ValueId slice(ValueId x, size_t dim, int64_t start, int64_t end, int64_t step = 1);
  ValueId flip(ValueId x, size_t dim);
  ValueId cat(const std::vector<ValueId>& parts, size_t dim);
  ValueId expand(ValueId x, base::Dims to);
  // Zeros before and behind, along one dim.
  ValueId pad(ValueId x, size_t dim, int64_t before, int64_t behind);
  // A dim of size 1 more, or less.
  ValueId with_one(ValueId x, size_t dim);
  ValueId without(ValueId x, size_t dim);
  ValueId full(Arg number, base::DType dtype, base::Dims dims);
  ValueId zeros(base::DType dtype, base::Dims dims) { return full(Arg::of_int(0), dtype, std::move(dims)); }
  ValueId arange(int64_t n, base::DType dtype);
  // sum, mean or amax over dims that stay with size 1.
  ValueId reduce(const std::string& name, ValueId x, std::vector<int64_t> over);

 private:
  static Arg number(double n);
  static ir::Meta row_major(base::DType dtype, base::Dims dims);

  ir::Graph& graph_;
  const ir::Graph& from_;
};

base::Dims broadcast(const base::Dims& a, const base::Dims& b);
// With a dim of size n before dim `at`; without dim `at`.
base::Dims inserted(base::Dims dims, size_t at, int64_t n);
base::Dims erased(base::Dims dims, size_t at);

// What a rule gives: the node's results, or nothing where it does not apply.
using Results = std::optional<std::vector<ir::ValueId>>;
inline const Results kNot = std::nullopt;
inline Results one(ir::ValueId v) { return std::vector<ir::ValueId>{v}; }

// A number that is known when the program is compiled.
inline bool is_constant(const ir::Arg& a) { return a.kind == LAZYT_ARG_INT || a.kind == LAZYT_ARG_DOUBLE; }

}  // namespace lazyt::passes
