// Which operators the plugin takes, and how each is lowered.
#pragma once

#include "compile.h"
#include "lazyt/toolkit/operators.hpp"

namespace lazyt::onednn {

using toolkit::accept_floats;
using toolkit::accept_known;
using toolkit::refuse_argument;
using toolkit::refuse_dtype;
using toolkit::Refusal;
using Operator = toolkit::Operator<Builder>;
using Operators = toolkit::Operators<Builder>;

// All that there are. Thread-safe.
const Operators& operators();

// Each kernel file tells the table its operators.
void register_random(Operators& all);
void register_matmul(Operators& all);   // oneDNN: mm, bmm, addmm, baddbmm, linear, ...
void register_grouped(Operators& all);  // oneDNN: products of groups of rows (mixtures of experts)
void register_conv(Operators& all);     // oneDNN: convolution and its backward
void register_pool(Operators& all);     // oneDNN pooling; adaptive, upsample
void register_norm(Operators& all);     // batch, layer, group, RMS norm and their backwards
void register_softmax(Operators& all);  // (log) softmax and backwards, extremes, variance
void register_running(Operators& all);  // running sums, products, extremes
void register_sort(Operators& all);     // sort, topk, kthvalue, median
void register_loss(Operators& all);     // nll and the like
void register_index(Operators& all);    // gather, scatter, index, embedding and their backwards
void register_triangle(Operators& all);  // eye, tril, triu
void register_grid(Operators& all);     // sampling an image at given places
void register_assertion(Operators& all);
void register_attention(Operators& all);

// Every floating tensor f32; others any that registers hold.
Refusal accept_f32(const ProgramView& program, const lazyt_node_t& node);

extern const lazyt_plugin_capability_t kCapabilityTable;

}  // namespace lazyt::onednn
