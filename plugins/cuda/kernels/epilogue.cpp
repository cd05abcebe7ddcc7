#include "epilogue.h"

#include <algorithm>
#include <functional>
#include <set>

#include "../ops.h"
#include "lazyt/toolkit/pooling.hpp"
#include "lazyt/toolkit/reductions.hpp"

namespace lazyt::cuda {
namespace {

using Kind = Epilogue::Kind;
using toolkit::Role;

uint32_t argument(const ProgramView& program, const lazyt_node_t& node, uint64_t i) {
  const lazyt_arg_t& arg = program.args(node)[i];
  return arg.kind == LAZYT_ARG_VALUE ? static_cast<uint32_t>(arg.payload) : LAZYT_NONE;
}

constexpr size_t kMostParts = 16;  // of a chain
constexpr size_t kMostBeside = 4;

class Finder {
 public:
  explicit Finder(const ProgramView& program) : program_(program) {
    const size_t count = program.values().size();
    maker_.assign(count, LAZYT_NONE);
    is_output_.assign(count, false);
    users_.resize(count);
    for (const lazyt_output_t& output : program.outputs()) is_output_[output.value] = true;
    for (uint32_t i = 0; i < program.nodes().size(); ++i) {
      const lazyt_node_t& node = program.nodes()[i];
      for (uint32_t r = 0; r < node.result_count; ++r) maker_[node.results + r] = i;
      toolkit::detail::for_each_operand(program, node, [&](uint32_t v) { users_[v].push_back(i); });
    }
  }

  std::map<uint32_t, Epilogue> run(bool has_products, bool has_windows) {
    find_losses();
    for (uint32_t i = 0; i < program_.nodes().size(); ++i) {
      if (has_products && is_product(i)) look_at(i);
      else if (is_own_product(i, has_products) || (!has_windows && is_convolution(i)) || is_pool(i)) look_at_chain(i);
      if (has_windows && node(i).op == LAZYT_OP_CONVOLUTION && !program_.args(node(i))[6].payload) look_at_window(i);
      if (is_batch_norm(i) || node(i).op == LAZYT_OP_NATIVE_BATCH_NORM_BACKWARD) look_at_norm(i);
      if (is_norm_of_lines(i)) look_at_chain(i);
      if (node(i).op == LAZYT_OP_EMBEDDING) look_at_lookup(i);
      if (node(i).op == LAZYT_OP_EMBEDDING_DENSE_BACKWARD) look_at_lookup_gradient(i);
    }
    find_unread_ranges();
    for (uint32_t i = 0; i < program_.nodes().size(); ++i)
      if (node(i).op == LAZYT_OP_CAT) look_at_cat(i);
    return std::move(found_);
  }

 private:
  const lazyt_node_t& node(uint32_t i) const { return program_.nodes()[i]; }
  const lazyt_value_t& value(uint32_t v) const { return program_.values()[v]; }
  int64_t columns(uint32_t v) const { return program_.dims(value(v)).back(); }
  int64_t count(uint32_t v) const { return toolkit::count_of(program_.dims(value(v))); }
  bool is_part(uint32_t i) const { return std::find(parts_.begin(), parts_.end(), i) != parts_.end(); }
  bool is_view(uint32_t i) const { return toolkit::is_view(program_, node(i)); }

  // A view that names all elements in their order.
  bool is_reshape(uint32_t i) const {
    if (!is_view(i) || node(i).result_count != 1) return false;
    const auto dims = program_.dims(value(argument(program_, node(i), 0)));
    const auto layout = toolkit::view_of(program_, node(i), 0, toolkit::Layout::dense(dims));
    return layout && layout->offset == 0 && layout->is_dense() && layout->count() == toolkit::count_of(dims);
  }

  // The nodes that read v, or a reshape of it; nothing if the program answers with it.
  std::optional<std::vector<uint32_t>> readers(uint32_t v) const {
    std::vector<uint32_t> out;
    if (is_output_[v]) return std::nullopt;
    for (uint32_t i : users_[v]) {
      if (!is_reshape(i)) {
        out.push_back(i);
        continue;
      }
      const auto further = readers(node(i).results);
      if (!further) return std::nullopt;
      out.insert(out.end(), further->begin(), further->end());
    }
    return out;
  }
  // The value that v is a view of. is_kept: of the views that may be gone back through.
  template <class F>
  uint32_t root(uint32_t v, F&& is_kept) const {
    while (v != LAZYT_NONE && maker_[v] != LAZYT_NONE && is_kept(maker_[v])) v = argument(program_, node(maker_[v]), 0);
    return v;
  }
  uint32_t origin(uint32_t v) const {
    return root(v, [&](uint32_t i) { return is_view(i); });
  }

