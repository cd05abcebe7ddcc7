// Layer, RMS, group and batch normalisation, and their backwards. Statistics are taken in two passes (mean,
// then squares around it) in the compute type.
//
// Layer, RMS and group norm have many short lines: one kernel keeps a line with a team of threads. Batch norm
// has few long lines, and weights' gradients are sums across lines: those are fused reductions and pointwise
// kernels.
#include <limits>
#include <optional>

#include "../codegen/kernel.h"
#include "walk.h"

namespace lazyt::cuda {
namespace {

using toolkit::Op;
using toolkit::ReduceKind;
using toolkit::Reg;
using toolkit::Type;
using toolkit::type_of;

Refusal accept_norm(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_floating)) return refuse_dtype(operand(program, node, 0).dtype);
  // Weights and statistics are computed with in the type of the elements.
  if (operand(program, node, 0).dtype != LAZYT_DTYPE_FLOAT64 &&
      !all_tensors(program, node, [](lazyt_dtype_t d) { return d != LAZYT_DTYPE_FLOAT64; }))
    return refuse_dtype(LAZYT_DTYPE_FLOAT64);
  return accepted();
}

bool mask_at(Builder& b, const lazyt_arg_t& mask, uint64_t i) { return b.program.ints(mask)[i] != 0; }

using Optional = std::optional<Tensor>;
// A weight or statistic in the compute type of `dtype`.
Optional optional_at(Builder& b, const lazyt_arg_t& arg, lazyt_dtype_t dtype) {
  if (Builder::is_none(arg)) return std::nullopt;
  return dense_as(b, tensor_at(b, arg), compute_dtype(dtype));
}

// A result that a kernel computes in the compute type of `dtype`. One that nobody asked for has no elements.
struct Result {
  uint32_t v = 0;
  bool wanted = false;
  Tensor tensor;

  Result() = default;  // the operator has no such result
  Result(Builder& b, uint32_t value, lazyt_dtype_t dtype, int64_t count) : v(value) {
    wanted = toolkit::count_of(b.dims(v)) == count;
    tensor = wanted ? toolkit::begin_result(b, v, compute_dtype(dtype)) : b.make_dense(v);
  }
  void finish(Builder& b) const {
    if (wanted) toolkit::finish_result(b, v, tensor);
  }
};

// ---- many lines

// STORE keeps `v`, the element of the result that lies at `o`, and computes what follows it.
// Words: x, y, eps, then those of what there is: weight, bias, mean, rstd.
constexpr std::string_view kForward = R"(
#define EACH for (int k = 0; k < (int)PER; ++k) if (const long long i = lane + (long long)k * TEAM; i < n)
#define PER ((N + TEAM - 1) / TEAM + (N == 0))
#define KEEPS (PER <= 16)
#define X(k, i) (KEEPS ? kept[KEEPS ? (k) : 0] : lazyt_load(x, AT0(i)))
LAZYT_KERNEL(KERNEL, WORDS, THREADS) {
  using Team = lazyt_team<TEAM, COLUMNS, THREADS>;
  const int lane = Team::lane();
  const double eps = lazyt_f64(a.w[2]);
  for (long long base = blockIdx.x * (long long)Team::kLines; base < LINES; base += gridDim.x * (long long)Team::kLines) {
    const long long l = base + Team::line();
    const long long n = l < LINES ? N : 0;
    const T* x = (const T*)a.w[0] + (n ? LINE0(l) : 0);
    C kept[KEEPS ? PER : 1];
    S sum = 0;
    EACH {
      const C v = lazyt_load(x, AT0(i));
      if (KEEPS) kept[KEEPS ? k : 0] = v;
      sum += v;
    }
    const C mean = RMS ? (C)0 : (C)(Team::all(sum, lazyt_plus()) / (S)N);
    S squares = 0;
    EACH {
      const C d = X(k, i) - mean;
      squares += d * d;
    }
    const C rstd = (C)(1 / sqrt((double)Team::all(squares, lazyt_plus()) / (double)N + eps));
    EACH {
      C v = (X(k, i) - mean) * rstd;
      if (WEIGHT) v *= ((const C*)a.w[3])[LINE2(l) + AT2(i)];
      if (BIAS) v += ((const C*)a.w[4])[LINE2(l) + AT2(i)];
      const long long o = LINE1(l) + AT1(i);
      STORE
    }
    if (l < LINES && lane == 0) {
      if (MEAN) ((C*)a.w[5])[l_of_result(l)] = mean;
      if (RSTD) ((C*)a.w[6])[l_of_result(l)] = rstd;
    }
  }
}
#undef EACH
#undef PER
#undef KEEPS
#undef X
)";

