#include "partition/partition.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ir/text.h"
#include "ir/verifier.h"

namespace lazyt::partition {
namespace {

ir::Graph parse(const std::string& text) {
  auto graph = ir::parse(text);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? std::move(graph).value() : ir::Graph();
}

// Refuses operators by name.
std::vector<loader::NodeAnswer> refuse(const ir::Graph& graph, const std::set<std::string>& names) {
  std::vector<loader::NodeAnswer> answers(graph.nodes.size());
  for (size_t n = 0; n < answers.size(); n++) {
    answers[n].kind = names.contains(graph.nodes[n].name) ? LAZYT_ANSWER_REFUSE : LAZYT_ANSWER_TAKE;
    if (answers[n].kind == LAZYT_ANSWER_REFUSE) answers[n].reason = LAZYT_REASON_UNKNOWN_OPERATOR;
  }
  return answers;
}

std::string to_text(const Source& source) {
  if (source.segment == Source::kProgram) return "p" + std::to_string(source.index);
  return std::to_string(source.segment) + "." + std::to_string(source.index);
}
std::string to_text(const std::vector<Source>& sources) {
  std::string text;
  for (const Source& source : sources) text += (text.empty() ? "" : " ") + to_text(source);
  return text;
}

// "device(p0 p1): aten::add aten::mul -> 2 | host(0.0): aten::neg -> 1 | return 1.0"
std::string shape(const Partition& partition) {
  std::string text;
  for (const Segment& segment : partition.segments) {
    EXPECT_TRUE(ir::verify(segment.graph).ok()) << ir::verify(segment.graph).to_string();
    EXPECT_EQ(segment.inputs.size(), segment.graph.inputs.size());
    text += std::string(segment.on_host ? "host" : "device") + "(" + to_text(segment.inputs) + "):";
    for (const ir::Node& node : segment.graph.nodes) text += " " + node.name.substr(node.name.find("::") + 2);
    text += " -> " + std::to_string(segment.graph.outputs.size()) + " | ";
  }
  return text + "return " + to_text(partition.outputs);
}

std::string shape(const std::string& text, const std::set<std::string>& refused) {
  const ir::Graph graph = parse(text);
  return shape(cut(graph, refuse(graph, refused)));
}

const char* const kChain = R"(program(%0: f32[2], %1: f32[2]) {
  %2 = aten::add.Tensor(%0, %1, 1) : f32[2]
  %3 = aten::lgamma(%2) : f32[2]
  %4 = aten::mul.Tensor(%3, %2) : f32[2]
  return %4
})";

TEST(Partition, AllTakenIsOneSegment) {
  EXPECT_EQ(shape(kChain, {}), "device(p0 p1): add lgamma mul -> 1 | return 0.0");
  const ir::Graph graph = parse(kChain);
  EXPECT_EQ(ir::print(cut(graph, refuse(graph, {})).segments[0].graph), ir::print(graph));
}

TEST(Partition, AllRefusedIsOneIsland) {
  EXPECT_EQ(shape(kChain, {"aten::add", "aten::lgamma", "aten::mul"}),
            "host(p0 p1): add lgamma mul -> 1 | return 0.0");
}

TEST(Partition, NoAnswersIsARefusal) {
  EXPECT_EQ(shape(cut(parse(kChain), {})), "host(p0 p1): add lgamma mul -> 1 | return 0.0");
}

TEST(Partition, RefusedInTheMiddleMakesThreeSegments) {
  EXPECT_EQ(shape(kChain, {"aten::lgamma"}),
            "device(p0 p1): add -> 1 | host(0.0): lgamma -> 1 | device(1.0 0.0): mul -> 1 | return 2.0");
}

TEST(Partition, RefusedFirstAndLastNeedNoEmptySegments) {
  EXPECT_EQ(shape(kChain, {"aten::add"}),
            "host(p0 p1): add -> 1 | device(0.0): lgamma mul -> 1 | return 1.0");
  EXPECT_EQ(shape(kChain, {"aten::mul"}),
            "device(p0 p1): add lgamma -> 2 | host(0.0 0.1): mul -> 1 | return 1.0");
}

