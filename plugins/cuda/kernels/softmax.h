// Text that softmax and the loss over its classes share, over a walk's lines along the classes.
#pragma once

#include "walk.h"

namespace lazyt::cuda {

// Defines EACH { statements on element `i` of the thread's line }, and takes the macros back.
extern const std::string_view kLineText, kLineTextEnd;

// The body of a kernel up to the middle of its loop over the lines of a.w[0], which it leaves open: `l` is the line, `n` its
// length (0: there is none), `top` its greatest, `sum` that of exp(x - top). LOG: kept[k] still is x, not the exponential.
extern const std::string_view kExponentsText;

// loss.cpp: log softmax' backward together with that of the loss that reads it (Epilogue::Kind::kLoss).
void lower_gradient_with_softmax(Builder& b, const lazyt_node_t& node, const Epilogue& e);

}  // namespace lazyt::cuda