// grad_in = rstd (g w - mean(g w) - (x - mean) rstd^2 mean(g w (x - mean))). Words: grad_in, grad, x, weight,
// mean, rstd.
constexpr std::string_view kBackward = R"(
LAZYT_KERNEL(KERNEL, WORDS, THREADS) {
  using Team = lazyt_team<TEAM, COLUMNS, THREADS>;
  const int lane = Team::lane();
  for (long long base = blockIdx.x * (long long)Team::kLines; base < LINES; base += gridDim.x * (long long)Team::kLines) {
    const long long l = base + Team::line();
    const long long n = l < LINES ? N : 0;
    const T* g = (const T*)a.w[1] + (n ? LINE1(l) : 0);
    const T* x = (const T*)a.w[2] + (n ? LINE2(l) : 0);
    const C mean = n && !RMS ? ((const C*)a.w[4])[l_of_result(l)] : (C)0, rstd = n ? ((const C*)a.w[5])[l_of_result(l)] : (C)0;
#define G(i) (WEIGHT ? lazyt_load(g, AT1(i)) * ((const C*)a.w[3])[LINE3(l) + AT3(i)] : lazyt_load(g, AT1(i)))
    S sum = 0, sum_x = 0;
    for (long long i = lane; i < n; i += TEAM) {
      const C v = G(i);
      sum += v;
      sum_x += v * (lazyt_load(x, AT2(i)) - mean);
    }
    if (!RMS) sum = Team::all(sum, lazyt_plus());
    sum_x = Team::all(sum_x, lazyt_plus());
    const double r = rstd;
    const C b = (C)(-r * r * r * sum_x / (double)N), c = RMS ? (C)0 : (C)(-r * sum / (double)N);
    for (long long i = lane; i < n; i += TEAM) {
      const C v = rstd * G(i) + b * (lazyt_load(x, AT2(i)) - mean) + c;
      const long long o = LINE0(l) + AT0(i);
      STORE
    }
#undef G
  }
}
)";

// Lines of a tensor: which dims make them, over the tensor's dims or finer ones, and where a weight lies.
struct Lines {
  Dims dims;                  // of the walk
  std::vector<bool> reduced;  // which make a line
  Dims weight;                // strides of a weight over dims
};
Layout finer(const Tensor& t, const Dims& dims) { return *t.layout.reshaped(dims); }

// Means and deviations are one for each line, in the lines' row-major order.
Dims stat_strides(const Lines& lines) {
  Dims kept = lines.dims;
  for (size_t d = 0; d < kept.size(); ++d)
    if (lines.reduced[d]) kept[d] = 1;
  Dims strides = toolkit::row_major(kept);
  for (size_t d = 0; d < kept.size(); ++d)
    if (lines.reduced[d]) strides[d] = 0;
  return strides;
}