TEST(Partition, WhatDoesNotDependOnTheIslandStaysBeforeIt) {
  EXPECT_EQ(shape(R"(program(%0: f32[2]) {
    %1 = aten::neg(%0) : f32[2]
    %2 = aten::lgamma(%1) : f32[2]
    %3 = aten::exp(%0) : f32[2]
    %4 = aten::mul.Tensor(%2, %3) : f32[2]
    return %4
  })",
                  {"aten::lgamma"}),
            "device(p0): neg exp -> 2 | host(0.0): lgamma -> 1 | device(1.0 0.1): mul -> 1 | return 2.0");
}

TEST(Partition, StartsOnTheHostWhereThatSavesASegment) {
  EXPECT_EQ(shape(R"(program(%0: f32[2]) {
    %1 = aten::exp(%0) : f32[2]
    %2 = aten::lgamma(%0) : f32[2]
    %3 = aten::mul.Tensor(%1, %2) : f32[2]
    return %3
  })",
                  {"aten::lgamma"}),
            "host(p0): lgamma -> 1 | device(p0 0.0): exp mul -> 1 | return 1.0");
}

TEST(Partition, RefusedBranchesOfADiamondShareAnIsland) {
  EXPECT_EQ(shape(R"(program(%0: f32[2]) {
    %1 = aten::neg(%0) : f32[2]
    %2 = aten::lgamma(%1) : f32[2]
    %3 = aten::exp(%1) : f32[2]
    %4 = aten::digamma(%1) : f32[2]
    %5 = aten::add.Tensor(%2, %3, 1) : f32[2]
    %6 = aten::add.Tensor(%5, %4, 1) : f32[2]
    return %6
  })",
                  {"aten::lgamma", "aten::digamma"}),
            "device(p0): neg exp -> 2 | host(0.0): lgamma digamma -> 2 | device(1.0 0.1 1.1): add add -> 1 | "
            "return 2.0");
}

TEST(Partition, AnIslandsResultUsedByTwoSegmentsIsOneOutput) {
  EXPECT_EQ(
      shape(R"(program(%0: f32[2]) {
    %1 = aten::lgamma(%0) : f32[2]
    %2 = aten::neg(%1) : f32[2]
    %3 = aten::lgamma(%2) : f32[2]
    %4 = aten::mul.Tensor(%3, %1) : f32[2]
    return %4, %1
  })",
            {"aten::lgamma"}),
      "host(p0): lgamma -> 1 | device(0.0): neg -> 1 | host(1.0): lgamma -> 1 | device(2.0 0.0): mul -> 1 | "
      "return 3.0 0.0");
}

TEST(Partition, AGroupStaysInOneSegment) {
  const ir::Graph graph = parse(R"(program(%0: f32[2]) {
    %1 = aten::exp(%0) : f32[2]
    %2 = aten::neg(%0) : f32[2]
    %3 = aten::lgamma(%2) : f32[2]
    %4 = aten::mul.Tensor(%1, %3) : f32[2]
    return %4
  })");
  auto answers = refuse(graph, {"aten::lgamma"});
  answers[0].group = answers[3].group = 7;
  EXPECT_EQ(shape(cut(graph, answers)),
            "device(p0): neg -> 1 | host(0.0): lgamma -> 1 | device(p0 1.0): exp mul -> 1 | return 2.0");
}

TEST(Partition, AGroupThatNeedsItselfThroughTheHostIsCut) {
  const ir::Graph graph = parse(kChain);
  auto answers = refuse(graph, {"aten::lgamma"});
  answers[0].group = answers[2].group = 1;
  EXPECT_EQ(shape(cut(graph, answers)),
            "device(p0 p1): add -> 1 | host(0.0): lgamma -> 1 | device(1.0 0.0): mul -> 1 | return 2.0");
}

TEST(Partition, AnInputMayBeAnOutput) {
  EXPECT_EQ(
      shape("program(%0: f32[2], %1: f32[2]) {\n %2 = aten::neg(%1) : f32[2]\n return %0, %2, %0\n}", {}),
      "device(p1): neg -> 1 | return p0 0.0 p0");
  EXPECT_EQ(shape("program(%0: f32[2]) {\n return %0\n}", {}), "return p0");
}

TEST(Partition, AConstantMayBeAnOutput) {
  EXPECT_EQ(shape("program() {\n const %0: f32[1] = hex(0000803f)\n return %0, %0\n}", {}),
            "host(): -> 1 | return 0.0 0.0");
}

