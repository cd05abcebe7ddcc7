#include "ir/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ir/registry.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace lazyt::ir {
namespace {

namespace fs = std::filesystem;

TEST(Shapes, EveryOperatorOfTheOpsetHasARule) {
  for (const OpInfo& op : all_ops()) EXPECT_TRUE(has_shape_rule(op.name, op.overload)) << op.name << "." << op.overload;
}

TEST(Shapes, OperatorsOutsideTheOpsetHaveNone) {
  EXPECT_FALSE(has_shape_rule("aten::glu", ""));
  auto graph = parse("program(%0: f32[4]) { %1 = acme::anything(%0) : f32[7] return %1 }");
  EXPECT_EQ(verify_shapes(graph.value()).to_string(), "OK");
}

// What PyTorch computed fits.
TEST(Shapes, TakesEveryProgramOfTheConformanceCorpus) {
  const char* root = std::getenv("LAZYT_SOURCE_ROOT");
  const fs::path folder = (root ? fs::path(root) : fs::current_path()) / "tests" / "conformance" / "corpus";
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".lzt") continue;
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (size_t at = 0; (at = text.find("program(", at)) != std::string::npos; count++) {
      const size_t end = text.find("\n}", at);
      const std::string program = text.substr(at, end + 2 - at);
      auto graph = parse(program);
      ASSERT_TRUE(graph.ok()) << program;
      EXPECT_EQ(verify_shapes(graph.value()).to_string(), "OK") << program;
      at = end;
    }
  }
  EXPECT_GT(count, 1000);
}

// They may be of any dims and dtype.
TEST(Shapes, ResultsThatNobodyWantsAreNotLookedAt) {
  auto graph = parse(
      "program(%0: f64[2,4,3,3], %1: f64[2,3,5,5], %2: f64[4,3,3,3]) {\n"
      "  %3, %4, %5 = aten::convolution_backward(%0, %1, %2, ints[4], ints[1,1], ints[0,0], ints[1,1], false, ints[0,0], 1, bools[true,true,false]) : "
      "f64[2,3,5,5], f64[4,3,3,3], f32[0]\n  return %3, %4\n}");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(verify_shapes(graph.value()).to_string(), "OK");
}

struct Misfit {
  const char* inputs;
  const char* node;  // its results are %9, %10, ...
  const char* says;
};

class Misfits : public ::testing::TestWithParam<Misfit> {};