// Beside LINEk, the place of a line's statistic. made: what STORE keeps; others: what else is written.
// Pointwise nodes behind it count its elements as row-major.
void add(Builder& b, const char* name, std::string_view kernel, const Lines& lines,
         std::vector<Layout> layouts, lazyt_dtype_t dtype, Defines more, std::vector<Word> words,
         std::vector<StorageId> reads, const Tensor& made, const std::vector<StorageId>& others) {
  Epilogue* const e = b.epilogue();
  const bool has_chain = e && made.layout.is_dense();
  std::vector<StorageId> writes = others, in_place;
  std::string store = "lazyt_store((T*)a.w[MADE], o, v);";
  if (has_chain) {
    store = "const long long i = o;\n" + b.chain_text(*e, made, words, reads, writes, in_place);
    // A line's statistic may be written before all of its team have read their operands.
    if (!others.empty()) reads.insert(reads.end(), in_place.begin(), in_place.end()), in_place.clear();
  } else {
    writes.push_back(made.storage);
  }
  std::string text(kernel);
  text.replace(text.find("STORE\n"), 5, "{" + store + "}");
  more.emplace_back("WORDS", std::to_string(words.size()));
  layouts.push_back({0, lines.dims, lines.weight});
  layouts.push_back({0, lines.dims, stat_strides(lines)});
  const Walk walk = walk_of(layouts, lines.reduced, false);
  Defines defines = types_of(dtype);
  defines.emplace_back("S", register_type(dtype));
  defines.emplace_back("l_of_result(l)", "LINE" + std::to_string(layouts.size() - 1) + "(l)");
  defines.insert(defines.end(), more.begin(), more.end());
  add_lines(b, name, text, walk, team_for(walk), std::move(defines), std::move(words), reads, writes,
            in_place);
  if (e && !has_chain) b.add_chain(*e);
}

Word word_of(const Optional& t) { return t ? Word::address(*t) : Word::integer(0); }
Word word_of(const Result& r) { return r.wanted ? Word::address(r.tensor) : Word::integer(0); }
std::string flag(bool set) { return set ? "true" : "false"; }
std::vector<StorageId> storages(std::initializer_list<const Optional*> optional,
                                std::initializer_list<const Tensor*> tensors) {
  std::vector<StorageId> out;
  for (const Tensor* t : tensors) out.push_back(t->storage);
  for (const Optional* t : optional)
    if (*t) out.push_back((*t)->storage);
  return out;
}

void add_forward(Builder& b, const char* name, const Lines& lines, const Tensor& x, const Tensor& y,
                 const Number& eps, const Optional& weight, const Optional& bias, const Result& mean,
                 const Result& rstd, bool rms) {
  std::vector<StorageId> others;
  for (const Result* r : {&mean, &rstd})
    if (r->wanted) others.push_back(r->tensor.storage);
  add(b, name, kForward, lines, {finer(x, lines.dims), finer(y, lines.dims)}, x.dtype,
      {{"MADE", "1"},
       {"RMS", flag(rms)},
       {"WEIGHT", flag(weight.has_value())},
       {"BIAS", flag(bias.has_value())},
       {"MEAN", flag(mean.wanted)},
       {"RSTD", flag(rstd.wanted)}},
      {Word::address(x), Word::address(y), Word::f64(eps), word_of(weight), word_of(bias), word_of(mean),
       word_of(rstd)},
      storages({&weight, &bias}, {&x}), y, others);
}
void add_backward(Builder& b, const char* name, const Lines& lines, const Tensor& out, const Tensor& grad,
                  const Tensor& x, const Optional& weight, const Optional& mean, const Tensor& rstd,
                  bool rms) {
  add(b, name, kBackward, lines, {finer(out, lines.dims), finer(grad, lines.dims), finer(x, lines.dims)},
      x.dtype, {{"MADE", "0"}, {"RMS", flag(rms)}, {"WEIGHT", flag(weight.has_value())}},
      {Word::address(out), Word::address(grad), Word::address(x), word_of(weight), word_of(mean),
       Word::address(rstd)},
      storages({&weight, &mean}, {&grad, &x, &rstd}), out, {});
}

// ---- pointwise arithmetic and totals, as fused kernels

struct Fused {
  FusedKernel k;
  Type type;

  Fused(const Dims& dims, const std::vector<bool>& reduced, lazyt_dtype_t dtype)
      : k(dims, reduced), type(type_of(compute_dtype(dtype))) {}
  Reg load(const Tensor& t) { return k.cast(k.load(t), type); }
  Reg add(Reg x, Reg y) { return k.op(Op::kAdd, x, y); }
  Reg sub(Reg x, Reg y) { return k.op(Op::kSub, x, y); }
  Reg mul(Reg x, Reg y) { return k.op(Op::kMul, x, y); }
  Reg number(const Number& n) { return k.number(n, type); }
  Reg constant(double d) { return k.constant(d, type); }
  void store(Reg r, const Tensor& t) { k.store(k.cast(r, type_of(t.dtype)), t); }
  void build(Builder& b) { k.build(b, {}); }
};

