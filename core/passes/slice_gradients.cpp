// A loop that reads x[:, t] for each t of a sequence leaves as many gradients of x, each zeros but for a slice, and adds them up one by
// one: eager PyTorch, and a plugin that takes the program by its word, walk over all of x for each step. What they add up to is a
// concatenation.
//
// Why bits stay: an element of the sum is the slice's element and zeros, which change nothing but -0.0, and that they make 0.0, as one
// zero does that is added in their place. Slices that share elements are added in the order in which they were.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "passes/layout.h"
#include "passes/pass.h"
#include "passes/pieces.h"

namespace lazyt::passes {

namespace {

using ir::Arg;
using ir::kNone;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool is_slice_gradient(const Node& n) { return n.name == "aten::select_backward" || n.name == "aten::slice_backward"; }

// A gradient of a slice: zeros but for the places [start, end) of a dim.
struct Slice {
  NodeId node;
  size_t dim;
  int64_t start, end;

  bool is_place_of(const Slice& o) const { return dim == o.dim && start == o.start && end == o.end; }
  bool is_apart_from(const Slice& o) const { return dim == o.dim && (end <= o.start || o.end <= start); }
};

// The sum of a value, if there is one, and slices of one dim, of which any two take the same places or none that the other takes.
struct Sum {
  ValueId prefix = kNone;
  std::vector<Slice> slices;      // in the order in which they are added
  std::vector<NodeId> additions;  // the last one's result is the sum

  // Whether each element meets a zero of another slice.
  bool meets_zeros() const {
    return std::ranges::any_of(slices, [&](const Slice& s) { return !s.is_place_of(slices.front()); });
  }
  // Sums are rounded in the order of the program: what is added to a prefix must be one slice for each place.
  bool takes(const Slice& s) const {
    return std::ranges::all_of(slices, [&](const Slice& o) { return s.is_apart_from(o) || (prefix == kNone && s.is_place_of(o)); });
  }
};

class SliceGradients {
 public:
  explicit SliceGradients(const ir::Graph& graph) : g_(graph), readers_(graph.values.size(), 0), pointwise_readers_(graph.values.size(), 0) {
    for (const Node& n : g_.nodes)
      for (const Arg& a : n.args)
        ir::for_each_value(a, [&, pointwise = is_pointwise(n)](ValueId v) { ++readers_[v], pointwise_readers_[v] += pointwise; });
    for (const ir::Output& out : g_.outputs) readers_[out.value] += 2;  // it must be there
  }

  // Nothing if there is nothing to change.
  std::optional<ir::Graph> run() {
    for (NodeId n = 0; n < g_.nodes.size(); n++) note(n);
    std::unordered_map<NodeId, const Sum*> ends;
    std::vector<bool> is_within(g_.nodes.size(), false);
    std::unordered_map<NodeId, bool> pieces;  // whether the zero is added to it
    for (const auto& [value, sum] : sums_) {
      if (sum.slices.size() < 2) continue;
      ends[sum.additions.back()] = &sum;
      for (NodeId n : sum.additions) is_within[n] = true;
      for (const Slice& s : sum.slices) pieces[s.node] = sum.meets_zeros() && !zero_comes_last(sum, value) && is_alone(s, sum);
    }
    if (ends.empty()) return std::nullopt;
    Rewriter rewriter(g_);
    for (NodeId n = 0; n < g_.nodes.size(); n++) {
      if (const auto piece = pieces.find(n); piece != pieces.end())
        rewriter.map[g_.nodes[n].first_result] = piece_of(rewriter, *slice_of(n), piece->second);
      else if (const auto end = ends.find(n); end != ends.end())
        rewriter.map[g_.nodes[n].first_result] = concatenation(rewriter, n, *end->second);
      else if (!is_within[n])
        rewriter.copy(n);
    }
    return rewriter.finish();
  }

 private:
  const ir::Meta& meta(ValueId v) const { return g_.values[v].meta; }

  std::optional<Slice> slice_of(NodeId n) const {
    const Node& node = g_.nodes[n];
    if (!is_slice_gradient(node)) return std::nullopt;
    const bool selects = node.name == "aten::select_backward";
    const ir::Meta& to = meta(node.first_result);
    if (!(is_float(to.dtype) || is_integral(to.dtype)) || !base::is_countable(to.dims) || !to.is_contiguous()) return std::nullopt;
    const auto number = [&](size_t i) { return node.args.at(i).kind == LAZYT_ARG_INT ? std::optional(node.args[i].i) : std::nullopt; };
    const auto axis = number(2), first = number(3);
    if (!axis || !first) return std::nullopt;
    const auto dim = static_cast<size_t>(*axis);
    const int64_t size = to.dims[dim], start = *first < 0 ? *first + size : *first;
    // A slice is as long as its gradient.
    const ir::Meta& part = meta(node.args[0].value);
    const int64_t length = selects ? 1 : part.dims.at(dim);
    if (part.dtype != to.dtype || (!selects && number(5) != 1) || length < 1 || start < 0 || start > size - length) return std::nullopt;
    return Slice{n, dim, start, start + length};
  }
  std::optional<Slice> slice_of_value(ValueId v) const {
    return g_.values[v].kind == ir::ValueKind::kResult && readers_[v] == 1 ? slice_of(g_.values[v].producer) : std::nullopt;
  }