TEST_P(Misfits, AreRefusedByNameAndReason) {
  const Misfit& m = GetParam();
  // Inputs that are not named fill the numbers up to 8.
  std::string text = "program(" + std::string(m.inputs);
  for (size_t i = static_cast<size_t>(std::count(text.begin(), text.end(), ':')); i < 9; i++) text += (i ? ", %" : "%") + std::to_string(i) + ": f32[]";
  text += ") {\n  " + std::string(m.node) + "\n  return %9\n}";
  auto graph = parse(text);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string() << text;
  ASSERT_EQ(verify(graph.value()).to_string(), "OK") << text;
  const base::Status s = verify_shapes(graph.value());
  EXPECT_EQ(s.code(), LAZYT_CODE_INVALID_ARGUMENT) << text;
  const std::string message(s.message());
  EXPECT_NE(message.find(m.says), std::string::npos) << message;
  EXPECT_NE(message.find("node 0 "), std::string::npos) << message;
  EXPECT_NE(message.find("PRG-"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Misfits,
    ::testing::Values(
        Misfit{"%0: f32[2], %1: f32[2]", "%9 = aten::add.Tensor(%0, %1, 1) : f32[1000000]", "result 0 is [1000000], its operands give [2]"},
        Misfit{"%0: f32[2], %1: f32[3]", "%9 = aten::mul.Tensor(%0, %1) : f32[3]", "no common shape"},
        Misfit{"%0: f32[2], %1: f64[2]", "%9 = aten::mul.Tensor(%0, %1) : f64[2]", "operands of f32 and f64 meet"},
        Misfit{"%0: b1[2], %1: f32[2], %2: f32[5]", "%9 = aten::where.self(%0, %1, %2) : f32[5]", "no common shape"},
        Misfit{"%0: f32[2,3], %1: f32[5000,4]", "%9 = aten::mm(%0, %1) : f32[2,4]", "[2,3] times [5000,4]"},
        Misfit{"%0: f32[4], %1: f32[2,3], %2: f32[3,4]", "%9 = aten::addmm(%0, %1, %2, 1, 1) : f32[20,4]", "its operands give [2,4]"},
        Misfit{"%0: f32[5], %1: f32[2,3], %2: f32[3,4]", "%9 = aten::addmm(%0, %1, %2, 1, 1) : f32[2,4]", "no common shape"},
        Misfit{"%0: f32[3,2,4], %1: f32[2,4,2]", "%9 = aten::bmm(%0, %1) : f32[3,2,2]", "[3,2,4] times [2,4,2]"},
        Misfit{"%0: f32[7,100], %1: f32[5,3]", "%9 = aten::linear(%0, %1, none) : f32[7,5]", "[7,100] times [5,3]"},
        Misfit{"%0: f32[2,3,8,8], %1: f32[4,3,3,3]", "%9 = aten::convolution(%0, %1, none, ints[1,1], ints[0,0], ints[1,1], false, ints[0,0], 1) : f32[2,4,600,600]", "its operands give [2,4,6,6]"},
        Misfit{"%0: f32[2,3,8,8], %1: f32[4,3,3,3]", "%9 = aten::convolution(%0, %1, none, ints[0,0], ints[0,0], ints[1,1], false, ints[0,0], 1) : f32[2,4,6,6]", "no size"},
        Misfit{"%0: f32[2,3,8,8], %1: f32[4,3,3,3]", "%9 = aten::convolution(%0, %1, none, ints[1,1], ints[0,0], ints[1,1], false, ints[0,0], 0) : f32[2,4,6,6]", "0 groups"},
        Misfit{"%0: f32[1,1,4,4]", "%9, %10 = aten::max_pool2d_with_indices(%0, ints[2,2], ints[2,2], ints[0,0], ints[1,1], false) : f32[1,1,2,2], i64[1,1,3,2]", "result 1 is [1,1,3,2]"},
        Misfit{"%0: f32[2,3]", "%9 = aten::sum.dim_IntList(%0, ints[7], false, none) : f32[2]", "axis 7 of 2"},
        Misfit{"%0: f32[2,3]", "%9 = aten::amax(%0, ints[1], true) : f32[2]", "its operands give [2,1]"},
        Misfit{"%0: f32[2,3]", "%9 = aten::_softmax(%0, 5, false) : f32[2,3]", "axis 5 of 2"},
        Misfit{"%0: f32[3,3]", "%9, %10 = aten::topk(%0, 50, 1, true, true) : f32[3,50], i64[3,50]", "50 of [3,3]"},
        Misfit{"%0: f32[3,3], %1: i64[3000]", "%9, %10 = aten::nll_loss_forward(%0, %1, none, 1, -100) : f32[], f32[]", "targets [3000] of [3,3]"},
        Misfit{"%0: f32[2,3], %1: f32[9]", "%9, %10, %11 = aten::native_layer_norm(%0, ints[3], %1, none, 1e-05) : f32[2,3], f32[2,1], f32[2,1]", "argument 2 is [9], not [3]"},
        Misfit{"%0: f32[2,6,4], %1: f32[6]", "%9, %10, %11 = aten::native_group_norm(%0, %1, %1, 2, 6, 5, 2, 1e-05) : f32[2,6,4], f32[2,2], f32[2,2]", "another image"},
        Misfit{"%0: f32[1,2,8,4], %1: f32[1,2,9,4], %2: f32[1,2,7,4]", "%9, %10 = aten::_scaled_dot_product_flash_attention_for_cpu(%0, %1, %2, 0.0, false, none, none) : f32[1,2,8,4], f32[1,2,8]", "no queries, keys and values"},
        Misfit{"%0: f32[2,3]", "%9 = aten::permute(%0, ints[1,1]) : f32[3,3]", "is no order"},
        Misfit{"%0: f32[2,3]", "%9 = aten::slice.Tensor(%0, 0, 0, 1000000, 1) : f32[1000000,3]", "its operands give [2,3]"},
        Misfit{"%0: f32[3,3]", "%9 = aten::select.int(%0, 0, 100000000) : f32[3]", "place 100000000 of 3"},
        Misfit{"%0: f32[2,3]", "%9 = aten::expand(%0, ints[100,3], false) : f32[100,3]", "[2,3] expanded to [100,3]"},
        Misfit{"%0: f32[2,3]", "%9 = aten::reshape(%0, ints[100000]) : f32[100000]", "[2,3] as [100000]"},
        Misfit{"%0: f32[3,3]", "%9 = aten::as_strided(%0, ints[3,3], ints[100000,1], 5000000) : f32[3,3]", "element 5200002 of 9"},
        Misfit{"%0: f32[2,3]", "%9 = aten::constant_pad_nd(%0, ints[1,1,1,1,1,1], 0) : f32[4,5]", "beside [2,3]"},
        Misfit{"%0: f32[1,3,3]", "%9 = aten::reflection_pad2d(%0, ints[3,0,0,0]) : f32[1,3,6]", "beside [1,3,3]"},
        Misfit{"%0: f32[2,3]", "%9 = aten::cat([%0, %0], 0) : f32[400000,3]", "its operands give [4,3]"},
        Misfit{"%0: f32[2,3], %1: f32[2,4]", "%9 = aten::cat([%0, %1], 0) : f32[4,3]", "[2,4] beside [2,3]"},
        Misfit{"%0: f32[4,3]", "%9, %10 = aten::split_with_sizes(%0, ints[2,9], 0) : f32[2,3], f32[9,3]", "more than the whole"},
        Misfit{"%0: f32[2,3], %1: i64[5]", "%9 = aten::index_select(%0, 4, %1) : f32[5,3]", "axis 4 of 2"},
        Misfit{"%0: f32[2,3], %1: i64[4,3]", "%9 = aten::gather(%0, 1, %1, false) : f32[4,3]", "[4,3] into [2,3]"},
        Misfit{"%0: f32[4,3], %1: i64[2]", "%9 = aten::index.Tensor(%0, [%1, none, %1]) : f32[2,3]", "3 indices of [4,3]"},
        Misfit{"%0: f32[4,3], %1: i64[2]", "%9 = aten::embedding(%0, %1, -1, false, false) : f32[2,4]", "its operands give [2,3]"},
        Misfit{"%0: f32[2,3]", "%9 = aten::zeros_like(%0, none, none, none, none, none) : f32[2,300]", "its operands give [2,3]"},
        Misfit{"%0: f32[2,3]", "%9, %10 = aten::_foreach_neg([%0]) : f32[2,3], f32[2,3]", "argument 0 lists 1"},
        Misfit{"%0: f32[2,3], %1: f32[9]", "%9, %10, %11 = aten::_fused_sgd([%0], [%0], [%1], 0.0, 0.9, 0.1, 0.0, false, false, false, none, none) : f32[2,3], f32[2,3], f32[9]", "for a parameter of [2,3]"},
        Misfit{"%0: u8[20,30]", "%9 = aten::permute(%0, ints[1,0]) : f64[30,20]", "result 0 of f64 where u8 is kept"},
        Misfit{"%0: u8[20], %1: f64[20]", "%9 = aten::slice_scatter(%0, %1, 0, 0, 20, 1) : u8[20]", "operands of u8 and f64 meet"},
        Misfit{"%0: f32[1,2,4,5,4]", "%9 = aten::_adaptive_avg_pool3d(%0, ints[2,3,2]) : i8[1,2,2,3,2]", "result 0 of i8 where f32 is kept"},
        Misfit{"%0: f32[3,9]", "%9, %10 = aten::topk(%0, 5, 1, true, true) : f32[3,5], u8[3,5]", "places are of i64"},
        Misfit{"%0: f32[2,3], %1: f32[2,3]", "%9 = aten::gather(%0, 1, %1, false) : f32[2,3]", "an index of f32"},
        Misfit{"%0: u8[2,3], %1: f64[2,3]", "%9 = aten::cat([%0, %1], 0) : f64[4,3]", "of one dtype"},
        Misfit{"%0: u8[20,2]", "%9 = aten::view_as_complex(%0) : c64[20]", "c64 is no pair of u8"},
        Misfit{"%0: f32[2,3]", "%9 = aten::mm(3, %0) : f32[3,3]", "no tensor"}));

}  // namespace
}  // namespace lazyt::ir
