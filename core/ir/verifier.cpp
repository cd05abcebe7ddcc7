#include "ir/verifier.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/registry.h"

namespace lazyt::ir {

namespace {

#define LAZYT_CHECK(condition, ...) \
  if (!(condition)) return base::invalid_argument("program: " + fmt::format(__VA_ARGS__))

bool known_dtype(int64_t d) { return d > LAZYT_DTYPE_INVALID && d < LAZYT_DTYPE_COUNT; }

bool all_of_name(const std::string& s, const char* more) {
  return std::all_of(s.begin(), s.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(more).find(c) != std::string_view::npos;
  });
}

// "add_" and "add.out" write an operand, "__and__" does not.
bool writes_operand(const Node& n) {
  bool in_place = n.name.ends_with('_') && !n.name.ends_with("__");
  return in_place || n.overload == "out" || n.overload.ends_with("_out");
}

class GraphVerifier {
 public:
  explicit GraphVerifier(const Graph& graph) : g_(graph) {}

  base::Status run() {
    LAZYT_CHECK(g_.values.size() < kNone && g_.nodes.size() < kNone, "more than 2^32 - 2 records");
    for (ValueId v = 0; v < g_.values.size(); v++) LAZYT_RETURN_IF_ERROR(check_meta(v));
    available_.assign(g_.values.size(), false);
    LAZYT_RETURN_IF_ERROR(check_inputs());
    LAZYT_RETURN_IF_ERROR(check_constants());
    for (NodeId n = 0; n < g_.nodes.size(); n++) LAZYT_RETURN_IF_ERROR(check_node(n));
    for (ValueId v = 0; v < g_.values.size(); v++)
      LAZYT_CHECK(available_[v], "%{} is no input, no constant and no node's result", v);
    return check_outputs();
  }

 private:
  base::Status check_meta(ValueId v) {
    const Value& value = g_.values[v];
    const Meta& m = value.meta;
    LAZYT_CHECK(known_dtype(m.dtype), "%{}: dtype {} is not known", v, m.dtype);
    LAZYT_CHECK(m.dims.size() <= 64, "%{}: rank {}, at most 64", v, m.dims.size());
    LAZYT_CHECK(m.strides.size() == m.dims.size(), "%{}: {} strides for {} dims", v, m.strides.size(),
                m.dims.size());
    int64_t elements = 1, last = 0, step, bytes;
    auto size = static_cast<int64_t>(lazyt_dtype_size(m.dtype));
    for (size_t i = 0; i < m.dims.size(); i++) {
      LAZYT_CHECK(m.dims[i] >= 0, "%{}: dim {} is {} (PRG-5)", v, i, m.dims[i]);
      LAZYT_CHECK(m.strides[i] >= 0, "%{}: stride {} is {} (PRG-2)", v, i, m.strides[i]);
      LAZYT_CHECK(!__builtin_mul_overflow(elements, std::max<int64_t>(m.dims[i], 1), &elements) &&
                      !__builtin_mul_overflow(std::max<int64_t>(m.dims[i] - 1, 0), m.strides[i], &step) &&
                      !__builtin_add_overflow(last, step, &last),
                  "%{}: more elements than 2^63", v);
    }
    LAZYT_CHECK(last < INT64_MAX && !__builtin_mul_overflow(last + 1, size, &bytes) &&
                    !__builtin_mul_overflow(elements, size, &bytes),
                "%{}: more bytes than 2^63", v);
    LAZYT_CHECK(value.kind == ValueKind::kResult || value.producer == kNone,
                "%{}: only results have a producer", v);
    LAZYT_CHECK(value.kind != ValueKind::kHostScalar || m.dims.empty(),
                "%{}: a host scalar has rank 0 (PRG-6)", v);
    LAZYT_CHECK(!value.weak || value.kind == ValueKind::kHostScalar,
                "%{}: only host scalars are weak (PRG-6)", v);
    LAZYT_CHECK(!value.may_overwrite || value.kind == ValueKind::kResult, "%{}: only results are overwritten",
                v);
    return {};
  }

