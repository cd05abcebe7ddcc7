#include "ir/graph.h"

#include <bit>

namespace lazyt::ir {

Arg Arg::of_value(ValueId v) {
  Arg a;
  a.kind = LAZYT_ARG_VALUE;
  a.value = v;
  return a;
}

Arg Arg::of_int(int64_t v, lazyt_arg_kind_t kind) {
  Arg a;
  a.kind = kind;
  a.i = v;
  return a;
}

Arg Arg::of_double(double v) {
  Arg a;
  a.kind = LAZYT_ARG_DOUBLE;
  a.d = v;
  return a;
}

Arg Arg::of_bool(bool v) { return of_int(v, LAZYT_ARG_BOOL); }

Arg Arg::of_ints(std::vector<int64_t> v, lazyt_arg_kind_t kind) {
  Arg a;
  a.kind = kind;
  a.ints = std::move(v);
  return a;
}

Arg Arg::of_doubles(std::vector<double> v) {
  Arg a;
  a.kind = LAZYT_ARG_DOUBLES;
  a.doubles = std::move(v);
  return a;
}

Arg Arg::of_complex(std::complex<double> v) {
  Arg a;
  a.kind = LAZYT_ARG_COMPLEX;
  a.doubles = {v.real(), v.imag()};
  return a;
}

Arg Arg::of_list(std::vector<Arg> v) {
  Arg a;
  a.kind = LAZYT_ARG_LIST;
  a.list = std::move(v);
  return a;
}

Arg Arg::of_string(std::string v) {
  Arg a;
  a.kind = LAZYT_ARG_STRING;
  a.string = std::move(v);
  return a;
}

// Doubles by their bits: 0.0 and -0.0 are different arguments, and a NaN equals itself.
bool operator==(const Arg& a, const Arg& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case LAZYT_ARG_NONE:
      return true;
    case LAZYT_ARG_VALUE:
      return a.value == b.value;
    case LAZYT_ARG_DOUBLE:
      return std::bit_cast<uint64_t>(a.d) == std::bit_cast<uint64_t>(b.d);
    case LAZYT_ARG_STRING:
      return a.string == b.string;
    case LAZYT_ARG_LIST:
      return a.list == b.list;
    case LAZYT_ARG_INTS:
    case LAZYT_ARG_BOOLS:
      return a.ints == b.ints;
    case LAZYT_ARG_DOUBLES:
    case LAZYT_ARG_COMPLEX:
      if (a.doubles.size() != b.doubles.size()) return false;
      for (size_t i = 0; i < a.doubles.size(); i++)
        if (std::bit_cast<uint64_t>(a.doubles[i]) != std::bit_cast<uint64_t>(b.doubles[i])) return false;
      return true;
    default:
      return a.i == b.i;
  }
}

ValueId Graph::add_input(Meta meta) {
  auto id = static_cast<ValueId>(values.size());
  values.push_back({.meta = std::move(meta), .kind = ValueKind::kInput});
  inputs.push_back({id});
  return id;
}

ValueId Graph::add_host_scalar(DType dtype, bool weak) {
  auto id = static_cast<ValueId>(values.size());
  values.push_back({.meta = Meta::contiguous(dtype, {}), .kind = ValueKind::kHostScalar, .weak = weak});
  inputs.push_back({id});
  return id;
}

ValueId Graph::add_constant(Meta meta, std::vector<uint8_t> bytes) {
  auto id = static_cast<ValueId>(values.size());
  values.push_back({.meta = std::move(meta), .kind = ValueKind::kConstant});
  constants.push_back({id, std::move(bytes)});
  return id;
}

NodeId Graph::add_node(std::string name, std::string overload, std::vector<Arg> args,
                       std::vector<Meta> results, std::shared_ptr<const SourceLine> source) {
  auto id = static_cast<NodeId>(nodes.size());
  auto first = static_cast<ValueId>(values.size());
  auto count = static_cast<uint32_t>(results.size());
  for (Meta& meta : results)
    values.push_back({.meta = std::move(meta), .kind = ValueKind::kResult, .producer = id});
  nodes.push_back({std::move(name), std::move(overload), std::move(args), first, count, std::move(source)});
  return id;
}

ValueId Graph::add_op(std::string name, std::string overload, std::vector<Arg> args, Meta result,
                      std::shared_ptr<const SourceLine> source) {
  std::vector<Meta> results;
  results.push_back(std::move(result));
  NodeId id =
      add_node(std::move(name), std::move(overload), std::move(args), std::move(results), std::move(source));
  return nodes[id].first_result;
}

void Graph::compact(const std::vector<bool>& keep) {
  std::vector<bool> live(values.size(), false);
  for (const Input& in : inputs) live[in.value] = true;
  for (const Output& out : outputs) live[out.value] = true;
  for (NodeId n = 0; n < nodes.size(); n++) {
    if (!keep[n]) continue;
    for (uint32_t r = 0; r < nodes[n].result_count; r++) live[nodes[n].first_result + r] = true;
    for (const Arg& arg : nodes[n].args) for_each_value(arg, [&](ValueId v) { live[v] = true; });
  }

  std::vector<NodeId> node_ids(nodes.size(), kNone);
  NodeId node_count = 0;
  for (NodeId n = 0; n < nodes.size(); n++)
    if (keep[n]) node_ids[n] = node_count++;

  // Order is kept, so results that were consecutive stay consecutive.
  std::vector<ValueId> ids(values.size(), kNone);
  ValueId value_count = 0;
  for (ValueId v = 0; v < values.size(); v++) {
    if (!live[v]) continue;
    ids[v] = value_count;
    if (values[v].producer != kNone) values[v].producer = node_ids[values[v].producer];
    if (value_count != v) values[value_count] = std::move(values[v]);
    value_count++;
  }
  values.resize(value_count);

  for (NodeId n = 0; n < nodes.size(); n++) {
    if (!keep[n]) continue;
    if (nodes[n].result_count) nodes[n].first_result = ids[nodes[n].first_result];
    for (Arg& arg : nodes[n].args) for_each_value(arg, [&](ValueId& v) { v = ids[v]; });
    if (node_ids[n] != n) nodes[node_ids[n]] = std::move(nodes[n]);
  }
  nodes.resize(node_count);

  for (Input& in : inputs) in.value = ids[in.value];
  for (Output& out : outputs) out.value = ids[out.value];
  std::erase_if(constants, [&](const Constant& c) { return ids[c.value] == kNone; });
  for (Constant& c : constants) c.value = ids[c.value];
}

}  // namespace lazyt::ir