  // Whether the value lies there when node i is lowered: no group of pointwise nodes, which come later, makes it.
  bool is_there(uint32_t v, uint32_t i) const {
    const uint32_t made = maker_[v];
    if (made == LAZYT_NONE) return true;
    if (made >= i) return false;
    if (is_view(made)) return is_there(argument(program_, node(made), 0), i);
    return is_whole(made);
  }
  // The same of a value that such a group may make: a node that needs it whole closes the group.
  bool is_there_by_then(uint32_t v, uint32_t i) const {
    const uint32_t made = maker_[v];
    if (is_there(v, i)) return true;
    if (made >= i) return false;
    if (is_view(made)) return is_there_by_then(argument(program_, node(made), 0), i);
    for (uint32_t r = 0; r < node(made).result_count; ++r)
      for (uint32_t user : users_[node(made).results + r])
        if (user < i && (is_view(user) || is_whole(user))) return true;
    return false;
  }
  // No member of a group.
  bool is_whole(uint32_t i) const {
    const auto* op = operators().find(program_, node(i));
    return is_part(i) || (op && op->role == Role::kOpaque);
  }

  bool is_product(uint32_t i) const {
    const lazyt_op_t op = node(i).op;
    if (op != LAZYT_OP_MM && op != LAZYT_OP_ADDMM && op != LAZYT_OP_LINEAR) return false;
    const lazyt_value_t& out = value(node(i).results);
    if (out.rank < 2 || (out.dtype != LAZYT_DTYPE_FLOAT32 && !is_half(out.dtype))) return false;
    const int64_t n = columns(node(i).results), all = count(node(i).results);
    return n > 1 && all / n > 1;
  }
  static bool is_half(lazyt_dtype_t dtype) { return dtype == LAZYT_DTYPE_FLOAT16 || dtype == LAZYT_DTYPE_BFLOAT16; }

  // Whether our own kernel computes it.
  bool is_own_product(uint32_t i, bool has_products) const {
    const lazyt_op_t op = node(i).op;
    if (op != LAZYT_OP_MM && op != LAZYT_OP_ADDMM && op != LAZYT_OP_LINEAR && op != LAZYT_OP_BMM) return false;
    const lazyt_value_t& out = value(node(i).results);
    if (out.rank < 2 || !toolkit::is_float(toolkit::type_of(out.dtype)) || count(node(i).results) == 0) return false;
    const auto dims = program_.dims(out);
    return !has_products || (op != LAZYT_OP_BMM && (dims.back() == 1 || count(node(i).results) == dims.back()));
  }

  // Whose operand's gradient, if it is a backward, is asked for.
  bool is_convolution(uint32_t i) const {
    const bool is_backward = node(i).op == LAZYT_OP_CONVOLUTION_BACKWARD;
    if (node(i).op != LAZYT_OP_CONVOLUTION && !is_backward) return false;
    const uint64_t in = is_backward ? 1 : 0;
    return (!is_backward || program_.ints(program_.args(node(i))[10])[0]) && count(node(i).results) != 0 &&
           count(argument(program_, node(i), in)) != 0 && count(argument(program_, node(i), in + 1)) != 0;
  }
  bool is_pool(uint32_t i) const { return count(node(i).results) != 0 && toolkit::taps::poolings().contains(program_.full_name(node(i))); }

  // What reads v or a reshape of it, each once, and whether the program answers with one of these.
  bool collect_readers(uint32_t v, std::vector<uint32_t>& out) const {
    bool answers = is_output_[v];
    for (uint32_t i : users_[v]) {
      if (is_reshape(i)) answers = collect_readers(node(i).results, out) || answers;
      else if (std::find(out.begin(), out.end(), i) == out.end()) out.push_back(i);
    }
    return answers;
  }

  // Whether node i reads, directly or not, what the node `before` makes.
  bool depends_on(uint32_t i, uint32_t before) const {
    std::vector<uint32_t> left = {i};
    std::set<uint32_t> seen;
    while (!left.empty()) {
      const uint32_t at = left.back();
      left.pop_back();
      if (at == before) return true;
      toolkit::detail::for_each_operand(program_, node(at), [&](uint32_t v) {
        const uint32_t made = maker_[v];
        if (made != LAZYT_NONE && made >= before && seen.insert(made).second) left.push_back(made);
      });
    }
    return false;
  }

  void look_at_chain(uint32_t i) {
    Epilogue e;
    e.product = i, e.kind = Kind::kChain;
    find_chain(e);
    if (e.chain.empty()) return;
    parts_.insert(parts_.end(), e.chain.begin(), e.chain.end());
    found_.emplace(i, e);
  }