  base::Status check_inputs() {
    for (size_t i = 0; i < g_.inputs.size(); i++) {
      const Input& in = g_.inputs[i];
      LAZYT_CHECK(in.value < g_.values.size(), "input {}: no value %{}", i, in.value);
      ValueKind kind = g_.values[in.value].kind;
      LAZYT_CHECK(kind == ValueKind::kInput || kind == ValueKind::kHostScalar, "input {}: %{} is no input", i,
                  in.value);
      LAZYT_CHECK(!available_[in.value], "input {}: %{} is an input already", i, in.value);
      LAZYT_CHECK(!in.may_donate || kind == ValueKind::kInput,
                  "input {}: host scalars have no buffer (PRG-6)", i);
      available_[in.value] = true;
    }
    return {};
  }

  base::Status check_constants() {
    for (size_t i = 0; i < g_.constants.size(); i++) {
      const Constant& c = g_.constants[i];
      LAZYT_CHECK(c.value < g_.values.size() && g_.values[c.value].kind == ValueKind::kConstant,
                  "constant {}: %{} is no constant", i, c.value);
      LAZYT_CHECK(!available_[c.value], "constant {}: %{} is given twice", i, c.value);
      uint64_t want = g_.values[c.value].meta.span_bytes();
      LAZYT_CHECK(c.bytes.size() == want, "constant {}: {} bytes, its meta wants {}", i, c.bytes.size(),
                  want);
      available_[c.value] = true;
    }
    return {};
  }

  base::Status check_arg(NodeId n, size_t i, const Arg& a, bool in_list) {
    const std::string& name = g_.nodes[n].name;
    auto in = [&](int64_t low, int64_t high) { return a.i >= low && a.i <= high; };
    switch (a.kind) {
      case LAZYT_ARG_VALUE:
        LAZYT_CHECK(a.value < g_.values.size(), "node {} {}: argument {}: no value %{}", n, name, i, a.value);
        LAZYT_CHECK(available_[a.value], "node {} {}: argument {}: %{} comes later", n, name, i, a.value);
        return {};
      case LAZYT_ARG_BOOL:
        LAZYT_CHECK(in(0, 1), "node {} {}: argument {}: a bool is 0 or 1", n, name, i);
        return {};
      case LAZYT_ARG_COMPLEX:
        LAZYT_CHECK(a.doubles.size() == 2, "node {} {}: argument {}: a complex has two parts", n, name, i);
        return {};
      case LAZYT_ARG_NONE:
      case LAZYT_ARG_INT:
      case LAZYT_ARG_DOUBLE:
        return {};
    }
    LAZYT_CHECK(!in_list, "node {} {}: argument {}: lists hold values, numbers and nones", n, name, i);
    switch (a.kind) {
      case LAZYT_ARG_DTYPE:
        LAZYT_CHECK(known_dtype(a.i), "node {} {}: argument {}: dtype {} is not known", n, name, i, a.i);
        return {};
      case LAZYT_ARG_MEMORY_FORMAT:
        LAZYT_CHECK(in(0, 3), "node {} {}: argument {}: memory format {}", n, name, i, a.i);
        return {};
      case LAZYT_ARG_LAYOUT:
        LAZYT_CHECK(in(0, 0), "node {} {}: argument {}: only strided layouts cross", n, name, i);
        return {};
      case LAZYT_ARG_DEVICE:
        LAZYT_CHECK(in(0, 0), "node {} {}: argument {}: only the executing device", n, name, i);
        return {};
      case LAZYT_ARG_BOOLS:
        for (int64_t b : a.ints)
          LAZYT_CHECK(b == 0 || b == 1, "node {} {}: argument {}: a bool is 0 or 1", n, name, i);
        return {};
      case LAZYT_ARG_STRING:
      case LAZYT_ARG_INTS:
      case LAZYT_ARG_DOUBLES:
        return {};
      case LAZYT_ARG_LIST:
        for (const Arg& e : a.list) LAZYT_RETURN_IF_ERROR(check_arg(n, i, e, true));
        return {};
    }
    return base::invalid_argument(
        fmt::format("program: node {} {}: argument {}: kind {}", n, name, i, a.kind));
  }

