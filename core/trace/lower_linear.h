// aten::linear and its gradients as the products that PyTorch's composite calls one by one.
#pragma once

#include <vector>

#include "trace/nodes.h"

namespace lazyt::trace {

// (input [..., in], weight [out, in], bias? [out]) -> [..., out]
std::vector<ir::ValueId> lower_linear(const Nodes& nodes, const std::vector<ir::Arg>& args, const std::vector<base::Meta>& results);

// (input?, grad [..., out], weight?, mask) -> gradients of input, weight and bias; kNone for those that the mask leaves out.
// The gradient of input does not need input, that of weight does not need weight.
std::vector<ir::ValueId> lower_linear_backward(const Nodes& nodes, const std::vector<ir::Arg>& args, const std::vector<base::Meta>& results);

}  // namespace lazyt::trace
