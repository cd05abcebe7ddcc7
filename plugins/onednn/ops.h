// Which operators the plugin takes, and how each is lowered.
#pragma once

#include <string>
#include <string_view>

#include "compile.h"

namespace lazyt::onednn {

// Why a node is not taken; kind NONE = it is.
struct Refusal {
  lazyt_reason_t reason = LAZYT_REASON_NONE;
  std::string detail;
};

// The same question for capability and for compile (CAP-2): both ask here.
using Accept = Refusal (*)(const ProgramView& program, const lazyt_node_t& node);
// Emits the steps of one node and says where its results lie.
using Lower = void (*)(Builder& b, const lazyt_node_t& node);

struct Operator {
  toolkit::Role role = toolkit::Role::kOpaque;
  Accept accept = nullptr;
  Lower lower = nullptr;  // of kOpaque
};

// Null for an operator that this plugin does not know. Operators outside the opset are known by name.
const Operator* find_operator(const ProgramView& program, const lazyt_node_t& node);
// For a Register function: an operator outside the opset, "aten::view.dtype".
void add_named(std::string full_name, Operator entry);

// Each kernel file tells the table its operators.
using Register = void (*)(lazyt_op_t op, Operator entry);
void register_pointwise(Register add);
void register_reduce(Register add);
void register_copy(Register add);    // cat, pad, scatters of views, roll, repeat, ...
void register_random(Register add);
void register_matmul(Register add);  // oneDNN: mm, bmm, addmm, baddbmm, linear, ...
void register_conv(Register add);    // oneDNN: convolution and its backward
void register_pool(Register add);    // oneDNN pooling; adaptive, upsample
void register_norm(Register add);    // batch, layer, group, RMS norm and their backwards
void register_softmax(Register add); // (log) softmax and backwards
void register_loss(Register add);    // nll and the like
void register_index(Register add);   // gather, scatter, index, embedding and their backwards
void register_attention(Register add);

// Common answers.
Refusal accept_floats(const ProgramView& program, const lazyt_node_t& node);  // every tensor f32, f64, f16 or bf16
Refusal accept_f32(const ProgramView& program, const lazyt_node_t& node);     // every floating tensor f32; others any
Refusal accept_known(const ProgramView& program, const lazyt_node_t& node);   // every dtype one that registers hold
Refusal refuse_dtype(lazyt_dtype_t dtype);
Refusal refuse_argument(std::string detail);

extern const lazyt_plugin_capability_t kCapabilityTable;

}  // namespace lazyt::onednn
