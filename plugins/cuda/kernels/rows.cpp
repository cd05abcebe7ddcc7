// Along one dim, or over several: log-sum-exp, variances, extremes with their places, running sums and
// extremes.
#include "walk.h"

#include "sort.h"

namespace lazyt::cuda {
namespace {

// Begins a kernel of N_WORDS words: a team is at line l, which has n elements (none past the last line).
constexpr std::string_view kBegin = R"(
LAZYT_KERNEL(KERNEL, WORDS, THREADS) {
  using Team = lazyt_team<TEAM, COLUMNS, THREADS>;
  const int lane = Team::lane();
  for (long long base = blockIdx.x * (long long)Team::kLines; base < LINES; base += gridDim.x * (long long)Team::kLines) {
    const long long l = base + Team::line();
    const long long n = l < LINES ? N : 0;
    const T* x = (const T*)a.w[0] + (n ? LINE0(l) : 0);
)";
constexpr std::string_view kEnd = R"(
  }
}
)";

void add_rows(Builder& b, std::string_view name, std::string_view body, const Walk& walk, const Team& team,
              lazyt_dtype_t dtype, Defines more, std::vector<Word> words, const std::vector<StorageId>& reads,
              const std::vector<StorageId>& writes) {
  Defines defines = types_of(dtype);
  defines.emplace_back("WORDS", std::to_string(words.size()));
  defines.insert(defines.end(), more.begin(), more.end());
  std::string text(kBegin);
  text += body;
  text += kEnd;
  add_lines(b, name, text, walk, team, std::move(defines), std::move(words), reads, writes);
}

// The dims that argument i lists; a single int counts as a list of one, none as no list.
std::vector<bool> reduced_by(Builder& b, const lazyt_arg_t& arg, size_t rank) {
  return toolkit::reduced_dims(b.ints_of(arg), rank);
}

Refusal accept_floating(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_floating)) return refuse_dtype(operand(program, node, 0).dtype);
  return accepted();
}
Refusal accept_real(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_real)) return refuse_dtype(operand(program, node, 0).dtype);
  return accepted();
}

// ---- log of the sum of exponentials

constexpr std::string_view kLogSumExp = R"(
    C top = -LAZYT_INFINITY;
    for (long long i = lane; i < n; i += TEAM) {
      const C v = lazyt_load(x, AT0(i));
      top = v > top ? v : top;
    }
    top = Team::all(top, lazyt_greatest());
    const C shift = top - top == 0 ? top : (C)0;  // infinities stay themselves
    C sum = 0;
    for (long long i = lane; i < n; i += TEAM) sum += exp(lazyt_load(x, AT0(i)) - shift);
    sum = Team::all(sum, lazyt_plus());
    if (l < LINES && lane == 0) lazyt_store((T*)a.w[1] + LINE1(l), 0, log(sum) + shift);
)";

void lower_logsumexp(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]), out = b.make_dense(node.results);
  const auto reduced = reduced_by(b, args[1], in.dims().size());
  const Walk walk = walk_of({in.layout, beside(out.layout, in.dims(), reduced)}, reduced, false);
  add_rows(b, "logsumexp", kLogSumExp, walk, team_for(walk), in.dtype, {},
           {Word::address(in), Word::address(out)}, {in.storage}, {out.storage});
}
Refusal accept_logsumexp(const ProgramView& program, const lazyt_node_t& node) {
  // Integers are summed in the default dtype, and cross with that as the result's dtype.
  if (operand(program, node, 0).dtype != result(program, node, 0).dtype)
    return refuse_dtype(operand(program, node, 0).dtype);
  return accept_floating(program, node);
}

// ---- variance

// In two passes. The mean's rounding is undone: sum (x - c)^2 = sum (x - mean)^2 + n (mean - c)^2.
constexpr std::string_view kVariance = R"(
    double sum = 0;
    for (long long i = lane; i < n; i += TEAM) sum += lazyt_load(x, AT0(i));
    const double mean = Team::all(sum, lazyt_plus()) / (double)N;
    const C c = (C)mean;
    C squares = 0;
    for (long long i = lane; i < n; i += TEAM) {
      const C d = lazyt_load(x, AT0(i)) - c;
      squares += d * d;
    }
    const double off = mean - (double)c, all = (double)Team::all(squares, lazyt_plus()) - (double)N * off * off;
    const double left = (double)N - lazyt_f64(a.w[3]);
    const double variance = (all < 0 ? 0 : all) / (left < 0 ? 0 : left);
    if (l < LINES && lane == 0) {
      lazyt_store((T*)a.w[1] + LINE1(l), 0, (C)(ROOT ? sqrt(variance) : variance));
      if (MEAN) lazyt_store((T*)a.w[2] + LINE2(l), 0, c);
    }
)";

