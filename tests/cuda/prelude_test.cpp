// The device code that generated kernels call (codegen/prelude.cuh), on the host: every instruction of every
// register type against wider arithmetic, casts, 16-bit floats, Philox, totals. The same sources are compiled
// by the real NVRTC (check_nvrtc.py). Bounds are for the host's elementary functions; those of a GPU stand in
// CUDA's own tables.
#include <array>
#include <cfenv>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <type_traits>

#include "../../plugins/cuda/codegen/cache.h"
#include "fixture.h"

namespace lazyt::cuda {
namespace {

template <class T>
constexpr bool kFloat = std::is_floating_point_v<T>;
using Wide = long double;
using Int = __int128;

const std::vector<std::string> kArithmetic = {"add",       "sub", "mul", "div_trunc", "div_floor", "fmod",
                                              "remainder", "max", "min", "fmax",      "fmin",      "pow"};
const std::vector<std::string> kFloatBinary = {"div", "atan2", "hypot", "copysign"};
const std::vector<std::string> kIntBinary = {"and", "or", "xor", "shl", "shr"};
const std::vector<std::string> kBoolBinary = {"add", "mul", "max", "min", "and", "or", "xor"};
const std::vector<std::string> kCompare = {"eq", "ne", "lt", "le", "gt", "ge"};
const std::vector<std::string> kFloatUnary = {
    "abs",        "neg",   "sign",    "floor", "ceil", "round",  "trunc",  "sqrt",   "rsqrt",
    "reciprocal", "exp",   "exp2",    "expm1", "log",  "log2",   "log10",  "log1p",  "sin",
    "cos",        "tan",   "asin",    "acos",  "atan", "sinh",   "cosh",   "tanh",   "asinh",
    "acosh",      "atanh", "sigmoid", "erf",   "erfc", "erfinv", "lgamma", "digamma"};
const std::vector<std::string> kIntUnary = {"abs", "neg", "sign", "not"};
const std::vector<std::string> kTest = {"isnan", "isinf"};

template <class T>
lazyt_dtype_t dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return LAZYT_DTYPE_BOOL;
  if constexpr (std::is_same_v<T, uint8_t>) return LAZYT_DTYPE_UINT8;
  if constexpr (std::is_same_v<T, int8_t>) return LAZYT_DTYPE_INT8;
  if constexpr (std::is_same_v<T, int16_t>) return LAZYT_DTYPE_INT16;
  if constexpr (std::is_same_v<T, int32_t>) return LAZYT_DTYPE_INT32;
  if constexpr (std::is_same_v<T, int64_t>) return LAZYT_DTYPE_INT64;
  if constexpr (std::is_same_v<T, float>) return LAZYT_DTYPE_FLOAT32;
  if constexpr (std::is_same_v<T, double>) return LAZYT_DTYPE_FLOAT64;
}

// Functions by their place in the type's kernel.
template <class T>
std::vector<std::string> functions_of() {
  std::vector<std::string> out;
  auto put = [&](const std::vector<std::string>& names) {
    out.insert(out.end(), names.begin(), names.end());
  };
  if constexpr (std::is_same_v<T, bool>) {
    put(kBoolBinary), put({"not", "sign"});
  } else {
    put(kArithmetic);
    kFloat<T> ? (put(kFloatBinary), put(kFloatUnary), put(kTest)) : (put(kIntBinary), put(kIntUnary));
    put({"fma"});
  }
  put(kCompare), put({"where", "move"});
  return out;
}
bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class T>
KernelSource source_of() {
  std::string text =
      "LAZYT_KERNEL(KERNEL, 6, 128) {\n  const long long i = blockIdx.x * 128ll + threadIdx.x;\n  if (i >= "
      "(long long)a.w[5]) return;\n"
      "  const T x = lazyt_load((const M*)a.w[0], i), y = lazyt_load((const M*)a.w[1], i), z = "
      "lazyt_load((const M*)a.w[2], i);\n"
      "  M* const out = (M*)a.w[3];\n  switch ((int)a.w[4]) {\n";
  const auto names = functions_of<T>();
  for (size_t k = 0; k < names.size(); ++k) {
    const std::string& f = names[k];
    const bool boolean = is_one_of(f, kCompare) || is_one_of(f, kTest);
    const bool unary =
        is_one_of(f, kFloatUnary) || is_one_of(f, kIntUnary) || is_one_of(f, kTest) || f == "move";
    const std::string call = "lazyt_" + f +
                             (f == "where" ? "(z != (T)0, x, y)"
                              : f == "fma" ? "(x, y, z)"
                              : unary      ? "(x)"
                                           : "(x, y)");
    text += "    case " + std::to_string(k) + ": lazyt_store(" + (boolean ? "(lazyt_bool*)out" : "out") +
            ", i, " + call + "); break;\n";
  }
  return specialise("instructions", text + "  }\n}",
                    {{"T", register_type(dtype_of<T>())}, {"M", memory_type(dtype_of<T>())}});
}

// How many floats lie between two; 0 for two NaNs, and the sign of zero counts.
template <class T>
double ulps(T a, T b) {
  if (a != a || b != b) return a != a && b != b ? 0 : INFINITY;
  if (a == b) return std::signbit(a) == std::signbit(b) ? 0 : INFINITY;
  if (std::isinf(a) || std::isinf(b)) return INFINITY;
  int exponent;
  std::frexp(b, &exponent);
  const Wide unit = std::ldexp(
      Wide{1}, std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits);
  return static_cast<double>(std::abs(static_cast<Wide>(a) - static_cast<Wide>(b)) / unit);
}

template <class T>
std::vector<T> values() {
  std::vector<T> out;
  using L = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return {false, true};
  } else if constexpr (kFloat<T>) {
    for (double v : {0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 10.0, 0.1, 1e-3, 1e-7, 12345.678,
                     1e10, 88.5, 100.0, 700.0})
      out.push_back(static_cast<T>(v)), out.push_back(static_cast<T>(-v));
    for (T v : {L::infinity(), L::max(), L::min(), L::denorm_min(), static_cast<T>(1e30)})
      out.push_back(v), out.push_back(-v);
    out.push_back(L::quiet_NaN());
  } else {
    for (int v : {0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127}) {
      out.push_back(static_cast<T>(v));
      if (L::is_signed) out.push_back(static_cast<T>(-v));
    }
    for (T v : {L::max(), L::min(), static_cast<T>(L::max() - 1), static_cast<T>(L::max() / 3),
                static_cast<T>(L::min() / 3)})
      out.push_back(v);
  }
  return out;
}

