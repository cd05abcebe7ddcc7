#include "ops.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "base/shape.h"
#include "ir/text.h"
#include "passes/layout.h"
#include "suite.h"

namespace lazyt::conformance {
namespace {

// name, text of each file of corpus/
struct CorpusFile {
  const char* name;
  const char* text;
};
const CorpusFile kCorpus[] = {
#include "corpus.inc"
};

// Values in row-major order, whatever the layout; complex and packed types do not occur.
struct Expected {
  std::vector<double> values;
  double relative = 0, absolute = 0;
};

struct OpCase {
  std::string name, text;
  std::vector<std::vector<double>> inputs;  // in execute's order; a host scalar has one value
  std::vector<Expected> outputs;
  bool repeated = false;  // a tensor has the values again and again
};

std::vector<double> numbers(std::istringstream& line) {
  std::vector<double> out;
  for (std::string word; line >> word;) out.push_back(std::strtod(word.c_str(), nullptr));
  return out;
}

// The format is described in make_conformance_corpus.py.
std::vector<OpCase> read_cases(const CorpusFile& file) {
  std::vector<OpCase> out;
  std::istringstream in(file.text);
  bool in_program = false;
  for (std::string line; std::getline(in, line);) {
    if (in_program) {
      out.back().text += line + "\n";
      in_program = line != "}";
      continue;
    }
    std::istringstream words(line);
    std::string key;
    if (!(words >> key) || key[0] == '#') continue;
    if (key == "case") {
      out.emplace_back();
      words >> out.back().name;
      out.back().name = std::string(file.name) + "_" + out.back().name;
    } else if (key.rfind("program(", 0) == 0) {
      out.back().text = line + "\n";
      in_program = true;
    } else if (key == "in") {
      out.back().inputs.push_back(numbers(words));
    } else if (key == "out") {
      Expected e;
      words >> e.relative >> e.absolute;
      e.values = numbers(words);
      out.back().outputs.push_back(std::move(e));
    }
  }
  return out;
}

// A binary format of 16 bits (IEEE 754): sign, exponent, fraction.
struct Half {
  lazyt_dtype_t dtype;
  const char* name;
  int fraction;  // bits
  int bias;
  double epsilon() const { return std::ldexp(1, -fraction); }
  double largest() const { return (2 - epsilon()) * std::ldexp(1, bias); }
  double least_step() const { return std::ldexp(1, 1 - bias - fraction); }
};
constexpr Half kHalves[] = {{LAZYT_DTYPE_FLOAT16, "f16", 10, 15}, {LAZYT_DTYPE_BFLOAT16, "bf16", 7, 127}};

const Half* half_of(lazyt_dtype_t dtype) {
  for (const Half& h : kHalves)
    if (h.dtype == dtype) return &h;
  return nullptr;
}

double decode(const Half& h, uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> h.fraction, fraction = bits & ((1 << h.fraction) - 1);
  double v = std::ldexp(exponent ? 1 << h.fraction | fraction : fraction, std::max(exponent, 1) - h.bias - h.fraction);
  if (exponent == 0x7fff >> h.fraction) v = fraction ? NAN : INFINITY;
  return bits & 0x8000 ? -v : v;
}

// The bits of v; false if the format does not hold it.
bool encode(const Half& h, double v, uint16_t* bits) {
  *bits = 0x7fff & ~((1 << h.fraction) - 1);  // infinity
  if (std::isfinite(v)) {
    const double steps = std::abs(v) / h.least_step();
    const int exponent = steps < 1 << h.fraction ? 1 : std::ilogb(steps) - h.fraction + 1;
    const double fraction = std::ldexp(steps, 1 - exponent);
    if (fraction != std::floor(fraction) || std::abs(v) > h.largest()) return false;
    *bits = static_cast<uint16_t>(((exponent - 1) << h.fraction) + static_cast<int>(fraction));
  }
  if (std::signbit(v)) *bits |= 0x8000;
  return !std::isnan(v);
}

// PyTorch's CPU kernels keep statistics in f32 beside results of 16 bits, or add up in 16 bits; both is right.
// Sizes are judged in f32.
constexpr const char* kOfTheirOwn[] = {"sizes_", "attention_flash", "batch_norm", "rms_norm", "avg_pool", "grid_sampler", "embedding_backward", "log_softmax_large"};

// The same with f32 as a format of 16 bits, if that holds all inputs and the program is one operator. Sums are of f32
// there, too: what comes on top are roundings of half a unit, of the result and of three values on the way.
std::optional<OpCase> at_16_bits(const OpCase& c, const Half& h) {
  OpCase out = c;
  size_t results = 0;
  for (size_t at = 0; (at = c.text.find(" = ", at)) != std::string::npos; at++) results++;
  const bool plain = c.text.find("f64") == std::string::npos && c.text.find("c64") == std::string::npos &&
                     c.text.find("f16") == std::string::npos && c.text.find(" lazyt::") == std::string::npos;
  for (const char* part : kOfTheirOwn)
    if (c.name.find(part) != std::string::npos) return std::nullopt;
  if (results != 1 || !plain || c.text.find(": f32[") > c.text.find(") {")) return std::nullopt;
  for (const auto& values : c.inputs)
    for (const double v : values)
      if (uint16_t bits; !encode(h, v, &bits)) return std::nullopt;
  for (Expected& e : out.outputs) {
    for (const double v : e.values)
      if (std::isfinite(v) && std::abs(v) > h.largest()) return std::nullopt;
    e.relative += 2 * h.epsilon();
    e.absolute += h.least_step();
    // A mean of values that may cancel, by weights of 16 bits: half a unit of the largest value.
    if (c.name.find("attention") != std::string::npos)
      for (const double v : c.inputs.at(2)) e.absolute = std::max(e.absolute, h.epsilon() / 2 * std::abs(v));
    // Where a CPU has no instructions for f16, PyTorch adds taps and images up in 16 bits: a unit of the largest sum for each
    // of two on the way.
    if (c.name.find("convolution_backward") != std::string::npos || c.name.find("convolution_transposed") != std::string::npos)
      for (const double v : e.values) e.absolute = std::max(e.absolute, 2 * h.epsilon() * std::abs(v));
  }
  for (size_t at = 0; (at = out.text.find("f32", at)) != std::string::npos;) out.text.replace(at, 3, h.name);
  out.name += std::string("_in_") + h.name;
  return out;
}

// The same over more elements than fit a tile, a block or a thread's share: a pointwise operator's results repeat where its operands do.
// One case for each of them, of the first that has more than one element and no holes.
std::optional<OpCase> over_many(const OpCase& c) {
  static auto& done = *new std::set<std::string>;
  auto parsed = ir::parse(c.text);
  if (!parsed.ok()) return std::nullopt;
  ir::Graph& graph = parsed.value();
  if (graph.nodes.size() != 1 || graph.outputs.size() != 1 || !passes::is_pointwise(graph.nodes[0])) return std::nullopt;
  base::Meta& result = graph.values[graph.outputs[0].value].meta;
  const size_t rank = result.dims.size();
  if (result.dtype != LAZYT_DTYPE_FLOAT32 && result.dtype != LAZYT_DTYPE_BOOL && result.dtype != LAZYT_DTYPE_INT64) return std::nullopt;
  if (result.numel() < 2 || rank >= base::kMaxRank) return std::nullopt;
  constexpr int64_t kElements = 70001;
  const int64_t times = kElements / result.numel() | 1;
  const auto repeat = [&](base::Meta& meta) {
    meta.dims.insert(meta.dims.begin(), times);
    meta = base::Meta::contiguous(meta.dtype, meta.dims);
  };
  for (const ir::Input& input : graph.inputs) {
    ir::Value& value = graph.values[input.value];
    if (value.kind == ir::ValueKind::kHostScalar) continue;
    if (!value.meta.is_contiguous()) return std::nullopt;
    if (value.meta.dims.size() == rank) repeat(value.meta);  // what has fewer dims is the same for all
  }
  if (!result.is_contiguous() || !done.insert(graph.nodes[0].name + "." + graph.nodes[0].overload).second) return std::nullopt;
  repeat(result);
  OpCase out = c;
  out.name += "_over_many";
  out.text = ir::print(graph);
  out.repeated = true;
  return out;
}

void store(uint8_t* at, lazyt_dtype_t dtype, double v) {
  auto put = [&](auto x) { std::memcpy(at, &x, sizeof x); };
  if (const Half* h = half_of(dtype)) {
    uint16_t bits;
    if (!encode(*h, v, &bits)) ADD_FAILURE() << "error in the suite: " << h->name << " does not hold " << v;
    return put(bits);
  }
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT32:
      return put(static_cast<float>(v));
    case LAZYT_DTYPE_FLOAT64:
      return put(v);
    case LAZYT_DTYPE_INT64:
      return put(static_cast<int64_t>(v));
    case LAZYT_DTYPE_INT32:
      return put(static_cast<int32_t>(v));
    case LAZYT_DTYPE_INT8:
      return put(static_cast<int8_t>(v));
    case LAZYT_DTYPE_UINT8:
    case LAZYT_DTYPE_BOOL:
      return put(static_cast<uint8_t>(v));
    default:
      ADD_FAILURE() << "error in the suite: dtype " << dtype << " in the corpus";
  }
}

double load(const uint8_t* at, lazyt_dtype_t dtype) {
  auto get = [&](auto x) {
    std::memcpy(&x, at, sizeof x);
    return static_cast<double>(x);
  };
  if (const Half* h = half_of(dtype)) return decode(*h, static_cast<uint16_t>(get(uint16_t{})));
  switch (dtype) {
    case LAZYT_DTYPE_FLOAT32:
      return get(float{});
    case LAZYT_DTYPE_FLOAT64:
      return get(double{});
    case LAZYT_DTYPE_INT64:
      return get(int64_t{});
    case LAZYT_DTYPE_INT32:
      return get(int32_t{});
    case LAZYT_DTYPE_UINT8:
    case LAZYT_DTYPE_BOOL:
      return get(uint8_t{});
    default:
      return NAN;
  }
}

// Byte offsets of the elements in row-major order of the dims.
std::vector<uint64_t> places(const base::Meta& meta) {
  std::vector<uint64_t> out;
  const int64_t n = meta.numel();
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, at = 0;
    for (size_t d = meta.dims.size(); d-- > 0;) {
      at += rest % meta.dims[d] * meta.strides[d];
      rest /= meta.dims[d];
    }
    out.push_back(static_cast<uint64_t>(at) * lazyt_dtype_size(meta.dtype));
  }
  return out;
}

