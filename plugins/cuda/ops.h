// Which operators the plugin takes, and how each is lowered.
#pragma once

#include "compile.h"
#include "lazyt/toolkit/operators.hpp"

namespace lazyt::cuda {

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
void register_matmul(Operators& all);   // mm, bmm, addmm, baddbmm, linear, ...
void register_conv(Operators& all);     // convolution and its backward
void register_pool(Operators& all);     // pooling, adaptive, upsample, grid sampling
void register_norm(Operators& all);     // batch, layer, group, RMS norm and their backwards
void register_softmax(Operators& all);  // (log) softmax and backwards
void register_rows(Operators& all);     // along one dim: scans, arg reductions, variances, sorts
void register_loss(Operators& all);     // nll and the like
void register_index(Operators& all);    // gather, scatter, index, embedding and their backwards
void register_attention(Operators& all);
void register_assertion(Operators& all);

extern const lazyt_plugin_capability_t kCapabilityTable;

}  // namespace lazyt::cuda