  void find_chain(Epilogue& e) {
    const uint32_t i = e.product;
    std::vector<uint32_t> values = {node(i).results};  // that the chain has in registers
    // A norm's, convolution's or pool's elements lie as its operand does: not necessarily as another shape of them would.
    const bool keeps_dims = e.kind == Kind::kNorm || is_convolution(i) || is_pool(i);
    auto has_shape = [&](uint32_t v) {
      return keeps_dims
                 ? std::ranges::equal(program_.dims(value(v)), program_.dims(value(values[0])))
                 : count(v) == count(values[0]);
    };
    // Sums of many products: one that waited for the chain of another would not share its launch.
    auto is_of_another = [&](uint32_t operand) {
      const uint32_t made = maker_[origin(operand)];
      return e.kind == Kind::kChain && !is_convolution(i) && made != LAZYT_NONE && is_part(made) && !depends_on(i, made);
    };
    // Whether the node could run with the product; operands of the chain's own are `ours`.
    auto is_ready = [&](uint32_t reader) {
      bool ready = true;
      toolkit::detail::for_each_operand(program_, node(reader), [&](uint32_t operand) {
        const bool ours = std::find(values.begin(), values.end(), root(operand, is_reshape_of())) != values.end();
        ready = ready && (ours ? has_shape(operand)
                               : (value(operand).flags & LAZYT_VALUE_HOST_SCALAR) ||
                                     (is_there_by_then(operand, i) && !is_of_another(operand)));
      });
      return ready;
    };
    auto is_pointwise = [&](uint32_t reader) {
      const auto* op = operators().find(program_, node(reader));
      if (is_part(reader) || !op || op->role != Role::kPointwise) return false;
      for (uint32_t r = 1; r < node(reader).result_count; ++r)  // as a mask is
        if (const uint32_t v = node(reader).results + r; (is_output_[v] || !users_[v].empty()) && !has_shape(v)) return false;
      const auto dims = program_.dims(value(node(reader).results));
      return has_shape(node(reader).results) &&
             (e.chain.empty() || std::ranges::equal(dims, program_.dims(value(node(e.chain[0]).results))));
    };
    while (e.chain.size() < kMostParts) {
      std::vector<uint32_t> readers;
      const bool answers = collect_readers(values.back(), readers);
      // Several that could run now would read the value in one kernel of their own.
      uint32_t next = LAZYT_NONE;
      size_t ready = 0;
      for (uint32_t reader : readers)
        if (is_ready(reader)) next = ++ready == 1 ? reader : LAZYT_NONE;
      // What the program answers with, as gradients, has readers that belong with others of their kind: an optimizer's update.
      if (answers || ready != 1 || !is_pointwise(next)) break;
      e.kept_values.push_back(readers.size() > 1);
      e.chain.push_back(next);
      values.push_back(node(next).results);
    }
    e.kept_values.resize(e.chain.size() + 1, true);
    for (uint32_t part : e.chain)
      toolkit::detail::for_each_operand(program_, node(part), [&](uint32_t operand) {
        const auto found = std::find(values.begin(), values.end(), root(operand, is_reshape_of()));
        if (found != values.end()) e.shown.emplace(operand, static_cast<size_t>(found - values.begin()));
      });
  }

  // Layer, RMS and group norm, and a backward that is asked for the operand's gradient.
  bool is_norm_of_lines(uint32_t i) const {
    if (count(node(i).results) == 0) return false;
    switch (node(i).op) {
      case LAZYT_OP_NATIVE_LAYER_NORM:
      case LAZYT_OP_FUSED_RMS_NORM:
      case LAZYT_OP_NATIVE_GROUP_NORM:
        return true;
      case LAZYT_OP_NATIVE_LAYER_NORM_BACKWARD:
        return program_.ints(program_.args(node(i))[7])[0];
      case LAZYT_OP_FUSED_RMS_NORM_BACKWARD:
        return program_.ints(program_.args(node(i))[5])[0];
      case LAZYT_OP_NATIVE_GROUP_NORM_BACKWARD:
        return program_.ints(program_.args(node(i))[9])[0];
      default:
        return false;
    }
  }
  bool is_batch_norm(uint32_t i) const {
    return node(i).op == LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_FUNCTIONAL ||
           node(i).op == LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_STATS;
  }

