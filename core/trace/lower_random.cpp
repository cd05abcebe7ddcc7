#include "trace/lower_random.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "trace/promote.h"

namespace lazyt::trace {
namespace {

using base::Dims;
using base::DType;
using base::Meta;
using ir::Arg;
using ir::ValueId;
using Values = std::vector<ValueId>;

bool is_half(DType d) { return d == LAZYT_DTYPE_FLOAT16 || d == LAZYT_DTYPE_BFLOAT16; }

class Draw {
 public:
  Draw(const Nodes& nodes, const Op& op, const std::vector<Arg>& args, const std::vector<Meta>& results, const Arg& seed, const Arg& offset)
      : n_(nodes), op_(op), args_(args), results_(results), seed_(seed), offset_(offset) {}

  base::Result<Values> run() {
    const Meta& out = results_[0];
    switch (op_.lowering) {
      case Lowering::kDropout: return dropout();
      case Lowering::kUniform: return Values{pairs("lazyt::uniform", out, args_[1], args_[2])};
      case Lowering::kNormal: return Values{normal(out, args_[1], args_[2])};
      case Lowering::kBernoulli: return Values{n_.cast(bernoulli(n_.expand(probability(), out.dims)), out.dtype)};
      case Lowering::kBernoulliFloat: return Values{n_.cast(bernoulli(n_.full(out.dims, args_[1], LAZYT_DTYPE_FLOAT32)), out.dtype)};
      case Lowering::kRandInt: return Values{randint(out)};
      case Lowering::kExponential: return Values{n_.cast(exponential(wide(out.dtype), out.dims, args_[1].d), out.dtype)};
      case Lowering::kCauchy: return Values{cauchy(out)};
      case Lowering::kLogNormal: return Values{n_.cast(n_.map("aten::exp", "", normal({wide(out.dtype), out.dims, {}}, args_[1], args_[2])), out.dtype)};
      case Lowering::kGeometric: return Values{geometric(out)};
      case Lowering::kNormalOf: return Values{normal_of(out)};
      case Lowering::kRelu: return relu();
      case Lowering::kMultinomial: return Values{multinomial(out)};
      default: return base::internal(op_.name + ": no lowering");
    }
  }

 private:
  // Numbers of 16 bits are drawn in f32 and rounded once: in few bits, what is below 1 becomes 1.
  static DType wide(DType d) { return is_half(d) ? LAZYT_DTYPE_FLOAT32 : d; }

  ValueId draw(const char* name, std::vector<Arg> args, DType dtype, const Dims& dims) {
    args.push_back(seed_), args.push_back(offset_);
    return n_.add(name, "", std::move(args), dtype, dims);
  }
  // Two arguments behind size and dtype. The parts of complex numbers are drawn.
  ValueId pairs(const char* name, const Meta& out, const Arg& a, const Arg& b) {
    DType dtype = out.dtype;
    Dims dims = out.dims;
    if (is_complex(dtype)) {
      dtype = dtype == LAZYT_DTYPE_COMPLEX128 ? LAZYT_DTYPE_FLOAT64 : dtype == LAZYT_DTYPE_COMPLEX64 ? LAZYT_DTYPE_FLOAT32 : LAZYT_DTYPE_FLOAT16;
      dims.push_back(2);
    }
    const ValueId drawn = draw(name, {Arg::of_ints(dims), Arg::of_int(dtype, LAZYT_ARG_DTYPE), a, b}, dtype, dims);
    return is_complex(out.dtype) ? n_.add("aten::view_as_complex", "", {Arg::of_value(drawn)}, out.dtype, out.dims) : drawn;
  }
  ValueId uniform(DType dtype, const Dims& dims, double from = 0, double to = 1) {
    return pairs("lazyt::uniform", {dtype, dims, {}}, Arg::of_double(from), Arg::of_double(to));
  }
  ValueId normal(const Meta& out, const Arg& mean, Arg deviation) {
    if (is_complex(out.dtype)) deviation = Arg::of_double(deviation.d * std::sqrt(0.5));  // the parts share the variance
    return pairs("lazyt::normal", out, mean, deviation);
  }

  ValueId scalar(const char* name, ValueId v, Arg number) {
    std::vector<Arg> more{std::move(number)};
    const std::string op = name;
    if (op == "aten::add" || op == "aten::sub") more.push_back(Arg::of_int(1));
    return n_.map(op, "Scalar", v, std::move(more));
  }
  ValueId scalar(const char* name, ValueId v, double number) { return scalar(name, v, Arg::of_double(number)); }
  ValueId tensor(const char* name, ValueId a, ValueId b) {
    std::vector<Arg> more{Arg::of_value(b)};
    if (std::string(name) == "aten::add") more.push_back(Arg::of_int(1));
    return n_.map(name, "Tensor", a, std::move(more));
  }
  ValueId compare(const char* name, ValueId v, double number) {
    return n_.add(name, "Scalar", {Arg::of_value(v), Arg::of_double(number)}, LAZYT_DTYPE_BOOL, n_.meta(v).dims);
  }
  Values dropout() {
    const Meta& out = results_[0];
    const ir::NodeId node = n_.graph.add_node("lazyt::dropout", "", {args_[0], args_[1], seed_, offset_},
                                              {Meta::contiguous(out.dtype, out.dims), Meta::contiguous(LAZYT_DTYPE_BOOL, out.dims)}, n_.source);
    const ValueId first = n_.graph.nodes[node].first_result;
    return {first, first + 1};
  }