  void note(NodeId n) {
    const Node& node = g_.nodes[n];
    if (node.name != "aten::add" || node.overload != "Tensor" || node.args.size() != 3 || node.args[2].kind != LAZYT_ARG_INT || node.args[2].i != 1) return;
    if (node.args[0].kind != LAZYT_ARG_VALUE || node.args[1].kind != LAZYT_ARG_VALUE) return;
    ValueId a = node.args[0].value, b = node.args[1].value;
    const ir::Meta& to = meta(node.first_result);
    for (ValueId v : {a, b})
      if (meta(v).dims != to.dims || meta(v).dtype != to.dtype || g_.values[v].kind == ir::ValueKind::kHostScalar) return;
    if (a == b || !to.is_contiguous()) return;
    if (sums_.contains(b)) std::swap(a, b);
    auto added = slice_of_value(b);
    if (!added) {
      if (!(added = slice_of_value(a))) return;
      std::swap(a, b);
    }
    Sum sum;
    const auto open = sums_.find(a);
    if (open != sums_.end() && readers_[a] == 1 && open->second.takes(*added)) {
      sum = std::move(open->second);
      sums_.erase(open);
    } else if (const auto other = slice_of_value(a); other && (other->is_apart_from(*added) || other->is_place_of(*added))) {
      sum.slices.push_back(*other);
    } else {
      sum.prefix = a;
    }
    sum.slices.push_back(*added);
    sum.additions.push_back(n);
    sums_[node.first_result] = std::move(sum);
  }

  // The zero is added where a kernel walks over the elements anyhow: behind the sum, or by those that make the pieces.
  bool zero_comes_last(const Sum& sum, ValueId value) const {
    return sum.prefix != kNone || (readers_[value] > 0 && readers_[value] == pointwise_readers_[value]);
  }
  static bool is_alone(const Slice& s, const Sum& sum) {
    return std::ranges::count_if(sum.slices, [&](const Slice& o) { return o.is_place_of(s); }) == 1;
  }

  static ValueId piece_of(Rewriter& rewriter, const Slice& s, bool with_zero) {
    const Node& node = rewriter.from.nodes[s.node];
    Pieces p(rewriter, node);
    ValueId v = p.value(0);
    if (with_zero && is_float(p.dtype(v))) v = p.plus(v, 0.0);
    return node.name == "aten::select_backward" ? p.with_one(v, s.dim) : v;
  }

  ValueId concatenation(Rewriter& rewriter, NodeId n, const Sum& sum) const {
    Pieces p(rewriter, g_.nodes[n]);
    const base::Dims& dims = p.result().dims;
    const base::DType dtype = p.result().dtype;
    const auto piece = [&](const Slice& s) { return rewriter.map[rewriter.from.nodes[s.node].first_result]; };
    std::vector<Slice> sorted = sum.slices;
    std::ranges::stable_sort(sorted, {}, &Slice::start);
    const size_t dim = sorted.front().dim;
    const bool adds_zero = sum.meets_zeros() && is_float(dtype), last = zero_comes_last(sum, g_.nodes[n].first_result);
    std::vector<ValueId> parts;
    int64_t place = 0;
    const auto zeros_to = [&](int64_t end) {
      if (end == place) return;
      base::Dims gap = dims;
      gap[dim] = end - place;
      parts.push_back(p.zeros(dtype, std::move(gap)));
    };
    for (size_t i = 0; i < sorted.size();) {
      zeros_to(sorted[i].start);
      ValueId v = piece(sorted[i]);
      size_t next = i + 1;
      for (; next < sorted.size() && sorted[next].is_place_of(sorted[i]); next++) v = p.add(v, piece(sorted[next]));
      parts.push_back(next > i + 1 && adds_zero && !last ? p.plus(v, 0.0) : v);
      place = sorted[i].end;
      i = next;
    }
    zeros_to(dims[dim]);
    ValueId all = p.cat(parts, dim);
    if (sum.prefix != kNone) all = p.add(rewriter.map[sum.prefix], all);
    return adds_zero && last ? p.plus(all, 0.0) : all;
  }

  const ir::Graph& g_;
  std::vector<uint32_t> readers_, pointwise_readers_;  // by value
  std::unordered_map<ValueId, Sum> sums_;              // by the value that they are
};

}  // namespace

base::Status slice_gradients(ir::Graph& graph) {
  if (std::ranges::count_if(graph.nodes, is_slice_gradient) < 2) return {};  // most programs
  if (auto changed = SliceGradients(graph).run()) graph = std::move(*changed);
  return {};
}

}  // namespace lazyt::passes