Refusal accept_variance(const ProgramView& program, const lazyt_node_t& node) {
  if (program.args(node)[2].kind == LAZYT_ARG_COMPLEX) return refuse_argument("a complex correction");
  return accept_floating(program, node);
}
template <bool kRoot, bool kMean>
void lower_variance(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  const auto reduced = reduced_by(b, args[1], in.dims().size());
  Number correction;
  correction.d = 1;
  if (!b.is_none(args[2])) correction = b.number_of(args[2]);
  const Tensor out = b.make_dense(node.results), mean = kMean ? b.make_dense(node.results + 1) : out;
  const Walk walk =
      walk_of({in.layout, beside(out.layout, in.dims(), reduced), beside(mean.layout, in.dims(), reduced)},
              reduced, false);
  std::vector<StorageId> writes = {out.storage};
  if (kMean) writes.push_back(mean.storage);
  add_rows(b, kRoot ? "std" : "var", kVariance, walk, team_for(walk), in.dtype,
           {{"ROOT", kRoot ? "true" : "false"}, {"MEAN", kMean ? "true" : "false"}},
           {Word::address(in), Word::address(out), Word::address(mean), Word::f64(correction)}, {in.storage},
           writes);
}

// ---- extremes

// The first place of the extreme, NaN before all.
constexpr std::string_view kExtreme = R"(
    struct Best {
      __device__ lazyt_place<C> operator()(lazyt_place<C> p, lazyt_place<C> q) const {
        if (q.at < 0) return p;
        if (p.at < 0) return q;
        const bool same = p.value == q.value || (p.value != p.value && q.value != q.value);
        if (same) return p.at < q.at ? p : q;
        return BEATS(q.value, p.value) ? q : p;
      }
    };
    lazyt_place<C> best = {(C)0, -1};
    for (long long i = lane; i < n; i += TEAM) {
      const C v = lazyt_load(x, AT0(i));
      if (best.at < 0 || BEATS(v, best.value)) best.value = v, best.at = i;
    }
    best = Team::all(best, Best());
    if (l < LINES && lane == 0) {
      ((long long*)a.w[1])[LINE1(l)] = best.at;
      if (VALUES) lazyt_store((T*)a.w[2] + LINE2(l), 0, best.value);
    }
)";

Refusal accept_extreme(const ProgramView& program, const lazyt_node_t& node) {
  if (toolkit::count_of(program.dims(operand(program, node, 0))) == 0)
    return refuse_argument("an empty operand");
  return accept_real(program, node);
}

void add_extreme(Builder& b, const Tensor& in, const std::vector<bool>& reduced, const Tensor& places,
                 const Tensor* values, bool max) {
  const Tensor& kept = values ? *values : places;
  const Walk walk =
      walk_of({in.layout, beside(places.layout, in.dims(), reduced), beside(kept.layout, in.dims(), reduced)},
              reduced, true);
  std::vector<StorageId> writes = {places.storage};
  if (values) writes.push_back(values->storage);
  add_rows(b, max ? "max_place" : "min_place", kExtreme, walk, team_for(walk), in.dtype,
           {{"BEATS", max ? "lazyt_larger" : "lazyt_smaller"}, {"VALUES", values ? "true" : "false"}},
           {Word::address(in), Word::address(places), Word::address(kept)}, {in.storage}, writes);
}
template <bool kMax>
void lower_arg_extreme(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]);
  add_extreme(b, in, reduced_by(b, args[1], in.dims().size()), b.make_dense(node.results), nullptr, kMax);
}
template <bool kMax>
void lower_extreme_dim(Builder& b, const lazyt_node_t& node) {
  const Tensor in = tensor_at(b, b.program.args(node)[0]);
  std::vector<bool> reduced(in.dims().size(), false);
  if (!reduced.empty()) reduced[static_cast<size_t>(int_at(b.program, node, 1))] = true;
  const Tensor values = b.make_dense(node.results), places = b.make_dense(node.results + 1);
  add_extreme(b, in, reduced, places, &values, kMax);
}

constexpr std::string_view kBoth = R"(
    C low = lazyt_load(x, 0), high = low;
    for (long long i = lane; i < n; i += TEAM) {
      const C v = lazyt_load(x, AT0(i));
      if (lazyt_smaller(v, low)) low = v;
      if (lazyt_larger(v, high)) high = v;
    }
    low = Team::all(low, lazyt_least());
    high = Team::all(high, lazyt_greatest());
    if (l < LINES && lane == 0) {
      lazyt_store((T*)a.w[1] + LINE1(l), 0, low);
      lazyt_store((T*)a.w[2] + LINE2(l), 0, high);
    }
)";
void lower_aminmax(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]), low = b.make_dense(node.results),
               high = b.make_dense(node.results + 1);
  const auto reduced = reduced_by(b, args[1], in.dims().size());
  const Walk walk =
      walk_of({in.layout, beside(low.layout, in.dims(), reduced), beside(high.layout, in.dims(), reduced)},
              reduced, false);
  add_rows(b, "aminmax", kBoth, walk, team_for(walk), in.dtype, {},
           {Word::address(in), Word::address(low), Word::address(high)}, {in.storage},
           {low.storage, high.storage});
}