// ---- references

template <class T>
T wrap(Int v) {
  return static_cast<T>(v);
}
template <class T>
Int reference_int(const std::string& f, Int a, Int b, Int c) {
  constexpr int kBits = sizeof(T) * 8;
  if (f == "add") return a + b;
  if (f == "sub") return a - b;
  if (f == "mul") return a * b;
  if (f == "fma") return a * b + c;
  if (f == "div_trunc") return b == 0 ? 0 : a / b;
  const Int mod = b == 0 ? 0 : a % b;
  if (f == "fmod") return mod;
  if (f == "remainder") return mod != 0 && (mod < 0) != (b < 0) ? mod + b : mod;
  if (f == "div_floor") return b == 0 ? 0 : mod != 0 && (a < 0) != (b < 0) ? a / b - 1 : a / b;
  if (f == "max" || f == "fmax") return a > b ? a : b;
  if (f == "min" || f == "fmin") return a < b ? a : b;
  if (f == "pow") {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    T result = 1;  // bit by bit from the top, where the kernel goes from the bottom
    for (int bit = kBits - 1; bit >= 0; --bit) {
      result = wrap<T>(static_cast<Int>(result) * result);
      if (b >> bit & 1) result = wrap<T>(static_cast<Int>(result) * a);
    }
    return result;
  }
  if (f == "and") return a & b;
  if (f == "or") return a | b;
  if (f == "xor") return a ^ b;
  if (f == "shl") return b < 0 || b >= kBits ? 0 : a << b;
  if (f == "shr") return b < 0 || b >= kBits ? (a < 0 ? -1 : 0) : a >> b;
  if (f == "abs") return a < 0 ? -a : a;
  if (f == "neg") return -a;
  if (f == "sign") return (a > 0) - (a < 0);
  if (f == "not") return ~a;
  if (f == "where") return c != 0 ? a : b;
  if (f == "move") return a;
  ADD_FAILURE() << "no reference for " << f;
  return 0;
}

