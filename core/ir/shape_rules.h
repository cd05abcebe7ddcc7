// Shape rules: one a family of operators, for every operator of the opset (a test says so).
#pragma once

#include <string_view>

#include "ir/node_view.h"

namespace lazyt::ir {

// Throws Wrong if the results' dims are not those that the operator gives for its operands'.
using ShapeRule = void (*)(const NodeView&);
// Null if there is none.
ShapeRule find_shape_rule(std::string_view name, std::string_view overload);

}  // namespace lazyt::ir