// ---- running sums and products

constexpr std::string_view kSum = R"(
    struct Join { __device__ A operator()(A x, A y) const { return x + y; } };
)";
constexpr std::string_view kProduct = R"(
    struct Join { __device__ A operator()(A x, A y) const { return x * y; } };
)";
constexpr std::string_view kLogSumExpOf = R"(
    struct Join {
      __device__ A operator()(A x, A y) const {
        if (x != x) return x;
        if (y != y) return y;
        const A low = x < y ? x : y, high = x < y ? y : x;
        // Equal infinities have no difference.
        return low != high || low - low == 0 ? high + log1p(exp(low - high)) : high;
      }
    };
)";

// Join is one of these, over A. A chunk of TEAM elements at a time; `carry` is the total of those before.
constexpr std::string_view kRunning = R"(
    T* y = (T*)a.w[1] + (n ? LINE1(l) : 0);
    A carry = IDENTITY;
    for (long long first = 0; first < N; first += TEAM) {
      const long long i = first + lane;
      A total;
      const A v = Join()(carry, Team::scan(i < n ? (A)lazyt_load(x, AT0(i)) : (A)(IDENTITY), Join(), &total));
      if (i < n) lazyt_store(y, AT1(i), (C)v);
      carry = Join()(carry, total);
    }
)";

Refusal accept_running(const ProgramView& program, const lazyt_node_t& node) {
  if (result(program, node, 0).dtype == LAZYT_DTYPE_BOOL) return refuse_dtype(LAZYT_DTYPE_BOOL);
  return accept_real(program, node);
}

struct Running {
  std::string_view join, identity;
  bool exact = false;  // in the type itself
};
constexpr Running kRunningSum{kSum, "0"}, kRunningProduct{kProduct, "1"},
    kRunningLogSumExp{kLogSumExpOf, "-LAZYT_INFINITY", true};

// PyTorch adds in double for floats and in int64 for integers (unsigned here, which wraps); logcumsumexp
// computes in the type.
template <const Running& kKind>
void lower_running(Builder& b, const lazyt_node_t& node) {
  const uint32_t v = node.results;
  Tensor in = tensor_at(b, b.program.args(node)[0]);
  if (in.dtype != b.dtype(v)) in = dense_as(b, in, b.dtype(v));
  const Tensor out = b.make_dense(v);
  if (out.count() == 0) return;
  const Walk walk = walk_along({in.layout, out.layout}, static_cast<size_t>(int_at(b.program, node, 1)));
  std::string total = is_floating(in.dtype) ? "double" : "unsigned long long";
  if (kKind.exact) total = register_type(in.dtype);
  add_rows(b, "running", std::string(kKind.join) + std::string(kRunning), walk, scanning_team_for(walk),
           in.dtype, {{"A", total}, {"IDENTITY", std::string(kKind.identity)}},
           {Word::address(in), Word::address(out)}, {in.storage}, {out.storage});
}

// The latest of equal extremes counts; a NaN stays, the latest NaN's place.
constexpr std::string_view kRunningExtreme = R"(
    struct Latest {
      __device__ lazyt_place<C> operator()(lazyt_place<C> p, lazyt_place<C> q) const {
        if (p.at < 0) return q;
        if (q.at < 0) return p;
        return BEATS(p.value, q.value) ? p : q;
      }
    };
    T* y = (T*)a.w[1] + (n ? LINE1(l) : 0);
    long long* places = (long long*)a.w[2] + (n ? LINE2(l) : 0);
    lazyt_place<C> carry = {(C)0, -1};
    for (long long first = 0; first < N; first += TEAM) {
      const long long i = first + lane;
      lazyt_place<C> own = {(C)0, -1}, total;
      if (i < n) own.value = lazyt_load(x, AT0(i)), own.at = i;
      own = Latest()(carry, Team::scan(own, Latest(), &total));
      if (i < n) {
        lazyt_store(y, AT1(i), own.value);
        places[AT2(i)] = own.at;
      }
      carry = Latest()(carry, total);
    }
)";
template <bool kMax>
void lower_running_extreme(Builder& b, const lazyt_node_t& node) {
  const Tensor in = tensor_at(b, b.program.args(node)[0]);
  const Tensor values = b.make_dense(node.results), places = b.make_dense(node.results + 1);
  if (values.count() == 0) return;
  const Walk walk =
      walk_along({in.layout, values.layout, places.layout}, static_cast<size_t>(int_at(b.program, node, 1)));
  add_rows(b, kMax ? "cummax" : "cummin", kRunningExtreme, walk, scanning_team_for(walk), in.dtype,
           {{"BEATS", kMax ? "lazyt_larger" : "lazyt_smaller"}},
           {Word::address(in), Word::address(values), Word::address(places)}, {in.storage},
           {values.storage, places.storage});
}

