// Along one dim, or over several: log-sum-exp, variances, extremes with their places, running sums and
// extremes.
#include "walk.h"

#include "sort.h"

namespace lazyt::cuda {
namespace {

// Begins a kernel of N_WORDS words: a team is at line l, of which it takes the elements from begin to n (none past the last line).
constexpr std::string_view kBegin = R"(
LAZYT_KERNEL(KERNEL, WORDS, THREADS) {
  using Team = lazyt_team<TEAM, COLUMNS, THREADS>;
  const int lane = Team::lane();
  for (long long base = blockIdx.x * (long long)Team::kLines; base < LINES; base += gridDim.x * (long long)Team::kLines) {
    const long long l = base + Team::line();
    const long long begin = BEGIN, n = l < LINES ? END : 0;
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
  auto in_parts = [](const auto& define) { return define.first == "BEGIN"; };
  if (std::none_of(walk.defines.begin(), walk.defines.end(), in_parts)) {
    const Defines whole = {{"BEGIN", "0"}, {"END", "N"}, {"STEPS", "N"}};
    defines.insert(defines.end(), whole.begin(), whole.end());
  }
  defines.insert(defines.end(), more.begin(), more.end());
  std::string text(kBegin);
  text += body;
  text += kEnd;
  add_lines(b, name, text, walk, team, std::move(defines), std::move(words), reads, writes);
}

// ---- few long lines: in parts, each of them a line of a first kernel, whose results are the lines of a second one

struct Parts {
  int64_t count = 1, size = 0;  // parts of a line, elements of all but the last
};
// least: elements that a part is worth. most: parts of a line.
Parts parts_of(const Walk& walk, const Team& team, int64_t least, int64_t most) {
  constexpr int64_t kBusy = 1 << 17;  // threads
  const int64_t wanted = std::min({kBusy / std::max<int64_t>(walk.lines * team.team, 1), walk.n / least, most});
  if (wanted < 2) return {};
  const int64_t size = (walk.n + wanted - 1) / wanted;
  return {(walk.n + size - 1) / size, size};
}
// The walk of the parts, those that lines begin with first: operands 0 .. in_place - 1 lie as they did, of the others part l
// has element l.
Walk in_parts(const Walk& walk, const Parts& parts, size_t in_place) {
  Walk out = walk;
  const std::string lines = literal(walk.lines), size = literal(parts.size);
  out.lines = walk.lines * parts.count;
  size_t operand = 0;
  out.defines = {{"LINES", literal(out.lines)}, {"N", literal(walk.n)},
                 {"STEPS", size},               {"BEGIN", "(l / " + lines + " * " + size + ")"},
                 {"END", "(begin + " + size + " < N ? begin + " + size + " : N)"}};
  for (const auto& [name, text] : walk.defines) {
    if (name.starts_with("LINE") && name.ends_with("(l)")) {
      const std::string bare = name.substr(0, name.size() - 3);
      out.defines.emplace_back("WHOLE_" + name, text);
      out.defines.emplace_back(name, operand < in_place ? "WHOLE_" + bare + "((l) % " + lines + ")" : "(l)");
      ++operand;
    } else if (name.starts_with("AT")) {
      out.defines.emplace_back(name, text);
    }
  }
  return out;
}
// The walk over the parts' results, which operands 0 .. among_parts - 1 are.
Walk over_parts(const Walk& walk, const Parts& parts, int among_parts = 1) {
  Walk out = walk;
  out.n = parts.count;
  out.columns = walk.lines > 1;
  for (auto& [name, text] : out.defines) {
    if (name == "N") text = literal(parts.count);
    for (int k = 0; k < among_parts; ++k) {
      if (name == "LINE" + std::to_string(k) + "(l)") text = "(l)";
      if (name == "AT" + std::to_string(k) + "(i)") text = "((i) * LINES)";
    }
  }
  return out;
}
constexpr int64_t kLeastPart = 8192, kMostParts = 256, kLeastRunningPart = 4096, kMostRunningParts = 1024;

std::string flag(bool set) { return set ? "true" : "false"; }

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
    for (long long i = begin + lane; i < n; i += TEAM) {
      const C v = (C)lazyt_load(x, AT0(i));
      top = v > top ? v : top;
    }
    top = Team::all(top, lazyt_greatest());
    const C shift = top - top == 0 ? top : (C)0;  // infinities stay themselves
    C sum = 0;
    for (long long i = begin + lane; i < n; i += TEAM) {
      C each = exp((C)lazyt_load(x, AT0(i)) - shift);
      if (OF_PARTS) each *= ((const C*)a.w[2])[LINE0(l) + AT0(i)];
      sum += each;
    }
    sum = Team::all(sum, lazyt_plus());
    if (l < LINES && lane == 0) {
      lazyt_store((Y*)a.w[1] + LINE1(l), 0, TO_PARTS ? top : log(sum) + shift);
      if (TO_PARTS) ((C*)a.w[2])[l] = sum;
    }
)";

void lower_logsumexp(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = tensor_at(b, args[0]), out = b.make_dense(node.results);
  const auto reduced = reduced_by(b, args[1], in.dims().size());
  const Walk walk = walk_of({in.layout, beside(out.layout, in.dims(), reduced)}, reduced, false);
  auto add = [&](const Walk& w, const Tensor& from, const Tensor& to, const Tensor* sums, bool of_parts) {
    std::vector<Word> words = {Word::address(from), Word::address(to)};
    std::vector<StorageId> reads = {from.storage}, writes = {to.storage};
    if (sums) words.push_back(Word::address(*sums)), (of_parts ? reads : writes).push_back(sums->storage);
    else words.push_back({});
    const Defines more = {{"Y", memory_type(to.dtype)}, {"OF_PARTS", flag(of_parts)}, {"TO_PARTS", flag(sums && !of_parts)}};
    add_rows(b, "logsumexp", kLogSumExp, w, team_for(w), from.dtype, more, words, reads, writes);
  };
  const Parts parts = parts_of(walk, team_for(walk), kLeastPart, kMostParts);
  if (parts.count == 1) return add(walk, in, out, nullptr, false);
  const lazyt_dtype_t dtype = compute_dtype(in.dtype);
  const Tensor tops = b.scratch(dtype, {walk.lines * parts.count}), sums = b.scratch(dtype, tops.dims());
  add(in_parts(walk, parts, 1), in, tops, &sums, false);
  add(over_parts(walk, parts), tops, out, &sums, true);
}
Refusal accept_logsumexp(const ProgramView& program, const lazyt_node_t& node) {
  // Integers are summed in the default dtype, and cross with that as the result's dtype.
  if (operand(program, node, 0).dtype != result(program, node, 0).dtype)
    return refuse_dtype(operand(program, node, 0).dtype);
  return accept_floating(program, node);
}

// ---- variance

// In two passes. The mean's rounding is undone: sum (x - c)^2 = sum (x - mean)^2 + n (mean - c)^2. Of parts: x is a part's
// mean, and the squares are what it has and how far it is off.
constexpr std::string_view kVariance = R"(
    double sum = 0;
    for (long long i = begin + lane; i < n; i += TEAM) sum += (double)lazyt_load(x, AT0(i)) * WEIGHT(i);
    const double count = OF_PARTS ? (double)COUNT : (double)(n - begin), mean = Team::all(sum, lazyt_plus()) / count;
    const C c = (C)mean;
    C squares = 0;
    for (long long i = begin + lane; i < n; i += TEAM) {
      const C d = lazyt_load(x, AT0(i)) - c;
      squares += d * d * (C)WEIGHT(i);
      if (OF_PARTS) squares += (C)((const double*)a.w[4])[LINE0(l) + AT0(i)];
    }
    const double off = mean - (double)c, all = (double)Team::all(squares, lazyt_plus()) - count * off * off;
    const double left = count - lazyt_f64(a.w[3]);
    const double variance = (all < 0 ? 0 : all) / (left < 0 ? 0 : left);
    if (l < LINES && lane == 0) {
      if (TO_PARTS) {
        ((double*)a.w[1])[l] = mean;
        ((double*)a.w[2])[l] = all < 0 ? 0 : all;
      } else {
        lazyt_store((Y*)a.w[1] + LINE1(l), 0, (R)(ROOT ? sqrt(variance) : variance));
        if (MEAN) lazyt_store((Y*)a.w[2] + LINE2(l), 0, (R)c);
      }
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
  auto add = [&](const Walk& w, const Tensor& from, const Tensor& to, const Tensor& second, bool has_second, const Parts* of, const Tensor* squares) {
    std::vector<StorageId> reads = {from.storage}, writes = {to.storage};
    if (has_second) writes.push_back(second.storage);
    if (squares) reads.push_back(squares->storage);
    std::string weight = "1";
    if (of) weight = "((i) + 1 < N ? (double)" + literal(of->size) + " : (double)" + literal(walk.n - (of->count - 1) * of->size) + ")";
    add_rows(b, kRoot ? "std" : "var", kVariance, w, team_for(w), from.dtype,
             {{"ROOT", flag(kRoot)},
              {"MEAN", flag(kMean)},
              {"Y", memory_type(out.dtype)},
              {"R", register_type(out.dtype)},
              {"OF_PARTS", flag(of != nullptr)},
              {"TO_PARTS", flag(!of && w.lines != walk.lines)},
              {"WEIGHT(i)", weight},
              {"COUNT", literal(walk.n)}},
             {Word::address(from), Word::address(to), Word::address(second), Word::f64(correction), Word::address(squares ? *squares : from)}, reads, writes);
  };
  const Parts parts = parts_of(walk, team_for(walk), kLeastPart, kMostParts);
  if (parts.count == 1) return add(walk, in, out, mean, kMean, nullptr, nullptr);
  const Tensor means = b.scratch(LAZYT_DTYPE_FLOAT64, {walk.lines * parts.count}), squares = b.scratch(LAZYT_DTYPE_FLOAT64, means.dims());
  add(in_parts(walk, parts, 1), in, means, squares, true, nullptr, nullptr);
  add(over_parts(walk, parts), means, out, mean, kMean, &parts, &squares);
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
    for (long long i = begin + lane; i < n; i += TEAM) {
      const C v = lazyt_load(x, AT0(i));
      if (best.at < 0 || BEATS(v, best.value)) best.value = v, best.at = OF_PARTS ? ((const long long*)a.w[3])[LINE0(l) + AT0(i)] : i;
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
  auto add = [&](const Walk& w, const Tensor& from, const Tensor& at, const Tensor* best, const Tensor* places_of_parts) {
    std::vector<StorageId> reads = {from.storage}, writes = {at.storage};
    if (best) writes.push_back(best->storage);
    if (places_of_parts) reads.push_back(places_of_parts->storage);
    add_rows(b, max ? "max_place" : "min_place", kExtreme, w, team_for(w), in.dtype,
             {{"BEATS", max ? "lazyt_larger" : "lazyt_smaller"}, {"VALUES", flag(best != nullptr)}, {"OF_PARTS", flag(places_of_parts != nullptr)}},
             {Word::address(from), Word::address(at), Word::address(best ? *best : at), Word::address(places_of_parts ? *places_of_parts : at)}, reads, writes);
  };
  const Parts parts = parts_of(walk, team_for(walk), kLeastPart, kMostParts);
  if (parts.count == 1) return add(walk, in, places, values, nullptr);
  const Tensor best = b.scratch(in.dtype, {walk.lines * parts.count}), at = b.scratch(LAZYT_DTYPE_INT64, best.dims());
  add(in_parts(walk, parts, 1), in, at, &best, nullptr);
  add(over_parts(walk, parts), best, places, values, &at);
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
    const T* highs = OF_PARTS ? (const T*)a.w[3] + (n ? LINE0(l) : 0) : x;
    C low = lazyt_load(x, n ? AT0(begin) : 0), high = lazyt_load(highs, n ? AT0(begin) : 0);
    for (long long i = begin + lane; i < n; i += TEAM) {
      const C v = lazyt_load(x, AT0(i));
      const C w = OF_PARTS ? lazyt_load(highs, AT0(i)) : v;
      if (lazyt_smaller(v, low)) low = v;
      if (lazyt_larger(w, high)) high = w;
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
  auto add = [&](const Walk& w, const Tensor& lows, const Tensor& highs, const Tensor& least, const Tensor& most) {
    add_rows(b, "aminmax", kBoth, w, team_for(w), in.dtype, {{"OF_PARTS", flag(lows.storage != highs.storage)}},
             {Word::address(lows), Word::address(least), Word::address(most), Word::address(highs)}, {lows.storage, highs.storage},
             {least.storage, most.storage});
  };
  const Parts parts = parts_of(walk, team_for(walk), kLeastPart, kMostParts);
  if (parts.count == 1) return add(walk, in, in, low, high);
  const Tensor lows = b.scratch(in.dtype, {walk.lines * parts.count}), highs = b.scratch(in.dtype, lows.dims());
  add(in_parts(walk, parts, 1), in, in, lows, highs);
  add(over_parts(walk, parts), lows, highs, low, high);
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

// Join is one of these, over A. A chunk of TEAM elements at a time; `carry` is the total of those before. Long lines: the
// totals of parts, those before each of them, and the parts again.
constexpr std::string_view kRunning = R"(
    T* y = TOTALS ? nullptr : (T*)a.w[1] + (n ? LINE1(l) : 0);
    A carry = GOES_ON && begin > 0 && n ? ((const A*)a.w[2])[l - ALL_LINES] : (A)(IDENTITY);
    for (long long first = 0; first < STEPS; first += TEAM) {
      const long long i = begin + first + lane;
      A total;
      const A v = Join()(carry, Team::scan(i < n ? (A)lazyt_load(x, AT0(i)) : (A)(IDENTITY), Join(), &total));
      if (!TOTALS && i < n) lazyt_store(y, AT1(i), (C)v);
      carry = Join()(carry, total);
    }
    if (TOTALS && l < LINES && lane == 0) ((A*)a.w[1])[l] = carry;
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
  auto add = [&](const Walk& w, lazyt_dtype_t dtype, const Tensor& from, const Tensor& to, const Tensor* before, bool totals) {
    std::vector<StorageId> reads = {from.storage};
    if (before) reads.push_back(before->storage);
    add_rows(b, "running", std::string(kKind.join) + std::string(kRunning), w, scanning_team_for(w), dtype,
             {{"A", total}, {"IDENTITY", std::string(kKind.identity)}, {"GOES_ON", flag(before != nullptr)}, {"ALL_LINES", literal(walk.lines)}, {"TOTALS", flag(totals)}},
             {Word::address(from), Word::address(to), Word::address(before ? *before : to)}, reads, {to.storage});
  };
  const Parts parts = parts_of(walk, scanning_team_for(walk), kLeastRunningPart, kMostRunningParts);
  if (parts.count == 1) return add(walk, in.dtype, in, out, nullptr, false);
  const lazyt_dtype_t wide = kKind.exact ? compute_dtype(in.dtype) : is_floating(in.dtype) ? LAZYT_DTYPE_FLOAT64 : LAZYT_DTYPE_INT64;
  const Tensor totals = b.scratch(wide, {walk.lines * parts.count}), before = b.scratch(wide, totals.dims());
  add(in_parts(walk, parts, 1), in.dtype, in, totals, nullptr, true);
  add(over_parts(walk, parts, 2), wide, totals, before, nullptr, false);
  add(in_parts(walk, parts, 2), in.dtype, in, out, &before, false);
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
    if (GOES_ON && begin > 0 && n) carry = {lazyt_load((const T*)a.w[3], l - ALL_LINES), ((const long long*)a.w[4])[l - ALL_LINES]};
    for (long long first = 0; first < STEPS; first += TEAM) {
      const long long i = begin + first + lane;
      lazyt_place<C> own = {(C)0, -1}, total;
      if (i < n) own.value = lazyt_load(x, AT0(i)), own.at = OF_PARTS ? ((const long long*)a.w[4])[LINE0(l) + AT0(i)] : i;
      own = Latest()(carry, Team::scan(own, Latest(), &total));
      if (!TOTALS && i < n) {
        lazyt_store(y, AT1(i), own.value);
        places[AT2(i)] = own.at;
      }
      carry = Latest()(carry, total);
    }
    if (TOTALS && l < LINES && lane == 0) {
      lazyt_store(y, 0, carry.value);
      *places = carry.at;
    }
)";
template <bool kMax>
void lower_running_extreme(Builder& b, const lazyt_node_t& node) {
  const Tensor in = tensor_at(b, b.program.args(node)[0]);
  const Tensor values = b.make_dense(node.results), places = b.make_dense(node.results + 1);
  if (values.count() == 0) return;
  const Walk walk =
      walk_along({in.layout, values.layout, places.layout}, static_cast<size_t>(int_at(b.program, node, 1)));
  struct Pair {
    Tensor values, places;
  };
  auto add = [&](const Walk& w, const Tensor& from, const Pair& to, const Pair* parts, bool of_parts, bool totals) {
    std::vector<StorageId> reads = {from.storage};
    if (parts) reads.insert(reads.end(), {parts->values.storage, parts->places.storage});
    add_rows(b, kMax ? "cummax" : "cummin", kRunningExtreme, w, scanning_team_for(w), in.dtype,
             {{"BEATS", kMax ? "lazyt_larger" : "lazyt_smaller"}, {"OF_PARTS", flag(of_parts)}, {"GOES_ON", flag(parts && !of_parts)}, {"ALL_LINES", literal(walk.lines)}, {"TOTALS", flag(totals)}},
             {Word::address(from), Word::address(to.values), Word::address(to.places), Word::address(parts ? parts->values : from),
              Word::address(parts ? parts->places : from)},
             reads, {to.values.storage, to.places.storage});
  };
  const Pair out{values, places};
  const Parts parts = parts_of(walk, scanning_team_for(walk), kLeastRunningPart, kMostRunningParts);
  if (parts.count == 1) return add(walk, in, out, nullptr, false, false);
  auto pair = [&] { return Pair{b.scratch(in.dtype, {walk.lines * parts.count}), b.scratch(LAZYT_DTYPE_INT64, {walk.lines * parts.count})}; };
  const Pair totals = pair(), before = pair();
  add(in_parts(walk, parts, 1), in, totals, nullptr, false, true);
  add(over_parts(walk, parts, 3), totals.values, before, &totals, true, false);
  add(in_parts(walk, parts, 3), in, out, &before, false, false);
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