// The tensor seen over dims: strides elsewhere 0.
Tensor seen(const Tensor& t, const Dims& dims, const Dims& strides) { return reshaped(t, dims, strides); }

// Gradients of weights: totals of g (x - mean) rstd and of g over `across`, which are not the weights' own
// dims.
void add_weight_gradients(Builder& b, const Lines& lines, const std::vector<bool>& across, const Tensor& grad,
                          const Tensor& x, const Optional& mean, const Tensor& rstd,
                          const Result& grad_weight, const Result& grad_bias) {
  if (!grad_weight.wanted && !grad_bias.wanted) return;
  const Dims stats = stat_strides(lines);
  Fused f(lines.dims, across, x.dtype);
  auto fine = [&](const Tensor& t) { return Tensor{t.storage, t.dtype, finer(t, lines.dims)}; };
  const Reg g = f.load(fine(grad));
  auto out = [&](const Result& r) { return seen(r.tensor, lines.dims, lines.weight); };
  if (grad_weight.wanted) {
    Reg v = f.load(fine(x));
    if (mean) v = f.sub(v, f.load(seen(*mean, lines.dims, stats)));
    v = f.mul(f.mul(g, v), f.load(seen(rstd, lines.dims, stats)));
    f.k.reduce(v, ReduceKind::kSum, out(grad_weight));
  }
  if (grad_bias.wanted) f.k.reduce(g, ReduceKind::kSum, out(grad_bias));
  f.build(b);
}

// ---- layer norm, RMS norm: lines of the last dims, one weight an element

Lines lines_of_rows(Builder& b, const lazyt_arg_t& normalized, const Tensor& in) {
  const size_t own = b.ints_of(normalized).size(), rank = in.dims().size();
  Lines lines{in.dims(), std::vector<bool>(rank, false), Dims(rank, 0)};
  const Dims strides = toolkit::row_major(std::span(in.dims()).subspan(rank - own));
  for (size_t d = 0; d < own; ++d)
    lines.reduced[rank - own + d] = true, lines.weight[rank - own + d] = strides[d];
  return lines;
}
int64_t count_lines(const Lines& lines) {
  int64_t n = 1;
  for (size_t d = 0; d < lines.dims.size(); ++d)
    if (!lines.reduced[d]) n *= lines.dims[d];
  return n;
}

template <bool kRms>
void lower_row_norm(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const Lines lines = lines_of_rows(b, args[1], in);
  const Optional weight = optional_at(b, args[2], in.dtype),
                 bias = kRms ? std::nullopt : optional_at(b, args[3], in.dtype);
  Number eps;
  const lazyt_arg_t& eps_arg = args[kRms ? 3 : 4];
  if (b.is_none(eps_arg))
    eps.d = in.dtype == LAZYT_DTYPE_FLOAT64 ? std::numeric_limits<double>::epsilon()
                                            : static_cast<double>(std::numeric_limits<float>::epsilon());
  else
    eps = b.number_of(eps_arg);
  const Tensor out = b.make_dense(node.results);
  const int64_t m = count_lines(lines);
  const Result mean = kRms ? Result() : Result(b, node.results + 1, in.dtype, m);
  const Result rstd(b, node.results + (kRms ? 1 : 2), in.dtype, m);
  add_forward(b, kRms ? "rms_norm" : "layer_norm", lines, in, out, eps, weight, bias, mean, rstd, kRms);
  mean.finish(b);
  rstd.finish(b);
}

