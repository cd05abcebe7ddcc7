#include "ir/verifier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "ir/program.h"
#include "ir/text.h"
#include "samples.h"

namespace lazyt::ir {
namespace {

std::string refusal(const Graph& g) {
  base::Status s = verify(g);
  EXPECT_EQ(s.code(), LAZYT_CODE_INVALID_ARGUMENT);
  return std::string(s.message());
}
std::string refusal(const std::string& text) {
  auto g = parse(text);
  EXPECT_TRUE(g.ok()) << g.status().to_string();
  return refusal(g.value());
}
void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Verifier, TakesAProgramThatSaysEverything) { EXPECT_EQ(verify(sample_graph()).to_string(), "OK"); }

TEST(Verifier, RefusesUseBeforeProduction) {
  expect_has(
      refusal("program(%0: f32[1]) { %1 = aten::neg(%2) : f32[1] %2 = aten::neg(%0) : f32[1] return %1 }"),
      "%2 comes later");
}
TEST(Verifier, RefusesInPlaceAndOutOperators) {
  expect_has(refusal("program(%0: f32[1]) { %1 = aten::relu_(%0) : f32[1] return %1 }"), "PRG-1");
  expect_has(refusal("program(%0: f32[1]) { %1 = aten::neg.out(%0, %0) : f32[1] return %1 }"), "PRG-1");
}
TEST(Verifier, RefusesNegativeDims) { expect_has(refusal("program(%0: f32[-1]) { return %0 }"), "PRG-5"); }
TEST(Verifier, RefusesNegativeAxes) {
  expect_has(refusal("program(%0: f32[2,2]) { %1 = aten::unsqueeze(%0, -1) : f32[2,2,1] return %1 }"),
             "PRG-5");
  expect_has(refusal("program(%0: f32[2,2]) { %1 = aten::permute(%0, ints[0,-1]) : f32[2,2] return %1 }"),
             "PRG-5");
}
TEST(Verifier, RefusesLeftOutDefaults) {
  expect_has(refusal("program(%0: f32[1]) { %1 = aten::add.Tensor(%0, %0) : f32[1] return %1 }"),
             "2 arguments, its schema has 3");
}
TEST(Verifier, RefusesMissingResults) {
  expect_has(refusal("program(%0: f32[1]) { %1 = aten::max.dim(%0, 0, false) : f32[] return %1 }"),
             "1 results, its schema has 2");
}
TEST(Verifier, RefusesHostScalarsWhereANumberChoosesTheKernel) {
  expect_has(refusal("program(%0: f32[1], %1: host weak f64) {"
                     " %2 = aten::norm.Scalar(%0, %1) : f32[] return %2 }"),
             "must be a number");
}
TEST(Verifier, WantsSeedAndOffsetAsHostScalars) {
  expect_has(refusal("program(%0: f32[1]) { %1 = lazyt::bernoulli(%0, 1, 2) : f32[1] return %1 }"), "PRG-7");
}
TEST(Verifier, RefusesDonorsThatLieOtherwise) {
  expect_has(
      refusal(
          "program(%0: f32[2] donate) { %1 = aten::_to_copy(%0, dtype(f16), none, none, none, false, none)"
          " : f16[2] return %1 <- %0 }"),
      "PRG-8");
}
TEST(Verifier, RefusesDonorsThatMayNotBeDonatedOrTwice) {
  expect_has(refusal("program(%0: f32[2]) { %1 = aten::neg(%0) : f32[2] return %1 <- %0 }"),
             "may not be donated");
  expect_has(refusal("program(%0: f32[2] donate) { %1 = aten::neg(%0) : f32[2] %2 = aten::abs(%0) : f32[2]"
                     " return %1 <- %0, %2 <- %0 }"),
             "donated twice");
}
TEST(Verifier, RefusesOutputsThatMayBeOverwritten) {
  expect_has(refusal("program(%0: f32[2]) { %1 = aten::neg(%0) : f32[2] overwrite return %1 }"),
             "read after");
}
TEST(Verifier, RefusesConstantsOfAnotherSize) {
  expect_has(refusal("program() { const %0: f32[2] = hex(00) return %0 }"), "wants 8");
}
TEST(Verifier, RefusesMetasThatOverflow) {
  Graph g;
  g.add_input({LAZYT_DTYPE_FLOAT32, {INT64_MAX, 4}, {1, 1}});
  expect_has(refusal(g), "2^63");
  g.values[0].meta = {LAZYT_DTYPE_FLOAT32, {INT64_MAX / 2}, {1}};
  expect_has(refusal(g), "2^63");
  g.values[0].meta = {LAZYT_DTYPE_FLOAT32, {3}, {INT64_MAX}};
  expect_has(refusal(g), "2^63");
}
TEST(Verifier, RefusesUnknownDtypes) {
  Graph g;
  g.add_input(Meta::contiguous(99, {1}));
  expect_has(refusal(g), "dtype 99");
}
TEST(Verifier, RefusesValuesThatNobodyMakes) {
  Graph g = sample_graph();
  g.values.push_back(g.values[0]);
  expect_has(refusal(g), "is no input, no constant");
}
TEST(Verifier, RefusesIndicesOutOfRange) {
  Graph g = sample_graph();
  g.nodes[0].args[0].value = 1000;
  expect_has(refusal(g), "no value %1000");
  g = sample_graph();
  g.nodes[2].result_count = 1000;
  refusal(g);
  g = sample_graph();
  g.outputs[0].value = kNone;
  refusal(g);
}

// Changes one field of a good block; the result must be DATA_LOSS with this word in it.
void expect_damage(const std::string& word, const std::function<void(lazyt_program_t*)>& change) {
  auto program = Program::from_graph(sample_graph());
  std::vector<uint64_t> words(program->bytes().size() / 8);
  std::memcpy(words.data(), program->bytes().data(), program->bytes().size());
  auto* block = reinterpret_cast<lazyt_program_t*>(words.data());
  change(block);
  base::Status s = verify({reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8});
  EXPECT_EQ(s.code(), LAZYT_CODE_DATA_LOSS) << word;
  expect_has(std::string(s.message()), word);
}
template <class T>
T* edit(const T* record) {
  return const_cast<T*>(record);
}

TEST(BlockVerifier, RefusesHeadersThatLie) {
  expect_damage("magic", [](auto* p) { p->magic = 0; });
  expect_damage("format", [](auto* p) { p->format = 2; });
  expect_damage("total_size", [](auto* p) { p->total_size += 8; });
  expect_damage("header_size", [](auto* p) { p->header_size = 8; });
  expect_damage("flags", [](auto* p) { p->flags |= uint64_t{1} << 40; });
  expect_damage("symbolic", [](auto* p) { p->exprs.count = 1, p->exprs.offset = p->values.offset; });
}
TEST(BlockVerifier, RefusesTablesOutsideTheBlock) {
  expect_damage("values", [](auto* p) { p->values.count = UINT64_MAX / 24 + 2; });
  expect_damage("nodes", [](auto* p) { p->nodes.offset = UINT64_MAX - 7; });
  expect_damage("args", [](auto* p) { p->args.stride = 8; });
  expect_damage("args", [](auto* p) { p->args.stride = UINT64_MAX - 7; });
  expect_damage("ints", [](auto* p) { p->ints.offset += 4; });
  expect_damage("strings", [](auto* p) { p->strings.count = p->total_size; });
}
TEST(BlockVerifier, RefusesIndicesOutsideTheirTable) {
  expect_damage("value 0", [](auto* p) { edit(lazyt_value(p, 0))->dims = 1u << 30; });
  expect_damage("value 0", [](auto* p) { edit(lazyt_value(p, 0))->rank = UINT32_MAX; });
  expect_damage("node 0", [](auto* p) { edit(lazyt_node(p, 0))->args = UINT32_MAX; });
  expect_damage("node 0", [](auto* p) { edit(lazyt_node(p, 0))->name.start = UINT32_MAX; });
  expect_damage("node 0", [](auto* p) { edit(lazyt_node(p, 0))->results = UINT32_MAX; });
  expect_damage("node 0", [](auto* p) { edit(lazyt_node(p, 0))->note = 77; });
  expect_damage("arg 0", [](auto* p) { edit(lazyt_arg(p, 0))->payload = UINT64_MAX; });
  expect_damage("arg 0", [](auto* p) { edit(lazyt_arg(p, 0))->kind = 99; });
  expect_damage("input 0", [](auto* p) { edit(lazyt_input(p, 0))->value = 99; });
  expect_damage("output 0", [](auto* p) { edit(lazyt_output(p, 0))->donor = 99; });
  expect_damage("constant 0", [](auto* p) { edit(lazyt_constant(p, 0))->offset = UINT64_MAX - 1; });
}
TEST(BlockVerifier, RefusesRecordsThatContradictEachOther) {
  expect_damage("producer", [](auto* p) { edit(lazyt_value(p, lazyt_node(p, 0)->results))->producer = 2; });
  expect_damage("twice", [](auto* p) { edit(lazyt_node(p, 1))->results = lazyt_node(p, 0)->results; });
  expect_damage("something else", [](auto* p) { edit(lazyt_input(p, 1))->value = lazyt_input(p, 0)->value; });
  expect_damage("number", [](auto* p) { edit(lazyt_node(p, 0))->op++; });
  expect_damage("version", [](auto* p) { edit(lazyt_node(p, 0))->op_version = 9; });
  expect_damage("HAS_RANDOM", [](auto* p) { p->flags = 0; });
  expect_damage("hash", [](auto* p) { edit(lazyt_constant(p, 0))->hash[3] ^= 1; });
}
TEST(BlockVerifier, RefusesListsThatShareTheirElements) {
  // A small file in which many lists name the same elements would become a large graph.
  expect_damage("share", [](auto* p) {
    for (uint64_t i = 0; i < 4; i++) {
      lazyt_arg_t* a = edit(lazyt_arg(p, i));
      a->kind = LAZYT_ARG_LIST, a->payload = 4, a->count = static_cast<uint32_t>(p->args.count - 4);
    }
    for (uint64_t i = 4; i < p->args.count; i++) edit(lazyt_arg(p, i))->kind = LAZYT_ARG_NONE;
  });
}
TEST(BlockVerifier, RefusesListsInLists) {
  expect_damage("list of lists", [](auto* p) {
    lazyt_arg_t* a = edit(lazyt_arg(p, 0));
    a->kind = LAZYT_ARG_LIST, a->payload = 0, a->count = 1;
  });
}
TEST(BlockVerifier, RefusesBytesThatAreNotAligned) {
  auto program = Program::from_graph(sample_graph());
  EXPECT_EQ(verify(program->bytes().subspan(4)).code(), LAZYT_CODE_DATA_LOSS);
  EXPECT_EQ(verify(std::span<const uint8_t>()).code(), LAZYT_CODE_DATA_LOSS);
}

}  // namespace
}  // namespace lazyt::ir
