#include "ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "samples.h"

namespace lazyt::ir {
namespace {

std::string error_of(std::string_view text) {
  auto g = parse(text);
  EXPECT_FALSE(g.ok());
  return g.ok() ? "" : std::string(g.status().message());
}

TEST(Text, ReadsBackWhatItPrints) {
  std::string text = print(sample_graph());
  auto back = parse(text);
  ASSERT_TRUE(back.ok()) << back.status().to_string() << "\n" << text;
  EXPECT_EQ(print(back.value()), text);
  const Graph &a = back.value(), b = sample_graph();
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t n = 0; n < a.nodes.size(); n++) EXPECT_EQ(a.nodes[n].args, b.nodes[n].args);
  for (size_t v = 0; v < a.values.size(); v++) EXPECT_EQ(a.values[v].meta, b.values[v].meta);
  EXPECT_EQ(a.nodes[0].source->file, "train me.py");
  EXPECT_EQ(a.nodes[0].source->module, "encoder.0");
  EXPECT_EQ(a.nodes[0].source->line, 12u);
}

TEST(Text, KeepsEveryDouble) {
  for (double d :
       std::vector<double>{0.0, -0.0, 1.0, -1.0, 0.1, 1e16, 1e-5, 5e-324, 1.7976931348623157e308, INFINITY,
                           -INFINITY, NAN, -NAN, std::bit_cast<double>(uint64_t{0x7ff0000000000001})}) {
    Graph g;
    g.add_node("mylib::f", "", {Arg::of_double(d), Arg::of_doubles({d}), Arg::of_complex({d, d})}, {});
    auto back = parse(print(g));
    ASSERT_TRUE(back.ok()) << print(g) << back.status().to_string();
    EXPECT_EQ(back.value().nodes[0].args, g.nodes[0].args) << print(g);
  }
}

TEST(Text, TellsIntegersFromDoubles) {
  auto g = parse("program() { mylib::f(1, 1.0, 1e0, -7) return }");
  ASSERT_TRUE(g.ok());
  const auto& args = g.value().nodes[0].args;
  EXPECT_EQ(args[0].kind, LAZYT_ARG_INT);
  EXPECT_EQ(args[1].kind, LAZYT_ARG_DOUBLE);
  EXPECT_EQ(args[2].kind, LAZYT_ARG_DOUBLE);
  EXPECT_EQ(args[3].i, -7);
}

TEST(Text, PassesOverComments) {
  auto g = parse(
      "# a case\nprogram(%0: f32[]) { # in\n %1 = aten::neg(%0) : f32[]\n # not: a source\n return %1\n}\n");
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_EQ(g.value().nodes[0].source, nullptr);
}

TEST(Text, NamesLineAndColumnOfAnError) {
  EXPECT_NE(error_of("program() {\n  return %0,\n}").find("line 3, column 1"), std::string::npos);
  EXPECT_NE(error_of("program(%0: f31[1]) { return }").find("column 13: expected a dtype"),
            std::string::npos);
}

TEST(Text, RefusesWhatIsNoProgram) {
  for (const char* text :
       {"", "program", "program(", "program() {", "program() { return", "program() { return } more",
        "program(%0: f32[1], %0: f32[1]) { return }", "program(%1: f32[1]) { return }",
        "program(%0: f32[1]) { %1, %3 = a::b(%0) : f32[1], f32[1] return }", "program() { a::b(\"x) return }",
        "program() { a::b(99999999999999999999) return }", "program() { a::b([[1]]) return }",
        "program() { const %0: f32[1] = hex(0) return }",
        "program(%0: f32[1]) { %1 = a::b(%0) : f32[1] return %1 <- %1 }",
        "program(%0: f32[4294967296,4294967296]) { return }"})
    error_of(text);
}

TEST(Text, CutAnywhereIsAnErrorNeverACrash) {
  std::string text = print(sample_graph());
  while (text.ends_with('\n') || text.ends_with('}')) text.pop_back();
  for (size_t i = 0; i < text.size(); i++) error_of(std::string_view(text).substr(0, i));
}

}  // namespace
}  // namespace lazyt::ir