template <bool kRms>
void lower_row_norm_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor grad = tensor_at(b, args[0]), in = dense_as(b, tensor_at(b, args[1]), grad.dtype);
  const Lines lines = lines_of_rows(b, args[2], in);
  const Optional mean = kRms ? std::nullopt : optional_at(b, args[3], in.dtype);
  const Optional rstd = optional_at(b, args[kRms ? 3 : 4], in.dtype),
                 weight = optional_at(b, args[kRms ? 4 : 5], in.dtype);
  const lazyt_arg_t& mask = args[kRms ? 5 : 7];
  const int64_t m = count_lines(lines), n = m ? in.count() / m : 0;
  const Tensor grad_in = b.make_dense(node.results);
  if (mask_at(b, mask, 0))
    add_backward(b, kRms ? "rms_norm_backward" : "layer_norm_backward", lines, grad_in, grad, in, weight,
                 mean, *rstd, kRms);
  const Result grad_weight(b, node.results + 1, in.dtype, mask_at(b, mask, 1) ? n : -1);
  const Result grad_bias =
      kRms ? Result() : Result(b, node.results + 2, in.dtype, mask_at(b, mask, 2) ? n : -1);
  std::vector<bool> across = lines.reduced;
  across.flip();
  add_weight_gradients(b, lines, across, grad, in, mean, *rstd, grad_weight, grad_bias);
  grad_weight.finish(b);
  grad_bias.finish(b);
}

// ---- group norm: lines are the channels of a group in an image, and their pixels

// Dims [image, group, channel of it, pixels...].
Lines lines_of_groups(const Tensor& in, int64_t groups) {
  Lines lines{in.dims(), {}, {}};
  lines.dims[1] /= groups;
  lines.dims.insert(lines.dims.begin() + 1, groups);
  lines.reduced.assign(lines.dims.size(), true);
  lines.reduced[0] = lines.reduced[1] = false;
  lines.weight.assign(lines.dims.size(), 0);
  lines.weight[1] = lines.dims[2], lines.weight[2] = 1;
  return lines;
}

void lower_group_norm(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const int64_t groups = b.int_of(args[6]);
  const Lines lines = lines_of_groups(in, groups);
  const Optional weight = optional_at(b, args[1], in.dtype), bias = optional_at(b, args[2], in.dtype);
  const Tensor out = b.make(node.results, b.result_strides(node.results, in.strides()));
  const Result mean(b, node.results + 1, in.dtype, in.dims()[0] * groups),
      rstd(b, node.results + 2, in.dtype, in.dims()[0] * groups);
  add_forward(b, "group_norm", lines, in, out, b.number_of(args[7]), weight, bias, mean, rstd, false);
  mean.finish(b);
  rstd.finish(b);
}

void lower_group_norm_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor grad = tensor_at(b, args[0]), in = tensor_at(b, args[1]);
  const Optional mean = optional_at(b, args[2], in.dtype), rstd = optional_at(b, args[3], in.dtype),
                 weight = optional_at(b, args[4], in.dtype);
  const Lines lines = lines_of_groups(in, b.int_of(args[8]));
  const bool wants_in = mask_at(b, args[9], 0);
  const Tensor grad_in = wants_in ? b.make(node.results, b.result_strides(node.results, in.strides()))
                                  : b.make_dense(node.results);
  if (wants_in) add_backward(b, "group_norm_backward", lines, grad_in, grad, in, weight, mean, *rstd, false);
  const Result grad_weight(b, node.results + 1, in.dtype, mask_at(b, args[9], 1) ? in.dims()[1] : -1);
  const Result grad_bias(b, node.results + 2, in.dtype, mask_at(b, args[9], 2) ? in.dims()[1] : -1);
  std::vector<bool> across(lines.dims.size(), true);
  across[1] = across[2] = false;
  add_weight_gradients(b, lines, across, grad, in, mean, *rstd, grad_weight, grad_bias);
  grad_weight.finish(b);
  grad_bias.finish(b);
}

// ---- batch norm: a line is a channel of all images

struct Channels {
  Dims dims, strides;         // strides: of a tensor with an element for each channel
  std::vector<bool> reduced;  // all but the channels
  double count;               // elements of a channel

  explicit Channels(const Tensor& in) : dims(in.dims()), strides(dims.size(), 0), reduced(dims.size(), true) {
    strides[1] = 1;
    reduced[1] = false;
    count = static_cast<double>(in.count() / dims[1]);
  }
  Tensor of(const Tensor& t) const { return seen(t, dims, strides); }
};

// Which arguments and results a variant has; -1 = none.
struct BatchNorm {
  int running, training, momentum, eps;  // running_mean; running_var is the next
  bool always_trains;
  bool updates;  // results 3 and 4
};