  void look_at_norm(uint32_t i) {
    Epilogue e;
    e.product = i, e.kind = Kind::kNorm;
    const bool is_forward = is_batch_norm(i);
    if (found_.contains(i)) return;  // runs with another
    if (!is_forward) find_before(e);
    if (!is_forward) find_beside(e);
    if (is_forward || program_.ints(program_.args(node(i))[9])[0]) find_chain(e);
    for (uint32_t part : e.chain)
      toolkit::detail::for_each_operand(program_, node(part), [&](uint32_t v) {
        const uint32_t made = maker_[v];
        if (made == LAZYT_NONE || made >= i || !is_batch_norm(made) || v != node(made).results ||
            found_.contains(made))
          return;
        if (is_output_[v] || users_[v].size() != 1 ||
            !std::ranges::equal(program_.dims(value(v)), program_.dims(value(node(i).results))))
          return;
        e.joined.push_back(made);
      });
    for (const auto* others : {&e.joined, &e.beside})
      for (uint32_t other : *others) {
        Epilogue& joined = found_[other];
        joined.product = other, joined.kind = Kind::kNorm, joined.is_joined = true;
      }
    if (e.chain.empty() && e.before.empty() && e.beside.empty()) return;
    parts_.insert(parts_.end(), e.chain.begin(), e.chain.end());
    found_.emplace(i, e);
  }

  // The branches of a residual: their norms have one gradient.
  void find_beside(Epilogue& e) {
    const uint32_t i = e.product, grad = argument(program_, node(i), 0), in = argument(program_, node(i), 1);
    for (uint32_t user : users_[grad]) {
      if (user <= i || node(user).op != node(i).op || argument(program_, node(user), 0) != grad ||
          e.beside.size() == kMostBeside)
        continue;
      const uint32_t other = argument(program_, node(user), 1);
      bool ready = other != grad && value(other).dtype == value(in).dtype &&
                   std::find(e.beside.begin(), e.beside.end(), user) == e.beside.end();
      for (uint64_t k = 1; k <= 6; ++k)
        if (const uint32_t v = argument(program_, node(user), k); v != LAZYT_NONE)
          ready = ready && is_there_by_then(v, i);
      if (ready) e.beside.push_back(user);
    }
  }

  // The pointwise nodes behind operand 0 that nobody needs before the norm, and none of which would leave
  // apart what its group held together: their other operands lie there.
  void find_before(Epilogue& e) {
    const uint32_t i = e.product, first = argument(program_, node(i), 0);
    std::set<uint32_t> nodes;
    auto may_move = [&](uint32_t v) {
      const uint32_t made = maker_[v];
      if (made == LAZYT_NONE || is_part(made) || node(made).result_count != 1) return false;
      const auto* op = operators().find(program_, node(made));
      return op && op->role == Role::kPointwise &&
             std::ranges::equal(program_.dims(value(v)), program_.dims(value(first))) &&
             std::all_of(users_[v].begin(), users_[v].end(),
                         [&](uint32_t user) { return user >= i || nodes.contains(user); });
    };
    // From the operand on, makers of operands whose readers are all there already.
    for (bool grows = true; grows;) {
      grows = false;
      auto take = [&](uint32_t v) {
        if (nodes.size() < kMostParts && !(maker_[v] != LAZYT_NONE && nodes.contains(maker_[v])) &&
            may_move(v))
          grows = nodes.insert(maker_[v]).second;
      };
      take(first);
      for (uint32_t made : std::vector<uint32_t>(nodes.begin(), nodes.end()))
        toolkit::detail::for_each_operand(program_, node(made), take);
    }
    for (uint32_t made : nodes) {
      bool ready = true;
      toolkit::detail::for_each_operand(program_, node(made), [&](uint32_t v) {
        ready =
            ready && ((value(v).flags & LAZYT_VALUE_HOST_SCALAR) ||
                      (maker_[v] != LAZYT_NONE && nodes.contains(maker_[v])) || is_there_by_then(v, made));
      });
      if (!ready) return;
    }
    const uint32_t input = argument(program_, node(i), 1);  // read beside the gradient: it must lie there
    if (maker_[input] != LAZYT_NONE && nodes.contains(maker_[input])) return;
    e.before.assign(nodes.begin(), nodes.end());
    parts_.insert(parts_.end(), nodes.begin(), nodes.end());
  }

  void look_at(uint32_t i) {
    Epilogue e;
    e.product = i;
    const uint32_t v = node(i).results;
    find_activation(e, v);
    if (e.kind == Kind::kReluGradient || e.kind == Kind::kGeluGradient)
      e.sum = find_sum(node(e.activation).results, columns(v), is_reshape_of());
    if (e.kind == Kind::kNone && node(i).op == LAZYT_OP_MM) find_sum_of_operand(e);
    if (e.kind == Kind::kNone && e.sum == LAZYT_NONE) return;
    for (uint32_t part : {e.activation, e.sum})
      if (part != LAZYT_NONE) parts_.push_back(part);
    if (e.forward) found_.at(e.forward->product).keeps = true;
    found_.emplace(i, e);
  }

