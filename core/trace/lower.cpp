#include "trace/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/registry.h"
#include "trace/lower_linear.h"
#include "trace/lower_random.h"
#include "trace/nodes.h"
#include "trace/promote.h"
#include "trace/views.h"

namespace lazyt::trace {
namespace {

using base::Dims;
using base::DType;
using base::Meta;
using ir::Arg;
using ir::ValueId;

class Lowerer {
 public:
  explicit Lowerer(const Tape& tape) : tape_(tape) {
    slots_.resize(tape.slots.size(), ir::kNone);
    ancestor_.resize(tape.slots.size(), ir::kNone);
    for (uint32_t i = 0; i < tape.inputs.size(); i++) {
      uint32_t slot = tape.inputs[i];
      slots_[slot] = graph_.add_input(tape.slots[slot]->meta);
      graph_.inputs.back().may_donate = true;
      ancestor_[slot] = i;
    }
    for (const ScalarType& s : tape.scalars) scalars_.push_back(graph_.add_host_scalar(s.dtype, s.weak));
  }

  base::Result<ir::Graph> run(std::span<const uint32_t> outputs) {
    for (size_t i = 0; i < tape_.tokens.size(); i++)
      if (base::Status s = token(i); !s.ok()) return s;
    // Each output is a value of its own, laid out as its storage is (EXE-8).
    std::unordered_set<ValueId> used;
    for (uint32_t slot : outputs) {
      ValueId v = value_of(slot);
      const Meta& natural = tape_.slots[slot]->meta;
      const ir::Value& value = graph_.values[v];
      if (value.kind == ir::ValueKind::kResult && !used.count(v)) {
        graph_.values[v].meta.strides = natural.strides;
      } else {
        v = graph_.add_op("aten::clone", "", {Arg::of_value(v), Arg::none()}, natural);
      }
      used.insert(v);
      graph_.outputs.push_back({v, donor(slot)});
    }
    return std::move(graph_);
  }

 private:
  // The input whose storage this slot overwrites, if it has the same bytes' shape.
  uint32_t donor(uint32_t slot) const {
    uint32_t input = ancestor_[slot];
    if (input == ir::kNone || tape_.slots[tape_.inputs[input]]->meta != tape_.slots[slot]->meta) return ir::kNone;
    for (const ir::Output& o : graph_.outputs)
      if (o.donor == input) return ir::kNone;
    return input;
  }

  ValueId value_of(uint32_t slot) {
    if (slots_[slot] == ir::kNone) slots_[slot] = zeros(tape_.slots[slot]->meta);
    return slots_[slot];
  }

  // What was never written reads as zeros.
  ValueId zeros(const Meta& meta) {
    return graph_.add_op("aten::zeros", "",
                         {Arg::of_ints(meta.dims), Arg::of_int(meta.dtype, LAZYT_ARG_DTYPE),
                          Arg::of_int(0, LAZYT_ARG_LAYOUT), Arg::of_int(0, LAZYT_ARG_DEVICE), Arg::none()},
                         Meta::contiguous(meta.dtype, meta.dims), source_);
  }

  struct Operand {
    uint32_t slot;
    Geometry view;
    ValueId value = ir::kNone;  // read lazily: a written operand may not be read at all
    ValueId start = ir::kNone;  // the host scalar that says where the view begins, if it moves
  };

  ValueId read(Operand& o) {
    if (o.value == ir::kNone)
      o.value = o.start == ir::kNone ? read_view(graph_, value_of(o.slot), tape_.slots[o.slot]->meta, o.view, source_)
                                     : read_at(graph_, value_of(o.slot), tape_.slots[o.slot]->meta, o.view.meta, o.start, source_);
    return o.value;
  }

  Nodes nodes() { return {graph_, source_}; }
  ValueId cast(ValueId v, DType dtype) { return nodes().cast(v, dtype); }
  // v, whose elements must all be.
  ValueId a_probability(ValueId v, const char* words) {
    const Nodes n = nodes();
    const auto compared = [&](const char* op, double bound) {
      return n.add(op, "Scalar", {Arg::of_value(v), Arg::of_double(bound)}, LAZYT_DTYPE_BOOL, base::Dims(n.meta(v).dims));
    };
    const ValueId above = compared("aten::ge", 0), below = compared("aten::le", 1);
    return n.checked(v, n.map("aten::logical_and", "", above, {Arg::of_value(below)}), words);
  }