TEST(Partition, EachSegmentGetsTheHostScalarsAndConstantsItReads) {
  const ir::Graph graph = parse(R"(program(%0: f32[1], %1: host weak f64) {
    const %2: f32[1] = hex(0000803f)
    %3 = aten::add.Tensor(%0, %2, %1) : f32[1]
    %4 = aten::lgamma(%3) : f32[1]
    %5 = aten::add.Tensor(%4, %2, %1) : f32[1]
    return %5
  })");
  const Partition partition = cut(graph, refuse(graph, {"aten::lgamma"}));
  EXPECT_EQ(shape(partition),
            "device(p0 p1): add -> 1 | host(0.0): lgamma -> 1 | device(1.0 p1): add -> 1 | return 2.0");
  for (const int s : {0, 2}) {
    EXPECT_EQ(partition.segments[s].graph.constants.size(), 1u);
    const auto scalar = partition.segments[s].graph.inputs[1].value;
    EXPECT_EQ(partition.segments[s].graph.values[scalar].kind, ir::ValueKind::kHostScalar);
    EXPECT_TRUE(partition.segments[s].graph.values[scalar].weak);
  }
}

TEST(Partition, OnlyIfConstantArgsHoldsWithoutHostScalars) {
  const auto answers_for = [](const ir::Graph& graph, lazyt_condition_t condition) {
    std::vector<loader::NodeAnswer> answers(graph.nodes.size());
    for (auto& answer : answers) answer.kind = LAZYT_ANSWER_ONLY_IF, answer.condition = condition;
    return answers;
  };
  const ir::Graph constant = parse(kChain);
  EXPECT_EQ(cut(constant, answers_for(constant, LAZYT_CONDITION_CONSTANT_ARGS)).refusals.size(), 0u);
  EXPECT_EQ(cut(constant, answers_for(constant, LAZYT_CONDITION_STATIC_DIMS)).refusals.size(), 0u);
  EXPECT_EQ(cut(constant, answers_for(constant, 99)).refusals.size(), 3u);
  const ir::Graph scalar = parse(R"(program(%0: f32[1], %1: host weak f64) {
    %2 = aten::add.Tensor(%0, %0, %1) : f32[1]
    return %2
  })");
  const Partition partition = cut(scalar, answers_for(scalar, LAZYT_CONDITION_CONSTANT_ARGS));
  ASSERT_EQ(partition.refusals.size(), 1u);
  EXPECT_EQ(partition.refusals[0].reason, "only-if constant-args");
}

TEST(Partition, RefusalsSayWhatWhyAndWhere) {
  ir::Graph graph = parse(R"(program(%0: f32[2]) {
    %1 = aten::neg(%0) : f32[2]
    %2 = aten::lgamma(%1) : f32[2]
    return %2
  })");
  graph.nodes[1].source = std::make_shared<ir::SourceLine>(ir::SourceLine{"model.py", "", 12});
  auto answers = refuse(graph, {"aten::lgamma"});
  answers[1].detail = "no kernel";
  const Partition partition = cut(graph, answers);
  ASSERT_EQ(partition.refusals.size(), 1u);
  EXPECT_EQ(partition.refusals[0].op, "aten::lgamma");
  EXPECT_EQ(partition.refusals[0].reason, "unknown-operator: no kernel");
  EXPECT_EQ(partition.refusals[0].line, "model.py:12");
  EXPECT_EQ(partition.refusals[0].segment, 1u);
}

TEST(Partition, ADonorStaysWithItsOutput) {
  const std::string program = R"(program(%0: f32[2], %1: f32[2]) {
    %2 = aten::lgamma(%1) : f32[2]
    %3 = aten::add.Tensor(%0, %2, 1) : f32[2]
    return %3 <- %0
  })";
  const ir::Graph graph = parse(program);
  const Partition partition = cut(graph, refuse(graph, {"aten::lgamma"}));
  const ir::Graph& last = partition.segments[1].graph;
  EXPECT_EQ(to_text(partition.segments[1].inputs), "p0 0.0");
  EXPECT_EQ(last.outputs[0].donor, 0u);
  EXPECT_TRUE(last.inputs[0].may_donate);
  // An island writes to new memory.
  EXPECT_EQ(cut(graph, refuse(graph, {"aten::add"})).segments[1].graph.outputs[0].donor, ir::kNone);
}