  static bool is_class_loss(lazyt_op_t op) {
    return op == LAZYT_OP_NLL_LOSS_FORWARD || op == LAZYT_OP_NLL_LOSS2D_FORWARD;
  }
  static bool is_class_loss_gradient(lazyt_op_t op) {
    return op == LAZYT_OP_NLL_LOSS_BACKWARD || op == LAZYT_OP_NLL_LOSS2D_BACKWARD;
  }
  // Whether argument k is the dim of v's classes.
  bool is_along_classes(uint32_t i, uint64_t k, uint32_t v) const {
    return static_cast<int64_t>(program_.args(node(i))[k].payload) == (value(v).rank > 1 ? 1 : 0);
  }
  // Its only reader computes an element of its own of each of its elements.
  void look_at_lookup(uint32_t i) {
    const uint32_t v = node(i).results;
    if (is_output_[v] || users_[v].empty() || count(v) == 0 || count(argument(program_, node(i), 0)) == 0) return;
    const uint32_t reader = users_[v].front();
    if (std::any_of(users_[v].begin(), users_[v].end(), [&](uint32_t user) { return user != reader; })) return;
    const auto* op = operators().find(program_, node(reader));
    if (!op || op->role != Role::kPointwise || node(reader).result_count != 1) return;
    const lazyt_op_t reads = node(reader).op;
    if (reads == LAZYT_OP_CLONE || reads == LAZYT_OP_TO_COPY || reads == LAZYT_OP_LIFT_FRESH_COPY) return;  // a copy
    Epilogue e;
    e.product = i, e.kind = Kind::kLookup;
    if (const auto path = find_range(argument(program_, node(i), 1)); !path.empty()) e.range = path.front();
    found_.emplace(i, e);
  }
  // grad, indices, rows, padding, by frequency
  void look_at_lookup_gradient(uint32_t i) {
    const auto args = program_.args(node(i));
    const auto path = find_range(argument(program_, node(i), 1));
    const uint32_t grad = argument(program_, node(i), 0), v = node(i).results;
    if (path.empty() || args[2].kind != LAZYT_ARG_INT || args[3].kind != LAZYT_ARG_INT || value(grad).dtype != value(v).dtype || count(v) == 0)
      return;
    const lazyt_node_t& range = node(path.front());
    if (range.op != LAZYT_OP_ARANGE && program_.args(range)[0].kind != LAZYT_ARG_INT) return;
    const int64_t first = range.op == LAZYT_OP_ARANGE ? 0 : toolkit::Builder::int_of(program_.args(range)[0]);
    const int64_t end = first + count(range.results), padding = toolkit::Builder::int_of(args[3]);
    if (range.op == LAZYT_OP_ARANGE_START_STEP || first < 0 || end > program_.dims(value(v))[0] || (padding >= first && padding < end)) return;
    Epilogue e;
    e.product = i, e.kind = Kind::kLookup, e.range = path.front();
    found_.emplace(i, e);
  }
  bool is_host_integer(const lazyt_arg_t& arg) const {
    if (arg.kind != LAZYT_ARG_VALUE) return false;
    const lazyt_value_t& scalar = value(static_cast<uint32_t>(arg.payload));
    return (scalar.flags & LAZYT_VALUE_HOST_SCALAR) && scalar.dtype == LAZYT_DTYPE_INT64;
  }
  // The nodes that make v, in their order, if it is numbers in a row along one dim; none if it is not.
  std::vector<uint32_t> find_range(uint32_t v) const {
    const auto dims = program_.dims(value(v));
    if (value(v).dtype != LAZYT_DTYPE_INT64 || dims.empty() || count(v) == 0) return {};
    if (std::count_if(dims.begin(), dims.end(), [](int64_t n) { return n != 1; }) > 1) return {};
    std::vector<uint32_t> nodes;
    while (v != LAZYT_NONE && maker_[v] != LAZYT_NONE) {
      nodes.insert(nodes.begin(), maker_[v]);
      if (is_reshape(nodes.front())) {
        v = argument(program_, node(nodes.front()), 0);
        continue;
      }
      const lazyt_op_t op = node(nodes.front()).op;
      const size_t numbers = op == LAZYT_OP_ARANGE ? 1 : op == LAZYT_OP_ARANGE_START ? 2 : op == LAZYT_OP_ARANGE_START_STEP ? 3 : 0;
      // The first may be one of the run's; how many there are is known.
      for (size_t k = 0; k < numbers; ++k)
        if (const auto& number = program_.args(node(nodes.front()))[k]; number.kind != LAZYT_ARG_INT && (k == 2 || !is_host_integer(number)))
          return {};
      return numbers ? nodes : std::vector<uint32_t>();
    }
    return {};
  }
  // Ranges that are only looked up by need not be made.
  void find_unread_ranges() {
    for (auto& [i, e] : found_) {
      if (e.kind != Kind::kLookup || e.range == LAZYT_NONE || is_part(e.range)) continue;
      const auto path = find_range(argument(program_, node(i), 1));
      const bool is_unread = std::all_of(path.begin(), path.end(), [&](uint32_t part) {
        const uint32_t v = node(part).results;
        return !is_output_[v] && std::all_of(users_[v].begin(), users_[v].end(), [&](uint32_t user) {
          if (part != path.back()) return std::find(path.begin(), path.end(), user) != path.end();
          const auto found = found_.find(user);
          return found != found_.end() && found->second.kind == Kind::kLookup && argument(program_, node(user), 1) == v;
        });
      });
      if (!is_unread) continue;
      e.before = path;
      parts_.insert(parts_.end(), path.begin(), path.end());
    }
  }