class OpTest : public Case {
 public:
  explicit OpTest(const OpCase& c) : case_(c) {}

  // Open beside each case's own device (DEV-3): what is made when an index is opened first, the context of a GPU, is then made
  // once for all cases of a process.
  static void SetUpTestSuite() {
    if (!Subject::get().table) return;
    lazyt_device_t* handle = nullptr;
    host()->status->release(plugin().device->open(0, &handle));
    opened_.reset(handle);
  }
  static void TearDownTestSuite() { opened_.reset(); }

  void TestBody() override {
    base::Ref<ir::Program> program = parse(case_.text);
    MUST(program);
    const ir::Graph graph = program->to_graph();
    ASSERT_EQ(graph.inputs.size(), case_.inputs.size()) << "error in the corpus";
    ASSERT_EQ(graph.outputs.size(), case_.outputs.size()) << "error in the corpus";
    Compiled compiled = compile(program);
    MUST(compiled);
    std::vector<BufferPtr> buffers;
    std::vector<In> inputs;
    for (size_t i = 0; i < graph.inputs.size(); i++) {
      const ir::Value& value = graph.values[graph.inputs[i].value];
      if (value.kind == ir::ValueKind::kHostScalar) {
        inputs.push_back(number({}));
        store(inputs.back().scalar.bytes, value.meta.dtype, case_.inputs[i].at(0));
        continue;
      }
      Bytes bytes(value.meta.span_bytes(), kStale);
      const std::vector<uint64_t> at = places(value.meta);
      const std::vector<double>& values = case_.inputs[i];
      check_count(at.size(), values.size());
      for (size_t k = 0; k < at.size(); k++) store(bytes.data() + at[k], value.meta.dtype, values[k % values.size()]);
      buffers.push_back(upload(bytes));
      MUST(buffers.back());
      inputs.push_back(in(buffers.back()));
    }
    const char* rule = case_.text.find(" lazyt::") != std::string::npos ? "PRG-7" : "PRG-9";
    std::vector<Bytes> results = run(rule, compiled, inputs);
    MUST(results.size() == case_.outputs.size());
    for (size_t i = 0; i < results.size(); i++)
      compare(rule, i, graph.values[graph.outputs[i].value].meta, results[i], case_.outputs[i]);
  }

