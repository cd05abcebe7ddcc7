// The random operators of the opset on the host, for a plugin that refuses them: PRG-7 and the rules in ops.toml, word by word.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ir/graph.h"

namespace lazyt::frontend {

// lazyt::uniform and its like; no other operator of the opset is lazyt's own.
inline bool is_draw(const ir::Node& node) { return node.name.starts_with("lazyt::"); }

// The results of a draw. values: CPU tensors, by value of the graph. Throws c10::Error for a name that it does not know.
std::vector<at::Tensor> draw_on_host(const ir::Node& node, const std::vector<at::Tensor>& values);

}  // namespace lazyt::frontend
