// The smallest proof that programs work: made, written, read, printed, checked, rewritten. Runs in a second.
#include <gtest/gtest.h>

#include "ir/program.h"
#include "ir/registry.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"

namespace lazyt {
namespace {

const char kStep[] =
    "program(%0: f32[4,2] donate, %1: f32[3,4], %2: host weak f64) {\n"
    "  %3 = aten::mm(%1, %0) : f32[3,2]\n"
    "  %4 = aten::t(%1) : f32[4,3]\n"
    "  %5 = aten::mm(%4, %3) : f32[4,2]\n"
    "  %6 = aten::relu(%3) : f32[3,2]\n"
    "  %7 = aten::sub.Tensor(%0, %5, %2) : f32[4,2]  # train.py:7\n"
    "  return %7\n"
    "}\n";

ir::Graph step() { return ir::parse(kStep).value(); }

TEST(Tiny, TextBecomesAGraphAndTextAgain) { EXPECT_EQ(ir::print(step()), kStep); }

TEST(Tiny, AGraphBecomesBytesAndAGraphAgain) {
  auto program = ir::Program::from_graph(step());
  auto copy = ir::Program::from_bytes(program->bytes());
  ASSERT_TRUE(copy.ok()) << copy.status().to_string();
  EXPECT_EQ(ir::print(copy.value()->to_graph()), kStep);
}

TEST(Tiny, TheVerifierTellsRightFromWrong) {
  ir::Graph graph = step();
  EXPECT_EQ(ir::verify(graph).to_string(), "OK");
  graph.nodes[0].args[0].value = 6;
  EXPECT_EQ(ir::verify(graph).code(), LAZYT_CODE_INVALID_ARGUMENT);
}

TEST(Tiny, ThePassesRemoveWhatIsDeadAndDonate) {
  ir::Graph graph = step();
  ASSERT_TRUE(passes::run_pipeline(graph, true).ok());
  EXPECT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.outputs[0].donor, 0u);
}

TEST(Tiny, TheOpsetKnowsItsOperators) {
  ASSERT_NE(ir::find_op("aten::mm", ""), nullptr);
  EXPECT_EQ(ir::find_op("aten::mm_", ""), nullptr);
}

}  // namespace
}  // namespace lazyt