 private:
  inline static DevicePtr opened_;

  void check_count(size_t places, size_t values) const {
    ASSERT_TRUE(case_.repeated ? values > 0 && places % values == 0 : places == values) << "error in the corpus: " << values << " values for " << places << " elements";
  }

  void compare(const char* rule, size_t index, const base::Meta& meta, const Bytes& got,
               const Expected& expected) {
    const std::vector<uint64_t> at = places(meta);
    check_count(at.size(), expected.values.size());
    const auto wanted = [&](size_t k) { return expected.values[k % expected.values.size()]; };
    size_t wrong = 0, first = 0;
    for (size_t k = 0; k < at.size(); k++) {
      const double want = wanted(k), have = load(got.data() + at[k], meta.dtype);
      const bool same = std::isnan(want) ? std::isnan(have)
                        : std::isinf(want)
                            ? have == want
                            : std::abs(have - want) <= expected.absolute + expected.relative * std::abs(want);
      if (!same && wrong++ == 0) first = k;
    }
    keeps(rule, wrong == 0, fmt::format("ran, output {} {}", index, base::to_string(meta)),
          wrong ? fmt::format("element {}: {:.9g} within {:.2g}", first, wanted(first),
                              expected.absolute + expected.relative * std::abs(wanted(first)))
                : "",
          wrong ? fmt::format("{:.9g}; {} of {} elements differ", load(got.data() + at[first], meta.dtype),
                              wrong, at.size())
                : "");
  }

  const OpCase& case_;
};

}  // namespace

static void register_case(OpCase c) {
  auto* kept = new OpCase(std::move(c));  // until the process ends
  all_cases().push_back({"Ops." + kept->name, {kept->text.find(" lazyt::") != std::string::npos ? "PRG-7" : "PRG-9"}});
  ::testing::RegisterTest("Ops", kept->name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [kept]() -> OpTest* { return new OpTest(*kept); });  // of its type, whose SetUpTestSuite it is
}

void register_op_cases() {
  for (const CorpusFile& file : kCorpus) {
    for (const OpCase& c : read_cases(file)) {
      register_case(c);
      if (auto many = over_many(c)) register_case(std::move(*many));
      for (const Half& h : kHalves)
        if (auto half = at_16_bits(c, h)) register_case(std::move(*half));
    }
  }
}

}  // namespace lazyt::conformance
