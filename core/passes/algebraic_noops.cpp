// Why bits stay: a replaced value has the same elements by a move of bytes alone, or by arithmetic that is
// the identity on every bit pattern that can occur (said at each rule), and it lies the same (layout.h), so
// that no reader's kernel works in another order. An output's own node is never replaced, only what it reads.
#include <algorithm>
#include <optional>
#include <string_view>

#include "passes/layout.h"
#include "passes/pass.h"
#include "passes/pieces.h"

namespace lazyt::passes {

namespace {

using base::Dims;
using ir::Arg;
using ir::kNone;
using ir::Node;
using ir::ValueId;

bool is_int(const Arg& a, int64_t i) { return a.kind == LAZYT_ARG_INT && a.i == i; }
bool is_one(const Arg& a) { return is_int(a, 1) || (a.kind == LAZYT_ARG_DOUBLE && a.d == 1.0); }
bool is_number(const Arg& a) { return a.kind == LAZYT_ARG_INT || a.kind == LAZYT_ARG_DOUBLE; }

bool is_signed_integral(base::DType d) {
  return d == LAZYT_DTYPE_INT8 || d == LAZYT_DTYPE_INT16 || d == LAZYT_DTYPE_INT32 || d == LAZYT_DTYPE_INT64;
}
// Every value of `from` is one of `to`: there and back changes nothing.
bool holds(base::DType to, base::DType from) {
  if (from == LAZYT_DTYPE_BOOL) return is_integral(to);
  if (!is_integral(from) || !is_integral(to)) return false;
  if (is_signed_integral(from) && !is_signed_integral(to)) return false;
  bool wider = lazyt_dtype_size(to) > lazyt_dtype_size(from);
  return wider || (lazyt_dtype_size(to) == lazyt_dtype_size(from) &&
                   is_signed_integral(to) == is_signed_integral(from));
}

class Noops {
 public:
  explicit Noops(ir::Graph& graph) : g_(graph), layout_(layouts(graph)), same_(graph.values.size()) {
    for (ValueId v = 0; v < same_.size(); v++) same_[v] = v;
    is_output_.assign(same_.size(), false);
    for (const ir::Output& out : g_.outputs) is_output_[out.value] = true;
  }

  void run() {
    std::vector<bool> keep(g_.nodes.size(), true);
    for (ir::NodeId n = 0; n < g_.nodes.size(); n++) {
      Node& node = g_.nodes[n];
      for (Arg& arg : node.args) ir::for_each_value(arg, [&](ValueId& v) { v = same_[v]; });
      if (node.result_count != 1) continue;
      const ValueId result = node.first_result;
      shorten(node);
      const ValueId v = equal_operand(node);
      if (v == kNone || is_output_[result]) continue;
      same_[result] = v;
      keep[n] = false;
    }
    g_.compact(keep);
  }

 private:
  const ir::Meta& meta(ValueId v) const { return g_.values[v].meta; }
  const ir::Meta& result_meta(const Node& n) const { return meta(n.first_result); }
  const Node* producer(ValueId v) const {
    return g_.values[v].kind == ir::ValueKind::kResult ? &g_.nodes[g_.values[v].producer] : nullptr;
  }
  ValueId operand(const Node& n) const {
    return !n.args.empty() && n.args[0].kind == LAZYT_ARG_VALUE ? n.args[0].value : kNone;
  }
  bool dense(ValueId v) const { return layout_[v] != Layout::kUnknown; }
  bool plain(ValueId v) const { return layout_[v] == Layout::kPlain; }

  static bool is_reshape(const Node& n) {
    return (n.name == "aten::reshape" || n.name == "aten::view") && n.overload.empty();
  }

  // The order of dims if the node is a permutation.
  std::optional<Dims> order_of(const Node& n) const {
    const auto rank = static_cast<int64_t>(meta(operand(n)).dims.size());
    Dims order(static_cast<size_t>(rank));
    for (int64_t i = 0; i < rank; i++) order[static_cast<size_t>(i)] = i;
    if (n.name == "aten::t" && rank <= 2) {
      std::reverse(order.begin(), order.end());
      return order;
    }
    if (n.name == "aten::transpose" && n.args.size() == 3 && n.args[1].kind == LAZYT_ARG_INT &&
        n.args[2].kind == LAZYT_ARG_INT) {
      const int64_t a = n.args[1].i, b = n.args[2].i;
      if (rank == 0) return order;
      if (a >= rank || b >= rank) return std::nullopt;
      std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
      return order;
    }
    if (n.name != "aten::permute" || n.args.size() != 2 || n.args[1].kind != LAZYT_ARG_INTS ||
        n.args[1].ints.size() != order.size())
      return std::nullopt;
    for (int64_t d : n.args[1].ints)
      if (d < 0 || d >= rank) return std::nullopt;
    return n.args[1].ints;
  }

