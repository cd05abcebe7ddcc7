#include <string>
#include <unordered_map>

#include "passes/pass.h"

namespace lazyt::passes {

namespace {

// What a node or constant computes, as bytes: equal keys, equal results.
class Key {
 public:
  template <class T>
  Key& number(T n) {
    bytes_.append(reinterpret_cast<const char*>(&n), sizeof(n));
    return *this;
  }
  Key& text(const std::string& s) {
    number(s.size());
    bytes_ += s;
    return *this;
  }
  template <class T>
  Key& list(const std::vector<T>& items) {
    number(items.size());
    for (const T& item : items) number(item);
    return *this;
  }
  Key& meta(const ir::Meta& m) { return number(m.dtype).list(m.dims).list(m.strides); }
  Key& arg(const ir::Arg& a) {
    number(a.kind);
    switch (a.kind) {
      case LAZYT_ARG_NONE:
        return *this;
      case LAZYT_ARG_VALUE:
        return number(a.value);
      case LAZYT_ARG_DOUBLE:
        return number(a.d);
      case LAZYT_ARG_STRING:
        return text(a.string);
      case LAZYT_ARG_INTS:
      case LAZYT_ARG_BOOLS:
        return list(a.ints);
      case LAZYT_ARG_DOUBLES:
      case LAZYT_ARG_COMPLEX:
        return list(a.doubles);
      case LAZYT_ARG_LIST:
        number(a.list.size());
        for (const ir::Arg& e : a.list) arg(e);  // lists hold no lists
        return *this;
      default:
        return number(a.i);
    }
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace

base::Status common_subexpressions(ir::Graph& graph) {
  std::vector<ir::ValueId> same(graph.values.size());  // the first value equal to each
  for (ir::ValueId v = 0; v < same.size(); v++) same[v] = v;
  std::vector<bool> is_output(graph.values.size(), false);
  for (const ir::Output& out : graph.outputs) is_output[out.value] = true;

  std::unordered_map<std::string, ir::ValueId> constants;
  for (const ir::Constant& c : graph.constants) {
    Key key;
    key.meta(graph.values[c.value].meta).list(c.bytes);
    same[c.value] = constants.try_emplace(key.take(), c.value).first->second;
  }

  std::vector<bool> keep(graph.nodes.size(), true);
  std::unordered_map<std::string, ir::NodeId> nodes;
  for (ir::NodeId n = 0; n < graph.nodes.size(); n++) {
    ir::Node& node = graph.nodes[n];
    for (ir::Arg& arg : node.args) ir::for_each_value(arg, [&](ir::ValueId& v) { v = same[v]; });
    if (node.result_count == 0) continue;
    Key key;
    key.text(node.name).text(node.overload).number(node.args.size());
    for (const ir::Arg& arg : node.args) key.arg(arg);
    for (uint32_t r = 0; r < node.result_count; r++) key.meta(graph.values[node.first_result + r].meta);
    auto [it, first] = nodes.try_emplace(key.take(), n);
    if (first) continue;
    keep[n] = false;
    for (uint32_t r = 0; r < node.result_count; r++) {
      same[node.first_result + r] = graph.nodes[it->second].first_result + r;
      if (is_output[node.first_result + r]) keep[n] = true;
    }
  }
  graph.compact(keep);
  return {};
}

}  // namespace lazyt::passes
