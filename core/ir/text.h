// Text form of a program, for people and for test cases. print and parse are inverse.
//
//   program(%0: f32[2,3] donate, %1: f32[2,3]{1,2}, %2: host weak f64) {
//     const %6: f32[2] = hex(0000803f00000040)
//     %3 = aten::add.Tensor(%0, %1, 1) : f32[2,3] overwrite    # model.py:12 in encoder.0
//     %4, %5 = aten::max.dim(%3, 1, false) : f32[2], i64[2]
//     return %4, %5, %3 <- %0
//   }
//
// `donate`: an input that may be donated; `overwrite`: a value that may be overwritten; `<- %0`: the
// output's donor, an input. Strides follow dims in braces where they are not row-major; result types
// always stand after ':'. Arguments: %n value, [%1, none, 2] list, 12, 1.5, 1e-05, inf, nan,
// nan(0x7ff8000000000001), true, none, "text", ints[1,2], doubles[1.5], bools[true], complex(1.0, 2.0),
// dtype(f32), memory_format(0), layout(0), device(0). Values have the numbers that they have in the
// graph: each number from 0 once.
//
// '#' starts a comment up to the line's end. Behind a node, `# file:line` with an optional `in module`
// is the node's source; file and module stand in quotes where they are more than [A-Za-z0-9_./+-].
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::ir {

std::string print(const Graph& graph);
// The form only: verify() says whether the program is right. INVALID_ARGUMENT with line and column.
base::Result<Graph> parse(std::string_view text);

}  // namespace lazyt::ir
