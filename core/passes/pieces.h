// Pieces: what a decomposition rule sees of its node, and how it makes the nodes that replace it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "passes/rewriter.h"

namespace lazyt::passes {

class Pieces {
 public:
  using ValueId = ir::ValueId;
  using Arg = ir::Arg;

  // args: the node's, with operands of the new graph.
  Pieces(Rewriter& rewriter, const ir::Node& node)
      : node(node), args(rewriter.map_args(node)), graph_(rewriter.to), from_(rewriter.from) {}

  const ir::Node& node;
  const std::vector<Arg> args;

  bool is_value(size_t i) const { return args[i].kind == LAZYT_ARG_VALUE; }
  bool is_none(size_t i) const { return args[i].kind == LAZYT_ARG_NONE; }
  ValueId value(size_t i) const { return args[i].value; }
  const ir::Meta& meta(ValueId v) const { return graph_.values[v].meta; }
  const base::Dims& dims(ValueId v) const { return meta(v).dims; }
  base::DType dtype(ValueId v) const { return meta(v).dtype; }
  bool is_host_scalar(ValueId v) const { return graph_.values[v].kind == ir::ValueKind::kHostScalar; }
  const ir::Meta& result(uint32_t r = 0) const { return from_.values[node.first_result + r].meta; }

  // One node; its result is row-major.
  ValueId op(std::string name, std::string overload, std::vector<Arg> a, base::DType dtype, base::Dims dims) {
    return graph_.add_op(std::move(name), std::move(overload), std::move(a),
                         ir::Meta::contiguous(dtype, std::move(dims)), node.source);
  }
  // The same for several results; they follow the first.
  ValueId node_of(std::string name, std::vector<Arg> a, base::DType dtype, const std::vector<base::Dims>& dims) {
    std::vector<ir::Meta> metas;
    for (const base::Dims& d : dims) metas.push_back(ir::Meta::contiguous(dtype, d));
    return graph_.nodes[graph_.add_node(std::move(name), "", std::move(a), std::move(metas), node.source)].first_result;
  }
  ValueId unary(std::string name, ValueId x) { return op(std::move(name), "", {Arg::of_value(x)}, dtype(x), dims(x)); }
  // add, sub, mul, div, pow, lt, ...: .Tensor of two values, broadcast, or .Scalar of a value and a number.
  ValueId binary(const std::string& name, ValueId a, ValueId b);
  ValueId scalar(const std::string& name, ValueId a, Arg number);
  ValueId compare(const std::string& name, ValueId a, Arg number);
  ValueId cast(ValueId x, base::DType to);
  ValueId reshape(ValueId x, base::Dims to);
  ValueId permute(ValueId x, base::Dims order);
  ValueId slice(ValueId x, int64_t dim, int64_t start, int64_t end);
  ValueId full(Arg number, base::DType dtype, base::Dims dims);
  // sum, mean or amax over dims that stay with size 1.
  ValueId reduce(const std::string& name, ValueId x, std::vector<int64_t> over);

 private:
  ir::Graph& graph_;
  const ir::Graph& from_;
};

base::Dims broadcast(const base::Dims& a, const base::Dims& b);

// What a rule gives: the node's results, or nothing where it does not apply.
using Results = std::optional<std::vector<ir::ValueId>>;
inline const Results kNot = std::nullopt;
inline Results one(ir::ValueId v) { return std::vector<ir::ValueId>{v}; }

inline bool is_half(base::DType d) { return d == LAZYT_DTYPE_FLOAT16 || d == LAZYT_DTYPE_BFLOAT16; }
inline bool is_float(base::DType d) { return is_half(d) || d == LAZYT_DTYPE_FLOAT32 || d == LAZYT_DTYPE_FLOAT64; }
// What rules compute in.
inline base::DType wide(base::DType d) { return is_half(d) ? LAZYT_DTYPE_FLOAT32 : d; }
// A number that is known when the program is compiled.
inline bool is_constant(const ir::Arg& a) { return a.kind == LAZYT_ARG_INT || a.kind == LAZYT_ARG_DOUBLE; }

}  // namespace lazyt::passes