TEST(Partition, ADonorReadLaterIsDropped) {
  const ir::Graph graph = parse(R"(program(%0: f32[2]) {
    %1 = aten::neg(%0) : f32[2]
    %2 = aten::lgamma(%1) : f32[2]
    %3 = aten::add.Tensor(%0, %2, 1) : f32[2]
    return %1 <- %0, %3
  })");
  const Partition partition = cut(graph, refuse(graph, {"aten::lgamma"}));
  EXPECT_EQ(partition.segments[0].graph.outputs[0].donor, ir::kNone);
  EXPECT_FALSE(partition.segments[0].graph.inputs[0].may_donate);
}

TEST(Partition, StridesThatWereOnlyAHintBecomeDenseWhereAValueCrosses) {
  const ir::Graph graph = parse(R"(program(%0: f32[1,2]) {
    %1 = aten::expand(%0, ints[3,2], false) : f32[3,2]{0,1}
    %2 = aten::lgamma(%1) : f32[3,2]
    return %2
  })");
  const Partition partition = cut(graph, refuse(graph, {"aten::lgamma"}));
  const ir::Graph& first = partition.segments[0].graph;
  const ir::Graph& second = partition.segments[1].graph;
  EXPECT_EQ(first.values[first.outputs[0].value].meta.strides, (base::Dims{2, 1}));
  EXPECT_EQ(second.values[second.inputs[0].value].meta.strides, (base::Dims{2, 1}));
}

TEST(Partition, DepthIsData) {
  ir::Graph graph;
  const auto meta = ir::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {1});
  ir::ValueId v = graph.add_input(meta);
  for (int i = 0; i < 20'000; i++)
    v = graph.add_op(i % 100 ? "aten::neg" : "aten::lgamma", "", {ir::Arg::of_value(v)}, meta);
  graph.outputs.push_back({v});
  EXPECT_EQ(cut(graph, refuse(graph, {"aten::lgamma"})).segments.size(), 400u);
}

// ---- pieces

std::string pieces(const std::string& text, uint64_t bytes, std::vector<uint32_t> groups = {}) {
  const ir::Graph graph = parse(text);
  auto answers = refuse(graph, {});
  for (size_t n = 0; n < groups.size(); n++) answers[n].group = groups[n];
  return shape(cut(graph, answers, bytes));
}

// `count` layers of a product with a matrix, of 64 bytes if it is 4 wide, and what follows it. rows: of what goes through them.
std::string layers(int count, int rows = 1, int width = 4) {
  std::string text = "program(%0: f32[R,W]";
  for (int i = 1; i <= count; i++) text += ", %" + std::to_string(i) + ": f32[W,W]";
  text += ") {\n";
  int last = 0, next = count + 1;
  for (int i = 1; i <= count; i++, next += 2) {
    text += "%" + std::to_string(next) + " = aten::mm(%" + std::to_string(last) + ", %" + std::to_string(i) + ") : f32[R,W]\n";
    text += "%" + std::to_string(next + 1) + " = aten::relu(%" + std::to_string(next) + ") : f32[R,W]\n";
    last = next + 1;
  }
  text += "return %" + std::to_string(last) + "\n}";
  for (size_t at; (at = text.find('R')) != std::string::npos;) text.replace(at, 1, std::to_string(rows));
  for (size_t at; (at = text.find('W')) != std::string::npos;) text.replace(at, 1, std::to_string(width));
  return text;
}

TEST(Pieces, ACutStandsBeforeTheNextWeightsAreRead) {
  EXPECT_EQ(pieces(layers(3), 64),
            "device(p0 p1): mm relu -> 1 | device(0.0 p2): mm relu -> 1 | device(1.0 p3): mm relu -> 1 | return 2.0");
}

TEST(Pieces, TheFirstIsSmaller) {
  EXPECT_EQ(pieces(layers(5), 128),
            "device(p0 p1): mm relu -> 1 | device(0.0 p2 p3): mm relu mm relu -> 1 | device(1.0 p4 p5): mm relu mm relu -> 1 | return 2.0");
}

TEST(Pieces, SmallProgramsStayWhole) {
  EXPECT_EQ(pieces(layers(2), 1000), shape(layers(2), {}));
  EXPECT_EQ(pieces(layers(2), 0), shape(layers(2), {}));
  EXPECT_EQ(pieces(layers(1), 1), shape(layers(1), {}));
  EXPECT_EQ(pieces(layers(3), 130), shape(layers(3), {}));  // a layer reads 64: less than two pieces in all
}

TEST(Pieces, TheLastIsNoSmallRest) {
  // Behind four layers of 64 there would be less than half of a piece.
  EXPECT_EQ(pieces(layers(5), 130),
            "device(p0 p1): mm relu -> 1 | device(0.0 p2 p3 p4 p5): mm relu mm relu mm relu mm relu -> 1 | return 1.0");
}