// ---- sorting

size_t axis_or_last(Builder& b, const lazyt_node_t& node, uint64_t arg) {
  const int64_t axis = int_at(b.program, node, arg),
                rank = static_cast<int64_t>(operand(b.program, node, 0).rank);
  return static_cast<size_t>(rank == 0 ? 0 : axis < 0 ? axis + rank : axis);
}
int64_t length_of(Builder& b, const lazyt_node_t& node, size_t axis) {
  const Dims dims = b.dims(b.value_of(b.program.args(node)[0]));
  return dims.empty() ? 1 : dims[axis];
}
template <uint64_t kAxis>
void lower_sort(Builder& b, const lazyt_node_t& node) {
  const size_t axis = axis_or_last(b, node, kAxis);
  add_sort(b, node,
           {Sorting::kFirst, axis, length_of(b, node, axis), b.bool_of(b.program.args(node)[kAxis + 1])});
}
void lower_topk(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  add_sort(b, node, {Sorting::kFirst, axis_or_last(b, node, 2), b.int_of(args[1]), b.bool_of(args[3])});
}
void lower_kthvalue(Builder& b, const lazyt_node_t& node) {
  add_sort(b, node, {Sorting::kNth, axis_or_last(b, node, 2), b.int_of(b.program.args(node)[1]) - 1, false});
}
void lower_median(Builder& b, const lazyt_node_t& node) {
  const size_t axis = axis_or_last(b, node, 1);
  add_sort(b, node, {Sorting::kMedian, axis, (length_of(b, node, axis) - 1) / 2, false});
}
Refusal accept_topk(const ProgramView& program, const lazyt_node_t& node) {
  if (!is_constant(program, program.args(node)[1]))
    return refuse_argument("a k that changes from run to run");
  return accept_real(program, node);
}
Refusal accept_kthvalue(const ProgramView& program, const lazyt_node_t& node) {
  if (!is_constant(program, program.args(node)[1]))
    return refuse_argument("a k that changes from run to run");
  return accept_extreme(program, node);
}

}  // namespace

void register_rows(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) {
    all.add(op, {Role::kOpaque, accept, lower});
  };
  opaque(LAZYT_OP_LOGSUMEXP, accept_logsumexp, lower_logsumexp);
  opaque(LAZYT_OP_VAR_CORRECTION, accept_variance, lower_variance<false, false>);
  opaque(LAZYT_OP_STD_CORRECTION, accept_variance, lower_variance<true, false>);
  opaque(LAZYT_OP_VAR_MEAN_CORRECTION, accept_variance, lower_variance<false, true>);
  opaque(LAZYT_OP_ARGMAX, accept_extreme, lower_arg_extreme<true>);
  opaque(LAZYT_OP_ARGMIN, accept_extreme, lower_arg_extreme<false>);
  opaque(LAZYT_OP_MAX_DIM, accept_extreme, lower_extreme_dim<true>);
  opaque(LAZYT_OP_MIN_DIM, accept_extreme, lower_extreme_dim<false>);
  opaque(LAZYT_OP_AMINMAX, accept_extreme, lower_aminmax);
  opaque(LAZYT_OP_CUMSUM, accept_running, lower_running<kRunningSum>);
  opaque(LAZYT_OP_CUMPROD, accept_running, lower_running<kRunningProduct>);
  opaque(LAZYT_OP_LOGCUMSUMEXP, accept_floating, lower_running<kRunningLogSumExp>);
  opaque(LAZYT_OP_CUMMAX, accept_real, lower_running_extreme<true>);
  opaque(LAZYT_OP_CUMMIN, accept_real, lower_running_extreme<false>);
  opaque(LAZYT_OP_SORT, accept_real, lower_sort<1>);
  opaque(LAZYT_OP_SORT_STABLE, accept_real, lower_sort<2>);
  opaque(LAZYT_OP_TOPK, accept_topk, lower_topk);
  opaque(LAZYT_OP_KTHVALUE, accept_kthvalue, lower_kthvalue);
  opaque(LAZYT_OP_MEDIAN_DIM, accept_extreme, lower_median);
}

}  // namespace lazyt::cuda
