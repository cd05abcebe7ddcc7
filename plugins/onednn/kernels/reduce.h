// Reductions that fused kernels end in.
#pragma once

#include "fused.h"

namespace lazyt::onednn {

bool is_reduction(lazyt_op_t op);
// Which dims of operand 0 the node reduces.
std::vector<bool> reduced_dims(const ProgramView& program, const lazyt_node_t& node);
// x: operand 0. out: as FusedKernel::reduce wants it. Throws UNIMPLEMENTED for what the kernels lack.
void emit_reduction(const ProgramView& program, const lazyt_node_t& node, FusedKernel& k, Reg x,
                    const Tensor& out);

}  // namespace lazyt::onednn
