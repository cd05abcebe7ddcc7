// Dtype rules: where a kernel must know the width of an element before it reads. Most convert what they read.
#pragma once

#include "ir/node_view.h"
#include "ir/registry.h"

namespace lazyt::ir {

// Both throw Wrong.

// What is moved or multiplied keeps its dtype, an index is one, what is joined is of one dtype.
void check_dtypes(const NodeView& v);
// Tensors that are cast to one dtype before they meet (PRG-4) have it.
void check_promotion(const NodeView& v, const OpInfo& op);

}  // namespace lazyt::ir