  ValueId probability() {
    const ValueId given = args_.size() > 1 && args_[1].kind == LAZYT_ARG_VALUE ? args_[1].value : args_[0].value;
    const ValueId p = is_floating(n_.meta(given).dtype) ? given : n_.cast(given, LAZYT_DTYPE_FLOAT32);
    return n_.checked(n_.checked(p, compare("aten::ge", p, 0), kNotProbability), compare("aten::le", p, 1), kNotProbability);
  }
  ValueId bernoulli(ValueId p) { return draw("lazyt::bernoulli", {Arg::of_value(p)}, n_.meta(p).dtype, Dims(n_.meta(p).dims)); }

  ValueId randint(const Meta& out) {
    // (self, generator), (self, to, generator) or (self, from, to, generator).
    Arg low = Arg::of_int(0), high = low;
    std::vector<const Arg*> numbers;
    for (size_t i = 1; i < args_.size(); i++)
      if (args_[i].kind == LAZYT_ARG_INT || args_[i].kind == LAZYT_ARG_VALUE) numbers.push_back(&args_[i]);
    if (numbers.size() == 2) low = *numbers[0], high = *numbers[1];
    if (numbers.size() == 1) high = *numbers[0];
    if (numbers.empty()) high = Arg::of_int(end_of(out.dtype));
    return pairs("lazyt::randint", out, low, high);
  }
  // Behind the whole range that the dtype holds exactly, as PyTorch's random_().
  static int64_t end_of(DType dtype) {
    switch (dtype) {
      case LAZYT_DTYPE_BOOL: return 2;
      case LAZYT_DTYPE_UINT8: return 256;
      case LAZYT_DTYPE_INT8: return 128;
      case LAZYT_DTYPE_INT16: return 32768;
      case LAZYT_DTYPE_INT32: return int64_t{1} << 31;
      case LAZYT_DTYPE_BFLOAT16: return 257;
      case LAZYT_DTYPE_FLOAT16: return 2049;
      case LAZYT_DTYPE_FLOAT32: return (int64_t{1} << 24) + 1;
      case LAZYT_DTYPE_FLOAT64: return (int64_t{1} << 53) + 1;
      default: return INT64_MAX;
    }
  }

  // -ln(1 - u) / rate, never 0: multinomial divides by it.
  ValueId exponential(DType dtype, const Dims& dims, double rate) {
    const double least = dtype == LAZYT_DTYPE_FLOAT64 ? 0x1p-54 : 0x1p-25;
    const ValueId u = n_.map("aten::clamp_min", "", uniform(dtype, dims), {Arg::of_double(least)});
    return scalar("aten::mul", n_.map("aten::log1p", "", n_.map("aten::neg", "", u)), -1 / rate);
  }

  // median + sigma tan(pi (u - 1/2))
  ValueId cauchy(const Meta& out) {
    const ValueId angle = scalar("aten::mul", scalar("aten::sub", uniform(wide(out.dtype), out.dims), 0.5), std::numbers::pi);
    const ValueId v = scalar("aten::add", scalar("aten::mul", n_.map("aten::tan", "", angle), args_[2]), args_[1]);
    return n_.cast(v, out.dtype);
  }

  // floor(ln(1 - u) / ln(1 - p)) + 1
  ValueId geometric(const Meta& out) {
    const DType dtype = is_floating(out.dtype) ? wide(out.dtype) : LAZYT_DTYPE_FLOAT64;
    const ValueId logarithm = n_.map("aten::log1p", "", n_.map("aten::neg", "", uniform(dtype, out.dims)));
    const ValueId failures = n_.map("aten::floor", "", scalar("aten::mul", logarithm, 1 / std::log1p(-args_[1].d)));
    return n_.cast(scalar("aten::add", failures, 1.0), out.dtype);
  }

  ValueId normal_of(const Meta& out) {
    const DType dtype = wide(out.dtype);
    ValueId v = normal({dtype, out.dims, {}}, Arg::of_double(0), Arg::of_double(1));
    auto operand = [&](ValueId a) { return n_.expand(n_.cast(a, dtype), out.dims); };
    if (args_[1].kind == LAZYT_ARG_VALUE) {
      const ValueId std = args_[1].value;
      v = tensor("aten::mul", v, operand(n_.checked(std, compare("aten::ge", std, 0), "normal expects all elements of std >= 0.0")));
    } else {
      v = scalar("aten::mul", v, args_[1]);
    }
    v = args_[0].kind == LAZYT_ARG_VALUE ? tensor("aten::add", v, operand(args_[0].value)) : scalar("aten::add", v, args_[0]);
    return n_.cast(v, out.dtype);
  }

