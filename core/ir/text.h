// Text form of a program, for people and for test cases. print and parse are inverse.
//
//   program(%0: f32[2,3], %1: f32[3]{1}, %2: host weak f64) {
//     %3 = aten::add.Tensor(%0, %1, 1)            # model.py:12
//     %4, %5 = aten::max.dim(%3, 1, false) : f32[2], i64[2]
//     return %4, %5 <- %1                          (donor: input %1)
//   }
//
// Result types follow ':' always (they are not inferred). Arguments: %n value, [%1, none] list,
// 12, 1.5, 1e-5, inf, nan, true, none, "text", ints[1,2], doubles[..], bools[..], complex(re, im),
// dtype(f32), memory_format(0), layout(0), device(0). Constants are listed before nodes:
//   const %6: f32[2] = hex(0000803f00000040)
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::ir {

std::string print(const Graph& graph);
// INVALID_ARGUMENT with line and column.
base::Result<Graph> parse(std::string_view text);

}  // namespace lazyt::ir