  struct Range {
    int64_t dim, start, length;
  };
  // The part, of step 1, that args from `first` on (dim, start, end, step) name in `whole`, and that is as long as `part`.
  static std::optional<Range> range(const Node& n, size_t first, const Dims& whole, const Dims& part) {
    const Arg &dim = n.args[first], &start = n.args[first + 1];
    if (dim.kind != LAZYT_ARG_INT || !is_int(n.args[first + 3], 1)) return std::nullopt;
    if (start.kind != LAZYT_ARG_NONE && start.kind != LAZYT_ARG_INT) return std::nullopt;
    const int64_t begin = start.kind == LAZYT_ARG_INT ? start.i : 0;
    if (dim.i >= static_cast<int64_t>(whole.size()) || begin < 0) return std::nullopt;
    const auto d = static_cast<size_t>(dim.i);
    return Range{dim.i, std::min(begin, whole[d]), part[d]};
  }
  std::optional<Range> range_of(const Node& n) const {
    if (n.name != "aten::slice" || n.args.size() != 5) return std::nullopt;
    return range(n, 1, meta(operand(n)).dims, result_meta(n).dims);
  }
  // What a write to a part takes.
  std::optional<Range> written_by(const Node& n) const {
    if (n.name != "aten::slice_scatter" || n.args.size() != 6 || n.args[1].kind != LAZYT_ARG_VALUE) return std::nullopt;
    return range(n, 2, result_meta(n).dims, meta(n.args[1].value).dims);
  }
  // Of a part of a tensor that other parts have been written to: the tensor before all of the writes, else x. Between two of them
  // nothing is read: what a write begins with could not lie where it was.
  ValueId unwritten(ValueId x, const Range& part) const {
    ValueId v = x;
    for (const Node* n = producer(v); n; n = producer(v)) {
      const auto written = written_by(*n);
      if (!written) break;
      const bool meets = written->start < part.start + part.length && part.start < written->start + written->length;
      if (written->dim != part.dim || meets || !plain(v) || !plain(n->args[0].value)) return x;
      v = n->args[0].value;
    }
    return v;
  }

  // Two moves of bytes become one.
  void shorten(Node& node) {
    if (operand(node) == kNone) return;
    if (const auto part = range_of(node)) node.args[0].value = unwritten(operand(node), *part);
    const ValueId x = operand(node);
    const Node* inner = producer(x);
    if (!inner || inner->result_count != 1) return;
    const ValueId y = operand(*inner);
    if (y == kNone) return;
    if (is_reshape(node)) {
      // Of a row-major value every reshape is a view, so the way over another shape leaves no trace.
      const bool reshapes = is_reshape(*inner) || inner->name == "aten::unsqueeze" || inner->name == "aten::squeeze";
      if (reshapes && plain(y)) node.args[0].value = y;
      return;
    }
    if (node.name == "aten::expand" && inner->name == "aten::expand") {
      node.args[0].value = y;  // strides 0 stay 0, others stay
      node.args[1] = Arg::of_ints(result_meta(node).dims);
      return;
    }
    if (auto outer = range_of(node)) {
      auto first = range_of(*inner);
      if (!first || first->dim != outer->dim) return;
      const int64_t start = first->start + outer->start;
      node.args[0].value = y;
      node.args[2] = Arg::of_int(start);
      node.args[3] = Arg::of_int(start + outer->length);
      return;
    }
    auto outer = order_of(node);
    if (!outer) return;
    auto first = order_of(*inner);
    if (!first) return;
    Dims both;
    for (int64_t d : *outer) both.push_back((*first)[static_cast<size_t>(d)]);
    node.name = "aten::permute";
    node.overload.clear();
    node.args = {Arg::of_value(y), Arg::of_ints(std::move(both))};
  }

  // A value that readers cannot tell from the node's result, or kNone.
  ValueId equal_operand(const Node& n) const {
    const ValueId x = operand(n);
    if (x == kNone || g_.values[x].kind == ir::ValueKind::kHostScalar) return kNone;
    const ir::Meta& to = result_meta(n);
    if (ValueId v = undone(n, x); v != kNone) return v;
    if (n.name == "aten::slice_scatter" || n.name == "aten::copy") return overwritten(n);
    if (meta(x).dtype != to.dtype || meta(x).dims != to.dims) return kNone;

    // Moves of bytes that move nothing.
    if (is_reshape(n) || n.name == "aten::expand" || n.name == "aten::alias" || n.name == "aten::squeeze") return x;
    if (n.name == "aten::view" && n.overload == "dtype") return x;
    if (n.name == "aten::slice") return n.args.size() == 5 && is_int(n.args[4], 1) ? x : kNone;
    if (auto order = order_of(n)) return std::is_sorted(order->begin(), order->end()) ? x : kNone;
    if (n.name == "aten::clone" || n.name == "aten::_to_copy") return copied(n, x);
    return identity(n, x);
  }

