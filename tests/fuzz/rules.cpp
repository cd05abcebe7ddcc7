// One node with any arguments, operands and results, for what has a rule for each operator: the shapes, which say
// whether it fits, and the decomposition, which makes a program that the verifier takes of it or leaves it alone. Inputs
// are not kept: each operator that the opset gains makes others of them.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "ir/registry.h"
#include "ir/shapes.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/decomposition.h"
#include "target.h"

using namespace lazyt;

namespace {

struct Operator {
  std::string_view name, overload;
  const ir::OpInfo* info;  // or null
};

const std::vector<Operator>& operators() {
  static const auto& all = *[] {
    auto* out = new std::vector<Operator>;
    for (const auto* rules : passes::rules_outside())
      for (const auto& rule : *rules)
        if (rule.first.find("::") != std::string_view::npos) out->push_back({rule.first, "", nullptr});
    for (const ir::OpInfo& op : ir::all_ops()) out->push_back({op.name, op.overload, &op});
    std::ranges::sort(*out, {}, [](const Operator& o) { return std::pair(o.name, o.overload); });
    return out;
  }();
  return all;
}

constexpr std::array<lazyt_dtype_t, 7> kDtypes = {LAZYT_DTYPE_FLOAT32, LAZYT_DTYPE_FLOAT64, LAZYT_DTYPE_BFLOAT16, LAZYT_DTYPE_FLOAT16,
                                                  LAZYT_DTYPE_INT64,   LAZYT_DTYPE_BOOL,    LAZYT_DTYPE_COMPLEX64};

class Maker {
 public:
  Maker(const uint8_t* data, size_t size) : data_(data, size) {}

  ir::Graph graph() {
    const Operator& op = operators()[data_.ConsumeIntegralInRange<size_t>(0, operators().size() - 1)];
    for (auto& shape : shapes_)
      for (size_t rank = data_.ConsumeIntegralInRange<size_t>(0, 5); rank > 0; rank--) shape.push_back(dim());
    ir::Graph graph;
    for (size_t n = data_.ConsumeIntegralInRange<size_t>(1, 5); n > 0; n--) {
      if (data_.ConsumeIntegralInRange(0, 7) == 0)
        graph.add_host_scalar(data_.PickValueInArray(kDtypes), false);
      else
        graph.add_input(meta());
    }
    values_ = graph.values.size();
    std::vector<ir::Arg> args(op.info && data_.ConsumeIntegralInRange(0, 7) ? op.info->arg_count : data_.ConsumeIntegralInRange<size_t>(0, 15));
    for (ir::Arg& a : args) a = argument(true);
    std::vector<ir::Meta> results(op.info && op.info->result_count >= 0 ? static_cast<size_t>(op.info->result_count)
                                                                       : data_.ConsumeIntegralInRange<size_t>(0, 5));
    for (ir::Meta& m : results) m = meta();
    static const std::array<std::string_view, 8> kOverloads = {"", "Tensor", "Scalar", "List", "correction", "ScalarList", "int", "dim"};
    const std::string_view overload = op.info ? op.overload : data_.PickValueInArray(kOverloads);
    const ir::NodeId n = graph.add_node(std::string(op.name), std::string(overload), std::move(args), results, nullptr);
    for (uint32_t r = 0; r < results.size(); r++) graph.outputs.push_back({graph.nodes[n].first_result + r, ir::kNone});
    return graph;
  }

 private:
  // Most are sizes of small tensors; the others are at the ends of what a file can say.
  int64_t number() {
    static const std::array<int64_t, 10> kOdd = {-1,        -2,      INT32_MAX, int64_t{1} << 31, int64_t{1} << 40,
                                                 INT64_MAX, 1 << 24, INT64_MIN, INT64_MIN + 1,    4097};
    if (data_.ConsumeIntegralInRange(0, 7) == 0) return data_.PickValueInArray(kOdd);
    return data_.ConsumeIntegralInRange<int64_t>(0, 8);
  }
  int64_t dim() { return number() & INT64_MAX; }

  ir::Meta meta() {
    const base::Dims& shape = data_.PickValueInArray(shapes_);
    const lazyt_dtype_t dtype = data_.PickValueInArray(kDtypes);
    if (!base::is_countable(shape)) return {dtype, shape, base::Dims(shape.size(), 0)};
    return ir::Meta::contiguous(dtype, shape);
  }

  ir::Arg argument(bool may_nest) {
    switch (data_.ConsumeIntegralInRange(0, may_nest ? 13 : 9)) {
      default: return ir::Arg::of_value(static_cast<ir::ValueId>(data_.ConsumeIntegralInRange<size_t>(0, values_ - 1)));
      case 5: return ir::Arg::none();
      case 6:
      case 7: return ir::Arg::of_int(number());
      case 8: return ir::Arg::of_double(data_.ConsumeBool() ? data_.ConsumeFloatingPoint<double>() : static_cast<double>(number()));
      case 9: return ir::Arg::of_bool(data_.ConsumeBool());
      case 10: {
        std::vector<int64_t> ints(data_.ConsumeIntegralInRange<size_t>(0, 6));
        for (int64_t& i : ints) i = number();
        return ir::Arg::of_ints(std::move(ints));
      }
      case 11: {
        std::vector<ir::Arg> list(data_.ConsumeIntegralInRange<size_t>(0, 4));
        for (ir::Arg& a : list) a = argument(false);
        return ir::Arg::of_list(std::move(list));
      }
      case 12: return ir::Arg::of_string(data_.ConsumeBool() ? "tanh" : "");
      case 13: {
        std::vector<int64_t> bools(data_.ConsumeIntegralInRange<size_t>(0, 4));
        for (int64_t& b : bools) b = data_.ConsumeBool();
        return data_.ConsumeBool() ? ir::Arg::of_doubles({bools.begin(), bools.end()})
                                   : ir::Arg::of_ints(std::move(bools), LAZYT_ARG_BOOLS);
      }
    }
  }

  FuzzedDataProvider data_;
  std::array<base::Dims, 3> shapes_;
  size_t values_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ir::Graph given = Maker(data, size).graph();
  if (!ir::verify(given).ok()) return 0;
  static_cast<void>(ir::verify_shapes(given));
  // As if a plugin took the pieces, then as if it refused those that have rules, too.
  for (const bool again : {false, true}) {
    auto refuses = [&](const ir::Graph& g) -> base::Result<std::vector<bool>> {
      std::vector<bool> refused(g.nodes.size());
      for (size_t n = 0; again && n < refused.size(); n++) refused[n] = g.nodes[n].name != "aten::reshape";
      return refused;
    };
    auto pieces = passes::decompose(given, std::vector<bool>(given.nodes.size(), true), refuses);
    REQUIRE(pieces.ok(), pieces.status().to_string(), ir::print(given));
    if (!pieces.value()) continue;
    const base::Status status = ir::verify(*pieces.value());
    REQUIRE(status.ok(), status.to_string(), ir::print(given), ir::print(*pieces.value()));
  }
  return 0;
}