  // What the opset says beyond the form.
  base::Status check_op(NodeId n, const OpInfo& op) {
    const Node& node = g_.nodes[n];
    LAZYT_CHECK(node.args.size() == op.arg_count, "node {} {}: {} arguments, its schema has {}", n, node.name,
                node.args.size(), op.arg_count);
    LAZYT_CHECK(op.result_count < 0 || node.result_count == static_cast<uint32_t>(op.result_count),
                "node {} {}: {} results, its schema has {}", n, node.name, node.result_count,
                op.result_count);
    for (size_t i = 0; i < node.args.size(); i++) {
      const Arg& a = node.args[i];
      if (op.axis_args >> i & 1) {
        bool negative = (a.kind == LAZYT_ARG_INT && a.i < 0) ||
                        (a.kind == LAZYT_ARG_INTS &&
                         std::any_of(a.ints.begin(), a.ints.end(), [](int64_t d) { return d < 0; }));
        LAZYT_CHECK(!negative, "node {} {}: argument {}: an axis is negative (PRG-5)", n, node.name, i);
      }
      if (op.static_args >> i & 1)
        LAZYT_CHECK(a.kind != LAZYT_ARG_VALUE, "node {} {}: argument {}: must be a number, not a value", n,
                    node.name, i);
    }
    if (!op.random) return {};
    for (const char* name : {"seed", "offset"}) {
      const Arg& a = node.args[static_cast<size_t>(arg_index(op, name))];
      LAZYT_CHECK(a.kind == LAZYT_ARG_VALUE && g_.values[a.value].kind == ValueKind::kHostScalar &&
                      g_.values[a.value].meta.dtype == LAZYT_DTYPE_INT64,
                  "node {} {}: {} is no host scalar of dtype i64 (PRG-7)", n, node.name, name);
    }
    return {};
  }

  base::Status check_node(NodeId n) {
    const Node& node = g_.nodes[n];
    LAZYT_CHECK(
        node.name.find("::") != std::string::npos && node.name.size() <= 4096 && all_of_name(node.name, "_:"),
        "node {}: '{}' is no operator name", n, node.name);
    LAZYT_CHECK(node.overload.size() <= 4096 && all_of_name(node.overload, "_"),
                "node {} {}: '{}' is no overload name", n, node.name, node.overload);
    LAZYT_CHECK(!writes_operand(node), "node {} {}: writes an operand (PRG-1)", n, node.name);
    for (size_t i = 0; i < node.args.size(); i++) LAZYT_RETURN_IF_ERROR(check_arg(n, i, node.args[i], false));
    if (const OpInfo* op = find_op(node.name, node.overload)) LAZYT_RETURN_IF_ERROR(check_op(n, *op));
    uint64_t end = uint64_t{node.first_result} + node.result_count;
    LAZYT_CHECK(node.result_count == 0 || end <= g_.values.size(), "node {} {}: results outside the values",
                n, node.name);
    for (uint64_t r = node.first_result; node.result_count && r < end; r++) {
      LAZYT_CHECK(g_.values[r].kind == ValueKind::kResult && g_.values[r].producer == n,
                  "node {} {}: %{} names another producer", n, node.name, r);
      LAZYT_CHECK(!available_[r], "node {} {}: %{} is produced twice", n, node.name, r);
      available_[r] = true;
    }
    return {};
  }

  base::Status check_outputs() {
    std::vector<bool> donated(g_.inputs.size());
    for (size_t i = 0; i < g_.outputs.size(); i++) {
      const Output& out = g_.outputs[i];
      LAZYT_CHECK(out.value < g_.values.size(), "output {}: no value %{}", i, out.value);
      const Value& value = g_.values[out.value];
      LAZYT_CHECK(value.kind != ValueKind::kHostScalar, "output {}: host scalars have no buffer (PRG-6)", i);
      LAZYT_CHECK(!value.may_overwrite, "output {}: %{} is read after the program", i, out.value);
      if (out.donor == kNone) continue;
      LAZYT_CHECK(out.donor < g_.inputs.size(), "output {}: no input {}", i, out.donor);
      const Input& in = g_.inputs[out.donor];
      LAZYT_CHECK(in.may_donate, "output {}: input {} may not be donated (PRG-8)", i, out.donor);
      LAZYT_CHECK(!donated[out.donor], "output {}: input {} is donated twice (PRG-8)", i, out.donor);
      LAZYT_CHECK(g_.values[in.value].meta == value.meta, "output {}: lies otherwise than its donor (PRG-8)",
                  i);
      donated[out.donor] = true;
    }
    return {};
  }

  const Graph& g_;
  std::vector<bool> available_;  // input, constant, or result of a node already seen
};

#undef LAZYT_CHECK

}  // namespace

base::Status verify(const Graph& graph) { return GraphVerifier(graph).run(); }

}  // namespace lazyt::ir