template <int kVariant>
void lower_batch_norm(Builder& b, const lazyt_node_t& node) {
  constexpr BatchNorm variants[] = {{3, 5, 6, 7, false, true}, {-1, 3, 4, 5, true, false}};
  constexpr BatchNorm kind = variants[kVariant];
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const Channels channels(in);
  const int64_t c = in.dims()[1];
  const bool training =
      kind.always_trains || b.bool_of(args[static_cast<uint64_t>(kind.training)]);
  const Optional weight = optional_at(b, args[1], in.dtype), bias = optional_at(b, args[2], in.dtype);
  Optional running_mean, running_var;
  if (kind.running >= 0) {
    running_mean = optional_at(b, args[static_cast<uint64_t>(kind.running)], in.dtype);
    running_var = optional_at(b, args[static_cast<uint64_t>(kind.running) + 1], in.dtype);
  }
  const Number eps = b.number_of(args[kind.eps]), momentum = b.number_of(args[kind.momentum]);
  const Tensor out = b.make(node.results, b.result_strides(node.results, in.strides()));
  const Result mean(b, node.results + 1, in.dtype, c), invstd(b, node.results + 2, in.dtype, c);
  const Result new_mean = kind.updates ? Result(b, node.results + 3, in.dtype, c) : Result();
  const Result new_var = kind.updates ? Result(b, node.results + 4, in.dtype, c) : Result();
  const lazyt_dtype_t compute = compute_dtype(in.dtype);
  // In training a pass over the elements, which ends with what is one for each channel; else that alone.
  const Dims channel{c};
  Fused each(training ? channels.dims : channel, training ? channels.reduced : std::vector<bool>{}, in.dtype);
  auto load = [&](const Tensor& t) { return training ? each.k.cast(each.k.load_kept(channels.of(t)), each.type) : each.load(t); };
  auto store = [&](Reg r, const Tensor& t) {
    if (training) each.k.store_kept(each.k.cast(r, type_of(t.dtype)), channels.of(t));
    else each.store(r, t);
  };
  Tensor mu;
  Reg m, var;
  if (training) {
    mu = mean.wanted ? mean.tensor : b.scratch(compute, {c});
    // Around the channel's first element, so that a mean far from 0 takes nothing from the squares.
    Tensor first = in;
    first.layout.strides.assign(channels.dims.size(), 0);
    first.layout.strides[1] = in.strides()[1];
    auto wide = [&](Reg r) { return each.k.cast(r, Type::kF64); };
    const Reg d = each.sub(wide(each.k.load(in)), wide(each.k.load(first))), n = each.k.constant(channels.count, Type::kF64);
    const Reg from_first = each.k.op(Op::kDiv, each.k.total(d, ReduceKind::kSum), n);
    const Reg squares = each.k.op(Op::kDiv, each.k.total(each.mul(d, d), ReduceKind::kSum), n);
    m = each.k.cast(each.add(wide(each.k.load_kept(first)), from_first), each.type);
    var = each.k.cast(each.k.op(Op::kMax, each.sub(squares, each.mul(from_first, from_first)), each.k.constant(0, Type::kF64)), each.type);
    store(m, mu);
  } else {
    mu = *running_mean;
    m = each.load(mu), var = each.load(*running_var);
    if (mean.wanted) store(m, mean.tensor);
  }
  const Tensor scale = b.scratch(compute, {c});
  const Reg inv = each.k.op(Op::kRsqrt, each.add(var, each.number(eps)));
  store(weight ? each.mul(inv, load(*weight)) : inv, scale);
  if (invstd.wanted) store(inv, invstd.tensor);
  auto update = [&](const Result& result, const Optional& old, Reg now) {
    if (!result.wanted) return;
    const Reg before = load(*old), p = each.number(momentum);
    store(training ? each.add(each.mul(p, now), each.mul(each.sub(each.constant(1), p), before)) : before, result.tensor);
  };
  update(new_mean, running_mean, m);
  update(new_var, running_var,
         training ? each.mul(var, each.constant(channels.count / (channels.count - 1))) : var);
  each.build(b);
  auto element = [channels, in, mu, scale, bias](FusedKernel& k) {
    const Type type = type_of(compute_dtype(in.dtype));
    auto load = [&](const Tensor& t) { return k.cast(k.load(t), type); };
    const Reg y = k.op(Op::kMul, k.op(Op::kSub, load(in), load(channels.of(mu))), load(channels.of(scale)));
    return bias ? k.op(Op::kAdd, y, load(channels.of(*bias))) : y;
  };
  Epilogue* const e = b.epilogue();
  if (e && e->is_joined) {
    e->element = element;
  } else {
    FusedKernel apply(channels.dims, {});
    const Reg y = element(apply);
    if (e)
      b.emit_chain(*e, apply, y, out);
    else
      apply.store(y, out);
    apply.build(b, {});
  }
  mean.finish(b);
  invstd.finish(b);
  new_mean.finish(b);
  new_var.finish(b);
}

