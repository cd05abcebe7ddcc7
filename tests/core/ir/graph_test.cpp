#include "ir/graph.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ir/text.h"
#include "ir/verifier.h"

namespace lazyt::ir {
namespace {

Meta f32(base::Dims dims) { return Meta::contiguous(LAZYT_DTYPE_FLOAT32, std::move(dims)); }
Arg v(ValueId id) { return Arg::of_value(id); }

TEST(Arg, ComparesDoublesByTheirBits) {
  EXPECT_FALSE(Arg::of_double(0.0) == Arg::of_double(-0.0));
  EXPECT_TRUE(Arg::of_double(NAN) == Arg::of_double(NAN));
  EXPECT_FALSE(Arg::of_double(NAN) == Arg::of_double(std::bit_cast<double>(uint64_t{0x7ff8000000000001})));
  EXPECT_FALSE(Arg::of_double(1) == Arg::of_int(1));
  EXPECT_TRUE(Arg::of_complex({1, 2}) == Arg::of_complex({1, 2}));
}

TEST(Arg, NamesTheValuesInsideLists) {
  Arg list = Arg::of_list({v(3), Arg::none(), v(5), Arg::of_int(7)});
  std::vector<ValueId> seen;
  for_each_value(list, [&](ValueId id) { seen.push_back(id); });
  EXPECT_EQ(seen, (std::vector<ValueId>{3, 5}));
}

TEST(Graph, GivesANodeConsecutiveResults) {
  Graph g;
  ValueId a = g.add_input(f32({4, 4}));
  NodeId n = g.add_node("aten::max", "dim", {v(a), Arg::of_int(1), Arg::of_bool(false)},
                        {f32({4}), Meta::contiguous(LAZYT_DTYPE_INT64, {4})});
  EXPECT_EQ(g.nodes[n].first_result, 1u);
  EXPECT_EQ(g.values[2].producer, n);
  EXPECT_TRUE(verify(g).ok());
}

TEST(Graph, CompactRenumbersWhatStays) {
  Graph g;
  ValueId a = g.add_input(f32({2}));
  g.add_constant(f32({1}), std::vector<uint8_t>(4));  // nobody reads it
  ValueId dead = g.add_op("aten::neg", "", {v(a)}, f32({2}));
  ValueId k = g.add_constant(f32({2}), std::vector<uint8_t>(8, 1));
  ValueId live = g.add_op("aten::relu", "", {v(k)}, f32({2}));
  g.outputs.push_back({live});
  EXPECT_EQ(dead, 2u);
  g.compact({false, true});
  EXPECT_EQ(print(g),
            "program(%0: f32[2]) {\n"
            "  const %1: f32[2] = hex(0101010101010101)\n"
            "  %2 = aten::relu(%1) : f32[2]\n"
            "  return %2\n"
            "}\n");
  EXPECT_TRUE(verify(g).ok());
}

TEST(Graph, CompactKeepsInputsThatNobodyReads) {
  Graph g;
  g.add_input(f32({2}));
  g.add_host_scalar(LAZYT_DTYPE_FLOAT64, true);
  g.compact({});
  EXPECT_EQ(g.inputs.size(), 2u);
  EXPECT_EQ(g.values.size(), 2u);
}

}  // namespace
}  // namespace lazyt::ir