  void look_at_cat(uint32_t i) {
    size_t element = 0;
    for (const lazyt_arg_t& arg : program_.elements(program_.args(node(i))[0])) {
      Epilogue::Part part{i, element++, {}};
      auto v = static_cast<uint32_t>(arg.payload);
      if (value(v).dtype != value(node(i).results).dtype || value(v).rank != value(node(i).results).rank) continue;
      while (users_[v].size() == 1 && !is_output_[v] && maker_[v] != LAZYT_NONE && is_view(maker_[v]) && node(maker_[v]).result_count == 1) {
        part.views.insert(part.views.begin(), maker_[v]);
        v = argument(program_, node(maker_[v]), 0);
      }
      const uint32_t made = maker_[v];
      if (users_[v].size() != 1 || is_output_[v] || made == LAZYT_NONE ||
          node(made).op != LAZYT_OP_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU_BACKWARD || count(v) == 0)
        continue;
      Epilogue& e = found_[made];
      e.product = made, e.kind = Kind::kParts;
      e.cats.emplace(v, std::move(part));
    }
  }

  void find_losses() {
    for (uint32_t i = 0; i < program_.nodes().size(); ++i) {
      if (is_class_loss(node(i).op)) look_at_loss(i);
      if (node(i).op == LAZYT_OP_LOG_SOFTMAX_BACKWARD_DATA) look_at_loss_gradient(i);
    }
    for (auto& [i, e] : found_) {
      if (!is_class_loss(node(i).op)) continue;
      const uint32_t softmax = argument(program_, node(i), 0);
      size_t others = users_[softmax].size() - 1;
      for (uint32_t user : std::set<uint32_t>(users_[softmax].begin(), users_[softmax].end())) {
        const auto gradient = found_.find(user);
        const bool asks_for_dims = is_class_loss_gradient(node(user).op);
        if (asks_for_dims || (gradient != found_.end() && gradient->second.forward == &e))
          others -= argument(program_, node(user), 1) == softmax;
      }
      e.keeps = is_output_[softmax] || others > 0;
    }
  }
  void look_at_loss(uint32_t i) {
    const uint32_t v = argument(program_, node(i), 0), made = maker_[v];
    if (made == LAZYT_NONE || node(made).op != LAZYT_OP_LOG_SOFTMAX || is_part(made)) return;
    const uint32_t of = argument(program_, node(made), 0);
    if (!is_along_classes(made, 1, v) || value(of).dtype != value(v).dtype || count(v) == 0) return;
    if (std::any_of(users_[v].begin(), users_[v].end(), [&](uint32_t user) { return user < i; })) return;
    Epilogue e;
    e.product = i, e.kind = Kind::kLoss, e.before = {made};
    parts_.push_back(made);
    found_.emplace(i, e);
    maker_[v] = i;  // comes with the loss
  }
  void look_at_loss_gradient(uint32_t i) {
    const uint32_t grad = argument(program_, node(i), 0), softmax = argument(program_, node(i), 1), made = maker_[grad];
    if (made == LAZYT_NONE || !is_class_loss_gradient(node(made).op) || is_output_[grad] || users_[grad].size() != 1) return;
    if (!is_along_classes(i, 2, grad) || !std::ranges::equal(program_.dims(value(grad)), program_.dims(value(softmax))) || count(grad) == 0)
      return;
    for (uint32_t v : {softmax, node(i).results})
      if (value(v).dtype != value(grad).dtype) return;
    Epilogue e;
    e.product = i, e.kind = Kind::kLoss, e.before = {made};
    // Where the loss is what a backward began with, its gradient is a number.
    const uint32_t seed = argument(program_, node(made), 0), filled = maker_[seed];
    if (filled != LAZYT_NONE && node(filled).op == LAZYT_OP_FULL && count(seed) == 1 && !is_output_[seed] && users_[seed].size() == 1)
      e.before.insert(e.before.begin(), filled);
    if (const auto forward = found_.find(maker_[softmax]); forward != found_.end() && forward->second.kind == Kind::kLoss &&
                                                           argument(program_, node(forward->first), 0) == softmax) {
      e.forward = &forward->second;
      forward->second.has_gradient = true;
    }
    parts_.insert(parts_.end(), e.before.begin(), e.before.end());
    found_.emplace(i, e);
  }