// One that is lowered.
struct BatchNormBackward {
  Tensor in, mean, spread;
  Optional weight;
  Number eps;
  bool training, wants_in;
  Tensor grad_in;
  Result grad_weight, grad_bias;
  Tensor ka, kb, kc;  // grad_in = ka grad + kb (in - mean) + kc

  BatchNormBackward(Builder& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    in = tensor_at(b, args[1]);
    const int64_t c = in.dims()[1];
    training = b.bool_of(args[7]);
    weight = optional_at(b, args[2], in.dtype);
    mean = *optional_at(b, args[training ? 5 : 3], in.dtype);
    spread = *optional_at(b, args[training ? 6 : 4], in.dtype);
    eps = b.number_of(args[8]);
    wants_in = mask_at(b, args[9], 0);
    grad_in = wants_in ? b.make(node.results, b.result_strides(node.results, in.strides()))
                       : b.make_dense(node.results);
    grad_weight = Result(b, node.results + 1, in.dtype, mask_at(b, args[9], 1) ? c : -1);
    grad_bias = Result(b, node.results + 2, in.dtype, mask_at(b, args[9], 2) ? c : -1);
    for (Tensor* t : {&ka, &kb, &kc}) *t = b.scratch(compute_dtype(in.dtype), {c});
  }
};

void lower_batch_norm_backward(Builder& b, const lazyt_node_t& node) {
  Epilogue* const e = b.epilogue();
  if (e && e->is_joined) return;
  std::vector<BatchNormBackward> norms = {{b, node}};  // that have this gradient
  for (uint32_t i : e ? e->beside : std::vector<uint32_t>()) norms.emplace_back(b, b.program.nodes()[i]);
  const Tensor in = norms[0].in;
  const Channels channels(in);
  const bool any_wants_in = std::any_of(norms.begin(), norms.end(), [](const auto& n) { return n.wants_in; });

  Fused sums(channels.dims, channels.reduced, in.dtype);
  auto load = [&](const Tensor& t) { return sums.k.cast(sums.k.load_kept(channels.of(t)), sums.type); };
  auto store = [&](Reg r, const Tensor& t) { sums.k.store_kept(sums.k.cast(r, type_of(t.dtype)), channels.of(t)); };
  auto total = [&](Reg r) { return sums.k.cast(sums.k.total(r, ReduceKind::kSum), sums.type); };
  const lazyt_arg_t& grad_arg = b.program.args(node)[0];
  const bool makes_grad = e && !e->before.empty();
  const Reg g = makes_grad ? sums.k.cast(b.emit_before(*e, sums.k, any_wants_in, in.strides()), sums.type)
                           : sums.load(tensor_at(b, grad_arg));
  const Reg sum_g = total(g);
  for (const BatchNormBackward& n : norms) {
    const Reg sum_gx = total(sums.mul(g, sums.sub(sums.load(n.in), sums.load(channels.of(n.mean)))));
    Reg inv = load(n.spread);
    if (!n.training) inv = sums.k.op(Op::kRsqrt, sums.add(inv, sums.number(n.eps)));
    const Reg scale = n.weight ? sums.mul(inv, load(*n.weight)) : inv;
    if (n.wants_in) store(scale, n.ka);
    if (n.wants_in && n.training) {
      const Reg share = sums.mul(scale, sums.constant(-1 / channels.count));
      store(sums.mul(sums.mul(sums.mul(share, inv), inv), sum_gx), n.kb);
      store(sums.mul(share, sum_g), n.kc);
    }
    if (n.grad_weight.wanted) store(sums.mul(sum_gx, inv), n.grad_weight.tensor);
    if (n.grad_bias.wanted) store(sum_g, n.grad_bias.tensor);
  }
  sums.build(b);

  if (any_wants_in) {
    Fused apply(channels.dims, {}, in.dtype);
    const Reg again = apply.load(tensor_at(b, grad_arg));
    for (const BatchNormBackward& n : norms) {
      if (!n.wants_in) continue;
      Reg r = apply.mul(apply.load(channels.of(n.ka)), again);
      if (n.training) {
        const Reg x = apply.sub(apply.load(n.in), apply.load(channels.of(n.mean)));
        r = apply.add(apply.add(r, apply.mul(apply.load(channels.of(n.kb)), x)),
                      apply.load(channels.of(n.kc)));
      }
      if (e && &n == &norms[0] && !e->chain.empty())
        b.emit_chain(*e, apply.k, r, n.grad_in);
      else
        apply.store(r, n.grad_in);
    }
    apply.build(b);
  }
  for (const BatchNormBackward& n : norms) {
    n.grad_weight.finish(b);
    n.grad_bias.finish(b);
  }
}