Wide digamma(Wide x) {
  const Wide pi = std::acos(Wide{-1});
  if (x == 0) return std::signbit(x) ? INFINITY : -INFINITY;
  if (x < 0) return x == std::floor(x) ? Wide{NAN} : digamma(1 - x) - pi / std::tan(pi * (x - std::trunc(x)));
  Wide sum = 0;
  for (; x < 40; x += 1) sum -= 1 / x;
  const Wide z = 1 / (x * x);
  return sum + std::log(x) - 1 / (2 * x) -
         z * (Wide{1} / 12 - z * (Wide{1} / 120 - z * (Wide{1} / 252 - z / 240)));
}

// Half the values below lie above the result: found by bisection.
Wide erfinv(Wide x) {
  if (!(std::abs(x) <= 1)) return NAN;
  if (std::abs(x) == 1) return std::copysign(Wide{INFINITY}, x);
  Wide low = 0, high = 7;
  const Wide a = std::abs(x);
  for (int i = 0; i < 120; ++i) {
    const Wide middle = (low + high) / 2;
    (a > 0.5L ? std::erfc(middle) > 1 - a : std::erf(middle) < a) ? low = middle : high = middle;
  }
  // Below, bisection has no digits left, and the function is a line.
  return std::copysign(a < 1e-6L ? a * std::sqrt(std::acos(Wide{-1})) / 2 : low, x);
}

template <class T>
Wide reference_float(const std::string& f, Wide a, Wide b, Wide c) {
  if (f == "add") return a + b;
  if (f == "sub") return a - b;
  if (f == "mul") return a * b;
  if (f == "div") return a / b;
  if (f == "fma")
    return std::fma(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c));  // glibc rounds once
  if (f == "div_trunc") return std::trunc(static_cast<T>(a / b));
  if (f == "fmod") return std::fmod(a, b);
  const Wide mod = std::fmod(a, b);
  if (f == "remainder") return mod != 0 && (mod < 0) != (b < 0) ? static_cast<T>(mod) + b : mod;
  if (f == "max") return a != a || b != b ? NAN : a > b ? a : b;
  if (f == "min") return a != a || b != b ? NAN : a < b ? a : b;
  if (f == "fmax") return a != a ? b : b != b ? a : a > b ? a : b;
  if (f == "fmin") return a != a ? b : b != b ? a : a < b ? a : b;
  if (f == "pow") return std::pow(a, b);
  if (f == "atan2") return std::atan2(a, b);
  if (f == "hypot") return std::hypot(a, b);
  if (f == "copysign") return std::copysign(a, b);
  if (f == "abs") return std::abs(a);
  if (f == "neg") return -a;
  if (f == "sign") return (a > 0) - (a < 0);
  if (f == "floor") return std::floor(a);
  if (f == "ceil") return std::ceil(a);
  if (f == "round") return std::nearbyint(a);
  if (f == "trunc") return std::trunc(a);
  if (f == "sqrt") return std::sqrt(a);
  if (f == "rsqrt") return 1 / std::sqrt(a);
  if (f == "reciprocal") return 1 / a;
  if (f == "exp") return std::exp(a);
  if (f == "exp2") return std::exp2(a);
  if (f == "expm1") return std::expm1(a);
  if (f == "log") return std::log(a);
  if (f == "log2") return std::log2(a);
  if (f == "log10") return std::log10(a);
  if (f == "log1p") return std::log1p(a);
  if (f == "sin") return std::sin(a);
  if (f == "cos") return std::cos(a);
  if (f == "tan") return std::tan(a);
  if (f == "asin") return std::asin(a);
  if (f == "acos") return std::acos(a);
  if (f == "atan") return std::atan(a);
  if (f == "sinh") return std::sinh(a);
  if (f == "cosh") return std::cosh(a);
  if (f == "tanh") return std::tanh(a);
  if (f == "asinh") return std::asinh(a);
  if (f == "acosh") return std::acosh(a);
  if (f == "atanh") return std::atanh(a);
  if (f == "sigmoid") return 1 / (1 + std::exp(-a));
  if (f == "erf") return std::erf(a);
  if (f == "erfc") return std::erfc(a);
  if (f == "erfinv") return erfinv(a);
  if (f == "lgamma") return std::lgamma(a);
  if (f == "digamma") return digamma(a);
  if (f == "where") return c != 0 ? a : b;
  if (f == "move") return a;
  ADD_FAILURE() << "no reference for " << f;
  return 0;
}