  // (self, noise, lower, upper, training, generator) -> (output, noise): noise is the slope of each element.
  Values relu() {
    const ValueId x = args_[0].value;
    const Meta meta = n_.meta(x);
    auto number = [&](const Arg& a) { return a.kind == LAZYT_ARG_INT ? static_cast<double>(a.i) : a.d; };
    const double lower = number(args_[2]), upper = number(args_[3]);
    if (!args_[4].i) return {n_.map("aten::leaky_relu", "", x, {Arg::of_double((lower + upper) / 2)}), args_[1].value};
    const ValueId slope = n_.cast(uniform(wide(meta.dtype), meta.dims, lower, upper), meta.dtype);
    const ValueId noise = n_.add("aten::where", "ScalarOther", {Arg::of_value(compare("aten::le", x, 0)), Arg::of_value(slope), Arg::of_int(1)}, meta.dtype, meta.dims);
    return {tensor("aten::mul", x, noise), noise};
  }

  // As PyTorch's own for devices: the largest of p / exponential numbers; with replacement, uniform numbers looked up
  // among the sums of p.
  ValueId multinomial(const Meta& out) {
    ValueId p = args_[0].value;
    const auto all = [&](const char* name, double number) { return compare(name, p, number); };
    p = n_.checked(p, all("aten::ge", 0), kNotProbabilities);
    p = n_.checked(p, all("aten::lt", std::numeric_limits<double>::infinity()), kNotProbabilities);
    const Dims dims = n_.meta(p).dims;
    const auto last = static_cast<int64_t>(dims.size()) - 1;
    const int64_t count = out.dims.back();
    Dims row = dims;
    row.back() = 1;
    p = n_.cast(p, wide(n_.meta(p).dtype));
    const ValueId sums = n_.add("aten::sum", "dim_IntList", {Arg::of_value(p), Arg::of_ints({last}), Arg::of_bool(true), Arg::none()}, n_.meta(p).dtype, row);
    p = n_.checked(p, compare("aten::ne", sums, 0), "invalid multinomial distribution (sum of probabilities <= 0)");
    if (args_[2].i && count > 1) {
      const ValueId sums_so_far = n_.map("aten::cumsum", "", n_.cast(p, LAZYT_DTYPE_FLOAT64), {Arg::of_int(last), Arg::none()});
      const ValueId total = n_.add("aten::slice", "Tensor", {Arg::of_value(sums_so_far), Arg::of_int(last), Arg::of_int(dims.back() - 1), Arg::of_int(dims.back()), Arg::of_int(1)},
                                   LAZYT_DTYPE_FLOAT64, row);
      const ValueId at = tensor("aten::mul", uniform(LAZYT_DTYPE_FLOAT64, out.dims), n_.expand(total, out.dims));
      const ValueId index = n_.add("aten::searchsorted", "Tensor", {Arg::of_value(sums_so_far), Arg::of_value(at), Arg::of_bool(false), Arg::of_bool(true), Arg::none(), Arg::none()},
                                   LAZYT_DTYPE_INT64, out.dims);
      return n_.map("aten::clamp_max", "", index, {Arg::of_int(dims.back() - 1)});
    }
    const ValueId race = tensor("aten::div", p, exponential(n_.meta(p).dtype, dims, 1));
    if (count == 1) return n_.add("aten::argmax", "", {Arg::of_value(race), Arg::of_int(last), Arg::of_bool(true)}, LAZYT_DTYPE_INT64, out.dims);
    const ir::NodeId top = n_.graph.add_node("aten::topk", "", {Arg::of_value(race), Arg::of_int(count), Arg::of_int(last), Arg::of_bool(true), Arg::of_bool(true)},
                                             {Meta::contiguous(n_.meta(race).dtype, out.dims), Meta::contiguous(LAZYT_DTYPE_INT64, out.dims)}, n_.source);
    return n_.graph.nodes[top].first_result + 1;
  }

  static constexpr const char* kNotProbability =
      "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If so, please report an "
      "enhancement request to PyTorch.)";
  static constexpr const char* kNotProbabilities = "probability tensor contains either `inf`, `nan` or element < 0";

  const Nodes& n_;
  const Op& op_;
  const std::vector<Arg>& args_;
  const std::vector<Meta>& results_;
  const Arg &seed_, &offset_;
};

}  // namespace

base::Result<Values> lower_random(const Nodes& nodes, const Op& op, const std::vector<Arg>& args, const std::vector<Meta>& results, const Arg& seed,
                                  const Arg& offset) {
  return Draw(nodes, op, args, results, seed, offset).run();
}

}  // namespace lazyt::trace