  base::Status token(size_t index);
  static std::vector<Arg> functional_args(const Op& op, const std::vector<Arg>& args, const std::vector<Meta>& results);
  base::Result<Arg> arg(const OpArg& spec);
  void promote_operands(std::vector<Arg>& args, const ir::OpInfo& info, const std::vector<Meta>& results);
  void drop_legacy_empties(Arg& list, const Meta& result);
  void count_axes_from_front(std::vector<Arg>& args, const ir::OpInfo& info) const;
  base::Result<std::vector<ValueId>> functional(const Op& op, std::vector<Arg> args, const std::vector<Meta>& results);
  Arg next_scalar() { return Arg::of_value(scalars_[scalar_++]); }

  const Tape& tape_;
  ir::Graph graph_;
  std::vector<ValueId> slots_;     // value of each slot
  std::vector<uint32_t> ancestor_; // input whose storage the slot belongs to
  std::vector<ValueId> scalars_;

  // Of the token at hand.
  SourceRef source_;
  std::vector<Operand> operands_;
  size_t operand_ = 0, scalar_ = 0;
  const uint64_t* word_ = nullptr;
};

// Decodes one argument. Tensors are read here unless they are only written.
base::Result<Arg> Lowerer::arg(const OpArg& spec) {
  uint64_t w = *word_++;
  switch (tag_of(w)) {
    case kNone: return Arg::none();
    case kTensor: {
      Operand& o = operands_[operand_++];
      if (*word_ == kMoved) o.start = next_scalar().value;
      word_ += 1 + 2 * low_of(w);
      return spec.out ? Arg::none() : Arg::of_value(read(o));
    }
    case kHostScalar: return next_scalar();
    case kList: {
      std::vector<Arg> list;
      for (uint32_t i = 0, n = low_of(w); i < n; i++) {
        auto e = arg(spec);
        if (!e.ok()) return e;
        list.push_back(std::move(e).value());
      }
      return Arg::of_list(std::move(list));
    }
    case kInt: {
      if (w == movable(kInt) && *word_ == kMoved) return word_++, next_scalar();
      auto v = static_cast<int64_t>(*word_++);
      switch (spec.type) {
        case ArgType::kDType: return Arg::of_int(v, LAZYT_ARG_DTYPE);
        case ArgType::kLayout: return Arg::of_int(v, LAZYT_ARG_LAYOUT);
        case ArgType::kDevice: return Arg::of_int(v, LAZYT_ARG_DEVICE);
        case ArgType::kMemoryFormat: return Arg::of_int(v, LAZYT_ARG_MEMORY_FORMAT);
        default: return Arg::of_int(v);
      }
    }
    case kDouble:
      if (w == movable(kDouble) && *word_ == kMoved) return word_++, next_scalar();
      return Arg::of_double(double_of(*word_++));
    case kBool: return Arg::of_bool(*word_++ != 0);
    case kComplex: {
      double re = double_of(word_[0]), im = double_of(word_[1]);
      word_ += 2;
      return Arg::of_complex({re, im});
    }
    case kString: {
      uint32_t n = low_of(w);
      std::string text(reinterpret_cast<const char*>(word_), n);
      word_ += (n + 7) / 8;
      return Arg::of_string(std::move(text));
    }
    case kInts: case kBools: {
      std::vector<int64_t> v(word_, word_ + low_of(w));
      word_ += low_of(w);
      return Arg::of_ints(std::move(v), tag_of(w) == kInts ? LAZYT_ARG_INTS : LAZYT_ARG_BOOLS);
    }
    case kDoubles: {
      std::vector<double> v;
      for (uint32_t i = 0; i < low_of(w); i++) v.push_back(double_of(*word_++));
      return Arg::of_doubles(std::move(v));
    }
    case kGenerator: return Arg::none();
  }
  return base::internal(fmt::format("lowering: unknown tag {} in a tape", static_cast<int>(tag_of(w))));
}

base::Status Lowerer::token(size_t index) {
  const Token& t = tape_.token(index);
  const uint32_t first_result = tape_.tokens[index].first_result;
  const Op& op = *t.op;
  source_ = t.source;

  // Operands: geometry from the signature is read as the args are; slots come from the roles.
  const uint64_t* signature = t.words();
  operands_.clear();
  for (const uint64_t* role = t.role_words(); role < t.meta_words(); role += role_words(role)) operands_.push_back({low_of(*role), {}, ir::kNone});
  size_t k = 0;
  for_each_tensor(signature, t.signature, [&](const uint64_t* w) {
    operands_[k++].view = {meta_of_tensor(w), w[1] == kMoved ? 0 : static_cast<int64_t>(w[1])};
  });

  word_ = signature;
  operand_ = 0;
  std::vector<Arg> args;
  std::vector<size_t> written;  // operands
  for (const OpArg& spec : op.args) {
    size_t first = operand_;
    // What an operator only overwrites is not read (its old bytes may be all the program's input).
    bool reads = op.lowering == Lowering::kPlain || op.lowering == Lowering::kBernoulli || op.lowering == Lowering::kRelu;
    bool unread = spec.out || (spec.written && !reads);
    OpArg s = spec;
    s.out = unread;
    auto a = arg(s);
    if (!a.ok()) return a.status();
    if (spec.written)
      for (size_t i = first; i < operand_; i++) written.push_back(i);
    if (!spec.out || !op.functional_args.empty()) args.push_back(std::move(a).value());
  }

  std::vector<Meta> results;
  const uint64_t* m = t.meta_words();
  for (uint32_t i = 0; i < t.fresh + t.written; i++) {
    results.push_back(take_meta(m));
    // Not asked for (an output_mask): an empty tensor that nobody reads.
    if (results.back().dtype == LAZYT_DTYPE_INVALID) results.back() = Meta::contiguous(LAZYT_DTYPE_FLOAT32, {0});
  }
  if (!op.functional_args.empty()) args = functional_args(op, args, results);
  // What is written, by its place in the functional operator's results.
  auto place = [&](uint32_t i) { return t.fresh + (op.written_order.empty() ? i : op.written_order[i]); };
  std::vector<Meta> returned = results;
  for (uint32_t i = 0; i < t.written; i++) returned[place(i)] = results[t.fresh + i];
  auto values = functional(op, std::move(args), returned);
  if (!values.ok()) return values.status().with_note(op.name, fmt::format("token {} of the trace", index));
  for (uint32_t i = 0; i < t.fresh; i++) slots_[first_result + i] = values.value()[i];
  for (uint32_t i = 0; i < t.written; i++) {
    Operand& o = operands_[written[i]];
    uint32_t slot = first_result + t.fresh + i;
    ValueId v = nodes().fit(cast(values.value()[place(i)], o.view.meta.dtype), o.view.meta.dims);
    // Bytes that were never written may take this geometry as their natural one.
    const Meta& before = tape_.slots[o.slot]->meta;
    const Meta& after = tape_.slots[slot]->meta;
    if (o.start != ir::kNone)
      slots_[slot] = write_at(graph_, value_of(o.slot), after, o.view.meta, o.start, v, source_);
    else if (before == after)
      slots_[slot] = write_view(graph_, value_of(o.slot), after, o.view, v, source_);
    else
      slots_[slot] = v;
    ancestor_[slot] = ancestor_[o.slot];
    // A second write of this call to the same storage goes on top of the first.
    for (size_t j = i + 1; j < t.written; j++)
      if (operands_[written[j]].slot == o.slot) operands_[written[j]].slot = slot;
  }
  return {};
}

std::vector<Arg> Lowerer::functional_args(const Op& op, const std::vector<Arg>& args, const std::vector<Meta>& results) {
  std::vector<Arg> out;
  for (int from : op.functional_args) {
    switch (from) {
      case kOutDType: out.push_back(Arg::of_int(results[0].dtype, LAZYT_ARG_DTYPE)); break;
      case kOutLayout: out.push_back(Arg::of_int(0, LAZYT_ARG_LAYOUT)); break;
      case kOutDevice: out.push_back(Arg::of_int(0, LAZYT_ARG_DEVICE)); break;
      case kOutPinned: out.push_back(Arg::none()); break;
      default: out.push_back(args[static_cast<size_t>(from)]);
    }
  }
  return out;
}

// Casts the operands of a pointwise operator to the dtype it computes in (PRG-4). Host scalars stay.
void Lowerer::promote_operands(std::vector<Arg>& args, const ir::OpInfo& info, const std::vector<Meta>& results) {
  if (info.promote == ir::Promote::kNone || results.empty()) return;
  auto takes_part = [&](size_t i) { return i < 64 && (info.promote_args >> i & 1); };
  DType target = results[0].dtype;
  if (info.promote == ir::Promote::kCompare) {
    std::vector<PromoteOperand> operands;
    for (size_t i = 0; i < args.size(); i++) {
      const Arg& a = args[i];
      if (!takes_part(i)) continue;
      if (a.kind == LAZYT_ARG_VALUE) {
        const ir::Value& v = graph_.values[a.value];
        Rank rank = v.weak ? Rank::kNumber : v.meta.dims.empty() ? Rank::kScalarTensor : Rank::kTensor;
        operands.push_back({v.meta.dtype, rank});
      } else if (a.kind == LAZYT_ARG_DOUBLE) {
        operands.push_back({LAZYT_DTYPE_FLOAT64, Rank::kNumber});
      } else if (a.kind == LAZYT_ARG_INT) {
        operands.push_back({LAZYT_DTYPE_INT64, Rank::kNumber});
      } else if (a.kind == LAZYT_ARG_COMPLEX) {
        operands.push_back({LAZYT_DTYPE_COMPLEX128, Rank::kNumber});
      }
    }
    target = promote(operands, tape_.default_float);
  }
  auto cast_tensor = [&](Arg& a) {
    if (a.kind == LAZYT_ARG_VALUE && graph_.values[a.value].kind != ir::ValueKind::kHostScalar)
      a.value = cast(a.value, target);
  };
  for (size_t i = 0; i < args.size(); i++) {
    if (!takes_part(i)) continue;
    cast_tensor(args[i]);
    for (Arg& element : args[i].list) cast_tensor(element);
  }
}

// A complex number that fills a real tensor: eager takes one without an imaginary part, and any for a bool.
void fill_as_real(std::vector<Arg>& args, DType filled) {
  for (Arg& a : args) {
    if (a.kind != LAZYT_ARG_COMPLEX) continue;
    const double re = a.doubles[0], im = a.doubles[1];
    a = filled == LAZYT_DTYPE_BOOL ? Arg::of_bool(re != 0 || im != 0) : Arg::of_double(re);
  }
}

// torch.cat takes tensors of shape [0] beside operands of any rank and lets them only take part in the dtype.
void Lowerer::drop_legacy_empties(Arg& list, const Meta& result) {
  if (result.dims.size() == 1) return;
  std::erase_if(list.list, [&](const Arg& a) {
    return a.kind == LAZYT_ARG_VALUE && graph_.values[a.value].meta.dims == base::Dims{0};
  });
}

// Dims count from the front (PRG-5).
void Lowerer::count_axes_from_front(std::vector<Arg>& args, const ir::OpInfo& info) const {
  if (!info.axis_args || args.empty()) return;
  const Arg& first = args[0].kind == LAZYT_ARG_LIST && !args[0].list.empty() ? args[0].list[0] : args[0];
  if (first.kind != LAZYT_ARG_VALUE) return;
  auto rank = static_cast<int64_t>(graph_.values[first.value].meta.dims.size());
  if (info.name == "aten::stack" || info.name == "aten::unsqueeze") rank++;
  // Gradients of views name the shape that their dims are about.
  if (info.name.ends_with("_backward") && args.size() > 1 && args[1].kind == LAZYT_ARG_INTS) rank = static_cast<int64_t>(args[1].ints.size());
  rank = std::max<int64_t>(rank, 1);
  // Some operators of eager's do not look at the dim of a tensor without elements: any does.
  const bool any_does = graph_.values[first.value].meta.numel() == 0;
  auto counted = [&](int64_t d) {
    const int64_t from_front = d < 0 ? d + rank : d;
    return any_does ? std::clamp<int64_t>(from_front, 0, rank - 1) : from_front;
  };
  for (size_t i = 0; i < args.size() && i < 64; i++) {
    if (!(info.axis_args >> i & 1)) continue;
    if (args[i].kind == LAZYT_ARG_INT) args[i].i = counted(args[i].i);
    for (int64_t& d : args[i].ints) d = counted(d);
  }
}

// The results of a call as values: what the operator would return if it wrote nothing.
base::Result<std::vector<ValueId>> Lowerer::functional(const Op& op, std::vector<Arg> args,
                                                       const std::vector<Meta>& results) {
  const ir::OpInfo* info = ir::find_op(op.functional_name, op.functional_overload);
  const bool compares = info && info->promote == ir::Promote::kCompare;
  if (!results.empty() && !is_complex(results[0].dtype) && !compares) fill_as_real(args, results[0].dtype);
  switch (op.lowering) {
    case Lowering::kCopy: return std::vector<ValueId>{args[1].value};
    case Lowering::kZero: return std::vector<ValueId>{zeros(results[0])};
    case Lowering::kFill:
      if (args[1].kind == LAZYT_ARG_VALUE && graph_.values[args[1].value].kind != ir::ValueKind::kHostScalar)
        return std::vector<ValueId>{args[1].value};  // fill_.Tensor: cast and broadcast by the write
      if (args[1].kind == LAZYT_ARG_VALUE && !graph_.values[args[1].value].weak)  // a 0-dim CPU tensor, the same
        return std::vector<ValueId>{nodes().full({}, args[1], graph_.values[args[1].value].meta.dtype)};
      return std::vector<ValueId>{nodes().full(results[0].dims, args[1], results[0].dtype)};
    case Lowering::kArange: {
      auto counts = [](const Arg& a) { return a.kind == LAZYT_ARG_INT || a.kind == LAZYT_ARG_VALUE; };
      if (!is_integral(results[0].dtype) || !std::all_of(args.begin(), args.end() - 4, counts)) break;
      if (args[0].kind == LAZYT_ARG_INT) {
        args[1].i = static_cast<int64_t>(static_cast<uint64_t>(args[1].i) + static_cast<uint64_t>(args[0].i));
        break;
      }
      const Arg start = std::exchange(args[0], Arg::of_int(0));
      const ValueId from_zero = graph_.add_op(op.name, op.overload, std::move(args), results[0], source_);
      return std::vector<ValueId>{
          graph_.add_op("aten::add", "Scalar", {Arg::of_value(from_zero), start, Arg::of_int(1)}, results[0], source_)};
    }
    case Lowering::kLinear: return lower_linear(nodes(), args, results);
    case Lowering::kLinearBackward: return lower_linear_backward(nodes(), args, results);
    case Lowering::kPlain: break;
    default: {
      const Arg seed = next_scalar(), offset = next_scalar();
      return lower_random(nodes(), op, args, results, seed, offset);
    }
  }
  if (op.random) return base::unimplemented(fmt::format("{}.{}: random, and not in the opset", op.name, op.overload));
  std::string name = op.functional_name, overload = op.functional_overload;
  if (name == "aten::roll" && results[0].numel() == 0) return std::vector<ValueId>{args[0].value};  // along any dims, even those it lacks
  // Of a tensor without dims eager takes any k, and there is nothing to turn round.
  if (name == "aten::topk" && results[0].dims.empty()) args[1] = Arg::of_int(1);
  if (name == "aten::flip" && results[0].dims.empty()) return std::vector<ValueId>{args[0].value};
  if (name == "aten::binary_cross_entropy") {
    args[0] = Arg::of_value(a_probability(args[0].value, "all elements of input should be between 0 and 1"));
    args[1] = Arg::of_value(a_probability(args[1].value, "all elements of target should be between 0 and 1"));
  }
  // Outside the opset, and another operator in disguise.
  if (name == "aten::_index_put_impl") args.pop_back(), name = "aten::index_put";  // unsafe: whether CUDA checks indices
  if (name == "aten::isneginf" || name == "aten::isposinf") {
    args.push_back(Arg::of_double(name == "aten::isneginf" ? -HUGE_VAL : HUGE_VAL));
    name = "aten::eq", overload = "Scalar";
  }
  if (const ir::OpInfo* info = ir::find_op(name, overload)) {
    if (info->name == "aten::cat") drop_legacy_empties(args[0], results[0]);
    promote_operands(args, *info, results);
    count_axes_from_front(args, *info);
  }
  ir::NodeId node = graph_.add_node(name, overload, std::move(args), results, source_);
  std::vector<ValueId> out;
  for (uint32_t i = 0; i < results.size(); i++) out.push_back(graph_.nodes[node].first_result + i);
  return out;
}

}  // namespace

base::Result<ir::Graph> lower(const Tape& tape, std::span<const uint32_t> outputs) {
  return Lowerer(tape).run(outputs);
}

}  // namespace lazyt::trace