// Units in the last place that a result may be off. One where f64 arithmetic is compared with wider, which
// rounds twice.
template <class T>
double bound(const std::string& f) {
  if (is_one_of(f, {"max", "min", "fmax", "fmin", "copysign", "abs", "neg", "sign", "floor", "ceil", "round",
                    "trunc", "fmod", "where", "move"}))
    return 0;
  if (is_one_of(f, {"add", "sub", "mul", "div", "fma", "sqrt", "reciprocal", "div_trunc", "remainder"}))
    return sizeof(T) == 4 ? 0 : 1;
  if (f == "digamma")
    return sizeof(T) == 4 ? 2 : 1024;  // near its poles the argument itself has lost as much
  if (f == "erfinv") return sizeof(T) == 4 ? 2 : 64;
  if (f == "lgamma") return 4;
  return 4;
}

class Prelude : public CudaTest {
 protected:
  void launch(const KernelSource& source, const std::vector<uint64_t>& words, uint32_t blocks,
              uint32_t threads) {
    KernelStep step;
    step.source = source;
    load_kernels({&step}, *device().context, device().capability);
    auto copy = words;
    void* parameter = copy.data();
    const Current current(*device().context);
    const CUstream stream = device().compute.handle();
    ASSERT_EQ(cu().cuLaunchKernel(step.function, blocks, 1, 1, threads, 1, 1, 0, stream, &parameter, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  // The fake's device memory is the host's.
  template <class T>
  static uint64_t word(const T* p) {
    return reinterpret_cast<uint64_t>(p);
  }

  template <class T>
  struct Operands {
    std::vector<T> x, y, z;
  };
  template <class T>
  static Operands<T> operands() {
    Operands<T> out;
    std::mt19937_64 random(7);
    const auto all = values<T>();
    for (T a : all)
      for (T b : all) out.x.push_back(a), out.y.push_back(b), out.z.push_back(all[random() % all.size()]);
    for (int i = 0; i < 2000; ++i)
      for (auto* v : {&out.x, &out.y, &out.z}) {
        if constexpr (kFloat<T>) {
          v->push_back(static_cast<T>(std::ldexp(static_cast<double>(random() >> 11) * 0x1p-52 - 1,
                                                 static_cast<int>(random() % 16) - 8)));
        } else {
          v->push_back(static_cast<T>(random()));
        }
      }
    return out;
  }

  template <class T>
  void check_type() {
    const KernelSource source = source_of<T>();
    const auto names = functions_of<T>();
    const Operands<T> in = operands<T>();
    // std::vector<bool> has no elements of its own.
    using Cell = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const std::vector<Cell> x(in.x.begin(), in.x.end()), y(in.y.begin(), in.y.end()),
        z(in.z.begin(), in.z.end());
    for (size_t k = 0; k < names.size(); ++k) {
      const std::string& f = names[k];
      std::vector<Cell> out(x.size());
      launch(source, {word(x.data()), word(y.data()), word(z.data()), word(out.data()), k, x.size()},
             static_cast<uint32_t>(x.size() + 127) / 128, 128);
      double worst = 0;
      for (size_t i = 0; i < x.size() && !HasFailure(); ++i) {
        const T a = static_cast<T>(x[i]), b = static_cast<T>(y[i]), c = static_cast<T>(z[i]);
        const auto what = [&] {
          return f + "(" + std::to_string(a) + ", " + std::to_string(b) + ", " + std::to_string(c) + ")";
        };
        if (is_one_of(f, kCompare) || is_one_of(f, kTest)) {
          const bool expected = f == "eq"      ? a == b
                                : f == "ne"    ? a != b
                                : f == "lt"    ? a < b
                                : f == "le"    ? a <= b
                                : f == "gt"    ? a > b
                                : f == "ge"    ? a >= b
                                : f == "isnan" ? a != a
                                               : std::abs(static_cast<Wide>(a)) == INFINITY;
          EXPECT_EQ(reinterpret_cast<const uint8_t*>(out.data())[i], expected) << what();
        } else if constexpr (std::is_same_v<T, bool>) {
          const bool expected = f == "add" || f == "max" || f == "or" ? a || b
                                : f == "xor"                          ? a != b
                                : f == "not"                          ? !a
                                : f == "sign" || f == "move"          ? a
                                : f == "where"                        ? (c ? a : b)
                                                                      : a && b;
          EXPECT_EQ(out[i], expected) << what();
        } else if constexpr (!kFloat<T>) {
          EXPECT_EQ(out[i], wrap<T>(reference_int<T>(f, a, b, c))) << what();
        } else if (f == "div_floor") {
          check_floor(a, b, out[i], what());
        } else {
          const T expected = static_cast<T>(reference_float<T>(f, a, b, c));
          const double off = ulps(out[i], expected);
          worst = std::max(worst, off);
          // Near a zero of lgamma and digamma the distance to the nearest float means nothing.
          const bool near_zero = (f == "lgamma" || f == "digamma") &&
                                 std::abs(out[i] - expected) < 64 * std::numeric_limits<T>::epsilon();
          // As PyTorch's formula, whose exponential overflows where the result is subnormal.
          const bool flushed = f == "sigmoid" && out[i] == 0 && expected < std::numeric_limits<T>::min();
          EXPECT_TRUE(off <= bound<T>(f) || near_zero || flushed)
              << what() << " = " << out[i] << ", not " << expected << " (" << off << " ulps)";
        }
      }
      if constexpr (kFloat<T>) RecordProperty("ulps_" + f, std::to_string(worst));
    }
  }
  // Python's floor division: what remains has the divisor's sign.
  template <class T>
  static void check_floor(T a, T b, T q, const std::string& what) {
    if (b == 0 || a != a || b != b || std::isinf(a)) {
      EXPECT_EQ(ulps(q, b == 0 ? a / b : std::numeric_limits<T>::quiet_NaN()), 0) << what;
    } else if (std::isinf(b)) {
      EXPECT_EQ(q, a != 0 && (a < 0) != (b < 0) ? T(-1) : T(0)) << what << " = " << q;
    } else {
      Wide mod = std::fmod(static_cast<Wide>(a), static_cast<Wide>(b));
      if (mod != 0 && (mod < 0) != (b < 0)) mod += b;
      const T expected = static_cast<T>(std::round((static_cast<Wide>(a) - mod) / b));
      EXPECT_TRUE(q == expected || ulps(q, expected) <= 2) << what << " = " << q << ", not " << expected;
    }
  }
};

TEST_F(Prelude, InstructionsOfBool) { check_type<bool>(); }
TEST_F(Prelude, InstructionsOfU8) { check_type<uint8_t>(); }
TEST_F(Prelude, InstructionsOfI8) { check_type<int8_t>(); }
TEST_F(Prelude, InstructionsOfI16) { check_type<int16_t>(); }
TEST_F(Prelude, InstructionsOfI32) { check_type<int32_t>(); }
TEST_F(Prelude, InstructionsOfI64) { check_type<int64_t>(); }
TEST_F(Prelude, InstructionsOfF32) { check_type<float>(); }
TEST_F(Prelude, InstructionsOfF64) { check_type<double>(); }

// ---- casts

template <class From, class To>
To cast_reference(From v) {
  if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (kFloat<From> && !kFloat<To>) {
    // Through the register of x86-64: what is no i32 (or, for other widths, no i64) is its smallest number.
    const Wide w = std::trunc(static_cast<Wide>(v));
    if (std::is_same_v<To, int32_t>)
      return w >= -2147483648.0L && w <= 2147483647.0L ? static_cast<To>(w) : static_cast<To>(INT32_MIN);
    const int64_t whole = v == v && w >= -9223372036854775808.0L && w < 9223372036854775808.0L
                              ? static_cast<int64_t>(w)
                              : INT64_MIN;
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(v);
  }
}

class Casts : public Prelude {
 protected:
  template <class From, class To>
  void check(const KernelSource& source) {
    using CellFrom = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;
    using CellTo = std::conditional_t<std::is_same_v<To, bool>, uint8_t, To>;
    auto all = values<From>();
    if constexpr (kFloat<From>)
      for (double v : {255.9, 256.0, 300.7, -129.0, 32768.5, 65536.0, 2147483647.0, 2147483648.0,
                       -2147483649.0, 4294967296.0, 1e18, 1e19, -1e19})
        all.push_back(static_cast<From>(v));
    const std::vector<CellFrom> in(all.begin(), all.end());
    std::vector<CellTo> out(in.size());
    launch(source, {word(in.data()), word(out.data()), in.size(), static_cast<uint64_t>(dtype_of<To>())},
           static_cast<uint32_t>(in.size() + 127) / 128, 128);
    for (size_t i = 0; i < in.size(); ++i) {
      const To expected = cast_reference<From, To>(static_cast<From>(in[i]));
      if constexpr (kFloat<To>) {
        EXPECT_EQ(ulps(static_cast<To>(out[i]), expected), 0) << +in[i];
      } else {
        EXPECT_EQ(static_cast<To>(out[i]), expected) << "from " << +in[i] << " to dtype " << dtype_of<To>();
      }
    }
  }
  template <class From>
  void check_from() {
    std::string text =
        "LAZYT_KERNEL(KERNEL, 4, 128) {\n  const long long i = blockIdx.x * 128ll + threadIdx.x;\n  if (i >= "
        "(long long)a.w[2]) return;\n"
        "  const auto x = lazyt_load((const FROM*)a.w[0], i);\n  switch ((int)a.w[3]) {\n";
    for (lazyt_dtype_t to : {LAZYT_DTYPE_BOOL, LAZYT_DTYPE_UINT8, LAZYT_DTYPE_INT8, LAZYT_DTYPE_INT16,
                             LAZYT_DTYPE_INT32, LAZYT_DTYPE_INT64, LAZYT_DTYPE_FLOAT32, LAZYT_DTYPE_FLOAT64})
      text += "    case " + std::to_string(to) + ": lazyt_store((" + memory_type(to) +
              "*)a.w[1], i, lazyt_cast<" + register_type(to) + ">(x)); break;\n";
    const KernelSource source =
        specialise("cast", text + "  }\n}", {{"FROM", memory_type(dtype_of<From>())}});
    check<From, bool>(source), check<From, uint8_t>(source), check<From, int8_t>(source),
        check<From, int16_t>(source);
    check<From, int32_t>(source), check<From, int64_t>(source), check<From, float>(source),
        check<From, double>(source);
  }
};
TEST_F(Casts, FromIntegers) {
  check_from<bool>(), check_from<uint8_t>(), check_from<int8_t>(), check_from<int16_t>(),
      check_from<int32_t>(), check_from<int64_t>();
}
TEST_F(Casts, FromFloats) { check_from<float>(), check_from<double>(); }

// ---- 16-bit floats: of a format by its bits of exponent and mantissa

double half_value(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1),
            mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

class Halves : public Prelude {
 protected:
  void check(lazyt_dtype_t dtype, int exponent_bits, int mantissa_bits) {
    const KernelSource source =
        specialise("halves",
                   "LAZYT_KERNEL(KERNEL, 4, 128) { const long long i = blockIdx.x * 128ll + threadIdx.x; if "
                   "(i >= (long long)a.w[3]) return;\n"
                   "  if (a.w[2]) lazyt_store((H*)a.w[1], i, lazyt_load((const float*)a.w[0], i)); else "
                   "lazyt_store((float*)a.w[1], i, lazyt_load((const H*)a.w[0], i)); }",
                   {{"H", memory_type(dtype)}});
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(all.size());
    launch(source, {word(all.data()), word(wide.data()), 0, all.size()}, 512, 128);
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(ulps(wide[i], static_cast<float>(half_value(all[i], exponent_bits, mantissa_bits))), 0) << i;
    // Every half comes back; what lies between two goes to the nearer, the middle to the even one, beyond the
    // last to infinity.
    std::vector<float> in = wide;
    std::vector<double> nearest;
    const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
    for (uint16_t i = 0; i < infinity; ++i) {
      const double low = half_value(i, exponent_bits, mantissa_bits);
      const double high =
          i + 1 == infinity ? 2 * low - half_value(static_cast<uint16_t>(i - 1), exponent_bits, mantissa_bits)
                            : half_value(static_cast<uint16_t>(i + 1), exponent_bits, mantissa_bits);
      const float middle = static_cast<float>((low + high) / 2);
      for (float v : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY)})
        in.push_back(v), in.push_back(-v);
    }
    std::vector<uint16_t> out(in.size());
    launch(source, {word(in.data()), word(out.data()), 1, in.size()},
           static_cast<uint32_t>(in.size() + 127) / 128, 128);
    for (size_t i = 0; i < all.size(); ++i) {
      if (wide[i] != wide[i])
        ASSERT_TRUE(std::isnan(half_value(out[i], exponent_bits, mantissa_bits))) << i;
      else
        ASSERT_EQ(out[i], all[i]);
    }
    size_t at = all.size();
    for (uint16_t i = 0; i < infinity; ++i) {
      const uint16_t low = i, high = static_cast<uint16_t>(i + 1), even = i % 2 ? high : low;
      for (uint16_t expected : {low, even, high})
        for (uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
          // Below the smallest subnormal's half the float before the middle may be the middle itself: bf16
          // has f32's range.
          ASSERT_EQ(out[at], expected | sign) << in[at];
          ++at;
        }
    }
  }
};
TEST_F(Halves, F16) { check(LAZYT_DTYPE_FLOAT16, 5, 10); }
TEST_F(Halves, Bf16) { check(LAZYT_DTYPE_BFLOAT16, 8, 7); }

// ---- random numbers

// As the paper writes it, with whole counters.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int i = 0; i < 10; ++i) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k = {k[0] + 0x9E3779B9, k[1] + 0xBB67AE85};
  }
  return c;
}