  // As an operand crosses: a permuted view of dense bytes. Of more than one tap, else it lies both ways.
  bool has_last_weight(uint32_t i) const {
    const uint32_t v = argument(program_, node(i), 1);
    const auto dims = program_.dims(value(v));
    if (dims.size() != 4 || dims[1] == 1 || dims[2] * dims[3] == 1) return false;
    if (maker_[v] == LAZYT_NONE || !is_view(maker_[v])) return program_.strides(value(v))[1] == 1;
    const lazyt_node_t& view = node(maker_[v]);
    const auto layout = toolkit::view_of(program_, view, v - view.results, toolkit::Layout::dense(program_.dims(value(argument(program_, view, 0)))));
    return layout && layout->strides[1] == 1;
  }
  void look_at_window(uint32_t i) {
    Epilogue e;
    e.product = i, e.kind = Kind::kWindow;
    uint32_t v = node(i).results;
    enum { kFirst, kNorm, kAdd, kRelu } stage = kFirst;
    auto are_there = [&](uint32_t of, uint64_t first, uint64_t last) {
      for (uint64_t k = first; k <= last; ++k)
        if (const uint32_t operand = argument(program_, node(of), k); operand != LAZYT_NONE && !is_there(operand, i)) return false;
      return true;
    };
    auto is_like = [&](uint32_t other) {
      return value(other).dtype == value(v).dtype && std::ranges::equal(program_.dims(value(other)), program_.dims(value(v)));
    };
    if (value(v).dtype == LAZYT_DTYPE_FLOAT64) return;
    if (has_last_weight(i)) is_last_ = true;
    auto is_unread = [&](uint32_t result) { return users_[result].empty() && !is_output_[result]; };
    while (!is_output_[v] && users_[v].size() == 1) {
      const uint32_t next = users_[v].front(), made = node(next).results;
      if (is_part(next) || node(next).result_count == 0 || !is_like(made)) break;
      if (node(next).op == LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING && stage < kNorm && is_last_) {
        if (argument(program_, node(next), 0) != v || !are_there(next, 1, 4) || !is_unread(made + 1) || !is_unread(made + 2)) break;
        stage = kNorm;
      } else if (node(next).op == LAZYT_OP_ADD_TENSOR && stage < kAdd && is_last_) {
        const lazyt_arg_t& alpha = program_.args(node(next))[2];
        const uint32_t a = argument(program_, node(next), 0), b = argument(program_, node(next), 1), other = a == v ? b : a;
        if (alpha.kind == LAZYT_ARG_VALUE || toolkit::Builder::double_of(alpha) != 1 || other == LAZYT_NONE || !is_like(other) || !is_there(other, i)) break;
        stage = kAdd;
      } else if (node(next).op == LAZYT_OP_RELU && stage < kRelu) {
        stage = kRelu;
      } else {
        break;
      }
      e.chain.push_back(next);
      v = made;
    }
    if (e.chain.empty()) return;
    parts_.insert(parts_.end(), e.chain.begin(), e.chain.end());
    found_.emplace(i, e);
  }

  // cuBLASLt's GELU is the tanh form. What its tanh is worth is said nowhere: not for f32, where it would show.
  bool is_tanh_form(uint32_t i, uint64_t form) const {
    return program_.string(program_.args(node(i))[form]) == "tanh" && is_half(value(node(i).results).dtype) &&
           columns(node(i).results) % 8 == 0;
  }