TEST(Pieces, NothingIsCutWhereMuchCrosses) {
  const std::string some = layers(2, 256, 64), more = layers(2, 257, 64);  // 64 KiB, and a row more
  EXPECT_EQ(pieces(some, 16384), "device(p0 p1): mm relu -> 1 | device(0.0 p2): mm relu -> 1 | return 1.0");
  EXPECT_EQ(pieces(more, 16384), shape(more, {}));
}

TEST(Pieces, OfPlacesNearTheOneThatLeastCrosses) {
  // Within the layer its input crosses, too.
  const std::string layer = R"(program(%0: f32[1,4], %1: f32[4,4], %2: f32[4,4], %3: f32[4,4]) {
    %4 = aten::mm(%0, %1) : f32[1,4]
    %5 = aten::relu(%4) : f32[1,4]
    %6 = aten::mm(%5, %2) : f32[1,4]
    %7 = aten::add.Tensor(%6, %4, 1) : f32[1,4]
    %8 = aten::mm(%7, %3) : f32[1,4]
    return %8
  })";
  EXPECT_EQ(pieces(layer, 64), "device(p0 p1 p2): mm relu mm add -> 1 | device(0.0 p3): mm -> 1 | return 1.0");
}

TEST(Pieces, WhatFollowsAProductStaysWithIt) {
  // The norm's numbers are read first, too, but they are few.
  const std::string norms = R"(program(%0: f32[1,16], %1: f32[16,16], %2: f32[16], %3: f32[16,16], %4: f32[16]) {
    %5 = aten::mm(%0, %1) : f32[1,16]
    %6 = aten::mul.Tensor(%5, %2) : f32[1,16]
    %7 = aten::mm(%6, %3) : f32[1,16]
    %8 = aten::mul.Tensor(%7, %4) : f32[1,16]
    return %8
  })";
  EXPECT_EQ(pieces(norms, 1024), "device(p0 p1 p2): mm mul -> 1 | device(0.0 p3 p4): mm mul -> 1 | return 1.0");
}

TEST(Pieces, ConvolutionsKeepTheirLayouts) {
  const std::string convolutions = R"(program(%0: f32[1,4,4,4], %1: f32[4,4,3,3], %2: f32[4,4,3,3]) {
    %3 = aten::convolution(%0, %1, none, [1,1], [1,1], [1,1], false, [0,0], 1) : f32[1,4,4,4]
    %4 = aten::convolution(%3, %2, none, [1,1], [1,1], [1,1], false, [0,0], 1) : f32[1,4,4,4]
    return %4
  })";
  EXPECT_EQ(pieces(convolutions, 512), shape(convolutions, {}));
}

TEST(Pieces, WhatThePluginWantsTogetherStaysSo) {
  EXPECT_EQ(pieces(layers(3), 64, {0, 7, 7, 0, 0, 0}), "device(p0 p1 p2): mm relu mm relu -> 1 | device(0.0 p3): mm relu -> 1 | return 1.0");
}

TEST(Pieces, ATableOfWhichRowsAreTakenIsNoWeight) {
  const std::string token = R"(program(%0: i64[1], %1: f32[1000,4], %2: f32[4,4], %3: f32[4,4]) {
    %4 = aten::embedding(%1, %0, -1, false, false) : f32[1,4]
    %5 = aten::mm(%4, %2) : f32[1,4]
    %6 = aten::mm(%5, %3) : f32[1,4]
    return %6
  })";
  EXPECT_EQ(pieces(token, 64), "device(p1 p0 p2): embedding mm -> 1 | device(0.0 p3): mm -> 1 | return 1.0");
}

TEST(Pieces, ThereAreAtMostSixteen) {
  const ir::Graph graph = parse(layers(100));
  const Partition partition = cut(graph, refuse(graph, {}), 64);
  EXPECT_LE(partition.segments.size(), 16u);
  EXPECT_GE(partition.segments.size(), 12u);
}

TEST(Pieces, WhatIsRefusedIsCutByThatAlone) {
  const ir::Graph graph = parse(layers(3));
  EXPECT_EQ(shape(cut(graph, refuse(graph, {"aten::relu"}), 64)), shape(layers(3), {"aten::relu"}));
}

}  // namespace
}  // namespace lazyt::partition