  // A copy in the same dtype, if it lies as its operand does.
  ValueId copied(const Node& n, ValueId x) const {
    const Arg& format = n.args.back();
    if (format.kind == LAZYT_ARG_MEMORY_FORMAT && format.i == 0) return plain(x) ? x : kNone;
    const bool preserve = format.kind == LAZYT_ARG_NONE || (format.kind == LAZYT_ARG_MEMORY_FORMAT && format.i == 1);
    return preserve && dense(x) ? x : kNone;
  }

  // The inner operand of f(g(y)) where f undoes g.
  ValueId undone(const Node& n, ValueId x) const {
    const Node* inner = producer(x);
    if (!inner || inner->result_count != 1 || inner->name != n.name || inner->overload != n.overload) return kNone;
    const ValueId y = operand(*inner);
    if (y == kNone || g_.values[y].kind == ir::ValueKind::kHostScalar) return kNone;
    const ir::Meta& from = meta(y);
    const ir::Meta& to = result_meta(n);
    if (from.dtype != to.dtype || from.dims != to.dims) return kNone;
    if (n.name == "aten::view" && n.overload == "dtype") return plain(y) ? y : kNone;
    // The sign bit is flipped twice, of NaNs too; integers wrap.
    if (n.name == "aten::neg")
      return dense(y) && meta(x).dtype == to.dtype && (is_signed_integral(to.dtype) || is_real(to.dtype)) ? y : kNone;
    if (n.name == "aten::_to_copy" && holds(meta(x).dtype, from.dtype)) {
      const bool same = n.args.back().kind == LAZYT_ARG_NONE && inner->args.back().kind == LAZYT_ARG_NONE;
      return same && dense(y) ? y : kNone;
    }
    return kNone;
  }

  // A write over all of an operand is what was written; of a part over itself, nothing.
  ValueId overwritten(const Node& n) const {
    if (const auto written = written_by(n)) {
      const ValueId x = n.args[0].value;
      const Node* inner = producer(n.args[1].value);
      const auto read = inner && operand(*inner) == x ? range_of(*inner) : std::nullopt;
      if (read && read->dim == written->dim && read->start == written->start && meta(n.args[1].value).dtype == meta(x).dtype && plain(x)) return x;
    }
    if (n.args.size() < 2 || n.args[1].kind != LAZYT_ARG_VALUE) return kNone;
    const ValueId x = n.args[0].value, source = n.args[1].value;
    const ir::Meta& to = result_meta(n);
    if (meta(source).dtype != to.dtype || meta(source).dims != to.dims || meta(x).dims != to.dims) return kNone;
    if (n.name == "aten::slice_scatter" && (n.args.size() != 6 || !is_int(n.args[5], 1))) return kNone;
    if (g_.values[source].kind == ir::ValueKind::kHostScalar) return kNone;
    return plain(x) && plain(source) ? source : kNone;
  }

  static bool is_real(base::DType d) { return d == LAZYT_DTYPE_FLOAT32 || d == LAZYT_DTYPE_FLOAT64; }

  // Results of arithmetic: no signalling NaN, and no denormal where denormals are flushed.
  bool is_arithmetic(ValueId v) const {
    static constexpr std::string_view kNames[] = {"aten::add",  "aten::sub",  "aten::mul",   "aten::div", "aten::exp",
                                                  "aten::log",  "aten::sqrt", "aten::tanh",  "aten::mm",  "aten::addmm",
                                                  "aten::rsub", "aten::sum",  "aten::sigmoid"};
    const Node* n = producer(v);
    return n && std::ranges::find(kNames, n->name) != std::end(kNames);
  }

  // Arithmetic that is the identity. x + 0 is not (-0.0 + 0 is 0.0), but for integers.
  ValueId identity(const Node& n, ValueId x) const {
    const base::DType dtype = result_meta(n).dtype;
    if (n.args.size() < 2 || !dense(x)) return kNone;
    const Arg& number = n.args[1];
    if (n.name == "aten::mul" && n.overload == "Scalar" && is_integral(dtype)) return is_int(number, 1) ? x : kNone;
    if ((n.name == "aten::mul" || n.name == "aten::div") && n.overload == "Scalar")
      return is_one(number) && is_real(dtype) && is_arithmetic(x) ? x : kNone;
    if ((n.name == "aten::add" || n.name == "aten::sub") && n.overload == "Scalar" && is_integral(dtype))
      return is_int(number, 0) && n.args.size() == 3 && is_number(n.args[2]) ? x : kNone;
    return kNone;
  }

  ir::Graph& g_;
  std::vector<Layout> layout_;   // by value
  std::vector<ValueId> same_;    // by value: the one that readers take instead
  std::vector<bool> is_output_;  // by value
};

}  // namespace

base::Status algebraic_noops(ir::Graph& graph) {
  Noops(graph).run();
  return {};
}

}  // namespace lazyt::passes