  void find_activation(Epilogue& e, uint32_t v) {
    const auto all = readers(v);
    const bool alone = all && all->size() == 1;
    auto take = [&](Kind kind, uint32_t activation) {
      if (value(node(activation).results).dtype != value(v).dtype || columns(node(activation).results) != columns(v)) return;
      e.kind = kind, e.activation = activation;
    };
    if (alone && node(all->front()).op == LAZYT_OP_RELU) return take(Kind::kRelu, all->front());
    // The product itself may be read as well: then it is stored, too. Who reads it need not be looked through.
    for (uint32_t reader : all ? *all : users_[v]) {
      if (node(reader).op != LAZYT_OP_GELU || !is_tanh_form(reader, 1)) continue;
      e.keeps = !alone;
      return take(Kind::kGelu, reader);
    }
    if (!alone || node(e.product).op != LAZYT_OP_MM) return;
    const uint32_t reader = all->front();
    const lazyt_op_t op = node(reader).op;
    if (op != LAZYT_OP_THRESHOLD_BACKWARD && op != LAZYT_OP_GELU_BACKWARD) return;
    const uint32_t grad = argument(program_, node(reader), 0), saved = argument(program_, node(reader), 1);
    if (root(grad, is_reshape_of()) != v || saved == LAZYT_NONE || count(saved) != count(v)) return;
    if (op == LAZYT_OP_THRESHOLD_BACKWARD) {
      const lazyt_arg_t& threshold = program_.args(node(reader))[2];
      if (threshold.kind == LAZYT_ARG_VALUE || toolkit::Builder::double_of(threshold) != 0) return;
      const uint32_t made = maker_[root(saved, is_reshape_of())];
      for (auto& [product, forward] : found_)
        if (forward.kind == Kind::kRelu && forward.activation == made && columns(node(product).results) == columns(v)) e.forward = &forward;
      if (e.forward) take(Kind::kReluGradient, reader);
    } else if (is_tanh_form(reader, 2) && is_there(saved, e.product) && value(saved).dtype == value(v).dtype) {
      e.saved = saved;
      take(Kind::kGeluGradient, reader);
    }
  }

  std::function<bool(uint32_t)> is_reshape_of() const {
    return [this](uint32_t i) { return is_reshape(i); };
  }

  // A node that sums v, or a view of it, over all but its `n` columns.
  template <class F>
  uint32_t find_sum(uint32_t v, int64_t n, F&& is_seen) const {
    for (uint32_t i : users_[v]) {
      if (is_seen(i)) {
        if (const uint32_t further = find_sum(node(i).results, n, is_seen); further != LAZYT_NONE) return further;
        continue;
      }
      if (node(i).op != LAZYT_OP_SUM_DIM_INTLIST || is_part(i) || value(node(i).results).dtype != value(v).dtype) continue;
      const auto reduced = toolkit::reduced_dims(program_, node(i));
      if (reduced.size() < 2 || reduced.back() || columns(v) != n) continue;
      if (std::all_of(reduced.begin(), reduced.end() - 1, [](bool r) { return r; })) return i;
    }
    return LAZYT_NONE;
  }

  // The first node that reads v as it lies in memory.
  uint32_t first_use(uint32_t v) const {
    uint32_t first = LAZYT_NONE;
    for (uint32_t i : users_[v]) {
      uint32_t use = i;
      if (is_view(i)) {
        use = LAZYT_NONE;
        for (uint32_t r = 0; r < node(i).result_count; ++r) use = std::min(use, first_use(node(i).results + r));
      }
      first = std::min(first, use);
    }
    return first;
  }

  // Where the group of pointwise nodes that makes an operand would not sum it as well.
  void find_sum_of_operand(Epilogue& e) {
    const uint32_t v = node(e.product).results;
    const int64_t n = columns(v), m = count(v) / n;
    for (const auto& [side, length] : {std::pair<uint64_t, int64_t>{0, m}, {1, n}}) {
      const uint32_t operand = origin(argument(program_, node(e.product), side));
      if (operand == LAZYT_NONE || !is_there(operand, e.product)) continue;
      const uint32_t sum = find_sum(operand, length, [&](uint32_t i) { return is_view(i) && node(i).result_count == 1; });
      // Its first reader must come behind the product. (LAZYT_NONE is the largest number.)
      if (sum == LAZYT_NONE || first_use(node(sum).results) < e.product) continue;
      e.sum = sum;
      return;
    }
  }

  const ProgramView& program_;
  std::vector<uint32_t> maker_;               // of values: node
  std::vector<bool> is_output_;
  std::vector<std::vector<uint32_t>> users_;  // of values: nodes
  std::vector<uint32_t> parts_;
  bool is_last_ = false;  // a weight so far was channels-last: then the model is, and engines take more
  std::map<uint32_t, Epilogue> found_;
};

}  // namespace

Epilogues::Epilogues(const ProgramView& program, bool has_products, bool has_windows) {
  all_ = Finder(program).run(has_products, has_windows);
  for (auto& [i, e] : all_) {
    products_.emplace(program.nodes()[i].results, &e);
    for (uint32_t part : {e.activation, e.sum})
      if (part != LAZYT_NONE) parts_.emplace(program.nodes()[part].results, &e);
    for (const auto* parts : {&e.chain, &e.before})
      for (uint32_t part : *parts) parts_.emplace(program.nodes()[part].results, &e);
  }
}

}  // namespace lazyt::cuda