TEST_F(Prelude, PhiloxGivesTheWordsOfTheRule) {
  // Known answers of Random123.
  ASSERT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  ASSERT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  ASSERT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  const KernelSource source =
      specialise("words",
                 "LAZYT_KERNEL(KERNEL, 5, 64) { const unsigned long long i = threadIdx.x; "
                 "((unsigned*)a.w[2])[i] = lazyt_word(a.w[0], a.w[1], i);\n"
                 "  ((unsigned long long*)a.w[3])[i] = lazyt_wide_word(a.w[0], a.w[1], i); "
                 "((float*)a.w[4])[i] = lazyt_uniform(a.w[0], a.w[1], i);\n"
                 "  float four[4]; lazyt_uniform4(four, a.w[0], a.w[1], 4 * i); for (int k = 0; k < 4; ++k) "
                 "((float*)a.w[4])[64 + 4 * i + k] = four[k]; }",
                 {});
  for (uint64_t seed : {uint64_t{0}, uint64_t{42}, UINT64_MAX - 5})
    for (uint64_t offset : {uint64_t{0}, uint64_t{0xfffffffd}, UINT64_MAX - 3}) {
      std::vector<uint32_t> words(64);
      std::vector<uint64_t> wide(64);
      std::vector<float> units(64 + 256);
      launch(source, {seed, offset, word(words.data()), word(wide.data()), word(units.data())}, 1, 64);
      auto at = [&](uint64_t i) {
        const uint64_t c = offset + i / 4;
        return philox({static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0, 0},
                      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[i % 4];
      };
      for (uint64_t i = 0; i < 64; ++i) {
        EXPECT_EQ(words[i], at(i));
        EXPECT_EQ(wide[i], at(2 * i) | static_cast<uint64_t>(at(2 * i + 1)) << 32);
        EXPECT_EQ(units[i], static_cast<float>(at(i) >> 8) * 0x1p-24f);
      }
      for (uint64_t i = 0; i < 256; ++i) EXPECT_EQ(units[64 + i], static_cast<float>(at(i) >> 8) * 0x1p-24f);
    }
}

// ---- totals

TEST_F(Prelude, TotalsOfBlocksAreTheSameForEverySize) {
  std::string body =
      "LAZYT_KERNEL(KERNEL, 3, THREADS) {\n  const float x = ((const float*)a.w[0])[threadIdx.x]; double* "
      "out = (double*)a.w[1]; long long* ints = (long long*)a.w[2];\n";
  for (int kind = 0; kind < 7; ++kind) {
    const std::string k = std::to_string(kind);
    body += "  { double t = lazyt_join<" + k + ">(lazyt_start<" + k +
            ", double>(), x); t = lazyt_block_total<" + k +
            ", double, THREADS>(t); if (threadIdx.x == 0) out[" + k + "] = t; }\n";
    body += "  { long long t = lazyt_join<" + k + ">(lazyt_start<" + k +
            ", long long>(), (int)x); t = lazyt_block_total<" + k +
            ", long long, THREADS>(t); if (threadIdx.x == 0) ints[" + k + "] = t; }\n";
  }
  body += "}";
  for (int threads : {32, 64, 96, 256, 1024}) {
    const KernelSource source = specialise("totals", body, {{"THREADS", std::to_string(threads)}});
    for (float bad : {0.0f, NAN}) {
      std::vector<float> x(static_cast<size_t>(threads));
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
      x[5] = bad;
      std::vector<double> out(7), expected(7);
      std::vector<int64_t> ints(7);
      launch(source, {word(x.data()), word(out.data()), word(ints.data())}, 1,
             static_cast<uint32_t>(threads));
      double sum = 0, squares = 0, largest = -INFINITY, smallest = INFINITY;
      bool any = false, all = true, nan = false;
      for (float v : x)
        sum += v, squares += double{v} * v, largest = std::max<double>(largest, v),
                                            smallest = std::min<double>(smallest, v), any |= v != 0,
                                            all &= v != 0, nan |= v != v;
      EXPECT_EQ(ulps(out[0], sum), 0) << threads;
      EXPECT_EQ(ulps(out[1], squares), 0);
      EXPECT_EQ(ulps(out[3], nan ? NAN : largest), 0);
      EXPECT_EQ(ulps(out[4], nan ? NAN : smallest), 0);
      EXPECT_EQ(out[5], any);
      EXPECT_EQ(out[6], all);
      EXPECT_EQ(ulps(out[2], nan ? NAN : 0.0) == 0 || out[2] == 0, true);
      if (!nan) {
        EXPECT_EQ(ints, (std::vector<int64_t>{static_cast<int64_t>(sum), static_cast<int64_t>(squares), 0, 3,
                                              -3, 1, 0}));
      }
    }
  }
}

}  // namespace
}  // namespace lazyt::cuda