Refusal accept_channels(const ProgramView& program, const lazyt_node_t& node, uint64_t input) {
  if (operand(program, node, input).rank < 2) return {LAZYT_REASON_RANK, "an operand of rank below 2"};
  if (toolkit::count_of(program.dims(operand(program, node, input))) == 0)
    return refuse_argument("an empty operand");
  return accept_norm(program, node);
}
Refusal accept_forward(const ProgramView& program, const lazyt_node_t& node) {
  return accept_channels(program, node, 0);
}
Refusal accept_backward(const ProgramView& program, const lazyt_node_t& node) {
  if (operand(program, node, 0).dtype != operand(program, node, 1).dtype)
    return refuse_dtype(operand(program, node, 0).dtype);
  return accept_channels(program, node, 1);
}
Refusal accept_no_stats(const ProgramView& program, const lazyt_node_t& node) {
  if (!program.args(node)[3].payload) return refuse_argument("training=False without statistics");
  return accept_channels(program, node, 0);
}
Refusal accept_batch_backward(const ProgramView& program, const lazyt_node_t& node) {
  const bool training = program.args(node)[7].payload != 0;
  if (!has(program, node, training ? 5 : 3) || !has(program, node, training ? 6 : 4))
    return refuse_argument("missing statistics");
  return accept_backward(program, node);
}
Refusal accept_rows_backward(const ProgramView& program, const lazyt_node_t& node) {
  if (operand(program, node, 0).dtype != operand(program, node, 1).dtype)
    return refuse_dtype(operand(program, node, 0).dtype);
  return accept_norm(program, node);
}

}  // namespace

void register_norm(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) {
    all.add(op, {Role::kOpaque, accept, lower});
  };
  opaque(LAZYT_OP_NATIVE_LAYER_NORM, accept_norm, lower_row_norm<false>);
  opaque(LAZYT_OP_NATIVE_LAYER_NORM_BACKWARD, accept_rows_backward, lower_row_norm_backward<false>);
  opaque(LAZYT_OP_FUSED_RMS_NORM, accept_norm, lower_row_norm<true>);
  opaque(LAZYT_OP_FUSED_RMS_NORM_BACKWARD, accept_rows_backward, lower_row_norm_backward<true>);
  opaque(LAZYT_OP_NATIVE_GROUP_NORM, accept_forward, lower_group_norm);
  opaque(LAZYT_OP_NATIVE_GROUP_NORM_BACKWARD, accept_backward, lower_group_norm_backward);
  opaque(LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_FUNCTIONAL, accept_forward, lower_batch_norm<0>);
  opaque(LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_STATS, accept_no_stats, lower_batch_norm<1>);
  opaque(LAZYT_OP_NATIVE_BATCH_NORM_BACKWARD, accept_batch_backward, lower_batch_norm_backward);
}

}  // namespace lazyt::cuda
